/*
 * group.h - how ranks of a communicator are put into groups, each of which becomes a new one.
 *
 * Role:   split and duplicate, as far as the old communicator is needed: every rank enters the call
 *         with its colour and key, over the control connection; the root, when all have, tells each
 *         its place in its group. The ranks of a group then meet as in any creation (bootstrap.h).
 *         What goes wrong here ends the old communicator, as with a collective.
 * Thread: the driving thread, locked.
 * Owner:  the old communicator.
 */
#ifndef GY_GROUP_H
#define GY_GROUP_H

#include "fault.h"

struct gy_groups;

enum gy_group_kind { GY_GROUP_SPLIT, GY_GROUP_DUP };

struct gy_group {            /* a rank's place in its group */
  int rank, nranks;          /* rank -1: in none */
  int root;                  /* the group's rank 0, as the old communicator counts */
  uint8_t key[GY_KEY_BYTES]; /* with which its ranks meet */
};

struct gy_group_call { /* one call on this rank; storage is the caller's until `done` or cancel */
  struct gy_group_call *next;
  enum gy_group_kind kind;
  int32_t color, key; /* color < 0: in no group */
  void (*done)(struct gy_group_call *call, const struct gy_group *group);
  uint64_t number;   /* set by gy_groups_enter: how many calls there have been */
  uint64_t deadline; /* the root's answer should be here */
};

/* `fault` is read when there is something to say. */
gyre_status gy_groups_create(struct gy_comm_core *core, struct gy_fault *const *fault,
                             struct gy_groups **out);
/* `done` may run at once. */
void gy_groups_enter(struct gy_groups *g, struct gy_group_call *call);
void gy_groups_cancel(struct gy_groups *g, struct gy_group_call *call);
/* From the fault detector. */
void gy_groups_message(struct gy_groups *g, int from, uint8_t type, struct gy_reader *r);
void gy_groups_left(struct gy_groups *g, int rank);
/* After its last call. */
void gy_groups_free(struct gy_groups *g);

#endif

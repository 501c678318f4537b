/*
 * comm.h - a communicator: bootstrap, then engine and fault detection side by side.
 *
 * Thread: created, posted to and destroyed from any thread; its inside is locked (loop.h).
 * Owner:  the user; a communicator that is being created is the context's until its request
 *         completes.
 */
#ifndef GY_COMM_H
#define GY_COMM_H

#include "bootstrap.h"
#include "context.h"
#include "engine.h"
#include "fault.h"
#include "group.h"
#include "shrink.h"
#include <pthread.h>

struct gyre_comm {
  gyre_comm *next; /* in the context's list */
  gyre_context *ctx;
  struct gy_source source;
  struct gy_command start, end;
  struct gy_settings settings; /* the context's, then the configuration struct */
  struct gy_comm_core core;
  struct gy_bootstrap *bootstrap; /* while being created, as soon as it is known with whom */
  /* While being made from another one: that, and the call in its groups until it is answered. The
   * other way round those that are being made from this one. */
  gyre_comm *parent, *children, *sibling;
  struct gy_group_call call;
  struct gy_shrink *shrink; /* what this one came from, if from a failed one */
  gyre_unique_id id;
  gyre_oob oob;
  uint32_t flags;
  bool has_id, has_oob;
  bool entered; /* the call in the parent's groups */
  bool shrunk;  /* one has been made of this one's survivors, or is being made */
  bool applied; /* the verdict has been applied to the engine */
  atomic_bool aborting;
  atomic_int ended; /* destroy may free */
  gyre_comm **out;  /* of the call that creates it */
  gyre_request *creating;
  struct gy_roster *roster;
  struct gy_operators operators;
  struct gy_engine *engine;
  struct gy_fault *fault;
  struct gy_groups *groups;
  const struct gy_tl_ops **peer_ops;
  char why[256]; /* of gyre_comm_abort */
  struct gy_command abort;
  pthread_mutex_t verdict_lock;
  gyre_error verdict; /* a copy for gyre_comm_status */
};

/* ---- the steps of a creation: gyre_comm_create, and what makes communicators from others ---- */

/* Not in the context's list yet; NULL and gyre_last_error() if out of memory. */
gyre_comm *gy_comm_alloc(gyre_context *ctx, const struct gy_settings *settings, gyre_comm **out);
void gy_comm_free(gyre_comm *c);
/* Makes the request, and runs `start` on the driving thread. */
gyre_status gy_comm_begin(gyre_comm *c, void (*start)(struct gy_command *), gyre_request **req);
/* (locked) It is the context's until the request completes. */
void gy_comm_list(gyre_comm *c);
/* (locked) The ranks meet; then the request completes. `meeting` NULL: as its configuration says. */
void gy_comm_meet(gyre_comm *c, const struct gy_meeting *meeting);
/* (locked) As in bootstrap.h: all ranks have met, or not. A channel that is missing belongs to a
 * rank that has died meanwhile: the communicator is made, and fails at once. */
void gy_comm_met(void *comm, gyre_status status, struct gy_roster *roster,
                 struct gy_channel **channels);
/* (locked) Outside of any transport's call: if there is a verdict, the communicator ends. */
void gy_comm_apply_verdict(gyre_comm *c);
/* (locked) Ends a creation: without a communicator for this rank; or failed, with
 * gyre_last_error(). */
void gy_comm_none(gyre_comm *c);
void gy_comm_creation_failed(gyre_comm *c, gyre_status st);
/* (locked) The same from outside: peers that wait for this rank are told. */
void gy_comm_give_up(gyre_comm *c, gyre_status st, const char *text);

/* Destroys what is left, creations in progress included. */
void gy_comm_destroy_all(gyre_context *ctx);

#endif

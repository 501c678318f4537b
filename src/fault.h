/*
 * fault.h - one verdict for each communicator.
 *
 * Role:   what a rank notices (a broken link, another call, a stall) is a suspicion; the root
 *         judges once and tells all ranks. Speaks over the control channels that bootstrap left
 *         open: VERDICT, BYE, stall queries.
 * Thread: the driving thread, locked.
 * Owner:  the communicator, which applies the verdict outside of any transport's call.
 */
#ifndef GY_FAULT_H
#define GY_FAULT_H

#include "engine.h"

struct gy_fault;

struct gy_fault_config {
  struct gy_comm_core *core;
  struct gy_engine *engine;
  struct gy_channel **channels; /* nranks of them, as from bootstrap; taken over */
  /* Messages of types from GY_MESSAGE_GROUP on: whoever reads them sets r->failed if they make no
   * sense. And word of a rank that has left. */
  void (*other_message)(void *user, int from, uint8_t type, struct gy_reader *r);
  void (*rank_left)(void *user, int rank);
  void *user;
};

#define GY_MESSAGE_GROUP 64 /* types below are the bootstrap's and the fault detector's own */

gyre_status gy_fault_create(const struct gy_fault_config *config, struct gy_fault **out);
/* The verdict, once there is one; status GYRE_OK until then. */
const gyre_error *gy_fault_verdict(const struct gy_fault *f);
/* The link to a peer broke (peer -1: something local failed; the text is gyre_last_error()). */
void gy_fault_suspect(struct gy_fault *f, int peer, gyre_status why, int sys_errno);
void gy_fault_mismatch(struct gy_fault *f, int peer, const struct gy_descriptor *mine,
                       const struct gy_descriptor *theirs);
void gy_fault_abort(struct gy_fault *f, const char *why);
/* What was found out by means of other messages: a suspicion, or at the root the verdict. */
void gy_fault_judge(struct gy_fault *f, gyre_status status, int culprit, const char *text);
/* On the control connection to the root, or at the root to a rank. Takes the writer. */
void gy_fault_send(struct gy_fault *f, int to, uint8_t type, struct gy_writer *w);
bool gy_fault_has_left(const struct gy_fault *f, int rank);
/* After the verdict: sets the entries of ranks that have certainly ended or left. */
void gy_fault_find_dead(const struct gy_fault *f, bool *dead);
/* "rank 2 (node3, pid 4711)"; returns out. */
const char *gy_fault_name(const struct gy_fault *f, int rank, char *out, size_t capacity);
/* "ranks 0, 2-5", those whose entry is true; returns the bytes stored. */
size_t gy_fault_list(const bool *in, int nranks, char *out, size_t capacity);
/* Called in every pass: notices operations that a rank which has left will never take part in. */
void gy_fault_check(struct gy_fault *f);
/* Sends BYE with the reason (unless there is a verdict), finishes the channels with linger, and frees it. */
void gy_fault_leave(struct gy_fault *f, const char *why);

#endif

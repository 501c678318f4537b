/*
 * shrink.h - how the survivors of a communicator that has failed agree on who they are.
 *
 * Role:   every rank that calls reports to the coordinator, the lowest rank that is not known to be
 *         dead, at its listening port; the coordinator plans the new communicator, has the plan
 *         acknowledged and then commits it. The connections become its control connections.
 * Thread: the driving thread, locked.
 * Owner:  the new communicator, also after `done`: it goes on telling those who come late what was
 *         decided.
 */
#ifndef GY_SHRINK_H
#define GY_SHRINK_H

#include "fault.h"

struct gy_shrink;

struct gy_shrink_config {
  uv_loop_t *uv;
  struct gy_net *net;
  const struct gy_settings *settings; /* must outlive it */
  const struct gy_secret *secret;     /* copied, as is the roster */
  const struct gy_roster *roster;     /* of the old communicator; and the rank in it */
  int rank;
  /* Sets the entries of ranks that are known to be dead; asked now and then. */
  void (*find_dead)(void *user, bool *dead);
  /* GYRE_OK: this rank is in the new communicator. Roster and channels are the receiver's, who
   * rebinds every channel before it returns. A channel that should be there and is NULL belongs to
   * a rank that has died since. Otherwise gyre_last_error() says why: PEER_LOST for a rank that was
   * left out, or whose ranks are too few. */
  void (*done)(void *user, gyre_status status, int rank, struct gy_roster *roster,
               struct gy_channel **channels);
  void *user;
};

gyre_status gy_shrink_start(const struct gy_shrink_config *config, struct gy_shrink **out);
/* At any time; `done` does not run any more. */
void gy_shrink_end(struct gy_shrink *s);

#endif

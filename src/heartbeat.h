/*
 * heartbeat.h - ranks that show each other that they live, over the control connections.
 *
 * Role:   sends a beat over every control connection at fixed intervals, and tells when a rank has
 *         not been heard of for the peer time-out. So stopped processes, hosts that vanish and cut
 *         cables are noticed with no operation in flight. A rank without a progress thread
 *         (gy_member.unattended) may be silent: it neither beats nor watches, and nobody does so
 *         for it.
 * Thread: the driving thread, locked.
 * Owner:  the fault detector.
 */
#ifndef GY_HEARTBEAT_H
#define GY_HEARTBEAT_H

#include "bootstrap.h"

#define GY_MESSAGE_BEAT 24 /* on a control channel; no body */

struct gy_heartbeat;

struct gy_heartbeat_config {
  uv_loop_t *uv;
  int rank;
  const struct gy_roster *roster;
  struct gy_channel *const *channels; /* nranks of them; NULL where there is none (any more) */
  /* A rank was silent for the peer time-out, though all sockets have been read since that was over.
   * May end the heartbeat. */
  void (*silent)(void *user, int peer, uint64_t ms);
  /* Once in each interval, after the above: the time to look at what else may have gone silent. */
  void (*beat)(void *user);
  void *user;
};

gyre_status gy_heartbeat_create(const struct gy_heartbeat_config *config, struct gy_heartbeat **out);
void gy_heartbeat_end(struct gy_heartbeat *h); /* no more callbacks */
/* Milliseconds since this rank was last heard of, without time in which this process slept;
 * UINT64_MAX: it is not watched. */
uint64_t gy_heartbeat_silence(const struct gy_heartbeat *h, int peer);
/* Milliseconds between two beats; 0: there are none. */
uint32_t gy_heartbeat_interval(const struct gy_agreed *agreed);

#endif

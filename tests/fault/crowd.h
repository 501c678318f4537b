/*
 * crowd.h - all ranks of a communicator inside this process, on one or more contexts; and what the
 * process holds.
 */
#ifndef FAULT_CROWD_H
#define FAULT_CROWD_H

#include "world.h"

struct crowd {
  int nranks, n_ctx;
  gyre_context *ctx[WORLD_MAX];
  gyre_comm *comm[WORLD_MAX];
};

/* Contexts; rank r will live in context r % n_ctx. */
void crowd_open(struct crowd *c, int nranks, int n_ctx);
/* A communicator of all of them, created by one thread. */
void crowd_meet(struct crowd *c, const gyre_comm_config *config);
/* An all-reduce on every rank, by one thread, with the sum checked. */
void crowd_all_reduce(struct crowd *c);
void crowd_part(struct crowd *c);
void crowd_close(struct crowd *c);

struct holdings { /* of a process */
  int descriptors, threads;
  long rss_kib;
};
struct holdings holdings_now(void);
/* Waits until no more than these descriptors and threads are held, as sockets linger for a moment;
 * then fails the test. */
void holdings_settle(const struct holdings *before);

#endif

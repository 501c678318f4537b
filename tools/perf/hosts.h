/*
 * hosts.h - which ranks share a machine, and whether its memory suffices.
 *
 * Role:   learnt once from all ranks through the communicator.
 * Thread: one at a time.
 * Owner:  the caller frees with perf_hosts_free.
 */
#ifndef PERF_HOSTS_H
#define PERF_HOSTS_H

#include <stdbool.h>
#include <stdint.h>
#include "gyre/gyre.h"

struct perf_place {
  uint64_t machine;   /* ranks that share memory and cores have equal ones */
  uint64_t network;   /* ranks that share a loopback interface have equal ones */
  uint64_t available; /* bytes of memory the machine could still give; 0: unknown */
};

struct perf_hosts {
  int rank, nranks;
  int count;                /* machines */
  int ranks_here;           /* ranks on this machine */
  int cores;                /* usable by this process */
  struct perf_place *place; /* by rank */
};

/* Collective. An error of the communicator, or NOMEM. */
gyre_status perf_hosts_learn(struct perf_hosts *hosts, gyre_comm *comm);
void perf_hosts_free(struct perf_hosts *hosts);
/* Whether `bytes_per_rank` for every rank leave a tenth of each machine's available memory alone.
 * The answer is the same on every rank; false comes with a text. */
bool perf_hosts_fits(const struct perf_hosts *hosts, uint64_t bytes_per_rank, char *why,
                     size_t capacity);

#endif

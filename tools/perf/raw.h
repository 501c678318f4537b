/*
 * raw.h - the same sum over bare sockets: what the collective is compared with.
 *
 * Role:   an all-reduce (f32, sum) about as a careful person writes it without a library, between
 *         the same ranks: own TCP connections, no framing, no event loop, spinning. Two ranks
 *         exchange whole messages below 64 KiB, a power of two of them uses recursive doubling
 *         there; all else is a ring that receives, adds and passes on as bytes arrive. Files:
 *         raw_links.c (connections), raw.c (the algorithms).
 * Thread: one at a time.
 * Owner:  the caller, who closes it before the communicator.
 */
#ifndef PERF_RAW_H
#define PERF_RAW_H

#include <stdbool.h>
#include <stddef.h>
#include "hosts.h"

#define PERF_RAW_SLICE ((size_t)256 * 1024)
#define PERF_RAW_SMALL ((size_t)64 * 1024) /* from here on a ring */

struct perf_raw {
  int rank, nranks;
  bool yields;         /* ranks of a host exceed its cores: give way when nothing moves */
  int *fd;             /* by rank; -1: not connected */
  char *stage;         /* a slice, and part of an element before it */
  char congestion[16]; /* of the first connection: "reno" */
  char why[256];       /* the first failure; "" if none */
};

/* Collective: every rank of `comm` calls it, and all succeed or none does. Close it in either case.
 * An error with an empty raw->why is the communicator's. */
gyre_status perf_raw_open(struct perf_raw *raw, gyre_comm *comm, const struct perf_hosts *hosts);
void perf_raw_close(struct perf_raw *raw);
/* out = the sum over ranks of in, as floats; in and out are disjoint. False with raw->why. */
bool perf_raw_all_reduce(struct perf_raw *raw, const float *in, float *out, size_t count);

/* raw_links.c: whether the algorithms use a connection between the two ranks. */
bool perf_raw_needs(int a, int b, int nranks);
/* raw_links.c: writes the failure's text, with peer, address and errno text; returns false. */
bool perf_raw_fail(struct perf_raw *raw, int peer, const char *what, int error);

#endif

/*
 * session.h - one run of gyre-perf on one rank.
 *
 * Role:   what all parts of a run share, and how the ranks agree. Files: session.c (set-up,
 *         agreement, buffers), check.c (calls whose results are verified), timing.c (calls whose
 *         time is taken).
 * Thread: one.
 *
 * Every function that returns gyre_status is collective: all ranks call it, in the same order. An
 * error with an empty session->why is the communicator's, and its record says more; otherwise `why`
 * is this rank's own reason.
 */
#ifndef PERF_SESSION_H
#define PERF_SESSION_H

#include "data.h"
#include "hosts.h"
#include "options.h"
#include "output.h"
#include "raw.h"
#include "samples.h"

struct perf_buffer {
  char *base; /* page aligned */
  size_t bytes;
};

enum { PERF_OUT_OF_PLACE, PERF_IN_PLACE, PERF_RAW, PERF_KINDS }; /* of timed calls */

struct perf_session {
  const struct perf_options *options;
  gyre_comm *comm;
  int rank, nranks;
  struct perf_hosts hosts;
  struct perf_raw raw;
  struct perf_output output;
  struct perf_buffer in, out;
  size_t *counts; /* of the blocks by rank, of the row at hand */
  struct perf_data data;
  struct perf_samples samples[PERF_KINDS];
  struct perf_times *times[PERF_KINDS]; /* by rank, of the row at hand */
  uint64_t iteration;                   /* of checked calls: no two have the same data */
  uint64_t total_wrong;                 /* on all ranks, so far */
  char why[512];
};

struct perf_shape {    /* one row, before it is measured */
  size_t bytes, count; /* of the larger buffer; as the library takes it */
  gyre_dtype type;
  gyre_op op;
};

/* Everything but the communicator. Close it in either case. */
gyre_status perf_session_open(struct perf_session *s, const struct perf_options *options,
                              gyre_comm *comm);
/* False with s->why if output could not be written. */
bool perf_session_close(struct perf_session *s);

/* Rank 0's value goes to all. */
gyre_status perf_agree(struct perf_session *s, uint64_t *value);
/* Succeeds if `here` holds on every rank; where it does not, `why` has been written before. */
gyre_status perf_all_ready(struct perf_session *s, bool here);

/* The call of this shape. In place, both buffers lie in s->in where `out` is a part of it, else in
 * s->out. */
struct perf_call perf_call_of(const struct perf_session *s, const struct perf_shape *shape,
                              bool in_place);

/* check.c: one call on fresh data, every element verified on every rank; wrong ones are added to
 * *wrong, the first of them is reported on standard error by rank 0. */
gyre_status perf_check(struct perf_session *s, const struct perf_shape *shape, bool in_place,
                       uint64_t *wrong);
/* check.c: fills the input for timed calls. */
void perf_prepare(struct perf_session *s, const struct perf_shape *shape);
/* check.c: one call over bare sockets. */
gyre_status perf_check_raw(struct perf_session *s, const struct perf_shape *shape);

/* timing.c: warm-up, then rounds of calls of every kind in turn, until the time or the number of
 * calls is reached. s->times has the result of every rank. */
gyre_status perf_time(struct perf_session *s, const struct perf_shape *shape);

#endif

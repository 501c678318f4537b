/*
 * session.h - one run of gyre-perf on one rank.
 *
 * Role:   what all parts of a run share, and how the ranks agree. Files: session.c (set-up, agreement, buffers),
 *         check.c (calls whose results are verified), timing.c (calls whose time is taken).
 * Thread: one.
 *
 * Every function that returns gyre_status is collective: all ranks call it, in the same order. An error with an empty
 * session->why is the communicator's, and its record says more; otherwise `why` is this rank's own reason.
 */
#ifndef GY_PERF_SESSION_H
#define GY_PERF_SESSION_H

#include "data.h"
#include "hosts.h"
#include "options.h"
#include "output.h"
#include "raw.h"
#include "samples.h"

struct gy_perf_buffer {
  char *base; /* page aligned */
  size_t bytes;
};

enum { GY_PERF_OUT_OF_PLACE, GY_PERF_IN_PLACE, GY_PERF_RAW, GY_PERF_KINDS }; /* of timed calls */

struct gy_perf_session {
  const struct gy_perf_options *options;
  gyre_comm *comm;
  int rank, nranks;
  struct gy_perf_hosts hosts;
  struct gy_perf_raw raw;
  struct gy_perf_output output;
  struct gy_perf_buffer in, out;
  struct gy_perf_data data;
  struct gy_perf_samples samples[GY_PERF_KINDS];
  struct gy_perf_times *times[GY_PERF_KINDS]; /* by rank, of the row at hand */
  uint64_t iteration;                         /* of checked calls: no two have the same data */
  uint64_t total_wrong;                       /* on all ranks, so far */
  char why[512];
};

struct gy_perf_shape { /* one row, before it is measured */
  size_t bytes, count; /* of the larger buffer; as the library takes it */
  gyre_dtype type;
  gyre_op op;
};

/* Everything but the communicator. Close it in either case. */
gyre_status gy_perf_session_open(struct gy_perf_session *s, const struct gy_perf_options *options,
                                 gyre_comm *comm);
/* False with s->why if output could not be written. */
bool gy_perf_session_close(struct gy_perf_session *s);

/* Rank 0's value goes to all. */
gyre_status gy_perf_agree(struct gy_perf_session *s, uint64_t *value);
/* Succeeds if `here` holds on every rank; where it does not, `why` has been written before. */
gyre_status gy_perf_all_ready(struct gy_perf_session *s, bool here);

/* The call of this shape; in place, `in` and `out` lie in s->out for collectives with the larger output, else in s->in. */
struct gy_perf_call gy_perf_call_of(const struct gy_perf_session *s,
                                    const struct gy_perf_shape *shape, bool in_place);

/* check.c: one call on fresh data, every element verified on every rank; wrong ones are added to *wrong, the first of
 * them is reported on standard error by rank 0. */
gyre_status gy_perf_check(struct gy_perf_session *s, const struct gy_perf_shape *shape,
                          bool in_place, uint64_t *wrong);
/* check.c: fills the input for timed calls. */
void gy_perf_prepare(struct gy_perf_session *s, const struct gy_perf_shape *shape);
/* check.c: one call over bare sockets. */
gyre_status gy_perf_check_raw(struct gy_perf_session *s, const struct gy_perf_shape *shape);

/* timing.c: warm-up, then rounds of calls of every kind in turn, until the time or the number of calls is reached.
 * s->times has the result of every rank. */
gyre_status gy_perf_time(struct gy_perf_session *s, const struct gy_perf_shape *shape);

#endif

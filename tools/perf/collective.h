/*
 * collective.h - the collectives that can be measured.
 *
 * Role:   one table: name, what the call takes, the layout of its buffers, its bus factor, how to
 *         call it.
 * Thread: constant data; run() is a blocking call.
 */
#ifndef PERF_COLLECTIVE_H
#define PERF_COLLECTIVE_H

#include <stdbool.h>
#include "gyre/gyre.h"

struct perf_call {
  gyre_comm *comm;
  const void *in;
  void *out;
  size_t count; /* as the library takes it: per rank where a buffer holds a block per rank */
  gyre_dtype type;
  gyre_op op;
  int root;
};

/* The contributions that the result of a rank combines. */
enum perf_scope { PERF_ALL_RANKS, PERF_UP_TO_ITSELF, PERF_RANKS_BEFORE };

struct perf_collective {
  const char *name;
  bool has_data; /* false: barrier */
  bool has_op, has_root;
  bool in_blocks;  /* `in` holds world-size blocks of count */
  bool out_blocks; /* `out` holds world-size blocks of count */
  enum perf_scope scope;
  bool synchronises; /* no rank can finish before all have called */
  double (*bus_factor)(int nranks);
  gyre_status (*run)(const struct perf_call *call);
};

/* NULL if there is none of this name. */
const struct perf_collective *perf_collective_find(const char *name);
/* "all_reduce reduce_scatter ..." */
const char *perf_collective_names(void);
/* There is no average of a scan. */
bool perf_collective_takes(const struct perf_collective *coll, gyre_op op);
/* Bytes of the smallest non-empty message: one element of `esize` bytes on every rank; 1 for a
 * barrier. */
size_t perf_collective_grain(const struct perf_collective *coll, size_t esize, int nranks);

#endif

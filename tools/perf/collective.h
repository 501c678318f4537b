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
  int rank;
  const size_t *counts; /* of the blocks by rank, where they differ */
  gyre_dtype type;
  gyre_op op;
  int root;
};

/* The contributions that the result of a rank combines. */
enum perf_scope { PERF_ALL_RANKS, PERF_UP_TO_ITSELF, PERF_RANKS_BEFORE, PERF_RANK_BEFORE };

struct perf_collective {
  const char *name;
  bool has_data; /* false: barrier */
  bool has_op, has_root;
  bool from_root, to_root; /* only the root has input, result */
  bool varies;             /* blocks differ in length */
  bool pairs;              /* a block goes from every rank to every other */
  bool in_blocks;          /* `in` holds world-size blocks of count */
  bool out_blocks;         /* `out` holds world-size blocks of count */
  enum perf_scope scope;
  bool not_in_place; /* cannot be */
  bool synchronises; /* no rank can finish before all have called */
  double (*bus_factor)(int nranks);
  gyre_status (*run)(const struct perf_call *call);
};

/* NULL if there is none of this name. */
const struct perf_collective *perf_collective_find(const char *name);
/* "all_reduce reduce_scatter ..." */
const char *perf_collective_names(void);
/* Elements of the block of rank `other` in a buffer of `rank`, and where it starts, with `count` on
 * average. Where blocks vary, every other one is half as long again, and the next one half as long;
 * what two ranks exchange has one length in both directions. */
size_t perf_block_count(const struct perf_collective *coll, size_t count, int nranks, int rank,
                        int other);
size_t perf_block_start(const struct perf_collective *coll, size_t count, int nranks, int rank,
                        int other);
/* Whether `in` (or `out`) is only this rank's block, so that in place it is a part of the other. */
bool perf_in_is_part(const struct perf_collective *coll);
bool perf_out_is_part(const struct perf_collective *coll);
/* Whether there is such a call: the operator takes the type, and there is no average of a scan. */
bool perf_collective_takes(const struct perf_collective *coll, gyre_dtype type, gyre_op op);
/* 2: out of place and in place; 1: there is no in place. */
int perf_collective_sides(const struct perf_collective *coll);
/* Bytes of the smallest non-empty message: one element of `esize` bytes on every rank; 1 for a
 * barrier. */
size_t perf_collective_grain(const struct perf_collective *coll, size_t esize, int nranks);

#endif

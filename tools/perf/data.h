/*
 * data.h - what the ranks put in, and what must come out.
 *
 * Role:   every element depends on its index, the rank and the iteration, so that a stale, shifted
 *         or foreign element shows. Sums, products and averages are exact in whatever order ranks
 *         are combined, in half types too: what comes out is compared bit by bit.
 * Thread: one per perf_data.
 * Owner:  the caller; plain memory, some 260 KiB.
 *
 * The elements of a buffer are those of a table of PERF_PERIOD (a prime) elements, repeated,
 * each repetition starting elsewhere in the table: 64 MiB are filled and compared at the speed of
 * memory.
 */
#ifndef PERF_DATA_H
#define PERF_DATA_H

#include "gyre/gyre.h"

#define PERF_PERIOD ((size_t)8191)
#define PERF_POISON 0xa5 /* what an output holds before the call, byte by byte */

struct perf_series { /* what decides the data of one checked call, besides rank and index */
  gyre_dtype type;
  gyre_op op; /* GYRE_MAX for collectives that only copy */
  int nranks;
  uint64_t iteration;
};

struct perf_data {
  gyre_dtype type;
  size_t esize;
  unsigned char table[2 * 8191 * 16]; /* twice, so that every repetition is contiguous */
};

/* The number that `rank` contributes at place `place` of the table, 0 <= place < PERF_PERIOD; and
 * its index, where the type is a pair. */
double perf_value(const struct perf_series *s, int rank, size_t place);
int64_t perf_index(const struct perf_series *s, int rank, size_t place);
/* The elements that `rank` contributes to a buffer of `length` elements. */
void perf_data_of_rank(struct perf_data *d, const struct perf_series *s, int rank, size_t length);
/* The elements of the reduction over the first `ranks` ranks; over none it is the operator's
 * identity. An average is one of all ranks. */
void perf_data_of_result(struct perf_data *d, const struct perf_series *s, int ranks, size_t length);

/* Writes elements first .. first + count to `out`. */
void perf_data_fill(const struct perf_data *d, void *out, size_t first, size_t count);
/* How many of `count` elements differ from first .. first + count; the place of the first that does
 * goes to *wrong_at, counted from the start of `got`. */
size_t perf_data_compare(const struct perf_data *d, const void *got, size_t first, size_t count,
                         size_t *wrong_at);
/* The element with this index, esize bytes. */
const void *perf_data_at(const struct perf_data *d, size_t index);

#endif

/*
 * output.h - what is shown and written.
 *
 * Role:   rows as a table on standard output, as JSON (one object a line) and as CSV.
 * Thread: one at a time; used on rank 0 only.
 * Owner:  the caller; gy_perf_output_close reports what could not be written.
 */
#ifndef GY_PERF_OUTPUT_H
#define GY_PERF_OUTPUT_H

#include <stdio.h>
#include "options.h"

struct gy_perf_times { /* microseconds */
  double p50, p90, p99, min, max;
};

struct gy_perf_side { /* out of place, or in place */
  uint64_t iterations;
  struct gy_perf_times time;           /* the slowest rank's, each figure by itself */
  const struct gy_perf_times *by_rank; /* nranks of them */
  uint64_t wrong;
};

struct gy_perf_row {
  size_t bytes, count;
  const char *type, *op; /* "none" where the collective has none */
  int sides;             /* 2; 1 for a collective without buffers */
  struct gy_perf_side side[2];
  double raw_p50; /* 0: not measured */
};

struct gy_perf_output {
  const struct gy_perf_options *options;
  int nranks;
  const char *algo, *transport;
  FILE *json, *csv;
};

/* Opens the files. False with a text; close it in either case. */
bool gy_perf_output_open(struct gy_perf_output *out, const struct gy_perf_options *options,
                         int nranks, char *why, size_t capacity);
/* The lines above the table. `raw` describes the bare sockets; NULL: none. */
void gy_perf_output_head(const struct gy_perf_output *out, int hosts, const char *raw);
void gy_perf_output_row(const struct gy_perf_output *out, const struct gy_perf_row *row);
/* False with a text if anything could not be written. */
bool gy_perf_output_close(struct gy_perf_output *out, char *why, size_t capacity);

/* Bandwidths of a side in GB/s (10^9 bytes): bytes over p50, and times the bus factor. */
double gy_perf_algbw(size_t bytes, const struct gy_perf_side *side);

#endif

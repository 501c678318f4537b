/*
 * output.h - what is shown and written.
 *
 * Role:   rows as a table on standard output, as JSON (one object a line) and as CSV.
 * Thread: one at a time; used on rank 0 only.
 * Owner:  the caller; perf_output_close reports what could not be written.
 */
#ifndef PERF_OUTPUT_H
#define PERF_OUTPUT_H

#include <stdio.h>
#include "options.h"

struct perf_times { /* microseconds */
  double p50, p90, p99, min, max;
};

struct perf_side { /* out of place, or in place */
  uint64_t iterations;
  struct perf_times time;           /* the slowest rank's, each figure by itself */
  const struct perf_times *by_rank; /* nranks of them */
  uint64_t wrong;
};

struct perf_row {
  size_t bytes, count;
  const char *type, *op; /* "none" where the collective has none */
  const char *algo;      /* that ran; NULL: unknown, what was asked for is shown */
  int sides;             /* 2; 1 for a collective without buffers */
  struct perf_side side[2];
  double raw_p50; /* 0: not measured */
};

struct perf_output {
  const struct perf_options *options;
  int nranks;
  const char *algo, *transport;
  FILE *json, *csv;
};

/* Opens the files. False with a text; close it in either case. */
bool perf_output_open(struct perf_output *out, const struct perf_options *options, int nranks,
                      char *why, size_t capacity);
/* The lines above the table. `raw` describes the bare sockets; NULL: none. */
void perf_output_head(const struct perf_output *out, int hosts, const char *raw);
void perf_output_row(const struct perf_output *out, const struct perf_row *row);
/* False with a text if anything could not be written. */
bool perf_output_close(struct perf_output *out, char *why, size_t capacity);

/* Bandwidths of a side in GB/s (10^9 bytes): bytes over p50, and times the bus factor. */
double perf_algbw(size_t bytes, const struct perf_side *side);

#endif

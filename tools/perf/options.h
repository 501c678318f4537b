/*
 * options.h - the command line of gyre-perf.
 *
 * Role:   arguments to a struct, or a text that says what is wrong.
 * Thread: once, at the start.
 */
#ifndef PERF_OPTIONS_H
#define PERF_OPTIONS_H

#include "collective.h"

enum perf_parsed { PERF_RUN, PERF_HELP, PERF_VERSION, PERF_USAGE_ERROR };

struct perf_options {
  const struct perf_collective *coll;
  size_t min_bytes, max_bytes, factor;
  uint64_t iterations; /* 0: by time */
  double seconds;      /* for one row */
  uint64_t warmup;
  int type, op; /* -1: all */
  int root;
  const char *transport, *algo; /* NULL: the environment's, or automatic */
  const char *json, *csv;       /* files; NULL: none */
  bool check, per_rank, raw;
};

/* On a usage error `why` says what is wrong and what is allowed. Strings point into argv. */
enum perf_parsed perf_options_parse(struct perf_options *o, int argc, char **argv, char *why,
                                    size_t capacity);
const char *perf_options_help(void);

#endif

/*
 * options.h - the command line of gyre-train.
 *
 * Role: defaults, parsing, ranges. Thread: the trainer's only one.
 */
#ifndef TRAIN_OPTIONS_H
#define TRAIN_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define OPTIONS_MAX_HIDDEN 8

struct train_options {
  size_t epochs; /* 0: no limit but steps; one of the two is set */
  size_t steps;  /* 0: no limit */
  size_t batch;  /* samples of a step, over all ranks */
  size_t hidden[OPTIONS_MAX_HIDDEN];
  size_t n_hidden;
  size_t bucket_kb; /* 0: buckets_default_bytes */
  uint64_t seed;
  float lr, momentum;
  int threads;      /* of OpenBLAS, per rank */
  const char *data; /* points into argv, as does json */
  const char *json; /* NULL: none */
  bool verify, quiet;
};

enum options_result { OPTIONS_RUN, OPTIONS_HELP, OPTIONS_VERSION, OPTIONS_BAD };

/* Fills *o. On OPTIONS_BAD what is wrong has been printed to stderr. */
enum options_result options_parse(int argc, char *argv[], struct train_options *o);
void options_help(FILE *to);

#endif

/*
 * options.c - see options.h.
 */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "idx.h"

#define VERIFY_STEPS 50

enum {
  OPT_EPOCHS = 256,
  OPT_STEPS,
  OPT_BATCH,
  OPT_LR,
  OPT_MOMENTUM,
  OPT_HIDDEN,
  OPT_BUCKET_KB,
  OPT_SEED,
  OPT_THREADS,
  OPT_DATA,
  OPT_JSON,
  OPT_VERIFY,
  OPT_QUIET,
  OPT_HELP,
  OPT_VERSION
};

static const struct option table[] = {
    {"epochs", required_argument, NULL, OPT_EPOCHS},
    {"steps", required_argument, NULL, OPT_STEPS},
    {"batch", required_argument, NULL, OPT_BATCH},
    {"lr", required_argument, NULL, OPT_LR},
    {"momentum", required_argument, NULL, OPT_MOMENTUM},
    {"hidden", required_argument, NULL, OPT_HIDDEN},
    {"bucket-kb", required_argument, NULL, OPT_BUCKET_KB},
    {"seed", required_argument, NULL, OPT_SEED},
    {"threads", required_argument, NULL, OPT_THREADS},
    {"data", required_argument, NULL, OPT_DATA},
    {"json", required_argument, NULL, OPT_JSON},
    {"verify", no_argument, NULL, OPT_VERIFY},
    {"quiet", no_argument, NULL, OPT_QUIET},
    {"help", no_argument, NULL, OPT_HELP},
    {"version", no_argument, NULL, OPT_VERSION},
    {NULL, 0, NULL, 0},
};

void options_help(FILE *to) {
  fputs(
      "usage: gyre-train [OPTION]...\n"
      "       gyre-run -n RANKS -- gyre-train [OPTION]...\n"
      "\n"
      "Trains a multilayer perceptron on images, data parallel: every rank computes the gradients "
      "of\n"
      "its part of each batch, Gyre sums them. Alone it trains on one rank.\n"
      "\n"
      "  --epochs N      passes over the training set (1)\n"
      "  --steps N       stop after N steps; without --epochs, over as many passes as that takes\n"
      "  --batch N       samples of a step, over ALL ranks; each rank takes its part (128)\n"
      "  --lr X          learning rate of the first step; falls to 0 along a line (0.05)\n"
      "  --momentum X    0 <= X < 1 (0.9)\n"
      "  --hidden A,B..  sizes of the hidden layers, at most 8 (256,128)\n"
      "  --bucket-kb N   size of a gradient bucket in KiB (automatic: a quarter of the gradients,\n"
      "                  32 to 4096)\n"
      "  --seed N        of the initial weights and the order of samples (1)\n"
      "  --threads N     OpenBLAS threads per rank (1)\n"
      "  --data DIR      directory of IDX files, plain or .gz (" IDX_DEFAULT_DIR ")\n"
      "  --json FILE     rank 0 writes one JSON object per line: start, step, epoch, verify, end\n"
      "  --verify        train the same steps (50 unless --steps or --epochs is given) also on "
      "rank\n"
      "                  0 alone with the whole batch, and compare the weights\n"
      "  --quiet         print the result only\n"
      "  --help          print this\n"
      "  --version       print the version\n"
      "\n"
      "Exit status: 0 success, 1 failure, 2 wrong usage.\n",
      to);
}

static bool refuse(const char *option, const char *value, const char *rule) {
  fprintf(stderr, "gyre-train: --%s %s: %s\n", option, value, rule);
  return false;
}

static bool parse_integer(const char *option, const char *value, uint64_t min, uint64_t max,
                          uint64_t *out) {
  char *end, rule[80];
  errno = 0;
  unsigned long long n = strtoull(value, &end, 10);
  if (errno == 0 && end != value && *end == '\0' && strchr(value, '-') == NULL && n >= min &&
      n <= max) {
    *out = n;
    return true;
  }
  snprintf(rule, sizeof rule, "must be a whole number from %llu to %llu", (unsigned long long)min,
           (unsigned long long)max);
  return refuse(option, value, rule);
}

static bool parse_size(const char *option, const char *value, size_t max, size_t *out) {
  uint64_t n;
  if (!parse_integer(option, value, 1, max, &n)) return false;
  *out = (size_t)n;
  return true;
}

static bool parse_real(const char *option, const char *value, bool zero_allowed, float below,
                       float *out) {
  char *end, rule[80];
  float x = strtof(value, &end);
  if (end != value && *end == '\0' && isfinite(x) && (x > 0.0f || (zero_allowed && x == 0.0f)) &&
      x < below) {
    *out = x;
    return true;
  }
  snprintf(rule, sizeof rule, "must be a number %s 0 and below %g", zero_allowed ? "from" : "above",
           (double)below);
  return refuse(option, value, rule);
}

static bool parse_hidden(const char *value, struct train_options *o) {
  char copy[128], *rest = copy, *one;
  if (strlen(value) >= sizeof copy) return refuse("hidden", value, "too long");
  memcpy(copy, value, strlen(value) + 1);
  for (o->n_hidden = 0; (one = strsep(&rest, ",")) != NULL; o->n_hidden++) {
    if (o->n_hidden == OPTIONS_MAX_HIDDEN) return refuse("hidden", value, "at most 8 layers");
    if (!parse_size("hidden", one, 16384, &o->hidden[o->n_hidden])) return false;
  }
  return true;
}

static bool parse_one(int option, const char *value, struct train_options *o) {
  uint64_t n = 1;
  switch (option) {
    case OPT_EPOCHS: return parse_size("epochs", value, 1000000, &o->epochs);
    case OPT_STEPS: return parse_size("steps", value, 1000000000, &o->steps);
    case OPT_BATCH: return parse_size("batch", value, 1 << 20, &o->batch);
    case OPT_LR: return parse_real("lr", value, false, 1000.0f, &o->lr);
    case OPT_MOMENTUM: return parse_real("momentum", value, true, 1.0f, &o->momentum);
    case OPT_HIDDEN: return parse_hidden(value, o);
    case OPT_BUCKET_KB: return parse_size("bucket-kb", value, 1 << 20, &o->bucket_kb);
    case OPT_SEED: return parse_integer("seed", value, 0, UINT64_MAX, &o->seed);
    case OPT_THREADS:
      if (!parse_integer("threads", value, 1, 1024, &n)) return false;
      o->threads = (int)n;
      return true;
    case OPT_DATA: o->data = value; return true;
    case OPT_JSON: o->json = value; return true;
    case OPT_VERIFY: o->verify = true; return true;
    case OPT_QUIET: o->quiet = true; return true;
    default: return false; /* getopt_long has said why */
  }
}

enum options_result options_parse(int argc, char *argv[], struct train_options *o) {
  *o = (struct train_options){.batch = 128,
                              .hidden = {256, 128},
                              .n_hidden = 2,
                              .seed = 1,
                              .lr = 0.05f,
                              .momentum = 0.9f,
                              .threads = 1,
                              .data = IDX_DEFAULT_DIR};
  int option;
  while ((option = getopt_long(argc, argv, "", table, NULL)) != -1) {
    if (option == OPT_HELP) return OPTIONS_HELP;
    if (option == OPT_VERSION) return OPTIONS_VERSION;
    if (!parse_one(option, optarg, o)) {
      fputs("gyre-train: --help lists the options\n", stderr);
      return OPTIONS_BAD;
    }
  }
  if (optind < argc) {
    fprintf(stderr, "gyre-train: %s: takes no arguments, only options; see --help\n", argv[optind]);
    return OPTIONS_BAD;
  }
  if (o->verify && o->steps == 0 && o->epochs == 0) o->steps = VERIFY_STEPS;
  if (o->epochs == 0 && o->steps == 0) o->epochs = 1;
  return OPTIONS_RUN;
}

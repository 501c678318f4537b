/*
 * gyre-sched.c - prints, verifies and costs the programs of the collectives.
 *
 * Role:   a command line on schedule.h, verify.h and select.h; opens no network.
 * Thread: one.
 */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "schedule.h"
#include "select.h"
#include "status.h"
#include "verify.h"

#define MAX_RANKS 16384
#define MAX_VERIFIED 4096

enum { STATUS_OK = 0, STATUS_FAILED = 1, STATUS_USAGE = 2 };

static const char usage[] =
    "Usage: gyre-sched print COLLECTIVE ALGORITHM -n RANKS [-r RANK|all] [--root R] [--in-place]\n"
    "       gyre-sched verify [--ranks A[-B]] [--schedules K] [--seed S] [-v] [COLLECTIVE "
    "[ALGORITHM]]\n"
    "       gyre-sched cost COLLECTIVE -n RANKS [-b MIN] [-e MAX] [-f FACTOR] [--cores C] [--slice "
    "BYTES]\n"
    "\n"
    "print    what a rank does (default: rank 0), one line an instruction\n"
    "verify   proves the programs right for every number of ranks from A to B (default 1-128)\n"
    "cost     the cost model's estimate for each algorithm, in microseconds, and the one it "
    "chooses\n"
    "\n"
    "  -n, --nranks N      number of ranks\n"
    "  -r, --rank R        the rank whose program is printed, or all\n"
    "      --root R        root of a rooted collective (default 0)\n"
    "      --in-place      input and output are the same buffer\n"
    "      --ranks A[-B]   numbers of ranks to verify\n"
    "      --schedules K   random interleavings for each case, besides two fixed ones (default 4)\n"
    "      --seed S        seed of these (default 1)\n"
    "  -v, --verbose       one line for each number of ranks\n"
    "  -b, -e, -f          smallest and largest size (suffixes K, M, G, T), factor between sizes "
    "(default 8, 64M, 4)\n"
    "      --cores C       cores that the ranks share (default: those of this machine)\n"
    "      --slice BYTES   slice length (default 256K)\n"
    "  -h, --help          this text\n"
    "      --version       show the version\n"
    "\n"
    "Collectives and algorithms:\n";

struct arguments {
  const char *words[3]; /* what stands without an option: collective, algorithm */
  int n_words;
  uint64_t nranks, rank, root, first, last, schedules, seed, from, to, factor, cores, slice;
  bool all_ranks, in_place, verbose, root_given;
};

/* ------------------------------------------------------------------------ command line --- */

static void print_usage(void) {
  size_t n;
  const struct gy_algo *const *all = gy_algorithms(&n);
  fputs(usage, stdout);
  for (unsigned coll = 0; coll < GY_COLL_COUNT; coll++) {
    printf("  %-20s", gy_coll_name(coll));
    for (size_t i = 0; i < n; i++)
      if (all[i]->coll == coll) printf(" %s", all[i]->name);
    putchar('\n');
  }
}

static bool complain(const char *what, const char *value, const char *rule) {
  fprintf(stderr, "gyre-sched: %s \"%s\": %s; try gyre-sched --help\n", what, value, rule);
  return false;
}

/* How far a size's suffix shifts it; 64 for what is no suffix. */
static unsigned suffix_shift(const char *suffix) {
  static const char *const letters = "KMGT";
  if (suffix[0] == '\0') return 0;
  const char *letter = strchr(letters, suffix[0] & ~0x20);
  return suffix[1] != '\0' || letter == NULL ? 64 : 10 * ((unsigned)(letter - letters) + 1);
}

/* A whole number; with `suffix`, K, M, G and T multiply it. */
static bool parse_number(const char *option, const char *text, bool suffix, uint64_t min,
                         uint64_t max, uint64_t *out) {
  char rule[96], *end = NULL;
  errno = 0;
  uint64_t value = strtoull(text, &end, 10);
  unsigned shift = suffix || *end == '\0' ? suffix_shift(end) : 64;
  bool ok = text[0] >= '0' && text[0] <= '9' && errno == 0 && shift < 64 && value <= max >> shift;
  if (!ok || value << shift < min) {
    snprintf(rule, sizeof rule, "expected a number from %llu to %llu%s", (unsigned long long)min,
             (unsigned long long)max, suffix ? ", or with K, M, G or T" : "");
    return complain(option, text, rule);
  }
  *out = value << shift;
  return true;
}

static bool parse_range(const char *text, uint64_t *first, uint64_t *last) {
  char head[32];
  const char *dash = strchr(text, '-');
  size_t length = dash == NULL ? strlen(text) : (size_t)(dash - text);
  if (length >= sizeof head) return complain("--ranks", text, "expected A or A-B");
  memcpy(head, text, length);
  head[length] = '\0';
  if (!parse_number("--ranks", head, false, 1, MAX_VERIFIED, first)) return false;
  *last = *first;
  return dash == NULL || parse_number("--ranks", dash + 1, false, *first, MAX_VERIFIED, last);
}

enum { OPT_ROOT = 256, OPT_IN_PLACE, OPT_RANKS, OPT_SCHEDULES, OPT_SEED, OPT_CORES, OPT_SLICE };

static bool parse_option(int option, const char *value, struct arguments *a) {
  switch (option) {
    case 'n': return parse_number("-n", value, false, 1, MAX_RANKS, &a->nranks);
    case 'r':
      a->all_ranks = strcmp(value, "all") == 0;
      return a->all_ranks || parse_number("-r", value, false, 0, MAX_RANKS - 1, &a->rank);
    case OPT_ROOT:
      a->root_given = true;
      return parse_number("--root", value, false, 0, MAX_RANKS - 1, &a->root);
    case OPT_IN_PLACE: a->in_place = true; return true;
    case OPT_RANKS: return parse_range(value, &a->first, &a->last);
    case OPT_SCHEDULES: return parse_number("--schedules", value, false, 0, 100000, &a->schedules);
    case OPT_SEED: return parse_number("--seed", value, false, 0, UINT64_MAX, &a->seed);
    case 'v': a->verbose = true; return true;
    case 'b': return parse_number("-b", value, true, 0, UINT64_MAX, &a->from);
    case 'e': return parse_number("-e", value, true, 0, UINT64_MAX, &a->to);
    case 'f': return parse_number("-f", value, false, 2, 1024, &a->factor);
    case OPT_CORES: return parse_number("--cores", value, false, 1, 1u << 20, &a->cores);
    case OPT_SLICE: return parse_number("--slice", value, true, 64, 1u << 30, &a->slice);
    default: fputs("try gyre-sched --help\n", stderr); return false;
  }
}

static bool parse_arguments(int argc, char **argv, struct arguments *a) {
  static const struct option options[] = {
      {"nranks", required_argument, NULL, 'n'},
      {"rank", required_argument, NULL, 'r'},
      {"root", required_argument, NULL, OPT_ROOT},
      {"in-place", no_argument, NULL, OPT_IN_PLACE},
      {"ranks", required_argument, NULL, OPT_RANKS},
      {"schedules", required_argument, NULL, OPT_SCHEDULES},
      {"seed", required_argument, NULL, OPT_SEED},
      {"verbose", no_argument, NULL, 'v'},
      {"cores", required_argument, NULL, OPT_CORES},
      {"slice", required_argument, NULL, OPT_SLICE},
      {NULL, 0, NULL, 0},
  };
  int option;
  while ((option = getopt_long(argc, argv, "n:r:vb:e:f:", options, NULL)) != -1)
    if (!parse_option(option, optarg, a)) return false;
  for (; optind < argc; optind++) {
    if (a->n_words == 3) return complain("argument", argv[optind], "one too many");
    a->words[a->n_words++] = argv[optind];
  }
  return true;
}

/* ---------------------------------------------------------------------------- the tables --- */

static bool find_coll(const char *name, unsigned *out) {
  char rule[512] = "expected one of";
  size_t len = strlen(rule);
  int coll = gy_coll_find(name);
  for (unsigned c = 0; coll < 0 && c < GY_COLL_COUNT; c++)
    len += gy_format(rule + len, sizeof rule - len, " %s", gy_coll_name(c));
  if (coll < 0) return complain("collective", name, rule);
  *out = (unsigned)coll;
  return true;
}

static bool find_algo(unsigned coll, const char *name, const struct gy_algo **out) {
  char rule[256];
  size_t n, len = gy_format(rule, sizeof rule, "%s has", gy_coll_name(coll));
  const struct gy_algo *const *all = gy_algorithms(&n);
  for (size_t i = 0; i < n; i++)
    if (all[i]->coll == coll) len += gy_format(rule + len, sizeof rule - len, " %s", all[i]->name);
  *out = gy_algo_find((enum gy_coll)coll, name);
  return *out != NULL || complain("algorithm", name, rule);
}

static int library_failed(void) {
  fprintf(stderr, "gyre-sched: %s\n", gyre_last_error());
  return STATUS_FAILED;
}

/* ------------------------------------------------------------------------------- print --- */

static int print_one(const struct gy_algo *algo, const struct arguments *a, uint64_t rank) {
  struct gy_program *p;
  struct gy_key key = {.coll = algo->coll,
                       .in_place = a->in_place,
                       .nranks = (int)a->nranks,
                       .rank = (int)rank,
                       .root = (int)a->root};
  if (gy_program_build(algo, &key, &p) != GYRE_OK) return library_failed();
  gy_program_print(p, &key, stdout);
  gy_program_free(p);
  return STATUS_OK;
}

static bool check_rank(const char *option, uint64_t rank, uint64_t nranks) {
  if (rank < nranks) return true;
  fprintf(stderr, "gyre-sched: %s %llu: must be from 0 to %llu with -n %llu\n", option,
          (unsigned long long)rank, (unsigned long long)nranks - 1, (unsigned long long)nranks);
  return false;
}

static int run_print(const struct arguments *a) {
  unsigned coll;
  const struct gy_algo *algo;
  if (a->n_words != 2 || a->nranks == 0) {
    fputs("gyre-sched: print needs a collective, an algorithm and -n; try gyre-sched --help\n",
          stderr);
    return STATUS_USAGE;
  }
  if (!find_coll(a->words[0], &coll) || !find_algo(coll, a->words[1], &algo)) return STATUS_USAGE;
  if (a->root_given && !gy_coll_traits(coll)->rooted) {
    fprintf(stderr, "gyre-sched: --root: %s has no root\n", a->words[0]);
    return STATUS_USAGE;
  }
  if (!check_rank("-r", a->rank, a->nranks) || !check_rank("--root", a->root, a->nranks))
    return STATUS_USAGE;
  if (!a->all_ranks) return print_one(algo, a, a->rank);
  int status = STATUS_OK;
  for (uint64_t rank = 0; status == STATUS_OK && rank < a->nranks; rank++)
    status = print_one(algo, a, rank);
  return status;
}

/* ------------------------------------------------------------------------------ verify --- */

struct plan { /* how thoroughly a number of ranks is verified */
  uint32_t min_slices, max_slices, max_window, schedules, roots;
};

static struct plan plan_for(uint32_t nranks, uint32_t schedules) {
  if (nranks <= 16) return (struct plan){1, 3, 3, schedules, nranks};
  if (nranks <= 32) return (struct plan){1, 2, 2, schedules < 1 ? schedules : 1, 3};
  return (struct plan){2, 2, 1, 0, 2};
}

static int verify_case(const struct gy_algo *algo, uint32_t nranks, const struct arguments *a) {
  struct plan plan = plan_for(nranks, (uint32_t)a->schedules);
  uint32_t roots = !gy_coll_traits(algo->coll)->rooted ? 1
                   : plan.roots < nranks               ? plan.roots
                                                       : nranks;
  for (uint32_t k = 0; k < roots; k++) {
    int root = (int)((uint64_t)k * (nranks - 1) / (roots > 1 ? roots - 1 : 1));
    for (uint32_t slices = plan.min_slices; slices <= plan.max_slices; slices++)
      for (uint32_t window = 1; window <= plan.max_window; window++) {
        struct gy_verify_options options = {slices, window, plan.schedules, a->seed};
        if (gy_verify_algo(algo, (int)nranks, root, &options) != GYRE_OK) return library_failed();
      }
  }
  return STATUS_OK;
}

#define SAMPLED_ABOVE 32

/* All-to-all and the _v collectives take the longest, as every rank has something for every other:
 * in a range, of the larger numbers of ranks only multiples of 8 and their neighbours are tried. */
static bool is_sampled(const struct gy_algo *algo, const struct arguments *a) {
  bool slow = algo->coll == GY_ALL_TO_ALL || gy_coll_traits(algo->coll)->layout == GY_VARY;
  return slow && a->last > SAMPLED_ABOVE && a->first != a->last;
}

static bool is_left_out(uint64_t nranks) { return nranks > SAMPLED_ABOVE && (nranks + 1) % 8 > 2; }

static int verify_algo(const struct gy_algo *algo, const struct arguments *a) {
  uint64_t last = algo->max_ranks != 0 && (uint64_t)algo->max_ranks < a->last
                      ? (uint64_t)algo->max_ranks
                      : a->last;
  for (uint64_t nranks = a->first; nranks <= last; nranks++) {
    if (is_sampled(algo, a) && is_left_out(nranks)) continue;
    int status = verify_case(algo, (uint32_t)nranks, a);
    if (status != STATUS_OK) return status;
    if (a->verbose)
      printf("%s %s, %llu ranks: ok\n", gy_coll_name(algo->coll), algo->name,
             (unsigned long long)nranks);
  }
  printf("%-20s %-20s %llu-%llu ranks%s: ok\n", gy_coll_name(algo->coll), algo->name,
         (unsigned long long)a->first, (unsigned long long)last,
         is_sampled(algo, a) ? " (above 32 a sample)" : "");
  fflush(stdout);
  return STATUS_OK;
}

static int run_verify(const struct arguments *a) {
  size_t n;
  const struct gy_algo *const *all = gy_algorithms(&n), *only = NULL;
  unsigned coll = GY_COLL_COUNT;
  if (a->n_words > 2) {
    complain("argument", a->words[2], "one too many");
    return STATUS_USAGE;
  }
  if (a->n_words > 0 && !find_coll(a->words[0], &coll)) return STATUS_USAGE;
  if (a->n_words > 1 && !find_algo(coll, a->words[1], &only)) return STATUS_USAGE;
  int status = STATUS_OK;
  for (size_t i = 0; i < n; i++) {
    if ((coll != GY_COLL_COUNT && all[i]->coll != coll) || (only != NULL && all[i] != only))
      continue;
    if (verify_algo(all[i], a) != STATUS_OK) status = STATUS_FAILED;
  }
  return status;
}

/* -------------------------------------------------------------------------------- cost --- */

static int print_cost(const struct arguments *a, const struct gy_cost *cost,
                      const struct gy_key *key, uint64_t bytes) {
  size_t n;
  const struct gy_algo *const *all = gy_algorithms(&n), *chosen;
  if (gy_select("", cost, key, (size_t)bytes, &chosen) != GYRE_OK) return library_failed();
  printf("%14llu", (unsigned long long)bytes);
  for (size_t i = 0; i < n; i++)
    if (all[i]->coll == key->coll)
      printf(" %20.1f", a->nranks == 1 ? 0 : all[i]->cost_us(key, (size_t)bytes, cost));
  printf("  %s\n", chosen->name);
  return STATUS_OK;
}

static int run_cost(const struct arguments *a) {
  unsigned coll;
  if (a->n_words != 1 || a->nranks == 0) {
    fputs("gyre-sched: cost needs one collective and -n; try gyre-sched --help\n", stderr);
    return STATUS_USAGE;
  }
  if (!find_coll(a->words[0], &coll)) return STATUS_USAGE;
  if (a->from > a->to) {
    fputs("gyre-sched: -b is larger than -e\n", stderr);
    return STATUS_USAGE;
  }
  struct gy_cost cost;
  struct gy_key key = {.coll = (uint8_t)coll, .nranks = (int)a->nranks};
  gy_cost_default(&cost, (int)a->nranks, (int)a->cores, (size_t)a->slice);
  printf("%14s", "bytes");
  size_t n;
  const struct gy_algo *const *all = gy_algorithms(&n);
  for (size_t i = 0; i < n; i++)
    if (all[i]->coll == coll) printf(" %20s", all[i]->name);
  puts("  chosen");
  for (uint64_t bytes = a->from;;) {
    int status = print_cost(a, &cost, &key, bytes);
    bool last = bytes == 0 ? a->to == 0 : bytes > a->to / a->factor;
    if (status != STATUS_OK || last) return status;
    bytes = bytes == 0 ? 1 : bytes * a->factor;
  }
}

static int run(const char *command, const struct arguments *a) {
  if (a->root_given && strcmp(command, "print") != 0) {
    fprintf(stderr, "gyre-sched: --root belongs to print, not to %s\n", command);
    return STATUS_USAGE;
  }
  if (strcmp(command, "print") == 0) return run_print(a);
  if (strcmp(command, "verify") == 0) return run_verify(a);
  if (strcmp(command, "cost") == 0) return run_cost(a);
  complain("command", command, "expected print, verify or cost");
  return STATUS_USAGE;
}

int main(int argc, char **argv) {
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  struct arguments a = {.first = 1,
                        .last = 128,
                        .schedules = 4,
                        .seed = 1,
                        .from = 8,
                        .to = 64u << 20,
                        .factor = 4,
                        .cores = cores > 0 ? (uint64_t)cores : 1,
                        .slice = 256u << 10};
  for (int i = 1; i < argc; i++) {
    bool help = strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0;
    if (!help && strcmp(argv[i], "--version") != 0) continue;
    if (help) print_usage();
    else printf("gyre-sched %s\n", gyre_version_string());
    return fflush(stdout) == 0 ? STATUS_OK : STATUS_FAILED;
  }
  if (argc < 2) {
    fputs("gyre-sched: expected print, verify or cost; try gyre-sched --help\n", stderr);
    return STATUS_USAGE;
  }
  static char name[] = "gyre-sched";
  const char *command = argv[1];
  argv[1] = name; /* what getopt puts before its complaints */
  if (!parse_arguments(argc - 1, argv + 1, &a)) return STATUS_USAGE;
  int status = run(command, &a);
  if (fflush(stdout) != 0 || ferror(stdout)) {
    fprintf(stderr, "gyre-sched: standard output: %s\n", strerror(errno));
    return STATUS_FAILED;
  }
  return status;
}

/* test_options.c - the command line: defaults, what is accepted, what is refused and why. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "options.h"

static struct perf_options options;
static char why[256];

static enum perf_parsed parse(const char *line) {
  static char copy[256];
  char *argv[32] = {0};
  int argc = 0;
  strncpy(copy, line, sizeof(copy) - 1);
  for (char *word = strtok(copy, " "); word != NULL && argc < 31; word = strtok(NULL, " "))
    argv[argc++] = word;
  return perf_options_parse(&options, argc, argv, why, sizeof(why));
}

static void assert_refused(const char *line, const char *reason) {
  assert_int_equal(parse(line), PERF_USAGE_ERROR);
  if (strstr(why, reason) == NULL) fail_msg("\"%s\" says \"%s\", not \"%s\"", line, why, reason);
}

static void defaults(void **state) {
  (void)state;
  assert_int_equal(parse("gyre-perf all_reduce"), PERF_RUN);
  assert_string_equal(options.coll->name, "all_reduce");
  assert_int_equal(options.min_bytes, 8);
  assert_int_equal(options.max_bytes, 64 << 20);
  assert_int_equal(options.factor, 2);
  assert_int_equal(options.iterations, 0);
  assert_true(options.seconds == 0.5);
  assert_int_equal(options.warmup, 5);
  assert_int_equal(options.type, GYRE_F32);
  assert_int_equal(options.op, GYRE_SUM);
  assert_int_equal(options.root, 0);
  assert_null(options.algo);
  assert_false(options.check || options.per_rank || options.raw);
}

static void everything_given(void **state) {
  (void)state;
  assert_int_equal(
      parse("gyre-perf -b 4 -e 64M -f 4 -n 10 -w 0 -d bf16 -o avg -r 3 --transport tcp "
            "--algo ring --check --json a --csv b --per-rank reduce"),
      PERF_RUN);
  assert_string_equal(options.coll->name, "reduce");
  assert_int_equal(options.min_bytes, 4);
  assert_int_equal(options.max_bytes, 64 << 20);
  assert_int_equal(options.factor, 4);
  assert_int_equal(options.iterations, 10);
  assert_int_equal(options.warmup, 0);
  assert_int_equal(options.type, GYRE_BF16);
  assert_int_equal(options.op, GYRE_AVG);
  assert_int_equal(options.root, 3);
  assert_string_equal(options.transport, "tcp");
  assert_string_equal(options.algo, "ring");
  assert_string_equal(options.json, "a");
  assert_string_equal(options.csv, "b");
  assert_true(options.check && options.per_rank);
}

static void one_end_of_the_sweep_moves_the_other(void **state) {
  (void)state;
  assert_int_equal(parse("gyre-perf all_reduce -b 1G"), PERF_RUN);
  assert_int_equal(options.max_bytes, 1 << 30);
  assert_int_equal(parse("gyre-perf all_reduce -e 4"), PERF_RUN);
  assert_int_equal(options.min_bytes, 4);
  assert_int_equal(parse("gyre-perf all_reduce -d all -o all -b 0 -e 0"), PERF_RUN);
  assert_int_equal(options.type, -1);
  assert_int_equal(options.op, -1);
  assert_int_equal(options.max_bytes, 0);
}

static void refusals(void **state) {
  (void)state;
  assert_refused("gyre-perf", "no collective given; there are all_reduce");
  assert_refused("gyre-perf allreduce", "no collective allreduce; there are all_reduce");
  assert_refused("gyre-perf all_reduce reduce", "reduce is one too many");
  assert_refused("gyre-perf all_reduce -b 1X", "-b 1X: must be a number of bytes");
  assert_refused("gyre-perf all_reduce -b 2 -e 1", "-b 2 is more than -e 1");
  assert_refused("gyre-perf all_reduce -f 1", "-f 1: must be a whole number from 2");
  assert_refused("gyre-perf all_reduce -n 0", "-n 0: must be a whole number from 1");
  assert_refused("gyre-perf all_reduce -w -1", "-w -1: must be a whole number from 0");
  assert_refused("gyre-perf all_reduce --time 0", "--time 0: must be seconds");
  assert_refused("gyre-perf all_reduce --time nan", "--time nan: must be seconds");
  assert_refused("gyre-perf all_reduce --time 1 -n 1", "either -n or --time");
  assert_refused("gyre-perf all_reduce -d f8", "-d f8: no such type; there are f32");
  assert_refused("gyre-perf all_reduce -o xor", "-o xor: no such operator; there are sum");
  assert_refused("gyre-perf all_reduce --frob", "unknown option --frob");
  assert_refused("gyre-perf all_reduce -z", "unknown option -z");
  assert_refused("gyre-perf all_reduce -b", "-b needs a value");
  assert_refused("gyre-perf all_reduce --json", "--json needs a value");
  assert_refused("gyre-perf all_gather --raw", "--raw compares all_reduce");
  assert_refused("gyre-perf all_reduce --raw -d f64", "--raw compares all_reduce");
  assert_refused("gyre-perf all_reduce --raw -o all", "--raw compares all_reduce");
}

static void help_and_version(void **state) {
  (void)state;
  assert_int_equal(parse("gyre-perf --help"), PERF_HELP);
  assert_int_equal(parse("gyre-perf --version"), PERF_VERSION);
  char names[512], *rest = NULL;
  assert_true(strlen(perf_collective_names()) < sizeof names);
  strcpy(names, perf_collective_names());
  for (char *name = strtok_r(names, " ", &rest); name; name = strtok_r(NULL, " ", &rest))
    assert_non_null(strstr(perf_options_help(), name));
}

static void bus_factors(void **state) {
  (void)state;
  static const struct {
    const char *name;
    double four, one;
  } want[] = {{"all_reduce", 1.5, 0.0}, {"reduce_scatter", 0.75, 0.0}, {"all_gather", 0.75, 0.0},
              {"broadcast", 1.0, 1.0},  {"reduce", 1.0, 1.0},          {"gather", 0.75, 0.0},
              {"scatter_v", 0.75, 0.0}, {"all_to_all", 0.75, 0.0}};
  for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
    const struct perf_collective *coll = perf_collective_find(want[i].name);
    assert_non_null(coll);
    assert_true(coll->bus_factor(4) == want[i].four);
    assert_true(coll->bus_factor(1) == want[i].one);
  }
  assert_int_equal(perf_collective_grain(perf_collective_find("all_gather"), 8, 3), 24);
  assert_int_equal(perf_collective_grain(perf_collective_find("reduce"), 8, 3), 8);
}

/* Every buffer that holds all blocks has the row's size, and what two ranks exchange is equal. */
static void varying_blocks_fill_the_size(void **state) {
  (void)state;
  static const char *const names[] = {"all_gather_v", "all_to_all_v", "scatter"};
  for (size_t i = 0; i < 3; i++)
    for (int n = 1; n <= 6; n++)
      for (int rank = 0; rank < n; rank++) {
        const struct perf_collective *coll = perf_collective_find(names[i]);
        assert_int_equal(perf_block_start(coll, 7, n, rank, n), 7 * n);
        for (int other = 0; other < n && coll->pairs; other++)
          assert_int_equal(perf_block_count(coll, 7, n, rank, other),
                           perf_block_count(coll, 7, n, other, rank));
      }
  assert_int_equal(perf_block_count(perf_collective_find("gather_v"), 7, 3, 0, 0), 10);
  assert_int_equal(perf_block_count(perf_collective_find("gather_v"), 7, 3, 0, 1), 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(defaults),
      cmocka_unit_test(everything_given),
      cmocka_unit_test(one_end_of_the_sweep_moves_the_other),
      cmocka_unit_test(refusals),
      cmocka_unit_test(help_and_version),
      cmocka_unit_test(bus_factors),
      cmocka_unit_test(varying_blocks_fill_the_size),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * test_scarcity.c - memory, descriptors and other system calls that fail in one rank of a job, each
 * call by itself and all from there on for a while. What must hold is in job.h.
 *
 * STRIDE in the environment: every STRIDE-th call fails in turn (1: each); SEED: from which one on.
 * ONLY=what,rank,k,extent runs that one alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "job.h"

static const char *const names[] = {"memory", "descriptors", "other calls"};

static unsigned number(const char *name, unsigned otherwise) {
  const char *text = getenv(name);
  return text ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

static bool one(enum scarce what, int victim, unsigned k, enum extent extent) {
  bool good = job_run(what, victim, k, extent);
  if (!good || getenv("VERBOSE"))
    print_message("%s: ONLY=%d,%d,%u,%d (%s, %s): %ld ms\n", good ? "good" : "BAD", what, victim, k,
                  extent, names[what], inject_where(), job_ms());
  return good;
}

static void sweep(enum scarce what, unsigned stride) {
  unsigned bad = 0, n = 0, seed = number("SEED", 0);
  stride = number("STRIDE", stride);
  for (int victim = 0; victim < 3; victim++) {
    unsigned count = job_count(what, victim); /* about: what runs at the same time may differ */
    assert_true(count > 10);
    for (unsigned extent = 0; extent < N_EXTENT; extent++) {
      for (unsigned k = 1 + (seed + extent * 7 + (unsigned)victim * 3) % stride; k <= count + 3;
           k += stride, n++)
        bad += !one(what, victim, k, (enum extent)extent);
    }
  }
  print_message("%s: %u jobs (SEED=%u), %u bad\n", names[what], n, seed, bad);
  if (bad) fail_msg("%u of %u", bad, n);
}

static void out_of_memory(void **state) {
  (void)state;
  sweep(MEMORY, 97);
}

static void out_of_descriptors(void **state) {
  (void)state;
  sweep(DESCRIPTORS, 13);
}

static void other_calls_fail(void **state) {
  (void)state;
  sweep(OTHER_CALLS, 29);
}

int main(void) {
  unsigned what, victim, k, extent;
  const char *only = getenv("ONLY");
  inject_open();
  job_count(MEMORY, 0); /* what is made once in a process */
  if (only && sscanf(only, "%u,%u,%u,%u", &what, &victim, &k, &extent) == 4)
    return !one((enum scarce)what, (int)victim, k, (enum extent)extent);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(out_of_memory),
      cmocka_unit_test(out_of_descriptors),
      cmocka_unit_test(other_calls_fail),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

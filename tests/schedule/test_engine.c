/*
 * test_engine.c - the real engine under a seeded random scheduler: every algorithm, 1 to 9 ranks,
 * several slices, small windows, ranks that differ in being in place, several operations in flight;
 * against an oracle.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "operation.h"

static void run_case(const struct gy_algo *algo, int nranks, size_t count, uint64_t seed) {
  struct world_config config = {.nranks = nranks,
                                .slice_bytes = seed % 2 ? 64 : 256,
                                .window = 1 + (uint32_t)(seed % 5),
                                .seed = seed};
  struct operation o = {.coll = (enum gy_coll)algo->coll,
                        .op = (gyre_op)(seed % GYRE_MINLOC),
                        .nranks = nranks,
                        .root = (int)(seed / 3) % nranks,
                        .count = algo->coll == GY_BARRIER ? 0 : count,
                        .in_place = seed * 0x9E3779B97F4A7C15u >> 7};
  if (!gy_coll_traits(algo->coll)->rooted) o.root = 0;
  struct world *w = world_create(&config);
  world_algo(w, algo->name);
  operation_init(&o);
  const char *what = operation_run(&o, w);
  if (what) {
    fail_msg("%s %s, %d ranks, %zu elements, seed %llu: %s", gy_coll_name(algo->coll), algo->name,
             nranks, count, (unsigned long long)seed, what);
  }
  operation_free(&o);
  world_free(w);
}

/* There everything takes several times as long. */
static bool under_sanitizer(void) {
  const char *text = getenv("TEST_SANITIZE");
  return text && *text;
}

static void test_every_algorithm(void **state) {
  static const size_t counts[] = {0, 1, 7, 16, 17, 97, 300};
  size_t n;
  const struct gy_algo *const *algos = gy_algorithms(&n);
  (void)state;
  for (size_t a = 0; a < n; a++) {
    for (int nranks = 1; nranks <= 9; nranks++) {
      for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        if (under_sanitizer() && (a + (size_t)nranks + c) % 3) continue;
        run_case(algos[a], nranks, counts[c], a * 1000003 + (size_t)nranks * 101 + c * 7);
      }
    }
  }
}

/* Rank by rank in a different interleaving, but each in the same order: runs queue behind each
 * other on the links. */
static void test_many_in_flight(void **state) {
  enum { OPS = 12, RANKS = 5 };
  (void)state;
  for (uint64_t seed = 1; seed <= 12; seed++) {
    struct world_config config = {.nranks = RANKS, .slice_bytes = 64, .window = 2, .seed = seed};
    struct world *w = world_create(&config);
    struct operation o[OPS];
    gyre_request *req[OPS * RANKS];
    for (int k = 0; k < OPS; k++) {
      o[k] = (struct operation){.coll = (enum gy_coll)((uint64_t)k * seed % GY_COLL_COUNT),
                                .op = GYRE_SUM,
                                .nranks = RANKS,
                                .count = (size_t)(k * 37 % 150),
                                .in_place = seed * (uint64_t)k};
      if (gy_coll_traits(o[k].coll)->rooted) o[k].root = k % RANKS;
      if (o[k].coll == GY_BARRIER) o[k].count = 0;
      operation_init(&o[k]);
    }
    for (int r = 0; r < RANKS; r++) {
      for (int k = 0; k < OPS; k++)
        assert_int_equal(operation_post(&o[k], w, r, &req[r * OPS + k]), GYRE_OK);
    }
    const char *what = world_run(w, req, OPS * RANKS);
    if (what) fail_msg("seed %llu: %s", (unsigned long long)seed, what);
    for (int k = 0; k < OPS; k++) {
      what = operation_check(&o[k]);
      if (what) fail_msg("seed %llu operation %d: %s", (unsigned long long)seed, k, what);
      operation_free(&o[k]);
    }
    for (int i = 0; i < OPS * RANKS; i++) gyre_request_free(req[i]);
    world_free(w);
  }
}

/* The cache of programs is bounded: more roots than it holds, twice over. */
static void test_plan_cache(void **state) {
  enum { RANKS = 9 };
  struct world_config config = {.nranks = RANKS, .slice_bytes = 64, .window = 3, .seed = 5};
  (void)state;
  for (int round = 0; round < 2; round++) {
    struct world *w = world_create(&config);
    for (int k = 0; k < 90; k++) {
      struct operation o = {.coll = k % 2 ? GY_BROADCAST : GY_REDUCE,
                            .op = GYRE_MAX,
                            .nranks = RANKS,
                            .root = k % RANKS,
                            .count =
                                (size_t)k * (under_sanitizer() ? 300 : 3000) / (size_t)(1 + k % 7),
                            .in_place = k % 3 ? 0 : UINT64_MAX};
      operation_init(&o);
      const char *what = operation_run(&o, w);
      if (what) fail_msg("operation %d: %s", k, what);
      operation_free(&o);
    }
    world_free(w);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_algorithm),
      cmocka_unit_test(test_many_in_flight),
      cmocka_unit_test(test_plan_cache),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * test_shards.c - the shards of all ranks cover every sample exactly once, whatever the sizes; an
 * epoch's order is a permutation that depends on the seed and the epoch alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "shards.h"

static void shards_cover_every_sample_once(void **state) {
  (void)state;
  for (int world = 1; world <= 17; world++)
    for (size_t total = 0; total <= 70; total++) {
      size_t next = 0, least = SIZE_MAX, most = 0;
      for (int rank = 0; rank < world; rank++) {
        struct shard s = shard_of(total, rank, world);
        assert_int_equal(s.first, next);
        next += s.count;
        least = s.count < least ? s.count : least;
        most = s.count > most ? s.count : most;
      }
      assert_int_equal(next, total);
      assert_true(most - least <= 1);
    }
}

static void shards_of_huge_totals_do_not_overflow(void **state) {
  (void)state;
  struct shard last = shard_of(SIZE_MAX, 16383, 16384);
  assert_true(last.first + last.count == SIZE_MAX);
}

static void ranks_beyond_the_samples_get_nothing(void **state) {
  (void)state;
  assert_int_equal(shard_of(2, 1, 4).count, 1);
  assert_int_equal(shard_of(2, 2, 4).count, 0);
  assert_int_equal(shard_of(2, 3, 4).count, 0);
}

static void an_epoch_is_a_permutation(void **state) {
  (void)state;
  enum { N = 1009 };
  struct sampler s;
  assert_true(sampler_create(&s, N));
  for (size_t epoch = 0; epoch < 3; epoch++) {
    uint8_t seen[N] = {0};
    size_t in_place = 0;
    sampler_shuffle(&s, 42, epoch);
    for (size_t i = 0; i < N; i++) {
      assert_true(s.order[i] < N);
      assert_int_equal(seen[s.order[i]]++, 0);
      in_place += s.order[i] == i;
    }
    assert_true(in_place < N / 10);
  }
  sampler_destroy(&s);
}

static void an_order_depends_on_seed_and_epoch_alone(void **state) {
  (void)state;
  enum { N = 500 };
  struct sampler a, b;
  assert_true(sampler_create(&a, N));
  assert_true(sampler_create(&b, N));
  sampler_shuffle(&a, 7, 1);
  sampler_shuffle(&a, 7, 2); /* with a history */
  sampler_shuffle(&b, 7, 2); /* without one */
  assert_memory_equal(a.order, b.order, N * sizeof *a.order);
  sampler_shuffle(&b, 8, 2);
  assert_memory_not_equal(a.order, b.order, N * sizeof *a.order);
  sampler_shuffle(&b, 7, 3);
  assert_memory_not_equal(a.order, b.order, N * sizeof *a.order);
  sampler_destroy(&a);
  sampler_destroy(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(shards_cover_every_sample_once),
      cmocka_unit_test(shards_of_huge_totals_do_not_overflow),
      cmocka_unit_test(ranks_beyond_the_samples_get_nothing),
      cmocka_unit_test(an_epoch_is_a_permutation),
      cmocka_unit_test(an_order_depends_on_seed_and_epoch_alone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

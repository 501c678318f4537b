/* test_samples.c - percentiles of the histogram against those of the sorted samples. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <math.h>
#include <cmocka.h>

#include "samples.h"

#define N 20000

static struct perf_samples samples;

static int compare(const void *a, const void *b) {
  const uint64_t *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

static void no_samples(void **state) {
  (void)state;
  perf_samples_clear(&samples);
  assert_true(perf_samples_percentile(&samples, 50.0) == 0.0);
}

static void small_ones_are_exact(void **state) {
  (void)state;
  perf_samples_clear(&samples);
  for (uint64_t ns = 1; ns <= 1000; ns++) perf_samples_add(&samples, 1001 - ns);
  assert_int_equal(samples.count, 1000);
  for (int p = 1; p <= 100; p++)
    assert_true(perf_samples_percentile(&samples, p) == (double)p * 10.0);
}

static void one_sample_is_every_percentile(void **state) {
  (void)state;
  static const uint64_t values[] = {0,         1, 1023, 1024, 1025, 123456789, UINT64_C(1) << 45,
                                    UINT64_MAX};
  for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
    perf_samples_clear(&samples);
    perf_samples_add(&samples, values[i]);
    assert_true(perf_samples_percentile(&samples, 0.0) == (double)values[i]);
    assert_true(perf_samples_percentile(&samples, 100.0) == (double)values[i]);
  }
}

static void large_ones_are_within_a_thousandth(void **state) {
  (void)state;
  static uint64_t sorted[N];
  uint64_t x = 12345;
  perf_samples_clear(&samples);
  for (size_t i = 0; i < N; i++) { /* from 1 ns to hours, evenly in the exponent */
    x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    sorted[i] = (UINT64_C(1) << (x >> 59)) + (x >> 33) % (UINT64_C(1) << (x >> 59)) * 4096;
    perf_samples_add(&samples, sorted[i]);
  }
  qsort(sorted, N, sizeof(sorted[0]), compare);
  assert_int_equal(samples.min_ns, sorted[0]);
  assert_int_equal(samples.max_ns, sorted[N - 1]);
  static const double percents[] = {0.01, 1, 10, 25, 50, 75, 90, 99, 99.9, 100};
  for (size_t i = 0; i < sizeof(percents) / sizeof(percents[0]); i++) {
    double want = (double)sorted[(size_t)ceil(percents[i] / 100.0 * N) - 1];
    double got = perf_samples_percentile(&samples, percents[i]);
    assert_true(fabs(got - want) <= want / 1000.0);
  }
}

/* Every power of two and its neighbours: the buckets join without gap or overlap. */
static void percentiles_grow_with_the_samples(void **state) {
  (void)state;
  double last = -1.0;
  for (unsigned bit = 1; bit < 44; bit++)
    for (int by = -1; by <= 1; by++) {
      uint64_t ns = (UINT64_C(1) << bit) + (uint64_t)(int64_t)by;
      perf_samples_clear(&samples);
      perf_samples_add(&samples, ns);
      perf_samples_add(&samples, 0);
      perf_samples_add(&samples, UINT64_MAX);
      double got = perf_samples_percentile(&samples, 50.0);
      assert_true(fabs(got - (double)ns) <= (double)ns / 1000.0);
      assert_true(got >= last);
      last = got;
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(no_samples),
      cmocka_unit_test(small_ones_are_exact),
      cmocka_unit_test(one_sample_is_every_percentile),
      cmocka_unit_test(large_ones_are_within_a_thousandth),
      cmocka_unit_test(percentiles_grow_with_the_samples),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

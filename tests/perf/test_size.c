/* test_size.c - the notation of sizes and the sweep over them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "size.h"

static void parses_suffixes(void **state) {
  (void)state;
  static const struct {
    const char *text;
    size_t bytes;
  } good[] = {{"0", 0},        {"4097", 4097},          {"64K", 65536},         {"64k", 65536},
              {"1M", 1 << 20}, {"2G", (size_t)2 << 30}, {"1T", (size_t)1 << 40}};
  for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
    size_t got = 77;
    assert_true(perf_parse_size(good[i].text, &got));
    assert_int_equal(got, good[i].bytes);
  }
}

static void refuses_what_is_no_size(void **state) {
  (void)state;
  static const char *const bad[] = {"",
                                    "K",
                                    "-1",
                                    "+1",
                                    " 1",
                                    "1.5M",
                                    "1KB",
                                    "1 K",
                                    "0x10",
                                    "1P",
                                    "8388608T",
                                    "8589934592G",
                                    "99999999999999999999",
                                    "9223372036854775808"};
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
    size_t got = 77;
    assert_false(perf_parse_size(bad[i], &got));
    assert_int_equal(got, 77);
  }
}

static void formats(void **state) {
  (void)state;
  char text[32];
  perf_format_size(12, text, sizeof(text));
  assert_string_equal(text, "12 B");
  perf_format_size((uint64_t)64 << 20, text, sizeof(text));
  assert_string_equal(text, "64 MiB");
  perf_format_size((uint64_t)3 << 29, text, sizeof(text));
  assert_string_equal(text, "1.5 GiB");
}

/* The sizes of the whole sweep; returns how many. */
static size_t sweep_all(struct perf_sweep sweep, size_t out[64]) {
  size_t n = 0;
  while (perf_sweep_next(&sweep)) {
    assert_true(n < 64);
    out[n++] = sweep.bytes;
  }
  return n;
}

static void assert_sweep(struct perf_sweep sweep, size_t n, const size_t *want) {
  size_t got[64];
  assert_int_equal(sweep_all(sweep, got), n);
  for (size_t i = 0; i < n; i++) assert_int_equal(got[i], want[i]);
}

#define ASSERT_SWEEP(min, max, factor, grain, ...)                          \
  do {                                                                      \
    const size_t want[] = {__VA_ARGS__};                                    \
    assert_sweep((struct perf_sweep){min, max, factor, grain, false, 0, 0}, \
                 sizeof(want) / sizeof(want[0]), want);                     \
  } while (0)

static void sweeps(void **state) {
  (void)state;
  ASSERT_SWEEP(4, 64, 4, 4, 4, 16, 64);
  ASSERT_SWEEP(4, 65, 4, 4, 4, 16, 64);
  ASSERT_SWEEP(8, 8, 2, 4, 8);
  ASSERT_SWEEP(0, 0, 2, 4, 0);
  ASSERT_SWEEP(0, 16, 2, 4, 0, 4, 8, 16);
  ASSERT_SWEEP(0, 100, 3, 24, 0, 24, 72);
  ASSERT_SWEEP(7, 30, 2, 4, 4, 12, 28);    /* rounded down from 7, 14, 28 */
  ASSERT_SWEEP(1, 16, 2, 8, 0, 8, 16);     /* 1, 2, 4 are no element: one row */
  ASSERT_SWEEP(10, 100, 2, 24, 0, 24, 72); /* 10 and 20 are none; 40, 80 */
  ASSERT_SWEEP((size_t)1 << 62, PTRDIFF_MAX, 1 << 20, 1, (size_t)1 << 62); /* no overflow */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(parses_suffixes),
      cmocka_unit_test(refuses_what_is_no_size),
      cmocka_unit_test(formats),
      cmocka_unit_test(sweeps),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

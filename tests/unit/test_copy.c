/*
 * test_copy.c - gy_copy at every level of this CPU: lengths, offsets, distances, no byte beside.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "reduce.h"

#define GUARD 64
#define MAX_BYTES (64 * 1024)
#define AREA (MAX_BYTES + 2 * 4096)

static const char *const levels[] = {"scalar", "avx2", "avx512", "neon"};
static unsigned char source[AREA], target[AREA], blank[AREA];

static int set_up(void **state) {
  (void)state;
  uint32_t u = 1;
  for (size_t i = 0; i < AREA; i++) {
    u = u * 1664525u + 1013904223u;
    source[i] = (unsigned char)(u >> 24);
    blank[i] = (unsigned char)~source[i];
  }
  return 0;
}

/* Copies and looks at the bytes and at the guards around them. */
static void check(size_t to, size_t from, size_t bytes) {
  unsigned char *d = target + GUARD + to;
  const unsigned char *s = source + from;
  memset(d - GUARD, 0xa5, GUARD);
  memset(d + bytes, 0x5a, GUARD);
  memcpy(d, blank + from, bytes); /* differs from what is to be copied in every byte */
  gy_copy(d, s, bytes);
  if (memcmp(d, s, bytes) != 0) {
    fail_msg("%s: wrong bytes: %zu to +%zu from +%zu", gy_reduce_isa(), bytes, to, from);
  }
  for (size_t i = 0; i < GUARD; i++) {
    if (d[(ptrdiff_t)i - GUARD] != 0xa5 || d[bytes + i] != 0x5a) {
      fail_msg("%s: wrote beside its target: %zu to +%zu from +%zu", gy_reduce_isa(), bytes, to,
               from);
    }
  }
}

static void at_every_level(void (*body)(void)) {
  int tried = 0;
  for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
    if (gy_reduce_use(levels[i]) != GYRE_OK) continue;
    body();
    tried++;
  }
  assert_true(tried > 0);
  assert_int_equal(gy_reduce_use("auto"), GYRE_OK);
}

static void every_length(void) {
  for (size_t bytes = 0; bytes <= 600; bytes++) check(3, 5, bytes);
  for (size_t bytes = 4000; bytes <= 4700; bytes++) check(1, 0, bytes);
}

static void copies_every_length(void **state) {
  (void)state;
  at_every_level(every_length);
}

static void every_offset(void) {
  for (size_t to = 0; to < 64; to++) {
    for (size_t from = 0; from < 64; from++) check(to, from, 4096 + (to * 7 + from) % 300);
  }
}

static void copies_at_every_offset(void **state) {
  (void)state;
  at_every_level(every_offset);
}

/* Long copies take one way or the other by their distance modulo the page size. */
static void long_ones(void) {
  static const size_t distances[] = {0, 1, 8, 31, 32, 63, 64, 100, 2048, 4080};
  static const size_t sizes[] = {16383, 16384, 16385, 40001, MAX_BYTES};
  size_t base = 4096 - ((uintptr_t)(target + GUARD) - (uintptr_t)source) % 4096;
  for (size_t i = 0; i < sizeof distances / sizeof *distances; i++) {
    size_t to = (base + distances[i]) % 4096;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) check(to, 0, sizes[k]);
  }
}

static void copies_long_ones_at_every_kind_of_distance(void **state) {
  (void)state;
  at_every_level(long_ones);
}

static void nothing_and_onto_itself(void) {
  gy_copy(NULL, NULL, 0);
  memcpy(target, source, 5000);
  gy_copy(target, target, 5000);
  assert_memory_equal(target, source, 5000);
}

static void copies_nothing_and_onto_itself(void **state) {
  (void)state;
  at_every_level(nothing_and_onto_itself);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(copies_every_length),
      cmocka_unit_test(copies_at_every_offset),
      cmocka_unit_test(copies_long_ones_at_every_kind_of_distance),
      cmocka_unit_test(copies_nothing_and_onto_itself),
  };
  return cmocka_run_group_tests(tests, set_up, NULL);
}

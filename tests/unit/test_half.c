/*
 * test_half.c - conversions of f16 and bf16 against values computed from the formats' definition.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "reduce.h"

struct format {
  const char *name;
  int mantissa_bits, bias;
  uint16_t infinity; /* bits; what is above, without the sign, is NaN */
  float (*widen)(uint16_t h);
  uint16_t (*narrow)(float f);
};

static const struct format formats[] = {
    {"f16", 10, 15, 0x7c00, gy_f16_to_f32, gy_f32_to_f16},
    {"bf16", 7, 127, 0x7f80, gy_bf16_to_f32, gy_f32_to_bf16},
};

static float from_bits(uint32_t u) {
  float f;
  memcpy(&f, &u, sizeof f);
  return f;
}

static uint32_t to_bits(float f) {
  uint32_t u;
  memcpy(&u, &f, sizeof u);
  return u;
}

/* The number that `h` (without sign) stands for. Infinity is the next power of two, which is where
 * rounding places it. */
static double value(const struct format *f, uint16_t h) {
  int exponent = h >> f->mantissa_bits, mantissa = h & ((1 << f->mantissa_bits) - 1);
  if (exponent == 0) return ldexp(mantissa, 1 - f->bias - f->mantissa_bits);
  return ldexp(mantissa + (1 << f->mantissa_bits), exponent - f->bias - f->mantissa_bits);
}

/* Nearest half to a non-negative number, ties to even, by search. */
static uint16_t nearest(const struct format *f, double x) {
  uint16_t low = 0, high = f->infinity;
  if (x >= value(f, high)) return high;
  while (high - low > 1) {
    uint16_t middle = (uint16_t)((low + high) / 2);
    if (value(f, middle) <= x) {
      low = middle;
    } else {
      high = middle;
    }
  }
  double below = x - value(f, low), above = value(f, high) - x; /* exact in f64 */
  if (below == above) return low % 2 == 0 ? low : high;
  return below < above ? low : high;
}

static void check_narrow(const struct format *f, uint32_t bits) {
  float x = from_bits(bits);
  unsigned expected = bits >> 31 << 15 | nearest(f, fabs((double)x)), got = f->narrow(x);
  if (got != expected) {
    fail_msg("%s of %a (%08x) is %04x, not %04x", f->name, (double)x, bits, got, expected);
  }
}

static void every_value_survives_a_round_trip(void **state) {
  (void)state;
  for (size_t i = 0; i < 2; i++) {
    const struct format *f = &formats[i];
    for (uint32_t h = 0; h <= 0xffff; h++) {
      uint16_t magnitude = h & 0x7fff, quiet = (uint16_t)(1u << (f->mantissa_bits - 1));
      float x = f->widen((uint16_t)h);
      if (magnitude > f->infinity) { /* NaN: sign and payload kept, made quiet */
        assert_true(isnan(x) && (to_bits(x) & 0x400000u));
        assert_int_equal(f->narrow(x), h | quiet);
        continue;
      }
      double expected = magnitude == f->infinity ? (double)INFINITY : value(f, magnitude);
      assert_true(fabs((double)x) == expected && !!signbit(x) == (h >> 15));
      assert_int_equal(f->narrow(x), h);
    }
  }
}

/* At every value and at every midpoint of two: the number itself and its neighbours in f32. */
static void rounds_to_nearest_even_around_every_value_and_tie(void **state) {
  (void)state;
  for (size_t i = 0; i < 2; i++) {
    const struct format *f = &formats[i];
    for (uint16_t h = 0; h < f->infinity; h++) {
      double at = value(f, h), tie = (at + value(f, (uint16_t)(h + 1))) / 2;
      const uint32_t centre[] = {to_bits((float)at), to_bits((float)tie)};
      for (size_t k = 0; k < 2; k++) {
        uint32_t sign = h % 2u << 31;
        check_narrow(f, sign | centre[k]);
        check_narrow(f, sign | (centre[k] + 1));
        if (centre[k] > 0) check_narrow(f, sign | (centre[k] - 1));
      }
    }
  }
}

static void rounds_random_numbers(void **state) {
  (void)state;
  uint32_t u = 1;
  for (int k = 0; k < 50000; k++) {
    u = u * 1664525u + 1013904223u;
    uint32_t bits = u ^ u >> 15;
    if ((bits & 0x7fffffffu) >= 0x7f800000u) continue;
    check_narrow(&formats[0], bits);
    check_narrow(&formats[0], (bits & 0x8fffffffu) | 0x30000000u); /* where f16 has its range */
    check_narrow(&formats[1], bits);
  }
}

static void overflow_is_infinity_and_underflow_is_signed_zero(void **state) {
  (void)state;
  assert_int_equal(gy_f32_to_f16(65504.0f), 0x7bff);
  assert_int_equal(gy_f32_to_f16(nextafterf(65520.0f, 0.0f)), 0x7bff);
  assert_int_equal(gy_f32_to_f16(65520.0f), 0x7c00);
  assert_int_equal(gy_f32_to_f16(-1e30f), 0xfc00);
  assert_int_equal(gy_f32_to_f16(-INFINITY), 0xfc00);
  assert_int_equal(gy_f32_to_f16(0x1p-24f), 0x0001);
  assert_int_equal(gy_f32_to_f16(0x1p-25f), 0x0000);
  assert_int_equal(gy_f32_to_f16(-0x1p-25f), 0x8000);
  assert_int_equal(gy_f32_to_f16(0x1.000002p-25f), 0x0001);
  assert_int_equal(gy_f32_to_f16(-0x1p-149f), 0x8000);
  assert_int_equal(gy_f32_to_bf16(0x1.fffffep127f), 0x7f80);
  assert_int_equal(gy_f32_to_bf16(0x1.fefffep127f), 0x7f7f);
  assert_int_equal(gy_f32_to_bf16(INFINITY), 0x7f80);
  assert_int_equal(gy_f32_to_bf16(-0x1p-149f), 0x8000);
  assert_int_equal(gy_f32_to_bf16(0x1p-133f), 0x0001);
}

static void nan_of_any_payload_stays_a_quiet_nan(void **state) {
  (void)state;
  static const uint32_t payloads[] = {1, 0x1fff, 0xffff, 0x10000, 0x3fffff, 0x400000, 0x7fffff};
  for (size_t k = 0; k < sizeof payloads / sizeof *payloads; k++) {
    for (uint32_t sign = 0; sign <= 1; sign++) {
      float x = from_bits(sign << 31 | 0x7f800000u | payloads[k]);
      assert_int_equal(gy_f32_to_f16(x) & 0xfe00, sign << 15 | 0x7e00);
      assert_int_equal(gy_f32_to_bf16(x) & 0xffc0, sign << 15 | 0x7fc0);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_value_survives_a_round_trip),
      cmocka_unit_test(rounds_to_nearest_even_around_every_value_and_tie),
      cmocka_unit_test(rounds_random_numbers),
      cmocka_unit_test(overflow_is_infinity_and_underflow_is_signed_zero),
      cmocka_unit_test(nan_of_any_payload_stays_a_quiet_nan),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

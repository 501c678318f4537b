/*
 * test_f8.c - the 8-bit floating-point types against values computed from the formats' definition: every
 * bit pattern, every tie, and every pair of operands of every operator.
 */
#include <math.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "reduce.h"

struct format {
  gyre_dtype type;
  int mantissa_bits, bias;
  uint8_t greatest; /* the last finite one, without its sign */
  uint8_t beyond;   /* what larger numbers become: infinity, or NaN */
  float (*widen)(uint8_t b);
  uint8_t (*narrow)(float f);
};

static const struct format formats[] = {
    {GYRE_F8_E4M3, 3, 7, 0x7e, 0x7f, gy_e4m3_to_f32, gy_f32_to_e4m3},
    {GYRE_F8_E5M2, 2, 15, 0x7b, 0x7c, gy_e5m2_to_f32, gy_f32_to_e5m2},
};

/* Of the number without its sign; for the one beyond the greatest where rounding places it. */
static double magnitude(const struct format *f, int b) {
  int exponent = b >> f->mantissa_bits, mantissa = b & ((1 << f->mantissa_bits) - 1);
  if (exponent == 0) return ldexp(mantissa, 1 - f->bias - f->mantissa_bits);
  return ldexp(mantissa + (1 << f->mantissa_bits), exponent - f->bias - f->mantissa_bits);
}

static double value(const struct format *f, uint8_t b) {
  int low = b & 0x7f;
  double v = low <= f->greatest                      ? magnitude(f, low)
             : low == f->beyond && f->beyond == 0x7c ? (double)INFINITY
                                                     : (double)NAN;
  return b & 0x80 ? -v : v;
}

/* By search through all of them; 0x7f stands for any NaN. */
static uint8_t nearest(const struct format *f, double x) {
  double a = fabs(x), best = (double)INFINITY;
  uint8_t sign = signbit(x) ? 0x80 : 0, found = 0;
  if (isnan(x)) return 0x7f;
  for (int b = 0; b <= f->greatest + 1; b++) {
    double off = fabs(a - magnitude(f, b));
    if (off > best || (off == best && b % 2 != 0)) continue;
    best = off;
    found = (uint8_t)b;
  }
  if (found > f->greatest || isinf(x)) found = f->beyond;
  return found == 0x7f ? found : sign | found;
}

static bool is_nan(const struct format *f, uint8_t b) { return isnan(value(f, b)); }

static bool same(const struct format *f, uint8_t got, uint8_t want) {
  return got == want || (is_nan(f, got) && is_nan(f, want));
}

static void every_pattern_has_its_value(void **state) {
  (void)state;
  for (size_t k = 0; k < 2; k++) {
    const struct format *f = &formats[k];
    for (int b = 0; b < 256; b++) {
      double want = value(f, (uint8_t)b), got = (double)f->widen((uint8_t)b);
      assert_true(isnan(want) ? isnan(got) : got == want && !signbit(got) == !(b & 0x80));
      assert_true(same(f, f->narrow((float)want), (uint8_t)b));
    }
  }
  assert_true(gy_e4m3_to_f32(0x7e) == 448.0f && gy_e4m3_to_f32(0x01) == 0x1p-9f);
  assert_true(gy_e5m2_to_f32(0x7b) == 57344.0f && gy_e5m2_to_f32(0x01) == 0x1p-16f);
}

/* At every value and every middle of two: the number and its neighbours in f32. */
static void rounds_to_nearest_even(void **state) {
  (void)state;
  for (size_t k = 0; k < 2; k++) {
    const struct format *f = &formats[k];
    for (int b = 0; b <= f->greatest; b++) {
      float at = (float)magnitude(f, b);
      float tie = (float)((magnitude(f, b) + magnitude(f, b + 1)) / 2);
      const float x[] = {at,  nextafterf(at, 0),  nextafterf(at, INFINITY),
                         tie, nextafterf(tie, 0), nextafterf(tie, INFINITY)};
      for (size_t i = 0; i < sizeof x / sizeof *x; i++) {
        assert_true(same(f, f->narrow(x[i]), nearest(f, (double)x[i])));
        assert_true(same(f, f->narrow(-x[i]), nearest(f, (double)-x[i])));
      }
    }
  }
}

static void what_is_too_large_is_nan_or_infinity(void **state) {
  (void)state;
  assert_int_equal(gy_f32_to_e4m3(464), 0x7e); /* the tie goes to the even one */
  assert_int_equal(gy_f32_to_e4m3(nextafterf(464, 500)), 0x7f);
  assert_int_equal(gy_f32_to_e4m3(-1e30f), 0xff);
  assert_int_equal(gy_f32_to_e4m3(INFINITY), 0x7f);
  assert_int_equal(gy_f32_to_e5m2(nextafterf(61440, 0)), 0x7b);
  assert_int_equal(gy_f32_to_e5m2(61440), 0x7c);
  assert_int_equal(gy_f32_to_e5m2(-INFINITY), 0xfc);
  assert_int_equal(gy_f32_to_e4m3(0x1p-149f), 0);
  assert_int_equal(gy_f32_to_e5m2(-0x1p-149f), 0x80);
  for (size_t k = 0; k < 2; k++) assert_true(is_nan(&formats[k], formats[k].narrow(NAN)));
}

static double combined(gyre_op op, double x, double y) {
  bool x_first = x < y || (x == y && signbit(x));
  switch (op) {
    case GYRE_SUM: return (double)((float)x + (float)y);
    case GYRE_AVG: return (double)(((float)x + (float)y) / 3.0f);
    case GYRE_PROD: return (double)((float)x * (float)y);
    case GYRE_MIN: return isnan(x) || isnan(y) ? (double)NAN : x_first ? x : y;
    default: return isnan(x) || isnan(y) ? (double)NAN : x_first ? y : x;
  }
}

static void every_pair_of_operands(void **state) {
  (void)state;
  static uint8_t a[65536], b[65536], got[65536];
  for (int i = 0; i < 65536; i++) {
    a[i] = (uint8_t)i;
    b[i] = (uint8_t)(i >> 8);
  }
  for (size_t k = 0; k < 2; k++)
    for (gyre_op op = GYRE_SUM; op <= GYRE_AVG; op++) {
      const struct format *f = &formats[k];
      gy_reduce_kernel(f->type, op)(got, a, b, sizeof got, op == GYRE_AVG ? 3 : 0);
      for (size_t i = 0; i < sizeof got; i++) {
        uint8_t want = nearest(f, combined(op, value(f, a[i]), value(f, b[i])));
        if (!same(f, got[i], want))
          fail_msg("%s %s of %02x and %02x is %02x, not %02x", gyre_dtype_name(f->type),
                   gyre_op_name(op), a[i], b[i], got[i], want);
      }
    }
}

static void products_and_quotients(void **state) {
  (void)state;
  static const float factors[] = {1, 0.1f, -3, 1000, 0};
  uint8_t all[256], got[256];
  for (int i = 0; i < 256; i++) all[i] = (uint8_t)i;
  for (size_t k = 0; k < 2; k++)
    for (size_t n = 0; n < sizeof factors / sizeof *factors; n++) {
      const struct format *f = &formats[k];
      gy_multiply(got, all, 256, f->type, (double)factors[n]);
      for (int i = 0; i < 256; i++)
        assert_true(same(f, got[i], nearest(f, (double)((float)value(f, all[i]) * factors[n]))));
      memcpy(got, all, sizeof got);
      if (factors[n] == 0) continue;
      gy_divide(got, 256, f->type, (double)factors[n]);
      for (int i = 0; i < 256; i++)
        assert_true(
            same(f, got[i], nearest(f, (double)(float)(value(f, all[i]) / (double)factors[n]))));
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_pattern_has_its_value),
      cmocka_unit_test(rounds_to_nearest_even),
      cmocka_unit_test(what_is_too_large_is_nan_or_infinity),
      cmocka_unit_test(every_pair_of_operands),
      cmocka_unit_test(products_and_quotients),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

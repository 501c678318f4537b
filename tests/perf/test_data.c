/* test_data.c - expected results against arithmetic in the type itself, in several orders. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "data.h"
#include "element.h"
#include "reduce.h" /* the half types, as the library rounds them */

#define PLACES 97
#define MAX_RANKS 300

static struct perf_data data, result;

/* ------------------------------------------------------------ arithmetic one step at a time --- */

static double rounded(gyre_dtype type, double v) {
  if (type == GYRE_F16) return (double)gy_f16_to_f32(gy_f32_to_f16((float)v));
  if (type == GYRE_BF16) return (double)gy_bf16_to_f32(gy_f32_to_bf16((float)v));
  if (type == GYRE_F8_E4M3) return (double)gy_e4m3_to_f32(gy_f32_to_e4m3((float)v));
  if (type == GYRE_F8_E5M2) return (double)gy_e5m2_to_f32(gy_f32_to_e5m2((float)v));
  return type == GYRE_F32 ? (double)(float)v : v;
}

static double float_step(const struct perf_series *s, double a, double b) {
  switch (s->op) {
    case GYRE_PROD: return rounded(s->type, a * b);
    case GYRE_MIN: return a < b ? a : b;
    case GYRE_MAX: return a > b ? a : b;
    default: return rounded(s->type, a + b);
  }
}

static uint64_t narrowed(gyre_dtype type, uint64_t v) {
  switch (type) {
    case GYRE_I8: return (uint64_t)(int64_t)(int8_t)v;
    case GYRE_U8: return (uint8_t)v;
    case GYRE_I16: return (uint64_t)(int64_t)(int16_t)v;
    case GYRE_U16: return (uint16_t)v;
    case GYRE_I32: return (uint64_t)(int64_t)(int32_t)v;
    case GYRE_U32: return (uint32_t)v;
    default: return v;
  }
}

static uint64_t integer_step(const struct perf_series *s, uint64_t a, uint64_t b) {
  bool less = perf_is_signed(s->type) ? (int64_t)a < (int64_t)b : a < b;
  switch (s->op) {
    case GYRE_PROD: return narrowed(s->type, a * b);
    case GYRE_MIN: return less ? a : b;
    case GYRE_MAX: return less ? b : a;
    case GYRE_BAND: return a & b;
    case GYRE_BOR: return a | b;
    case GYRE_BXOR: return a ^ b;
    case GYRE_LAND: return a && b;
    case GYRE_LOR: return a || b;
    case GYRE_LXOR: return !a != !b;
    default: return narrowed(s->type, a + b);
  }
}

static double get(gyre_dtype type, const void *element) {
  if (perf_is_float(type)) return perf_get_float(type, element);
  return (double)(int64_t)perf_get_integer(type, element);
}

static void assert_location(const struct perf_series *s, size_t place, const int *order,
                            const void *want) {
  double best = 0;
  int64_t index = INT64_MAX;
  for (int i = 0; i < s->nranks; i++) {
    double v = perf_value(s, order[i], place);
    int64_t k = perf_index(s, order[i], place);
    bool better = i == 0 || (s->op == GYRE_MINLOC ? v < best : v > best);
    if (better || (v == best && k < index)) index = k;
    if (better) best = v;
  }
  const char *second = (const char *)want + gyre_dtype_size(s->type) / 2;
  assert_true(best == get(perf_value_type(s->type), want));
  assert_int_equal(index, (int64_t)get(perf_index_type(s->type), second));
}

/* The reduction at one place, combining ranks in the given order; compared with the table. */
static void assert_result(const struct perf_series *s, size_t place, const int *order) {
  const void *want = perf_data_at(&result, place);
  if (perf_is_pair(s->type)) {
    assert_location(s, place, order, want);
    return;
  }
  if (perf_is_float(s->type)) {
    double all = perf_value(s, order[0], place);
    for (int i = 1; i < s->nranks; i++) all = float_step(s, all, perf_value(s, order[i], place));
    if (s->op == GYRE_AVG) all = rounded(s->type, all / s->nranks);
    assert_true(all == perf_get_float(s->type, want));
    return;
  }
  uint64_t all = (uint64_t)(int64_t)perf_value(s, order[0], place);
  for (int i = 1; i < s->nranks; i++)
    all = integer_step(s, all, (uint64_t)(int64_t)perf_value(s, order[i], place));
  if (s->op >= GYRE_LAND) all = all != 0; /* also of one rank */
  if (s->op == GYRE_AVG && perf_is_signed(s->type)) all = (uint64_t)((int64_t)all / s->nranks);
  else if (s->op == GYRE_AVG) all /= (uint64_t)s->nranks;
  assert_int_equal(all, perf_get_integer(s->type, want));
}

static void shuffle(int *order, int n, uint64_t *x) {
  for (int i = n - 1; i > 0; i--) {
    *x = *x * UINT64_C(6364136223846793005) + 1;
    int j = (int)((*x >> 33) % (uint64_t)(i + 1)), keep = order[i];
    order[i] = order[j];
    order[j] = keep;
  }
}

static void check_series(const struct perf_series *s) {
  int order[MAX_RANKS];
  uint64_t x = 1;
  perf_data_of_result(&result, s, s->nranks, PLACES);
  for (size_t place = 0; place < PLACES; place++) {
    for (int r = 0; r < s->nranks; r++) order[r] = s->nranks - 1 - r;
    for (int tries = 0; tries < 3; tries++) {
      assert_result(s, place, order);
      shuffle(order, s->nranks, &x);
    }
  }
}

static void check_ranks(int nranks) {
  for (int type = 0; type < GYRE_DTYPE_COUNT; type++)
    for (int op = 0; op < GYRE_OP_COUNT; op++)
      for (uint64_t iteration = 0; iteration < 3 && gyre_op_accepts((gyre_op)op, (gyre_dtype)type);
           iteration++)
        check_series(&(struct perf_series){(gyre_dtype)type, (gyre_op)op, nranks, iteration});
}

static void exact_in_any_order(void **state) {
  (void)state;
  for (int n = 1; n <= 8; n++) check_ranks(n);
  check_ranks(13);
  check_ranks(64);
  check_ranks(MAX_RANKS); /* more than the 256 integers that bf16 counts exactly */
}

/* Each intermediate of a half-type sum, not only the last, fits: done by the steps above. What they
 * do not show is that the data says something: */
static void data_depends_on_rank_and_iteration(void **state) {
  (void)state;
  for (int type = 0; type < GYRE_DTYPE_COUNT; type++)
    for (int op = 0; op < GYRE_OP_COUNT; op++) {
      struct perf_series s = {(gyre_dtype)type, (gyre_op)op, 4, 0}, later = s;
      if (!gyre_op_accepts(s.op, s.type)) continue;
      later.iteration = 1;
      size_t bytes = PLACES * gyre_dtype_size(s.type);
      for (int r = 0; r < 4; r++) {
        perf_data_of_rank(&data, &s, r, PLACES);
        perf_data_of_rank(&result, &later, r, PLACES);
        assert_memory_not_equal(data.table, result.table, bytes);
        perf_data_of_rank(&result, &s, (r + 1) % 4, PLACES);
        assert_memory_not_equal(data.table, result.table, bytes);
      }
      perf_data_of_result(&data, &s, s.nranks, PLACES);
      perf_data_of_result(&result, &later, later.nranks, PLACES);
      assert_memory_not_equal(data.table, result.table, bytes);
    }
}

/* ------------------------------------------------------------------------- fill and compare --- */

#define LENGTH (3 * PERF_PERIOD + 1000)

static void filled(gyre_dtype type, unsigned char *buffer) {
  struct perf_series s = {type, perf_is_pair(type) ? GYRE_MINLOC : GYRE_SUM, 3, 9};
  perf_data_of_result(&data, &s, s.nranks, LENGTH);
  perf_data_fill(&data, buffer, 0, LENGTH);
}

static void fill_in_parts_is_the_same(void **state) {
  (void)state;
  unsigned char *whole = malloc(LENGTH * 16), *part = malloc(LENGTH * 16);
  assert_non_null(whole);
  assert_non_null(part);
  filled(GYRE_F16, whole);
  for (size_t first = 0, step = 1; first < LENGTH; first += step, step = step * 3 + 1) {
    size_t count = step < LENGTH - first ? step : LENGTH - first;
    perf_data_fill(&data, part, first, count);
    assert_memory_equal(part, whole + first * 2, count * 2);
    size_t at = 0;
    assert_int_equal(perf_data_compare(&data, whole + first * 2, first, count, &at), 0);
  }
  assert_memory_equal(perf_data_at(&data, LENGTH - 1), whole + (LENGTH - 1) * 2, 2);
  free(whole);
  free(part);
}

static void compare_finds_every_wrong_element(void **state) {
  (void)state;
  unsigned char *buffer = malloc(LENGTH * 16);
  assert_non_null(buffer);
  for (int type = 0; type < GYRE_DTYPE_COUNT; type++) {
    size_t esize = gyre_dtype_size((gyre_dtype)type), at = 0;
    filled((gyre_dtype)type, buffer);
    static const size_t places[] = {LENGTH - 1, PERF_PERIOD, PERF_PERIOD - 1, 17, 0};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
      buffer[places[i] * esize + esize - 1] ^= 1;
      assert_int_equal(perf_data_compare(&data, buffer, 0, LENGTH, &at), i + 1);
      assert_int_equal(at, places[i]);
    }
  }
  free(buffer);
}

/* Data that is right, but of another place. */
static void compare_finds_shifted_data(void **state) {
  (void)state;
  unsigned char *buffer = malloc(LENGTH * 16);
  assert_non_null(buffer);
  filled(GYRE_F32, buffer);
  static const size_t shifts[] = {1, PERF_PERIOD, 2 * PERF_PERIOD, 4096, 8192, 16384};
  for (size_t i = 0; i < sizeof(shifts) / sizeof(shifts[0]); i++) {
    size_t at = 0, count = LENGTH - shifts[i];
    size_t wrong = perf_data_compare(&data, buffer + shifts[i] * 4, 0, count, &at);
    assert_true(wrong > count / 2);
  }
  free(buffer);
}

/* --------------------------------------------------------------------------------- elements --- */

static void half_elements_convert_like_the_library(void **state) {
  (void)state;
  for (int v = -2048; v <= 2048; v++) {
    uint16_t half = 0;
    perf_put_float(GYRE_F16, &half, (double)v / 8.0);
    assert_int_equal(half, gy_f32_to_f16((float)v / 8.0f));
    assert_true(perf_get_float(GYRE_F16, &half) == (double)v / 8.0);
    if (abs(v) > 256) continue;
    perf_put_float(GYRE_BF16, &half, (double)v / 8.0);
    assert_int_equal(half, gy_f32_to_bf16((float)v / 8.0f));
    assert_true(perf_get_float(GYRE_BF16, &half) == (double)v / 8.0);
  }
  for (unsigned bits = 0; bits < 65536; bits++) {
    uint16_t half = (uint16_t)bits;
    double want = (double)gy_f16_to_f32(half), got = perf_get_float(GYRE_F16, &half);
    assert_true(got == want || (got != got && want != want));
  }
}

static void elements_print(void **state) {
  (void)state;
  char text[64];
  int8_t minus = -3;
  uint64_t large = UINT64_MAX;
  float half = 0.5f;
  perf_element_text(GYRE_I8, &minus, text, sizeof(text));
  assert_string_equal(text, "-3");
  perf_element_text(GYRE_U8, &minus, text, sizeof(text));
  assert_string_equal(text, "253");
  perf_element_text(GYRE_U64, &large, text, sizeof(text));
  assert_string_equal(text, "18446744073709551615");
  perf_element_text(GYRE_F32, &half, text, sizeof(text));
  assert_string_equal(text, "0.5");
  unsigned char pair[16];
  perf_put(GYRE_F64_I64, pair, -0.25, -7);
  perf_element_text(GYRE_F64_I64, pair, text, sizeof(text));
  assert_string_equal(text, "(-0.25, -7)");
  perf_put(GYRE_I32_I32, pair, 3, 1000);
  perf_element_text(GYRE_I32_I32, pair, text, sizeof(text));
  assert_string_equal(text, "(3, 1000)");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(exact_in_any_order),
      cmocka_unit_test(data_depends_on_rank_and_iteration),
      cmocka_unit_test(fill_in_parts_is_the_same),
      cmocka_unit_test(compare_finds_every_wrong_element),
      cmocka_unit_test(compare_finds_shifted_data),
      cmocka_unit_test(half_elements_convert_like_the_library),
      cmocka_unit_test(elements_print),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

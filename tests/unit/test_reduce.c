/*
 * test_reduce.c - the scalar reference against exact arithmetic, and every kernel of this CPU
 *                 against the reference.
 */
#include <fenv.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "fpenv.h"
#include "reduce.h"

/* More than twice as precise as f64, so that rounding twice is rounding once. */
#ifdef __x86_64__
#include <xmmintrin.h>
typedef __float128 wide;
#else
typedef long double wide;
#endif

#define COUNT 300        /* elements of the short cases */
#define LONG_COUNT 20011 /* of the long one */
#define SLACK 64         /* bytes an operand may be moved */
#define MAX_ELEMENT 16

static const char *const levels[] = {"avx2", "avx512", "neon"};
static const uint32_t divisors[] = {0, 1, 2, 3, 7, 16384, 0x80000001u, 0xffffffffu};

static uint64_t random_state = 1;

static uint64_t random_bits(void) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return random_state ^ random_state >> 29;
}

/* ------------------------------------------------------------------------------ elements --- */

static bool is_pair(gyre_dtype t) {
  return t == GYRE_F32_I32 || t == GYRE_F64_I64 || t == GYRE_I32_I32 || t == GYRE_I64_I64;
}

/* Of the two halves of a pair. */
static gyre_dtype value_type(gyre_dtype t) {
  return t == GYRE_F32_I32   ? GYRE_F32
         : t == GYRE_F64_I64 ? GYRE_F64
         : t == GYRE_I32_I32 ? GYRE_I32
                             : GYRE_I64;
}
static gyre_dtype index_type(gyre_dtype t) { return gyre_dtype_size(t) == 8 ? GYRE_I32 : GYRE_I64; }

static int mantissa_bits(gyre_dtype t) { /* 0: an integer */
  static const int bits[GYRE_DTYPE_COUNT] = {
      [GYRE_F32] = 23, [GYRE_F64] = 52,    [GYRE_F16] = 10,
      [GYRE_BF16] = 7, [GYRE_F8_E4M3] = 3, [GYRE_F8_E5M2] = 2};
  return bits[t];
}

static int type_bits(gyre_dtype t) { return 8 * (int)gyre_dtype_size(t); }

static bool is_signed(gyre_dtype t) {
  return t == GYRE_I8 || t == GYRE_I16 || t == GYRE_I32 || t == GYRE_I64;
}

static uint64_t get(const void *from, gyre_dtype t) {
  uint64_t u = 0;
  memcpy(&u, from, gyre_dtype_size(t));
  return u;
}

static uint64_t exponent_mask(gyre_dtype t) { /* also the bits of infinity */
  return (UINT64_C(1) << (type_bits(t) - 1)) - (UINT64_C(1) << mantissa_bits(t));
}

static bool is_nan(uint64_t u, gyre_dtype t) {
  if (t == GYRE_F8_E4M3) return (u & 0x7f) == 0x7f; /* its only ones; no infinity either */
  return mantissa_bits(t) > 0 && (u & ~(UINT64_C(1) << (type_bits(t) - 1))) > exponent_mask(t);
}

/* Equal bits, but a NaN need only be a quiet one. */
static bool same(uint64_t got, uint64_t expected, gyre_dtype t) {
  if (!is_nan(expected, t)) return got == expected;
  return is_nan(got, t) && (got >> (mantissa_bits(t) - 1) & 1u);
}

static uint64_t some_nan(gyre_dtype t) { return t == GYRE_F8_E4M3 ? 0x7f : exponent_mask(t) + 1; }

/* Values at which something may go wrong; returns their number. */
static size_t special_values(gyre_dtype t, uint64_t *out) {
  int m = mantissa_bits(t), bits = type_bits(t);
  uint64_t top = UINT64_C(1) << (bits - 1), all = top | (top - 1);
  size_t n = 0;
  if (m == 0) {
    const uint64_t v[] = {0, 1, 2, 3, all, all - 1, top, top - 1, top + 1, all / 3};
    memcpy(out, v, sizeof v);
    return sizeof v / sizeof *v;
  }
  uint64_t infinity = exponent_mask(t), normal = UINT64_C(1) << m, one = infinity / 2 & infinity;
  const uint64_t v[] = {
      0,
      1,
      normal - 1,
      normal,
      normal + 1,
      one - 1,
      one,
      one + 1,
      infinity - normal,
      infinity - 2,
      infinity - 1,
      infinity,
      infinity + 1 /* signaling NaN */,
      infinity | normal >> 1 /* quiet */,
      top - 1 /* quiet */
  };
  for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
    out[n++] = v[i];
    out[n++] = v[i] | top;
  }
  return n;
}

/* A special value, any bits, or (floats) a number not far from one, so that sums round. */
static uint64_t random_value(gyre_dtype t) {
  uint64_t special[64], u = random_bits(), pick = random_bits() >> 33;
  size_t n = special_values(t, special);
  int m = mantissa_bits(t), bits = type_bits(t);
  if (pick % 8 == 0) return special[(pick >> 3) % n];
  if (bits < 64) u &= (UINT64_C(1) << bits) - 1;
  if (m == 0 || pick % 8 == 1) return u;
  uint64_t one = exponent_mask(t) / 2 & exponent_mask(t);
  return (u & ~exponent_mask(t)) | (one + ((pick >> 3) % 8 << m) - (UINT64_C(4) << m));
}

/* Indices are few, so that they meet equal ones. */
static void fill_pairs(void *to, gyre_dtype t, size_t count) {
  size_t half = gyre_dtype_size(t) / 2;
  for (size_t i = 0; i < count; i++) {
    uint64_t u = random_value(value_type(t)), index = random_bits() % 5 - 2;
    memcpy((char *)to + 2 * i * half, &u, half);
    memcpy((char *)to + (2 * i + 1) * half, &index, half);
  }
}

static void fill(void *to, gyre_dtype t, size_t count) {
  size_t size = gyre_dtype_size(t);
  if (is_pair(t)) {
    fill_pairs(to, t, count);
    return;
  }
  for (size_t i = 0; i < count; i++) {
    uint64_t u = random_value(t);
    memcpy((char *)to + i * size, &u, size);
  }
}

/* -------------------------------------------------------------------------------- oracle --- */

static wide decode(uint64_t u, gyre_dtype t) {
  float f;
  double d;
  uint32_t low = (uint32_t)u;
  switch (t) {
    case GYRE_F16: return gy_f16_to_f32((uint16_t)u);
    case GYRE_BF16: return gy_bf16_to_f32((uint16_t)u);
    case GYRE_F8_E4M3: return gy_e4m3_to_f32((uint8_t)u);
    case GYRE_F8_E5M2: return gy_e5m2_to_f32((uint8_t)u);
    case GYRE_F32: memcpy(&f, &low, sizeof f); return f;
    default: memcpy(&d, &u, sizeof d); return d;
  }
}

static uint64_t encode(wide x, gyre_dtype t) {
  float f = (float)x;
  double d = (double)x;
  uint32_t low;
  uint64_t u;
  switch (t) {
    case GYRE_F16: return gy_f32_to_f16(f);
    case GYRE_BF16: return gy_f32_to_bf16(f);
    case GYRE_F8_E4M3: return gy_f32_to_e4m3(f);
    case GYRE_F8_E5M2: return gy_f32_to_e5m2(f);
    case GYRE_F32: memcpy(&low, &f, sizeof low); return low;
    default: memcpy(&u, &d, sizeof u); return u;
  }
}

/* To the precision that a type is computed in. */
static wide rounded(wide x, gyre_dtype t) {
  return t == GYRE_F64 ? (wide)(double)x : (wide)(float)x;
}

static uint64_t float_oracle(uint64_t a, uint64_t b, gyre_dtype t, gyre_op op, uint32_t divisor) {
  wide x = decode(a, t), y = decode(b, t);
  bool negative_a = a >> (type_bits(t) - 1) & 1u;
  if (op == GYRE_MIN || op == GYRE_MAX) {
    if (is_nan(a, t) || is_nan(b, t)) return some_nan(t);
    bool a_less = x < y || (x == y && negative_a);
    return a_less == (op == GYRE_MIN) ? a : b;
  }
  wide r = rounded(op == GYRE_PROD ? x * y : x + y, t);
  if (divisor > 1) r = rounded(r / rounded(divisor, t), t);
  return encode(r, t);
}

static __int128 integer(uint64_t u, gyre_dtype t) {
  int bits = type_bits(t);
  __int128 v = u;
  return is_signed(t) && u >> (bits - 1) ? v - ((__int128)1 << bits) : v;
}

static uint64_t wrapped(unsigned __int128 v, gyre_dtype t) {
  return (uint64_t)(v & (((unsigned __int128)1 << type_bits(t)) - 1));
}

static uint64_t integer_oracle(uint64_t a, uint64_t b, gyre_dtype t, gyre_op op, uint32_t divisor) {
  __int128 x = integer(a, t), y = integer(b, t), r;
  switch (op) {
    case GYRE_MIN: return x < y ? a : b;
    case GYRE_MAX: return x > y ? a : b;
    case GYRE_PROD: return wrapped((unsigned __int128)x * (unsigned __int128)y, t);
    case GYRE_BAND: return a & b;
    case GYRE_BOR: return a | b;
    case GYRE_BXOR: return a ^ b;
    case GYRE_LAND: return x != 0 ? y != 0 : 0;
    case GYRE_LOR: return x != 0 ? 1 : y != 0;
    case GYRE_LXOR: return x != 0 ? y == 0 : y != 0;
    default: r = integer(wrapped((unsigned __int128)(x + y), t), t); break;
  }
  return wrapped((unsigned __int128)(divisor > 1 ? r / divisor : r), t);
}

static uint64_t oracle(uint64_t a, uint64_t b, gyre_dtype t, gyre_op op, uint32_t divisor) {
  return (mantissa_bits(t) > 0 ? float_oracle : integer_oracle)(a, b, t, op, divisor);
}

static bool divides(gyre_op op) { return op == GYRE_SUM || op == GYRE_AVG; }

static void check_reference(uint64_t a, uint64_t b, gyre_dtype t, gyre_op op, uint32_t divisor) {
  uint64_t got = 0, expected = oracle(a, b, t, op, divisor);
  gy_reduce_reference(t, op)(&got, &a, &b, 1, divisor);
  if (!same(got, expected, t)) {
    fail_msg("%s %s of %llx and %llx by %u is %llx, not %llx", gyre_dtype_name(t), gyre_op_name(op),
             (unsigned long long)a, (unsigned long long)b, divisor, (unsigned long long)got,
             (unsigned long long)expected);
  }
}

static void check_reference_pair(uint64_t a, uint64_t b, gyre_dtype t) {
  for (gyre_op op = 0; op < GYRE_OP_COUNT; op++) {
    if (!gyre_op_accepts(op, t)) continue;
    size_t n = divides(op) ? sizeof divisors / sizeof *divisors : 1;
    for (size_t k = 0; k < n; k++) check_reference(a, b, t, op, divisors[k]);
  }
}

static void reference_is_exact_arithmetic(void **state) {
  (void)state;
  uint64_t v[64];
  for (gyre_dtype t = 0; t < GYRE_DTYPE_COUNT; t++) {
    if (is_pair(t)) continue;
    size_t n = special_values(t, v);
    for (size_t i = 0; i < n; i++) {
      for (size_t k = 0; k < n; k++) check_reference_pair(v[i], v[k], t);
    }
    for (int i = 0; i < 1000; i++) check_reference_pair(random_value(t), random_value(t), t);
  }
}

/* Whether the pair (a, i) is picked before (b, k); values as bits. */
static bool goes_first(uint64_t a, int64_t i, uint64_t b, int64_t k, gyre_dtype value, gyre_op op) {
  bool a_nan = is_nan(a, value), b_nan = is_nan(b, value);
  if (a_nan != b_nan) return a_nan;
  if (a_nan || a == b) return i <= k;
  gyre_op of_values = op == GYRE_MINLOC ? GYRE_MIN : GYRE_MAX;
  return oracle(a, b, value, of_values, 0) == a;
}

static void check_location(uint64_t a, int64_t i, uint64_t b, int64_t k, gyre_dtype t, gyre_op op) {
  size_t half = gyre_dtype_size(t) / 2;
  unsigned char x[16] = {0}, y[16] = {0}, got[16];
  memcpy(x, &a, half);
  memcpy(x + half, &i, half);
  memcpy(y, &b, half);
  memcpy(y + half, &k, half);
  gy_reduce_reference(t, op)(got, x, y, 1, 0);
  if (memcmp(got, goes_first(a, i, b, k, value_type(t), op) ? x : y, 2 * half) != 0) {
    fail_msg("%s %s of (%llx, %lld) and (%llx, %lld) picks the wrong one", gyre_dtype_name(t),
             gyre_op_name(op), (unsigned long long)a, (long long)i, (unsigned long long)b,
             (long long)k);
  }
}

static void locations_are_of_the_first_in_order(void **state) {
  (void)state;
  uint64_t v[64];
  const int64_t indices[] = {0, 1, -1, INT32_MAX, INT32_MIN};
  for (gyre_dtype t = 0; t < GYRE_DTYPE_COUNT; t++) {
    if (!is_pair(t)) continue;
    assert_int_equal(gyre_dtype_size(t),
                     gyre_dtype_size(value_type(t)) + gyre_dtype_size(index_type(t)));
    size_t n = special_values(value_type(t), v);
    for (size_t k = 0; k < n * n * 25; k++) {
      uint64_t a = v[k % n], b = v[k / n % n];
      int64_t i = indices[k / n / n % 5], j = indices[k / n / n / 5];
      check_location(a, i, b, j, t, GYRE_MINLOC);
      check_location(a, i, b, j, t, GYRE_MAXLOC);
    }
  }
}

static void operators_take_their_types(void **state) {
  (void)state;
  for (int t = 0; t < GYRE_DTYPE_COUNT; t++) {
    bool number = !is_pair((gyre_dtype)t), integer_type = number && mantissa_bits((gyre_dtype)t) == 0;
    for (int op = 0; op < GYRE_OP_COUNT; op++) {
      bool takes = op >= GYRE_MINLOC ? !number : op >= GYRE_BAND ? integer_type : number;
      assert_int_equal(gyre_op_accepts((gyre_op)op, (gyre_dtype)t), takes);
      assert_int_equal(gy_reduce_kernel((gyre_dtype)t, (gyre_op)op) != NULL, takes);
    }
  }
  assert_int_equal(gyre_op_accepts((gyre_op)GYRE_OP_COUNT, GYRE_I32), 0);
  assert_int_equal(gyre_op_accepts((gyre_op)-1, GYRE_I32), 0);
  assert_int_equal(gyre_op_accepts(GYRE_SUM, (gyre_dtype)GYRE_DTYPE_COUNT), 0);
  assert_int_equal(gyre_op_accepts(GYRE_SUM, (gyre_dtype)-1), 0);
}

static void scale_divides_and_one_copies(void **state) {
  (void)state;
  for (gyre_dtype t = 0; t < GYRE_DTYPE_COUNT; t++) {
    if (is_pair(t)) continue;
    size_t size = gyre_dtype_size(t);
    unsigned char in[COUNT * MAX_ELEMENT], out[COUNT * MAX_ELEMENT];
    fill(in, t, COUNT);
    gy_scale(NULL, NULL, 0, t, 3);
    for (size_t k = 0; k < sizeof divisors / sizeof *divisors; k++) {
      gy_scale(out, in, COUNT, t, divisors[k]);
      for (size_t i = 0; i < COUNT; i++) {
        uint64_t a = get(in + i * size, t), got = get(out + i * size, t);
        if (divisors[k] > 1) { /* adding -0 or 0 changes nothing */
          uint64_t zero = mantissa_bits(t) > 0 ? UINT64_C(1) << (type_bits(t) - 1) : 0;
          assert_true(same(got, oracle(a, zero, t, GYRE_SUM, divisors[k]), t));
        } else {
          assert_int_equal(got, a);
        }
      }
      memcpy(out, in, sizeof out);
      unsigned char again[sizeof out];
      gy_scale(again, in, COUNT, t, divisors[k]);
      gy_scale(out, out, COUNT, t, divisors[k]);
      assert_memory_equal(out, again, COUNT * size);
    }
  }
}

static void products_are_rounded_once(void **state) {
  (void)state;
  static const gyre_dtype floats[] = {GYRE_F32, GYRE_F64, GYRE_F16, GYRE_BF16};
  static const double factors[] = {1, -1, 0, 0.1, -3.7e5, 1e-30, 1e300, 5e-324};
  static const char *const all_levels[] = {"scalar", "avx2", "avx512", "neon"};
  unsigned char in[COUNT * 8], out[COUNT * 8 + 1];
  for (size_t k = 0; k < 4 * sizeof factors / sizeof *factors; k++) {
    gyre_dtype t = floats[k % 4];
    size_t size = gyre_dtype_size(t);
    wide factor = rounded(factors[k / 4], t);
    fill(in, t, COUNT);
    for (size_t l = 0; l < 4; l++) {
      if (gy_reduce_use(all_levels[l]) != GYRE_OK) continue;
      for (size_t n = 0; n <= COUNT; n += n < 40 ? 1 : 53) {
        gy_multiply(out + 1, in, n, t, factors[k / 4]);
        for (size_t i = 0; i < n; i++) {
          uint64_t a = get(in + i * size, t), got = get(out + 1 + i * size, t);
          bool nan = is_nan(a, t) || decode(a, t) * factor != decode(a, t) * factor;
          uint64_t want = nan ? exponent_mask(t) + 1 : encode(rounded(decode(a, t) * factor, t), t);
          if (!same(got, want, t))
            fail_msg("%s %s: %llx by %g is %llx, not %llx", all_levels[l], gyre_dtype_name(t),
                     (unsigned long long)a, factors[k / 4], (unsigned long long)got,
                     (unsigned long long)want);
        }
      }
      memcpy(out, in, COUNT * size);
      gy_multiply(out, out, COUNT, t, factors[k / 4]);
      unsigned char again[COUNT * 8];
      gy_multiply(again, in, COUNT, t, factors[k / 4]);
      assert_memory_equal(out, again, COUNT * size);
    }
  }
  assert_int_equal(gy_reduce_use("auto"), GYRE_OK);
}

/* ------------------------------------------------------------------------------- kernels --- */

/* One case: operands, what the reference makes of them, and the kernel under test. */
struct trial {
  gyre_dtype type;
  gyre_op op;
  uint32_t divisor;
  size_t size, count;
  gy_reduce_fn kernel;
  unsigned char *a, *b, *expected;
};

static void check_result(const struct trial *c, const unsigned char *got, size_t count,
                         const char *what, size_t detail) {
  if (memcmp(got, c->expected, count * c->size) == 0) return;
  for (size_t i = 0; i < count; i++) {
    if (memcmp(got + i * c->size, c->expected + i * c->size, c->size) == 0) continue;
    gyre_dtype t = is_pair(c->type) ? value_type(c->type) : c->type;
    uint64_t g = get(got + i * c->size, t), e = get(c->expected + i * c->size, t);
    if (!is_pair(c->type) && same(g, e, t)) continue;
    fail_msg("%s %s %s by %u, %s %zu: element %zu of %zu is %llx, not %llx", gy_reduce_isa(),
             gyre_dtype_name(c->type), gyre_op_name(c->op), c->divisor, what, detail, i, count,
             (unsigned long long)g, (unsigned long long)e);
  }
}

/* Everything ends where its block ends, so that the sanitizer sees a read or write beyond. */
static void every_count(const struct trial *c) {
  const size_t all = c->count * c->size;
  unsigned char *block[3] = {malloc(all), malloc(all), malloc(all + 1)};
  assert_true(block[0] != NULL && block[1] != NULL && block[2] != NULL);
  for (size_t n = 0; n <= c->count; n++) {
    const size_t bytes = n * c->size, skip = all - bytes;
    unsigned char *a = block[0] + skip, *b = block[1] + skip, *d = block[2] + 1 + skip;
    memcpy(a, c->a, bytes);
    memcpy(b, c->b, bytes);
    d[-1] = 0xa5;
    c->kernel(d, a, b, n, c->divisor);
    assert_int_equal(d[-1], 0xa5);
    check_result(c, d, n, "count", n);
    c->kernel(a, a, b, n, c->divisor);
    check_result(c, a, n, "in place of the left operand, count", n);
    memcpy(a, c->a, bytes);
    c->kernel(b, a, b, n, c->divisor);
    check_result(c, b, n, "in place of the right operand, count", n);
  }
  c->kernel(NULL, NULL, NULL, 0, c->divisor);
  for (size_t i = 0; i < 3; i++) free(block[i]);
}

static void at_offsets(const struct trial *c, size_t to, size_t left, size_t right, size_t n) {
  static unsigned char a[COUNT * MAX_ELEMENT + SLACK], b[sizeof a], d[sizeof a + 2];
  size_t bytes = n * c->size;
  memcpy(a + left, c->a, bytes);
  memcpy(b + right, c->b, bytes);
  d[to] = 0xa5;
  d[to + 1 + bytes] = 0x5a;
  c->kernel(d + to + 1, a + left, b + right, n, c->divisor);
  assert_true(d[to] == 0xa5 && d[to + 1 + bytes] == 0x5a);
  check_result(c, d + to + 1, n, "offsets", to * 10000 + left * 100 + right);
}

static void every_offset(const struct trial *c) {
  for (size_t k = 0; k < SLACK; k++) {
    size_t n = 100 + k;
    at_offsets(c, k, 0, 0, n);
    at_offsets(c, 0, k, 0, n);
    at_offsets(c, 0, 0, k, n);
    at_offsets(c, k, k, k, n);
    at_offsets(c, random_bits() % SLACK, random_bits() % SLACK, random_bits() % SLACK, n);
  }
}

static void every_split(const struct trial *c) {
  static unsigned char d[COUNT * MAX_ELEMENT];
  const size_t n = 141;
  for (size_t k = 0; k <= n; k++) {
    size_t at = k * c->size;
    memset(d, 0, n * c->size);
    c->kernel(d, c->a, c->b, k, c->divisor);
    c->kernel(d + at, c->a + at, c->b + at, n - k, c->divisor);
    check_result(c, d, n, "split at", k);
  }
}

static void long_range(const struct trial *c) {
  static unsigned char d[LONG_COUNT * MAX_ELEMENT + 1];
  c->kernel(d + 1, c->a, c->b, c->count, c->divisor);
  check_result(c, d + 1, c->count, "length", c->count);
  memcpy(d, c->a, c->count * c->size);
  c->kernel(d, d, c->b, c->count, c->divisor);
  check_result(c, d, c->count, "in place, length", c->count);
}

/* Runs `body` for every type, operator and level. AVG, which shares SUM's kernel, divides here. */
static void with_every_kernel(size_t count, void (*body)(const struct trial *c)) {
  static unsigned char a[LONG_COUNT * MAX_ELEMENT], b[sizeof a], expected[sizeof a];
  for (gyre_dtype t = 0; t < GYRE_DTYPE_COUNT; t++) {
    const size_t size = gyre_dtype_size(t);
    fill(a, t, count);
    fill(b, t, count);
    for (gyre_op op = 0; op < GYRE_OP_COUNT; op++) {
      uint32_t divisor = op == GYRE_AVG ? 3 : 0;
      if (!gyre_op_accepts(op, t)) continue;
      gy_reduce_reference(t, op)(expected, a, b, count, divisor);
      for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        if (gy_reduce_use(levels[i]) != GYRE_OK) continue;
        const gy_reduce_fn kernel = gy_reduce_kernel(t, op);
        const struct trial c = {t, op, divisor, size, count, kernel, a, b, expected};
        body(&c);
      }
    }
  }
  assert_int_equal(gy_reduce_use("auto"), GYRE_OK);
}

static void kernels_match_at_every_count_and_in_place(void **state) {
  (void)state;
  with_every_kernel(COUNT, every_count);
}

static void kernels_match_at_every_offset(void **state) {
  (void)state;
  with_every_kernel(COUNT, every_offset);
}

static void kernels_match_at_every_split(void **state) {
  (void)state;
  with_every_kernel(COUNT, every_split);
}

static void kernels_match_on_long_ranges(void **state) {
  (void)state;
  with_every_kernel(LONG_COUNT, long_range);
}

/* Every pair of special values in every lane of a vector. */
static void kernels_match_on_special_values(void **state) {
  (void)state;
  uint64_t v[64];
  for (gyre_dtype t = 0; t < GYRE_DTYPE_COUNT; t++) {
    if (is_pair(t)) continue;
    size_t n = special_values(t, v), size = gyre_dtype_size(t), count = 67;
    unsigned char a[67 * MAX_ELEMENT], b[sizeof a], d[sizeof a], expected[sizeof a];
    for (size_t k = 0; k < n * n; k++) {
      for (size_t i = 0; i < count; i++) {
        memcpy(a + i * size, &v[(k + i) % n], size);
        memcpy(b + i * size, &v[(k / n + 5 * i) % n], size);
      }
      gyre_op op = k % GYRE_OP_COUNT;
      uint32_t divisor = op == GYRE_AVG ? 2 : 1;
      if (!gyre_op_accepts(op, t)) continue;
      gy_reduce_reference(t, op)(expected, a, b, count, divisor);
      for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        if (gy_reduce_use(levels[i]) != GYRE_OK) continue;
        const gy_reduce_fn kernel = gy_reduce_kernel(t, op);
        const struct trial c = {t, op, divisor, size, count, kernel, a, b, expected};
        kernel(d, a, b, count, divisor);
        check_result(&c, d, count, "special values", k);
      }
    }
  }
  assert_int_equal(gy_reduce_use("auto"), GYRE_OK);
}

/* -------------------------------------------------------------------------------- choice --- */

static void level_is_chosen_by_name(void **state) {
  (void)state;
  assert_int_equal(gy_reduce_use("scalar"), GYRE_OK);
  assert_string_equal(gy_reduce_isa(), "scalar");
  assert_ptr_equal(gy_reduce_kernel(GYRE_F32, GYRE_SUM), gy_reduce_reference(GYRE_F32, GYRE_SUM));
  assert_int_equal(gy_reduce_use("mmx"), GYRE_ERR_ARG);
  assert_non_null(strstr(gyre_last_error(), "\"mmx\""));
  assert_non_null(strstr(gyre_last_error(), "scalar"));
  assert_string_equal(gy_reduce_isa(), "scalar"); /* unchanged */
  assert_int_equal(gy_reduce_use("auto"), GYRE_OK);
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2")) assert_string_not_equal(gy_reduce_isa(), "scalar");
#endif
}

/* --------------------------------------------------------------- floating-point environment --- */

/* The caller's modes change no result between enter and leave, and are there again afterwards. */
static void environment_is_set_and_restored(void **state) {
  (void)state;
  const float one = 1, small = 0x1p-30f, tiny = 0x1p-149f;
  float subnormal = 0, inexact = 0;
#ifdef __x86_64__
  /* FTZ, DAZ, rounding upward, no exception masked. */
  const unsigned before = _mm_getcsr(), hostile = 0x8000u | 0x40u | 0x4000u;
  _mm_setcsr(hostile);
#else
  assert_int_equal(fesetround(FE_UPWARD), 0);
#endif
  struct gy_fpenv saved = gy_fpenv_enter();
  gy_reduce_reference(GYRE_F32, GYRE_SUM)(&subnormal, &tiny, &tiny, 1, 0);
  gy_reduce_kernel(GYRE_F32, GYRE_SUM)(&inexact, &one, &small, 1, 0);
  bool nearest = fegetround() == FE_TONEAREST;
  gy_fpenv_leave(saved);
#ifdef __x86_64__
  unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  assert_int_equal(after, hostile);
#else
  bool upward = fegetround() == FE_UPWARD;
  assert_int_equal(fesetround(FE_TONEAREST), 0);
  assert_true(upward);
#endif
  assert_true(nearest);
  uint32_t bits;
  memcpy(&bits, &subnormal, sizeof bits);
  assert_int_equal(bits, 2);
  assert_true(inexact == one); /* upward it would be more */
}

/* Combined with any value on either side the identity gives that value; 0 + -0 is 0. */
static void identity_changes_nothing(void **state) {
  (void)state;
  for (int t = 0; t < GYRE_DTYPE_COUNT; t++)
    for (int op = 0; op < GYRE_OP_COUNT; op++)
      for (int round = 0; round < 200; round++) {
        gyre_dtype type = (gyre_dtype)t;
        if (!gyre_op_accepts((gyre_op)op, type) || is_pair(type)) continue;
        uint64_t none[2] = {0, 0}, x = random_bits(), left = 0, right = 0, same = 0;
        size_t esize = gyre_dtype_size(type);
        gy_reduce_fn reduce = gy_reduce_reference(type, (gyre_op)op);
        gy_reduce_identity(none, 2, type, (gyre_op)op);
        assert_memory_equal(none, (char *)none + esize, esize);
        if (op >= GYRE_LAND) x &= 1;                              /* other values become 1 */
        gy_reduce_reference(type, GYRE_MAX)(&same, &x, &x, 1, 0); /* a NaN becomes quiet */
        if (memcmp(&same, &x, esize) != 0) continue;
        bool minus_zero = mantissa_bits(type) > 0 && get(&x, type) == UINT64_C(1)
                                                                          << (type_bits(type) - 1);
        if (minus_zero && divides((gyre_op)op)) continue;
        reduce(&left, none, &x, 1, 0);
        reduce(&right, &x, none, 1, 0);
        assert_memory_equal(&left, &x, esize);
        assert_memory_equal(&right, &x, esize);
      }
}

static void identity_of_locations_changes_nothing(void **state) {
  (void)state;
  for (int t = 0; t < GYRE_DTYPE_COUNT; t++)
    for (int op = GYRE_MINLOC; op <= GYRE_MAXLOC && is_pair((gyre_dtype)t); op++) {
      unsigned char x[COUNT * MAX_ELEMENT], none[sizeof x], left[sizeof x], right[sizeof x];
      size_t bytes = COUNT * gyre_dtype_size((gyre_dtype)t);
      gy_reduce_fn reduce = gy_reduce_reference((gyre_dtype)t, (gyre_op)op);
      fill(x, (gyre_dtype)t, COUNT);
      gy_reduce_identity(none, COUNT, (gyre_dtype)t, (gyre_op)op);
      reduce(left, none, x, COUNT, 0);
      reduce(right, x, none, COUNT, 0);
      assert_memory_equal(left, x, bytes);
      assert_memory_equal(right, x, bytes);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reference_is_exact_arithmetic),
      cmocka_unit_test(locations_are_of_the_first_in_order),
      cmocka_unit_test(operators_take_their_types),
      cmocka_unit_test(products_are_rounded_once),
      cmocka_unit_test(scale_divides_and_one_copies),
      cmocka_unit_test(kernels_match_at_every_count_and_in_place),
      cmocka_unit_test(kernels_match_at_every_offset),
      cmocka_unit_test(kernels_match_at_every_split),
      cmocka_unit_test(kernels_match_on_long_ranges),
      cmocka_unit_test(kernels_match_on_special_values),
      cmocka_unit_test(identity_changes_nothing),
      cmocka_unit_test(identity_of_locations_changes_nothing),
      cmocka_unit_test(level_is_chosen_by_name),
      cmocka_unit_test(environment_is_set_and_restored),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

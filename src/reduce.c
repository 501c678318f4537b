/*
 * reduce.c - choice of the reduction kernels, and the scalar reference.
 *
 * Role:   picks the best table of kernels that this CPU has, once; gives the scalar reference that
 *         all of them are tested against, which also serves CPUs that have no table; scales, copies
 *         and sets the floating-point environment.
 * Thread: any; the choice is one atomic pointer.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include "reduce_kernels.h"
#include "status.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Gyre's wire format and kernels are little-endian"
#endif

/* ----------------------------------------------------------------------------- reference --- */

static float min_of_f32(float a, float b) {
  if (a < b) return a;
  if (b < a) return b;
  if (a == b) return __builtin_signbit(a) ? a : b;
  return a + b; /* a quiet NaN */
}

static float max_of_f32(float a, float b) {
  if (a > b) return a;
  if (b > a) return b;
  if (a == b) return __builtin_signbit(a) ? b : a;
  return a + b;
}

static double min_of_f64(double a, double b) {
  if (a < b) return a;
  if (b < a) return b;
  if (a == b) return __builtin_signbit(a) ? a : b;
  return a + b;
}

static double max_of_f64(double a, double b) {
  if (a > b) return a;
  if (b > a) return b;
  if (a == b) return __builtin_signbit(a) ? b : a;
  return a + b;
}

/* Negative: a value a goes before b in a MINLOC; 0: the index decides. NaN goes first. */
static int order_of_floats(double a, double b) {
  if (a != a || b != b) return (b != b) - (a != a);
  if (a != b) return a < b ? -1 : 1;
  return (__builtin_signbit(b) != 0) - (__builtin_signbit(a) != 0);
}

static int reverse_order_of_floats(double a, double b) {
  return a != a || b != b ? order_of_floats(a, b) : order_of_floats(b, a);
}

static int order_of_integers(int64_t a, int64_t b) { return (a > b) - (a < b); }
static int reverse_order_of_integers(int64_t a, int64_t b) { return order_of_integers(b, a); }

/* T: an element in memory; C: what VALUE computes with, from x, y and the
 * parameter of type P. memcpy: elements
 * may be unaligned. */
#define GY_SCALAR(name, T, C, widen, narrow, VALUE) \
  static GY_SCALAR_FUNCTION(name, T, C, widen, narrow, VALUE)
#define GY_SCALAR_FUNCTION(name, T, C, widen, narrow, VALUE) \
  GY_SCALAR_OF(name, T, C, uint32_t, divisor, widen, narrow, VALUE)
#define GY_SCALAR_OF(name, T, C, P, param, widen, narrow, VALUE)              \
  void name(void *dst, const void *a, const void *b, size_t count, P param) { \
    (void)(param);                                                            \
    char *d = dst;                                                            \
    const char *p = a, *q = b;                                                \
    for (size_t i = 0; i < count; i++) {                                      \
      T u, v;                                                                 \
      memcpy(&u, p + i * sizeof u, sizeof u);                                 \
      memcpy(&v, q + i * sizeof v, sizeof v);                                 \
      const C x = widen(u), y = widen(v);                                     \
      u = narrow(VALUE);                                                      \
      memcpy(d + i * sizeof u, &u, sizeof u);                                 \
    }                                                                         \
  }

#define GY_SCALAR_BY(name, T, C, widen, narrow, VALUE) \
  static GY_SCALAR_OF(name, T, C, double, factor, widen, narrow, VALUE)

#define GY_PLAIN(v) (v)

/* c: C's name in the functions above. scale_* is given its one operand twice and ignores y. */
#define GY_FLOAT_SCALARS(type, T, C, c, widen, narrow)                                          \
  GY_SCALAR(sum_whole_##type, T, C, widen, narrow, x + y)                                       \
  GY_SCALAR(sum_divided_##type, T, C, widen, narrow, (x + y) / (C)divisor)                      \
  GY_SCALAR(prod_##type, T, C, widen, narrow, x *y)                                             \
  GY_SCALAR(min_##type, T, C, widen, narrow, min_of_##c(x, y))                                  \
  GY_SCALAR(max_##type, T, C, widen, narrow, max_of_##c(x, y))                                  \
  GY_SCALAR(scale_##type, T, C, widen, narrow, ((void)y, x / (C)divisor))                       \
  GY_SCALAR_BY(multiply_##type, T, C, widen, narrow, ((void)y, x * (C)factor))                  \
  GY_SCALAR_BY(divide_##type, T, C, widen, narrow, ((void)y, (C)((double)x / factor)))          \
  static void sum_##type(void *dst, const void *a, const void *b, size_t n, uint32_t divisor) { \
    (divisor > 1 ? sum_divided_##type : sum_whole_##type)(dst, a, b, n, divisor);               \
  }

GY_FLOAT_SCALARS(f32, float, float, f32, GY_PLAIN, GY_PLAIN)
GY_FLOAT_SCALARS(f64, double, double, f64, GY_PLAIN, GY_PLAIN)
GY_FLOAT_SCALARS(f16, uint16_t, float, f32, gy_f16_to_f32, gy_f32_to_f16)
GY_FLOAT_SCALARS(bf16, uint16_t, float, f32, gy_bf16_to_f32, gy_f32_to_bf16)
GY_FLOAT_SCALARS(f8e4m3, uint8_t, float, f32, gy_e4m3_to_f32, gy_f32_to_e4m3)
GY_FLOAT_SCALARS(f8e5m2, uint8_t, float, f32, gy_e5m2_to_f32, gy_f32_to_e5m2)

/* T: the type; U: an unsigned type at least as wide as int, in which sums and products wrap; W:
 * one that holds T and the divisor with T's sign. */
#define GY_INTEGER_SCALARS(type, T, U, W)                                                       \
  GY_SCALAR(sum_whole_##type, T, T, GY_PLAIN, (T), (U)x + (U)y)                                 \
  GY_SCALAR(sum_divided_##type, T, T, GY_PLAIN, (T), (W)(T)((U)x + (U)y) / (W)divisor)          \
  GY_SCALAR(min_##type, T, T, GY_PLAIN, (T), x < y ? x : y)                                     \
  GY_SCALAR(max_##type, T, T, GY_PLAIN, (T), x > y ? x : y)                                     \
  GY_SCALAR(scale_##type, T, T, GY_PLAIN, (T), ((void)y, (W)x / (W)divisor))                    \
  static void sum_##type(void *dst, const void *a, const void *b, size_t n, uint32_t divisor) { \
    (divisor > 1 ? sum_divided_##type : sum_whole_##type)(dst, a, b, n, divisor);               \
  }

GY_INTEGER_SCALARS(i8, int8_t, uint32_t, int64_t)
GY_INTEGER_SCALARS(u8, uint8_t, uint32_t, uint32_t)
GY_INTEGER_SCALARS(i16, int16_t, uint32_t, int64_t)
GY_INTEGER_SCALARS(u16, uint16_t, uint32_t, uint32_t)
GY_INTEGER_SCALARS(i32, int32_t, uint32_t, int64_t)
GY_INTEGER_SCALARS(u32, uint32_t, uint32_t, uint32_t)
GY_INTEGER_SCALARS(i64, int64_t, uint64_t, int64_t)
GY_INTEGER_SCALARS(u64, uint64_t, uint64_t, uint64_t)

GY_SCALAR(prod_u8, uint8_t, uint32_t, GY_PLAIN, (uint8_t), x *y)
GY_SCALAR(prod_u16, uint16_t, uint32_t, GY_PLAIN, (uint16_t), x *y)
GY_SCALAR(prod_u32, uint32_t, uint32_t, GY_PLAIN, (uint32_t), x *y)
GY_SCALAR(prod_u64, uint64_t, uint64_t, GY_PLAIN, (uint64_t), x *y)

#define GY_BIT_SCALARS(type, T, U)                                  \
  GY_SCALAR(band_##type, T, U, GY_PLAIN, (T), x &y)                 \
  GY_SCALAR(bor_##type, T, U, GY_PLAIN, (T), x | y)                 \
  GY_SCALAR(bxor_##type, T, U, GY_PLAIN, (T), x ^ y)                \
  GY_SCALAR(land_##type, T, U, GY_PLAIN, (T), (x != 0) && (y != 0)) \
  GY_SCALAR(lor_##type, T, U, GY_PLAIN, (T), (x != 0) || (y != 0))  \
  GY_SCALAR(lxor_##type, T, U, GY_PLAIN, (T), (x != 0) != (y != 0))

GY_BIT_SCALARS(u8, uint8_t, uint32_t)
GY_BIT_SCALARS(u16, uint16_t, uint32_t)
GY_BIT_SCALARS(u32, uint32_t, uint32_t)
GY_BIT_SCALARS(u64, uint64_t, uint64_t)

/* order: of values, one of the functions above. */
#define GY_PICK(order) \
  order(x.value, y.value) < 0 || (order(x.value, y.value) == 0 && x.index <= y.index) ? x : y
#define GY_PAIR_SCALAR(name, T, order) \
  GY_SCALAR_FUNCTION(name, T, T, GY_PLAIN, GY_PLAIN, GY_PICK(order))

struct f32_i32 {
  float value;
  int32_t index;
};
struct i32_i32 {
  int32_t value, index;
};
struct f64_i64 {
  double value;
  int64_t index;
};
struct i64_i64 {
  int64_t value, index;
};

static GY_PAIR_SCALAR(minloc_f32_i32, struct f32_i32, order_of_floats) static GY_PAIR_SCALAR(
    maxloc_f32_i32, struct f32_i32,
    reverse_order_of_floats) static GY_PAIR_SCALAR(minloc_i32_i32, struct i32_i32,
                                                   order_of_integers) static GY_PAIR_SCALAR(maxloc_i32_i32,
                                                                                            struct i32_i32,
                                                                                            reverse_order_of_integers)
    GY_PAIR_SCALAR(gy_minloc_f64_i64, struct f64_i64, order_of_floats)
        GY_PAIR_SCALAR(gy_maxloc_f64_i64, struct f64_i64, reverse_order_of_floats)
            GY_PAIR_SCALAR(gy_minloc_i64_i64, struct i64_i64, order_of_integers)
                GY_PAIR_SCALAR(gy_maxloc_i64_i64, struct i64_i64, reverse_order_of_integers)

                    static void copy(void *dst, const void *src, size_t bytes) {
  memcpy(dst, src, bytes);
}

const struct gy_kernels gy_kernels_scalar = {
    .isa = "scalar",
    .reduce =
        {GY_KERNEL_ROWS, [GYRE_F8_E4M3] = GY_FLOAT_ROW(f8e4m3), [GYRE_F8_E5M2] = GY_FLOAT_ROW(f8e5m2)},
    .multiply = {GY_MULTIPLY_ROW, [GYRE_F8_E4M3] = multiply_f8e4m3, [GYRE_F8_E5M2] = multiply_f8e5m2},
    .copy = copy,
};

static const gy_reduce_fn scale[GYRE_DTYPE_COUNT] = {
    [GYRE_F32] = scale_f32,        [GYRE_F64] = scale_f64,        [GYRE_F16] = scale_f16,
    [GYRE_BF16] = scale_bf16,      [GYRE_I8] = scale_i8,          [GYRE_U8] = scale_u8,
    [GYRE_I16] = scale_i16,        [GYRE_U16] = scale_u16,        [GYRE_I32] = scale_i32,
    [GYRE_U32] = scale_u32,        [GYRE_I64] = scale_i64,        [GYRE_U64] = scale_u64,
    [GYRE_F8_E4M3] = scale_f8e4m3, [GYRE_F8_E5M2] = scale_f8e5m2,
};

void gy_scale(void *dst, const void *src, size_t count, gyre_dtype type, uint32_t divisor) {
  if (divisor > 1) {
    scale[type](dst, src, src, count, divisor);
  } else {
    gy_copy(dst, src, count * gyre_dtype_size(type));
  }
}

static const gy_multiply_fn divide[GYRE_DTYPE_COUNT] = {
    [GYRE_F32] = divide_f32,   [GYRE_F64] = divide_f64,        [GYRE_F16] = divide_f16,
    [GYRE_BF16] = divide_bf16, [GYRE_F8_E4M3] = divide_f8e4m3, [GYRE_F8_E5M2] = divide_f8e5m2,
};

void gy_divide(void *data, size_t count, gyre_dtype type, double divisor) {
  divide[type](data, data, data, count, divisor);
}

/* -------------------------------------------------------------------------------- choice --- */

#ifdef __x86_64__

static bool has_avx2(void) {
  unsigned a, b, c, d;
  return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_avx512(void) {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

#endif

static bool always(void) { return true; }

static const struct level {
  const struct gy_kernels *kernels;
  bool (*offered)(void);
} levels[] = {
/* the best first */
#ifdef __x86_64__
    {&gy_kernels_avx512, has_avx512},
    {&gy_kernels_avx2, has_avx2},
#endif
#ifdef __aarch64__
    {&gy_kernels_neon, always},
#endif
    {&gy_kernels_scalar, always},
};

static _Atomic(const struct gy_kernels *) chosen;

static const struct gy_kernels *best(void) {
  const struct level *l = levels;
  while (!l->offered()) l++; /* the last one always is */
  return l->kernels;
}

static const struct gy_kernels *current(void) {
  const struct gy_kernels *k = atomic_load_explicit(&chosen, memory_order_relaxed);
  if (k == NULL) {
    k = best();
    atomic_store_explicit(&chosen, k, memory_order_relaxed);
  }
  return k;
}

gyre_status gy_reduce_use(const char *isa) {
  const struct gy_kernels *found = strcmp(isa, "auto") == 0 ? best() : NULL;
  char names[64] = "auto";
  size_t len = strlen(names);
  for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
    if (!levels[i].offered()) continue;
    const char *name = levels[i].kernels->isa;
    if (strcmp(isa, name) == 0) found = levels[i].kernels;
    len += gy_format(names + len, sizeof names - len, ", %s", name);
  }
  if (found == NULL) {
    return gy_fail(GYRE_ERR_ARG, "this CPU has no reduction kernels named \"%s\": use one of %s",
                   isa, names);
  }
  atomic_store_explicit(&chosen, found, memory_order_relaxed);
  return GYRE_OK;
}

const char *gy_reduce_isa(void) { return current()->isa; }

/* What an instruction set has no kernel for is done by the scalar ones. */
gy_reduce_fn gy_reduce_kernel(gyre_dtype type, gyre_op op) {
  gy_reduce_fn own = current()->reduce[type][op];
  return own ? own : gy_kernels_scalar.reduce[type][op];
}

void gy_multiply(void *dst, const void *src, size_t count, gyre_dtype type, double factor) {
  gy_multiply_fn own = current()->multiply[type];
  (own ? own : gy_kernels_scalar.multiply[type])(dst, src, src, count, factor);
}

gy_reduce_fn gy_reduce_reference(gyre_dtype type, gyre_op op) {
  return gy_kernels_scalar.reduce[type][op];
}

/* memcpy's `rep movsb` is the fastest long copy, but slow to start, and at its worst at a short
 * distance modulo the page size. */
static bool vectors_win(const void *dst, const void *src, size_t bytes) {
  const size_t distance = ((uintptr_t)dst - (uintptr_t)src) % 4096;
  return bytes >= GY_COPY_MIN && (bytes <= GY_COPY_ALWAYS || (distance > 0 && distance < 64));
}

void gy_copy(void *dst, const void *src, size_t bytes) {
  if (bytes == 0 || dst == src) return;
  if (vectors_win(dst, src, bytes)) {
    current()->copy(dst, src, bytes);
  } else {
    memcpy(dst, src, bytes);
  }
}

/*
 * reduce_kernels.h - the kernels of one instruction set: their table, and themselves as a template.
 *
 * Role:   reduce_avx2.c, reduce_avx512.c and reduce_neon.c switch their instruction set on, define
 *           GY_VECTOR_BYTES               bytes of a register
 *           GY_ISA, GY_TABLE              its name in gy_reduce_isa(), and of the table to define
 *           GY_F16_WIDEN, GY_F16_NARROW   conversions of a vhalf of f16 to vf32 and back
 *         and include this file, which gives them every kernel. All other arithmetic is written
 *         with the compilers' vector types: the same code for every instruction set. reduce.c has
 *         the scalar reference and includes only the first part.
 * Thread: pure functions on caller's memory.
 *
 * No kernel adds what it multiplied, so there is nothing to contract to a fused operation.
 */
#ifndef GY_REDUCE_KERNELS_H
#define GY_REDUCE_KERNELS_H

#include "reduce.h"

/* dst[i] = a[i] * factor; b is a. */
typedef void (*gy_multiply_fn)(void *dst, const void *a, const void *b, size_t count, double factor);

struct gy_kernels {
  const char *isa;
  gy_reduce_fn reduce[GYRE_DTYPE_COUNT][GYRE_OP_COUNT];
  gy_multiply_fn multiply[GYRE_DTYPE_COUNT];              /* NULL: not a floating-point type */
  void (*copy)(void *dst, const void *src, size_t bytes); /* bytes >= GY_COPY_MIN, no overlap */
};

/* Shorter copies are left to memcpy, which makes them of vectors too. */
#define GY_COPY_MIN 4096
/* Up to here vectors win at any distance of dst and src: both fit the first-level cache. */
#define GY_COPY_ALWAYS 16384

extern const struct gy_kernels gy_kernels_scalar, gy_kernels_neon;
extern const struct gy_kernels gy_kernels_avx2, gy_kernels_avx512;

/* Pairs of 16 bytes have scalar kernels everywhere. */
void gy_minloc_f64_i64(void *dst, const void *a, const void *b, size_t count, uint32_t divisor);
void gy_maxloc_f64_i64(void *dst, const void *a, const void *b, size_t count, uint32_t divisor);
void gy_minloc_i64_i64(void *dst, const void *a, const void *b, size_t count, uint32_t divisor);
void gy_maxloc_i64_i64(void *dst, const void *a, const void *b, size_t count, uint32_t divisor);

/* Contents of gy_kernels.reduce, of types that every table has, for functions named <op>_<type>. Products and bits do not know
 * signs; AVG combines as SUM. */
#define GY_FLOAT_ROW(type)                                                       \
  {                                                                              \
    [GYRE_SUM] = sum_##type, [GYRE_PROD] = prod_##type, [GYRE_MIN] = min_##type, \
    [GYRE_MAX] = max_##type, [GYRE_AVG] = sum_##type,                            \
  }
#define GY_INTEGER_ROW(type, bits)                                                                          \
  {                                                                                                         \
    [GYRE_SUM] = sum_##type, [GYRE_PROD] = prod_##bits, [GYRE_MIN] = min_##type, [GYRE_MAX] = max_##type,   \
    [GYRE_AVG] = sum_##type, [GYRE_BAND] = band_##bits, [GYRE_BOR] = bor_##bits, [GYRE_BXOR] = bxor_##bits, \
    [GYRE_LAND] = land_##bits, [GYRE_LOR] = lor_##bits, [GYRE_LXOR] = lxor_##bits,                          \
  }
#define GY_PAIR_ROW(minloc, maxloc) \
  { [GYRE_MINLOC] = (minloc), [GYRE_MAXLOC] = (maxloc) }
#define GY_KERNEL_ROWS                                                                                 \
  [GYRE_F32] = GY_FLOAT_ROW(f32), [GYRE_F64] = GY_FLOAT_ROW(f64), [GYRE_F16] = GY_FLOAT_ROW(f16),      \
  [GYRE_BF16] = GY_FLOAT_ROW(bf16), [GYRE_I8] = GY_INTEGER_ROW(i8, u8),                                \
  [GYRE_U8] = GY_INTEGER_ROW(u8, u8), [GYRE_I16] = GY_INTEGER_ROW(i16, u16),                           \
  [GYRE_U16] = GY_INTEGER_ROW(u16, u16), [GYRE_I32] = GY_INTEGER_ROW(i32, u32),                        \
  [GYRE_U32] = GY_INTEGER_ROW(u32, u32), [GYRE_I64] = GY_INTEGER_ROW(i64, u64),                        \
  [GYRE_U64] = GY_INTEGER_ROW(u64, u64), [GYRE_F32_I32] = GY_PAIR_ROW(minloc_f32_i32, maxloc_f32_i32), \
  [GYRE_I32_I32] = GY_PAIR_ROW(minloc_i32_i32, maxloc_i32_i32),                                        \
  [GYRE_F64_I64] = GY_PAIR_ROW(gy_minloc_f64_i64, gy_maxloc_f64_i64),                                  \
  [GYRE_I64_I64] = GY_PAIR_ROW(gy_minloc_i64_i64, gy_maxloc_i64_i64)

#define GY_MULTIPLY_ROW \
  [GYRE_F32] = multiply_f32, [GYRE_F64] = multiply_f64, [GYRE_F16] = multiply_f16, [GYRE_BF16] = multiply_bf16

#endif

#ifdef GY_VECTOR_BYTES

#include <string.h>

#define GY_INLINE static inline __attribute__((always_inline))

typedef float vf32 __attribute__((vector_size(GY_VECTOR_BYTES)));
typedef double vf64 __attribute__((vector_size(GY_VECTOR_BYTES)));
typedef int8_t vi8 __attribute__((vector_size(GY_VECTOR_BYTES)));
typedef uint8_t vu8 __attribute__((vector_size(GY_VECTOR_BYTES)));
typedef int16_t vi16 __attribute__((vector_size(GY_VECTOR_BYTES)));
typedef uint16_t vu16 __attribute__((vector_size(GY_VECTOR_BYTES)));
typedef int32_t vi32 __attribute__((vector_size(GY_VECTOR_BYTES)));
typedef uint32_t vu32 __attribute__((vector_size(GY_VECTOR_BYTES)));
typedef int64_t vi64 __attribute__((vector_size(GY_VECTOR_BYTES)));
typedef uint64_t vu64 __attribute__((vector_size(GY_VECTOR_BYTES)));
/* As many halves as vf32 has lanes. */
typedef uint16_t vhalf __attribute__((vector_size(GY_VECTOR_BYTES / 2)));

/* A kernel: BLOCK combines the vectors x and y of type V, with elements of type T, and may use
 * `param` of type P. The borders are whole vectors too, which overlap their neighbours; as dst may be a
 * or b, they are computed before anything is stored. Between them stores are aligned where the
 * elements are. */
#define GY_KERNEL_OF(name, T, V, P, param, BLOCK)                                    \
  GY_INLINE V name##_block(const char *a, const char *b, size_t bytes, P param) {    \
    (void)(param);                                                                   \
    V x = {0}, y = {0};                                                              \
    memcpy(&x, a, bytes);                                                            \
    memcpy(&y, b, bytes);                                                            \
    return BLOCK;                                                                    \
  }                                                                                  \
  static void name(void *dst, const void *a, const void *b, size_t count, P param) { \
    const size_t step = sizeof(V), bytes = count * sizeof(T);                        \
    char *d = dst;                                                                   \
    const char *p = a, *q = b;                                                       \
    if (count == 0) return;                                                          \
    if (bytes < step) {                                                              \
      V only = name##_block(p, q, bytes, param);                                     \
      memcpy(d, &only, bytes);                                                       \
      return;                                                                        \
    }                                                                                \
    const size_t end = bytes - step;                                                 \
    const V first = name##_block(p, q, step, param);                                 \
    const V last = name##_block(p + end, q + end, step, param);                      \
    size_t i = -(uintptr_t)d % step;                                                 \
    if (i % sizeof(T) != 0) i = 0;                                                   \
    for (; i < end; i += step) {                                                     \
      V v = name##_block(p + i, q + i, step, param);                                 \
      memcpy(d + i, &v, step);                                                       \
    }                                                                                \
    memcpy(d, &first, step);                                                         \
    memcpy(d + end, &last, step);                                                    \
  }

#define GY_KERNEL(name, T, V, BLOCK) GY_KERNEL_OF(name, T, V, uint32_t, divisor, BLOCK)

/* Vectors of one float type f: F, its bits as U. A comparison is false for NaN, so where neither
 * holds the result is all ones: a quiet NaN. Where both hold the operands are equal and differ at
 * most in the sign of zero. */
#define GY_FLOAT_OPS(F, f, U)                                                       \
  GY_INLINE F F##_sum(F a, F b, uint32_t divisor) {                                 \
    (void)divisor;                                                                  \
    return a + b;                                                                   \
  }                                                                                 \
  GY_INLINE F F##_mean(F a, F b, uint32_t divisor) { return (a + b) / (f)divisor; } \
  GY_INLINE F F##_prod(F a, F b, uint32_t divisor) {                                \
    (void)divisor;                                                                  \
    return a * b;                                                                   \
  }                                                                                 \
  GY_INLINE F F##_min(F a, F b) {                                                   \
    const U x = (U)a, y = (U)b, le = (U)(a <= b), ge = (U)(a >= b);                 \
    return (F)((x & le) | (y & ge) | ~(le | ge));                                   \
  }                                                                                 \
  GY_INLINE F F##_max(F a, F b) {                                                   \
    const U x = (U)a, y = (U)b, le = (U)(a <= b), ge = (U)(a >= b);                 \
    return (F)((x | ~ge) & (y | ~le));                                              \
  }

GY_FLOAT_OPS(vf32, float, vu32)
GY_FLOAT_OPS(vf64, double, vu64)

/* f16 goes through a register of f32 twice as wide. */
GY_INLINE vf32 f16_widen(vhalf h) { return GY_F16_WIDEN(h); }

GY_INLINE vhalf f16_narrow(vf32 f) { return GY_F16_NARROW(f); }

/* bf16 is the upper half of an f32: a register of pairs gives two of f32, without a shuffle. */
GY_INLINE vf32 bf16_even(vu16 pairs) { return (vf32)((vu32)pairs << 16); }

GY_INLINE vf32 bf16_odd(vu16 pairs) { return (vf32)((vu32)pairs & 0xffff0000u); }

/* The upper halves are the result, rounded to nearest even. No NaN is lost by a carry: its payload
 * comes from a bf16, so its lower half is zero. */
GY_INLINE vu32 bf16_round(vf32 f) {
  const vu32 u = (vu32)f;
  return u + 0x7fffu + ((u >> 16) & 1u);
}

GY_INLINE vu16 bf16_pairs(vf32 even, vf32 odd) {
  return (vu16)((bf16_round(even) >> 16) | (bf16_round(odd) & 0xffff0000u));
}

#define GY_PLAIN(op) op(x, y, divisor)
#define GY_F16(op) f16_narrow(op(f16_widen(x), f16_widen(y), divisor))
#define GY_BF16(op) \
  bf16_pairs(op(bf16_even(x), bf16_even(y), divisor), op(bf16_odd(x), bf16_odd(y), divisor))

/* type: the suffix; T, V: an element and a vector in memory; F: the vector to compute with, as
 * APPLY says. */
#define GY_FLOAT_KERNELS(type, T, V, F, APPLY)                                                  \
  GY_KERNEL(sum_whole_##type, T, V, APPLY(F##_sum))                                             \
  GY_KERNEL(sum_divided_##type, T, V, APPLY(F##_mean))                                          \
  GY_KERNEL(prod_##type, T, V, APPLY(F##_prod))                                                 \
  static void sum_##type(void *dst, const void *a, const void *b, size_t n, uint32_t divisor) { \
    (divisor > 1 ? sum_divided_##type : sum_whole_##type)(dst, a, b, n, divisor);               \
  }

GY_FLOAT_KERNELS(f32, float, vf32, vf32, GY_PLAIN)
GY_FLOAT_KERNELS(f64, double, vf64, vf64, GY_PLAIN)
GY_FLOAT_KERNELS(f16, uint16_t, vhalf, vf32, GY_F16)
GY_FLOAT_KERNELS(bf16, uint16_t, vu16, vf32, GY_BF16)

GY_KERNEL(min_f32, float, vf32, vf32_min(x, y))
GY_KERNEL(max_f32, float, vf32, vf32_max(x, y))
GY_KERNEL(min_f64, double, vf64, vf64_min(x, y))
GY_KERNEL(max_f64, double, vf64, vf64_max(x, y))

GY_KERNEL_OF(multiply_f32, float, vf32, double, factor, x *(float)factor)
GY_KERNEL_OF(multiply_f64, double, vf64, double, factor, x *factor)
GY_KERNEL_OF(multiply_f16, uint16_t, vhalf, double, factor, f16_narrow(f16_widen(x) * (float)factor))
GY_KERNEL_OF(multiply_bf16, uint16_t, vu16, double, factor,
             bf16_pairs(bf16_even(x) * (float)factor, bf16_odd(x) * (float)factor))

/* Halves are compared as they are: with the other bits of negative ones flipped, their order is
 * that of integers. What is beyond infinity is NaN, which makes the result all ones. */
GY_INLINE vi16 half_key(vi16 h) { return h ^ ((h >> 15) & 0x7fff); }

GY_INLINE vi16 half_nan(vi16 a, vi16 b, int16_t infinity) {
  return ((a & 0x7fff) > infinity) | ((b & 0x7fff) > infinity);
}

GY_INLINE vi16 half_min(vi16 a, vi16 b, int16_t infinity) {
  const vi16 less = half_key(a) < half_key(b);
  return (a & less) | (b & ~less) | half_nan(a, b, infinity);
}

GY_INLINE vi16 half_max(vi16 a, vi16 b, int16_t infinity) {
  const vi16 less = half_key(a) < half_key(b);
  return (b & less) | (a & ~less) | half_nan(a, b, infinity);
}

GY_KERNEL(min_f16, uint16_t, vi16, half_min(x, y, 0x7c00))
GY_KERNEL(max_f16, uint16_t, vi16, half_max(x, y, 0x7c00))
GY_KERNEL(min_bf16, uint16_t, vi16, half_min(x, y, 0x7f80))
GY_KERNEL(max_bf16, uint16_t, vi16, half_max(x, y, 0x7f80))

/* Integers. No instruction set divides vectors of them, so the division is a second pass. */
#define GY_MINMAX_KERNELS(type, T, V)                               \
  GY_KERNEL(min_##type, T, V, (x & (V)(x < y)) | (y & ~(V)(x < y))) \
  GY_KERNEL(max_##type, T, V, (x & (V)(x > y)) | (y & ~(V)(x > y)))

#define GY_INTEGER_SUM(type, whole, TYPE)                                                       \
  static void sum_##type(void *dst, const void *a, const void *b, size_t n, uint32_t divisor) { \
    sum_whole_##whole(dst, a, b, n, 0);                                                         \
    if (divisor > 1) gy_scale(dst, dst, n, TYPE, divisor);                                      \
  }

/* Sums and products are of unsigned elements, which wrap. */
#define GY_INTEGER_KERNELS(s, S, VS, TYPE_S, u, U, VU, TYPE_U)  \
  GY_KERNEL(sum_whole_##u, U, VU, x + y)                        \
  GY_KERNEL(prod_##u, U, VU, x *y)                              \
  GY_KERNEL(band_##u, U, VU, x &y)                              \
  GY_KERNEL(bor_##u, U, VU, x | y)                              \
  GY_KERNEL(bxor_##u, U, VU, x ^ y)                             \
  GY_KERNEL(land_##u, U, VU, (VU)(x != 0) & (VU)(y != 0) & 1)   \
  GY_KERNEL(lor_##u, U, VU, (VU)((x | y) != 0) & 1)             \
  GY_KERNEL(lxor_##u, U, VU, ((VU)(x != 0) ^ (VU)(y != 0)) & 1) \
  GY_INTEGER_SUM(s, u, TYPE_S)                                  \
  GY_INTEGER_SUM(u, u, TYPE_U)                                  \
  GY_MINMAX_KERNELS(s, S, VS)                                   \
  GY_MINMAX_KERNELS(u, U, VU)

GY_INTEGER_KERNELS(i8, int8_t, vi8, GYRE_I8, u8, uint8_t, vu8, GYRE_U8)
GY_INTEGER_KERNELS(i16, int16_t, vi16, GYRE_I16, u16, uint16_t, vu16, GYRE_U16)
GY_INTEGER_KERNELS(i32, int32_t, vi32, GYRE_I32, u32, uint32_t, vu32, GYRE_U32)
GY_INTEGER_KERNELS(i64, int64_t, vi64, GYRE_I64, u64, uint64_t, vu64, GYRE_U64)

/* Pairs of 8 bytes: the value is the lower half of a 64-bit lane, the index the upper one. These
 * give what holds for a pair's value (index), in both halves. */
GY_INLINE vu64 of_value(vi32 mask) {
  const vu64 value = (vu64)mask & 0xffffffffu;
  return value | value << 32;
}

GY_INLINE vu64 of_index(vi32 mask) {
  const vu64 index = (vu64)mask >> 32;
  return index | index << 32;
}

/* Of each two pairs that with the lower key, or at equal keys with the lower index. */
GY_INLINE vu64 first_pair(vu64 x, vu64 y, vi32 x_key, vi32 y_key) {
  const vu64 lower_index = of_index((vi32)x <= (vi32)y);
  const vu64 take = of_value(x_key < y_key) | (of_value(x_key == y_key) & lower_index);
  return (x & take) | (y & ~take);
}

/* Integers in the order of floats, see half_key; every NaN becomes `nan`. */
GY_INLINE vi32 f32_key(vu64 pairs, int32_t nan) {
  const vi32 v = (vi32)pairs, is_nan = (v & 0x7fffffff) > 0x7f800000;
  return ((v ^ ((v >> 31) & 0x7fffffff)) & ~is_nan) | (is_nan & nan);
}

GY_KERNEL(minloc_f32_i32, uint64_t, vu64,
          first_pair(x, y, f32_key(x, INT32_MIN), f32_key(y, INT32_MIN)))
GY_KERNEL(maxloc_f32_i32, uint64_t, vu64,
          first_pair(x, y, ~f32_key(x, INT32_MAX), ~f32_key(y, INT32_MAX)))
GY_KERNEL(minloc_i32_i32, uint64_t, vu64, first_pair(x, y, (vi32)x, (vi32)y))
GY_KERNEL(maxloc_i32_i32, uint64_t, vu64, first_pair(x, y, ~(vi32)x, ~(vi32)y))

GY_INLINE vu8 load(const char *from) {
  vu8 v;
  memcpy(&v, from, sizeof v);
  return v;
}

GY_INLINE void store(char *to, vu8 v) { memcpy(to, &v, sizeof v); }

GY_INLINE void copy_four(char *d, const char *s) {
  const size_t n = sizeof(vu8);
  const vu8 v0 = load(s), v1 = load(s + n), v2 = load(s + 2 * n), v3 = load(s + 3 * n);
  __asm__ volatile("" ::: "memory"); /* or the compiler turns the loop around this into memcpy */
  store(d, v0);
  store(d + n, v1);
  store(d + 2 * n, v2);
  store(d + 3 * n, v3);
}

/* Four vectors a turn, all loaded before one is stored: where (dst - src) mod 4096 is small, a
 * load right after the store it seems to depend on would wait for it. Stores between the borders
 * are aligned. */
static void copy(void *dst, const void *src, size_t bytes) {
  const size_t step = 4 * sizeof(vu8);
  char *d = dst;
  const char *s = src;
  copy_four(d, s);
  for (size_t i = step - (uintptr_t)d % sizeof(vu8); i < bytes - step; i += step) {
    copy_four(d + i, s + i);
  }
  copy_four(d + bytes - step, s + bytes - step);
}

const struct gy_kernels GY_TABLE = {
    .isa = GY_ISA, .reduce = {GY_KERNEL_ROWS}, .multiply = {GY_MULTIPLY_ROW}, .copy = copy};

#endif

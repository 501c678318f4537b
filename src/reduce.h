/*
 * reduce.h - element-wise reductions, half types and bulk copies.
 *
 * Role:   dst[i] = a[i] (op) b[i] for every type and operator; the fastest kernel of this CPU is
 *         chosen once.
 * Thread: pure functions on caller's memory.
 *
 * Rules (tested against the scalar reference at every length, offset and split):
 *   - a is the left operand. dst may be the same as a or b (whole overlap), never partly
 *   overlapping. - no alignment is required beyond the element's own, and not even that (network
 *   buffers). - integers wrap; min/max: NaN wins (payload unspecified, quiet), -0 < +0; halves and 8-bit floats
 *   computed in f32, rounded
 *     to nearest even once per call. Results do not depend on the kernel, the split or the offset.
 *   - AVG combines as SUM; gy_scale divides. Logical operators give 0 or 1.
 *   - MINLOC and MAXLOC pick one of two (value, index) pairs whole: values as min/max, then the lower
 *     index.
 */
#ifndef GY_REDUCE_H
#define GY_REDUCE_H

#include <stddef.h>
#include <stdint.h>
#include "gyre/gyre.h"

/* finish_divisor 0 or 1: nothing. Otherwise the combined value is divided by it before it is
 * rounded to the element type and stored: true division for floats (in f32 for f16/bf16, in f64 for
 * f64), truncating toward zero for integers (signed types as signed). Only SUM and AVG may have
 * one. */
typedef void (*gy_reduce_fn)(void *dst, const void *a, const void *b, size_t count,
                             uint32_t finish_divisor);

/* The kernel for a type and a built-in operator; NULL if the operator does not take the type. Cheap;
 * may be kept. */
gy_reduce_fn gy_reduce_kernel(gyre_dtype type, gyre_op op);
/* The scalar reference, for tests and oracles. */
gy_reduce_fn gy_reduce_reference(gyre_dtype type, gyre_op op);
/* Numbers only: dst[i] = src[i] / divisor, for a collective over data that needed no combination (1 rank: divisor
 * 1 copies). */
void gy_scale(void *dst, const void *src, size_t count, gyre_dtype type, uint32_t divisor);

/* dst[i] = what leaves every value as it is: 0 for SUM, 1 for PROD, the greatest value for MIN (an
 * infinity in floating-point types), the least for MAX, these two with the highest index for the
 * locations, all bits for BAND, 1 for LAND, 0 for the rest. */
void gy_reduce_identity(void *dst, size_t count, gyre_dtype type, gyre_op op);

/* Floating-point types only: dst[i] = src[i] * factor, the factor rounded to the type (f32 for the
 * halves), the product to the element. dst may be src. */
void gy_multiply(void *dst, const void *src, size_t count, gyre_dtype type, double factor);

/* Floating-point types only: data[i] = data[i] / divisor, the quotient taken in f64 and rounded to the
 * type (of the halves: to f32 first). */
void gy_divide(void *data, size_t count, gyre_dtype type, double divisor);

/* Bulk copy, by vector loads and stores where these beat memcpy's `rep movsb`: that is slow to
 * start, and slow, on some CPUs many times, where (dst - src) mod 4096 is small. The areas must not
 * overlap, unless dst == src. */
void gy_copy(void *dst, const void *src, size_t bytes);

/* "avx512", "avx2", "neon", "scalar"; what was chosen. GYRE_CPU (a setting, local) can lower it. */
const char *gy_reduce_isa(void);
/* Restricts to a named level ("scalar", "avx2", "avx512", "neon"), or "auto": the best; for tests
 * and the setting. ARG if unknown or not offered by this CPU. */
gyre_status gy_reduce_use(const char *isa);

/* half.c: scalar conversions, round to nearest even, NaN kept quiet. What is too large becomes infinity,
 * or in e4m3, which has none, NaN. */
float gy_f16_to_f32(uint16_t h);
uint16_t gy_f32_to_f16(float f);
float gy_bf16_to_f32(uint16_t h);
uint16_t gy_f32_to_bf16(float f);
float gy_e4m3_to_f32(uint8_t b);
uint8_t gy_f32_to_e4m3(float f);
float gy_e5m2_to_f32(uint8_t b);
uint8_t gy_f32_to_e5m2(float f);

#endif

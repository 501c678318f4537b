/*
 * reduce_avx2.c - the kernels for AVX2 and F16C.
 *
 * Role:   instantiates reduce_kernels.h; chosen by reduce.c where the CPU has both.
 * Thread: pure functions on caller's memory.
 */
#include "reduce_kernels.h"

#ifdef __x86_64__

#include <immintrin.h>
#include <string.h>

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,f16c")
#endif

#define GY_VECTOR_BYTES 32
#define GY_ISA "avx2"
#define GY_TABLE gy_kernels_avx2
#define GY_F16_WIDEN(h) ((vf32)_mm256_cvtph_ps((__m128i)(h)))
#define GY_F16_NARROW(f) \
  ((vhalf)_mm256_cvtps_ph((__m256)(f), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))
#include "reduce_kernels.h"

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif

/*
 * reduce_avx512.c - the kernels for AVX-512 (F, BW, DQ, VL).
 *
 * Role:   instantiates reduce_kernels.h; chosen by reduce.c where the CPU has these.
 * Thread: pure functions on caller's memory.
 */
#include "reduce_kernels.h"

#ifdef __x86_64__

#include <immintrin.h>
#include <string.h>

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")
#endif

#define GY_VECTOR_BYTES 64
#define GY_ISA "avx512"
#define GY_TABLE gy_kernels_avx512
#define GY_F16_WIDEN(h) ((vf32)_mm512_cvtph_ps((__m256i)(h)))
/* The form without a mask is a macro that -Wsign-conversion objects to; a constant mask of all
 * ones costs nothing. */
#define GY_F16_NARROW(f) \
  ((vhalf)_mm512_maskz_cvtps_ph(0xffff, (__m512)(f), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))
#include "reduce_kernels.h"

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif

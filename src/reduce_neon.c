/*
 * reduce_neon.c - the kernels for Advanced SIMD, which every aarch64 CPU has.
 *
 * Role:   instantiates reduce_kernels.h.
 * Thread: pure functions on caller's memory.
 */
#include "reduce_kernels.h"

#ifdef __aarch64__

#include <arm_neon.h>

#define GY_VECTOR_BYTES 16
#define GY_ISA "neon"
#define GY_TABLE gy_kernels_neon
#define GY_F16_WIDEN(h) ((vf32)vcvt_f32_f16(vreinterpret_f16_u16((uint16x4_t)(h))))
#define GY_F16_NARROW(f) ((vhalf)vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)(f))))
#include "reduce_kernels.h"

#endif

/*
 * half.c - conversions between f32 and the half types f16 (IEEE binary16) and bf16.
 *
 * Role:   one value at a time, rounded by integer arithmetic, so that no floating-point mode
 *         changes a result.
 * Thread: pure functions.
 */
#include <string.h>
#include "reduce.h"

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

float gy_f16_to_f32(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
  uint32_t exponent = (h >> 10) & 0x1fu, mantissa = h & 0x3ffu;
  if (exponent == 0) { /* zero or subnormal: mantissa * 2^-24, exact and normal in f32 */
    return from_bits(sign | to_bits((float)mantissa * 0x1p-24f));
  }
  if (exponent == 0x1f) {
    uint32_t quiet = mantissa != 0 ? 0x400000u : 0;
    return from_bits(sign | 0x7f800000u | quiet | mantissa << 13);
  }
  return from_bits(sign | (exponent + 127 - 15) << 23 | mantissa << 13);
}

/* |f| < 2^-14 as a number of 2^-24, rounded; `u` is its bits without the sign. 2^10 is the
 * smallest normal. */
static uint32_t f16_subnormal(uint32_t u) {
  uint32_t exponent = u >> 23;
  if (exponent < 102) return 0; /* below 2^-25, half of the smallest subnormal */
  uint32_t shift = 126 - exponent, mantissa = (u & 0x7fffffu) | 0x800000u;
  uint32_t whole = mantissa >> shift;
  uint32_t rest = mantissa & ((1u << shift) - 1), half = 1u << (shift - 1);
  return whole + (rest > half || (rest == half && (whole & 1u)));
}

uint16_t gy_f32_to_f16(float f) {
  uint32_t u = to_bits(f), sign = (u >> 16) & 0x8000u, h;
  u &= 0x7fffffffu;
  if (u > 0x7f800000u) {
    h = 0x7e00u | ((u >> 13) & 0x3ffu);
  } else if (u >= 0x477ff000u) { /* 65520, the tie between the largest finite value and infinity */
    h = 0x7c00u;
  } else if (u < 0x38800000u) {
    h = f16_subnormal(u);
  } else {
    h = (u + 0xfffu + ((u >> 13) & 1u) - (112u << 23)) >> 13;
  }
  return (uint16_t)(sign | h);
}

float gy_bf16_to_f32(uint16_t h) {
  uint32_t u = (uint32_t)h << 16;
  if ((u & 0x7fffffffu) > 0x7f800000u) u |= 0x400000u;
  return from_bits(u);
}

uint16_t gy_f32_to_bf16(float f) {
  uint32_t u = to_bits(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40u);
  return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16); /* may carry as far as infinity */
}

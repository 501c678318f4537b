/*
 * half.c - conversions between f32 and the half types f16 (IEEE binary16) and bf16, and the 8-bit types
 *          e4m3 and e5m2 (Open Compute Project, "OCP 8-bit Floating Point Specification", 2023).
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

/* A number without its sign, `u` being its bits, as one of an 8-bit type, by the count of values up to it:
 * what is beyond the greatest has a count beyond its. */
static uint32_t narrow_to_8(uint32_t u, uint32_t mantissa_bits, uint32_t bias) {
  uint32_t exponent = u >> 23, least = 128 - bias; /* of a normal number */
  uint32_t shift = 23 - mantissa_bits, mantissa = (u & 0x7fffffu) | 0x800000u;
  if (exponent >= least) {
    mantissa = u - ((127 - bias) << 23);
  } else {
    shift += least - exponent;
    if (shift > 24) return 0; /* less than half of the smallest subnormal */
  }
  uint32_t whole = mantissa >> shift, rest = mantissa & ((1u << shift) - 1), half = 1u << (shift - 1);
  return whole + (rest > half || (rest == half && (whole & 1u)));
}

float gy_e4m3_to_f32(uint8_t b) {
  uint32_t sign = (uint32_t)(b & 0x80u) << 24, magnitude = b & 0x7fu;
  if (magnitude == 0x7f) return from_bits(sign | 0x7fc00000u);
  if (magnitude < 8) return from_bits(sign | to_bits((float)magnitude * 0x1p-9f)); /* subnormal */
  return from_bits(sign | ((magnitude << 20) + ((127u - 7u) << 23)));
}

uint8_t gy_f32_to_e4m3(float f) {
  uint32_t u = to_bits(f), sign = u >> 24 & 0x80u;
  u &= 0x7fffffffu;
  uint32_t magnitude = u > 0x7f800000u ? 0x7f : narrow_to_8(u, 3, 7);
  return (uint8_t)(sign | (magnitude > 0x7e ? 0x7f : magnitude));
}

/* It is the upper half of an f16. */
float gy_e5m2_to_f32(uint8_t b) { return gy_f16_to_f32((uint16_t)(b << 8)); }

uint8_t gy_f32_to_e5m2(float f) {
  uint32_t u = to_bits(f), sign = u >> 24 & 0x80u;
  u &= 0x7fffffffu;
  if (u > 0x7f800000u) return (uint8_t)(sign | 0x7eu | (u >> 21 & 1u));
  uint32_t magnitude = narrow_to_8(u, 2, 15);
  return (uint8_t)(sign | (magnitude > 0x7c ? 0x7c : magnitude));
}

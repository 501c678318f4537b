/* element.c - one element of any type. See element.h. */
#include "element.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

bool perf_is_pair(gyre_dtype type) {
  return type == GYRE_F32_I32 || type == GYRE_F64_I64 || type == GYRE_I32_I32 || type == GYRE_I64_I64;
}

gyre_dtype perf_value_type(gyre_dtype type) {
  switch (type) {
    case GYRE_F32_I32: return GYRE_F32;
    case GYRE_F64_I64: return GYRE_F64;
    case GYRE_I32_I32: return GYRE_I32;
    case GYRE_I64_I64: return GYRE_I64;
    default: return type;
  }
}

gyre_dtype perf_index_type(gyre_dtype type) {
  return type == GYRE_F32_I32 || type == GYRE_I32_I32 ? GYRE_I32 : GYRE_I64;
}

bool perf_is_f8(gyre_dtype type) { return type == GYRE_F8_E4M3 || type == GYRE_F8_E5M2; }

bool perf_is_float(gyre_dtype type) {
  return type == GYRE_F32 || type == GYRE_F64 || type == GYRE_F16 || type == GYRE_BF16 ||
         perf_is_f8(type);
}

bool perf_is_signed(gyre_dtype type) {
  return perf_is_float(type) || type == GYRE_I8 || type == GYRE_I16 || type == GYRE_I32 ||
         type == GYRE_I64;
}

/* f16: sign, 5 bits of exponent with bias 15, 10 bits of fraction. */
static uint16_t f16_of(double value) {
  int exponent = 0;
  double fraction = frexp(fabs(value), &exponent); /* [0.5, 1) * 2^exponent */
  unsigned sign = signbit(value) ? 0x8000u : 0u;
  if (value == 0.0) return (uint16_t)sign;
  if (isinf(value)) return (uint16_t)(sign | 0x7c00u);
  unsigned bits = (unsigned)(fraction * 2048.0) - 1024u;
  return (uint16_t)(sign | (unsigned)(exponent + 14) << 10 | bits);
}

static double f16_value(uint16_t h) {
  int exponent = (h >> 10) & 31, fraction = h & 1023;
  double sign = h & 0x8000u ? -1.0 : 1.0;
  if (exponent == 31) return fraction ? NAN : sign * INFINITY;
  return sign * (exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24));
}

/* Sign, 4 bits of exponent with bias 7, 3 of fraction, and no infinity; or the upper half of an f16. */
static double f8_value(gyre_dtype type, uint8_t b) {
  int exponent = (b >> 3) & 15, fraction = b & 7;
  double sign = b & 0x80u ? -1.0 : 1.0;
  if (type == GYRE_F8_E5M2) return f16_value((uint16_t)(b << 8));
  if (exponent == 15 && fraction == 7) return NAN;
  return sign * (exponent ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9));
}

/* The next value toward zero. */
static uint8_t f8_of(gyre_dtype type, double value) {
  uint8_t sign = signbit(value) ? 0x80u : 0u, found = 0, last = type == GYRE_F8_E4M3 ? 0x7e : 0x7c;
  for (uint8_t b = 0; b <= last; b++)
    if (f8_value(type, b) <= fabs(value)) found = b;
  return sign | found;
}

void perf_put_float(gyre_dtype type, void *element, double value) {
  float single = (float)value;
  uint32_t bits;
  uint16_t half;
  uint8_t byte;
  switch (type) {
    case GYRE_F8_E4M3:
    case GYRE_F8_E5M2:
      byte = f8_of(type, value);
      memcpy(element, &byte, sizeof(byte));
      return;
    case GYRE_F64: memcpy(element, &value, sizeof(value)); return;
    case GYRE_F32: memcpy(element, &single, sizeof(single)); return;
    case GYRE_BF16: /* the upper half of an f32 */
      memcpy(&bits, &single, sizeof(bits));
      half = (uint16_t)(bits >> 16);
      break;
    default: half = f16_of(value); break;
  }
  memcpy(element, &half, sizeof(half));
}

double perf_get_float(gyre_dtype type, const void *element) {
  double value;
  float single;
  uint16_t half;
  uint32_t bits;
  switch (type) {
    case GYRE_F8_E4M3:
    case GYRE_F8_E5M2: return f8_value(type, *(const uint8_t *)element);
    case GYRE_F64: memcpy(&value, element, sizeof(value)); return value;
    case GYRE_F32: memcpy(&single, element, sizeof(single)); return (double)single;
    case GYRE_BF16:
      memcpy(&half, element, sizeof(half));
      bits = (uint32_t)half << 16;
      memcpy(&single, &bits, sizeof(single));
      return (double)single;
    default: memcpy(&half, element, sizeof(half)); return f16_value(half);
  }
}

void perf_put_integer(gyre_dtype type, void *element, uint64_t value) {
  uint8_t b = (uint8_t)value;
  uint16_t h = (uint16_t)value;
  uint32_t w = (uint32_t)value;
  switch (type) {
    case GYRE_I8:
    case GYRE_U8: memcpy(element, &b, sizeof(b)); return;
    case GYRE_I16:
    case GYRE_U16: memcpy(element, &h, sizeof(h)); return;
    case GYRE_I32:
    case GYRE_U32: memcpy(element, &w, sizeof(w)); return;
    default: memcpy(element, &value, sizeof(value)); return;
  }
}

uint64_t perf_get_integer(gyre_dtype type, const void *element) {
  uint8_t b;
  uint16_t h;
  uint32_t w;
  uint64_t value;
  switch (type) {
    case GYRE_I8: memcpy(&b, element, sizeof(b)); return (uint64_t)(int64_t)(int8_t)b;
    case GYRE_U8: memcpy(&b, element, sizeof(b)); return b;
    case GYRE_I16: memcpy(&h, element, sizeof(h)); return (uint64_t)(int64_t)(int16_t)h;
    case GYRE_U16: memcpy(&h, element, sizeof(h)); return h;
    case GYRE_I32: memcpy(&w, element, sizeof(w)); return (uint64_t)(int64_t)(int32_t)w;
    case GYRE_U32: memcpy(&w, element, sizeof(w)); return w;
    default: memcpy(&value, element, sizeof(value)); return value;
  }
}

void perf_put(gyre_dtype type, void *element, double value, int64_t index) {
  gyre_dtype of_value = perf_value_type(type);
  if (perf_is_float(of_value)) perf_put_float(of_value, element, value);
  else perf_put_integer(of_value, element, (uint64_t)(int64_t)value);
  if (perf_is_pair(type))
    perf_put_integer(perf_index_type(type), (char *)element + gyre_dtype_size(type) / 2,
                     (uint64_t)index);
}

void perf_element_text(gyre_dtype type, const void *element, char *out, size_t capacity) {
  char value[40], index[40];
  if (perf_is_pair(type)) {
    const char *second = (const char *)element + gyre_dtype_size(type) / 2;
    perf_element_text(perf_value_type(type), element, value, sizeof(value));
    perf_element_text(perf_index_type(type), second, index, sizeof(index));
    snprintf(out, capacity, "(%s, %s)", value, index);
  } else if (perf_is_float(type)) {
    snprintf(out, capacity, "%.9g", perf_get_float(type, element));
  } else if (perf_is_signed(type)) {
    snprintf(out, capacity, "%" PRId64, (int64_t)perf_get_integer(type, element));
  } else {
    snprintf(out, capacity, "%" PRIu64, perf_get_integer(type, element));
  }
}

/*
 * reduce_identity.c - the value of each type and operator that changes nothing (declared in
 * reduce.h).
 *
 * Role:   what a reduction over no ranks gives.
 * Thread: pure functions.
 */
#include <string.h>
#include "reduce.h"

/* The bits of the identity, in the low bytes. Least and greatest: the infinities of the
 * floating-point types that have them. */
struct limits {
  uint64_t one, least, greatest;
};

static const struct limits limits[GYRE_DTYPE_COUNT] = {
    [GYRE_F32] = {0x3f800000, 0xff800000, 0x7f800000},
    [GYRE_F64] = {0x3ff0000000000000, 0xfff0000000000000, 0x7ff0000000000000},
    [GYRE_F16] = {0x3c00, 0xfc00, 0x7c00},
    [GYRE_BF16] = {0x3f80, 0xff80, 0x7f80},
    [GYRE_I8] = {1, 0x80, 0x7f},
    [GYRE_U8] = {1, 0, 0xff},
    [GYRE_I16] = {1, 0x8000, 0x7fff},
    [GYRE_U16] = {1, 0, 0xffff},
    [GYRE_I32] = {1, 0x80000000, 0x7fffffff},
    [GYRE_U32] = {1, 0, 0xffffffff},
    [GYRE_I64] = {1, 0x8000000000000000, 0x7fffffffffffffff},
    [GYRE_U64] = {1, 0, 0xffffffffffffffff},
    [GYRE_F8_E4M3] = {0x38, 0xfe, 0x7e},
    [GYRE_F8_E5M2] = {0x3c, 0xfc, 0x7c},
};

static uint64_t identity(gyre_dtype type, gyre_op op) {
  switch (op) {
    case GYRE_PROD: return limits[type].one;
    case GYRE_LAND: return 1;
    case GYRE_BAND: return UINT64_MAX;
    case GYRE_MIN: return limits[type].greatest;
    case GYRE_MAX: return limits[type].least;
    default: return 0;
  }
}

/* Of MINLOC and MAXLOC: the value that all others go before, with the highest index. */
static void pair_identity(char *dst, size_t count, gyre_dtype type, gyre_op op) {
  static const gyre_dtype values[GYRE_DTYPE_COUNT] = {
      [GYRE_F32_I32] = GYRE_F32, [GYRE_F64_I64] = GYRE_F64, [GYRE_I32_I32] = GYRE_I32, [GYRE_I64_I64] = GYRE_I64};
  const size_t half = gyre_dtype_size(type) / 2;
  const struct limits *value = &limits[values[type]];
  const uint64_t bits = op == GYRE_MINLOC ? value->greatest : value->least;
  const uint64_t index = limits[half == 4 ? GYRE_I32 : GYRE_I64].greatest;
  for (size_t i = 0; i < count; i++) {
    memcpy(dst + 2 * i * half, &bits, half);
    memcpy(dst + (2 * i + 1) * half, &index, half);
  }
}

void gy_reduce_identity(void *dst, size_t count, gyre_dtype type, gyre_op op) {
  if (op == GYRE_MINLOC || op == GYRE_MAXLOC) {
    pair_identity(dst, count, type, op);
    return;
  }
  const uint64_t bits = identity(type, op); /* little-endian: the low bytes stand first */
  const size_t esize = gyre_dtype_size(type);
  for (size_t i = 0; i < count; i++) memcpy((char *)dst + i * esize, &bits, esize);
}

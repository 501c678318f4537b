/*
 * crc32c.c - see crc32c.h.
 *
 * The processor's instruction takes 8 bytes in 3 cycles, but can begin one in each cycle. So long
 * areas are taken as three neighbouring blocks side by side. Their checksums are joined by moving
 * one of them over the zeros of a block, which is linear in its bits and so a look-up for each of
 * its bytes.
 *
 * Portable: eight bytes by eight look-ups ("slicing by 8": Kounavis and Berry, 2005).
 */
#include "crc32c.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#ifdef __x86_64__
#include <nmmintrin.h>
#endif
#ifdef __aarch64__
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#define POLYNOMIAL 0x82F63B78u /* bits reversed */
#define BLOCK ((size_t)1024u)  /* bytes of each of the three side by side */

static struct {
  uint32_t slice[8][256]; /* [k][b]: byte b followed by k zero bytes */
  uint32_t skip[4][256];  /* [k][b]: byte k of a checksum being b, followed by BLOCK zero bytes */
  uint32_t (*extend)(uint32_t state, const uint8_t *p, size_t bytes);
  const char *way;
} crc;

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* These work on the state of the division, which is the checksum with its bits inverted. */

static uint32_t extend_byte(uint32_t state, uint8_t byte) {
  return state >> 8 ^ crc.slice[0][(state ^ byte) & 0xFF];
}

static uint32_t extend_portable(uint32_t state, const uint8_t *p, size_t bytes) {
  for (; bytes >= 8; p += 8, bytes -= 8) {
    uint32_t low, high;
    memcpy(&low, p, 4);
    memcpy(&high, p + 4, 4);
    low ^= state;
    state = crc.slice[7][low & 0xFF] ^ crc.slice[6][low >> 8 & 0xFF] ^
            crc.slice[5][low >> 16 & 0xFF] ^ crc.slice[4][low >> 24] ^ crc.slice[3][high & 0xFF] ^
            crc.slice[2][high >> 8 & 0xFF] ^ crc.slice[1][high >> 16 & 0xFF] ^
            crc.slice[0][high >> 24];
  }
  while (bytes--) state = extend_byte(state, *p++);
  return state;
}

/* ------------------------------------------------------------------------- the instruction --- */

#if defined __x86_64__ || defined __aarch64__

static uint32_t skip_block(uint32_t state) {
  return crc.skip[0][state & 0xFF] ^ crc.skip[1][state >> 8 & 0xFF] ^
         crc.skip[2][state >> 16 & 0xFF] ^ crc.skip[3][state >> 24];
}

static uint64_t load(const uint8_t *p) {
  uint64_t v;
  memcpy(&v, p, sizeof v);
  return v;
}

#ifdef __x86_64__

#define WAY "sse4.2"
#define TARGET __attribute__((target("sse4.2")))
static bool offered(void) { return __builtin_cpu_supports("sse4.2"); }
TARGET static inline uint64_t extend_8(uint64_t state, uint64_t v) {
  return _mm_crc32_u64(state, v);
}
TARGET static inline uint32_t extend_1(uint32_t state, uint8_t v) { return _mm_crc32_u8(state, v); }

#else

#define WAY "armv8"
#define TARGET
static bool offered(void) { return getauxval(AT_HWCAP) & HWCAP_CRC32; }
/* By hand, because compilers offer the intrinsics only where the whole file may use them. */
static inline uint64_t extend_8(uint64_t state, uint64_t v) {
  uint32_t next;
  __asm__(".arch_extension crc\n\tcrc32cx %w0, %w1, %2"
          : "=r"(next)
          : "r"((uint32_t)state), "r"(v));
  return next;
}
static inline uint32_t extend_1(uint32_t state, uint8_t v) {
  uint32_t next;
  __asm__(".arch_extension crc\n\tcrc32cb %w0, %w1, %w2"
          : "=r"(next)
          : "r"(state), "r"((uint32_t)v));
  return next;
}

#endif

TARGET static uint32_t extend_by_instruction(uint32_t state, const uint8_t *p, size_t bytes) {
  for (; bytes >= 3 * BLOCK; p += 3 * BLOCK, bytes -= 3 * BLOCK) {
    uint64_t a = state, b = 0, c = 0;
    for (size_t i = 0; i < BLOCK; i += 8) {
      a = extend_8(a, load(p + i));
      b = extend_8(b, load(p + BLOCK + i));
      c = extend_8(c, load(p + 2 * BLOCK + i));
    }
    state = skip_block(skip_block((uint32_t)a) ^ (uint32_t)b) ^ (uint32_t)c;
  }
  for (; bytes >= 8; p += 8, bytes -= 8) state = (uint32_t)extend_8(state, load(p));
  while (bytes--) state = extend_1(state, *p++);
  return state;
}

#endif

/* ---------------------------------------------------------------------------------- tables --- */

static void make_slices(void) {
  for (uint32_t b = 0; b < 256; b++) {
    uint32_t state = b;
    for (int bit = 0; bit < 8; bit++) state = state >> 1 ^ (state & 1 ? POLYNOMIAL : 0);
    crc.slice[0][b] = state;
  }
  for (int k = 1; k < 8; k++) {
    for (int b = 0; b < 256; b++) {
      uint32_t before = crc.slice[k - 1][b];
      crc.slice[k][b] = before >> 8 ^ crc.slice[0][before & 0xFF];
    }
  }
}

static void make_skips(void) {
  static const uint8_t zeros[BLOCK];
  for (int k = 0; k < 4; k++) {
    for (uint32_t b = 0; b < 256; b++) crc.skip[k][b] = extend_portable(b << 8 * k, zeros, BLOCK);
  }
}

static void choose(void) {
  make_slices();
  make_skips();
  crc.extend = extend_portable;
  crc.way = "portable";
#ifdef WAY
  if (!offered()) return;
  crc.extend = extend_by_instruction;
  crc.way = WAY;
#endif
}

uint32_t gy_crc32c(uint32_t sum, const void *data, size_t bytes) {
  pthread_once(&once, choose);
  return ~crc.extend(~sum, data, bytes);
}

uint32_t gy_crc32c_portable(uint32_t sum, const void *data, size_t bytes) {
  pthread_once(&once, choose);
  return ~extend_portable(~sum, data, bytes);
}

const char *gy_crc32c_way(void) {
  pthread_once(&once, choose);
  return crc.way;
}

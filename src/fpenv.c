/* fpenv.c - see fpenv.h. */
#include "fpenv.h"

#if defined(__x86_64__)

#include <xmmintrin.h>

/* All exceptions masked, none raised; to nearest; no flush to zero, no denormals as zero. */
#define GY_MXCSR 0x1f80u

struct gy_fpenv gy_fpenv_enter(void) {
  struct gy_fpenv saved = {_mm_getcsr()};
  _mm_setcsr(GY_MXCSR);
  return saved;
}

void gy_fpenv_leave(struct gy_fpenv saved) { _mm_setcsr((unsigned)saved.word); }

#elif defined(__aarch64__)

/* FPCR: all zero means to nearest, no flush to zero, no traps. */
static void write_fpcr(uint64_t word) { __asm__ volatile("msr fpcr, %0" : : "r"(word) : "memory"); }

struct gy_fpenv gy_fpenv_enter(void) {
  struct gy_fpenv saved;
  __asm__ volatile("mrs %0, fpcr" : "=r"(saved.word) : : "memory");
  write_fpcr(0);
  return saved;
}

void gy_fpenv_leave(struct gy_fpenv saved) { write_fpcr(saved.word); }

#else
#error "gy_fpenv_enter is written for x86-64 and aarch64"
#endif

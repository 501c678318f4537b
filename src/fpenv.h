/*
 * fpenv.h - the floating-point environment in which Gyre computes.
 *
 * Role:   what reduces, and what estimates costs, runs between enter and leave, so that the
 *         caller's rounding, flushing of subnormals and traps change no result, no choice of an
 *         algorithm (ranks must agree on it), and raise no signal.
 * Thread: any; the environment is the thread's own.
 */
#ifndef GY_FPENV_H
#define GY_FPENV_H

#include <stdint.h>

struct gy_fpenv {
  uint64_t word;
};

/* To nearest, nothing flushed, nothing trapped. Returns what to restore. */
struct gy_fpenv gy_fpenv_enter(void);
void gy_fpenv_leave(struct gy_fpenv saved);

#endif

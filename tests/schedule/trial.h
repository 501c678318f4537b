/*
 * trial.h - a mutant before its two judges: the verifier, and the real engine under seeded random
 * schedules.
 *
 * Thread: any. Owner: the caller keeps the mutant.
 */
#ifndef TRIAL_H
#define TRIAL_H

#include <stddef.h>

#include "mutant.h"

/* What the verifier says, with one and three slices a chunk and windows of one and two. */
gyre_status trial_verify(const struct mutant *m, uint64_t seed);

/* Runs the mutant on real engines under seeds [first, first + n): each seed draws the interleaving,
 * the slice length, the window, the count and the operator. NULL if every result was right, else
 * what was wrong, with the seed. A barrier is right if it completes on every rank, and on none
 * before the last rank has posted. */
const char *trial_engine(const struct mutant *m, const struct gy_algo *algo, uint64_t first,
                         unsigned n);

#endif

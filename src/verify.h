/*
 * verify.h - proves a collective's programs right for all ranks together, without a network.
 *
 * Role:   runs the programs of every rank symbolically (each byte range is the multiset and order
 *         of the contributions in it) under many interleavings: links without buffering, late local
 *         completion of sends, small scratch windows, in place and out of place. Reports deadlock,
 *         lost or doubled contributions, reads of what a later write may overwrite, and two
 *         unordered writes or reduces into one place.
 * Thread: pure; memory is freed before return.
 */
#ifndef GY_VERIFY_H
#define GY_VERIFY_H

#include "schedule.h"

struct gy_verify_options {
  uint32_t slices;    /* slices per full chunk, 1..4 */
  uint32_t window;    /* scratch window in slices, 1.. */
  uint32_t schedules; /* how many random interleavings, besides the in-order one and its reverse */
  uint64_t seed;
};

/* programs[r] was built for keys[r], 0 <= r < keys[0].nranks; the keys differ in rank and
 * in_place only. If they are ordered, so must be the operands of what is reduced. GYRE_OK, or GYRE_ERR_INTERNAL with what is wrong in gyre_last_error(): "rank 2
 * insn 7 slice 1: ...". */
gyre_status gy_verify(const struct gy_program *const *programs, const struct gy_key *keys,
                      const struct gy_verify_options *options);
/* Builds and verifies one algorithm for nranks and root: all ranks out of place, all in place,
 * and mixed (every mixture up to 4 ranks, else options->schedules + 1 samples; above 32 ranks
 * only these samples). */
gyre_status gy_verify_algo(const struct gy_algo *algo, int nranks, int root,
                           const struct gy_verify_options *options);

#endif

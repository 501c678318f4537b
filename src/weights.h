/*
 * weights.h - weighted reductions: each rank's contribution is multiplied by its weight, and the sum
 * of the weights travels in the same run.
 *
 * Role:   makes the program of a weighted collective of that of a plain one, and says what becomes of
 *         a contribution before and of a sum after it is combined.
 * Thread: pure functions.
 * Owner:  a program made here is the caller's.
 *
 * With each chunk goes its weight, one f64: every instruction has a twin that does the same to the
 * weight, just before it. So weights add up along the same way and in the same order as the chunk,
 * and are complete wherever the chunk is, with no message that waits for another. There a further
 * instruction, a COPY of the place onto itself with GY_REF_FINISH, makes the sum what the call wants.
 */
#ifndef GY_WEIGHTS_H
#define GY_WEIGHTS_H

#include "schedule.h"

/* `plain` was built for the key; its reductions must be sums. */
gyre_status gy_weights_add(const struct gy_key *key, const struct gy_program *plain,
                           struct gy_program **out);

/* ARG unless the operator is SUM or AVG, the type a floating-point one, and the weight 0, or finite,
 * positive, and one with which that type can be multiplied. */
gyre_status gy_weight_check(const char *function, gyre_dtype type, gyre_op op, double weight);
/* dst[i] = src[i] * weight. With a weight of 0 nothing of src is read, and dst[i] = -0.0, which leaves
 * any sum as it is. dst may be src. */
void gy_weight_apply(void *dst, const void *src, size_t count, gyre_dtype type, double weight);
/* With the sum of all weights: AVG divides by it; where it is 0, the result is 0. */
void gy_weight_finish(void *data, size_t count, gyre_dtype type, gyre_op op, double total);

#endif

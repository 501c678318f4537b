/*
 * random.h - a small seeded generator (splitmix64): the same numbers on every machine.
 *
 * Role: initial weights and the order of samples. Thread: the trainer's only one.
 */
#ifndef TRAIN_RANDOM_H
#define TRAIN_RANDOM_H

#include <stdint.h>

struct random_state {
  uint64_t word;
};

uint64_t random_next(struct random_state *r);
/* Uniform in [0, bound), without bias; bound > 0. */
uint64_t random_below(struct random_state *r, uint64_t bound);
/* Uniform in [-limit, limit). */
float random_symmetric(struct random_state *r, float limit);

#endif

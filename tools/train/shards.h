/*
 * shards.h - who trains on which sample.
 *
 * Role: one order of samples per epoch, the same on every rank, cut into global batches; and the
 * contiguous part of a range that belongs to a rank. Thread: the trainer's only one.
 *
 * The global batch does not depend on the number of ranks, so a run on N ranks takes the same steps
 * as a run on one.
 */
#ifndef TRAIN_SHARDS_H
#define TRAIN_SHARDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct shard {
  size_t first, count;
};

/* Rank's part of [0, total): the parts of all ranks are disjoint, in rank order, cover everything,
 * and differ in size by at most one. A part is empty where there are fewer samples than ranks. */
struct shard shard_of(size_t total, int rank, int world);

struct sampler {
  uint32_t *order; /* a permutation of the sample numbers; owned */
  size_t count;
};

bool sampler_create(struct sampler *s, size_t count);
/* Draws the order of one epoch; a function of (count, seed, epoch) alone. */
void sampler_shuffle(struct sampler *s, uint64_t seed, size_t epoch);
void sampler_destroy(struct sampler *s);

#endif

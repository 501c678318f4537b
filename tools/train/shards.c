/*
 * shards.c - see shards.h.
 */
#include "shards.h"

#include <stdlib.h>

#include "random.h"

struct shard shard_of(size_t total, int rank, int world) {
  size_t r = (size_t)rank, each = total / (size_t)world, extra = total % (size_t)world;
  struct shard s = {r * each + (r < extra ? r : extra), each + (r < extra ? 1 : 0)};
  return s;
}

bool sampler_create(struct sampler *s, size_t count) {
  s->order = calloc(count, sizeof *s->order);
  s->count = count;
  return s->order != NULL;
}

void sampler_shuffle(struct sampler *s, uint64_t seed, size_t epoch) {
  struct random_state r = {seed ^ (UINT64_C(0x5851f42d4c957f2d) * (epoch + 1))};
  /* Start from the identity, so that an epoch's order does not depend on the epochs before it. */
  for (size_t i = 0; i < s->count; i++) s->order[i] = (uint32_t)i;
  for (size_t i = s->count; i > 1; i--) {
    size_t j = (size_t)random_below(&r, i);
    uint32_t swapped = s->order[i - 1];
    s->order[i - 1] = s->order[j];
    s->order[j] = swapped;
  }
}

void sampler_destroy(struct sampler *s) {
  free(s->order);
  s->order = NULL;
}

/*
 * random.c - see random.h.
 */
#include "random.h"

uint64_t random_next(struct random_state *r) {
  r->word += UINT64_C(0x9e3779b97f4a7c15);
  uint64_t z = r->word;
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

uint64_t random_below(struct random_state *r, uint64_t bound) {
  /* The first 2^64 mod bound values would make small results more likely: draw again. */
  uint64_t biased = (UINT64_MAX - bound + 1) % bound;
  uint64_t drawn;
  do { drawn = random_next(r); } while (drawn < biased);
  return drawn % bound;
}

float random_symmetric(struct random_state *r, float limit) {
  /* 24 bits are exact in a float. */
  float unit = (float)(random_next(r) >> 40) * 0x1p-24f;
  return (2.0f * unit - 1.0f) * limit;
}

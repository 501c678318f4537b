/* samples.c - latencies of one series of calls, in constant memory. See samples.h. */
#include "samples.h"

#include <math.h>
#include <string.h>

/* Values below 2^(SUB+1) have a bucket each; above, the top SUB+1 bits of the value choose it. */
static unsigned bucket_shift(uint64_t ns) {
  unsigned shift = 0;
  while ((ns >> (PERF_SUB_BITS + 1)) >> shift) shift++;
  return shift;
}

static size_t bucket_of(uint64_t ns) {
  unsigned shift = bucket_shift(ns);
  size_t i = ((size_t)shift << PERF_SUB_BITS) + (size_t)(ns >> shift);
  return i < PERF_BUCKETS ? i : PERF_BUCKETS - 1;
}

static double bucket_middle(size_t i) {
  size_t shift = i >> PERF_SUB_BITS;
  if (shift > 0) /* the leading bit of the value lies in the index's upper part */
    shift--;
  double low = ldexp((double)(i - (shift << PERF_SUB_BITS)), (int)shift);
  return low + (ldexp(1.0, (int)shift) - 1.0) / 2.0;
}

void perf_samples_clear(struct perf_samples *s) { memset(s, 0, sizeof(*s)); }

void perf_samples_add(struct perf_samples *s, uint64_t ns) {
  if (s->count == 0 || ns < s->min_ns) s->min_ns = ns;
  if (ns > s->max_ns) s->max_ns = ns;
  s->bucket[bucket_of(ns)]++;
  s->count++;
}

double perf_samples_percentile(const struct perf_samples *s, double percent) {
  if (s->count == 0) return 0.0;
  double wanted = ceil(percent / 100.0 * (double)s->count);
  uint64_t rank = wanted < 1.0 ? 1 : (uint64_t)wanted;
  uint64_t seen = 0;
  size_t i = 0;
  for (; i + 1 < PERF_BUCKETS; i++) {
    seen += s->bucket[i];
    if (seen >= rank) break;
  }
  double value = bucket_middle(i);
  value = value < (double)s->min_ns ? (double)s->min_ns : value;
  return value > (double)s->max_ns ? (double)s->max_ns : value;
}

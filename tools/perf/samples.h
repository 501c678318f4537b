/*
 * samples.h - latencies of one series of calls, in constant memory.
 *
 * Role:   a histogram with 512 buckets per power of two: any number of samples, percentiles within
 *         0.1 %, exact below 1,024 ns; the smallest and the largest are kept exactly.
 * Thread: one at a time.
 */
#ifndef PERF_SAMPLES_H
#define PERF_SAMPLES_H

#include <stdint.h>

#define PERF_SUB_BITS 9  /* buckets per power of two, as a power of two */
#define PERF_MAX_BITS 45 /* samples from 2^45 ns (10 hours) up share the last bucket */
#define PERF_BUCKETS ((PERF_MAX_BITS - PERF_SUB_BITS + 1) << PERF_SUB_BITS)

struct perf_samples {
  uint64_t count, min_ns, max_ns;
  uint64_t bucket[PERF_BUCKETS];
};

void perf_samples_clear(struct perf_samples *s);
void perf_samples_add(struct perf_samples *s, uint64_t ns);
/* The smallest value that at least `percent` of the samples do not exceed, in ns; 0 without
 * samples. */
double perf_samples_percentile(const struct perf_samples *s, double percent);

#endif

/*
 * size.h - message sizes: their notation, and the sweep over them.
 *
 * Role:   "64M" to bytes and back, whole elements, and the next size of a sweep.
 * Thread: pure functions.
 */
#ifndef PERF_SIZE_H
#define PERF_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "0", "4097", "64K", "1M", "2G" (binary multiples, either case) up to PTRDIFF_MAX. False for
 * anything else; *out is then untouched. */
bool perf_parse_size(const char *text, size_t *out);
/* "64 MiB", "1.5 GiB", "12 B". */
void perf_format_size(uint64_t bytes, char *out, size_t capacity);

struct perf_sweep {        /* the last three start as zero */
  size_t min, max, factor; /* both ends included; factor >= 2 */
  size_t grain;            /* bytes of the smallest non-empty message: one element on every rank */
  bool started;
  size_t exact; /* the size before rounding */
  size_t bytes; /* the size: rounded down to whole grains */
};

/* Steps to the next size; false when there is none. A size that rounds to the one before it is
 * skipped; 0 is followed by one grain. */
bool perf_sweep_next(struct perf_sweep *sweep);

#endif

/* size.c - message sizes: their notation, and the sweep over them. See size.h. */
#include "size.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned suffix_shift(char c) {
  switch (c) {
    case 'k':
    case 'K': return 10;
    case 'm':
    case 'M': return 20;
    case 'g':
    case 'G': return 30;
    case 't':
    case 'T': return 40;
    default: return 0;
  }
}

bool perf_parse_size(const char *text, size_t *out) {
  if (text[0] < '0' || text[0] > '9') return false;
  char *end = NULL;
  errno = 0;
  unsigned long long n = strtoull(text, &end, 10);
  if (errno != 0) return false;
  unsigned shift = suffix_shift(*end);
  if (shift != 0) end++;
  if (*end != '\0' || n > ((unsigned long long)PTRDIFF_MAX >> shift)) return false;
  *out = (size_t)n << shift;
  return true;
}

void perf_format_size(uint64_t bytes, char *out, size_t capacity) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = (double)bytes;
  size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < sizeof(units) / sizeof(units[0])) {
    value /= 1024.0;
    unit++;
  }
  snprintf(out, capacity, "%.4g %s", value, units[unit]);
}

static size_t grow(const struct perf_sweep *sweep, size_t exact) {
  if (exact == 0) return sweep->grain;
  return exact > SIZE_MAX / sweep->factor ? SIZE_MAX : exact * sweep->factor;
}

bool perf_sweep_next(struct perf_sweep *sweep) {
  size_t exact = sweep->started ? grow(sweep, sweep->exact) : sweep->min;
  while (sweep->started && exact <= sweep->max && exact - exact % sweep->grain == sweep->bytes)
    exact = grow(sweep, exact);
  if (exact > sweep->max) return false;
  sweep->started = true;
  sweep->exact = exact;
  sweep->bytes = exact - exact % sweep->grain;
  return true;
}

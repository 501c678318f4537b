/* data.c - what the ranks put in, and what must come out. See data.h. */
#include "data.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>
#include "element.h"

/* ---------------------------------------------------------------------------------- numbers --- */

static uint64_t mix(uint64_t x) { /* a bijection that spreads every bit (splitmix64's last part) */
  x ^= x >> 30;
  x *= UINT64_C(0xbf58476d1ce4e5b9);
  x ^= x >> 27;
  x *= UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

static uint64_t draw(const struct perf_series *s, int who, size_t place) {
  uint64_t x = s->iteration * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)place;
  return mix(mix(x) + (uint64_t)(who + 1) * UINT64_C(0xd1342543de82ef95));
}

/* An integer of [-limit, limit], or of [0, limit] for an unsigned type. */
static double within(gyre_dtype type, uint64_t random, int limit) {
  uint64_t wide = (uint64_t)limit;
  if (!perf_is_signed(type)) return (double)(random % (wide + 1));
  return (double)(random % (2 * wide + 1)) - (double)wide;
}

/* Up to this magnitude every integer is exact in the type. Integer types wrap: exact as well. */
static int exact_integers(gyre_dtype type) {
  return type == GYRE_BF16 ? 256 : type == GYRE_F16 ? 2048 : 1 << 20;
}

/* Whether the rank is one of the `window` that contribute at this place; which ones moves on. */
static bool takes_part(const struct perf_series *s, int rank, size_t place, int window) {
  uint64_t turn = (uint64_t)rank + (uint64_t)place + s->iteration;
  return turn % (uint64_t)s->nranks < (uint64_t)window;
}

/* Largest magnitude of a summand such that no partial sum leaves the exact integers. */
static int summand_limit(const struct perf_series *s) {
  int each = exact_integers(s->type) / s->nranks;
  return each < 1 ? 1 : each > 100 ? 100 : each;
}

static double summand(const struct perf_series *s, int rank, size_t place) {
  int window = exact_integers(s->type);
  if (s->nranks > window && !takes_part(s, rank, place, window)) return 0.0;
  return within(s->type, draw(s, rank, place), summand_limit(s));
}

/* Averages of floating-point types: a number common to all ranks, plus one that differs between
 * pairs of ranks and that each pair cancels. So the sum is a multiple of the number of ranks. */
static double averaged(const struct perf_series *s, int rank, size_t place) {
  int limit = summand_limit(s), exact = exact_integers(s->type);
  int common_limit = s->nranks <= exact ? (limit + 1) / 2 : 0;
  double common = within(s->type, draw(s, -1, place), common_limit);
  bool paired = (rank ^ 1) < s->nranks;
  if (!paired || (s->nranks > exact && !takes_part(s, rank | 1, place, exact / 2))) return common;
  double apart = within(s->type, draw(s, rank | 1, place), limit - common_limit);
  return rank & 1 ? common - apart : common + apart;
}

/* Floating-point types: powers of two, at most eight of them other than 1 and -1, so that no
 * partial product leaves [2^-8, 2^8]. Integers: odd ones, whose product never becomes 0. */
static double factor(const struct perf_series *s, int rank, size_t place) {
  uint64_t random = draw(s, rank, place);
  double sign = perf_is_signed(s->type) && (random & 1) ? -1.0 : 1.0;
  random >>= 1;
  if (!perf_is_float(s->type)) return sign * (double)(1 + 2 * (random % 5));
  if (!takes_part(s, rank, place, 8)) return sign;
  return sign * ldexp(1.0, (int)(random % 3) - 1);
}

double perf_value(const struct perf_series *s, int rank, size_t place) {
  switch (s->op) {
    case GYRE_SUM: return summand(s, rank, place);
    case GYRE_PROD: return factor(s, rank, place);
    case GYRE_AVG:
      return perf_is_float(s->type) ? averaged(s, rank, place) : summand(s, rank, place);
    default:
      return perf_is_signed(s->type) ? within(s->type, draw(s, rank, place), 100)
                                     : within(s->type, draw(s, rank, place), 200);
  }
}

/* ---------------------------------------------------------------------------------- results --- */

/* The reduction over no ranks. */
static double float_identity(gyre_op op) {
  switch (op) {
    case GYRE_PROD: return 1;
    case GYRE_MIN: return INFINITY;
    case GYRE_MAX: return -INFINITY;
    default: return 0;
  }
}

static uint64_t integer_identity(gyre_dtype type, gyre_op op) {
  unsigned bits = 8 * (unsigned)gyre_dtype_size(type);
  uint64_t ones = UINT64_MAX >> (64 - bits),
           sign = perf_is_signed(type) ? UINT64_C(1) << (bits - 1) : 0;
  switch (op) {
    case GYRE_PROD: return 1;
    case GYRE_MIN: return ones - sign;
    case GYRE_MAX: return sign;
    default: return 0;
  }
}

static double float_result(const struct perf_series *s, int ranks, size_t place) {
  if (ranks == 0) return float_identity(s->op);
  double all = perf_value(s, 0, place);
  for (int r = 1; r < ranks; r++) {
    double v = perf_value(s, r, place);
    switch (s->op) {
      case GYRE_PROD: all *= v; break;
      case GYRE_MIN: all = v < all ? v : all; break;
      case GYRE_MAX: all = v > all ? v : all; break;
      default: all += v; break;
    }
  }
  return s->op == GYRE_AVG ? all / s->nranks : all;
}

static uint64_t integer_average(gyre_dtype type, uint64_t sum, int nranks) {
  unsigned char narrow[8];
  perf_put_integer(type, narrow, sum);
  uint64_t wrapped = perf_get_integer(type, narrow);
  if (perf_is_signed(type)) return (uint64_t)((int64_t)wrapped / nranks);
  return wrapped / (uint64_t)nranks;
}

static uint64_t integer_result(const struct perf_series *s, int ranks, size_t place) {
  if (ranks == 0) return integer_identity(s->type, s->op);
  int64_t first = (int64_t)perf_value(s, 0, place);
  uint64_t all = (uint64_t)first;
  for (int r = 1; r < ranks; r++) {
    int64_t v = (int64_t)perf_value(s, r, place); /* small: signed order holds */
    switch (s->op) {
      case GYRE_PROD: all *= (uint64_t)v; break;
      case GYRE_MIN: all = v < (int64_t)all ? (uint64_t)v : all; break;
      case GYRE_MAX: all = v > (int64_t)all ? (uint64_t)v : all; break;
      default: all += (uint64_t)v; break;
    }
  }
  return s->op == GYRE_AVG ? integer_average(s->type, all, s->nranks) : all;
}

/* ----------------------------------------------------------------------------------- tables --- */

static size_t places_used(size_t length) { return length < PERF_PERIOD ? length : PERF_PERIOD; }

static void start_table(struct perf_data *d, const struct perf_series *s) {
  d->type = s->type;
  d->esize = gyre_dtype_size(s->type);
}

static void double_table(struct perf_data *d) {
  size_t bytes = PERF_PERIOD * d->esize;
  memcpy(d->table + bytes, d->table, bytes);
}

void perf_data_of_rank(struct perf_data *d, const struct perf_series *s, int rank, size_t length) {
  start_table(d, s);
  bool floats = perf_is_float(s->type);
  for (size_t i = 0; i < places_used(length); i++) {
    double value = perf_value(s, rank, i);
    if (floats) perf_put_float(s->type, d->table + i * d->esize, value);
    else perf_put_integer(s->type, d->table + i * d->esize, (uint64_t)(int64_t)value);
  }
  if (length > PERF_PERIOD) double_table(d);
}

void perf_data_of_result(struct perf_data *d, const struct perf_series *s, int ranks, size_t length) {
  start_table(d, s);
  bool floats = perf_is_float(s->type);
  for (size_t i = 0; i < places_used(length); i++) {
    if (floats) perf_put_float(s->type, d->table + i * d->esize, float_result(s, ranks, i));
    else perf_put_integer(s->type, d->table + i * d->esize, integer_result(s, ranks, i));
  }
  if (length > PERF_PERIOD) double_table(d);
}

/* Where the elements from `index` to the end of its repetition lie. */
static const unsigned char *run_at(const struct perf_data *d, size_t index, size_t *length) {
  size_t repetition = index / PERF_PERIOD, within_it = index % PERF_PERIOD;
  size_t start = (size_t)(((uint64_t)(repetition % PERF_PERIOD) * 5003u) % PERF_PERIOD);
  *length = PERF_PERIOD - within_it;
  return d->table + (start + within_it) * d->esize;
}

const void *perf_data_at(const struct perf_data *d, size_t index) {
  size_t length;
  return run_at(d, index, &length);
}

void perf_data_fill(const struct perf_data *d, void *out, size_t first, size_t count) {
  unsigned char *to = out;
  for (size_t done = 0, length = 0; done < count; done += length) {
    const unsigned char *from = run_at(d, first + done, &length);
    length = length < count - done ? length : count - done;
    memcpy(to + done * d->esize, from, length * d->esize);
  }
}

size_t perf_data_compare(const struct perf_data *d, const void *got, size_t first, size_t count,
                         size_t *wrong_at) {
  const unsigned char *have = got;
  size_t wrong = 0;
  for (size_t done = 0, length = 0; done < count; done += length) {
    const unsigned char *want = run_at(d, first + done, &length);
    length = length < count - done ? length : count - done;
    if (memcmp(have + done * d->esize, want, length * d->esize) == 0) continue;
    for (size_t i = 0; i < length; i++)
      if (memcmp(have + (done + i) * d->esize, want + i * d->esize, d->esize) != 0 && wrong++ == 0)
        *wrong_at = done + i;
  }
  return wrong;
}

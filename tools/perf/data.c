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
  if (!perf_is_signed(perf_value_type(type))) return (double)(random % (wide + 1));
  return (double)(random % (2 * wide + 1)) - (double)wide;
}

/* Up to this magnitude every integer is exact in the type. Integer types wrap: exact as well. */
static int exact_integers(gyre_dtype type) {
  if (perf_is_f8(type)) return type == GYRE_F8_E4M3 ? 16 : 8;
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

/* Zero or not, so that the result is not the same everywhere. */
static double truth(const struct perf_series *s, int rank, size_t place) {
  uint64_t random = draw(s, rank, place), number = 1 + random / 256 % 100;
  uint64_t sides = s->op == GYRE_LXOR ? 2 : (uint64_t)s->nranks + 1;
  bool rare = random % 256 % sides == 0;
  return rare == (s->op == GYRE_LAND) ? 0.0 : (double)number;
}

/* Few different ones, so that ranks tie; in another order than the ranks. */
int64_t perf_index(const struct perf_series *s, int rank, size_t place) {
  return (int64_t)((draw(s, rank, place) >> 40) % 1000);
}

double perf_value(const struct perf_series *s, int rank, size_t place) {
  switch (s->op) {
    case GYRE_LAND:
    case GYRE_LOR:
    case GYRE_LXOR: return truth(s, rank, place);
    case GYRE_MINLOC:
    case GYRE_MAXLOC: return (double)(draw(s, rank, place) % 5) - 2.0;
    case GYRE_SUM: return summand(s, rank, place);
    case GYRE_PROD: return factor(s, rank, place);
    case GYRE_AVG:
      return perf_is_float(s->type) ? averaged(s, rank, place) : summand(s, rank, place);
    default:
      if (perf_is_f8(s->type))
        return within(s->type, draw(s, rank, place), exact_integers(s->type));
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
    case GYRE_PROD:
    case GYRE_LAND: return 1;
    case GYRE_BAND: return ones;
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
      case GYRE_BAND: all &= (uint64_t)v; break;
      case GYRE_BOR: all |= (uint64_t)v; break;
      case GYRE_BXOR: all ^= (uint64_t)v; break;
      case GYRE_LAND: all = all && v; break;
      case GYRE_LOR: all = all || v; break;
      case GYRE_LXOR: all = !all != !v; break;
      default: all += (uint64_t)v; break;
    }
  }
  if (s->op >= GYRE_LAND && s->op <= GYRE_LXOR) return all != 0; /* also of one rank */
  return s->op == GYRE_AVG ? integer_average(s->type, all, s->nranks) : all;
}

/* Over no ranks: the last value in order, and the highest index. */
static void put_pair_identity(const struct perf_series *s, char *element) {
  gyre_dtype value = perf_value_type(s->type), index = perf_index_type(s->type);
  gyre_op of_values = s->op == GYRE_MINLOC ? GYRE_MIN : GYRE_MAX;
  if (perf_is_float(value)) perf_put_float(value, element, float_identity(of_values));
  else perf_put_integer(value, element, integer_identity(value, of_values));
  perf_put_integer(index, element + gyre_dtype_size(value), integer_identity(index, GYRE_MIN));
}

static void put_pair_result(const struct perf_series *s, int ranks, size_t place, void *element) {
  double best = perf_value(s, 0, place);
  int64_t index = perf_index(s, 0, place);
  if (ranks == 0) {
    put_pair_identity(s, element);
    return;
  }
  for (int r = 1; r < ranks; r++) {
    double v = perf_value(s, r, place);
    int64_t i = perf_index(s, r, place);
    bool better = s->op == GYRE_MINLOC ? v < best : v > best;
    if (!better && (v != best || i >= index)) continue;
    best = v;
    index = i;
  }
  perf_put(s->type, element, best, index);
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
  for (size_t i = 0; i < places_used(length); i++)
    perf_put(s->type, d->table + i * d->esize, perf_value(s, rank, i), perf_index(s, rank, i));
  if (length > PERF_PERIOD) double_table(d);
}

void perf_data_of_result(struct perf_data *d, const struct perf_series *s, int ranks, size_t length) {
  start_table(d, s);
  bool floats = perf_is_float(s->type);
  for (size_t i = 0; i < places_used(length); i++) {
    if (perf_is_pair(s->type)) put_pair_result(s, ranks, i, d->table + i * d->esize);
    else if (floats) perf_put_float(s->type, d->table + i * d->esize, float_result(s, ranks, i));
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

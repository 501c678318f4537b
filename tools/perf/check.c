/* check.c - calls whose results are verified, element by element. See session.h. */
#include "session.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "element.h"

enum finding { WRONG_RESULT, WRONG_INPUT, WRONG_BYSTANDER };

struct report { /* of one rank; travels as bytes */
  uint64_t wrong;
  uint64_t index; /* of the first wrong element, in the rank's own buffer */
  unsigned char got[16], want[16];
  uint32_t finding;
  uint32_t padding;
};

struct checked { /* one call */
  struct perf_session *s;
  const struct perf_shape *shape;
  struct perf_series series;
  struct perf_call call;
  size_t in_length, out_length; /* elements */
  bool in_place;
};

static bool is_root(const struct checked *c) { return c->s->rank == c->call.root; }

static bool gives_input(const struct checked *c) {
  const struct perf_collective *coll = c->s->options->coll;
  return !coll->from_root || is_root(c);
}

static bool gets_result(const struct checked *c) {
  const struct perf_collective *coll = c->s->options->coll;
  return !coll->to_root || is_root(c);
}

/* Of the block of `other` in a buffer of `rank`. */
static size_t length_of(const struct perf_session *s, const struct perf_shape *shape, int rank,
                        int other) {
  return perf_block_count(s->options->coll, shape->count, s->nranks, rank, other);
}
static size_t start_of(const struct perf_session *s, const struct perf_shape *shape, int rank,
                       int other) {
  return perf_block_start(s->options->coll, shape->count, s->nranks, rank, other);
}

static struct checked start(struct perf_session *s, const struct perf_shape *shape, bool in_place) {
  const struct perf_collective *coll = s->options->coll;
  struct checked c = {.s = s, .shape = shape, .in_place = in_place};
  c.series = (struct perf_series){.type = shape->type,
                                  .op = coll->has_op ? shape->op : GYRE_MAX,
                                  .nranks = s->nranks,
                                  .iteration = s->iteration++};
  c.call = perf_call_of(s, shape, in_place);
  size_t all = shape->count * (size_t)s->nranks, own = length_of(s, shape, s->rank, s->rank);
  bool blocks = coll->in_blocks || coll->out_blocks;
  c.in_length = coll->in_blocks ? all : blocks ? own : shape->count;
  c.out_length = coll->out_blocks ? all : blocks ? own : shape->count;
  return c;
}

/* The output first: in place, the input lies in it. */
static void lay_out(struct checked *c) {
  size_t esize = gyre_dtype_size(c->shape->type);
  memset(c->call.out, PERF_POISON, c->out_length * esize);
  char *in = c->in_place && !perf_out_is_part(c->s->options->coll) ? c->s->out.base : c->s->in.base;
  if (c->in_place && perf_in_is_part(c->s->options->coll))
    in += start_of(c->s, c->shape, c->s->rank, c->s->rank) * esize;
  if (gives_input(c)) {
    perf_data_of_rank(&c->s->data, &c->series, c->s->rank, c->in_length);
    perf_data_fill(&c->s->data, in, 0, c->in_length);
  } else {
    memset(in, PERF_POISON, c->in_length * esize);
  }
}

/* Compares `count` elements at `got`, which lie at `offset` of their buffer, with those of the
 * table in s->data from `first` on. */
static void compare(struct checked *c, struct report *report, enum finding finding, const void *got,
                    size_t offset, size_t first, size_t count) {
  size_t at = 0, esize = gyre_dtype_size(c->shape->type);
  uint64_t wrong = perf_data_compare(&c->s->data, got, first, count, &at);
  if (wrong > 0 && report->wrong == 0) {
    report->index = offset + at;
    report->finding = finding;
    memcpy(report->got, (const char *)got + at * esize, esize);
    memcpy(report->want, perf_data_at(&c->s->data, first + at), esize);
  }
  report->wrong += wrong;
}

static void compare_poison(struct checked *c, struct report *report, enum finding finding,
                           const void *got, size_t count) {
  size_t esize = gyre_dtype_size(c->shape->type);
  unsigned char poison[16];
  memset(poison, PERF_POISON, sizeof(poison));
  for (size_t i = 0; i < count; i++) {
    const char *element = (const char *)got + i * esize;
    if (memcmp(element, poison, esize) == 0) continue;
    if (report->wrong++ > 0) continue;
    report->index = i;
    report->finding = finding;
    memcpy(report->got, element, esize);
    memcpy(report->want, poison, esize);
  }
}

/* How many ranks, from rank 0 on, this rank's result combines. */
static int combined_ranks(const struct checked *c) {
  switch (c->s->options->coll->scope) {
    case PERF_UP_TO_ITSELF: return c->s->rank + 1;
    case PERF_RANKS_BEFORE: return c->s->rank;
    default: return c->s->nranks;
  }
}

/* Whose input the result is, where nothing is combined. */
static int source_rank(const struct checked *c) {
  int n = c->s->nranks;
  bool shifts = c->s->options->coll->scope == PERF_RANK_BEFORE;
  return shifts ? (c->s->rank + n - 1) % n : c->call.root;
}

static void compare_result(struct checked *c, struct report *report) {
  const struct perf_collective *coll = c->s->options->coll;
  struct perf_data *data = &c->s->data;
  size_t esize = gyre_dtype_size(c->shape->type);
  int me = c->s->rank;
  if (coll->out_blocks) {
    for (int r = 0; r < c->s->nranks; r++) {
      size_t begin = start_of(c->s, c->shape, me, r), count = length_of(c->s, c->shape, me, r);
      size_t first = coll->pairs ? start_of(c->s, c->shape, r, me) : 0; /* in what r has put in */
      perf_data_of_rank(data, &c->series, r, first + count);
      compare(c, report, WRONG_RESULT, (const char *)c->call.out + begin * esize, begin, first,
              count);
    }
    return;
  }
  if (coll->has_op) perf_data_of_result(data, &c->series, combined_ranks(c), c->in_length);
  else perf_data_of_rank(data, &c->series, source_rank(c), c->shape->bytes / esize);
  size_t first = coll->in_blocks ? start_of(c->s, c->shape, me, me) : 0;
  compare(c, report, WRONG_RESULT, c->call.out, 0, first, c->out_length);
}

static struct report verify(struct checked *c) {
  struct report report = {0};
  if (gets_result(c)) compare_result(c, &report);
  else if (!c->in_place) compare_poison(c, &report, WRONG_BYSTANDER, c->call.out, c->out_length);
  if (c->in_place) return report;
  if (!gives_input(c)) {
    compare_poison(c, &report, WRONG_INPUT, c->call.in, c->in_length);
    return report;
  }
  perf_data_of_rank(&c->s->data, &c->series, c->s->rank, c->in_length);
  compare(c, &report, WRONG_INPUT, c->call.in, 0, 0, c->in_length);
  return report;
}

static void print_report(const struct checked *c, int rank, const struct report *r, uint64_t total) {
  static const char *const places[] = {"output", "input, which must not be written: element",
                                       "output of a rank that gets none: element"};
  const struct perf_shape *shape = c->shape;
  char got[96], want[96];
  perf_element_text(shape->type, r->got, got, sizeof(got));
  perf_element_text(shape->type, r->want, want, sizeof(want));
  fprintf(stderr,
          "gyre-perf: %s %s %s, %zu bytes, %s: %" PRIu64 " wrong; first on rank %d, %s %s%" PRIu64
          ": got %s, expected %s\n",
          c->s->options->coll->name, gyre_dtype_name(shape->type),
          c->s->options->coll->has_op ? gyre_op_name(shape->op) : "", shape->bytes,
          c->in_place ? "in place" : "out of place", total, rank, places[r->finding],
          r->finding == WRONG_RESULT ? "index " : "", r->index, got, want);
}

/* The counts first, as the reports are seldom needed. */
static gyre_status settle(struct checked *c, const struct report *mine, uint64_t *wrong) {
  struct perf_session *s = c->s;
  int64_t here = (int64_t)mine->wrong, total = 0;
  gyre_status st = gyre_all_reduce(s->comm, &here, &total, 1, GYRE_I64, GYRE_SUM);
  if (st != GYRE_OK || total == 0) return st;
  struct report *all = calloc((size_t)s->nranks, sizeof(*all));
  if (all == NULL) return GYRE_ERR_NOMEM;
  st = gyre_all_gather(s->comm, mine, all, sizeof(*mine), GYRE_U8);
  int first = 0;
  while (first + 1 < s->nranks && all[first].wrong == 0) first++;
  if (st == GYRE_OK && s->rank == 0) print_report(c, first, &all[first], (uint64_t)total);
  free(all);
  *wrong += (uint64_t)total;
  s->total_wrong += (uint64_t)total;
  return st;
}

gyre_status perf_check(struct perf_session *s, const struct perf_shape *shape, bool in_place,
                       uint64_t *wrong) {
  if (!s->options->coll->has_data)
    return s->options->coll->run(&(struct perf_call){.comm = s->comm});
  struct checked c = start(s, shape, in_place);
  lay_out(&c);
  gyre_status st = s->options->coll->run(&c.call);
  if (st != GYRE_OK) return st;
  struct report report = verify(&c);
  return settle(&c, &report, wrong);
}

gyre_status perf_check_raw(struct perf_session *s, const struct perf_shape *shape) {
  struct checked c = start(s, shape, false);
  struct report report = {0};
  lay_out(&c);
  bool ok = perf_raw_all_reduce(&s->raw, (const float *)c.call.in, c.call.out, shape->count);
  if (!ok) {
    snprintf(s->why, sizeof(s->why), "%s", s->raw.why);
    return GYRE_ERR_SYS;
  }
  compare_result(&c, &report);
  if (report.wrong > 0)
    snprintf(s->why, sizeof(s->why),
             "the sum over raw sockets is wrong from index %" PRIu64 " on (%zu bytes): this is a "
             "fault of gyre-perf",
             report.index, shape->bytes);
  return perf_all_ready(s, report.wrong == 0);
}

/* Numbers that stay clear of the slow subnormal ones, however often a call in place repeats. */
void perf_prepare(struct perf_session *s, const struct perf_shape *shape) {
  struct perf_series series = {.type = shape->type, .op = GYRE_MAX, .nranks = s->nranks};
  size_t elements = shape->bytes / gyre_dtype_size(shape->type);
  size_t block = length_of(s, shape, s->rank, s->rank);
  if (!s->options->coll->has_data) return;
  perf_data_of_rank(&s->data, &series, s->rank, elements);
  perf_data_fill(&s->data, s->in.base, 0, perf_in_is_part(s->options->coll) ? block : elements);
  perf_data_fill(&s->data, s->out.base, 0, perf_out_is_part(s->options->coll) ? block : elements);
}

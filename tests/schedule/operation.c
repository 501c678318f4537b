/* operation.c - see operation.h. */
#include "operation.h"

#include <stdlib.h>
#include <string.h>

static int32_t input(const struct operation *o, int rank, size_t i) {
  if (o->op == GYRE_PROD) return (int32_t)(i + (size_t)rank) % 5 - 2;
  return (int32_t)(i * 7919 + (size_t)rank * 104729 + 13) % 100003 - 50000;
}

/* As if every rank were the root: others have the buffer too, and must leave it alone. */
static size_t length_of(const struct operation *o, enum gy_buf buf) {
  bool blocks = gy_coll_traits(o->coll)->layout == GY_BLOCK;
  bool all = gy_coll_share(o->coll, buf, true) == GY_ALL;
  return blocks && all ? o->count * (size_t)o->nranks : o->count;
}
static size_t in_count(const struct operation *o) { return length_of(o, GY_IN); }
static size_t out_count(const struct operation *o) { return length_of(o, GY_OUT); }

static bool has(const struct operation *o, enum gy_buf buf, int rank) {
  return gy_coll_share(o->coll, buf, rank == o->root) != GY_NOTHING;
}

/* Every rank gets one area; in and out lie in it apart, or this rank's block of the larger one is
 * the smaller one. */
void operation_init(struct operation *o) {
  bool is_scan = o->coll == GY_SCAN || o->coll == GY_EXCLUSIVE_SCAN;
  if (is_scan && o->op == GYRE_AVG) o->op = GYRE_SUM;
  size_t n = (size_t)o->nranks, ins = in_count(o), outs = out_count(o);
  o->in = calloc(n, sizeof *o->in);
  o->out = calloc(n, sizeof *o->out);
  o->memory = calloc(n, sizeof *o->memory);
  for (int r = 0; r < o->nranks; r++) {
    size_t block = o->count * (size_t)r;
    int32_t *m = o->memory[r] = malloc((ins + outs + 64) * sizeof *m);
    memset(m, 0xA5, (ins + outs + 64) * sizeof *m);
    o->in[r] = m + 3;
    o->out[r] = m + 3 + ins + 5;
    if (o->in_place >> r & 1) {
      o->out[r] = outs < ins ? o->in[r] + block : o->in[r];
      if (ins < outs) o->in[r] = o->out[r] + block;
    }
    for (size_t i = 0; i < ins; i++) o->in[r][i] = input(o, r, i);
  }
}

void operation_free(struct operation *o) {
  for (int r = 0; r < o->nranks; r++) free(o->memory[r]);
  free(o->in);
  free(o->out);
  free(o->memory);
}

gyre_status operation_post(const struct operation *o, struct world *w, int rank, gyre_request **req) {
  struct gy_call call = {.coll = o->coll,
                         .dtype = GYRE_I32,
                         .op = o->op,
                         .root = o->root,
                         .in = has(o, GY_IN, rank) ? o->in[rank] : NULL,
                         .out = has(o, GY_OUT, rank) ? o->out[rank] : NULL,
                         .count = o->count};
  return gy_engine_post(world_engine(w, rank), &call, false, req);
}

static int32_t combine(gyre_op op, int32_t a, int32_t b) {
  switch (op) {
    case GYRE_PROD: return (int32_t)((uint32_t)a * (uint32_t)b);
    case GYRE_MIN: return a < b ? a : b;
    case GYRE_MAX: return a > b ? a : b;
    default: return (int32_t)((uint32_t)a + (uint32_t)b);
  }
}

static int32_t reduced(const struct operation *o, size_t i) {
  int32_t v = input(o, 0, i);
  for (int r = 1; r < o->nranks; r++) v = combine(o->op, v, input(o, r, i));
  return o->op == GYRE_AVG ? v / o->nranks : v;
}

/* Of ranks 0 to n - 1. */
static int32_t prefix(const struct operation *o, int n, size_t i) {
  static const int32_t identity[GYRE_OP_COUNT] = {
      [GYRE_PROD] = 1, [GYRE_MIN] = INT32_MAX, [GYRE_MAX] = INT32_MIN};
  int32_t v = n > 0 ? input(o, 0, i) : identity[o->op];
  for (int r = 1; r < n; r++) v = combine(o->op, v, input(o, r, i));
  return v;
}

static int32_t expected(const struct operation *o, int rank, size_t i) {
  switch (o->coll) {
    case GY_REDUCE_SCATTER: return reduced(o, o->count * (size_t)rank + i);
    case GY_ALL_GATHER:
    case GY_GATHER: return input(o, (int)(i / o->count), i % o->count);
    case GY_BROADCAST: return input(o, o->root, i);
    case GY_SCATTER: return input(o, o->root, o->count * (size_t)rank + i);
    case GY_ALL_TO_ALL:
      return input(o, (int)(i / o->count), o->count * (size_t)rank + i % o->count);
    case GY_SCAN: return prefix(o, rank + 1, i);
    case GY_EXCLUSIVE_SCAN: return prefix(o, rank, i);
    default: return reduced(o, i);
  }
}

const char *operation_check(const struct operation *o) {
  static char text[160];
  for (int r = 0; r < o->nranks; r++) {
    bool in_place = o->in_place >> r & 1;
    size_t n = has(o, GY_OUT, r) ? out_count(o) : 0;
    for (size_t i = 0; i < n; i++) {
      if (o->out[r][i] == expected(o, r, i)) continue;
      gy_format(text, sizeof text, "rank %d element %zu is %d, not %d", r, i, o->out[r][i],
                expected(o, r, i));
      return text;
    }
    bool in_stays = !in_place || !has(o, GY_OUT, r); /* then nothing of it is written */
    for (size_t i = 0; i < in_count(o) && in_stays; i++) {
      if (o->in[r][i] == input(o, r, i)) continue;
      gy_format(text, sizeof text, "rank %d: input element %zu was written", r, i);
      return text;
    }
  }
  return NULL;
}

const char *operation_run(const struct operation *o, struct world *w) {
  gyre_request **req = calloc((size_t)o->nranks, sizeof(gyre_request *));
  const char *what = NULL;
  for (int r = 0; r < o->nranks && !what; r++) {
    if (operation_post(o, w, r, &req[r])) what = gyre_last_error();
  }
  if (!what) what = world_run(w, req, o->nranks);
  if (!what) what = operation_check(o);
  for (int r = 0; r < o->nranks; r++) gyre_request_free(req[r]);
  free(req);
  return what;
}

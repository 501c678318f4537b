/* operation.c - see operation.h. */
#include "operation.h"

#include <stdlib.h>
#include <string.h>

static bool is_weighted(const struct operation *o) { return gy_coll_traits(o->coll)->weighted; }

/* 0, 1 or 2. */
static int weight(const struct operation *o, int rank) {
  return (int)((o->count + (size_t)rank) % 3);
}

static int32_t bits_of(float f) {
  int32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return bits;
}

static int whole(int rank, size_t i) {
  return (int)((i * 7919 + (size_t)rank * 104729) % 1009) - 500;
}

/* What has no weight is no number. */
static int32_t weighted_input(const struct operation *o, int rank, size_t i) {
  return weight(o, rank) == 0 ? 0x7fc00001 : bits_of((float)whole(rank, i));
}

static int32_t input(const struct operation *o, int rank, size_t i) {
  if (is_weighted(o)) return weighted_input(o, rank, i);
  if (o->op == GYRE_PROD) return (int32_t)(i + (size_t)rank) % 5 - 2;
  return (int32_t)(i * 7919 + (size_t)rank * 104729 + 13) % 100003 - 50000;
}

/* What the block from one rank to another has; without pairs, that of one rank. In place, as much
 * comes as goes. */
static size_t block_count(const struct operation *o, int from, int to) {
  bool pairs = o->coll == GY_ALL_TO_ALL_V;
  bool even = (o->in_place >> from & 1) || (o->in_place >> to & 1);
  unsigned low = (unsigned)(from < to ? from : to), high = (unsigned)(from < to ? to : from);
  unsigned draw = !pairs ? (unsigned)from * 5
                  : even ? low * 7 + high * 3
                         : (unsigned)from * 7 + (unsigned)to * 3;
  return o->count * (draw % 4) / 2;
}

/* Where the block of `other` is in a buffer that holds all: in order, out of order, or with gaps. */
static void make_blocks(struct operation *o, int rank) {
  size_t n = (size_t)o->nranks;
  struct operation_blocks *b = &o->blocks[rank];
  for (int buf = GY_IN; buf <= GY_OUT; buf++) {
    b->count[buf] = calloc(n, sizeof(size_t));
    b->start[buf] = calloc(n, sizeof(size_t));
    b->total[buf] = 0;
    for (int k = 0; k < o->nranks; k++) {
      int other = o->count % 2 ? o->nranks - 1 - k : k;
      bool pairs = o->coll == GY_ALL_TO_ALL_V;
      int from = pairs && buf == GY_IN ? rank : other, to = pairs && buf == GY_IN ? other : rank;
      b->count[buf][other] = block_count(o, from, pairs ? to : from);
      b->start[buf][other] = b->total[buf];
      b->total[buf] += b->count[buf][other] + (o->count % 3 == 1 ? 2 : 0);
    }
  }
}

static bool varies(const struct operation *o) { return gy_coll_traits(o->coll)->layout == GY_VARY; }

/* As if every rank were the root: others have the buffer too, and must leave it alone. */
static size_t length_of(const struct operation *o, enum gy_buf buf, int rank) {
  bool blocks = gy_coll_traits(o->coll)->layout == GY_BLOCK;
  bool all = gy_coll_share(o->coll, buf, true) == GY_ALL;
  if (varies(o)) return all ? o->blocks[rank].total[buf] : block_count(o, rank, rank);
  return blocks && all ? o->count * (size_t)o->nranks : o->count;
}
static size_t in_count(const struct operation *o, int r) { return length_of(o, GY_IN, r); }
static size_t out_count(const struct operation *o, int r) { return length_of(o, GY_OUT, r); }

static size_t start_of_own(const struct operation *o, enum gy_buf buf, int rank) {
  return varies(o) ? o->blocks[rank].start[buf][rank] : o->count * (size_t)rank;
}

static bool has(const struct operation *o, enum gy_buf buf, int rank) {
  return gy_coll_share(o->coll, buf, rank == o->root) != GY_NOTHING;
}

/* Every rank gets one area; in and out lie in it apart, or this rank's block of the larger one is
 * the smaller one. */
void operation_init(struct operation *o) {
  bool is_scan = o->coll == GY_SCAN || o->coll == GY_EXCLUSIVE_SCAN;
  if (is_scan && o->op == GYRE_AVG) o->op = GYRE_SUM;
  if (is_weighted(o)) o->op = o->op % 2 ? GYRE_SUM : GYRE_AVG;
  size_t n = (size_t)o->nranks;
  o->in = calloc(n, sizeof *o->in);
  o->out = calloc(n, sizeof *o->out);
  o->memory = calloc(n, sizeof *o->memory);
  o->blocks = calloc(n, sizeof *o->blocks);
  o->total = calloc(n, sizeof *o->total);
  for (int r = 0; r < o->nranks; r++) {
    if (varies(o)) make_blocks(o, r);
    size_t ins = in_count(o, r), outs = out_count(o, r);
    int32_t *m = o->memory[r] = malloc((ins + outs + 64) * sizeof *m);
    memset(m, 0xA5, (ins + outs + 64) * sizeof *m);
    o->in[r] = m + 3;
    o->out[r] = m + 3 + ins + 5;
    if (o->in_place >> r & 1) {
      bool own_in = gy_coll_share(o->coll, GY_IN, true) == GY_OWN_BLOCK;
      bool own_out = gy_coll_share(o->coll, GY_OUT, true) == GY_OWN_BLOCK;
      o->out[r] = own_out ? o->in[r] + start_of_own(o, GY_IN, r) : o->in[r];
      if (own_in) o->in[r] = o->out[r] + start_of_own(o, GY_OUT, r);
    }
    for (size_t i = 0; i < ins; i++) o->in[r][i] = input(o, r, i);
  }
}

void operation_free(struct operation *o) {
  for (int r = 0; r < o->nranks; r++) {
    free(o->memory[r]);
    for (int buf = GY_IN; buf <= GY_OUT; buf++) {
      free(o->blocks[r].count[buf]);
      free(o->blocks[r].start[buf]);
    }
  }
  free(o->blocks);
  free(o->total);
  free(o->in);
  free(o->out);
  free(o->memory);
}

/* What gyre.h's functions make of their arguments. */
static void add_blocks(const struct operation *o, int rank, struct gy_call *call) {
  const struct operation_blocks *b = &o->blocks[rank];
  call->count = gy_coll_traits(o->coll)->rooted ? block_count(o, rank, rank) : 0;
  for (int buf = GY_IN; buf <= GY_OUT; buf++) {
    if (gy_coll_share(o->coll, (unsigned)buf, rank == o->root) != GY_ALL) continue;
    call->counts[buf] = b->count[buf];
    if (o->count % 3 == 1 || o->count % 2) call->displs[buf] = b->start[buf];
    for (int r = 0; r < o->nranks && o->coll != GY_ALL_TO_ALL_V && !gy_coll_traits(o->coll)->rooted;
         r++)
      call->count += b->count[buf][r];
  }
}

gyre_status operation_post(const struct operation *o, struct world *w, int rank, gyre_request **req) {
  struct gy_call call = {.coll = o->coll,
                         .dtype = is_weighted(o) ? GYRE_F32 : GYRE_I32,
                         .op = o->op,
                         .root = o->root,
                         .in = has(o, GY_IN, rank) ? o->in[rank] : NULL,
                         .out = has(o, GY_OUT, rank) ? o->out[rank] : NULL,
                         .count = o->count};
  if (varies(o)) add_blocks(o, rank, &call);
  if (is_weighted(o)) {
    call.weight = weight(o, rank);
    call.total = &o->total[rank];
  }
  return gy_engine_post(world_engine(w, rank), &call, false, req);
}

static int32_t combine(gyre_op op, int32_t a, int32_t b) {
  switch (op) {
    case GYRE_PROD: return (int32_t)((uint32_t)a * (uint32_t)b);
    case GYRE_MIN: return a < b ? a : b;
    case GYRE_MAX: return a > b ? a : b;
    case GYRE_BAND: return a & b;
    case GYRE_BOR: return a | b;
    case GYRE_BXOR: return a ^ b;
    case GYRE_LAND: return a && b;
    case GYRE_LOR: return a || b;
    case GYRE_LXOR: return !a != !b;
    default: return (int32_t)((uint32_t)a + (uint32_t)b);
  }
}

static int total_weight(const struct operation *o) {
  int total = 0;
  for (int r = 0; r < o->nranks; r++) total += weight(o, r);
  return total;
}

static int32_t weighted_result(const struct operation *o, size_t i) {
  int sum = 0, total = total_weight(o);
  for (int r = 0; r < o->nranks; r++) sum += weight(o, r) * whole(r, i);
  if (o->op == GYRE_SUM || total == 0) return bits_of((float)sum);
  return bits_of((float)((double)sum / total));
}

static int32_t reduced(const struct operation *o, size_t i) {
  if (is_weighted(o)) return weighted_result(o, i);
  int32_t v = input(o, 0, i);
  for (int r = 1; r < o->nranks; r++) v = combine(o->op, v, input(o, r, i));
  if (o->op >= GYRE_LAND) return v != 0; /* also with one rank */
  return o->op == GYRE_AVG ? v / o->nranks : v;
}

/* Of ranks 0 to n - 1. */
static int32_t prefix(const struct operation *o, int n, size_t i) {
  static const int32_t identity[GYRE_OP_COUNT] = {
      [GYRE_PROD] = 1, [GYRE_MIN] = INT32_MAX, [GYRE_MAX] = INT32_MIN, [GYRE_BAND] = -1, [GYRE_LAND] = 1};
  int32_t v = n > 0 ? input(o, 0, i) : identity[o->op];
  for (int r = 1; r < n; r++) v = combine(o->op, v, input(o, r, i));
  return o->op >= GYRE_LAND ? v != 0 : v;
}

/* The rank whose block element i of a buffer that holds all is in, and its place there; -1: a gap. */
static int block_at(const struct operation *o, enum gy_buf buf, int rank, size_t i, size_t *at) {
  if (!varies(o)) {
    *at = i % o->count;
    return (int)(i / o->count);
  }
  const struct operation_blocks *b = &o->blocks[rank];
  for (int r = 0; r < o->nranks; r++) {
    *at = i - b->start[buf][r];
    if (i >= b->start[buf][r] && *at < b->count[buf][r]) return r;
  }
  return -1;
}

/* False: that element is a gap. */
static bool expected(const struct operation *o, int rank, size_t i, int32_t *want) {
  size_t at, own = start_of_own(o, GY_IN, rank);
  switch (o->coll) {
    case GY_REDUCE_SCATTER:
    case GY_REDUCE_SCATTER_V: *want = reduced(o, own + i); return true;
    case GY_ALL_GATHER:
    case GY_ALL_GATHER_V:
    case GY_GATHER:
    case GY_GATHER_V: {
      int from = block_at(o, GY_OUT, rank, i, &at);
      if (from >= 0) *want = input(o, from, at);
      return from >= 0;
    }
    case GY_BROADCAST: *want = input(o, o->root, i); return true;
    case GY_SCATTER: *want = input(o, o->root, own + i); return true;
    case GY_SCATTER_V:
      *want = input(o, o->root, o->blocks[o->root].start[GY_IN][rank] + i);
      return true;
    case GY_ALL_TO_ALL:
    case GY_ALL_TO_ALL_V: {
      int from = block_at(o, GY_OUT, rank, i, &at);
      if (from < 0) return false;
      size_t start = varies(o) ? o->blocks[from].start[GY_IN][rank] : o->count * (size_t)rank;
      *want = input(o, from, start + at);
      return true;
    }
    case GY_SCAN: *want = prefix(o, rank + 1, i); return true;
    case GY_EXCLUSIVE_SCAN: *want = prefix(o, rank, i); return true;
    default: *want = reduced(o, i); return true;
  }
}

const char *operation_check(const struct operation *o) {
  static char text[160];
  for (int r = 0; r < o->nranks; r++) {
    bool in_place = o->in_place >> r & 1;
    if (is_weighted(o) && o->total[r] != total_weight(o)) {
      gy_format(text, sizeof text, "rank %d: the total is %g, not %d", r, o->total[r],
                total_weight(o));
      return text;
    }
    size_t n = has(o, GY_OUT, r) ? out_count(o, r) : 0;
    for (size_t i = 0; i < n; i++) {
      int32_t want, untouched = in_place ? input(o, r, i) : (int32_t)0xA5A5A5A5;
      if (!expected(o, r, i, &want)) {
        if (in_place && o->coll != GY_ALL_TO_ALL_V) continue; /* may lie in no input */
        want = untouched;
      }
      if (o->out[r][i] == want) continue;
      gy_format(text, sizeof text, "rank %d element %zu is %d, not %d", r, i, o->out[r][i], want);
      return text;
    }
    bool in_stays = !in_place || !has(o, GY_OUT, r); /* then nothing of it is written */
    for (size_t i = 0; i < in_count(o, r) && in_stays; i++) {
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

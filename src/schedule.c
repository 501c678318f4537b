/*
 * schedule.c - the builder of programs, their queues and their printed form.
 *
 * Role:   see schedule.h. Appending only records; gy_b_finish checks the whole program's form. What
 *         a program MEANS is proven for all ranks together by verify.c.
 * Thread: a builder belongs to one thread; finished programs are immutable.
 * Owner:  a program is one block of memory: header, instructions, queues and orders.
 */
#include "schedule.h"

#include <stdlib.h>
#include <string.h>
#include "status.h"

struct gy_builder {
  struct gy_key key;
  struct gy_insn *insn;
  unsigned n_insn, capacity;
  uint16_t n_chunk;
  uint8_t layout, tmp_whole;
  gyre_status status; /* the first failure, kept for gy_b_finish */
  char text[256];
};

/* ---------------------------------------------------------------------------- references --- */

/* A number that does not fit becomes one that no program has, so that the form check finds it. */
static uint16_t fit16(unsigned v) { return v > UINT16_MAX ? UINT16_MAX : (uint16_t)v; }

static struct gy_ref ref(enum gy_buf buf, unsigned chunk, unsigned range) {
  return (struct gy_ref){.buf = (uint8_t)buf, .chunk = fit16(chunk), .range = fit16(range)};
}

struct gy_ref gy_in(unsigned chunk) {
  return ref(GY_IN, chunk, chunk);
}
struct gy_ref gy_in_as(unsigned chunk, unsigned range) {
  return ref(GY_IN, chunk, range);
}
struct gy_ref gy_out(unsigned chunk) {
  return ref(GY_OUT, chunk, chunk);
}
struct gy_ref gy_out_as(unsigned chunk, unsigned range) {
  return ref(GY_OUT, chunk, range);
}
struct gy_ref gy_tmp(unsigned slot, unsigned range) {
  return ref(GY_TMP, slot, range);
}

struct gy_ref gy_swap(struct gy_ref r) {
  r.flags |= GY_REF_SWAP;
  return r;
}

struct gy_ref gy_finish(struct gy_ref r) {
  r.flags |= GY_REF_FINISH;
  return r;
}

/* -------------------------------------------------------------------------------- chunks --- */

unsigned gy_buffer_chunks(const struct gy_key *key, unsigned buf, unsigned n_chunk) {
  switch (gy_coll_share(key->coll, buf, key->rank == key->root)) {
    case GY_NOTHING: return 0;
    case GY_OWN_BLOCK: return 1;
    default: return gy_coll_traits(key->coll)->layout == GY_VARY ? (unsigned)key->nranks : n_chunk;
  }
}

unsigned gy_chunk_range(const struct gy_key *key, unsigned buf, unsigned chunk) {
  unsigned own = (unsigned)key->rank;
  if (gy_coll_share(key->coll, buf, key->rank == key->root) == GY_OWN_BLOCK) return own;
  bool comes = key->coll == GY_ALL_TO_ALL_V && buf == GY_OUT && chunk != own && !key->in_place;
  return comes ? (unsigned)key->nranks + chunk : chunk;
}

/* ------------------------------------------------------------------------------- builder --- */

struct gy_builder *gy_builder_create(const struct gy_key *key) {
  struct gy_builder *b = calloc(1, sizeof *b);
  if (b == NULL) return NULL;
  b->key = *key;
  b->layout = GY_SPLIT;
  b->n_chunk = 1;
  return b;
}

void gy_builder_free(struct gy_builder *b) {
  if (b == NULL) return;
  free(b->insn);
  free(b);
}

static void fail(struct gy_builder *b, gyre_status status, const char *fmt, ...) GY_PRINTF(3, 4);
static void fail(struct gy_builder *b, gyre_status status, const char *fmt, ...) {
  if (b->status != GYRE_OK) return;
  size_t used = gy_format(b->text, sizeof b->text, "program of rank %d of %d, %s: ", b->key.rank,
                          b->key.nranks, gy_coll_name(b->key.coll));
  va_list args;
  va_start(args, fmt);
  vsnprintf(b->text + used, sizeof b->text - used, fmt, args);
  va_end(args);
  b->status = status;
}

void gy_b_layout(struct gy_builder *b, enum gy_layout layout, unsigned n_chunk) {
  if (n_chunk == 0 || n_chunk >= UINT16_MAX)
    fail(b, GYRE_ERR_ARG, "%u chunks, outside 1..%u", n_chunk, UINT16_MAX - 1u);
  b->layout = (uint8_t)layout;
  b->n_chunk = fit16(n_chunk);
}

void gy_b_blocks(struct gy_builder *b) {
  unsigned n = (unsigned)b->key.nranks;
  gy_b_layout(b, (enum gy_layout)gy_coll_traits(b->key.coll)->layout,
              b->key.coll == GY_ALL_TO_ALL_V ? 2 * n : n);
}

void gy_b_tmp_whole(struct gy_builder *b) { b->tmp_whole = 1; }

static bool grow(struct gy_builder *b) {
  unsigned capacity = b->capacity == 0 ? 32 : 2 * b->capacity;
  struct gy_insn *insn = realloc(b->insn, capacity * sizeof *insn);
  if (insn == NULL) {
    fail(b, GYRE_ERR_NOMEM, "no memory for %u instructions", capacity);
    return false;
  }
  b->insn = insn;
  b->capacity = capacity;
  return true;
}

/* Where lengths vary, a chunk of a buffer can have no other than its own. */
static struct gy_ref with_range(const struct gy_builder *b, struct gy_ref r) {
  if (b->layout == GY_VARY && r.buf != GY_TMP)
    r.range = fit16(gy_chunk_range(&b->key, r.buf, r.chunk));
  return r;
}

static unsigned append(struct gy_builder *b, enum gy_insn_op op, int peer, struct gy_ref dst,
                       struct gy_ref src) {
  if (b->status == GYRE_OK && b->n_insn == GY_NODEP)
    fail(b, GYRE_ERR_ARG, "more than %u instructions", GY_NODEP);
  if (b->status != GYRE_OK || (b->n_insn == b->capacity && !grow(b))) return GY_NODEP;
  b->insn[b->n_insn] = (struct gy_insn){
      .op = (uint8_t)op,
      .peer = peer < 0 ? UINT16_MAX : fit16((unsigned)peer),
      .src = with_range(b, src),
      .dst = with_range(b, dst),
      .dep = {GY_NODEP, GY_NODEP},
      .phase = (uint16_t)b->n_insn,
  };
  return b->n_insn++;
}

/* A message has one reference; the other side of the instruction repeats it, so that either has
 * the range. */
unsigned gy_b_send(struct gy_builder *b, int peer, struct gy_ref src) {
  return append(b, GY_SEND, peer, src, src);
}

unsigned gy_b_recv(struct gy_builder *b, int peer, struct gy_ref dst) {
  return append(b, GY_RECV, peer, dst, dst);
}

unsigned gy_b_recv_reduce(struct gy_builder *b, int peer, struct gy_ref dst, struct gy_ref src) {
  return append(b, GY_RECV_REDUCE, peer, dst, src);
}

unsigned gy_b_copy(struct gy_builder *b, struct gy_ref dst, struct gy_ref src) {
  return append(b, GY_COPY, 0, dst, src);
}

unsigned gy_b_reduce(struct gy_builder *b, struct gy_ref dst, struct gy_ref src) {
  return append(b, GY_LOCAL_REDUCE, 0, dst, src);
}

unsigned gy_b_identity(struct gy_builder *b, struct gy_ref dst) {
  struct gy_ref marked = dst;
  marked.flags |= GY_REF_IDENTITY;
  return append(b, GY_COPY, 0, marked, dst);
}

static void depend(struct gy_builder *b, unsigned insn, unsigned on, enum gy_lag lag) {
  if (on == GY_NODEP || b->status != GYRE_OK) return;
  if (insn >= b->n_insn || on >= b->n_insn) {
    fail(b, GYRE_ERR_ARG, "a dependency of insn %u on %u, of %u", insn, on, b->n_insn);
    return;
  }
  struct gy_insn *x = &b->insn[insn];
  unsigned k = x->dep[0] == GY_NODEP ? 0 : 1;
  if (x->dep[k] != GY_NODEP) {
    fail(b, GYRE_ERR_ARG, "insn %u has more than two dependencies", insn);
    return;
  }
  x->dep[k] = (uint16_t)on;
  x->dep_lag[k] = (uint8_t)lag;
}

void gy_b_after(struct gy_builder *b, unsigned insn, unsigned on) {
  depend(b, insn, on, GY_LAG_NONE);
}

void gy_b_after_window(struct gy_builder *b, unsigned insn, unsigned on) {
  depend(b, insn, on, GY_LAG_WINDOW);
}

void gy_b_after_whole(struct gy_builder *b, unsigned insn, unsigned on) {
  depend(b, insn, on, GY_LAG_WHOLE);
}

void gy_b_phase(struct gy_builder *b, unsigned insn, unsigned phase) {
  if (b->status != GYRE_OK) return;
  if (insn >= b->n_insn || phase > UINT16_MAX)
    fail(b, GYRE_ERR_ARG, "phase %u of insn %u, of %u", phase, insn, b->n_insn);
  else b->insn[insn].phase = (uint16_t)phase;
}

/* ---------------------------------------------------------------------------------- form --- */

static bool is_local(const struct gy_insn *x) {
  return x->op == GY_COPY || x->op == GY_LOCAL_REDUCE;
}
static bool combines(const struct gy_insn *x) {
  return x->op == GY_RECV_REDUCE || x->op == GY_LOCAL_REDUCE;
}

static unsigned chunks_of(const struct gy_builder *b, unsigned buf) {
  return gy_buffer_chunks(&b->key, buf, b->n_chunk);
}

static bool weighted(const struct gy_builder *b) { return gy_coll_traits(b->key.coll)->weighted; }

static bool same_length(const struct gy_builder *b, unsigned range_a, unsigned range_b) {
  return b->layout == GY_BLOCK || range_a == range_b;
}

static void check_ref(struct gy_builder *b, unsigned i, const char *side, struct gy_ref r) {
  static const char *const names[] = {"IN", "OUT", "TMP"};
  unsigned weight = weighted(b) && gy_is_weight(r, b->n_chunk) ? b->n_chunk : 0;
  if (r.range - weight >= b->n_chunk)
    fail(b, GYRE_ERR_ARG, "insn %u: %s is as long as chunk %u, of %u", i, side, r.range, b->n_chunk);
  else if (r.buf != GY_TMP && r.chunk >= chunks_of(b, r.buf))
    fail(b, GYRE_ERR_ARG, "insn %u: %s is %s[%u], but this rank's %s has %u chunks", i, side,
         names[r.buf], r.chunk, names[r.buf], chunks_of(b, r.buf));
  else if (r.buf != GY_TMP &&
           !same_length(b, gy_chunk_range(&b->key, r.buf, r.chunk) + weight, r.range))
    fail(b, GYRE_ERR_ARG, "insn %u: %s is %s[%u] with the length of chunk %u", i, side,
         names[r.buf], r.chunk, r.range);
  else if (r.buf == GY_TMP && r.chunk == UINT16_MAX)
    fail(b, GYRE_ERR_ARG, "insn %u: %s is scratch slot %u", i, side, r.chunk);
}

static bool finishes_in_place(const struct gy_builder *b, const struct gy_insn *x) {
  return x->op == GY_COPY && x->src.buf == x->dst.buf && x->src.chunk == x->dst.chunk &&
         !gy_is_weight(x->dst, b->n_chunk);
}

static void check_flags(struct gy_builder *b, unsigned i, const struct gy_insn *x) {
  bool message_only = x->op == GY_SEND || x->op == GY_RECV;
  if (x->src.flags != 0 && !message_only) fail(b, GYRE_ERR_ARG, "insn %u: a flag on the source", i);
  else if ((x->dst.flags & GY_REF_SWAP) != 0 && !combines(x))
    fail(b, GYRE_ERR_ARG, "insn %u: SWAP on an instruction that combines nothing", i);
  else if ((x->dst.flags & GY_REF_FINISH) != 0 && (message_only || !gy_coll_finishes(b->key.coll)))
    fail(b, GYRE_ERR_ARG, "insn %u: FINISH where no reduction ends", i);
  else if ((x->dst.flags & GY_REF_FINISH) != 0 && weighted(b) && !finishes_in_place(b, x))
    fail(b, GYRE_ERR_ARG, "insn %u: FINISH by weight on other than a copy of a place onto itself", i);
  else if ((x->dst.flags & GY_REF_IDENTITY) != 0 &&
           (x->op != GY_COPY || b->key.coll != GY_EXCLUSIVE_SCAN))
    fail(b, GYRE_ERR_ARG, "insn %u: IDENTITY where none is wanted", i);
}

static void check_dep(struct gy_builder *b, unsigned i, unsigned k) {
  const struct gy_insn *x = &b->insn[i];
  unsigned on = x->dep[k], lag = x->dep_lag[k];
  if (on == GY_NODEP) return;
  if (on == i || (on > i && lag != GY_LAG_WINDOW))
    fail(b, GYRE_ERR_ARG, "insn %u depends on %u, which is not earlier", i, on);
  else if (lag == GY_LAG_WINDOW && b->tmp_whole)
    fail(b, GYRE_ERR_ARG, "insn %u: a window dependency in a program with whole scratch slots", i);
  else if (lag != GY_LAG_WHOLE && !same_length(b, x->dst.range, b->insn[on].dst.range))
    fail(b, GYRE_ERR_ARG, "insn %u over chunk %u depends by slices on insn %u over chunk %u", i,
         x->dst.range, on, b->insn[on].dst.range);
}

static void check_insn(struct gy_builder *b, unsigned i) {
  const struct gy_insn *x = &b->insn[i];
  if (!is_local(x) && (x->peer >= b->key.nranks || x->peer == b->key.rank))
    fail(b, GYRE_ERR_ARG, "insn %u: peer %u", i, x->peer);
  if (x->op != GY_SEND && x->dst.buf == GY_IN) fail(b, GYRE_ERR_ARG, "insn %u writes IN", i);
  check_ref(b, i, "destination", x->dst);
  check_ref(b, i, "source", x->src);
  if (!same_length(b, x->src.range, x->dst.range))
    fail(b, GYRE_ERR_ARG, "insn %u: source over chunk %u, destination over chunk %u", i,
         x->src.range, x->dst.range);
  check_flags(b, i, x);
  check_dep(b, i, 0);
  check_dep(b, i, 1);
}

static void check_form(struct gy_builder *b) {
  static const char *const pieces[] = {"chunks", "blocks", "blocks of varying length"};
  unsigned layout = gy_coll_traits(b->key.coll)->layout, n = (unsigned)b->key.nranks,
           blocks = b->key.coll == GY_ALL_TO_ALL_V ? 2 * n : n;
  if (b->layout != layout || (layout != GY_SPLIT && b->n_chunk != blocks))
    fail(b, GYRE_ERR_ARG, "a layout of %u %s", b->n_chunk, pieces[b->layout]);
  for (unsigned i = 0; i < b->n_insn && b->status == GYRE_OK; i++) check_insn(b, i);
}

/* -------------------------------------------------------------------------------- queues --- */

/* Sorting these numbers sorts by link direction, then by link order; local instructions come
 * last. */
#define LOCAL_PEER UINT16_MAX
static uint64_t link_key(const struct gy_insn *x, unsigned index) {
  uint64_t peer = is_local(x) ? LOCAL_PEER : x->peer;
  uint64_t lane = is_local(x) ? 0 : x->lane;
  uint64_t recv = !is_local(x) && x->op != GY_SEND;
  return peer << 48 | lane << 40 | recv << 32 | (uint64_t)x->phase << 16 | index;
}

static int compare_keys(const void *pa, const void *pb) {
  uint64_t a = *(const uint64_t *)pa, b = *(const uint64_t *)pb;
  return (a > b) - (a < b);
}

static unsigned scratch_slots(const struct gy_builder *b) {
  unsigned slots = 0;
  for (unsigned i = 0; i < b->n_insn; i++) {
    const struct gy_ref *refs[] = {&b->insn[i].src, &b->insn[i].dst};
    for (unsigned k = 0; k < 2; k++)
      if (refs[k]->buf == GY_TMP && refs[k]->chunk >= slots) slots = refs[k]->chunk + 1u;
  }
  return slots;
}

static unsigned count_queues(const uint64_t *keys, unsigned n) {
  unsigned queues = 0;
  for (unsigned i = 0; i < n && keys[i] >> 48 != LOCAL_PEER; i++)
    if (i == 0 || keys[i] >> 32 != keys[i - 1] >> 32) queues++;
  return queues;
}

static void fill_queues(struct gy_program *p, struct gy_queue *queue, uint16_t *order,
                        const uint64_t *keys) {
  struct gy_queue *last = queue - 1;
  for (unsigned i = 0; i < p->n_insn; i++) {
    order[i] = (uint16_t)keys[i];
    if (keys[i] >> 48 == LOCAL_PEER) {
      p->n_local++;
      continue;
    }
    if (i == 0 || keys[i] >> 32 != keys[i - 1] >> 32)
      *++last = (struct gy_queue){.peer = (uint16_t)(keys[i] >> 48),
                                  .lane = (uint8_t)(keys[i] >> 40),
                                  .recv = (uint8_t)(keys[i] >> 32),
                                  .first = (uint16_t)i};
    last->count++;
  }
  p->queue = queue;
  p->order = order;
}

static struct gy_program *assemble(const struct gy_builder *b, const uint64_t *keys) {
  unsigned queues = count_queues(keys, b->n_insn);
  size_t insn_bytes = b->n_insn * sizeof(struct gy_insn),
         queue_bytes = queues * sizeof(struct gy_queue);
  struct gy_program *p =
      calloc(1, sizeof *p + insn_bytes + queue_bytes + b->n_insn * sizeof(uint16_t));
  if (p == NULL) return NULL;
  p->n_insn = (uint16_t)b->n_insn;
  p->n_chunk = b->n_chunk;
  p->n_tmp = (uint16_t)scratch_slots(b);
  p->n_queue = (uint16_t)queues;
  p->layout = b->layout;
  p->tmp_whole = b->tmp_whole;
  if (b->n_insn > 0) memcpy(p->insn, b->insn, insn_bytes);
  struct gy_queue *queue = (struct gy_queue *)(void *)(p->insn + b->n_insn);
  fill_queues(p, queue, (uint16_t *)(void *)(queue + queues), keys);
  return p;
}

gyre_status gy_b_finish(struct gy_builder *b, struct gy_program **out) {
  check_form(b);
  if (b->status != GYRE_OK) return gy_fail_text(b->status, b->text);
  uint64_t *keys = malloc((b->n_insn + 1) * sizeof *keys);
  if (keys == NULL)
    return gy_fail(GYRE_ERR_NOMEM, "no memory for a program of %u instructions", b->n_insn);
  for (unsigned i = 0; i < b->n_insn; i++) keys[i] = link_key(&b->insn[i], i);
  qsort(keys, b->n_insn, sizeof *keys, compare_keys);
  struct gy_program *p = assemble(b, keys);
  free(keys);
  if (p == NULL)
    return gy_fail(GYRE_ERR_NOMEM, "no memory for a program of %u instructions", b->n_insn);
  *out = p;
  return GYRE_OK;
}

void gy_program_free(struct gy_program *p) { free(p); }

/* ------------------------------------------------------------------------------- printer --- */

/* "IN[2]", "OUT[0]", "TMP[1]"; a scratch slot in a split layout names the chunk whose length it
 * has: "TMP[1]#3". */
static void print_ref(const struct gy_program *p, struct gy_ref r, FILE *to) {
  static const char *const names[] = {"IN", "OUT", "TMP"};
  fprintf(to, "%s[%u]", names[r.buf], r.chunk);
  if (gy_is_weight(r, p->n_chunk)) fputs(".weight", to);
  else if (r.buf == GY_TMP && p->layout != GY_BLOCK && p->n_chunk > 1) fprintf(to, "#%u", r.range);
}

/* "OUT[1] = IN[1] + incoming", the left operand left. `right` NULL: the reference itself. */
static void print_combine(const struct gy_program *p, const struct gy_insn *x, FILE *to) {
  bool swap = (x->dst.flags & GY_REF_SWAP) != 0;
  struct gy_ref own = x->op == GY_RECV_REDUCE ? x->src : x->dst;
  print_ref(p, x->dst, to);
  fputs(" = ", to);
  if (!swap) {
    print_ref(p, own, to);
    fputs(" + ", to);
  }
  if (x->op == GY_RECV_REDUCE) fputs("incoming", to);
  else print_ref(p, x->src, to);
  if (swap) {
    fputs(" + ", to);
    print_ref(p, own, to);
  }
}

static void print_effect(const struct gy_program *p, const struct gy_insn *x, FILE *to) {
  switch (x->op) {
    case GY_SEND: print_ref(p, x->src, to); break;
    case GY_RECV: print_ref(p, x->dst, to); break;
    case GY_COPY:
      print_ref(p, x->dst, to);
      fputs(" = ", to);
      if ((x->dst.flags & GY_REF_IDENTITY) != 0) fputs("identity", to);
      else print_ref(p, x->src, to);
      break;
    default: print_combine(p, x, to);
  }
  if ((x->dst.flags & GY_REF_FINISH) != 0) fputs(", finish", to);
}

static void print_deps(const struct gy_insn *x, FILE *to) {
  static const char *const lags[] = {"", " (window)", " (whole)"};
  const char *lead = "  after ";
  for (unsigned k = 0; k < 2; k++) {
    if (x->dep[k] == GY_NODEP) continue;
    fprintf(to, "%s%u%s", lead, x->dep[k], lags[x->dep_lag[k]]);
    lead = ", ";
  }
}

void gy_program_print(const struct gy_program *p, const struct gy_key *key, FILE *to) {
  static const char *const ops[] = {"SEND", "RECV", "RECV_REDUCE", "COPY", "LOCAL_REDUCE"};
  fprintf(to, "rank %d of %d: %u instruction%s, %u %s%s, %u scratch %s\n", key->rank, key->nranks,
          p->n_insn, p->n_insn == 1 ? "" : "s", p->n_chunk, p->layout == GY_SPLIT ? "chunk" : "block",
          p->n_chunk == 1 ? "" : "s", p->n_tmp, p->tmp_whole ? "(whole chunks)" : "(windows)");
  for (unsigned i = 0; i < p->n_insn; i++) {
    const struct gy_insn *x = &p->insn[i];
    fprintf(to, "%3u %s", i, ops[x->op]);
    if (!is_local(x)) fprintf(to, " %s %u", x->op == GY_SEND ? "to" : "from", x->peer);
    fputs("  ", to);
    print_effect(p, x, to);
    if (x->phase != i) fprintf(to, "  phase %u", x->phase);
    print_deps(x, to);
    fputc('\n', to);
  }
}

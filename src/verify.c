/*
 * verify.c - proves a collective's programs right for all ranks together, without a network.
 *
 * Role:   see verify.h.
 * Thread: pure.
 * Owner:  everything hangs on one struct model, freed before return.
 *
 * Why this is a proof and not a sample. What lets a step happen is always a conjunction of steps
 * that have happened (its turn in its queue, dependencies done, both ends of a message posted):
 * there is no choice and nothing is taken back. So whether a step is ever reached does not depend
 * on the interleaving, and one run that ends shows that all end. The values could still depend on
 * it, but only where two accesses to one place, one of them a write, are not ordered; check_order()
 * derives that order from the rank's own program alone (link order and dependencies, with the
 * access of a message lasting from its post to its local completion, however late), and accepts no
 * luck and no politeness of other ranks. With all such pairs ordered, one run gives the values of
 * all runs. The further interleavings that are run all the same check this reasoning.
 *
 * A unit is one slice of one instruction; a cell is one slice of memory.
 */
#include "verify.h"

#include <stdlib.h>
#include <string.h>
#include "geometry.h"
#include "status.h"

#define LINE 64u /* bytes of a model slice: the smallest that geometry allows */
#define NONE UINT32_MAX

/* What stands in a cell. Contributions are told apart by 64-bit fingerprints, which add up. */
struct value {
  uint64_t parts;    /* the multiset of contributions: the sum of their fingerprints */
  uint64_t shape;    /* the expression: operands' order and grouping */
  uint32_t count;    /* contributions */
  uint16_t finished; /* how often FINISH was applied */
  uint16_t defined;
};

struct cell {
  struct value value;
  uint32_t version; /* counts writes */
};

struct member { /* one rank */
  const struct gy_program *p;
  const struct gy_key *key;
  uint32_t *slices;        /* by instruction */
  uint32_t *base;          /* by instruction: its first unit; n_insn + 1 */
  uint32_t *issued, *done; /* by instruction, as in the engine */
  uint16_t *insn;          /* by unit */
  uint32_t *previous;      /* by unit: the one before it in link (local: slice) order, or NONE */
  uint32_t *version;       /* by unit: of a SEND's source when it was posted */
  uint32_t *log; /* of the current run: 2 * unit for a post, 2 * unit + 1 for a completion */
  uint32_t n_unit, n_log;
  struct cell *cells;
  uint32_t n_cell;
};

struct link { /* one direction of one lane between two ranks */
  int from, to;
  uint8_t lane;
  uint32_t length;
  uint32_t *send, *recv; /* units in link order */
  uint32_t sent, posted, moved, completed;
};

struct local { /* a COPY or LOCAL_REDUCE */
  int rank;
  uint16_t insn;
};

struct move { /* a message of the current run */
  uint32_t link, index;
};

struct block { /* memory of the model */
  struct block *next;
};

struct model {
  int n;
  struct gy_verify_options options;
  struct gy_geometry geometry;
  uint32_t chunk_slices; /* of the longest chunk */
  struct member *members;
  uint64_t *sums; /* by chunk and slice: the fingerprints of all ranks' contributions */
  struct link *links;
  struct local *locals;
  uint32_t n_link, n_local;
  struct move *moves;
  uint32_t n_move;
  uint32_t *actions; /* a permutation of 4 * n_link + n_local actions */
  uint64_t random;
  struct block *blocks;
  gyre_status status; /* the first failure; its text is in gyre_last_error() */
};

/* ------------------------------------------------------------------------------- basics --- */

/* Zeroed memory that lives as long as the model. Sets m->status and returns NULL where there is
 * none. */
static void *take(struct model *m, size_t n, size_t bytes) {
  if (m->status != GYRE_OK) return NULL;
  struct block *block = calloc(1, sizeof *block + (n * bytes + 15) / 16 * 16 + 16);
  if (block == NULL) {
    m->status = gy_fail(GYRE_ERR_NOMEM, "no memory to verify programs of %d ranks", m->n);
    return NULL;
  }
  block->next = m->blocks;
  m->blocks = block;
  return (char *)block + 16;
}

static void give_back_all(struct model *m) {
  while (m->blocks != NULL) {
    struct block *next = m->blocks->next;
    free(m->blocks);
    m->blocks = next;
  }
}

/* The finalizer of splitmix64 (Steele, Lea and Flood, 2014). */
static uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

static uint64_t next_random(struct model *m) {
  m->random += UINT64_C(0x9e3779b97f4a7c15);
  return mix(m->random);
}

static bool is_send(const struct gy_insn *x) { return x->op == GY_SEND; }
static bool is_local(const struct gy_insn *x) {
  return x->op == GY_COPY || x->op == GY_LOCAL_REDUCE;
}

static bool is_reduction(unsigned coll) {
  return coll == GY_ALL_REDUCE || coll == GY_REDUCE_SCATTER || coll == GY_REDUCE;
}

static const struct gy_insn *insn_of(const struct member *r, uint32_t unit) {
  return &r->p->insn[r->insn[unit]];
}
static uint32_t slice_of(const struct member *r, uint32_t unit) {
  return unit - r->base[r->insn[unit]];
}

static void wrong(struct model *m, int rank, uint32_t unit, const char *fmt, ...) GY_PRINTF(4, 5);
static void wrong(struct model *m, int rank, uint32_t unit, const char *fmt, ...) {
  if (m->status != GYRE_OK) return;
  char text[256];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  const struct member *r = &m->members[rank];
  m->status = gy_fail(GYRE_ERR_INTERNAL, "rank %d insn %u slice %u: %s", rank, r->insn[unit],
                      slice_of(r, unit), text);
}

/* ------------------------------------------------------------------------------- memory --- */

/* In place, two names mean one buffer; the smaller one is a part of the larger. A barrier has no
 * buffers. */
static struct gy_ref resolve(const struct gy_key *key, struct gy_ref ref) {
  if (!key->in_place || ref.buf == GY_TMP || key->coll == GY_BARRIER) return ref;
  if (key->coll == GY_ALL_GATHER) {
    if (ref.buf == GY_IN) ref.chunk = (uint16_t)key->rank;
    ref.buf = GY_OUT;
  } else {
    if (key->coll == GY_REDUCE_SCATTER && ref.buf == GY_OUT) ref.chunk = (uint16_t)key->rank;
    ref.buf = GY_IN;
  }
  return ref;
}

static uint32_t scratch_slices(const struct model *m, const struct gy_program *p) {
  return p->tmp_whole ? m->chunk_slices : m->options.window;
}

static uint32_t cell_index(const struct model *m, const struct member *r, struct gy_ref name,
                           uint32_t slice) {
  struct gy_ref ref = resolve(r->key, name);
  uint32_t user = r->p->n_chunk * m->chunk_slices, scratch = scratch_slices(m, r->p);
  switch (ref.buf) {
    case GY_IN: return ref.chunk * m->chunk_slices + slice;
    case GY_OUT: return user + ref.chunk * m->chunk_slices + slice;
    default: return 2 * user + ref.chunk * scratch + slice % scratch;
  }
}

static struct cell *cell_at(const struct model *m, int rank, struct gy_ref ref, uint32_t slice) {
  const struct member *r = &m->members[rank];
  return &r->cells[cell_index(m, r, ref, slice)];
}

static uint64_t fingerprint(int rank, uint32_t chunk, uint32_t slice) {
  return mix(mix(mix((uint64_t)rank + 1) + chunk) + slice);
}

static void fill_input(struct model *m, int rank) {
  struct member *r = &m->members[rank];
  memset(r->cells, 0, r->n_cell * sizeof *r->cells);
  if (r->key->coll == GY_BROADCAST && rank != r->key->root) return;
  uint32_t chunks = r->key->coll == GY_ALL_GATHER ? 1 : r->p->n_chunk;
  for (uint32_t c = 0; c < chunks; c++)
    for (uint32_t s = 0; s < gy_chunk_slices(&m->geometry, c); s++) {
      uint64_t print = fingerprint(rank, c, s);
      cell_at(m, rank, gy_in(c), s)->value =
          (struct value){.parts = print, .shape = print, .count = 1, .defined = 1};
    }
}

static void store(struct cell *cell, struct value value) {
  cell->value = value;
  cell->version++;
}

static struct value combine(struct value left, struct value right) {
  return (struct value){.parts = left.parts + right.parts,
                        .shape = mix(left.shape + mix(right.shape + 1)),
                        .count = left.count + right.count,
                        .finished = (uint16_t)(left.finished + right.finished),
                        .defined = 1};
}

/* ----------------------------------------------------------------------------- set-up --- */

static bool lay_out_member(struct model *m, int rank) {
  struct member *r = &m->members[rank];
  unsigned n = r->p->n_insn;
  r->slices = take(m, n, sizeof *r->slices);
  r->base = take(m, n + 1, sizeof *r->base);
  r->issued = take(m, n, sizeof *r->issued);
  r->done = take(m, n, sizeof *r->done);
  if (m->status != GYRE_OK) return false;
  for (unsigned i = 0; i < n; i++) {
    r->slices[i] = gy_chunk_slices(&m->geometry, r->p->insn[i].dst.range);
    r->base[i + 1] = r->base[i] + r->slices[i];
  }
  r->n_unit = r->base[n];
  r->n_cell = 2 * r->p->n_chunk * m->chunk_slices + r->p->n_tmp * scratch_slices(m, r->p);
  r->insn = take(m, r->n_unit, sizeof *r->insn);
  r->previous = take(m, r->n_unit, sizeof *r->previous);
  r->version = take(m, r->n_unit, sizeof *r->version);
  r->log = take(m, 2 * (size_t)r->n_unit, sizeof *r->log);
  r->cells = take(m, r->n_cell, sizeof *r->cells);
  if (m->status != GYRE_OK) return false;
  for (unsigned i = 0; i < n; i++)
    for (uint32_t s = 0; s < r->slices[i]; s++) {
      r->insn[r->base[i] + s] = (uint16_t)i;
      r->previous[r->base[i] + s] = s == 0 ? NONE : r->base[i] + s - 1;
    }
  return true;
}

static const struct gy_queue *find_queue(const struct gy_program *p, int peer, uint8_t lane,
                                         bool recv) {
  for (unsigned q = 0; q < p->n_queue; q++)
    if (p->queue[q].peer == peer && p->queue[q].lane == lane && (p->queue[q].recv != 0) == recv)
      return &p->queue[q];
  return NULL;
}

/* Units of a queue in (phase, slice, index) order; returns their number. `out` may be NULL. */
static uint32_t link_order(const struct member *r, const struct gy_queue *q, uint32_t *out) {
  const uint16_t *order = r->p->order + q->first;
  uint32_t n = 0;
  for (unsigned first = 0, end; first < q->count; first = end) {
    uint32_t longest = 0;
    uint16_t phase = r->p->insn[order[first]].phase;
    for (end = first; end < q->count && r->p->insn[order[end]].phase == phase; end++)
      if (r->slices[order[end]] > longest) longest = r->slices[order[end]];
    for (uint32_t s = 0; s < longest; s++)
      for (unsigned k = first; k < end; k++) {
        if (s >= r->slices[order[k]]) continue;
        if (out != NULL) out[n] = r->base[order[k]] + s;
        n++;
      }
  }
  return n;
}

static uint32_t *take_link_order(struct model *m, int rank, const struct gy_queue *q,
                                 uint32_t *length) {
  struct member *r = &m->members[rank];
  *length = link_order(r, q, NULL);
  uint32_t *units = take(m, *length, sizeof *units);
  if (units == NULL) return NULL;
  link_order(r, q, units);
  for (uint32_t k = 0; k < *length; k++) r->previous[units[k]] = k == 0 ? NONE : units[k - 1];
  return units;
}

/* Both ends must agree on the number of messages and on the length of each. */
static void check_pairing(struct model *m, const struct link *l, uint32_t received) {
  for (uint32_t k = 0; k < l->length && k < received; k++) {
    const struct member *a = &m->members[l->from], *b = &m->members[l->to];
    size_t bytes =
        gy_slice_bytes(&m->geometry, insn_of(a, l->send[k])->src.range, slice_of(a, l->send[k]));
    size_t room =
        gy_slice_bytes(&m->geometry, insn_of(b, l->recv[k])->dst.range, slice_of(b, l->recv[k]));
    if (bytes != room) {
      wrong(m, l->from, l->send[k],
            "message %u to rank %d has %zu bytes, its receive (insn %u slice %u) %zu", k, l->to,
            bytes, b->insn[l->recv[k]], slice_of(b, l->recv[k]), room);
      return;
    }
  }
  if (l->length > received)
    wrong(m, l->from, l->send[received], "rank %d receives only %u messages from here, not %u",
          l->to, received, l->length);
  else if (received > l->length)
    wrong(m, l->to, l->recv[l->length], "rank %d sends only %u messages here, not %u", l->from,
          l->length, received);
}

static void add_link(struct model *m, int from, const struct gy_queue *q) {
  struct link *l = &m->links[m->n_link++];
  uint32_t received = 0;
  l->from = from;
  l->to = q->peer;
  l->lane = q->lane;
  l->send = take_link_order(m, from, q, &l->length);
  const struct gy_queue *other = find_queue(m->members[l->to].p, from, q->lane, true);
  if (l->send == NULL) return;
  if (other == NULL) wrong(m, from, l->send[0], "rank %d receives nothing from here", l->to);
  else if ((l->recv = take_link_order(m, l->to, other, &received)) != NULL)
    check_pairing(m, l, received);
}

static void connect_ranks(struct model *m) {
  uint32_t sends = 0, receives = 0, locals = 0;
  for (int rank = 0; rank < m->n; rank++) {
    const struct gy_program *p = m->members[rank].p;
    for (unsigned q = 0; q < p->n_queue; q++) *(p->queue[q].recv ? &receives : &sends) += 1;
    locals += p->n_local;
  }
  m->links = take(m, sends, sizeof *m->links);
  m->locals = take(m, locals, sizeof *m->locals);
  for (int rank = 0; rank < m->n && m->status == GYRE_OK; rank++) {
    const struct gy_program *p = m->members[rank].p;
    for (unsigned q = 0; q < p->n_queue && m->status == GYRE_OK; q++)
      if (!p->queue[q].recv) add_link(m, rank, &p->queue[q]);
      else if (find_queue(m->members[p->queue[q].peer].p, rank, p->queue[q].lane, false) == NULL)
        wrong(m, rank, m->members[rank].base[p->order[p->queue[q].first]],
              "rank %u sends nothing here", p->queue[q].peer);
    for (unsigned k = p->n_insn - p->n_local; k < p->n_insn; k++)
      m->locals[m->n_local++] = (struct local){rank, p->order[k]};
  }
}

static void set_up(struct model *m, const struct gy_program *const *programs,
                   const struct gy_key *keys, size_t count) {
  gy_geometry_init(&m->geometry, programs[0], count, 1, LINE);
  for (unsigned c = 0; c < programs[0]->n_chunk; c++) {
    uint32_t slices = gy_chunk_slices(&m->geometry, c);
    if (slices > m->chunk_slices) m->chunk_slices = slices;
  }
  m->members = take(m, (size_t)m->n, sizeof *m->members);
  m->sums = take(m, (size_t)programs[0]->n_chunk * m->chunk_slices, sizeof *m->sums);
  for (int rank = 0; rank < m->n && m->status == GYRE_OK; rank++) {
    m->members[rank].p = programs[rank];
    m->members[rank].key = &keys[rank];
    if (programs[rank]->n_chunk != programs[0]->n_chunk ||
        programs[rank]->layout != programs[0]->layout)
      m->status =
          gy_fail(GYRE_ERR_INTERNAL, "rank %d cuts the buffers differently from rank 0", rank);
    else lay_out_member(m, rank);
  }
  if (m->status == GYRE_OK) connect_ranks(m);
  if (m->status != GYRE_OK) return;
  for (uint32_t i = 0; i < programs[0]->n_chunk * m->chunk_slices; i++)
    for (int rank = 0; rank < m->n; rank++)
      m->sums[i] += fingerprint(rank, i / m->chunk_slices, i % m->chunk_slices);
  uint32_t messages = 0;
  for (uint32_t l = 0; l < m->n_link; l++) messages += m->links[l].length;
  m->moves = take(m, messages, sizeof *m->moves);
  m->actions = take(m, 4 * m->n_link + m->n_local, sizeof *m->actions);
}

/* -------------------------------------------------------------------------- running it --- */

/* How many slices of dependency k must be done before slice s of x. */
static uint32_t needed(const struct model *m, const struct member *r, const struct gy_insn *x,
                       unsigned k, uint32_t slice) {
  uint32_t all = r->slices[x->dep[k]], want = slice + 1;
  if (x->dep_lag[k] == GY_LAG_WHOLE) return all;
  if (x->dep_lag[k] == GY_LAG_WINDOW)
    want = slice >= m->options.window ? slice + 1 - m->options.window : 0;
  return want < all ? want : all;
}

static bool ready(const struct model *m, const struct member *r, unsigned insn, uint32_t slice) {
  const struct gy_insn *x = &r->p->insn[insn];
  for (unsigned k = 0; k < 2; k++)
    if (x->dep[k] != GY_NODEP && r->done[x->dep[k]] < needed(m, r, x, k, slice)) return false;
  return r->issued[insn] == slice;
}

static void post(struct member *r, uint32_t unit) {
  r->issued[r->insn[unit]]++;
  r->log[r->n_log++] = 2 * unit;
}

static void complete(struct member *r, uint32_t unit) {
  r->done[r->insn[unit]]++;
  r->log[r->n_log++] = 2 * unit + 1;
}

static struct value read_cell(struct model *m, int rank, uint32_t unit, struct gy_ref ref) {
  static const char *const names[] = {"IN", "OUT", "TMP"};
  struct value v = cell_at(m, rank, ref, slice_of(&m->members[rank], unit))->value;
  if (!v.defined)
    wrong(m, rank, unit, "reads %s[%u], which nothing has written", names[ref.buf], ref.chunk);
  return v;
}

static struct value finish(struct model *m, int rank, uint32_t unit, struct value v) {
  if ((insn_of(&m->members[rank], unit)->dst.flags & GY_REF_FINISH) == 0) return v;
  if (v.count != (uint32_t)m->n)
    wrong(m, rank, unit, "FINISH with %u of %d contributions", v.count, m->n);
  v.finished++;
  v.shape = mix(v.shape + 2);
  return v;
}

/* The effect of an instruction whose other operand is `other`: what came in, or the source of a
 * local reduction. */
static void apply(struct model *m, int rank, uint32_t unit, struct value other) {
  const struct member *r = &m->members[rank];
  const struct gy_insn *x = insn_of(r, unit);
  if (x->op == GY_RECV_REDUCE || x->op == GY_LOCAL_REDUCE) {
    struct value own = read_cell(m, rank, unit, x->op == GY_RECV_REDUCE ? x->src : x->dst);
    bool swap = (x->dst.flags & GY_REF_SWAP) != 0;
    other = swap ? combine(other, own) : combine(own, other);
  }
  store(cell_at(m, rank, x->dst, slice_of(r, unit)), finish(m, rank, unit, other));
}

static bool post_send(struct model *m, struct link *l) {
  if (l->sent == l->length) return false;
  struct member *r = &m->members[l->from];
  uint32_t unit = l->send[l->sent];
  if (!ready(m, r, r->insn[unit], slice_of(r, unit))) return false;
  read_cell(m, l->from, unit, insn_of(r, unit)->src);
  r->version[unit] = cell_at(m, l->from, insn_of(r, unit)->src, slice_of(r, unit))->version;
  post(r, unit);
  l->sent++;
  return true;
}

static bool post_recv(struct model *m, struct link *l) {
  if (l->posted == l->length) return false;
  struct member *r = &m->members[l->to];
  uint32_t unit = l->recv[l->posted];
  if (!ready(m, r, r->insn[unit], slice_of(r, unit))) return false;
  post(r, unit);
  l->posted++;
  return true;
}

static bool move_message(struct model *m, struct link *l) {
  if (l->moved == l->sent || l->moved == l->posted) return false;
  uint32_t sender = l->send[l->moved], receiver = l->recv[l->moved];
  struct value v = read_cell(m, l->from, sender, insn_of(&m->members[l->from], sender)->src);
  apply(m, l->to, receiver, v);
  complete(&m->members[l->to], receiver);
  m->moves[m->n_move++] = (struct move){(uint32_t)(l - m->links), l->moved};
  l->moved++;
  return true;
}

/* Local completion of a send: until now its source may have been read. */
static bool complete_send(struct model *m, struct link *l) {
  if (l->completed == l->moved) return false;
  struct member *r = &m->members[l->from];
  uint32_t unit = l->send[l->completed];
  if (cell_at(m, l->from, insn_of(r, unit)->src, slice_of(r, unit))->version != r->version[unit])
    wrong(m, l->from, unit, "its source was overwritten before the send was done");
  complete(r, unit);
  l->completed++;
  return true;
}

static bool run_local(struct model *m, const struct local *local) {
  struct member *r = &m->members[local->rank];
  const struct gy_insn *x = &r->p->insn[local->insn];
  uint32_t slice = r->issued[local->insn], unit = r->base[local->insn] + slice;
  if (slice == r->slices[local->insn] || !ready(m, r, local->insn, slice)) return false;
  post(r, unit);
  if (cell_at(m, local->rank, x->src, slice) != cell_at(m, local->rank, x->dst, slice) ||
      x->op != GY_COPY || (x->dst.flags & GY_REF_FINISH) != 0)
    apply(m, local->rank, unit, read_cell(m, local->rank, unit, x->src));
  complete(r, unit);
  return true;
}

static bool act(struct model *m, uint32_t action) {
  if (action >= 4 * m->n_link) return run_local(m, &m->locals[action - 4 * m->n_link]);
  struct link *l = &m->links[action / 4];
  switch (action % 4) {
    case 0: return post_send(m, l);
    case 1: return post_recv(m, l);
    case 2: return move_message(m, l);
    default: return complete_send(m, l);
  }
}

enum policy {
  IN_ORDER, /* every step as soon as it can */
  REVERSED, /* last ranks first, and sends complete only when nothing else can happen */
  SHUFFLED  /* any step or none, at random; runs of eager and of late completion */
};

static void start_over(struct model *m) {
  for (int rank = 0; rank < m->n; rank++) {
    struct member *r = &m->members[rank];
    memset(r->issued, 0, r->p->n_insn * sizeof *r->issued);
    memset(r->done, 0, r->p->n_insn * sizeof *r->done);
    r->n_log = 0;
    fill_input(m, rank);
  }
  for (uint32_t i = 0; i < m->n_link; i++) {
    struct link *l = &m->links[i];
    l->sent = l->posted = l->moved = l->completed = 0;
  }
  m->n_move = 0;
}

static void arrange_actions(struct model *m, enum policy policy) {
  uint32_t n = 4 * m->n_link + m->n_local;
  for (uint32_t i = 0; i < n; i++) m->actions[i] = policy == REVERSED ? n - 1 - i : i;
  for (uint32_t i = n; policy == SHUFFLED && i > 1; i--) {
    uint32_t j = (uint32_t)(next_random(m) % i), other = m->actions[j];
    m->actions[j] = m->actions[i - 1];
    m->actions[i - 1] = other;
  }
}

static bool is_completion(const struct model *m, uint32_t action) {
  return action < 4 * m->n_link && action % 4 == 3;
}

/* One pass over all actions; `late` leaves out the completion of sends. */
static bool pass(struct model *m, enum policy policy, bool late) {
  bool any = false;
  for (uint32_t i = 0; i < 4 * m->n_link + m->n_local && m->status == GYRE_OK; i++) {
    uint32_t action = m->actions[i];
    if (late && is_completion(m, action)) continue;
    if (policy == SHUFFLED && next_random(m) % 4 == 0) continue;
    while (m->status == GYRE_OK && act(m, action)) {
      any = true;
      if (policy == SHUFFLED) break;
    }
  }
  return any;
}

static void run_to_end(struct model *m, enum policy policy) {
  bool late = policy == REVERSED;
  start_over(m);
  arrange_actions(m, policy);
  while (m->status == GYRE_OK) {
    if (policy == SHUFFLED) late = next_random(m) % 4 != 0;
    if (pass(m, policy, late)) continue;
    if (!pass(m, IN_ORDER, false))
      break; /* the actions that chance or lateness left out, once more */
  }
}

/* -------------------------------------------------------------------------- judging it --- */

static void report_waiting(struct model *m, int rank, unsigned insn) {
  const struct member *r = &m->members[rank];
  const struct gy_insn *x = &r->p->insn[insn];
  uint32_t slice = r->done[insn], unit = r->base[insn] + slice;
  if (r->issued[insn] > slice) {
    wrong(m, rank, unit, "deadlock: waits for rank %u", x->peer);
    return;
  }
  for (unsigned k = 0; k < 2; k++)
    if (x->dep[k] != GY_NODEP && r->done[x->dep[k]] < needed(m, r, x, k, slice)) {
      wrong(m, rank, unit, "deadlock: waits for insn %u, which has done %u of %u slices", x->dep[k],
            r->done[x->dep[k]], r->slices[x->dep[k]]);
      return;
    }
  wrong(m, rank, unit, "deadlock: waits for its turn on the link");
}

static void check_finished(struct model *m) {
  for (int rank = 0; rank < m->n; rank++) {
    const struct member *r = &m->members[rank];
    for (unsigned i = 0; i < r->p->n_insn; i++)
      if (r->done[i] < r->slices[i]) {
        report_waiting(m, rank, i);
        return;
      }
  }
}

/* What OUT[chunk] slice must be on `rank`: the sum over the contributing ranks of chunk
 * `source`. */
static struct value expected(const struct model *m, const struct gy_key *key, uint32_t chunk,
                             uint32_t slice) {
  struct value v = {.defined = 1};
  uint32_t source = key->coll == GY_REDUCE_SCATTER ? (uint32_t)key->rank : chunk;
  if (key->coll == GY_ALL_GATHER || key->coll == GY_BROADCAST) {
    int owner = key->coll == GY_BROADCAST ? key->root : (int)chunk;
    v.parts = fingerprint(owner, key->coll == GY_BROADCAST ? chunk : 0, slice);
    v.count = 1;
    return v;
  }
  v.parts = m->sums[source * m->chunk_slices + slice];
  v.count = (uint32_t)m->n;
  v.finished = 1;
  return v;
}

static const char *describe_difference(const struct model *m, const struct gy_key *key,
                                       struct value got, struct value want, uint32_t chunk,
                                       uint32_t slice, char *out, size_t capacity) {
  uint32_t source = key->coll == GY_REDUCE_SCATTER ? (uint32_t)key->rank : chunk;
  if (!got.defined) return "nothing was written there";
  if (got.parts == want.parts && got.count == want.count) {
    gy_format(out, capacity, "FINISH was applied %u times, not %u", got.finished, want.finished);
    return out;
  }
  for (int rank = 0; is_reduction(key->coll) && rank < m->n; rank++) {
    if (want.parts - got.parts == fingerprint(rank, source, slice)) {
      gy_format(out, capacity, "the contribution of rank %d is missing", rank);
      return out;
    }
    if (got.parts - want.parts == fingerprint(rank, source, slice)) {
      gy_format(out, capacity, "the contribution of rank %d is there twice", rank);
      return out;
    }
  }
  gy_format(out, capacity, "%u contributions, not the %u that belong there", got.count, want.count);
  return out;
}

static void check_slice(struct model *m, int rank, uint32_t chunk, uint32_t slice) {
  const struct gy_key *key = m->members[rank].key;
  struct value got = cell_at(m, rank, gy_out(chunk), slice)->value,
               want = expected(m, key, chunk, slice);
  char text[128];
  if (!got.defined || got.parts != want.parts || got.count != want.count ||
      got.finished != want.finished)
    m->status = gy_fail(GYRE_ERR_INTERNAL, "rank %d OUT[%u] slice %u: %s", rank, chunk, slice,
                        describe_difference(m, key, got, want, chunk, slice, text, sizeof text));
  else if (key->coll == GY_ALL_REDUCE && got.shape != cell_at(m, 0, gy_out(chunk), slice)->value.shape)
    m->status = gy_fail(GYRE_ERR_INTERNAL,
                        "rank %d OUT[%u] slice %u: combined in another order than on rank 0", rank,
                        chunk, slice);
}

static void check_results(struct model *m) {
  for (int rank = 0; rank < m->n; rank++) {
    const struct gy_key *key = m->members[rank].key;
    if (key->coll == GY_BARRIER || (key->coll == GY_REDUCE && rank != key->root)) continue;
    uint32_t chunks = key->coll == GY_REDUCE_SCATTER ? 1 : m->geometry.n_chunk;
    for (uint32_t c = 0; c < chunks; c++)
      for (uint32_t s = 0; s < gy_chunk_slices(&m->geometry, c) && m->status == GYRE_OK; s++)
        check_slice(m, rank, c, s);
  }
}

/* ------------------------------------------------------------------- order of accesses --- */

/* For each unit of a rank, the units that are certainly done before it is posted, and before it
 * is done. */
struct before {
  uint32_t words; /* of a row */
  uint64_t *post, *done;
};

static void join(uint64_t *row, const uint64_t *other, uint32_t words) {
  for (uint32_t w = 0; w < words; w++) row[w] |= other[w];
}

static bool in_row(const uint64_t *row, uint32_t unit) { return row[unit / 64] >> (unit % 64) & 1; }

static void fill_post_row(const struct model *m, const struct member *r, struct before *b,
                          uint32_t unit) {
  uint64_t *row = b->post + (size_t)unit * b->words;
  const struct gy_insn *x = insn_of(r, unit);
  memset(row, 0, b->words * sizeof *row);
  if (r->previous[unit] != NONE) {
    const uint64_t *rows = is_local(x) ? b->done : b->post;
    join(row, rows + (size_t)r->previous[unit] * b->words, b->words);
  }
  for (unsigned k = 0; k < 2; k++) {
    if (x->dep[k] == GY_NODEP) continue;
    uint32_t slices = needed(m, r, x, k, slice_of(r, unit));
    if (slices == 0) continue;
    join(row, b->done + (size_t)(r->base[x->dep[k]] + slices - 1) * b->words, b->words);
  }
}

static void fill_done_row(const struct member *r, struct before *b, uint32_t unit) {
  uint64_t *row = b->done + (size_t)unit * b->words;
  memcpy(row, b->post + (size_t)unit * b->words, b->words * sizeof *row);
  if (r->previous[unit] != NONE)
    join(row, b->done + (size_t)r->previous[unit] * b->words, b->words);
  row[unit / 64] |= UINT64_C(1) << (unit % 64);
}

/* Any finished run's log lists events after all that must precede them. */
static void fill_before(const struct model *m, const struct member *r, struct before *b) {
  b->words = (r->n_unit + 63) / 64;
  for (uint32_t i = 0; i < r->n_log; i++)
    if (r->log[i] % 2 == 0) fill_post_row(m, r, b, r->log[i] / 2);
    else fill_done_row(r, b, r->log[i] / 2);
}

/* Who used a cell last, as the log goes on. */
struct uses {
  uint32_t *writer;        /* by cell: unit or NONE */
  uint32_t *reader;        /* by cell: the latest unit that read since, or NONE */
  uint32_t *reader_before; /* by unit: the next in the list of the one cell that it reads, or NONE */
};

static void check_ordered(struct model *m, int rank, const struct before *b, uint32_t unit,
                          uint32_t other, const char *what) {
  const struct member *r = &m->members[rank];
  if (other == NONE || other == unit || in_row(b->post + (size_t)unit * b->words, other)) return;
  wrong(m, rank, unit, "%s insn %u slice %u, and nothing orders the two", what, r->insn[other],
        slice_of(r, other));
}

static void note_read(struct model *m, int rank, const struct before *b, struct uses *u,
                      uint32_t unit, uint32_t cell) {
  check_ordered(m, rank, b, unit, u->writer[cell], "reads what is written by");
  u->reader_before[unit] = u->reader[cell];
  u->reader[cell] = unit;
}

static void note_write(struct model *m, int rank, const struct before *b, struct uses *u,
                       uint32_t unit, uint32_t cell) {
  check_ordered(m, rank, b, unit, u->writer[cell], "writes the place that is written by");
  for (uint32_t reader = u->reader[cell]; reader != NONE; reader = u->reader_before[reader])
    check_ordered(m, rank, b, unit, reader, "overwrites what is read by");
  u->reader[cell] = NONE;
  u->writer[cell] = unit;
}

static void note_unit(struct model *m, int rank, const struct before *b, struct uses *u,
                      uint32_t unit) {
  const struct member *r = &m->members[rank];
  const struct gy_insn *x = insn_of(r, unit);
  uint32_t src = cell_index(m, r, x->src, slice_of(r, unit)),
           dst = cell_index(m, r, x->dst, slice_of(r, unit));
  if (x->op == GY_COPY && src == dst && (x->dst.flags & GY_REF_FINISH) == 0) return;
  if (x->op != GY_RECV) note_read(m, rank, b, u, unit, src);
  if (x->op == GY_LOCAL_REDUCE)
    check_ordered(m, rank, b, unit, u->writer[dst], "combines what is written by");
  if (!is_send(x)) note_write(m, rank, b, u, unit, dst);
}

/* Neighbouring accesses to a cell are checked, in the order of the log; the others follow, as
 * order is transitive. */
static void check_order_of(struct model *m, int rank, struct before *b, struct uses *u) {
  const struct member *r = &m->members[rank];
  fill_before(m, r, b);
  for (uint32_t c = 0; c < r->n_cell; c++) u->writer[c] = u->reader[c] = NONE;
  for (uint32_t i = 0; i < r->n_log && m->status == GYRE_OK; i++)
    if (r->log[i] % 2 == 0) note_unit(m, rank, b, u, r->log[i] / 2);
}

/* A barrier's message tells what its sender must have heard before it was posted; in the end all
 * must be known. */
static void check_barrier(struct model *m, struct before *b) {
  uint32_t words = ((uint32_t)m->n + 63) / 64;
  uint64_t **heard = take(m, (size_t)m->n, sizeof *heard), *known = take(m, words, sizeof *known);
  for (int rank = 0; rank < m->n; rank++) {
    uint64_t *rows = take(m, (size_t)m->members[rank].n_unit * words, sizeof *rows);
    if (m->status != GYRE_OK) return;
    heard[rank] = rows;
  }
  for (uint32_t i = 0; i < m->n_move; i++) {
    const struct link *l = &m->links[m->moves[i].link];
    const struct member *r = &m->members[l->from];
    uint32_t sender = l->send[m->moves[i].index];
    uint64_t *told = heard[l->to] + (size_t)l->recv[m->moves[i].index] * words;
    fill_before(m, r, b);
    told[l->from / 64] |= UINT64_C(1) << (l->from % 64);
    for (uint32_t u = 0; u < r->n_unit; u++)
      if (in_row(b->post + (size_t)sender * b->words, u))
        join(told, heard[l->from] + (size_t)u * words, words);
  }
  for (int rank = 0; rank < m->n; rank++) {
    memset(known, 0, words * sizeof *known);
    known[rank / 64] |= UINT64_C(1) << (rank % 64);
    for (uint32_t u = 0; u < m->members[rank].n_unit; u++)
      join(known, heard[rank] + (size_t)u * words, words);
    for (int other = 0; other < m->n; other++)
      if (!in_row(known, (uint32_t)other) && m->status == GYRE_OK)
        m->status = gy_fail(GYRE_ERR_INTERNAL,
                            "rank %d: may leave the barrier before rank %d has come", rank, other);
  }
}

static void check_order(struct model *m) {
  uint32_t units = 1, cells = 1;
  for (int rank = 0; rank < m->n; rank++) {
    if (m->members[rank].n_unit > units) units = m->members[rank].n_unit;
    if (m->members[rank].n_cell > cells) cells = m->members[rank].n_cell;
  }
  size_t row = ((size_t)units + 63) / 64;
  struct before b = {.post = take(m, units * row, sizeof *b.post),
                     .done = take(m, units * row, sizeof *b.done)};
  struct uses u = {.writer = take(m, cells, sizeof *u.writer),
                   .reader = take(m, cells, sizeof *u.reader),
                   .reader_before = take(m, units, sizeof *u.reader_before)};
  for (int rank = 0; rank < m->n && m->status == GYRE_OK; rank++) check_order_of(m, rank, &b, &u);
  if (m->status == GYRE_OK && m->members[0].key->coll == GY_BARRIER) check_barrier(m, &b);
}

/* ---------------------------------------------------------------------------- verifying --- */

static void run_and_check(struct model *m, enum policy policy) {
  run_to_end(m, policy);
  if (m->status == GYRE_OK) check_finished(m);
  if (m->status == GYRE_OK) check_results(m);
}

static gyre_status verify_count(const struct gy_program *const *programs, const struct gy_key *keys,
                                const struct gy_verify_options *options, size_t count) {
  struct model m = {.n = keys[0].nranks, .options = *options, .random = options->seed};
  set_up(&m, programs, keys, count);
  if (m.status == GYRE_OK) run_to_end(&m, IN_ORDER);
  if (m.status == GYRE_OK) check_finished(&m);
  if (m.status == GYRE_OK) check_order(&m);
  if (m.status == GYRE_OK) check_results(&m);
  if (m.status == GYRE_OK) run_and_check(&m, REVERSED);
  for (uint32_t k = 0; k < options->schedules && m.status == GYRE_OK; k++)
    run_and_check(&m, SHUFFLED);
  give_back_all(&m);
  return m.status;
}

gyre_status gy_verify(const struct gy_program *const *programs, const struct gy_key *keys,
                      const struct gy_verify_options *options) {
  if (options->slices < 1 || options->slices > 4 || options->window < 1)
    return gy_fail(GYRE_ERR_ARG, "verify with %u slices per chunk (1..4) and a window of %u (1..)",
                   options->slices, options->window);
  unsigned chunks = programs[0]->n_chunk;
  if (programs[0]->layout == GY_BLOCK)
    return verify_count(programs, keys, options, (size_t)options->slices * LINE);
  /* All chunks full; and a count that leaves the last ones short or empty. */
  size_t full = (size_t)options->slices * chunks,
         ragged = full > options->slices ? full - options->slices - 1 : 0;
  gyre_status status = verify_count(programs, keys, options, full * LINE);
  if (status == GYRE_OK && chunks > 1)
    status = verify_count(programs, keys, options, ragged * LINE);
  return status;
}

static gyre_status verify_pattern(const struct gy_algo *algo, int nranks, int root,
                                  const uint8_t *in_place, const struct gy_verify_options *options) {
  struct gy_program **programs = calloc((size_t)nranks, sizeof *programs);
  struct gy_key *keys = calloc((size_t)nranks, sizeof *keys);
  gyre_status status = GYRE_OK;
  if (programs == NULL || keys == NULL)
    status = gy_fail(GYRE_ERR_NOMEM, "no memory for the programs of %d ranks", nranks);
  for (int rank = 0; rank < nranks && status == GYRE_OK; rank++) {
    keys[rank] = (struct gy_key){
        .coll = algo->coll, .in_place = in_place[rank], .nranks = nranks, .rank = rank, .root = root};
    status = gy_program_build(algo, &keys[rank], &programs[rank]);
  }
  if (status == GYRE_OK)
    status = gy_verify((const struct gy_program *const *)programs, keys, options);
  for (int rank = 0; programs != NULL && rank < nranks; rank++) gy_program_free(programs[rank]);
  free(programs);
  free(keys);
  return status;
}

/* Adds to the failure's text what was being verified. */
static gyre_status explain(gyre_status status, const struct gy_algo *algo, int nranks, int root,
                           const uint8_t *in_place, const struct gy_verify_options *options) {
  char text[384], pattern[33];
  int shown = nranks < 32 ? nranks : 32;
  for (int rank = 0; rank < shown; rank++) pattern[rank] = in_place[rank] ? '1' : '0';
  pattern[shown] = '\0';
  gy_format(text, sizeof text, "%s", gyre_last_error());
  return gy_fail(status, "%s %s, %d ranks, root %d, in place %s, %u slices, window %u, seed %llu: %s",
                 gy_coll_name(algo->coll), algo->name, nranks, root, pattern, options->slices,
                 options->window, (unsigned long long)options->seed, text);
}

/* Who is in place in pattern k: all patterns in turn for few ranks; none, all, then mixtures. */
static bool is_in_place(uint32_t k, int nranks, int rank, uint64_t seed) {
  if (nranks <= 4) return k >> rank & 1;
  return k < 2 ? k == 1 : mix(mix(seed + k) + (uint64_t)rank) & 1;
}

gyre_status gy_verify_algo(const struct gy_algo *algo, int nranks, int root,
                           const struct gy_verify_options *options) {
  uint8_t *in_place = calloc((size_t)nranks, 1);
  if (in_place == NULL) return gy_fail(GYRE_ERR_NOMEM, "no memory for %d ranks", nranks);
  uint32_t first = nranks <= 32 ? 0 : 2, end = nranks <= 4 ? 1u << nranks : options->schedules + 3;
  gyre_status status = GYRE_OK;
  for (uint32_t k = first; k < end && status == GYRE_OK; k++) {
    for (int rank = 0; rank < nranks; rank++)
      in_place[rank] = is_in_place(k, nranks, rank, options->seed);
    status = verify_pattern(algo, nranks, root, in_place, options);
    if (status != GYRE_OK) status = explain(status, algo, nranks, root, in_place, options);
  }
  free(in_place);
  return status;
}

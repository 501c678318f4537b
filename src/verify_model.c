/*
 * verify_model.c - see verify_model.h: memory, set-up, and the steps of a run.
 *
 * Links have no buffer, and a send may complete locally long after its bytes have gone.
 */
#include "verify_model.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------- basics --- */

void *gy_model_take(struct model *m, size_t n, size_t bytes) {
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

void gy_model_clear(struct model *m) {
  while (m->blocks != NULL) {
    struct block *next = m->blocks->next;
    free(m->blocks);
    m->blocks = next;
  }
}

static uint64_t next_random(struct model *m) {
  m->random += UINT64_C(0x9e3779b97f4a7c15);
  return gy_model_mix(m->random);
}

void gy_model_wrong(struct model *m, int rank, uint32_t unit, const char *fmt, ...) {
  if (m->status != GYRE_OK) return;
  char text[256];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  const struct member *r = &m->members[rank];
  m->status = gy_fail(GYRE_ERR_INTERNAL, "rank %d insn %u slice %u: %s", rank, r->insn[unit],
                      gy_model_slice(r, unit), text);
}

/* ------------------------------------------------------------------------------- memory --- */

/* In place, two names mean one buffer: IN's, unless IN is only a block of OUT. A barrier has no
 * buffers. */
static struct gy_ref resolve(const struct gy_key *key, struct gy_ref ref) {
  bool root = key->rank == key->root;
  if (!key->in_place || ref.buf == GY_TMP || !gy_coll_traits(key->coll)->has_data ||
      !gy_coll_has_both(key->coll, root))
    return ref;
  unsigned larger = gy_coll_share(key->coll, GY_IN, root) == GY_OWN_BLOCK ? GY_OUT : GY_IN;
  if (ref.buf != larger && gy_coll_share(key->coll, ref.buf, root) == GY_OWN_BLOCK)
    ref.chunk = (uint16_t)key->rank;
  ref.buf = (uint8_t)larger;
  return ref;
}

static uint32_t scratch_slices(const struct model *m, const struct gy_program *p) {
  return p->tmp_whole ? m->chunk_slices : m->options.window;
}

bool gy_model_divides(const struct member *r, const struct gy_insn *x) {
  return (x->dst.flags & GY_REF_FINISH) != 0 && gy_coll_traits(r->key->coll)->weighted;
}

/* Weights lie behind all else, those of IN and of OUT apart also in place. */
static uint32_t weight_index(const struct member *r, struct gy_ref name) {
  uint32_t n_chunk = r->p->n_chunk;
  return name.chunk + (name.buf == GY_IN ? 0 : name.buf == GY_OUT ? n_chunk : 2 * n_chunk);
}

uint32_t gy_model_cell_index(const struct model *m, const struct member *r, struct gy_ref name,
                             uint32_t slice) {
  struct gy_ref ref = resolve(r->key, name);
  uint32_t user = r->p->n_chunk * m->chunk_slices, scratch = scratch_slices(m, r->p);
  if (gy_is_weight(name, r->p->n_chunk))
    return 2 * user + r->p->n_tmp * scratch + weight_index(r, name);
  switch (ref.buf) {
    case GY_IN: return ref.chunk * m->chunk_slices + slice;
    case GY_OUT: return user + ref.chunk * m->chunk_slices + slice;
    default: return 2 * user + ref.chunk * scratch + slice % scratch;
  }
}

struct cell *gy_model_cell(const struct model *m, int rank, struct gy_ref ref, uint32_t slice) {
  const struct member *r = &m->members[rank];
  return &r->cells[gy_model_cell_index(m, r, ref, slice)];
}

uint64_t gy_model_fingerprint(int rank, uint32_t chunk, uint32_t slice) {
  return gy_model_mix(gy_model_mix(gy_model_mix((uint64_t)rank + 1) + chunk) + slice);
}

static void fill_cell(struct model *m, int rank, struct gy_ref ref, uint32_t slice) {
  uint64_t print = gy_model_fingerprint(rank, ref.range, slice);
  gy_model_cell(m, rank, ref, slice)->value = (struct value){.parts = print,
                                                             .shape = print,
                                                             .count = 1,
                                                             .defined = 1,
                                                             .first = rank,
                                                             .last = rank,
                                                             .ordered = true};
}

static void fill_input(struct model *m, int rank) {
  struct member *r = &m->members[rank];
  memset(r->cells, 0, r->n_cell * sizeof *r->cells);
  uint32_t chunks = gy_buffer_chunks(r->key, GY_IN, r->p->n_chunk);
  for (uint32_t c = 0; c < chunks; c++)
    for (uint32_t s = 0; s < gy_chunk_slices(&r->geometry, gy_chunk_range(r->key, GY_IN, c)); s++)
      fill_cell(m, rank, gy_in(c), s);
  for (uint32_t c = r->p->n_chunk; c < m->n_range; c++)
    fill_cell(m, rank, gy_in_as(c - r->p->n_chunk, c), 0);
}

static void store(struct cell *cell, struct value value) {
  cell->value = value;
  cell->version++;
}

static struct value combine(struct value left, struct value right) {
  return (struct value){.parts = left.parts + right.parts,
                        .shape = gy_model_mix(left.shape + gy_model_mix(right.shape + 1)),
                        .count = left.count + right.count,
                        .finished = (uint16_t)(left.finished + right.finished),
                        .defined = 1,
                        .first = left.first,
                        .last = right.last,
                        .ordered = left.ordered && right.ordered && left.last + 1 == right.first};
}

/* ----------------------------------------------------------------------------- set-up --- */

static bool lay_out_member(struct model *m, int rank) {
  struct member *r = &m->members[rank];
  unsigned n = r->p->n_insn;
  r->slices = gy_model_take(m, n, sizeof *r->slices);
  r->base = gy_model_take(m, n + 1, sizeof *r->base);
  r->issued = gy_model_take(m, n, sizeof *r->issued);
  r->done = gy_model_take(m, n, sizeof *r->done);
  if (m->status != GYRE_OK) return false;
  for (unsigned i = 0; i < n; i++) {
    r->slices[i] = gy_chunk_slices(&r->geometry, r->p->insn[i].dst.range);
    r->base[i + 1] = r->base[i] + r->slices[i];
  }
  r->n_unit = r->base[n];
  r->n_cell = 2 * r->p->n_chunk * m->chunk_slices + r->p->n_tmp * scratch_slices(m, r->p);
  if (m->n_range > r->p->n_chunk) r->n_cell += 2u * r->p->n_chunk + r->p->n_tmp;
  r->insn = gy_model_take(m, r->n_unit, sizeof *r->insn);
  r->previous = gy_model_take(m, r->n_unit, sizeof *r->previous);
  r->version = gy_model_take(m, r->n_unit, sizeof *r->version);
  r->log = gy_model_take(m, 2 * (size_t)r->n_unit, sizeof *r->log);
  r->cells = gy_model_take(m, r->n_cell, sizeof *r->cells);
  if (m->status != GYRE_OK) return false;
  for (unsigned i = 0; i < n; i++)
    for (uint32_t s = 0; s < r->slices[i]; s++) {
      r->insn[r->base[i] + s] = (uint16_t)i;
      r->previous[r->base[i] + s] = s == 0 ? GY_MODEL_NONE : r->base[i] + s - 1;
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
  uint32_t *units = gy_model_take(m, *length, sizeof *units);
  if (units == NULL) return NULL;
  link_order(r, q, units);
  for (uint32_t k = 0; k < *length; k++)
    r->previous[units[k]] = k == 0 ? GY_MODEL_NONE : units[k - 1];
  return units;
}

/* Both ends must agree on the number of messages and on the length of each. */
static void check_pairing(struct model *m, const struct link *l, uint32_t received) {
  for (uint32_t k = 0; k < l->length && k < received; k++) {
    const struct member *a = &m->members[l->from], *b = &m->members[l->to];
    size_t bytes = gy_slice_bytes(&a->geometry, gy_model_insn(a, l->send[k])->src.range,
                                  gy_model_slice(a, l->send[k]));
    size_t room = gy_slice_bytes(&b->geometry, gy_model_insn(b, l->recv[k])->dst.range,
                                 gy_model_slice(b, l->recv[k]));
    if (bytes != room) {
      gy_model_wrong(m, l->from, l->send[k],
                     "message %u to rank %d has %zu bytes, its receive (insn %u slice %u) %zu", k,
                     l->to, bytes, b->insn[l->recv[k]], gy_model_slice(b, l->recv[k]), room);
      return;
    }
  }
  if (l->length > received)
    gy_model_wrong(m, l->from, l->send[received],
                   "rank %d receives only %u messages from here, not %u", l->to, received, l->length);
  else if (received > l->length)
    gy_model_wrong(m, l->to, l->recv[l->length], "rank %d sends only %u messages here, not %u",
                   l->from, l->length, received);
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
  if (other == NULL)
    gy_model_wrong(m, from, l->send[0], "rank %d receives nothing from here", l->to);
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
  m->links = gy_model_take(m, sends, sizeof *m->links);
  m->locals = gy_model_take(m, locals, sizeof *m->locals);
  for (int rank = 0; rank < m->n && m->status == GYRE_OK; rank++) {
    const struct gy_program *p = m->members[rank].p;
    for (unsigned q = 0; q < p->n_queue && m->status == GYRE_OK; q++)
      if (!p->queue[q].recv) add_link(m, rank, &p->queue[q]);
      else if (find_queue(m->members[p->queue[q].peer].p, rank, p->queue[q].lane, false) == NULL)
        gy_model_wrong(m, rank, m->members[rank].base[p->order[p->queue[q].first]],
                       "rank %u sends nothing here", p->queue[q].peer);
    for (unsigned k = p->n_insn - p->n_local; k < p->n_insn; k++)
      m->locals[m->n_local++] = (struct local){rank, p->order[k]};
  }
}

/* What goes from one rank to another where lengths vary: nothing, one of several whole slices, or any
 * length. Without a second rank: the one block of a rank. */
static size_t drawn_length(const struct model *m, int from, int to, size_t longest) {
  uint64_t h = gy_model_mix(m->options.seed + gy_model_mix((uint64_t)from * 65537 + (uint64_t)to));
  switch (h % 4) {
    case 0: return 0;
    case 1: return (size_t)(h >> 8) % (longest + 1);
    default: return longest - (size_t)(h >> 8) % m->options.slices * GY_MODEL_LINE;
  }
}

/* In place, as much comes as goes. */
static size_t length_between(const struct model *m, int from, int to, size_t longest) {
  bool swap = to < from && (m->members[from].key->in_place || m->members[to].key->in_place);
  return drawn_length(m, swap ? to : from, swap ? from : to, longest);
}

static void vary_lengths(struct model *m, int rank, size_t longest, bool even) {
  struct member *r = &m->members[rank];
  size_t *length = gy_model_take(m, r->p->n_chunk, sizeof *length);
  if (m->status != GYRE_OK) return;
  bool pairs = r->key->coll == GY_ALL_TO_ALL_V;
  for (int other = 0; other < m->n; other++) {
    unsigned goes = (unsigned)other,
             comes = pairs ? gy_chunk_range(r->key, GY_OUT, (unsigned)other) : goes;
    length[goes] = even    ? longest
                   : pairs ? length_between(m, rank, other, longest)
                           : drawn_length(m, other, 0, longest);
    if (pairs && !even) length[comes] = length_between(m, other, rank, longest);
    else length[comes] = length[goes];
  }
  r->geometry.blocks.length = length;
}

void gy_model_set_up(struct model *m, const struct gy_program *const *programs,
                     const struct gy_key *keys, size_t count, bool even) {
  struct gy_geometry all;
  gy_geometry_init(&all, programs[0], count, 1, GY_MODEL_LINE);
  for (unsigned c = 0; c < programs[0]->n_chunk && programs[0]->layout != GY_VARY; c++) {
    uint32_t slices = gy_chunk_slices(&all, c);
    if (slices > m->chunk_slices) m->chunk_slices = slices;
  }
  if (programs[0]->layout == GY_VARY) m->chunk_slices = m->options.slices;
  m->members = gy_model_take(m, (size_t)m->n, sizeof *m->members);
  for (int rank = 0; rank < m->n && m->status == GYRE_OK; rank++)
    m->members[rank] = (struct member){.p = programs[rank], .key = &keys[rank], .geometry = all};
  m->n_range = programs[0]->n_chunk * (gy_coll_traits(keys[0].coll)->weighted ? 2u : 1u);
  uint32_t sums = m->n_range * m->chunk_slices;
  m->sums = gy_model_take(m, sums, sizeof *m->sums);
  for (int rank = 0; rank < m->n && m->status == GYRE_OK; rank++) {
    if (programs[rank]->n_chunk != programs[0]->n_chunk ||
        programs[rank]->layout != programs[0]->layout)
      m->status =
          gy_fail(GYRE_ERR_INTERNAL, "rank %d cuts the buffers differently from rank 0", rank);
    else if (programs[rank]->layout == GY_VARY) vary_lengths(m, rank, count, even);
    if (m->status == GYRE_OK) lay_out_member(m, rank);
  }
  if (m->status == GYRE_OK) connect_ranks(m);
  if (m->status != GYRE_OK) return;
  for (uint32_t i = 0; i < sums; i++)
    for (int rank = 0; rank < m->n; rank++)
      m->sums[i] += gy_model_fingerprint(rank, i / m->chunk_slices, i % m->chunk_slices);
  uint32_t messages = 0;
  for (uint32_t l = 0; l < m->n_link; l++) messages += m->links[l].length;
  m->moves = gy_model_take(m, messages, sizeof *m->moves);
  m->actions = gy_model_take(m, 4 * m->n_link + m->n_local, sizeof *m->actions);
}

/* -------------------------------------------------------------------------- running it --- */

uint32_t gy_model_needed(const struct model *m, const struct member *r, const struct gy_insn *x,
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
    if (x->dep[k] != GY_NODEP && r->done[x->dep[k]] < gy_model_needed(m, r, x, k, slice))
      return false;
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
  struct value v = gy_model_cell(m, rank, ref, gy_model_slice(&m->members[rank], unit))->value;
  if (!v.defined)
    gy_model_wrong(m, rank, unit, "reads %s[%u], which nothing has written", names[ref.buf],
                   ref.chunk);
  return v;
}

static void check_total(struct model *m, int rank, uint32_t unit, struct gy_ref data) {
  struct gy_ref ref = gy_weight_of(data, m->members[rank].p->n_chunk);
  const struct value *weight = &gy_model_cell(m, rank, ref, 0)->value;
  if (!weight->defined || weight->count != (uint32_t)m->n ||
      weight->parts != m->sums[(size_t)ref.range * m->chunk_slices])
    gy_model_wrong(m, rank, unit, "FINISH with %u of %d weights", weight->count, m->n);
}

static struct value finish(struct model *m, int rank, uint32_t unit, struct value v) {
  const struct gy_insn *x = gy_model_insn(&m->members[rank], unit);
  if ((x->dst.flags & GY_REF_FINISH) == 0) return v;
  if (gy_model_divides(&m->members[rank], x)) check_total(m, rank, unit, x->dst);
  if (v.count != (uint32_t)m->n)
    gy_model_wrong(m, rank, unit, "FINISH with %u of %d contributions", v.count, m->n);
  v.finished++;
  v.shape = gy_model_mix(v.shape + 2);
  return v;
}

/* The effect of an instruction whose other operand is `other`: what came in, or the source of a
 * local reduction. */
static void apply(struct model *m, int rank, uint32_t unit, struct value other) {
  const struct member *r = &m->members[rank];
  const struct gy_insn *x = gy_model_insn(r, unit);
  if (x->op == GY_RECV_REDUCE || x->op == GY_LOCAL_REDUCE) {
    struct value own = read_cell(m, rank, unit, x->op == GY_RECV_REDUCE ? x->src : x->dst);
    bool swap = (x->dst.flags & GY_REF_SWAP) != 0;
    other = swap ? combine(other, own) : combine(own, other);
  }
  store(gy_model_cell(m, rank, x->dst, gy_model_slice(r, unit)), finish(m, rank, unit, other));
}

static bool post_send(struct model *m, struct link *l) {
  if (l->sent == l->length) return false;
  struct member *r = &m->members[l->from];
  uint32_t unit = l->send[l->sent];
  if (!ready(m, r, r->insn[unit], gy_model_slice(r, unit))) return false;
  read_cell(m, l->from, unit, gy_model_insn(r, unit)->src);
  r->version[unit] =
      gy_model_cell(m, l->from, gy_model_insn(r, unit)->src, gy_model_slice(r, unit))->version;
  post(r, unit);
  l->sent++;
  return true;
}

static bool post_recv(struct model *m, struct link *l) {
  if (l->posted == l->length) return false;
  struct member *r = &m->members[l->to];
  uint32_t unit = l->recv[l->posted];
  if (!ready(m, r, r->insn[unit], gy_model_slice(r, unit))) return false;
  post(r, unit);
  l->posted++;
  return true;
}

static bool move_message(struct model *m, struct link *l) {
  if (l->moved == l->sent || l->moved == l->posted) return false;
  uint32_t sender = l->send[l->moved], receiver = l->recv[l->moved];
  struct value v = read_cell(m, l->from, sender, gy_model_insn(&m->members[l->from], sender)->src);
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
  if (gy_model_cell(m, l->from, gy_model_insn(r, unit)->src, gy_model_slice(r, unit))->version !=
      r->version[unit])
    gy_model_wrong(m, l->from, unit, "its source was overwritten before the send was done");
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
  if ((x->dst.flags & GY_REF_IDENTITY) != 0)
    store(gy_model_cell(m, local->rank, x->dst, slice),
          (struct value){.defined = 1, .ordered = true});
  else if (gy_model_cell(m, local->rank, x->src, slice) !=
               gy_model_cell(m, local->rank, x->dst, slice) ||
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

void gy_model_run(struct model *m, enum policy policy) {
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

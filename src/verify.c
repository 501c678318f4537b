/*
 * verify.c - proves a collective's programs right for all ranks together, without a network.
 *
 * Role:   see verify.h.
 * Thread: pure.
 * Owner:  everything hangs on one struct model (verify_model.h), freed before return.
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
 */
#include "verify_model.h"

#include <stdlib.h>
#include <string.h>

/* -------------------------------------------------------------------------- judging it --- */

static void report_waiting(struct model *m, int rank, unsigned insn) {
  const struct member *r = &m->members[rank];
  const struct gy_insn *x = &r->p->insn[insn];
  uint32_t slice = r->done[insn], unit = r->base[insn] + slice;
  if (r->issued[insn] > slice) {
    gy_model_wrong(m, rank, unit, "deadlock: waits for rank %u", x->peer);
    return;
  }
  for (unsigned k = 0; k < 2; k++)
    if (x->dep[k] != GY_NODEP && r->done[x->dep[k]] < gy_model_needed(m, r, x, k, slice)) {
      gy_model_wrong(m, rank, unit, "deadlock: waits for insn %u, which has done %u of %u slices",
                     x->dep[k], r->done[x->dep[k]], r->slices[x->dep[k]]);
      return;
    }
  gy_model_wrong(m, rank, unit, "deadlock: waits for its turn on the link");
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

/* The contributions of the ranks before this one (of a scan: and its own). */
static struct value expected_prefix(const struct gy_key *key, uint32_t chunk, uint32_t slice) {
  struct value v = {.defined = 1};
  v.count = (uint32_t)key->rank + (key->coll == GY_SCAN ? 1 : 0);
  for (uint32_t r = 0; r < v.count; r++) v.parts += gy_model_fingerprint((int)r, chunk, slice);
  return v;
}

/* The chunk of the contributions that OUT[chunk] of this rank is made of. */
static uint32_t source_chunk(const struct gy_key *key, uint32_t chunk) {
  switch (key->coll) {
    case GY_REDUCE_SCATTER:
    case GY_REDUCE_SCATTER_V:
    case GY_SCATTER:
    case GY_SCATTER_V:
    case GY_ALL_TO_ALL:
    case GY_ALL_TO_ALL_V: return (uint32_t)key->rank;
    case GY_ALL_GATHER:
    case GY_ALL_GATHER_V:
    case GY_GATHER:
    case GY_GATHER_V: return 0;
    default: return chunk;
  }
}

/* Whose contribution OUT[chunk] is, where nothing is reduced. */
static int source_rank(const struct gy_key *key, uint32_t chunk) {
  bool from_root = gy_coll_share(key->coll, GY_IN, false) == GY_NOTHING;
  return from_root ? key->root : (int)chunk;
}

/* What OUT[chunk] slice must be: one rank's contribution, or the sum of all. */
static struct value expected(const struct model *m, const struct gy_key *key, uint32_t chunk,
                             uint32_t slice) {
  struct value v = {.defined = 1};
  uint32_t source = source_chunk(key, chunk);
  if (!gy_coll_traits(key->coll)->reduces) {
    v.parts = gy_model_fingerprint(source_rank(key, chunk), source, slice);
    v.count = 1;
    return v;
  }
  if (gy_coll_is_scan(key->coll)) return expected_prefix(key, chunk, slice);
  v.parts = m->sums[source * m->chunk_slices + slice];
  v.count = (uint32_t)m->n;
  v.finished = chunk < m->members[0].p->n_chunk;
  return v;
}

static const char *describe_difference(const struct model *m, const struct gy_key *key,
                                       struct value got, struct value want, uint32_t chunk,
                                       uint32_t slice, char *out, size_t capacity) {
  uint32_t source = source_chunk(key, chunk);
  if (!got.defined) return "nothing was written there";
  if (got.parts == want.parts && got.count == want.count) {
    gy_format(out, capacity, "FINISH was applied %u times, not %u", got.finished, want.finished);
    return out;
  }
  for (int rank = 0; gy_coll_traits(key->coll)->reduces && rank < m->n; rank++) {
    if (want.parts - got.parts == gy_model_fingerprint(rank, source, slice)) {
      gy_format(out, capacity, "the contribution of rank %d is missing", rank);
      return out;
    }
    if (got.parts - want.parts == gy_model_fingerprint(rank, source, slice)) {
      gy_format(out, capacity, "the contribution of rank %d is there twice", rank);
      return out;
    }
  }
  gy_format(out, capacity, "%u contributions, not the %u that belong there", got.count, want.count);
  return out;
}

/* A chunk of OUT; from n_chunk on, its weight. */
static struct gy_ref out_ref(const struct model *m, uint32_t chunk) {
  unsigned n_chunk = m->members[0].p->n_chunk;
  return chunk < n_chunk ? gy_out(chunk) : gy_out_as(chunk - n_chunk, chunk);
}

static void check_slice(struct model *m, int rank, uint32_t chunk, uint32_t slice) {
  const struct gy_key *key = m->members[rank].key;
  struct value got = gy_model_cell(m, rank, out_ref(m, chunk), slice)->value,
               want = expected(m, key, chunk, slice);
  char text[128];
  if (!got.defined || got.parts != want.parts || got.count != want.count ||
      got.finished != want.finished)
    m->status = gy_fail(GYRE_ERR_INTERNAL, "rank %d OUT[%u] slice %u: %s", rank, chunk, slice,
                        describe_difference(m, key, got, want, chunk, slice, text, sizeof text));
  else if ((key->ordered || gy_coll_is_scan(key->coll)) && !got.ordered)
    m->status = gy_fail(GYRE_ERR_INTERNAL, "rank %d OUT[%u] slice %u: not combined in rank order",
                        rank, chunk, slice);
  else if ((key->coll == GY_ALL_REDUCE || key->coll == GY_ALL_REDUCE_WEIGHTED) &&
           got.shape != gy_model_cell(m, 0, out_ref(m, chunk), slice)->value.shape)
    m->status = gy_fail(GYRE_ERR_INTERNAL,
                        "rank %d OUT[%u] slice %u: combined in another order than on rank 0", rank,
                        chunk, slice);
}

static void check_results(struct model *m) {
  for (int rank = 0; rank < m->n; rank++) {
    const struct gy_key *key = m->members[rank].key;
    if (!gy_coll_traits(key->coll)->has_data) continue;
    const struct gy_geometry *g = &m->members[rank].geometry;
    for (uint32_t c = 0; c < gy_buffer_chunks(key, GY_OUT, g->n_chunk); c++) {
      uint32_t slices = gy_chunk_slices(g, gy_chunk_range(key, GY_OUT, c));
      for (uint32_t s = 0; s < slices && m->status == GYRE_OK; s++) check_slice(m, rank, c, s);
    }
    for (uint32_t c = g->n_chunk; c < m->n_range && m->status == GYRE_OK; c++)
      check_slice(m, rank, c, 0);
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
  const struct gy_insn *x = gy_model_insn(r, unit);
  memset(row, 0, b->words * sizeof *row);
  if (r->previous[unit] != GY_MODEL_NONE) {
    const uint64_t *rows = (x->op == GY_COPY || x->op == GY_LOCAL_REDUCE) ? b->done : b->post;
    join(row, rows + (size_t)r->previous[unit] * b->words, b->words);
  }
  for (unsigned k = 0; k < 2; k++) {
    if (x->dep[k] == GY_NODEP) continue;
    uint32_t slices = gy_model_needed(m, r, x, k, gy_model_slice(r, unit));
    if (slices == 0) continue;
    join(row, b->done + (size_t)(r->base[x->dep[k]] + slices - 1) * b->words, b->words);
  }
}

static void fill_done_row(const struct member *r, struct before *b, uint32_t unit) {
  uint64_t *row = b->done + (size_t)unit * b->words;
  memcpy(row, b->post + (size_t)unit * b->words, b->words * sizeof *row);
  if (r->previous[unit] != GY_MODEL_NONE)
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
  uint32_t *writer; /* by cell: unit or GY_MODEL_NONE */
  uint32_t *reader; /* by cell: the latest unit that read since, or GY_MODEL_NONE */
  uint32_t *reader_before; /* by unit: the next in the list of the one cell that it reads, or GY_MODEL_NONE */
};

static void check_ordered(struct model *m, int rank, const struct before *b, uint32_t unit,
                          uint32_t other, const char *what) {
  const struct member *r = &m->members[rank];
  if (other == GY_MODEL_NONE || other == unit || in_row(b->post + (size_t)unit * b->words, other))
    return;
  gy_model_wrong(m, rank, unit, "%s insn %u slice %u, and nothing orders the two", what,
                 r->insn[other], gy_model_slice(r, other));
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
  for (uint32_t reader = u->reader[cell]; reader != GY_MODEL_NONE; reader = u->reader_before[reader])
    check_ordered(m, rank, b, unit, reader, "overwrites what is read by");
  u->reader[cell] = GY_MODEL_NONE;
  u->writer[cell] = unit;
}

static void note_unit(struct model *m, int rank, const struct before *b, struct uses *u,
                      uint32_t unit) {
  const struct member *r = &m->members[rank];
  const struct gy_insn *x = gy_model_insn(r, unit);
  uint32_t src = gy_model_cell_index(m, r, x->src, gy_model_slice(r, unit)),
           dst = gy_model_cell_index(m, r, x->dst, gy_model_slice(r, unit));
  bool identity = (x->dst.flags & GY_REF_IDENTITY) != 0;
  if (gy_model_divides(r, x)) /* a place onto itself: what has written that is looked at below */
    src = gy_model_cell_index(m, r, gy_weight_of(x->dst, r->p->n_chunk), 0);
  if (x->op == GY_COPY && src == dst && !identity && (x->dst.flags & GY_REF_FINISH) == 0) return;
  if (x->op != GY_RECV && !identity) note_read(m, rank, b, u, unit, src);
  if (x->op == GY_LOCAL_REDUCE)
    check_ordered(m, rank, b, unit, u->writer[dst], "combines what is written by");
  if (x->op != GY_SEND) note_write(m, rank, b, u, unit, dst);
}

/* Neighbouring accesses to a cell are checked, in the order of the log; the others follow, as
 * order is transitive. */
static void check_order_of(struct model *m, int rank, struct before *b, struct uses *u) {
  const struct member *r = &m->members[rank];
  fill_before(m, r, b);
  for (uint32_t c = 0; c < r->n_cell; c++) u->writer[c] = u->reader[c] = GY_MODEL_NONE;
  for (uint32_t i = 0; i < r->n_log && m->status == GYRE_OK; i++)
    if (r->log[i] % 2 == 0) note_unit(m, rank, b, u, r->log[i] / 2);
}

/* A barrier's message tells what its sender must have heard before it was posted; in the end all
 * must be known. */
static void check_barrier(struct model *m, struct before *b) {
  uint32_t words = ((uint32_t)m->n + 63) / 64;
  uint64_t **heard = gy_model_take(m, (size_t)m->n, sizeof *heard),
           *known = gy_model_take(m, words, sizeof *known);
  for (int rank = 0; rank < m->n; rank++) {
    uint64_t *rows = gy_model_take(m, (size_t)m->members[rank].n_unit * words, sizeof *rows);
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
  struct before b = {.post = gy_model_take(m, units * row, sizeof *b.post),
                     .done = gy_model_take(m, units * row, sizeof *b.done)};
  struct uses u = {.writer = gy_model_take(m, cells, sizeof *u.writer),
                   .reader = gy_model_take(m, cells, sizeof *u.reader),
                   .reader_before = gy_model_take(m, units, sizeof *u.reader_before)};
  for (int rank = 0; rank < m->n && m->status == GYRE_OK; rank++) check_order_of(m, rank, &b, &u);
  if (m->status == GYRE_OK && m->members[0].key->coll == GY_BARRIER) check_barrier(m, &b);
}

/* ---------------------------------------------------------------------------- verifying --- */

static void run_and_check(struct model *m, enum policy policy) {
  gy_model_run(m, policy);
  if (m->status == GYRE_OK) check_finished(m);
  if (m->status == GYRE_OK) check_results(m);
}

static gyre_status verify_count(const struct gy_program *const *programs, const struct gy_key *keys,
                                const struct gy_verify_options *options, size_t count, bool even) {
  struct model m = {.n = keys[0].nranks, .options = *options, .random = options->seed};
  gy_model_set_up(&m, programs, keys, count, even);
  if (m.status == GYRE_OK) gy_model_run(&m, IN_ORDER);
  if (m.status == GYRE_OK) check_finished(&m);
  if (m.status == GYRE_OK) check_order(&m);
  if (m.status == GYRE_OK) check_results(&m);
  if (m.status == GYRE_OK) run_and_check(&m, REVERSED);
  for (uint32_t k = 0; k < options->schedules && m.status == GYRE_OK; k++)
    run_and_check(&m, SHUFFLED);
  gy_model_clear(&m);
  return m.status;
}

gyre_status gy_verify(const struct gy_program *const *programs, const struct gy_key *keys,
                      const struct gy_verify_options *options) {
  if (options->slices < 1 || options->slices > 4 || options->window < 1)
    return gy_fail(GYRE_ERR_ARG, "verify with %u slices per chunk (1..4) and a window of %u (1..)",
                   options->slices, options->window);
  if (programs[0] == NULL) return gy_fail(GYRE_ERR_ARG, "verify without the program of rank 0");
  unsigned chunks = programs[0]->n_chunk;
  size_t block = (size_t)options->slices * GY_MODEL_LINE;
  if (programs[0]->layout == GY_BLOCK) return verify_count(programs, keys, options, block, true);
  if (programs[0]->layout == GY_VARY) {
    /* All blocks full, for not too many ranks; and blocks that differ. */
    gyre_status st = GYRE_OK;
    if (keys[0].nranks <= 32) st = verify_count(programs, keys, options, block, true);
    return st == GYRE_OK ? verify_count(programs, keys, options, block, false) : st;
  }
  /* All chunks full; and a count that leaves the last ones short or empty. */
  size_t full = (size_t)options->slices * chunks,
         ragged = full > options->slices ? full - options->slices - 1 : 0;
  gyre_status status = verify_count(programs, keys, options, full * GY_MODEL_LINE, true);
  if (status == GYRE_OK && chunks > 1)
    status = verify_count(programs, keys, options, ragged * GY_MODEL_LINE, true);
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
    keys[rank] = (struct gy_key){.coll = algo->coll,
                                 .in_place = in_place[rank],
                                 .ordered = algo->ordered,
                                 .nranks = nranks,
                                 .rank = rank,
                                 .root = root};
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
  return k < 2 ? k == 1 : gy_model_mix(gy_model_mix(seed + k) + (uint64_t)rank) & 1;
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

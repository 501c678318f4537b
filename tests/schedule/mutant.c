/* mutant.c - see mutant.h. */
#include "mutant.h"

#include <string.h>
#include "status.h"

/* -------------------------------------------------------------------------------- drafts --- */

void draft_load(struct draft *d, const struct gy_program *p, const struct gy_key *key) {
  *d = (struct draft){.key = *key,
                      .n_chunk = p->n_chunk,
                      .layout = p->layout,
                      .tmp_whole = p->tmp_whole,
                      .n_insn = p->n_insn < DRAFT_MAX_INSN ? p->n_insn : DRAFT_MAX_INSN};
  memcpy(d->insn, p->insn, d->n_insn * sizeof d->insn[0]);
}

void draft_remove_dep(struct draft *d, unsigned insn, unsigned k) {
  struct gy_insn *x = &d->insn[insn];
  if (k == 0) {
    x->dep[0] = x->dep[1];
    x->dep_lag[0] = x->dep_lag[1];
  }
  x->dep[1] = GY_NODEP;
}

void draft_remove(struct draft *d, unsigned insn) {
  memmove(&d->insn[insn], &d->insn[insn + 1], (d->n_insn - insn - 1) * sizeof d->insn[0]);
  d->n_insn--;
  for (unsigned i = 0; i < d->n_insn; i++)
    for (unsigned k = 2; k-- > 0;)
      if (d->insn[i].dep[k] == insn) draft_remove_dep(d, i, k);
      else if (d->insn[i].dep[k] != GY_NODEP && d->insn[i].dep[k] > insn) d->insn[i].dep[k]--;
}

static unsigned replay(struct gy_builder *b, const struct gy_insn *x) {
  switch (x->op) {
    case GY_SEND: return gy_b_send(b, x->peer, x->src);
    case GY_RECV: return gy_b_recv(b, x->peer, x->dst);
    case GY_RECV_REDUCE: return gy_b_recv_reduce(b, x->peer, x->dst, x->src);
    case GY_COPY: return gy_b_copy(b, x->dst, x->src);
    default: return gy_b_reduce(b, x->dst, x->src);
  }
}

gyre_status draft_build(const struct draft *d, struct gy_program **out) {
  struct gy_builder *b = gy_builder_create(&d->key);
  if (b == NULL) return gy_fail(GYRE_ERR_NOMEM, "no memory for a builder");
  gy_b_layout(b, (enum gy_layout)d->layout, d->n_chunk);
  if (d->tmp_whole) gy_b_tmp_whole(b);
  for (unsigned i = 0; i < d->n_insn; i++) gy_b_phase(b, replay(b, &d->insn[i]), d->insn[i].phase);
  for (unsigned i = 0; i < d->n_insn; i++)
    for (unsigned k = 0; k < 2; k++) {
      unsigned on = d->insn[i].dep[k];
      switch (d->insn[i].dep_lag[k]) {
        case GY_LAG_NONE: gy_b_after(b, i, on); break;
        case GY_LAG_WINDOW: gy_b_after_window(b, i, on); break;
        default: gy_b_after_whole(b, i, on);
      }
    }
  gyre_status status = gy_b_finish(b, out);
  gy_builder_free(b);
  return status;
}

/* ------------------------------------------------------------------------------- changes --- */

static const char *const names[MUTATION_COUNT] = {
    "remove a dependency",
    "change a lag",
    "retarget a dependency",
    "swap peers",
    "swap chunks",
    "swap order",
    "redirect",
    "change a chunk",
    "change a buffer",
    "change a flag",
    "change a phase",
    "remove",
    "repeat",
};

const char *mutation_name(enum mutation kind) { return names[kind]; }

static unsigned pick(uint64_t *seed, unsigned n) {
  *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return n == 0 ? 0 : (unsigned)((*seed >> 33) % n);
}

static bool is_message(const struct gy_insn *x) { return x->op <= GY_RECV_REDUCE; }

static bool change_dep(struct draft *d, unsigned i, enum mutation kind, uint64_t *seed, char *what,
                       size_t size) {
  struct gy_insn *x = &d->insn[i];
  unsigned k = x->dep[1] == GY_NODEP ? 0 : pick(seed, 2), on = x->dep[k], lag = x->dep_lag[k];
  if (on == GY_NODEP) return false;
  if (kind == MUTATE_REMOVE_DEP) {
    gy_format(what, size, "insn %u no longer waits for %u", i, on);
    draft_remove_dep(d, i, k);
    return true;
  }
  if (kind == MUTATE_LAG) {
    x->dep_lag[k] = (uint8_t)((lag + 1 + pick(seed, 2)) % 3);
    gy_format(what, size, "insn %u waits for %u with lag %u, not %u", i, on, x->dep_lag[k], lag);
    return true;
  }
  x->dep[k] = (uint16_t)pick(seed, d->n_insn);
  gy_format(what, size, "insn %u waits for %u, not %u", i, x->dep[k], on);
  return x->dep[k] != on;
}

static bool swap_peers(struct draft *d, unsigned i, unsigned j, char *what, size_t size) {
  struct gy_insn *a = &d->insn[i], *b = &d->insn[j];
  uint16_t peer = a->peer;
  if (!is_message(a) || !is_message(b) || a->peer == b->peer) return false;
  a->peer = b->peer;
  b->peer = peer;
  gy_format(what, size, "insn %u and %u exchange peers", i, j);
  return true;
}

static bool swap_chunks(struct draft *d, unsigned i, unsigned j, char *what, size_t size) {
  struct gy_insn *a = &d->insn[i], *b = &d->insn[j], old = *a;
  if (a->op != b->op || memcmp(&a->src, &b->src, 2 * sizeof a->src) == 0) return false;
  a->src = b->src;
  a->dst = b->dst;
  b->src = old.src;
  b->dst = old.dst;
  gy_format(what, size, "insn %u and %u exchange chunks", i, j);
  return true;
}

static bool swap_order(struct draft *d, unsigned i, char *what, size_t size) {
  if (i + 1 >= d->n_insn) return false;
  struct gy_insn old = d->insn[i];
  uint16_t first = old.phase, second = d->insn[i + 1].phase;
  d->insn[i] = d->insn[i + 1];
  d->insn[i + 1] = old;
  d->insn[i].phase = first;
  d->insn[i + 1].phase = second;
  for (unsigned x = 0; x < d->n_insn; x++)
    for (unsigned k = 0; k < 2; k++)
      if (d->insn[x].dep[k] == i || d->insn[x].dep[k] == i + 1)
        d->insn[x].dep[k] = (uint16_t)(2 * i + 1 - d->insn[x].dep[k]);
  gy_format(what, size, "insn %u and %u change places", i, i + 1);
  return true;
}

static bool redirect(struct draft *d, unsigned i, uint64_t *seed, char *what, size_t size) {
  struct gy_insn *x = &d->insn[i];
  unsigned peer = pick(seed, (unsigned)d->key.nranks);
  if (!is_message(x) || peer == x->peer || peer == (unsigned)d->key.rank) return false;
  gy_format(what, size, "insn %u: peer %u becomes %u", i, x->peer, peer);
  x->peer = (uint16_t)peer;
  return true;
}

/* The side of an instruction that means something; both, where a message has one reference only. */
static bool change_ref(struct draft *d, unsigned i, bool buffer, uint64_t *seed, char *what,
                       size_t size) {
  struct gy_insn *x = &d->insn[i];
  bool on_src = x->op == GY_SEND || (x->op != GY_RECV && pick(seed, 2) == 0);
  struct gy_ref *r = on_src ? &x->src : &x->dst, old = *r;
  if (buffer) r->buf = (uint8_t)((r->buf + 1 + pick(seed, 2)) % 3);
  else r->chunk = (uint16_t)pick(seed, r->buf == GY_TMP ? 3 : d->n_chunk);
  if (!buffer && r->buf != GY_TMP && d->layout == GY_SPLIT) r->range = r->chunk;
  gy_format(what, size, "insn %u: %s %u[%u] becomes %u[%u]", i, on_src ? "source" : "destination",
            old.buf, old.chunk, r->buf, r->chunk);
  return memcmp(r, &old, sizeof old) != 0;
}

static bool change_flag(struct draft *d, unsigned i, uint64_t *seed, char *what, size_t size) {
  unsigned flag = pick(seed, 2) == 0 ? GY_REF_SWAP : GY_REF_FINISH;
  if (d->insn[i].op == GY_SEND || d->insn[i].op == GY_RECV) return false;
  d->insn[i].dst.flags ^= (uint8_t)flag;
  gy_format(what, size, "insn %u: %s %s", i, flag == GY_REF_SWAP ? "SWAP" : "FINISH",
            d->insn[i].dst.flags & flag ? "on" : "off");
  return true;
}

static bool change_phase(struct draft *d, unsigned i, uint64_t *seed, char *what, size_t size) {
  unsigned phase = pick(seed, d->n_insn + 1);
  if (!is_message(&d->insn[i]) || phase == d->insn[i].phase) return false;
  gy_format(what, size, "insn %u: phase %u becomes %u", i, d->insn[i].phase, phase);
  d->insn[i].phase = (uint16_t)phase;
  return true;
}

static bool repeat(struct draft *d, unsigned i, char *what, size_t size) {
  if (d->n_insn == DRAFT_MAX_INSN) return false;
  d->insn[d->n_insn] = d->insn[i];
  d->insn[d->n_insn].phase = (uint16_t)d->n_insn;
  gy_format(what, size, "insn %u is repeated at the end", i);
  d->n_insn++;
  return true;
}

static bool mutate(struct draft *d, unsigned i, enum mutation kind, uint64_t *seed, char *what,
                   size_t size) {
  unsigned j = pick(seed, d->n_insn);
  switch (kind) {
    case MUTATE_SWAP_PEERS: return swap_peers(d, i, j, what, size);
    case MUTATE_SWAP_CHUNKS: return swap_chunks(d, i, j, what, size);
    case MUTATE_SWAP_ORDER: return swap_order(d, i, what, size);
    case MUTATE_REDIRECT: return redirect(d, i, seed, what, size);
    case MUTATE_CHUNK: return change_ref(d, i, false, seed, what, size);
    case MUTATE_BUFFER: return change_ref(d, i, true, seed, what, size);
    case MUTATE_FLAG: return change_flag(d, i, seed, what, size);
    case MUTATE_PHASE: return change_phase(d, i, seed, what, size);
    case MUTATE_REPEAT: return repeat(d, i, what, size);
    case MUTATE_REMOVE:
      gy_format(what, size, "insn %u is removed", i);
      draft_remove(d, i);
      return true;
    default: return change_dep(d, i, kind, seed, what, size);
  }
}

/* ------------------------------------------------------------------------------- mutants --- */

void mutant_free(struct mutant *m) {
  for (int rank = 0; rank < m->nranks; rank++) {
    gy_program_free(m->programs[rank]);
    m->programs[rank] = NULL;
  }
}

static gyre_status build_all(struct mutant *m, const struct gy_algo *algo, int root, uint64_t *seed) {
  for (int rank = 0; rank < m->nranks; rank++) {
    bool prepared = gy_coll_traits(algo->coll)->weighted; /* in OUT, by the engine */
    m->keys[rank] = (struct gy_key){.coll = algo->coll,
                                    .in_place = (uint8_t)pick(seed, 2) || prepared,
                                    .nranks = m->nranks,
                                    .rank = rank,
                                    .root = root};
    gyre_status status = gy_program_build(algo, &m->keys[rank], &m->programs[rank]);
    if (status != GYRE_OK) return status;
  }
  return GYRE_OK;
}

static gyre_status change_one(struct mutant *m, uint64_t *seed) {
  struct draft d;
  size_t used = gy_format(m->what, sizeof m->what, "rank %d ", m->rank);
  draft_load(&d, m->programs[m->rank], &m->keys[m->rank]);
  if (d.n_insn == 0) return GYRE_ERR_UNSUPPORTED;
  unsigned insn = pick(seed, d.n_insn);
  m->op = (enum gy_insn_op)d.insn[insn].op;
  if (!mutate(&d, insn, m->kind, seed, m->what + used, sizeof m->what - used))
    return GYRE_ERR_UNSUPPORTED;
  struct gy_program *changed;
  gyre_status status = draft_build(&d, &changed);
  if (status != GYRE_OK) return status;
  gy_program_free(m->programs[m->rank]);
  m->programs[m->rank] = changed;
  return GYRE_OK;
}

gyre_status mutant_make(struct mutant *m, const struct gy_algo *algo, int nranks, int root,
                        uint64_t seed) {
  *m = (struct mutant){.nranks = nranks};
  gyre_status status = build_all(m, algo, root, &seed);
  m->rank = (int)pick(&seed, (unsigned)nranks);
  m->kind = (enum mutation)pick(&seed, MUTATION_COUNT);
  if (status == GYRE_OK) status = change_one(m, &seed);
  if (status != GYRE_OK) mutant_free(m);
  return status;
}

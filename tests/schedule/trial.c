/* trial.c - see trial.h. */
#include "trial.h"

#include "operation.h"
#include "verify.h"

gyre_status trial_verify(const struct mutant *m, uint64_t seed) {
  const struct gy_program *const *programs = (const struct gy_program *const *)m->programs;
  for (uint32_t slices = 1; slices <= 3; slices += 2)
    for (uint32_t window = 1; window <= 2; window++) {
      struct gy_verify_options options = {slices, window, 2, seed};
      gyre_status status = gy_verify(programs, m->keys, &options);
      if (status != GYRE_OK) return status;
    }
  return GYRE_OK;
}

/* The key under which the engine looks the program up: a rank that passes no `in` or no `out` is
 * never in place. */
static struct gy_key key_of_call(const struct gy_key *key) {
  struct gy_key k = *key;
  if (!gy_coll_has_both(k.coll, k.rank == k.root)) k.in_place = 0;
  return k;
}

/* Only the changed rank needs its program installed: the others' engines build theirs as they
 * always do. */
static const char *install(const struct mutant *m, const struct gy_algo *algo, struct world *w) {
  struct draft d;
  struct gy_program *copy;
  struct gy_key key = key_of_call(&m->keys[m->rank]);
  draft_load(&d, m->programs[m->rank], &m->keys[m->rank]);
  if (draft_build(&d, &copy)) return gyre_last_error();
  world_algo(w, algo->name);
  world_install(w, m->rank, algo, &key, copy);
  return NULL;
}

static struct operation call_of(const struct mutant *m, uint64_t seed) {
  static const size_t counts[] = {300, 97, 17, 1, 0, 161, 64};
  static const gyre_op ops[] = {GYRE_SUM, GYRE_AVG, GYRE_MAX, GYRE_PROD};
  struct operation o = {.coll = (enum gy_coll)m->keys[0].coll,
                        .op = ops[seed % 4],
                        .nranks = m->nranks,
                        .root = m->keys[0].root,
                        .count = counts[seed % 7]};
  if (o.coll == GY_BARRIER) o.count = 0;
  for (int r = 0; r < m->nranks; r++) o.in_place |= (uint64_t)m->keys[r].in_place << r;
  return o;
}

/* Some ranks post, everything that can happen happens, then the others post. */
static const char *run_barrier(const struct operation *o, struct world *w, uint64_t seed) {
  gyre_request *req[MUTANT_MAX_RANKS] = {NULL};
  unsigned everybody = (1u << o->nranks) - 1,
           late = 1 + (unsigned)(seed * 2654435761u >> 7) % everybody;
  const char *what = NULL;
  int early = 0;
  for (int r = 0; r < o->nranks && !what; r++) {
    if (late >> r & 1) continue;
    if (operation_post(o, w, r, &req[early++])) what = gyre_last_error();
  }
  if (early) world_run(w, req, early); /* a deadlock is what is expected here */
  for (int i = 0; i < early && !what; i++) {
    if (atomic_load(&req[i]->done)) what = "the barrier let a rank go before all had come";
  }
  for (int r = 0; r < o->nranks && !what; r++) {
    if ((late >> r & 1) && operation_post(o, w, r, &req[early++])) what = gyre_last_error();
  }
  if (!what) what = world_run(w, req, o->nranks);
  for (int i = 0; i < o->nranks; i++) gyre_request_free(req[i]);
  return what;
}

static const char *run_seed(const struct mutant *m, const struct gy_algo *algo, uint64_t seed) {
  struct world_config config = {.nranks = m->nranks,
                                .slice_bytes = seed / 7 % 2 ? 64 : 256,
                                .window = 1 + (uint32_t)(seed % 3),
                                .seed = seed};
  struct world *w = world_create(&config);
  struct operation o = call_of(m, seed);
  operation_init(&o);
  const char *what = install(m, algo, w);
  static char text[256];
  if (!what) what = o.coll == GY_BARRIER ? run_barrier(&o, w, seed) : operation_run(&o, w);
  if (what) {
    gy_format(text, sizeof text, "seed %llu, %zu elements, operator %s: %s",
              (unsigned long long)seed, o.count, gyre_op_name(o.op), what);
    what = text; /* the world's own text goes with it */
  }
  operation_free(&o);
  world_free(w);
  return what;
}

const char *trial_engine(const struct mutant *m, const struct gy_algo *algo, uint64_t first,
                         unsigned n) {
  const char *what = NULL;
  for (uint64_t seed = first; seed < first + n && !what; seed++) what = run_seed(m, algo, seed);
  return what;
}

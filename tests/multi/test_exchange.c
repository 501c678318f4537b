/*
 * test_exchange.c - the collectives whose blocks differ in length, over TCP, 1 to 8 ranks in
 * processes of their own: every algorithm, several types, uneven and empty blocks of up to many
 * slices, packed, out of order and with gaps, in and out of place, against an oracle; counts that do
 * not fit; arguments that are refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ranks.h"
#include "schedule.h"

#define MAX_RANKS 8
#define POISON 0x5A

struct shape {
  enum gy_coll coll;
  gyre_dtype type;
  int root;
  size_t base; /* blocks have from none to 3/2 of it */
  bool in_place, gaps;
};

struct side { /* a buffer, by rank in elements */
  size_t count[MAX_RANKS], at[MAX_RANKS], total;
  char *base;
};

static bool is(const struct rank_env *env, const struct shape *s, enum gy_buf buf,
               enum gy_share share) {
  return gy_coll_share(s->coll, buf, env->rank == s->root) == share;
}

/* Ranks that are in place get as much as they give. */
static size_t length(const struct shape *s, int from, int to) {
  bool pairs = s->coll == GY_ALL_TO_ALL_V, swap = pairs && s->in_place && to < from;
  int a = swap ? to : from, b = !pairs ? 0 : swap ? from : to;
  return s->base * (unsigned)((a * 7 + b * 3 + 1) % 4) / 2;
}

static unsigned value(int from, int to, size_t i) {
  return (unsigned)(((size_t)from * 31 + (size_t)to * 17 + i * 7) % 6);
}

static void store(gyre_dtype type, void *at, size_t i, unsigned v) {
  switch (type) {
    case GYRE_F32: ((float *)at)[i] = (float)v; break;
    case GYRE_F64: ((double *)at)[i] = v; break;
    case GYRE_I16: ((int16_t *)at)[i] = (int16_t)v; break;
    case GYRE_I64: ((int64_t *)at)[i] = v; break;
    default: ((uint8_t *)at)[i] = (uint8_t)v;
  }
}

/* With gaps the blocks stand in reverse order. */
static void lay_out(const struct rank_env *env, const struct shape *s, enum gy_buf buf,
                    struct side *side) {
  side->total = s->gaps ? 3 : 0;
  for (int k = 0; k < env->nranks; k++) {
    int r = s->gaps ? env->nranks - 1 - k : k;
    side->count[r] = s->coll != GY_ALL_TO_ALL_V ? length(s, r, r)
                     : buf == GY_IN             ? length(s, env->rank, r)
                                                : length(s, r, env->rank);
    side->at[r] = side->total;
    side->total += side->count[r] + (s->gaps ? 5 : 0);
  }
}

static void fill(gyre_dtype type, char *at, size_t n, int from, int to) {
  for (size_t i = 0; i < n; i++) store(type, at, i, value(from, to, i));
}

static void fill_input(const struct rank_env *env, const struct shape *s, const struct side *in,
                       char *own) {
  size_t esize = gyre_dtype_size(s->type);
  if (is(env, s, GY_IN, GY_OWN_BLOCK)) fill(s->type, own, length(s, env->rank, 0), env->rank, 0);
  for (int r = 0; r < env->nranks && is(env, s, GY_IN, GY_ALL); r++)
    fill(s->type, in->base + in->at[r] * esize, in->count[r], env->rank, r);
}

static void expect(const struct rank_env *env, const struct shape *s, const struct side *out,
                   char *want) {
  size_t esize = gyre_dtype_size(s->type), own = length(s, env->rank, 0);
  switch (s->coll) {
    case GY_REDUCE_SCATTER_V:
      for (size_t i = 0; i < own; i++) {
        unsigned sum = 0;
        for (int q = 0; q < env->nranks; q++) sum += value(q, env->rank, i);
        store(s->type, want, i, sum);
      }
      break;
    case GY_SCATTER_V: fill(s->type, want, own, s->root, env->rank); break;
    default:
      for (int r = 0; r < env->nranks && is(env, s, GY_OUT, GY_ALL); r++)
        fill(s->type, want + out->at[r] * esize, out->count[r], r,
             s->coll == GY_ALL_TO_ALL_V ? env->rank : 0);
  }
}

static gyre_status call(const struct rank_env *env, const struct shape *s, const struct side *in,
                        const struct side *out) {
  gyre_comm *c = env->comm;
  const size_t *in_at = s->gaps ? in->at : NULL, *out_at = s->gaps ? out->at : NULL;
  size_t own = length(s, env->rank, 0);
  switch (s->coll) {
    case GY_ALL_GATHER_V:
      return gyre_all_gather_v(c, in->base, out->base, out->count, out_at, s->type);
    case GY_REDUCE_SCATTER_V:
      return gyre_reduce_scatter_v(c, in->base, out->base, in->count, in_at, s->type, GYRE_SUM);
    case GY_ALL_TO_ALL_V:
      return gyre_all_to_all_v(c, in->base, in->count, in_at, out->base, out->count, out_at, s->type);
    case GY_GATHER_V:
      return gyre_gather_v(c, in->base, own, out->base, out->count, out_at, s->type, s->root);
    default: return gyre_scatter_v(c, in->base, in->count, in_at, out->base, own, s->type, s->root);
  }
}

static int run_shape(struct rank_env *env, const struct shape *s) {
  struct side in, out;
  size_t esize = gyre_dtype_size(s->type), own = length(s, env->rank, 0);
  lay_out(env, s, GY_IN, &in);
  lay_out(env, s, GY_OUT, &out);
  bool own_in = gy_coll_share(s->coll, GY_IN, true) == GY_OWN_BLOCK,
       own_out = gy_coll_share(s->coll, GY_OUT, true) == GY_OWN_BLOCK;
  size_t in_bytes = (own_in ? own : in.total) * esize,
         out_bytes = (own_out ? own : out.total) * esize;
  char *memory[2] = {malloc(in_bytes + 1), malloc(out_bytes + 1)}, *want = malloc(out_bytes + 1),
       *before = malloc(in_bytes + 1);
  memset(memory[GY_IN], POISON, in_bytes + 1);
  memset(memory[GY_OUT], POISON, out_bytes + 1);
  in.base = memory[GY_IN];
  out.base = memory[GY_OUT];
  if (s->in_place && own_in) in.base = out.base + out.at[env->rank] * esize;
  if (s->in_place && own_out) out.base = in.base + in.at[env->rank] * esize;
  if (s->in_place && !own_in && !own_out) out.base = in.base;
  fill_input(env, s, &in, in.base);
  memcpy(before, memory[GY_IN], in_bytes + 1);
  memcpy(want, out.base, out_bytes);
  expect(env, s, &out, want);
  int failed = 0;
  if (call(env, s, &in, &out)) {
    failed = RANK_FAIL(env, "%s: %s", gy_coll_name(s->coll), gyre_last_error());
  } else if (memcmp(out.base, want, out_bytes)) {
    failed = RANK_FAIL(env, "%s %s root %d base %zu%s%s: wrong result, or a gap was written",
                       gy_coll_name(s->coll), gyre_dtype_name(s->type), s->root, s->base,
                       s->in_place ? " in place" : "", s->gaps ? " with gaps" : "");
  } else if (!s->in_place && memcmp(memory[GY_IN], before, in_bytes + 1)) {
    failed = RANK_FAIL(env, "%s: the input was written", gy_coll_name(s->coll));
  }
  free(memory[GY_IN]);
  free(memory[GY_OUT]);
  free(want);
  free(before);
  return failed;
}

/* ---------------------------------------------------------------------------------------- cases --- */

static int every_shape(struct rank_env *env, enum gy_coll coll) {
  static const size_t bases[] = {0, 1, 7, 61, 5003};
  static const gyre_dtype types[] = {GYRE_U8, GYRE_F32, GYRE_I16, GYRE_I64, GYRE_F64};
  int failed = 0;
  for (size_t k = 0; k < 5; k++)
    for (unsigned bits = 0; bits < 4 && !failed; bits++) {
      struct shape s = {.coll = coll,
                        .type = types[(k + bits) % 5],
                        .base = bases[k],
                        .in_place = bits & 1,
                        .gaps = bits & 2};
      if (gy_coll_traits(coll)->rooted) s.root = (int)(k + bits) % env->nranks;
      failed = run_shape(env, &s);
    }
  return failed;
}

static int every_algorithm(struct rank_env *env) {
  size_t n_algo;
  const struct gy_algo *const *algos = gy_algorithms(&n_algo);
  struct rank_env own = *env;
  int failed = 0;
  for (size_t a = 0; a < n_algo && !failed; a++) {
    char text[64];
    gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
    if (gy_coll_traits(algos[a]->coll)->layout != GY_VARY) continue;
    snprintf(text, sizeof text, "%s=%s", gy_coll_name(algos[a]->coll), algos[a]->name);
    config.algo = text;
    config.slice_bytes = 4096;
    config.rendezvous = env->rendezvous;
    if (gyre_comm_create(env->ctx, env->rank, env->nranks, &config, &own.comm))
      return RANK_FAIL(env, "%s: %s", text, gyre_last_error());
    failed = every_shape(&own, (enum gy_coll)algos[a]->coll);
    gyre_comm_destroy(own.comm);
  }
  return failed;
}

static void test_algorithms_and_shapes(void **state) {
  (void)state;
  for (int n = 1; n <= MAX_RANKS; n = ranks_next(n))
    assert_int_equal(ranks_run(n, every_algorithm, NULL), 0);
}

/* ------------------------------------------------------------------------------------ mismatch --- */

struct wrong_count {
  enum gy_coll coll;
  const char *algo;
  size_t count, other; /* of the block that rank 2 shares with rank 1; as rank 2 has it */
  bool even_total;     /* rank 2 makes up for it elsewhere */
};

static gyre_status call_with_wrong_count(const struct rank_env *env, const struct wrong_count *w) {
  size_t in[3] = {4, 4, 4}, out[3] = {4, 4, 4}, n = 4;
  char *a = calloc(8, (size_t)1 << 18), *b = calloc(8, (size_t)1 << 18);
  gyre_comm *c = env->comm;
  gyre_status st;
  if (w->coll == GY_ALL_TO_ALL_V && env->rank == 1) in[2] = w->count;
  if (w->coll == GY_ALL_TO_ALL_V && env->rank == 2) out[1] = w->other;
  if (w->coll != GY_ALL_TO_ALL_V) in[1] = out[1] = env->rank == 2 ? w->other : w->count;
  if (env->rank == 2 && w->even_total) {
    in[0] += w->count - w->other;
    out[0] = in[0];
  }
  if (env->rank == 1) n = w->count;
  switch (w->coll) {
    case GY_ALL_GATHER_V: st = gyre_all_gather_v(c, a, b, out, NULL, GYRE_F32); break;
    case GY_REDUCE_SCATTER_V:
      st = gyre_reduce_scatter_v(c, a, b, in, NULL, GYRE_F32, GYRE_SUM);
      break;
    case GY_ALL_TO_ALL_V: st = gyre_all_to_all_v(c, a, in, NULL, b, out, NULL, GYRE_F32); break;
    case GY_GATHER_V: st = gyre_gather_v(c, a, n, b, out, NULL, GYRE_F32, 2); break;
    default: st = gyre_scatter_v(c, a, in, NULL, b, n, GYRE_F32, 2);
  }
  for (int ms = 0; !st && ms < 20000;
       ms += 5) { /* who needed nothing that was wrong learns it as well */
    gyre_error verdict = GYRE_ERROR_INIT;
    st = gyre_comm_status(c, &verdict);
    usleep(5000);
  }
  free(a);
  free(b);
  return st;
}

static bool names_both(const char *text, char counts[2][32]) {
  return strstr(text, counts[0]) && strstr(text, counts[1]);
}

static int learn_of_wrong_count(struct rank_env *env) {
  const struct wrong_count *w = env->arg;
  char counts[2][32];
  if (gyre_barrier(env->comm)) return RANK_FAIL(env, "barrier: %s", gyre_last_error());
  gyre_status st = call_with_wrong_count(env, w);
  gyre_error verdict = GYRE_ERROR_INIT;
  gyre_comm_status(env->comm, &verdict);
  snprintf(counts[0], sizeof counts[0], "f32 x %zu", w->count);
  snprintf(counts[1], sizeof counts[1], "f32 x %zu", w->other);
  if (!w->even_total && (w->coll == GY_ALL_GATHER_V || w->coll == GY_REDUCE_SCATTER_V)) {
    snprintf(counts[0], sizeof counts[0], "f32 x %zu", w->count + 8); /* of all blocks */
    snprintf(counts[1], sizeof counts[1], "f32 x %zu", w->other + 8);
  }
  bool told = names_both(verdict.text, counts);
  if (!told && w->even_total) { /* rank 0's block differs as well, and may come first */
    snprintf(counts[0], sizeof counts[0], "f32 x 4");
    snprintf(counts[1], sizeof counts[1], "f32 x %zu", 4 + w->count - w->other);
    told = names_both(verdict.text, counts);
  }
  if (st == GYRE_ERR_MISMATCH && verdict.status == GYRE_ERR_MISMATCH && told &&
      strstr(verdict.text, "rank 2"))
    return 0;
  return RANK_FAIL(env, "%s: %s, not a mismatch of %s and %s: %s", gy_coll_name(w->coll),
                   gyre_status_name(st), counts[0], counts[1], verdict.text);
}

static void test_counts_that_do_not_fit(void **state) {
  (void)state;
  static const size_t pairs[][2] = {{5, 9}, {7, 0}, {0, 3}, {200000, 199999}, {3, 200000}};
  static const enum gy_coll colls[] = {GY_ALL_GATHER_V, GY_REDUCE_SCATTER_V, GY_ALL_TO_ALL_V,
                                       GY_GATHER_V, GY_SCATTER_V};
  for (size_t c = 0; c < 5; c++)
    for (size_t k = 0; k < 5; k++) {
      bool both = colls[c] == GY_ALL_GATHER_V || colls[c] == GY_REDUCE_SCATTER_V;
      struct wrong_count w = {.coll = colls[c],
                              .count = pairs[k][0],
                              .other = pairs[k][1],
                              .even_total = both && pairs[k][0] == 5};
      if (w.even_total) w.other = 8; /* what is left for rank 0 stays positive */
      gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
      config.algo = k % 2 ? "direct" : "ring";
      struct ranks_options options = {.config = &config, .arg = &w};
      assert_int_equal(ranks_run(3, learn_of_wrong_count, &options), 0);
    }
}

/* ----------------------------------------------------------------------------------- arguments --- */

#define REFUSED(env, text, ...)                                                     \
  do {                                                                              \
    if ((__VA_ARGS__) != GYRE_ERR_ARG || strstr(gyre_last_error(), text) == NULL)   \
      return RANK_FAIL(env, "line %d: not refused with \"%s\": %s", __LINE__, text, \
                       gyre_last_error());                                          \
  } while (0)

static int wrong_arguments(struct rank_env *env) {
  gyre_comm *c = env->comm;
  gyre_request *req;
  int32_t in[16] = {0}, out[16] = {0};
  size_t two[2] = {2, 2}, three[2] = {3, 2}, huge[2] = {1, SIZE_MAX / 4}, overlapping[2] = {1, 0},
         apart[2] = {2, 0}, far[2] = {0, SIZE_MAX};
  REFUSED(env, "counts of out are NULL", gyre_all_gather_v(c, in, out, NULL, NULL, GYRE_I32));
  REFUSED(env, "counts of in are NULL",
          gyre_all_to_all_v(c, in, NULL, NULL, out, two, NULL, GYRE_I32));
  REFUSED(env, "overlap in out", gyre_all_gather_v(c, in, out, two, overlapping, GYRE_I32));
  REFUSED(env, "address space", gyre_all_gather_v(c, in, out, huge, NULL, GYRE_I32));
  REFUSED(env, "address space", gyre_all_gather_v(c, in, out, two, far, GYRE_I32));
  REFUSED(env, "address space", gyre_reduce_scatter_v(c, in, out, huge, NULL, GYRE_I32, GYRE_SUM));
  REFUSED(env, "overlap in part", gyre_all_gather_v(c, out + 1, out, two, apart, GYRE_I32));
  REFUSED(env, "overlap in part", gyre_all_to_all(c, out + 1, out, 2, GYRE_I32));
  REFUSED(env, "in place", gyre_all_to_all_v(c, in, two, NULL, in, two, apart, GYRE_I32));
  REFUSED(env, "overlap in in",
          gyre_reduce_scatter_v(c, in, in + overlapping[env->rank], two, overlapping, GYRE_I32,
                                GYRE_SUM));
  REFUSED(env, "out is NULL", gyre_all_gather_v(c, in, NULL, two, NULL, GYRE_I32));
  REFUSED(env, "block for itself", gyre_gather_v(c, in, 1, out, two, NULL, GYRE_I32, env->rank));
  REFUSED(env, "block for itself", gyre_scatter_v(c, in, two, NULL, out, 1, GYRE_I32, env->rank));
  if (env->rank == 0)
    REFUSED(env, "block for itself", gyre_all_to_all_v(c, in, two, NULL, out, three, NULL, GYRE_I32));
  REFUSED(env, "the request is NULL", gyre_all_gather_v_async(c, in, out, two, NULL, GYRE_I32, NULL));
  REFUSED(env, "communicator is NULL", gyre_gather_v(NULL, in, 1, out, two, NULL, GYRE_I32, 0));
  REFUSED(env, "root 2", gyre_scatter_v(c, in, two, NULL, out, 2, GYRE_I32, 2));
  /* Nothing of that has taken a place in the order. The arrays are the caller's again at once. */
  in[0] = env->rank + 1;
  if (gyre_all_gather_v_async(c, in, out, two, apart, GYRE_I32, &req))
    return RANK_FAIL(env, "%s", gyre_last_error());
  two[0] = apart[0] = SIZE_MAX;
  if (gyre_wait(req, -1) || out[2] != 1 || out[0] != 2) return RANK_FAIL(env, "wrong result");
  int32_t own[4] = {7, 8, 9, 10}, got[2] = {0, 0};
  if (gyre_scatter(c, own, env->rank == 0 ? NULL : got, 2, GYRE_I32, 0) ||
      (env->rank == 1 && got[1] != 10))
    return RANK_FAIL(env, "a root without out: %s", gyre_last_error());
  return 0;
}

static void test_arguments(void **state) {
  (void)state;
  assert_int_equal(ranks_run(2, wrong_arguments, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_algorithms_and_shapes),
      cmocka_unit_test(test_counts_that_do_not_fit),
      cmocka_unit_test(test_arguments),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

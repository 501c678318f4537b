/*
 * test_operators.c - created operators over TCP, 1 to 8 ranks in processes of their own: operators
 * that are not commutative by every algorithm that keeps the order of ranks and for every root,
 * commutative ones by all, premultiplied sums; against oracles. And the rules of creating, using
 * and freeing them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ranks.h"
#include "reduce.h"
#include "schedule.h"

#define LENGTH(a) (sizeof(a) / sizeof *(a))

/* --------------------------------------------------------------------------------- operators --- */

struct seen { /* what a function noticed */
  unsigned calls, unaligned, wrong_type, not_refused;
  gyre_context *ctx;
  gyre_comm *comm;
};

static void look(struct seen *s, const void *dst, const void *left, const void *right,
                 size_t alignment) {
  uintptr_t bits = (uintptr_t)dst | (uintptr_t)left | (uintptr_t)right;
  s->calls++;
  s->unaligned += bits % alignment != 0;
}

/* The map x -> a x + b, modulo 2^32. */
struct map {
  uint32_t a, b;
};

static struct map composed(struct map f, struct map g) {
  return (struct map){f.a * g.a, f.a * g.b + f.b};
}

static void compose(void *dst, const void *left, const void *right, size_t count, gyre_dtype type,
                    void *user) {
  struct map *d = dst;
  const struct map *f = left, *g = right;
  struct seen *s = user;
  look(s, dst, left, right, _Alignof(struct map));
  s->wrong_type += type != GYRE_I32_I32;
  for (size_t i = 0; i < count; i++) d[i] = composed(f[i], g[i]);
}

/* 2x2 matrices modulo 2^16. */
static uint64_t product(uint64_t x, uint64_t y) {
  uint32_t p[4], q[4];
  uint64_t all = 0;
  for (int i = 0; i < 4; i++) {
    p[i] = (uint32_t)(x >> 16 * i) & 0xffff;
    q[i] = (uint32_t)(y >> 16 * i) & 0xffff;
  }
  for (int row = 0; row < 2; row++)
    for (int column = 0; column < 2; column++) {
      uint32_t v = p[2 * row] * q[column] + p[2 * row + 1] * q[2 + column];
      all |= (uint64_t)(v & 0xffff) << 16 * (2 * row + column);
    }
  return all;
}

static void multiply(void *dst, const void *left, const void *right, size_t count, gyre_dtype type,
                     void *user) {
  uint64_t *d = dst;
  const uint64_t *x = left, *y = right;
  struct seen *s = user;
  look(s, dst, left, right, _Alignof(uint64_t));
  s->wrong_type += type != GYRE_U64;
  for (size_t i = 0; i < count; i++) d[i] = product(x[i], y[i]);
}

/* Commutative: x + y + 1. */
static void add_and_one(void *dst, const void *left, const void *right, size_t count,
                        gyre_dtype type, void *user) {
  uint16_t *d = dst;
  const uint16_t *x = left, *y = right;
  struct seen *s = user;
  look(s, dst, left, right, _Alignof(uint16_t));
  s->wrong_type += type != GYRE_U16;
  for (size_t i = 0; i < count; i++) d[i] = (uint16_t)(x[i] + y[i] + 1);
}

/* -------------------------------------------------------------------------------------- data --- */

enum kind { MAPS, MATRICES, PLUS_ONE };

static gyre_dtype type_of(enum kind kind) {
  return kind == MAPS ? GYRE_I32_I32 : kind == MATRICES ? GYRE_U64 : GYRE_U16;
}

static uint64_t input(enum kind kind, int rank, size_t i) {
  uint64_t x = (i + 1) * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)rank * UINT64_C(0xd1342543de82ef95);
  x ^= x >> 29;
  return kind == PLUS_ONE ? x & 0xffff : x | 1;
}

static uint64_t combine(enum kind kind, uint64_t x, uint64_t y) {
  struct map f, g;
  switch (kind) {
    case MATRICES: return product(x, y);
    case PLUS_ONE: return (x + y + 1) & 0xffff;
    default:
      memcpy(&f, &x, sizeof f);
      memcpy(&g, &y, sizeof g);
      f = composed(f, g);
      memcpy(&x, &f, sizeof x);
      return x;
  }
}

static uint64_t expected(enum kind kind, int nranks, size_t i) {
  uint64_t v = input(kind, 0, i);
  for (int r = 1; r < nranks; r++) v = combine(kind, v, input(kind, r, i));
  return v;
}

/* ---------------------------------------------------------------------------------- one call --- */

struct shape {
  enum gy_coll coll;
  enum kind kind;
  gyre_op op;
  int root;
  size_t count, shift; /* shift: bytes by which the buffers are off their alignment */
  bool in_place;
};

static bool in_blocks(enum gy_coll coll) {
  return coll == GY_REDUCE_SCATTER || coll == GY_REDUCE_SCATTER_V;
}

static gyre_status reduce_by(gyre_comm *c, const struct shape *s, gyre_dtype type, const void *in,
                             void *out) {
  size_t counts[8], displs[8];
  switch (s->coll) {
    case GY_REDUCE: return gyre_reduce(c, in, out, s->count, type, s->op, s->root);
    case GY_REDUCE_SCATTER: return gyre_reduce_scatter(c, in, out, s->count, type, s->op);
    case GY_REDUCE_SCATTER_V:
      for (int r = 0; r < gyre_comm_size(c); r++) counts[r] = displs[r] = s->count;
      for (int r = 0; r < gyre_comm_size(c); r++) displs[r] *= (size_t)r;
      return gyre_reduce_scatter_v(c, in, out, counts, displs, type, s->op);
    case GY_SCAN: return gyre_scan(c, in, out, s->count, type, s->op);
    case GY_EXCLUSIVE_SCAN: return gyre_exclusive_scan(c, in, out, s->count, type, s->op);
    default: return gyre_all_reduce(c, in, out, s->count, type, s->op);
  }
}

/* So many, from rank 0 on, make up this rank's result. */
static int combined_ranks(const struct rank_env *env, enum gy_coll coll) {
  return coll == GY_SCAN ? env->rank + 1 : coll == GY_EXCLUSIVE_SCAN ? env->rank : env->nranks;
}

static int run_shape(struct rank_env *env, const struct shape *s) {
  gyre_dtype type = type_of(s->kind);
  size_t esize = gyre_dtype_size(type), blocks = in_blocks(s->coll) ? (size_t)env->nranks : 1;
  size_t ins = s->count * blocks, first = blocks > 1 ? s->count * (size_t)env->rank : 0;
  char *memory = calloc(ins + s->count + 4, esize), *in = memory + s->shift;
  char *out = s->in_place ? in + first * esize : in + (ins + 1) * esize;
  int failed = 0;
  for (size_t i = 0; i < ins; i++) {
    uint64_t v = input(s->kind, env->rank, i);
    memcpy(in + i * esize, &v, esize);
  }
  if (reduce_by(env->comm, s, type, in, out)) failed = RANK_FAIL(env, "%s", gyre_last_error());
  int ranks = combined_ranks(env, s->coll); /* 0: a function has no identity */
  bool has_out = ranks > 0 && (s->coll != GY_REDUCE || env->rank == s->root);
  for (size_t i = 0; i < s->count && has_out && !failed; i++) {
    uint64_t want = expected(s->kind, ranks, first + i);
    if (memcmp(out + i * esize, &want, esize))
      failed = RANK_FAIL(env, "%s root %d count %zu, kind %d: element %zu is wrong",
                         gy_coll_name(s->coll), s->root, s->count, s->kind, i);
  }
  for (size_t i = 0; i < ins && !s->in_place && !failed; i++) {
    uint64_t was = input(s->kind, env->rank, i);
    if (memcmp(in + i * esize, &was, esize)) failed = RANK_FAIL(env, "the input was written");
  }
  free(memory);
  return failed;
}

static int every_size(struct rank_env *env, struct shape s) {
  static const size_t counts[] = {0, 1, 7, 1031};
  int failed = 0, roots = s.coll == GY_REDUCE ? env->nranks : 1;
  for (s.root = 0; s.root < roots; s.root++)
    for (size_t k = 0; k < LENGTH(counts) && !failed; k++) {
      if (!ranks_take(k, 4, (size_t)s.root + (size_t)s.kind + (size_t)env->nranks)) continue;
      s.count = counts[k];
      s.shift = k;
      s.in_place = (k + (size_t)env->rank) % 2; /* ranks may differ in it */
      failed = run_shape(env, &s);
    }
  return failed;
}

/* ---------------------------------------------------------------------------- each algorithm --- */

static bool reduces(enum gy_coll coll) { /* by any operator */
  return gy_coll_traits(coll)->reduces && !gy_coll_traits(coll)->weighted;
}

/* An algorithm that was named, but does not keep the order. */
static int refusal(struct rank_env *env, struct shape s) {
  uint64_t in[16] = {0}, out[16];
  s.count = 1;
  gyre_status st = reduce_by(env->comm, &s, type_of(s.kind), in, out);
  if (st == GYRE_ERR_ARG && strstr(gyre_last_error(), "order of ranks") != NULL) return 0;
  return RANK_FAIL(env, "%s: %d %s", gy_coll_name(s.coll), st, gyre_last_error());
}

static int by_algorithm(struct rank_env *env, const struct gy_algo *algo) {
  enum gy_coll coll = (enum gy_coll)algo->coll;
  struct seen seen = {0};
  struct shape maps = {.coll = coll, .kind = MAPS}, matrices = {.coll = coll, .kind = MATRICES},
               plus = {.coll = coll, .kind = PLUS_ONE};
  if (gyre_op_create(env->comm, compose, &seen, 0, &maps.op) ||
      gyre_op_create(env->comm, multiply, &seen, 0, &matrices.op) ||
      gyre_op_create(env->comm, add_and_one, &seen, GYRE_OP_COMMUTATIVE, &plus.op))
    return RANK_FAIL(env, "%s", gyre_last_error());
  bool keeps = algo->ordered || env->nranks == 1;
  int failed = keeps ? every_size(env, maps) : refusal(env, maps);
  if (!failed) failed = keeps ? every_size(env, matrices) : refusal(env, matrices);
  if (!failed) failed = every_size(env, plus);
  if (seen.unaligned || seen.wrong_type)
    failed =
        RANK_FAIL(env, "%u calls unaligned, %u of a wrong type", seen.unaligned, seen.wrong_type);
  if (env->nranks == 1 && seen.calls) failed = RANK_FAIL(env, "%u calls with one rank", seen.calls);
  return failed;
}

static int every_algorithm(struct rank_env *env) {
  size_t n;
  const struct gy_algo *const *algos = gy_algorithms(&n);
  struct rank_env own = *env;
  int failed = 0;
  for (size_t a = 0; a < n && !failed; a++) {
    char text[64];
    gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
    if (!reduces((enum gy_coll)algos[a]->coll)) continue;
    snprintf(text, sizeof text, "%s=%s", gy_coll_name(algos[a]->coll), algos[a]->name);
    config.algo = text;
    config.slice_bytes = 1024;
    config.rendezvous = env->rendezvous;
    if (gyre_comm_create(env->ctx, env->rank, env->nranks, &config, &own.comm))
      return RANK_FAIL(env, "%s: %s", text, gyre_last_error());
    failed = by_algorithm(&own, algos[a]);
    if (failed) fprintf(stderr, "algorithm %s\n", text);
    gyre_comm_destroy(own.comm);
  }
  return failed;
}

static void test_every_algorithm(void **state) {
  (void)state;
  for (int n = 1; n <= 8; n = ranks_next(n))
    assert_int_equal(ranks_run(n, every_algorithm, NULL), 0);
}

/* The cost model finds one by itself, at every size. */
static int chosen_by_size(struct rank_env *env) {
  static const enum gy_coll colls[] = {GY_ALL_REDUCE, GY_REDUCE, GY_REDUCE_SCATTER};
  static const size_t counts[] = {1, 1000, 200003};
  struct seen seen = {0};
  struct shape s = {.kind = MAPS};
  int failed = 0;
  if (gyre_op_create(env->comm, compose, &seen, 0, &s.op))
    return RANK_FAIL(env, "%s", gyre_last_error());
  for (size_t c = 0; c < LENGTH(colls); c++)
    for (size_t k = 0; k < LENGTH(counts) && !failed; k++) {
      s.coll = colls[c];
      s.count = colls[c] == GY_REDUCE_SCATTER ? counts[k] / 3 : counts[k];
      s.root = (int)k % env->nranks;
      failed = run_shape(env, &s);
    }
  return failed;
}

static void test_choice(void **state) {
  (void)state;
  for (int n = 2; n <= 5; n += 3) assert_int_equal(ranks_run(n, chosen_by_size, NULL), 0);
}

/* ------------------------------------------------------------------------- premultiplied sum --- */

static void put(gyre_dtype type, void *at, size_t i, double v) {
  switch (type) {
    case GYRE_F32: ((float *)at)[i] = (float)v; break;
    case GYRE_F64: ((double *)at)[i] = v; break;
    case GYRE_F16: ((uint16_t *)at)[i] = gy_f32_to_f16((float)v); break;
    default: ((uint16_t *)at)[i] = gy_f32_to_bf16((float)v);
  }
}

static double whole(int rank, size_t i) { return (double)((i * 7 + (size_t)rank * 3) % 7) - 3; }

static double factor(int rank) { return (rank + 1) * (rank % 3 == 2 ? -0.5 : 0.5); }

/* Exact in every type: all are small multiples of a half. */
static int premultiplied(struct rank_env *env, enum gy_coll coll, gyre_dtype type, gyre_op op,
                         size_t count, bool in_place) {
  size_t esize = gyre_dtype_size(type), blocks = in_blocks(coll) ? (size_t)env->nranks : 1;
  size_t ins = count * blocks, first = blocks > 1 ? count * (size_t)env->rank : 0;
  char *memory = calloc(2 * ins + 3 * count + 1, esize), *in = memory, *was = in + ins * esize;
  char *want = was + ins * esize, *out = want + count * esize;
  struct shape s = {.coll = coll, .op = op, .root = (int)count % env->nranks, .count = count};
  bool has_out = coll != GY_REDUCE || env->rank == s.root;
  int failed = 0;
  if (in_place) out = in + first * esize;
  for (size_t i = 0; i < ins; i++) put(type, in, i, whole(env->rank, i));
  memcpy(was, in, ins * esize);
  for (size_t i = 0; i < count; i++) {
    double sum = 0;
    for (int r = 0; r < combined_ranks(env, coll); r++) sum += factor(r) * whole(r, first + i);
    put(type, want, i, sum);
  }
  if (reduce_by(env->comm, &s, type, in, has_out ? out : NULL))
    failed = RANK_FAIL(env, "%s: %s", gy_coll_name(coll), gyre_last_error());
  for (size_t i = 0; i < count && has_out && !failed; i++) {
    static const char zero[2][8] = {{0}, {0}};
    char *got = out + i * esize;
    bool minus_zero = !memcmp(want + i * esize, zero[0], esize) && (got[esize - 1] & 0x7f) == 0 &&
                      !memcmp(got, zero[1], esize - 1);
    if (memcmp(got, want + i * esize, esize) && !minus_zero)
      failed = RANK_FAIL(env, "premultiplied %s %s count %zu%s: element %zu is wrong",
                         gy_coll_name(coll), gyre_dtype_name(type), count,
                         in_place ? " in place" : "", i);
  }
  bool keeps = !in_place || !has_out;
  if (keeps && !failed && memcmp(in, was, ins * esize))
    failed = RANK_FAIL(env, "the input was written");
  free(memory);
  return failed;
}

static int premultiplied_sums(struct rank_env *env) {
  static const gyre_dtype types[] = {GYRE_F32, GYRE_F64, GYRE_F16, GYRE_BF16};
  static const size_t counts[] = {0, 1, 7, 1031, 50021};
  static const enum gy_coll colls[] = {GY_ALL_REDUCE,       GY_REDUCE, GY_REDUCE_SCATTER,
                                       GY_REDUCE_SCATTER_V, GY_SCAN,   GY_EXCLUSIVE_SCAN};
  gyre_op op;
  int failed = 0;
  if (gyre_op_create_premul_sum(env->comm, factor(env->rank), &op))
    return RANK_FAIL(env, "%s", gyre_last_error());
  for (size_t t = 0; t < LENGTH(types); t++)
    for (size_t c = 0; c < LENGTH(colls); c++)
      for (size_t k = 0; k < LENGTH(counts) && !failed; k++)
        if (ranks_take(k, 5, t + c + (size_t)env->nranks))
          failed = premultiplied(env, colls[c], types[t], op, counts[k], (k + t) % 2);
  int32_t integer = 1;
  if (!failed && gyre_all_reduce(env->comm, &integer, &integer, 1, GYRE_I32, op) != GYRE_ERR_ARG)
    failed = RANK_FAIL(env, "a premultiplied sum of integers");
  return failed;
}

static void test_premultiplied_sum(void **state) {
  (void)state;
  for (int n = 1; n <= 8; n = ranks_next(n))
    assert_int_equal(ranks_run(n, premultiplied_sums, NULL), 0);
}

/* ------------------------------------------------------------------------------------- rules --- */

static int mixed_up(struct rank_env *env) {
  struct seen seen = {0};
  gyre_op a, b;
  uint16_t in = 1, out = 0;
  if (gyre_op_create(env->comm, add_and_one, &seen, GYRE_OP_COMMUTATIVE, &a) ||
      gyre_op_create(env->comm, add_and_one, &seen, GYRE_OP_COMMUTATIVE, &b) || a == b)
    return RANK_FAIL(env, "%s", gyre_last_error());
  gyre_status st = gyre_all_reduce(env->comm, &in, &out, 1, GYRE_U16, env->rank == 0 ? a : b);
  if (st != GYRE_ERR_MISMATCH || !strstr(gyre_last_error(), "user"))
    return RANK_FAIL(env, "%s: %s", gyre_status_name(st), gyre_last_error());
  return 0;
}

static void test_mismatch(void **state) {
  (void)state;
  for (int n = 2; n <= 3; n++) assert_int_equal(ranks_run(n, mixed_up, NULL), 0);
}

/* Tries what is forbidden; counts what is not refused. */
static void meddle(void *dst, const void *left, const void *right, size_t count, gyre_dtype type,
                   void *user) {
  struct seen *s = user;
  gyre_request *req = NULL;
  gyre_op op;
  gyre_comm *comm = NULL;
  gyre_unique_id id;
  s->not_refused += gyre_barrier(s->comm) != GYRE_ERR_STATE;
  s->not_refused += gyre_barrier_async(s->comm, &req) != GYRE_ERR_STATE;
  s->not_refused += gyre_send(s->comm, NULL, 0, type, 0) != GYRE_ERR_STATE;
  s->not_refused += gyre_recv_async(s->comm, NULL, 0, type, 0, &req) != GYRE_ERR_STATE;
  s->not_refused += gyre_op_create(s->comm, meddle, s, 0, &op) != GYRE_ERR_STATE;
  s->not_refused += gyre_op_create_premul_sum(s->comm, 1, &op) != GYRE_ERR_STATE;
  s->not_refused += gyre_op_free(s->comm, GYRE_OP_CREATED_FIRST) != GYRE_ERR_STATE;
  s->not_refused += gyre_comm_abort(s->comm, "never") != GYRE_ERR_STATE;
  s->not_refused += gyre_comm_create(s->ctx, 0, 1, NULL, &comm) != GYRE_ERR_STATE;
  s->not_refused += gyre_comm_dup_async(s->comm, &comm, &req) != GYRE_ERR_STATE;
  s->not_refused += gyre_comm_split(s->comm, 0, 0, &comm) != GYRE_ERR_STATE;
  s->not_refused += gyre_comm_dump(s->comm, "/dev/null") != GYRE_ERR_STATE;
  s->not_refused += gyre_progress(s->ctx) != GYRE_ERR_STATE;
  s->not_refused += gyre_unique_id_create(s->ctx, &id) != GYRE_ERR_STATE;
  gyre_comm_destroy(s->comm);
  gyre_context_destroy(s->ctx);
  add_and_one(dst, left, right, count, type, user);
}

static int rules(struct rank_env *env) {
  struct seen seen = {.ctx = env->ctx, .comm = env->comm};
  gyre_op op, many[64], extra = GYRE_SUM;
  uint16_t in = 5, out = 0, want = (uint16_t)(5 * env->nranks + env->nranks - 1);
  gyre_request *req;
  gyre_comm *c = env->comm;
  if (gyre_op_create(c, meddle, &seen, GYRE_OP_COMMUTATIVE, &op))
    return RANK_FAIL(env, "%s", gyre_last_error());
  if (gyre_all_reduce(c, &in, &out, 1, GYRE_U16, op) || out != want)
    return RANK_FAIL(env, "%u, not %u: %s", out, want, gyre_last_error());
  if (seen.not_refused) return RANK_FAIL(env, "%u calls were not refused", seen.not_refused);
  /* Freed in flight: the operation goes on. */
  out = 0;
  if (gyre_all_reduce_async(c, &in, &out, 1, GYRE_U16, op, &req) || gyre_op_free(c, op) ||
      gyre_wait(req, -1) || out != want)
    return RANK_FAIL(env, "freed in flight: %s", gyre_last_error());
  if (gyre_all_reduce(c, &in, &out, 1, GYRE_U16, op) != GYRE_ERR_ARG ||
      !strstr(gyre_last_error(), "freed") || gyre_op_free(c, op) != GYRE_ERR_ARG)
    return RANK_FAIL(env, "a freed operator: %s", gyre_last_error());
  /* Numbers are given anew, late; no more than 64. */
  for (int i = 0; i < 64; i++) {
    if (gyre_op_create(c, add_and_one, &seen, GYRE_OP_COMMUTATIVE, &many[i]))
      return RANK_FAIL(env, "%s", gyre_last_error());
    if (many[i] == op && i != 63) return RANK_FAIL(env, "number %d again after %d", op, i);
  }
  if (gyre_op_create(c, add_and_one, &seen, GYRE_OP_COMMUTATIVE, &extra) != GYRE_ERR_STATE ||
      extra != GYRE_SUM)
    return RANK_FAIL(env, "more than 64");
  if (gyre_op_create(c, add_and_one, &seen, 0, &extra) || gyre_op_free(c, many[7]))
    return RANK_FAIL(env, "%s", gyre_last_error());
  /* Bad arguments; the communicator stays usable. */
  if (gyre_op_create(NULL, add_and_one, &seen, 0, &op) != GYRE_ERR_ARG ||
      gyre_op_create(c, NULL, &seen, 0, &op) != GYRE_ERR_ARG ||
      gyre_op_create(c, add_and_one, &seen, 2, &op) != GYRE_ERR_ARG ||
      gyre_op_create(c, add_and_one, &seen, 0, NULL) != GYRE_ERR_ARG ||
      gyre_op_create_premul_sum(c, (double)INFINITY, &op) != GYRE_ERR_ARG ||
      gyre_op_free(c, GYRE_SUM) != GYRE_ERR_ARG || gyre_op_free(NULL, many[0]) != GYRE_ERR_ARG ||
      gyre_all_reduce(c, &in, &out, 1, GYRE_U16, (gyre_op)255) != GYRE_ERR_ARG)
    return RANK_FAIL(env, "a bad argument was taken");
  if (gyre_all_reduce(c, &in, &in, 1, GYRE_F16, GYRE_BAND) != GYRE_ERR_ARG ||
      !strstr(gyre_last_error(), "band") || !strstr(gyre_last_error(), "f16"))
    return RANK_FAIL(env, "the error does not name operator and type: %s", gyre_last_error());
  if (gyre_all_reduce(c, &in, &out, 1, GYRE_U16, many[63]) || out != want)
    return RANK_FAIL(env, "at last: %s", gyre_last_error());
  return 0; /* what is left goes with the communicator */
}

static void test_rules(void **state) {
  (void)state;
  for (int n = 1; n <= 3; n++) assert_int_equal(ranks_run(n, rules, NULL), 0);
}

/* ------------------------------------------------------------------------- minloc and maxloc --- */

struct found {
  double value;
  int64_t index;
};

static int locations(struct rank_env *env) {
  enum { COUNT = 1031 };
  static struct found in[COUNT], out[COUNT];
  int failed = 0;
  for (int op = GYRE_MINLOC; op <= GYRE_MAXLOC && !failed; op++) {
    for (size_t i = 0; i < COUNT; i++) in[i] = (struct found){whole(env->rank, i), env->rank * 10};
    if (gyre_all_reduce(env->comm, in, out, COUNT, GYRE_F64_I64, (gyre_op)op))
      return RANK_FAIL(env, "%s", gyre_last_error());
    for (size_t i = 0; i < COUNT && !failed; i++) {
      int best = 0; /* the first rank with it */
      for (int r = 1; r < env->nranks; r++) {
        double v = whole(r, i), b = whole(best, i);
        if (op == GYRE_MINLOC ? v < b : v > b) best = r;
      }
      if (out[i].value != whole(best, i) || out[i].index != best * 10)
        failed = RANK_FAIL(env, "%s: element %zu", gyre_op_name((gyre_op)op), i);
    }
  }
  return failed;
}

static void test_locations(void **state) {
  (void)state;
  for (int n = 1; n <= 8; n = ranks_next(n)) assert_int_equal(ranks_run(n, locations, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_algorithm),
      cmocka_unit_test(test_choice),
      cmocka_unit_test(test_premultiplied_sum),
      cmocka_unit_test(test_mismatch),
      cmocka_unit_test(test_rules),
      cmocka_unit_test(test_locations),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * test_collectives.c - every collective, algorithm, type and operator over TCP, 1 to 8 ranks in
 * processes of their own, odd sizes, in and out of place, against an oracle. The data's sums and
 * products are exact in every type and order.
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

/* -------------------------------------------------------------------------------------- data --- */

static int64_t value(gyre_dtype type, gyre_op op, int rank, size_t i) {
  bool is_signed = type != GYRE_U8 && type != GYRE_U16 && type != GYRE_U32 && type != GYRE_U64;
  uint64_t mix = (i + 1) * 2654435761u + (uint64_t)rank * 40503u;
  int64_t small = (int64_t)(mix >> 7) % 6;
  if (op != GYRE_PROD && (type == GYRE_F8_E4M3 || type == GYRE_F8_E5M2))
    return small % 3 - 1; /* more than 8 may be inexact */
  if (op == GYRE_PROD) return small == 0 ? 2 : small == 1 && is_signed ? -1 : 1;
  return is_signed ? small - 3 : small;
}

static void store(gyre_dtype type, void *at, size_t i, int64_t v) {
  switch (type) {
    case GYRE_F32: ((float *)at)[i] = (float)v; break;
    case GYRE_F64: ((double *)at)[i] = (double)v; break;
    case GYRE_F16: ((uint16_t *)at)[i] = gy_f32_to_f16((float)v); break;
    case GYRE_BF16: ((uint16_t *)at)[i] = gy_f32_to_bf16((float)v); break;
    case GYRE_F8_E4M3: ((uint8_t *)at)[i] = gy_f32_to_e4m3((float)v); break;
    case GYRE_F8_E5M2: ((uint8_t *)at)[i] = gy_f32_to_e5m2((float)v); break;
    case GYRE_I8:
    case GYRE_U8: ((uint8_t *)at)[i] = (uint8_t)v; break;
    case GYRE_I16:
    case GYRE_U16: ((uint16_t *)at)[i] = (uint16_t)v; break;
    case GYRE_I32:
    case GYRE_U32: ((uint32_t *)at)[i] = (uint32_t)v; break;
    case GYRE_F32_I32:
    case GYRE_F64_I64:
    case GYRE_I32_I32:
    case GYRE_I64_I64: /* only copied here */
      memset((char *)at + i * gyre_dtype_size(type), (int)(v + 100), gyre_dtype_size(type));
      break;
    default: ((uint64_t *)at)[i] = (uint64_t)v;
  }
}

/* The average: the sum in the type (it does not overflow for this data), divided as gyre.h says. */
static void store_average(gyre_dtype type, void *at, size_t i, int64_t sum, int n) {
  switch (type) {
    case GYRE_F32: ((float *)at)[i] = (float)sum / (float)n; break;
    case GYRE_F64: ((double *)at)[i] = (double)sum / n; break;
    case GYRE_F16: ((uint16_t *)at)[i] = gy_f32_to_f16((float)sum / (float)n); break;
    case GYRE_BF16: ((uint16_t *)at)[i] = gy_f32_to_bf16((float)sum / (float)n); break;
    case GYRE_F8_E4M3: ((uint8_t *)at)[i] = gy_f32_to_e4m3((float)sum / (float)n); break;
    case GYRE_F8_E5M2: ((uint8_t *)at)[i] = gy_f32_to_e5m2((float)sum / (float)n); break;
    default: store(type, at, i, sum / n);
  }
}

/* Of the first nranks ranks, at least one. */
static int64_t reduced(gyre_dtype type, gyre_op op, int nranks, size_t i) {
  int64_t v = value(type, op, 0, i);
  for (int r = 1; r < nranks; r++) {
    int64_t b = value(type, op, r, i);
    v = op == GYRE_PROD   ? v * b
        : op == GYRE_MIN  ? (b < v ? b : v)
        : op == GYRE_MAX  ? (b > v ? b : v)
        : op == GYRE_BAND ? (v & b)
        : op == GYRE_BOR  ? (v | b)
        : op == GYRE_BXOR ? (v ^ b)
        : op == GYRE_LAND ? (v && b)
        : op == GYRE_LOR  ? (v || b)
        : op == GYRE_LXOR ? (!v != !b)
                          : v + b;
  }
  if (op >= GYRE_LAND) return v != 0; /* also of one rank */
  return v;
}

static void store_identity(gyre_dtype type, gyre_op op, void *at, size_t i) {
  static const int64_t least[] = {
      [GYRE_I8] = INT8_MIN, [GYRE_I16] = INT16_MIN, [GYRE_I32] = INT32_MIN, [GYRE_I64] = INT64_MIN};
  static const int64_t greatest[] = {
      [GYRE_I8] = INT8_MAX,    [GYRE_U8] = UINT8_MAX,  [GYRE_I16] = INT16_MAX,
      [GYRE_U16] = UINT16_MAX, [GYRE_I32] = INT32_MAX, [GYRE_U32] = UINT32_MAX,
      [GYRE_I64] = INT64_MAX,  [GYRE_U64] = -1};
  float infinity = op == GYRE_MIN ? INFINITY : -INFINITY;
  if (op == GYRE_SUM || op == GYRE_PROD) store(type, at, i, op == GYRE_PROD);
  else if (op > GYRE_MAX) store(type, at, i, op == GYRE_BAND ? -1 : op == GYRE_LAND);
  else if (type == GYRE_F32) ((float *)at)[i] = infinity;
  else if (type == GYRE_F64) ((double *)at)[i] = (double)infinity;
  else if (type == GYRE_F16) ((uint16_t *)at)[i] = gy_f32_to_f16(infinity);
  else if (type == GYRE_BF16) ((uint16_t *)at)[i] = gy_f32_to_bf16(infinity);
  else if (type == GYRE_F8_E4M3) store(type, at, i, op == GYRE_MIN ? 448 : -448);
  else if (type == GYRE_F8_E5M2) ((uint8_t *)at)[i] = gy_f32_to_e5m2(infinity);
  else if (op == GYRE_MIN) store(type, at, i, greatest[type]);
  else store(type, at, i, type < (gyre_dtype)(sizeof least / sizeof *least) ? least[type] : 0);
}

/* -------------------------------------------------------------------------------- one operation --- */

struct shape {
  enum gy_coll coll;
  gyre_dtype type;
  gyre_op op;
  int root;
  size_t count;
  bool in_place;
};

struct buffers {
  char *memory, *in, *out, *expected;
  size_t in_count, out_count;
};

static void prepare(const struct rank_env *env, const struct shape *s, struct buffers *b) {
  size_t esize = gyre_dtype_size(s->type), n = (size_t)env->nranks,
         block = s->count * (size_t)env->rank;
  bool blocks = gy_coll_traits(s->coll)->layout == GY_BLOCK;
  b->in_count = blocks && gy_coll_share(s->coll, GY_IN, true) == GY_ALL ? s->count * n : s->count;
  b->out_count = blocks && gy_coll_share(s->coll, GY_OUT, true) == GY_ALL ? s->count * n : s->count;
  size_t bytes = (b->in_count + b->out_count + 64) * esize;
  b->memory = malloc(bytes);
  memset(b->memory, 0x5A, bytes);
  b->in = b->memory + 8 * esize;
  b->out = b->in + (b->in_count + 8) * esize;
  if (s->in_place) {
    b->out = b->out_count < b->in_count ? b->in + block * esize : b->in;
    if (b->in_count < b->out_count) b->in = b->out + block * esize;
  }
  for (size_t i = 0; i < b->in_count; i++)
    store(s->type, b->in, i, value(s->type, s->op, env->rank, i));
  b->expected = malloc(b->out_count * esize + 1);
  for (size_t i = 0; i < b->out_count; i++) {
    size_t at = s->coll == GY_REDUCE_SCATTER || s->coll == GY_SCATTER ? block + i : i;
    if (s->coll == GY_ALL_GATHER || s->coll == GY_GATHER) {
      store(s->type, b->expected, i, value(s->type, s->op, (int)(i / s->count), i % s->count));
    } else if (s->coll == GY_SCATTER) {
      store(s->type, b->expected, i, value(s->type, s->op, s->root, at));
    } else if (s->coll == GY_ALL_TO_ALL) {
      store(s->type, b->expected, i,
            value(s->type, s->op, (int)(i / s->count), block + i % s->count));
    } else if (s->coll == GY_BROADCAST) {
      store(s->type, b->expected, i, value(s->type, s->op, s->root, i));
    } else if (s->coll == GY_EXCLUSIVE_SCAN && env->rank == 0) {
      store_identity(s->type, s->op, b->expected, i);
    } else if (s->coll == GY_SCAN || s->coll == GY_EXCLUSIVE_SCAN) {
      int last = env->rank + (s->coll == GY_SCAN ? 1 : 0);
      store(s->type, b->expected, i, reduced(s->type, s->op, last, at));
    } else if (s->op == GYRE_AVG) {
      store_average(s->type, b->expected, i, reduced(s->type, s->op, env->nranks, at), env->nranks);
    } else {
      store(s->type, b->expected, i, reduced(s->type, s->op, env->nranks, at));
    }
  }
}

static gyre_status call(const struct rank_env *env, const struct shape *s, const struct buffers *b) {
  gyre_comm *c = env->comm;
  switch (s->coll) {
    case GY_ALL_REDUCE: return gyre_all_reduce(c, b->in, b->out, s->count, s->type, s->op);
    case GY_REDUCE_SCATTER: return gyre_reduce_scatter(c, b->in, b->out, s->count, s->type, s->op);
    case GY_ALL_GATHER: return gyre_all_gather(c, b->in, b->out, s->count, s->type);
    case GY_BROADCAST: return gyre_broadcast(c, b->in, b->out, s->count, s->type, s->root);
    case GY_REDUCE: return gyre_reduce(c, b->in, b->out, s->count, s->type, s->op, s->root);
    case GY_GATHER: return gyre_gather(c, b->in, b->out, s->count, s->type, s->root);
    case GY_SCATTER: return gyre_scatter(c, b->in, b->out, s->count, s->type, s->root);
    case GY_ALL_TO_ALL: return gyre_all_to_all(c, b->in, b->out, s->count, s->type);
    case GY_SCAN: return gyre_scan(c, b->in, b->out, s->count, s->type, s->op);
    case GY_EXCLUSIVE_SCAN: return gyre_exclusive_scan(c, b->in, b->out, s->count, s->type, s->op);
    default: return gyre_barrier(c);
  }
}

static int run_shape(struct rank_env *env, const struct shape *s) {
  struct buffers b;
  size_t esize = gyre_dtype_size(s->type);
  int failed = 0;
  prepare(env, s, &b);
  bool has_out =
      s->coll != GY_BARRIER && gy_coll_share(s->coll, GY_OUT, env->rank == s->root) != GY_NOTHING;
  if (call(env, s, &b)) {
    failed = RANK_FAIL(env, "%s: %s", gy_coll_name(s->coll), gyre_last_error());
  } else if (has_out && memcmp(b.out, b.expected, b.out_count * esize)) {
    failed = RANK_FAIL(env, "%s %s %s root %d count %zu%s: wrong result", gy_coll_name(s->coll),
                       gyre_dtype_name(s->type), gyre_op_name(s->op), s->root, s->count,
                       s->in_place ? " in place" : "");
  }
  for (size_t i = 0; i < b.in_count && !s->in_place && !failed; i++) {
    char was[16];
    store(s->type, was, 0, value(s->type, s->op, env->rank, i));
    if (memcmp(was, b.in + i * esize, esize))
      failed = RANK_FAIL(env, "%s: the input was written", gy_coll_name(s->coll));
  }
  free(b.expected);
  free(b.memory);
  return failed;
}

/* ---------------------------------------------------------------------------------------- cases --- */

static bool is_scan(enum gy_coll coll) { return coll == GY_SCAN || coll == GY_EXCLUSIVE_SCAN; }

/* test_exchange.c, test_weighted.c */
static bool has_its_own_test(unsigned coll) {
  return gy_coll_traits(coll)->layout == GY_VARY || gy_coll_traits(coll)->weighted;
}

/* All types and operators at small odd counts. */
static int every_type_and_operator(struct rank_env *env) {
  static const size_t counts[] = {0, 1, 7, 61};
  int failed = 0;
  for (int coll = 0; coll < GY_COLL_COUNT && !failed; coll++) {
    if (has_its_own_test((unsigned)coll)) continue;
    for (int type = 0; type < GYRE_DTYPE_COUNT; type++) {
      bool reduces = gy_coll_traits((unsigned)coll)->reduces;
      for (int op = 0; op < (reduces ? GYRE_MINLOC : 1); op++) {
        if (reduces && !gyre_op_accepts((gyre_op)op, (gyre_dtype)type)) continue;
        if (is_scan((enum gy_coll)coll) && op == GYRE_AVG) continue;
        for (size_t k = 0; k < sizeof counts / sizeof *counts && !failed; k++) {
          if (!ranks_take(k, 4, (size_t)(coll + type + op + env->nranks))) continue;
          struct shape s = {(enum gy_coll)coll, (gyre_dtype)type,      (gyre_op)op, 0,
                            counts[k],          (k + (size_t)type) % 2};
          if (gy_coll_traits((unsigned)coll)->rooted) s.root = (type + op) % env->nranks;
          failed = run_shape(env, &s);
        }
      }
    }
  }
  return failed;
}

static int every_size(struct rank_env *env, const struct gy_algo *algo, size_t algo_number) {
  static const size_t counts[] = {0, 1, 7, 4097, 50021};
  int failed = 0;
  for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
    for (int in_place = 0; in_place < 2 && !failed; in_place++) {
      if (!ranks_take(k, 5, algo_number + (size_t)env->nranks)) continue;
      struct shape s = {
          (enum gy_coll)algo->coll, k % 2 ? GYRE_F32 : GYRE_I64, GYRE_SUM, 0, counts[k], in_place};
      if (algo->coll == GY_BARRIER) s.count = 0;
      if (gy_coll_traits(algo->coll)->rooted) s.root = (int)k % env->nranks;
      s.in_place = (in_place + env->rank) % 2; /* ranks may differ in it */
      failed = run_shape(env, &s);
    }
  }
  return failed;
}

/* A communicator for each algorithm, all over one context and rendezvous; many slices of small
 * messages. */
static int every_algorithm(struct rank_env *env) {
  size_t n_algo;
  const struct gy_algo *const *algos = gy_algorithms(&n_algo);
  struct rank_env own = *env;
  int failed = 0;
  for (size_t a = 0; a < n_algo && !failed; a++) {
    char text[64];
    gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
    if (has_its_own_test(algos[a]->coll)) continue;
    snprintf(text, sizeof text, "%s=%s", gy_coll_name(algos[a]->coll), algos[a]->name);
    config.algo = text;
    config.slice_bytes = 4096;
    config.rendezvous = env->rendezvous;
    if (gyre_comm_create(env->ctx, env->rank, env->nranks, &config, &own.comm)) {
      return RANK_FAIL(env, "%s: %s", text, gyre_last_error());
    }
    failed = every_size(&own, algos[a], a);
    if (failed) fprintf(stderr, "algorithm %s\n", text);
    gyre_comm_destroy(own.comm);
  }
  return failed;
}

static void test_types_and_operators(void **state) {
  (void)state;
  for (int n = 1; n <= 8; n = ranks_next(n))
    assert_int_equal(ranks_run(n, every_type_and_operator, NULL), 0);
}

static void test_algorithms_and_sizes(void **state) {
  (void)state;
  for (int n = 1; n <= 8; n = ranks_next(n))
    assert_int_equal(ranks_run(n, every_algorithm, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_types_and_operators),
      cmocka_unit_test(test_algorithms_and_sizes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

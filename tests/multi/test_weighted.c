/*
 * test_weighted.c - weighted all-reduce over TCP, 1 to 8 ranks in processes of their own: every
 * algorithm, type and size against an oracle; weights of 0, with nothing or anything behind them; what
 * must be refused.
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

static void put(gyre_dtype type, void *at, size_t i, double v) {
  switch (type) {
    case GYRE_F32: ((float *)at)[i] = (float)v; break;
    case GYRE_F64: ((double *)at)[i] = v; break;
    case GYRE_F16: ((uint16_t *)at)[i] = gy_f32_to_f16((float)v); break;
    default: ((uint16_t *)at)[i] = gy_f32_to_bf16((float)v);
  }
}

/* Small whole numbers, and weights that are multiples of a half: exact in every type, in any order. */
static double whole(int rank, size_t i) { return (double)((i * 7 + (size_t)rank * 3) % 5) - 2; }

/* `turn` says who has weight 0: some rank, none, or (2) all. */
static double weight(int rank, unsigned turn) {
  return turn == 2 ? 0 : (double)((unsigned)rank + turn) / 2;
}

struct shape {
  gyre_dtype type;
  gyre_op op;
  size_t count;
  unsigned turn;
  bool in_place, async;
};

static gyre_status reduce(const struct rank_env *env, const struct shape *s, const void *in,
                          void *out, double *total) {
  gyre_request *req;
  double w = weight(env->rank, s->turn);
  if (!s->async)
    return gyre_all_reduce_weighted(env->comm, in, out, s->count, s->type, s->op, w, total);
  gyre_status st =
      gyre_all_reduce_weighted_async(env->comm, in, out, s->count, s->type, s->op, w, total, &req);
  return st ? st : gyre_wait(req, -1);
}

static void fill_input(const struct rank_env *env, const struct shape *s, void *in) {
  bool counts = weight(env->rank, s->turn) != 0; /* else it is filled with what must not be read */
  for (size_t i = 0; i < s->count; i++)
    put(s->type, in, i, counts ? whole(env->rank, i) : (double)NAN);
}

/* The average by the rules: the rounded sum, divided in f64. */
static double fill_expected(const struct rank_env *env, const struct shape *s, void *want) {
  double total = 0;
  for (int r = 0; r < env->nranks; r++) total += weight(r, s->turn);
  for (size_t i = 0; i < s->count; i++) {
    double sum = 0;
    for (int r = 0; r < env->nranks; r++)
      if (weight(r, s->turn) != 0) sum += weight(r, s->turn) * whole(r, i);
    put(s->type, want, i, s->op == GYRE_AVG && total != 0 ? sum / total : sum);
  }
  return total;
}

/* Equal bytes, or zeros of either sign unless all weights are 0, when there is only +0. */
static bool same(const struct shape *s, const char *got, const char *want, double total) {
  size_t esize = gyre_dtype_size(s->type);
  static const char zero[8] = {0};
  if (!memcmp(got, want, esize)) return true;
  return total != 0 && !memcmp(got, zero, esize - 1) && (got[esize - 1] & 0x7f) == 0 &&
         !memcmp(want, zero, esize - 1) && (want[esize - 1] & 0x7f) == 0;
}

static int run_shape(struct rank_env *env, const struct shape *s) {
  size_t esize = gyre_dtype_size(s->type), bytes = s->count * esize;
  char *memory = calloc(4 * s->count + 1, esize), *in = memory, *was = in + bytes,
       *want = was + bytes, *out = s->in_place ? in : want + bytes;
  const char *given = in;
  int failed = 0;
  double got_total = -1;
  fill_input(env, s, in);
  memcpy(was, in, bytes);
  double total = fill_expected(env, s, want);
  if (weight(env->rank, s->turn) == 0 && s->count % 2 && !s->in_place) given = NULL;
  if (reduce(env, s, given, out, &got_total)) failed = RANK_FAIL(env, "%s", gyre_last_error());
  if (!failed && got_total != total)
    failed = RANK_FAIL(env, "the total is %g, not %g", got_total, total);
  for (size_t i = 0; i < s->count && !failed; i++)
    if (!same(s, out + i * esize, want + i * esize, total))
      failed = RANK_FAIL(env, "%s of %s, count %zu, turn %u%s: element %zu is wrong",
                         gyre_op_name(s->op), gyre_dtype_name(s->type), s->count, s->turn,
                         s->in_place ? ", in place" : "", i);
  if (!failed && !s->in_place && memcmp(in, was, bytes))
    failed = RANK_FAIL(env, "the input was written");
  free(memory);
  return failed;
}

static const gyre_dtype types[] = {GYRE_F32, GYRE_F64, GYRE_F16, GYRE_BF16};

static int every_shape(struct rank_env *env) {
  static const size_t counts[] = {0, 1, 7, 4097};
  int failed = 0;
  for (size_t k = 0; k < LENGTH(counts); k++)
    for (size_t t = 0; t < LENGTH(types); t++)
      for (unsigned turn = 0; turn < 3 && !failed; turn++) {
        size_t draw = k + t + turn;
        struct shape s = {types[t],     draw % 2 ? GYRE_AVG : GYRE_SUM,     counts[k],
                          turn,         (draw / 2 + (size_t)env->rank) % 2, /* ranks may differ in it */
                          draw % 3 == 0};
        failed = run_shape(env, &s);
      }
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
    if (algos[a]->coll != GY_ALL_REDUCE_WEIGHTED) continue;
    snprintf(text, sizeof text, "all_reduce_weighted=%s", algos[a]->name);
    config.algo = text;
    config.slice_bytes = 1024;
    config.rendezvous = env->rendezvous;
    if (gyre_comm_create(env->ctx, env->rank, env->nranks, &config, &own.comm))
      return RANK_FAIL(env, "%s: %s", text, gyre_last_error());
    failed = every_shape(&own);
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

/* ---------------------------------------------------------------------------------- rounding --- */

/* Weights that are no sums of powers of two: the average of equal values is that value all the same, as
 * near as a sum of products can be; and the total has the same bits on every rank. */
static int uneven_weights(struct rank_env *env) {
  enum { COUNT = 1031 };
  static double in[COUNT], out[COUNT];
  double total, lowest, highest, w = 0.1 * (env->rank + 1);
  for (size_t i = 0; i < COUNT; i++) in[i] = (double)i / 7;
  if (gyre_all_reduce_weighted(env->comm, in, out, COUNT, GYRE_F64, GYRE_AVG, w, &total) ||
      gyre_all_reduce(env->comm, &total, &lowest, 1, GYRE_F64, GYRE_MIN) ||
      gyre_all_reduce(env->comm, &total, &highest, 1, GYRE_F64, GYRE_MAX))
    return RANK_FAIL(env, "%s", gyre_last_error());
  if (lowest != highest) return RANK_FAIL(env, "totals from %.17g to %.17g", lowest, highest);
  if (fabs(total - 0.05 * env->nranks * (env->nranks + 1)) > 1e-14 * total)
    return RANK_FAIL(env, "the total is %.17g", total);
  for (size_t i = 0; i < COUNT; i++)
    if (fabs(out[i] - in[i]) > 1e-14 * in[i])
      return RANK_FAIL(env, "element %zu is %.17g, not %.17g", i, out[i], in[i]);
  return 0;
}

static void test_rounding(void **state) {
  (void)state;
  for (int n = 2; n <= 7; n += 5) assert_int_equal(ranks_run(n, uneven_weights, NULL), 0);
}

/* ------------------------------------------------------------------------------------- rules --- */

static int refused(struct rank_env *env, gyre_status st, const char *part) {
  if (st == GYRE_ERR_ARG && strstr(gyre_last_error(), part)) return 0;
  return RANK_FAIL(env, "\"%s\": %s: %s", part, gyre_status_name(st), gyre_last_error());
}

static int bad_arguments(struct rank_env *env) {
  gyre_comm *c = env->comm;
  float in[2] = {1, 2}, out[2] = {5, 6};
  double wide[2] = {1, 2}, total = -1, negative = -1, none = (double)NAN, much = (double)INFINITY;
  gyre_request *req = NULL;
  gyre_op premul;
  int failed = gyre_op_create_premul_sum(c, 2, &premul) != GYRE_OK;
#define WEIGHTED(type, op, weight, total) \
  gyre_all_reduce_weighted(c, in, out, 2, type, op, weight, total)
  failed |= refused(env, WEIGHTED(GYRE_F32, GYRE_SUM, negative, &total), "weight -1");
  failed |= refused(env, WEIGHTED(GYRE_F32, GYRE_SUM, none, &total), "weight");
  failed |= refused(env, WEIGHTED(GYRE_F64, GYRE_AVG, much, &total), "finite");
  failed |= refused(env, WEIGHTED(GYRE_F32, GYRE_AVG, 1e-40, &total), "multiplied in f32");
  failed |= refused(env, WEIGHTED(GYRE_BF16, GYRE_AVG, 1e39, &total), "multiplied in f32");
  failed |= refused(env, WEIGHTED(GYRE_F32, GYRE_SUM, 1, NULL), "total is NULL");
  failed |= refused(env, WEIGHTED(GYRE_I32, GYRE_SUM, 1, &total), "not for i32");
  failed |= refused(env, WEIGHTED(GYRE_F32_I32, GYRE_SUM, 1, &total), "not for f32_i32");
  failed |= refused(env, WEIGHTED(GYRE_F32, GYRE_MAX, 1, &total), "GYRE_SUM and GYRE_AVG");
  failed |= refused(env, WEIGHTED(GYRE_F32, premul, 1, &total), "GYRE_SUM and GYRE_AVG");
  failed |= refused(env, WEIGHTED((gyre_dtype)99, GYRE_SUM, 1, &total), "no type");
#undef WEIGHTED
  failed |= refused(env, gyre_all_reduce_weighted(c, NULL, out, 2, GYRE_F32, GYRE_SUM, 1, &total),
                    "in is NULL");
  failed |= refused(env, gyre_all_reduce_weighted(c, in, NULL, 2, GYRE_F32, GYRE_SUM, 0, &total),
                    "out is NULL");
  failed |= refused(
      env, gyre_all_reduce_weighted(c, in, in + 1, 1 + 1, GYRE_F32, GYRE_SUM, 1, &total), "overlap");
  failed |= refused(env, gyre_all_reduce_weighted(NULL, in, out, 2, GYRE_F32, GYRE_SUM, 1, &total),
                    "communicator is NULL");
  failed |=
      refused(env, gyre_all_reduce_weighted_async(c, in, out, 2, GYRE_F32, GYRE_SUM, 1, &total, NULL),
              "request is NULL");
  if (total != -1 || out[0] != 5 || out[1] != 6 || req)
    failed |= RANK_FAIL(env, "a refused call wrote something");
  /* Nothing of that was an operation; and f64 takes any weight. */
  if (failed || gyre_all_reduce_weighted(c, wide, wide, 2, GYRE_F64, GYRE_AVG, 1e300, &total))
    return RANK_FAIL(env, "%s", gyre_last_error());
  if (total != 1e300 * env->nranks || fabs(wide[1] - 2) > 1e-14)
    return RANK_FAIL(env, "%g of %g", wide[1], total);
  return 0;
}

static void test_bad_arguments(void **state) {
  (void)state;
  for (int n = 1; n <= 3; n++) assert_int_equal(ranks_run(n, bad_arguments, NULL), 0);
}

static int expect_mismatch(struct rank_env *env, gyre_status st, const char *part, double total) {
  if (st != GYRE_ERR_MISMATCH || !strstr(gyre_last_error(), part) || total != -1)
    return RANK_FAIL(env, "%s: %s (total %g)", gyre_status_name(st), gyre_last_error(), total);
  return 0;
}

static int other_operator(struct rank_env *env) {
  float v = 1;
  double total = -1;
  gyre_op op = env->rank == 0 ? GYRE_SUM : GYRE_AVG;
  gyre_status st = gyre_all_reduce_weighted(env->comm, &v, &v, 1, GYRE_F32, op, 1, &total);
  return expect_mismatch(env, st, "all_reduce_weighted(f32 x 1, avg", total);
}

static int without_weight(struct rank_env *env) {
  float v = 1;
  double total = -1;
  gyre_status st =
      env->rank == 0 ? gyre_all_reduce(env->comm, &v, &v, 1, GYRE_F32, GYRE_SUM)
                     : gyre_all_reduce_weighted(env->comm, &v, &v, 1, GYRE_F32, GYRE_SUM, 1, &total);
  return expect_mismatch(env, st, "all_reduce_weighted", total);
}

static int other_count(struct rank_env *env) {
  float v[2] = {1, 1};
  double total = -1;
  gyre_status st = gyre_all_reduce_weighted(env->comm, v, v, 1u + (env->rank == 1), GYRE_F32,
                                            GYRE_SUM, 0, &total);
  return expect_mismatch(env, st, "f32 x 2", total);
}

static void test_mismatch(void **state) {
  (void)state;
  assert_int_equal(ranks_run(3, other_operator, NULL), 0);
  assert_int_equal(ranks_run(3, without_weight, NULL), 0);
  assert_int_equal(ranks_run(2, other_count, NULL), 0);
}

/* Many in flight, and a count of what has been called. */
static int in_flight(struct rank_env *env) {
  enum { OPS = 20 };
  float v[OPS];
  double total[OPS];
  gyre_request *req[OPS];
  gyre_counters counters = GYRE_COUNTERS_INIT;
  for (int k = 0; k < OPS; k++) {
    v[k] = (float)k;
    if (gyre_all_reduce_weighted_async(env->comm, &v[k], &v[k], 1, GYRE_F32, GYRE_AVG,
                                       env->rank == k % env->nranks ? 2 : 0, &total[k], &req[k]))
      return RANK_FAIL(env, "%s", gyre_last_error());
  }
  for (int k = 0; k < OPS; k++)
    if (gyre_wait(req[k], -1) || v[k] != (float)k || total[k] != 2)
      return RANK_FAIL(env, "operation %d: %g of %g", k, (double)v[k], total[k]);
  if (gyre_comm_counters(env->comm, &counters) || counters.operations_completed != OPS)
    return RANK_FAIL(env, "%llu completed", (unsigned long long)counters.operations_completed);
  return 0;
}

static void test_in_flight(void **state) {
  (void)state;
  for (int n = 1; n <= 4; n++) assert_int_equal(ranks_run(n, in_flight, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_algorithm), cmocka_unit_test(test_rounding),
      cmocka_unit_test(test_bad_arguments),   cmocka_unit_test(test_mismatch),
      cmocka_unit_test(test_in_flight),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

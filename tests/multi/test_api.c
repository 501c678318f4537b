/*
 * test_api.c - the rules of the public API that hold for every function, one test for each.
 *
 * Three ranks, each in a process of its own. What a misused call leaves behind is checked by an all-reduce that must still
 * be in step on all ranks.
 */
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdbool.h>
#include <cmocka.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ranks.h"

#define RANKS 3

/* `call` must return `status`, and say why if it is an error. */
#define EXPECT(status, call)                                                         \
  do {                                                                               \
    gyre_status got = (call);                                                        \
    if (got != (status))                                                             \
      return RANK_FAIL(env, "%s: %s, not %s; \"%s\"", #call, gyre_status_name(got),  \
                       gyre_status_name(status), gyre_last_error());                 \
    if (got < 0 && !*gyre_last_error()) return RANK_FAIL(env, "%s: no text", #call); \
  } while (0)
#define CHECK(condition)                                                          \
  do {                                                                            \
    if (!(condition)) return RANK_FAIL(env, "line %d: %s", __LINE__, #condition); \
  } while (0)

/* All ranks are in step, and the communicator is sound. */
static int in_step(const struct rank_env *env, gyre_comm *comm) {
  int32_t mine[2] = {env->rank + 1, 7}, sum[2];
  EXPECT(GYRE_OK, gyre_all_reduce(comm, mine, sum, 2, GYRE_I32, GYRE_SUM));
  CHECK(sum[0] == 6 && sum[1] == 21);
  return 0;
}

/* Another communicator of the same ranks, by a unique id. */
static int second(const struct rank_env *env, gyre_comm **out) {
  gyre_unique_id id;
  gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
  memset(&id, 0, sizeof id);
  if (env->rank == 0) EXPECT(GYRE_OK, gyre_unique_id_create(env->ctx, &id));
  EXPECT(GYRE_OK, gyre_broadcast(env->comm, &id, &id, sizeof id, GYRE_U8, 0));
  config.id = &id;
  EXPECT(GYRE_OK, gyre_comm_create(env->ctx, env->rank, env->nranks, &config, out));
  return 0;
}

/* --------------------------------------------------------------------------------------- arguments --- */

/* Both forms of a collective refuse the arguments. `r` must stay as it is. */
#define REFUSES(coll, ...)                                      \
  do {                                                          \
    EXPECT(GYRE_ERR_ARG, gyre_##coll(__VA_ARGS__));             \
    EXPECT(GYRE_ERR_ARG, gyre_##coll##_async(__VA_ARGS__, &r)); \
  } while (0)

static int misuse_collectives(struct rank_env *env) {
  gyre_comm *c = env->comm;
  float a[64] = {0}, b[64];
  gyre_request *untouched = (gyre_request *)(void *)a, *r = untouched;
  const gyre_dtype no_type = (gyre_dtype)12;
  const gyre_op no_op = (gyre_op)5;
  REFUSES(all_reduce, NULL, a, b, 4, GYRE_F32, GYRE_SUM);
  REFUSES(all_reduce, c, NULL, b, 4, GYRE_F32, GYRE_SUM);
  REFUSES(all_reduce, c, a, NULL, 4, GYRE_F32, GYRE_SUM);
  REFUSES(all_reduce, c, a, b, 4, no_type, GYRE_SUM);
  REFUSES(all_reduce, c, a, b, 4, GYRE_F32, no_op);
  REFUSES(all_reduce, c, a, b, (size_t)-1, GYRE_F32, GYRE_SUM);
  REFUSES(all_reduce, c, a, b, SIZE_MAX / 4 + 2, GYRE_F32, GYRE_SUM);
  REFUSES(reduce_scatter, NULL, a, b, 4, GYRE_F32, GYRE_SUM);
  REFUSES(reduce_scatter, c, a, b, SIZE_MAX / 8, GYRE_F32, GYRE_SUM);
  REFUSES(reduce_scatter, c, a, b, 4, no_type, GYRE_SUM);
  REFUSES(all_gather, c, NULL, b, 4, GYRE_F32);
  REFUSES(all_gather, c, a, NULL, 4, GYRE_F32);
  REFUSES(broadcast, c, a, b, 4, GYRE_F32, -1);
  REFUSES(broadcast, c, a, b, 4, GYRE_F32, RANKS);
  REFUSES(broadcast, c, env->rank == 0 ? NULL : a, env->rank == 0 ? b : NULL, 4, GYRE_F32, 0);
  REFUSES(reduce, c, a, b, 4, GYRE_F32, GYRE_SUM, RANKS);
  REFUSES(reduce, c, NULL, b, 4, GYRE_F32, GYRE_SUM, 0);
  EXPECT(GYRE_ERR_ARG, gyre_barrier(NULL));
  EXPECT(GYRE_ERR_ARG, gyre_barrier_async(c, NULL));
  EXPECT(GYRE_ERR_ARG, gyre_all_reduce_async(c, a, b, 4, GYRE_F32, GYRE_SUM, NULL));
  CHECK(r == untouched);
  return in_step(env, c);
}

static void an_error_of_the_posting_takes_no_place_in_the_order(void **state) {
  (void)state;
  assert_int_equal(ranks_run(RANKS, misuse_collectives, NULL), 0);
}

static int overlap(struct rank_env *env) {
  gyre_comm *c = env->comm;
  float a[64] = {0};
  gyre_request *r = NULL;
  int other = (env->rank + 1) % RANKS;
  REFUSES(all_reduce, c, a, a + 1, 4, GYRE_F32, GYRE_SUM);
  REFUSES(all_reduce, c, a + 3, a, 4, GYRE_F32, GYRE_SUM);
  REFUSES(reduce_scatter, c, a, a + 4 * other, 4, GYRE_F32, GYRE_SUM);
  REFUSES(reduce_scatter, c, a, a + 4 * env->rank + 1, 4, GYRE_F32, GYRE_SUM);
  REFUSES(all_gather, c, a + 4 * other, a, 4, GYRE_F32);
  if (env->rank == 1) REFUSES(broadcast, c, a, a + 1, 4, GYRE_F32, 1);
  if (env->rank == 1) REFUSES(reduce, c, a, a + 1, 4, GYRE_F32, GYRE_SUM, 1);
  CHECK(r == NULL);
  /* Ranks may differ in it, and a rank that has no part in a buffer may give none. */
  int32_t in = env->rank + 1, out = -1;
  EXPECT(GYRE_OK, gyre_all_reduce(c, &in, env->rank == 1 ? &in : &out, 1, GYRE_I32, GYRE_SUM));
  CHECK(env->rank == 1 ? in == 6 : in == env->rank + 1 && out == 6);
  in = env->rank == 2 ? 42 : -5;
  EXPECT(GYRE_OK, gyre_broadcast(c, env->rank == 2 ? &in : NULL, env->rank == 2 ? NULL : &out, 1,
                                 GYRE_I32, 2));
  CHECK(env->rank == 2 || out == 42);
  in = env->rank + 2;
  EXPECT(GYRE_OK, gyre_reduce(c, &in, env->rank == 1 ? &out : NULL, 1, GYRE_I32, GYRE_PROD, 1));
  CHECK(env->rank != 1 || out == 24);
  EXPECT(GYRE_OK, gyre_all_gather(c, NULL, NULL, 0, GYRE_F64));
  return in_step(env, c);
}

static void buffers_are_disjoint_or_in_place(void **state) {
  (void)state;
  assert_int_equal(ranks_run(RANKS, overlap, NULL), 0);
}

static int null_handles(struct rank_env *env) {
  gyre_error record = GYRE_ERROR_INIT;
  gyre_unique_id id;
  gyre_comm *comm = env->comm;
  EXPECT(GYRE_OK, gyre_wait(NULL, -1));
  EXPECT(GYRE_OK, gyre_test(NULL));
  gyre_request_free(NULL);
  gyre_comm_destroy(NULL);
  gyre_context_destroy(NULL);
  EXPECT(GYRE_ERR_ARG, gyre_context_create(NULL));
  EXPECT(GYRE_ERR_ARG, gyre_progress(NULL));
  CHECK(gyre_context_fd(NULL) == -1);
  EXPECT(GYRE_ERR_ARG, gyre_unique_id_create(NULL, &id));
  EXPECT(GYRE_ERR_ARG, gyre_unique_id_create(env->ctx, NULL));
  EXPECT(GYRE_ERR_ARG, gyre_comm_create(NULL, 0, 1, NULL, &comm));
  EXPECT(GYRE_ERR_ARG, gyre_comm_create(env->ctx, 0, 1, NULL, NULL));
  EXPECT(GYRE_ERR_ARG, gyre_comm_create_from_env(NULL, NULL, &comm));
  EXPECT(GYRE_ERR_ARG, gyre_comm_abort(NULL, "no"));
  EXPECT(GYRE_ERR_ARG, gyre_comm_status(NULL, &record));
  EXPECT(GYRE_ERR_ARG, gyre_comm_status(env->comm, NULL));
  CHECK(gyre_comm_rank(NULL) == -1 && gyre_comm_size(NULL) == -1);
  CHECK(comm == env->comm);
  return in_step(env, env->comm);
}

static void null_is_an_error_or_nothing(void **state) {
  (void)state;
  assert_int_equal(ranks_run(RANKS, null_handles, NULL), 0);
}

static int wrong_context(struct rank_env *env, gyre_context_config config) {
  gyre_context *ctx = NULL;
  EXPECT(GYRE_ERR_ARG, gyre_context_create_with(&config, &ctx));
  CHECK(ctx == NULL);
  return 0;
}

static int wrong_comm(struct rank_env *env, gyre_comm_config config) {
  gyre_comm *comm = NULL;
  EXPECT(GYRE_ERR_ARG, gyre_comm_create(env->ctx, 0, 2, &config, &comm));
  CHECK(comm == NULL);
  return 0;
}

static int configurations(struct rank_env *env) {
  const gyre_context_config context = GYRE_CONTEXT_CONFIG_INIT;
  const gyre_comm_config comm = GYRE_COMM_CONFIG_INIT;
  gyre_error record = GYRE_ERROR_INIT;
  gyre_oob empty_store = {0};
  gyre_unique_id no_id = {{0}};
  int bad = 0;
#define CONTEXT(field, value)            \
  do {                                   \
    gyre_context_config wrong = context; \
    wrong.field = value;                 \
    bad += wrong_context(env, wrong);    \
  } while (0)
#define COMM(field, value)         \
  do {                             \
    gyre_comm_config wrong = comm; \
    wrong.field = value;           \
    bad += wrong_comm(env, wrong); \
  } while (0)
  CONTEXT(size, 0);
  CONTEXT(size, sizeof context - 1);
  CONTEXT(flags, 1u << 7);
  CONTEXT(spin_us, -2);
  CONTEXT(spin_us, 2000000);
  CONTEXT(port, "70000");
  CONTEXT(secret, "");
  COMM(size, 72 - 1);
  COMM(flags, 1u << 7);
  COMM(transports, "pigeon");
  COMM(algo, "all_reduce=bruck");
  COMM(slice_bytes, 65);
  COMM(window, 65);
  COMM(connect_timeout_ms, UINT32_MAX);
  COMM(op_timeout_ms, UINT32_MAX);
  COMM(rendezvous, "http://x");
  COMM(rendezvous, "tcp://host");
  COMM(rendezvous, "file://relative");
  COMM(oob, &empty_store);
  COMM(id, &no_id);
  record.size = sizeof record - 1;
  EXPECT(GYRE_ERR_ARG, gyre_comm_status(env->comm, &record));
  return bad + in_step(env, env->comm);
}

static void a_wrong_configuration_is_refused(void **state) {
  (void)state;
  assert_int_equal(ranks_run(RANKS, configurations, NULL), 0);
}

/* ---------------------------------------------------------------------------------------- requests --- */

static int requests(struct rank_env *env) {
  gyre_request *r = NULL;
  if (env->rank != 0) {
    usleep(200000);
    EXPECT(GYRE_OK, gyre_barrier(env->comm));
    return in_step(env, env->comm);
  }
  EXPECT(GYRE_OK, gyre_barrier_async(env->comm, &r));
  EXPECT(GYRE_IN_PROGRESS, gyre_wait(r, 0));
  EXPECT(GYRE_IN_PROGRESS, gyre_wait(r, 5));
  EXPECT(GYRE_OK, gyre_wait(r, -1));
  return in_step(env, env->comm);
}

static void wait_keeps_the_request_when_the_time_is_over(void **state) {
  (void)state;
  assert_int_equal(ranks_run(RANKS, requests, NULL), 0);
}

static int outlive(struct rank_env *env) {
  gyre_comm *comm = NULL;
  gyre_request *r = NULL;
  if (second(env, &comm)) return 1;
  if (env->rank == 0) { /* the others never call it */
    EXPECT(GYRE_OK, gyre_barrier_async(comm, &r));
    gyre_comm_destroy(comm);
    EXPECT(GYRE_ERR_ABORTED, gyre_test(r));
    EXPECT(GYRE_ERR_ABORTED, gyre_wait(r, -1));
  } else {
    gyre_comm_destroy(comm);
  }
  return in_step(env, env->comm);
}

static void requests_outlive_their_communicator(void **state) {
  (void)state;
  assert_int_equal(ranks_run(RANKS, outlive, NULL), 0);
}

static int finished(struct rank_env *env) {
  gyre_comm *comm = NULL;
  gyre_error record = GYRE_ERROR_INIT;
  gyre_request *r = NULL;
  float a = 1, b;
  if (second(env, &comm)) return 1;
  if (env->rank == 1) {
    EXPECT(GYRE_OK, gyre_comm_abort(comm, "enough"));
    EXPECT(GYRE_OK, gyre_comm_abort(comm, "of it"));
  }
  EXPECT(GYRE_ERR_ABORTED, gyre_all_reduce(comm, &a, &b, 1, GYRE_F32, GYRE_SUM));
  EXPECT(GYRE_ERR_ABORTED, gyre_barrier_async(comm, &r));
  CHECK(r == NULL);
  EXPECT(GYRE_ERR_ABORTED, gyre_comm_status(comm, &record));
  CHECK(record.culprit_rank == 1 && strstr(record.text, "enough"));
  gyre_comm_destroy(comm);
  return in_step(env, env->comm); /* the other communicator is none the worse */
}

static void an_error_of_an_operation_ends_the_communicator(void **state) {
  (void)state;
  assert_int_equal(ranks_run(RANKS, finished, NULL), 0);
}

/* --------------------------------------------------------------------------------------- callbacks --- */

struct called {
  struct rank_env *env;
  gyre_request *follow_up;
  atomic_int runs, wrong;
};

static int inside(struct rank_env *env, struct called *called, gyre_request *req) {
  float a = 1, b;
  gyre_comm *comm = NULL;
  gyre_unique_id id;
  EXPECT(GYRE_ERR_STATE, gyre_all_reduce(env->comm, &a, &b, 1, GYRE_F32, GYRE_SUM));
  EXPECT(GYRE_ERR_STATE, gyre_barrier(env->comm));
  EXPECT(GYRE_ERR_STATE, gyre_wait(req, 0));
  EXPECT(GYRE_ERR_STATE, gyre_progress(env->ctx));
  EXPECT(GYRE_ERR_STATE, gyre_comm_create(env->ctx, 0, 1, NULL, &comm));
  EXPECT(GYRE_ERR_STATE, gyre_comm_create_from_env(env->ctx, NULL, &comm));
  EXPECT(GYRE_ERR_STATE, gyre_unique_id_create(env->ctx, &id));
  gyre_comm_destroy(env->comm);
  CHECK(strstr(gyre_last_error(), "callback"));
  gyre_context_destroy(env->ctx);
  CHECK(strstr(gyre_last_error(), "callback"));
  EXPECT(GYRE_OK, gyre_test(req));
  EXPECT(GYRE_OK, gyre_barrier_async(env->comm, &called->follow_up));
  return 0;
}

static void on_complete(gyre_request *req, gyre_status status, void *user) {
  struct called *called = user;
  if (status != GYRE_OK || inside(called->env, called, req)) atomic_fetch_add(&called->wrong, 1);
  atomic_fetch_add(&called->runs, 1);
}

/* With the callback set before (late = 0) and after the operation has completed. */
static int call_back(struct rank_env *env, int late) {
  struct called called = {.env = env};
  gyre_request *r = NULL;
  EXPECT(GYRE_OK, gyre_barrier_async(env->comm, &r));
  while (late && gyre_test(r) == GYRE_IN_PROGRESS) usleep(100);
  EXPECT(GYRE_ERR_ARG, gyre_request_on_complete(r, NULL, NULL));
  EXPECT(GYRE_OK, gyre_request_on_complete(r, on_complete, &called));
  EXPECT(GYRE_ERR_STATE, gyre_request_on_complete(r, on_complete, &called));
  gyre_request_free(r);
  for (int i = 0; i < 20000 && atomic_load(&called.runs) == 0; i++) usleep(1000);
  CHECK(atomic_load(&called.runs) == 1 && atomic_load(&called.wrong) == 0);
  EXPECT(GYRE_OK, gyre_wait(called.follow_up, -1));
  CHECK(atomic_load(&called.runs) == 1);
  return in_step(env, env->comm);
}

static int callbacks(struct rank_env *env) { return call_back(env, 0) + call_back(env, 1); }

static void callbacks_run_once_and_may_post_but_not_wait(void **state) {
  (void)state;
  assert_int_equal(ranks_run(RANKS, callbacks, NULL), 0);
}

/* ------------------------------------------------------------------------------- order and threads --- */

struct worker {
  struct rank_env *env;
  gyre_comm *comm;
  int failed;
};

static int work(struct rank_env *env, gyre_comm *comm) {
  for (int i = 0; i < 300; i++) {
    if (in_step(env, comm)) return 1;
  }
  return 0;
}

static void *work_in_thread(void *arg) {
  struct worker *w = arg;
  w->failed = work(w->env, w->comm);
  return NULL;
}

static int two_communicators(struct rank_env *env) {
  struct worker w = {.env = env};
  pthread_t thread;
  if (second(env, &w.comm)) return 1;
  CHECK(pthread_create(&thread, NULL, work_in_thread, &w) == 0);
  int failed = work(env, env->comm);
  pthread_join(thread, NULL);
  if (failed || w.failed) return 1;
  /* One thread, in another order on each rank, without blocking. */
  gyre_comm *first[2] = {env->rank == 1 ? w.comm : env->comm, env->rank == 1 ? env->comm : w.comm};
  gyre_request *r[2] = {NULL, NULL};
  for (int i = 0; i < 2; i++) EXPECT(GYRE_OK, gyre_barrier_async(first[i], &r[i]));
  for (int i = 0; i < 2; i++) EXPECT(GYRE_OK, gyre_wait(r[i], -1));
  gyre_comm_destroy(w.comm);
  return 0;
}

static void communicators_need_no_common_order(void **state) {
  (void)state;
  assert_int_equal(ranks_run(RANKS, two_communicators, NULL), 0);
}

static int other_order(struct rank_env *env) {
  gyre_comm *comm = NULL;
  gyre_error record = GYRE_ERROR_INIT;
  gyre_request *r[2] = {NULL, NULL};
  float a[2] = {1, 2}, b[2];
  if (second(env, &comm)) return 1;
  for (int i = 0; i < 2; i++) {
    bool reduction = (i == 0) != (env->rank == 2);
    gyre_status st = reduction ? gyre_all_reduce_async(comm, a, b, 2, GYRE_F32, GYRE_SUM, &r[i])
                               : gyre_barrier_async(comm, &r[i]);
    CHECK(st == GYRE_OK || st == GYRE_ERR_MISMATCH);
  }
  CHECK(r[0] != NULL);
  for (int i = 0; i < 2; i++) {
    gyre_status st = gyre_wait(r[i], -1);
    CHECK(i == 1 || st == GYRE_ERR_MISMATCH);
  }
  EXPECT(GYRE_ERR_MISMATCH, gyre_comm_status(comm, &record));
  CHECK(strstr(record.text, "all_reduce") && strstr(record.text, "barrier"));
  gyre_comm_destroy(comm);
  return in_step(env, env->comm);
}

static void another_order_on_one_communicator_is_a_mismatch(void **state) {
  (void)state;
  assert_int_equal(ranks_run(RANKS, other_order, NULL), 0);
}

/* ------------------------------------------------------------------------------------- determinism --- */

#define N 4099

/* Sums of numbers that do not add exactly: equal bits on all ranks and in every run. */
static int equal_bits(struct rank_env *env) {
  float *in = malloc(N * sizeof *in), *first = malloc(N * sizeof *in),
        *again = malloc(N * sizeof *in);
  float *root = malloc(N * sizeof *in);
  int failed = !in || !first || !again || !root;
  for (int i = 0; i < N && !failed; i++)
    in[i] = sinf((float)(i * (env->rank + 3))) * powf(10, (float)(i % 9 - 4));
  gyre_status st =
      failed ? GYRE_ERR_NOMEM : gyre_all_reduce(env->comm, in, first, N, GYRE_F32, GYRE_SUM);
  for (int run = 0; run < 5 && st == GYRE_OK && !failed; run++) {
    st = gyre_all_reduce(env->comm, in, again, N, GYRE_F32, GYRE_SUM);
    failed |= memcmp(first, again, N * sizeof *in) != 0;
  }
  if (st == GYRE_OK) st = gyre_broadcast(env->comm, first, root, N, GYRE_F32, 0);
  failed |= st == GYRE_OK && env->rank != 0 && memcmp(first, root, N * sizeof *in) != 0;
  free(in);
  free(first);
  free(again);
  free(root);
  return st != GYRE_OK || failed
             ? RANK_FAIL(env, "%s, bits differ: %d", gyre_status_name(st), failed)
             : 0;
}

static int special_values(struct rank_env *env) {
  float f[2] = {env->rank == 1 ? NAN : 1, env->rank == 0 ? 0.0f : -0.0f}, f_out[2];
  int32_t i[2] = {env->rank == 0 ? -7 : 0, env->rank == 0 ? 8 : 0}, i_out[2];
  EXPECT(GYRE_OK, gyre_all_reduce(env->comm, f, f_out, 2, GYRE_F32, GYRE_MAX));
  CHECK(isnan(f_out[0]) && !signbit(f_out[1]));
  EXPECT(GYRE_OK, gyre_all_reduce(env->comm, f, f_out, 2, GYRE_F32, GYRE_MIN));
  CHECK(isnan(f_out[0]) && signbit(f_out[1]));
  EXPECT(GYRE_OK, gyre_all_reduce(env->comm, i, i_out, 2, GYRE_I32, GYRE_AVG));
  CHECK(i_out[0] == -2 && i_out[1] == 2);
  return 0;
}

static int determinism(struct rank_env *env) { return equal_bits(env) + special_values(env); }

static void results_are_equal_bit_by_bit(void **state) {
  (void)state;
  static const char *const algos[] = {"ring", "tree", "recursive_doubling"};
  for (size_t i = 0; i < sizeof algos / sizeof *algos; i++) {
    gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
    config.algo = algos[i];
    assert_int_equal(ranks_run(RANKS, determinism, &(struct ranks_options){.config = &config}), 0);
  }
}

/* ----------------------------------------------------------------- several ranks, somebody's own loop --- */

static int one_process(struct rank_env *env) {
  gyre_comm *comm[RANKS] = {NULL};
  gyre_request *r[RANKS] = {NULL};
  int32_t in[RANKS], out[RANKS];
  gyre_unique_id id;
  gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
  config.id = &id;
  EXPECT(GYRE_OK, gyre_unique_id_create(env->ctx, &id));
  for (int i = 0; i < RANKS; i++)
    EXPECT(GYRE_OK, gyre_comm_create_async(env->ctx, i, RANKS, &config, &comm[i], &r[i]));
  for (int i = 0; i < RANKS; i++) EXPECT(GYRE_OK, gyre_wait(r[i], -1));
  for (int i = 0; i < RANKS; i++) {
    in[i] = i + 1;
    EXPECT(GYRE_OK, gyre_all_reduce_async(comm[i], &in[i], &out[i], 1, GYRE_I32, GYRE_SUM, &r[i]));
  }
  for (int i = 0; i < RANKS; i++) EXPECT(GYRE_OK, gyre_wait(r[i], -1));
  for (int i = 0; i < RANKS; i++) {
    CHECK(out[i] == 6 && gyre_comm_rank(comm[i]) == i && gyre_comm_size(comm[i]) == RANKS);
    gyre_comm_destroy(comm[i]);
  }
  return 0;
}

static void one_thread_may_drive_several_ranks(void **state) {
  (void)state;
  assert_int_equal(ranks_run(1, one_process, NULL), 0);
}

/* Progress only when the context's descriptor says so. */
static int own_loop(struct rank_env *env) {
  gyre_context_config embedded = GYRE_CONTEXT_CONFIG_INIT;
  gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
  gyre_context *ctx = NULL;
  gyre_comm *comm = NULL;
  gyre_request *r = NULL;
  char rendezvous[128];
  snprintf(rendezvous, sizeof rendezvous, "%s.embedded", env->rendezvous);
  config.rendezvous = rendezvous;
  embedded.flags = GYRE_F_NO_PROGRESS_THREAD;
  EXPECT(GYRE_OK, gyre_context_create_with(&embedded, &ctx));
  struct pollfd fd = {.fd = gyre_context_fd(ctx), .events = POLLIN};
  CHECK(fd.fd >= 0);
  int32_t in = env->rank, out = -1;
  for (int step = 0; step < 2; step++) {
    if (step == 0)
      EXPECT(GYRE_OK, gyre_comm_create_async(ctx, env->rank, RANKS, &config, &comm, &r));
    else EXPECT(GYRE_OK, gyre_all_reduce_async(comm, &in, &out, 1, GYRE_I32, GYRE_SUM, &r));
    EXPECT(GYRE_OK, gyre_progress(ctx));
    for (int turns = 0; gyre_test(r) == GYRE_IN_PROGRESS; turns++) {
      CHECK(poll(&fd, 1, 20000) == 1 && turns < 100000);
      EXPECT(GYRE_OK, gyre_progress(ctx));
    }
    EXPECT(GYRE_OK, gyre_wait(r, 0));
  }
  CHECK(out == 3);
  gyre_comm_destroy(comm);
  gyre_context_destroy(ctx);
  return 0;
}

static void the_descriptor_tells_when_to_make_progress(void **state) {
  (void)state;
  assert_int_equal(ranks_run(RANKS, own_loop, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_error_of_the_posting_takes_no_place_in_the_order),
      cmocka_unit_test(buffers_are_disjoint_or_in_place),
      cmocka_unit_test(null_is_an_error_or_nothing),
      cmocka_unit_test(a_wrong_configuration_is_refused),
      cmocka_unit_test(wait_keeps_the_request_when_the_time_is_over),
      cmocka_unit_test(requests_outlive_their_communicator),
      cmocka_unit_test(an_error_of_an_operation_ends_the_communicator),
      cmocka_unit_test(callbacks_run_once_and_may_post_but_not_wait),
      cmocka_unit_test(communicators_need_no_common_order),
      cmocka_unit_test(another_order_on_one_communicator_is_a_mismatch),
      cmocka_unit_test(results_are_equal_bit_by_bit),
      cmocka_unit_test(one_thread_may_drive_several_ranks),
      cmocka_unit_test(the_descriptor_tells_when_to_make_progress),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

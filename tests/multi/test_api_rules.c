/*
 * test_api_rules.c - one test for each promise of gyre.h, named after it. Ranks are processes of their
 * own (ranks.h), or several ranks of this one where the promise is about that. Failing ranks are in
 * tests/fault, values of every type and operator in test_collectives.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fenv.h>
#include <float.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "ranks.h"
#include "reduce.h"

#define LIMIT_MS 60000 /* what takes longer has failed */
#define RANKS_MAX 4

/* In a rank's body: says what did not hold, and fails the rank. */
#define NEED(env, condition)                                                                      \
  do {                                                                                            \
    if (!(condition))                                                                             \
      return RANK_FAIL(env, "line %d: not so: %s (%s)", __LINE__, #condition, gyre_last_error()); \
  } while (0)

static void run_ranks(int nranks, rank_body body, void *arg) {
  struct ranks_options options = {.timeout_s = 120, .arg = arg};
  assert_int_equal(ranks_run(nranks, body, &options), 0);
}

static void run_ranks_with_algo(int nranks, rank_body body, void *arg, const char *algo) {
  gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
  config.algo = algo;
  struct ranks_options options = {.config = &config, .timeout_s = 120, .arg = arg};
  assert_int_equal(ranks_run(nranks, body, &options), 0);
}

/* Memory that the ranks' processes share. */
static void *share(size_t bytes) {
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(at != MAP_FAILED);
  return at;
}

static void nap(void) { usleep(1000); }

static bool becomes_set(const atomic_int *flag) {
  for (int ms = 0; !atomic_load(flag) && ms < LIMIT_MS; ms++) nap();
  return atomic_load(flag) != 0;
}

/* A further communicator of the same ranks. */
static gyre_status another(const struct rank_env *env, const char *suffix, gyre_comm **out) {
  char rendezvous[128];
  gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
  snprintf(rendezvous, sizeof rendezvous, "%s-%s", env->rendezvous, suffix);
  config.rendezvous = rendezvous;
  return gyre_comm_create(env->ctx, env->rank, env->nranks, &config, out);
}

/* ---------------------------------------------------------------- several ranks of one process --- */

struct crowd { /* all ranks of a communicator, on one context */
  gyre_context *ctx;
  int n;
  gyre_comm *comm[RANKS_MAX];
};

static gyre_status wait_all(gyre_request **req, int n) {
  gyre_status worst = GYRE_OK;
  for (int r = 0; r < n; r++) {
    gyre_status st = gyre_wait(req[r], LIMIT_MS);
    if (st) worst = st;
  }
  return worst;
}

static gyre_status crowd_join(struct crowd *c, const gyre_comm_config *base) {
  gyre_request *req[RANKS_MAX];
  gyre_unique_id id;
  gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
  if (base) config = *base;
  gyre_status st = gyre_unique_id_create(c->ctx, &id);
  if (st) return st;
  config.id = &id;
  for (int r = 0; r < c->n; r++) {
    st = gyre_comm_create_async(c->ctx, r, c->n, &config, &c->comm[r], &req[r]);
    if (st) return st;
  }
  memset(&id, 0, sizeof id); /* the configuration is copied */
  return wait_all(req, c->n);
}

static void crowd_create(struct crowd *c, int n, uint32_t flags) {
  gyre_context_config config = GYRE_CONTEXT_CONFIG_INIT;
  config.flags = flags;
  *c = (struct crowd){.n = n};
  assert_int_equal(gyre_context_create_with(&config, &c->ctx), GYRE_OK);
  assert_int_equal(crowd_join(c, NULL), GYRE_OK);
}

static void crowd_destroy(struct crowd *c) {
  for (int r = 0; r < c->n; r++) gyre_comm_destroy(c->comm[r]);
  gyre_context_destroy(c->ctx);
}

/* ------------------------------------------------------------------- contexts and communicators --- */

static int use_and_abort(struct rank_env *env) {
  gyre_comm *second = NULL, *third = NULL;
  int32_t one = 1, sum = 0;
  NEED(env, another(env, "second", &second) == GYRE_OK);
  NEED(env, another(env, "third", &third) == GYRE_OK);
  NEED(env, gyre_all_reduce(second, &one, &sum, 1, GYRE_I32, GYRE_SUM) == GYRE_OK);
  NEED(env, sum == env->nranks);
  gyre_status st =
      gyre_barrier(second); /* rank 0 may be through it, and abort, before the others are */
  NEED(env, st == GYRE_OK || (st == GYRE_ERR_ABORTED && env->rank > 0));
  if (env->rank == 0) NEED(env, gyre_comm_abort(second, "no longer wanted") == GYRE_OK);
  NEED(env, gyre_barrier(second) == GYRE_ERR_ABORTED || env->rank > 0);
  gyre_comm_destroy(second); /* before those made earlier and later */
  sum = 0;
  NEED(env, gyre_all_reduce(third, &one, &sum, 1, GYRE_I32, GYRE_SUM) == GYRE_OK);
  NEED(env, sum == env->nranks);
  gyre_comm_destroy(third);
  NEED(env, gyre_barrier(env->comm) == GYRE_OK);
  return 0;
}

static void rule_context_and_communicator_are_separate(void **state) {
  (void)state;
  run_ranks(3, use_and_abort, NULL);
}

static int use_crosswise(struct rank_env *env) {
  enum { COMMS = 12 };
  gyre_comm *comm[COMMS];
  gyre_request *req[COMMS];
  int32_t in[COMMS], out[COMMS];
  for (int i = 0; i < COMMS; i++) {
    char suffix[16];
    snprintf(suffix, sizeof suffix, "%d", i);
    NEED(env, another(env, suffix, &comm[i]) == GYRE_OK);
    in[i] = env->rank + 100 * i;
  }
  for (int k = 0; k < COMMS; k++) { /* every rank begins with another one */
    int i = (k + env->rank * 5) % COMMS;
    NEED(env, gyre_all_reduce_async(comm[i], &in[i], &out[i], 1, GYRE_I32, GYRE_SUM, &req[i]) ==
                  GYRE_OK);
  }
  for (int i = COMMS - 1; i >= 0; i--) {
    NEED(env, gyre_wait(req[i], -1) == GYRE_OK);
    NEED(env, out[i] == env->nranks * (env->nranks - 1) / 2 + 100 * i * env->nranks);
  }
  for (int i = 0; i < COMMS; i++) gyre_comm_destroy(comm[i]);
  return 0;
}

static void rule_many_communicators_need_no_common_order(void **state) {
  (void)state;
  run_ranks(3, use_crosswise, NULL);
}

static void rule_creation_leaves_out_untouched_on_failure(void **state) {
  (void)state;
  gyre_context *ctx;
  assert_int_equal(gyre_context_create(&ctx), GYRE_OK);
  gyre_comm *marker = (gyre_comm *)(void *)&ctx, *out = marker;
  gyre_request *req = NULL;
  const struct { int rank, nranks; } wrong[] = {{-1, 2}, {2, 2}, {0, 0}, {0, 16385}, {0, -3}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
    config.rendezvous = "file:///nowhere/job";
    assert_int_equal(gyre_comm_create(ctx, wrong[i].rank, wrong[i].nranks, &config, &out),
                     GYRE_ERR_ARG);
    assert_ptr_equal(out, marker);
    assert_int_equal(gyre_comm_create_async(ctx, wrong[i].rank, wrong[i].nranks, &config, &out, &req),
                     GYRE_ERR_ARG);
    assert_null(req);
  }
  gyre_comm_config missing = GYRE_COMM_CONFIG_INIT; /* the other rank never comes */
  gyre_unique_id id;
  assert_int_equal(gyre_unique_id_create(ctx, &id), GYRE_OK);
  missing.id = &id;
  missing.connect_timeout_ms = 200;
  assert_int_equal(gyre_comm_create(ctx, 0, 2, &missing, &out), GYRE_ERR_TIMEOUT);
  assert_ptr_equal(out, marker);
  assert_non_null(strstr(gyre_last_error(), "1")); /* who was missing */
  gyre_context_destroy(ctx);
}

static void rule_stale_struct_size_is_refused(void **state) {
  (void)state;
  gyre_context *ctx = NULL;
  gyre_context_config context = GYRE_CONTEXT_CONFIG_INIT;
  context.size = 0;
  assert_int_equal(gyre_context_create_with(&context, &ctx), GYRE_ERR_ARG);
  assert_non_null(strstr(gyre_last_error(), "GYRE_CONTEXT_CONFIG_INIT"));
  context = (gyre_context_config)GYRE_CONTEXT_CONFIG_INIT;
  context.flags = 1u << 30;
  assert_int_equal(gyre_context_create_with(&context, &ctx), GYRE_ERR_ARG);
  assert_null(ctx);
  assert_int_equal(gyre_context_create(&ctx), GYRE_OK);
  gyre_comm *comm = NULL;
  gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
  config.size = 72 - 1; /* shorter than it ever was */
  assert_int_equal(gyre_comm_create(ctx, 0, 1, &config, &comm), GYRE_ERR_ARG);
  assert_non_null(strstr(gyre_last_error(), "GYRE_COMM_CONFIG_INIT"));
  config = (gyre_comm_config)GYRE_COMM_CONFIG_INIT;
  config.flags = 1u << 30;
  assert_int_equal(gyre_comm_create(ctx, 0, 1, &config, &comm), GYRE_ERR_ARG);
  assert_null(comm);
  config = (gyre_comm_config)GYRE_COMM_CONFIG_INIT; /* as in a program compiled with 0.1 */
  config.size = 72;
  config.heartbeat_ms = config.peer_timeout_ms = 1; /* which is not there, then */
  assert_int_equal(gyre_comm_create(ctx, 0, 1, &config, &comm), GYRE_OK);
  gyre_comm_destroy(comm);
  comm = NULL;
  assert_int_equal(gyre_comm_create(ctx, 0, 1, NULL, &comm), GYRE_OK);
  gyre_error error = GYRE_ERROR_INIT;
  assert_int_equal(gyre_comm_status(comm, &error), GYRE_OK);
  assert_int_equal(error.culprit_rank, -1);
  error.size = 8;
  assert_int_equal(gyre_comm_status(comm, &error), GYRE_ERR_ARG);
  assert_int_equal(error.size, 8);
  gyre_comm_destroy(comm);
  gyre_context_destroy(ctx);
}

static void rule_version_is_that_of_the_header(void **state) {
  (void)state;
  char text[32];
  snprintf(text, sizeof text, "%d.%d.%d", GYRE_VERSION_MAJOR, GYRE_VERSION_MINOR, GYRE_VERSION_PATCH);
  assert_int_equal(gyre_version(), GYRE_VERSION);
  assert_string_equal(gyre_version_string(), text);
}

static void rule_null_is_harmless(void **state) {
  (void)state;
  int32_t x = 0;
  gyre_error error = GYRE_ERROR_INIT;
  assert_int_equal(gyre_wait(NULL, -1), GYRE_OK);
  assert_int_equal(gyre_test(NULL), GYRE_OK);
  gyre_request_free(NULL);
  gyre_comm_destroy(NULL);
  gyre_context_destroy(NULL);
  assert_int_equal(gyre_comm_rank(NULL), -1);
  assert_int_equal(gyre_comm_size(NULL), -1);
  assert_int_equal(gyre_all_reduce(NULL, &x, &x, 1, GYRE_I32, GYRE_SUM), GYRE_ERR_ARG);
  assert_int_equal(gyre_barrier(NULL), GYRE_ERR_ARG);
  assert_int_equal(gyre_comm_abort(NULL, "why"), GYRE_ERR_ARG);
  assert_int_equal(gyre_comm_status(NULL, &error), GYRE_ERR_ARG);
  assert_int_equal(gyre_progress(NULL), GYRE_ERR_ARG);
  assert_int_equal(gyre_context_fd(NULL), -1);
  assert_int_equal(gyre_context_create(NULL), GYRE_ERR_ARG);
  assert_int_equal(gyre_request_on_complete(NULL, NULL, NULL), GYRE_ERR_ARG);
}

static void *fail_differently(void *arg) {
  char *text = arg;
  if (*gyre_last_error()) return NULL; /* a new thread has none */
  gyre_comm_abort(NULL, NULL);
  snprintf(text, 512, "%s", gyre_last_error());
  return arg;
}

static void rule_last_error_is_per_thread(void **state) {
  (void)state;
  char before[512], theirs[512] = "";
  pthread_t thread;
  void *result;
  assert_int_equal(gyre_barrier(NULL), GYRE_ERR_ARG);
  snprintf(before, sizeof before, "%s", gyre_last_error());
  assert_non_null(strstr(before, "gyre_barrier"));
  assert_int_equal(pthread_create(&thread, NULL, fail_differently, theirs), 0);
  assert_int_equal(pthread_join(thread, &result), 0);
  assert_non_null(result);
  assert_non_null(strstr(theirs, "gyre_comm_abort"));
  assert_string_equal(gyre_last_error(), before);
}

/* ------------------------------------------------------------------------------------- requests --- */

static int wait_in_parts(struct rank_env *env) {
  gyre_comm *signal;
  gyre_request *req;
  NEED(env, another(env, "signal", &signal) == GYRE_OK);
  if (env->rank == 0) {
    NEED(env, gyre_barrier_async(env->comm, &req) == GYRE_OK);
    NEED(env, gyre_wait(req, 0) == GYRE_IN_PROGRESS);
    NEED(env, gyre_wait(req, 20) == GYRE_IN_PROGRESS);
    NEED(env, gyre_test(req) == GYRE_IN_PROGRESS);
    NEED(env, gyre_barrier(signal) == GYRE_OK); /* now the others call it too */
    NEED(env, gyre_wait(req, LIMIT_MS) == GYRE_OK);
  } else {
    NEED(env, gyre_barrier(signal) == GYRE_OK);
    NEED(env, gyre_barrier_async(env->comm, &req) == GYRE_OK);
    gyre_status st = GYRE_IN_PROGRESS;
    for (int ms = 0; st == GYRE_IN_PROGRESS && ms < LIMIT_MS; ms++) st = gyre_wait(req, 1);
    NEED(env, st == GYRE_OK);
  }
  gyre_comm_destroy(signal);
  return 0;
}

static void rule_wait_frees_except_on_timeout(void **state) {
  (void)state;
  run_ranks(3, wait_in_parts, NULL);
}

static void rule_requests_outlive_their_communicator_and_context(void **state) {
  (void)state;
  struct crowd c;
  gyre_request *req[3];
  crowd_create(&c, 2, 0);
  for (int i = 0; i < 3; i++) assert_int_equal(gyre_barrier_async(c.comm[0], &req[i]), GYRE_OK);
  gyre_comm_destroy(c.comm[0]);
  c.comm[0] = NULL;
  assert_int_equal(gyre_test(req[0]), GYRE_ERR_ABORTED);
  assert_int_equal(gyre_wait(req[0], -1), GYRE_ERR_ABORTED);
  assert_non_null(strstr(gyre_last_error(), "destroyed"));
  crowd_destroy(&c);
  assert_int_equal(gyre_test(req[1]), GYRE_ERR_ABORTED);
  assert_int_equal(gyre_wait(req[1], LIMIT_MS), GYRE_ERR_ABORTED);
  gyre_request_free(req[2]);
}

static int post_wrongly(struct rank_env *env) {
  int32_t in[8] = {1, 2, 3, 4}, out[8];
  gyre_request *req = NULL;
  gyre_comm *c = env->comm;
  for (int round = 0; round < 20; round++) {
    if (env->rank == round % env->nranks) { /* nobody else makes these mistakes */
      NEED(env, gyre_all_reduce(c, NULL, out, 4, GYRE_I32, GYRE_SUM) == GYRE_ERR_ARG);
      NEED(env, gyre_all_reduce(c, in, NULL, 4, GYRE_I32, GYRE_SUM) == GYRE_ERR_ARG);
      NEED(env, gyre_all_reduce(c, in, out, 4, (gyre_dtype)99, GYRE_SUM) == GYRE_ERR_ARG);
      NEED(env, gyre_all_reduce(c, in, out, 4, GYRE_I32, (gyre_op)-1) == GYRE_ERR_ARG);
      NEED(env, gyre_all_reduce(c, in, out, SIZE_MAX / 2, GYRE_I32, GYRE_SUM) == GYRE_ERR_ARG);
      NEED(env, gyre_all_gather(c, in, out, SIZE_MAX / 4, GYRE_U8) == GYRE_ERR_ARG);
      NEED(env, gyre_broadcast(c, in, out, 4, GYRE_I32, env->nranks) == GYRE_ERR_ARG);
      NEED(env, gyre_reduce(c, in, out, 4, GYRE_I32, GYRE_SUM, -1) == GYRE_ERR_ARG);
      NEED(env, gyre_barrier_async(c, NULL) == GYRE_ERR_ARG);
      NEED(env, gyre_all_reduce_async(c, in, in + 1, 4, GYRE_I32, GYRE_SUM, &req) == GYRE_ERR_ARG);
      NEED(env, req == NULL);
    }
    NEED(env, gyre_all_reduce(c, in, out, 4, GYRE_I32, GYRE_SUM) == GYRE_OK);
    for (int i = 0; i < 4; i++) NEED(env, out[i] == in[i] * env->nranks);
  }
  gyre_error error = GYRE_ERROR_INIT;
  NEED(env, gyre_comm_status(c, &error) == GYRE_OK);
  return 0;
}

static void rule_posting_error_consumes_no_sequence_number(void **state) {
  (void)state;
  run_ranks(3, post_wrongly, NULL);
}

static int free_in_flight(struct rank_env *env) {
  enum { N = 1 << 16 };
  static float in[N], out[N];
  for (int round = 0; round < 8; round++) {
    gyre_request *req;
    for (int i = 0; i < N; i++) in[i] = (float)(i % 17 + round);
    memset(out, 0, sizeof out);
    NEED(env, gyre_all_reduce_async(env->comm, in, out, N, GYRE_F32, GYRE_SUM, &req) == GYRE_OK);
    gyre_request_free(req); /* it goes on; later operations of this link complete behind it */
    NEED(env, gyre_all_reduce(env->comm, &round, &(int){0}, 1, GYRE_I32, GYRE_MAX) == GYRE_OK);
    for (int ms = 0; out[N - 1] == 0 && ms < 10; ms++) nap();
    NEED(env, gyre_barrier(env->comm) == GYRE_OK);
  }
  return 0;
}

static void rule_free_is_legal_in_flight(void **state) {
  (void)state;
  run_ranks(3, free_in_flight, NULL);
}

/* ------------------------------------------------------------------------------------ callbacks --- */

struct calls {
  atomic_int count, inside;
  atomic_bool overlapped, wrong;
  gyre_request *posted; /* what the posting call has stored */
};

static void count_call(gyre_request *req, gyre_status status, void *user) {
  struct calls *calls = user;
  if (atomic_fetch_add(&calls->inside, 1)) atomic_store(&calls->overlapped, true);
  if (status != GYRE_OK) atomic_store(&calls->wrong, true);
  if (calls->posted && req != calls->posted) atomic_store(&calls->wrong, true);
  usleep(200);
  atomic_fetch_sub(&calls->inside, 1);
  atomic_fetch_add(&calls->count, 1);
}

static _Thread_local bool in_posting_call;

static void not_inside(gyre_request *req, gyre_status status, void *user) {
  struct calls *calls = user;
  if (in_posting_call) atomic_store(&calls->wrong, true);
  count_call(req, status, user);
}

static bool reach(const struct calls *calls, int n) {
  for (int ms = 0; atomic_load(&calls->count) < n && ms < LIMIT_MS; ms++) nap();
  usleep(2000); /* a call too many would come now */
  return atomic_load(&calls->count) == n;
}

static int have_callbacks(struct rank_env *env) {
  enum { N = 40 };
  static struct calls one[N];
  static struct calls all;
  gyre_request *req[N];
  for (int i = 0; i < N; i++) {
    one[i] = (struct calls){.posted = NULL};
    NEED(env, gyre_barrier_async(env->comm, &req[i]) == GYRE_OK);
    one[i].posted = req[i];
    if (i % 4 == 0) NEED(env, gyre_wait(req[i], 0) >= 0 || true); /* may be done, may not */
    if (i % 4 == 0) continue;
    in_posting_call = true;
    NEED(env, gyre_request_on_complete(req[i], not_inside, &one[i]) == GYRE_OK);
    in_posting_call = false;
    NEED(env, gyre_request_on_complete(req[i], not_inside, &one[i]) == GYRE_ERR_STATE);
    if (i % 4 == 1) gyre_request_free(req[i]); /* the callback still runs */
    if (i % 4 == 2) NEED(env, gyre_wait(req[i], LIMIT_MS) == GYRE_OK);
  }
  for (int i = 0; i < N; i++) {
    if (i % 4 == 0) continue;
    NEED(env, reach(&one[i], 1));
    NEED(env, !atomic_load(&one[i].wrong));
    if (i % 4 == 3) NEED(env, gyre_wait(req[i], 0) == GYRE_OK);
  }
  all = (struct calls){.posted = NULL};
  for (int i = 0; i < N; i++) NEED(env, gyre_barrier_async(env->comm, &req[i]) == GYRE_OK);
  for (int i = 0; i < N; i++) {
    NEED(env, gyre_request_on_complete(req[i], count_call, &all) == GYRE_OK);
    gyre_request_free(req[i]);
  }
  NEED(env, reach(&all, N));
  NEED(env, !atomic_load(&all.overlapped) && !atomic_load(&all.wrong));
  /* Set when the request is complete: it runs soon. */
  NEED(env, gyre_barrier_async(env->comm, &req[0]) == GYRE_OK);
  for (int ms = 0; gyre_test(req[0]) == GYRE_IN_PROGRESS && ms < LIMIT_MS; ms++) nap();
  all = (struct calls){.posted = req[0]};
  in_posting_call = true;
  NEED(env, gyre_request_on_complete(req[0], not_inside, &all) == GYRE_OK);
  in_posting_call = false;
  NEED(env, reach(&all, 1) && !atomic_load(&all.wrong));
  NEED(env, gyre_wait(req[0], 0) == GYRE_OK);
  return 0;
}

static void rule_callbacks_run_once_after_the_post(void **state) {
  (void)state;
  run_ranks(2, have_callbacks, NULL);
}

struct visit { /* a callback that tries everything */
  gyre_context *ctx;
  gyre_comm *comm;
  gyre_request *pending;
  int line; /* of the first thing that was not so */
  atomic_int done;
};

static bool is_state(gyre_status status) {
  return status == GYRE_ERR_STATE && strstr(gyre_last_error(), "callback") != NULL;
}

static void try_everything(gyre_request *req, gyre_status status, void *user) {
  struct visit *v = user;
  static int32_t in = 5, out; /* the post outlives the callback */
  int32_t x = 0, y = 0;
  gyre_comm *comm = NULL;
  gyre_unique_id id;
  gyre_request *later = NULL;
#define SO(condition) \
  if (!(condition) && !v->line) v->line = __LINE__
  SO(status == GYRE_OK);
  SO(gyre_test(req) == GYRE_OK);
  SO(is_state(gyre_wait(v->pending, 0)));
  SO(is_state(gyre_wait(v->pending, -1)));
  SO(is_state(gyre_all_reduce(v->comm, &x, &y, 1, GYRE_I32, GYRE_SUM)));
  SO(is_state(gyre_reduce_scatter(v->comm, &x, &y, 1, GYRE_I32, GYRE_SUM)));
  SO(is_state(gyre_all_gather(v->comm, &x, &y, 0, GYRE_I32)));
  SO(is_state(gyre_broadcast(v->comm, &x, &y, 1, GYRE_I32, 0)));
  SO(is_state(gyre_reduce(v->comm, &x, &y, 1, GYRE_I32, GYRE_SUM, 0)));
  SO(is_state(gyre_barrier(v->comm)));
  SO(is_state(gyre_comm_create(v->ctx, 0, 1, NULL, &comm)) && !comm);
  SO(is_state(gyre_comm_create_from_env(v->ctx, NULL, &comm)) && !comm);
  SO(is_state(gyre_unique_id_create(v->ctx, &id)));
  SO(is_state(gyre_progress(v->ctx)));
  gyre_comm_abort(NULL, NULL); /* so that the text below is new */
  gyre_comm_destroy(v->comm);
  SO(strstr(gyre_last_error(), "callback") != NULL);
  gyre_comm_abort(NULL, NULL);
  gyre_context_destroy(v->ctx);
  SO(strstr(gyre_last_error(), "callback") != NULL);
  SO(gyre_all_reduce_async(v->comm, &in, &out, 1, GYRE_I32, GYRE_SUM, &later) == GYRE_OK);
  SO(later && gyre_test(later) >= GYRE_OK);
  gyre_request_free(later);
#undef SO
  atomic_store(&v->done, 1);
}

static void rule_blocking_calls_in_callback_return_state(void **state) {
  (void)state;
  for (uint32_t flags = 0; flags <= GYRE_F_NO_PROGRESS_THREAD; flags += GYRE_F_NO_PROGRESS_THREAD) {
    struct crowd c;
    struct visit v[2];
    gyre_request *req[2], *pending[2];
    crowd_create(&c, 2, flags);
    for (int r = 0; r < 2; r++) {
      assert_int_equal(gyre_barrier_async(c.comm[r], &req[r]), GYRE_OK);
    }
    for (int r = 0; r < 2; r++) {
      assert_int_equal(gyre_barrier_async(c.comm[r], &pending[r]), GYRE_OK);
      v[r] = (struct visit){.ctx = c.ctx, .comm = c.comm[r], .pending = pending[r]};
      assert_int_equal(gyre_request_on_complete(req[r], try_everything, &v[r]), GYRE_OK);
    }
    for (int r = 0; r < 2; r++) {
      for (int ms = 0; !atomic_load(&v[r].done) && ms < LIMIT_MS; ms++) {
        assert_int_equal(gyre_progress(c.ctx), GYRE_OK);
        nap();
      }
      assert_int_equal(atomic_load(&v[r].done), 1);
      assert_int_equal(v[r].line, 0);
      assert_int_equal(gyre_wait(req[r], LIMIT_MS), GYRE_OK);
    }
    assert_int_equal(wait_all(pending, 2), GYRE_OK);
    for (int r = 0; r < 2; r++) { /* behind what the callbacks posted */
      assert_int_equal(gyre_barrier_async(c.comm[r], &req[r]), GYRE_OK);
    }
    assert_int_equal(wait_all(req, 2), GYRE_OK);
    crowd_destroy(&c);
  }
}

struct slow { /* a callback that takes its time */
  atomic_int entered, left;
};

static void take_time(gyre_request *req, gyre_status status, void *user) {
  struct slow *s = user;
  (void)req;
  (void)status;
  atomic_store(&s->entered, 1);
  usleep(30000);
  atomic_store(&s->left, 1);
}

static void rule_destroy_returns_after_the_last_callback(void **state) {
  (void)state;
  for (int round = 0; round < 5; round++) {
    struct crowd c;
    struct slow slow[3] = {{0}};
    gyre_request *req[2];
    crowd_create(&c, 2, 0);
    for (int i = 0; i < 3; i++) { /* two of them in flight when the communicator ends */
      assert_int_equal(gyre_barrier_async(c.comm[0], &req[0]), GYRE_OK);
      assert_int_equal(gyre_request_on_complete(req[0], take_time, &slow[i]), GYRE_OK);
      gyre_request_free(req[0]);
    }
    assert_int_equal(gyre_barrier_async(c.comm[1], &req[1]), GYRE_OK);
    assert_true(becomes_set(&slow[0].entered));
    gyre_comm_destroy(c.comm[0]);
    for (int i = 0; i < 3; i++) assert_int_equal(atomic_load(&slow[i].left), 1);
    c.comm[0] = NULL;
    assert_true(gyre_wait(req[1], LIMIT_MS) <= GYRE_OK);
    crowd_destroy(&c);
  }
}

static void expect_aborted(gyre_request *req, gyre_status status, void *user) {
  struct calls *calls = user;
  (void)req;
  if (status != GYRE_ERR_ABORTED) atomic_store(&calls->wrong, true);
  atomic_fetch_add(&calls->count, 1);
}

static void rule_context_destroy_ends_what_is_left(void **state) {
  (void)state;
  for (int round = 0; round < 20; round++) {
    struct crowd c;
    struct calls calls = {0};
    gyre_request *barrier, *creation;
    gyre_comm *never = NULL;
    gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
    gyre_unique_id id;
    crowd_create(&c, 2, round % 2 ? GYRE_F_NO_PROGRESS_THREAD : 0);
    assert_int_equal(gyre_barrier_async(c.comm[0], &barrier), GYRE_OK);
    assert_int_equal(gyre_request_on_complete(barrier, expect_aborted, &calls), GYRE_OK);
    assert_int_equal(gyre_unique_id_create(c.ctx, &id), GYRE_OK);
    config.id = &id;
    assert_int_equal(gyre_comm_create_async(c.ctx, 0, 2, &config, &never, &creation), GYRE_OK);
    assert_int_equal(gyre_request_on_complete(creation, expect_aborted, &calls), GYRE_OK);
    gyre_context_destroy(c.ctx); /* the communicators too */
    assert_int_equal(atomic_load(&calls.count), 2);
    assert_false(atomic_load(&calls.wrong));
    assert_null(never);
    assert_int_equal(gyre_wait(barrier, LIMIT_MS), GYRE_ERR_ABORTED);
    assert_int_equal(gyre_wait(creation, LIMIT_MS), GYRE_ERR_ABORTED);
  }
}

/* ------------------------------------------------------------------------------- abort, destroy --- */

struct blocked {
  gyre_comm *comm;
  gyre_request *req;
  gyre_status status;
  void *data;
  size_t count;
  char text[512];
};

static void *abort_it(void *arg) {
  gyre_comm *comm = arg;
  usleep(5000);
  return gyre_comm_abort(comm, "enough of this") ? arg : NULL;
}

static void rule_abort_from_any_thread(void **state) {
  (void)state;
  struct crowd c;
  pthread_t thread;
  void *failed;
  crowd_create(&c, 3, 0);
  assert_int_equal(pthread_create(&thread, NULL, abort_it, c.comm[1]), 0);
  assert_int_equal(gyre_barrier(c.comm[0]), GYRE_ERR_ABORTED); /* which the others never call */
  assert_non_null(strstr(gyre_last_error(), "enough of this"));
  pthread_join(thread, &failed);
  assert_null(failed);
  for (int r = 0; r < 3; r++) {
    gyre_error error = GYRE_ERROR_INIT;
    for (int ms = 0; gyre_comm_status(c.comm[r], &error) == GYRE_OK && ms < LIMIT_MS; ms++) nap();
    assert_int_equal(error.status, GYRE_ERR_ABORTED);
    assert_int_equal(error.culprit_rank, 1);
    assert_non_null(strstr(error.text, "enough of this"));
    assert_int_equal(gyre_barrier(c.comm[r]), GYRE_ERR_ABORTED);
  }
  crowd_destroy(&c);
}

static int leave_at_once(struct rank_env *env) {
  atomic_int *left = env->arg;
  uint32_t word = env->rank == 0 ? 0xfeedu : 0;
  if (env->rank == 0) {
    NEED(env, gyre_broadcast(env->comm, &word, &word, 1, GYRE_U32, 0) == GYRE_OK);
    gyre_comm_destroy(env->comm);
    env->comm = NULL;
    atomic_store(left, 1);
  } else { /* it calls when the root has left, and still gets what was reported OK */
    NEED(env, becomes_set(left));
    NEED(env, gyre_broadcast(env->comm, NULL, &word, 1, GYRE_U32, 0) == GYRE_OK);
    NEED(env, word == 0xfeedu);
  }
  return 0;
}

static void rule_destroy_never_waits_for_a_peer(void **state) {
  (void)state;
  for (int round = 0; round < 3; round++) {
    atomic_int *left = share(sizeof *left);
    run_ranks(2, leave_at_once, left);
    munmap(left, sizeof *left);
  }
}

static void *broadcast_it(void *arg) {
  struct blocked *b = arg;
  b->status = gyre_broadcast(b->comm, b->data, b->data, b->count, GYRE_U8, 0);
  snprintf(b->text, sizeof b->text, "%s", gyre_last_error());
  return NULL;
}

/* Rank 2 never calls, so the call of rank 0 cannot end; that rank 1's ends shows that rank 0 is in it. */
static int destroy_under_a_call(struct rank_env *env) {
  atomic_int *received = env->arg;
  size_t bytes = 48u << 20;
  char *data = calloc(bytes, 1);
  pthread_t thread;
  NEED(env, data);
  if (env->rank == 0) {
    struct blocked b = {.comm = env->comm, .data = data, .count = bytes};
    NEED(env, pthread_create(&thread, NULL, broadcast_it, &b) == 0);
    NEED(env, becomes_set(received));
    gyre_comm_destroy(env->comm);
    env->comm = NULL;
    NEED(env, pthread_join(thread, NULL) == 0);
    NEED(env, b.status == GYRE_ERR_ABORTED);
    NEED(env, strstr(b.text, "destroyed"));
  } else if (env->rank == 1) {
    NEED(env, gyre_broadcast(env->comm, NULL, data, bytes, GYRE_U8, 0) == GYRE_OK);
    atomic_store(received, 1);
  } else {
    NEED(env, becomes_set(received));
  }
  free(data);
  return 0;
}

static void rule_a_call_in_another_thread_returns_aborted_before_destroy(void **state) {
  (void)state;
  atomic_int *received = share(sizeof *received);
  run_ranks_with_algo(3, destroy_under_a_call, received, "broadcast=tree");
  munmap(received, sizeof *received);
}

/* -------------------------------------------------------------------------------------- buffers --- */

static int overlap_in_part(struct rank_env *env) {
  int32_t buffer[64] = {0}, out[64];
  gyre_comm *c = env->comm;
  int32_t *second = buffer + env->rank * 4;
  NEED(env, gyre_all_reduce(c, buffer, buffer + 1, 4, GYRE_I32, GYRE_SUM) == GYRE_ERR_ARG);
  NEED(env, gyre_all_reduce(c, buffer + 3, buffer, 4, GYRE_I32, GYRE_SUM) == GYRE_ERR_ARG);
  NEED(env, gyre_reduce_scatter(c, buffer, second + 1, 4, GYRE_I32, GYRE_SUM) == GYRE_ERR_ARG);
  NEED(env, gyre_all_gather(c, second + 1, buffer, 4, GYRE_I32) == GYRE_ERR_ARG);
  if (env->rank == 0) {
    NEED(env, gyre_broadcast(c, buffer, buffer + 1, 4, GYRE_I32, 0) == GYRE_ERR_ARG);
    NEED(env, gyre_reduce(c, buffer, buffer + 1, 4, GYRE_I32, GYRE_SUM, 0) == GYRE_ERR_ARG);
  }
  NEED(env, strstr(gyre_last_error(), "overlap"));
  /* Adjacent is disjoint; nothing overlaps what is not touched. */
  NEED(env, gyre_all_reduce(c, buffer, buffer + 4, 4, GYRE_I32, GYRE_SUM) == GYRE_OK);
  NEED(env, gyre_all_reduce(c, buffer, buffer, 0, GYRE_I32, GYRE_SUM) == GYRE_OK);
  NEED(env, gyre_broadcast(c, env->rank ? out + 1 : buffer, out, 4, GYRE_I32, 0) == GYRE_OK);
  NEED(env,
       gyre_reduce(c, buffer, env->rank ? buffer + 1 : out, 4, GYRE_I32, GYRE_SUM, 0) == GYRE_OK);
  return 0;
}

static void rule_partial_overlap_is_arg(void **state) {
  (void)state;
  run_ranks(3, overlap_in_part, NULL);
}

static int differ_in_place(struct rank_env *env) {
  enum { N = 5000 };
  static int32_t in[RANKS_MAX * N], out[RANKS_MAX * N];
  bool in_place = env->rank % 2;
  for (int i = 0; i < N; i++) in[i] = i + env->rank;
  int32_t *to = in_place ? in : out;
  NEED(env, gyre_all_reduce(env->comm, in, to, N, GYRE_I32, GYRE_SUM) == GYRE_OK);
  int32_t ranks = env->nranks * (env->nranks - 1) / 2;
  for (int i = 0; i < N; i++) NEED(env, to[i] == i * env->nranks + ranks);
  int32_t *mine = in_place ? out + env->rank * N : in;
  for (int i = 0; i < N; i++) mine[i] = i * 3 + env->rank;
  NEED(env, gyre_all_gather(env->comm, mine, out, N, GYRE_I32) == GYRE_OK);
  for (int i = 0; i < env->nranks * N; i++) NEED(env, out[i] == i % N * 3 + i / N);
  return 0;
}

static void rule_ranks_may_differ_in_place(void **state) {
  static const char *const algos[] = {"all_reduce=ring,all_gather=ring",
                                      "all_reduce=tree,all_gather=direct",
                                      "all_reduce=recursive_doubling,all_gather=bruck"};
  (void)state;
  for (size_t i = 0; i < sizeof algos / sizeof *algos; i++) {
    for (int n = 2; n <= 4; n = ranks_next(n))
      run_ranks_with_algo(n, differ_in_place, NULL, algos[i]);
  }
}

/* A write to `in` would end the process. */
static int guard_input(struct rank_env *env) {
  enum { N = 40000 };
  size_t bytes = (size_t)env->nranks * N * sizeof(int32_t);
  int32_t *in = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  NEED(env, in != MAP_FAILED);
  int32_t *out = malloc(bytes);
  NEED(env, out);
  for (int i = 0; i < env->nranks * N; i++) in[i] = i ^ env->rank;
  NEED(env, mprotect(in, bytes, PROT_READ) == 0);
  const size_t counts[] = {1, 700, N};
  for (size_t k = 0; k < 3; k++) {
    size_t n = counts[k];
    NEED(env, gyre_all_reduce(env->comm, in, out, n, GYRE_I32, GYRE_SUM) == GYRE_OK);
    NEED(env, gyre_all_reduce(env->comm, in, out, n, GYRE_I32, GYRE_AVG) == GYRE_OK);
    NEED(env, gyre_reduce_scatter(env->comm, in, out, n, GYRE_I32, GYRE_SUM) == GYRE_OK);
    NEED(env, gyre_all_gather(env->comm, in, out, n, GYRE_I32) == GYRE_OK);
    NEED(env, gyre_broadcast(env->comm, in, out, n, GYRE_I32, 1) == GYRE_OK);
    NEED(env, gyre_broadcast(env->comm, in, env->rank ? out : NULL, n, GYRE_I32, 0) == GYRE_OK);
    NEED(env, gyre_reduce(env->comm, in, out, n, GYRE_I32, GYRE_MAX, 1) == GYRE_OK);
  }
  munmap(in, bytes);
  free(out);
  return 0;
}

static void rule_in_is_never_written(void **state) {
  static const char *const algos[] = {NULL,     "ring", "tree", "recursive_doubling",
                                      "direct", "bruck"};
  (void)state;
  for (size_t i = 0; i < sizeof algos / sizeof *algos; i++) {
    char text[128] = "";
    if (algos[i] && strstr("ring tree", algos[i])) {
      snprintf(text, sizeof text, "all_reduce=%s,broadcast=%s,reduce=%s", algos[i], algos[i],
               algos[i]);
    } else if (algos[i] && strstr("direct bruck", algos[i])) {
      snprintf(text, sizeof text, "all_gather=%s", algos[i]);
    } else if (algos[i]) {
      snprintf(text, sizeof text, "all_reduce=%s", algos[i]);
    }
    run_ranks_with_algo(3, guard_input, NULL, *text ? text : NULL);
  }
}

static int leave_out_out(struct rank_env *env) {
  int32_t in[100], out[100];
  for (int root = 0; root < env->nranks; root++) {
    bool mine = env->rank == root;
    for (int i = 0; i < 100; i++) {
      in[i] = mine ? i : i + 1;
      out[i] = -1;
    }
    NEED(env,
         gyre_reduce(env->comm, in, mine ? out : NULL, 100, GYRE_I32, GYRE_MIN, root) == GYRE_OK);
    for (int i = 0; i < 100; i++) NEED(env, out[i] == (mine ? i : -1));
    NEED(env, gyre_broadcast(env->comm, mine ? in : NULL, mine ? NULL : out, 100, GYRE_I32, root) ==
                  GYRE_OK);
    for (int i = 0; i < 100; i++) NEED(env, mine ? in[i] == i : out[i] == i);
  }
  return 0;
}

static void rule_out_may_be_null_off_root(void **state) {
  (void)state;
  run_ranks(3, leave_out_out, NULL);
}

static int pass_nothing(struct rank_env *env) {
  gyre_comm *c = env->comm;
  NEED(env, gyre_all_reduce(c, NULL, NULL, 0, GYRE_F64, GYRE_AVG) == GYRE_OK);
  NEED(env, gyre_reduce_scatter(c, NULL, NULL, 0, GYRE_U8, GYRE_SUM) == GYRE_OK);
  NEED(env, gyre_all_gather(c, NULL, NULL, 0, GYRE_U8) == GYRE_OK);
  NEED(env, gyre_broadcast(c, NULL, NULL, 0, GYRE_F16, 1) == GYRE_OK);
  NEED(env, gyre_reduce(c, NULL, NULL, 0, GYRE_BF16, GYRE_MAX, 1) == GYRE_OK);
  return 0;
}

static void rule_count_may_be_zero(void **state) {
  (void)state;
  run_ranks(3, pass_nothing, NULL);
}

struct arrivals {
  atomic_int n;
};

static int arrive(struct rank_env *env) {
  struct arrivals *a = env->arg;
  for (int round = 0; round < 30; round++) {
    usleep((useconds_t)((env->rank * 7 + round * 13) % 20 * 100));
    atomic_fetch_add(&a->n, 1);
    NEED(env, gyre_barrier(env->comm) == GYRE_OK);
    NEED(env, atomic_load(&a->n) >= (round + 1) * env->nranks);
  }
  return 0;
}

static void rule_barrier_completes_when_all_have_called(void **state) {
  (void)state;
  for (int n = 2; n <= 4; n = ranks_next(n)) {
    struct arrivals *a = share(sizeof *a);
    run_ranks(n, arrive, a);
    munmap(a, sizeof *a);
  }
}

/* --------------------------------------------------------------------------------------- values --- */

enum { INEXACT = 10007 };

static uint64_t hash(const void *data, size_t bytes) {
  const unsigned char *p = data;
  uint64_t h = 14695981039346656037u;
  for (size_t i = 0; i < bytes; i++) h = (h ^ p[i]) * 1099511628211u;
  return h;
}

/* Numbers whose sums depend on the order of the additions. */
static float inexact(int rank, size_t i) {
  uint32_t x = (uint32_t)i * 2654435761u + (uint32_t)rank * 2246822519u;
  x ^= x >> 15;
  x *= 2246822519u;
  x ^= x >> 13;
  return ldexpf((float)(x & 0xffffff) / 16777216.0f - 0.5f, (int)(x >> 28) - 8);
}

/* The results' hashes, one for each rank, in `shared`. */
static int reduce_inexact(struct rank_env *env) {
  static float in[INEXACT], out[INEXACT];
  uint64_t *shared = env->arg, first = 0;
  for (int round = 0; round < 6; round++) {
    bool in_place = (round + env->rank) % 3 == 0;
    float *to = in_place ? in : out;
    for (size_t i = 0; i < INEXACT; i++) in[i] = inexact(env->rank, i);
    usleep((useconds_t)((env->rank * 3 + round) % 4 * 300)); /* ranks come in another order */
    NEED(env, gyre_all_reduce(env->comm, in, to, INEXACT, GYRE_F32, GYRE_SUM) == GYRE_OK);
    uint64_t h = hash(to, sizeof out);
    if (round == 0) first = h;
    NEED(env, h == first);
  }
  shared[env->rank] = first;
  return 0;
}

static void rule_determinism_bit_identical_on_ranks_and_runs(void **state) {
  static const char *const algos[] = {"ring", "tree", "recursive_doubling"};
  uint64_t *shared = share(8 * sizeof *shared), distinct[3];
  (void)state;
  for (int n = 2; n <= 5; n = ranks_next(n)) {
    for (size_t a = 0; a < 3; a++) {
      char algo[64];
      uint64_t first = 0;
      snprintf(algo, sizeof algo, "all_reduce=%s", algos[a]);
      for (int run = 0; run < 2; run++) {
        run_ranks_with_algo(n, reduce_inexact, shared, algo);
        if (run == 0) first = shared[0];
        for (int r = 0; r < n; r++) assert_int_equal(shared[r], first);
      }
      distinct[a] = first;
    }
  }
  /* The data would show another order: algorithms that add in another one differ. */
  assert_true(distinct[0] != distinct[1] || distinct[1] != distinct[2]);
  munmap(shared, 8 * sizeof *shared);
}

static int average_integers(struct rank_env *env) {
  int n = env->nranks;
  int32_t a = env->rank == 0 ? -7 : 0, b = 7 * (env->rank == 0), out = 99;
  NEED(env, gyre_all_reduce(env->comm, &a, &out, 1, GYRE_I32, GYRE_AVG) == GYRE_OK);
  NEED(env, out == -7 / n);
  NEED(env, gyre_all_reduce(env->comm, &b, &out, 1, GYRE_I32, GYRE_AVG) == GYRE_OK);
  NEED(env, out == 7 / n);
  int8_t c = 127, d = 0;
  NEED(env, gyre_all_reduce(env->comm, &c, &d, 1, GYRE_I8, GYRE_AVG) == GYRE_OK);
  NEED(env, d == (int8_t)(127 * n) / n); /* the sum wraps first */
  uint8_t e = 255, f = 0;
  NEED(env, gyre_all_reduce(env->comm, &e, &f, 1, GYRE_U8, GYRE_AVG) == GYRE_OK);
  NEED(env, f == (uint8_t)(255 * n) / n);
  uint64_t g = UINT64_MAX - 1, h = 0, sum = 0;
  for (int r = 0; r < n; r++) sum += g;
  NEED(env, gyre_all_reduce(env->comm, &g, &h, 1, GYRE_U64, GYRE_AVG) == GYRE_OK);
  NEED(env, h == sum / (uint64_t)n);
  return 0;
}

static void rule_integer_average_wraps_then_truncates(void **state) {
  (void)state;
  for (int n = 1; n <= 4; n = ranks_next(n)) run_ranks(n, average_integers, NULL);
}

static int extremes(struct rank_env *env) {
  int last = env->nranks - 1;
  for (int who = 0; who < env->nranks; who++) { /* one rank has the NaN, or the negative zero */
    bool mine = env->rank == who;
    for (int op = GYRE_MIN; op <= GYRE_MAX; op++) {
      float f[2] = {mine ? NAN : 1.0f, mine ? -0.0f : 0.0f}, fo[2];
      double d[2] = {mine ? NAN : (double)INFINITY, mine ? 0.0 : -0.0}, dd[2];
      NEED(env, gyre_all_reduce(env->comm, f, fo, 2, GYRE_F32, (gyre_op)op) == GYRE_OK);
      NEED(env, isnan(fo[0]) && fo[1] == 0.0f);
      NEED(env, !!signbit(fo[1]) == (op == GYRE_MIN || last == 0));
      NEED(env, gyre_all_reduce(env->comm, d, dd, 2, GYRE_F64, (gyre_op)op) == GYRE_OK);
      NEED(env, isnan(dd[0]) && dd[1] == 0.0);
      NEED(env, !!signbit(dd[1]) == (op == GYRE_MIN && last > 0));
      uint16_t h[2] = {mine ? 0x7e00 : 0x3c00, mine ? 0x8000 : 0}, ho[2];
      NEED(env, gyre_all_reduce(env->comm, h, ho, 2, GYRE_F16, (gyre_op)op) == GYRE_OK);
      NEED(env, isnan(gy_f16_to_f32(ho[0])));
      NEED(env, ho[1] == (op == GYRE_MIN || last == 0 ? 0x8000 : 0));
      uint16_t b[2] = {mine ? 0x7fc0 : 0x3f80, mine ? 0x8000 : 0}, bo[2];
      NEED(env, gyre_all_reduce(env->comm, b, bo, 2, GYRE_BF16, (gyre_op)op) == GYRE_OK);
      NEED(env, isnan(gy_bf16_to_f32(bo[0])));
      NEED(env, bo[1] == (op == GYRE_MIN || last == 0 ? 0x8000 : 0));
    }
  }
  return 0;
}

static void rule_min_max_nan_wins_and_zeros_are_ordered(void **state) {
  (void)state;
  for (int n = 1; n <= 3; n = ranks_next(n)) run_ranks(n, extremes, NULL);
}

/* Rounding, trapping and, where there is such a thing, flushing of subnormals, as the caller likes it. */
static void spoil_environment(int rank) {
  static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
  fesetround(modes[rank % 3]);
#if defined(__x86_64__)
  __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040u); /* FTZ, DAZ */
#endif
  feenableexcept(FE_INEXACT | FE_OVERFLOW | FE_UNDERFLOW | FE_INVALID | FE_DIVBYZERO);
}

static int spoil_and_reduce(struct rank_env *env) {
  static float in[INEXACT], plain[INEXACT], spoilt[INEXACT];
  double big[2] = {DBL_MAX, NAN}, sum[2], average = 0, third = 1;
  for (size_t i = 0; i < INEXACT; i++) in[i] = inexact(env->rank, i);
  in[0] = FLT_MIN / 4; /* subnormal, as is its sum */
  NEED(env, gyre_all_reduce(env->comm, in, plain, INEXACT, GYRE_F32, GYRE_SUM) == GYRE_OK);
  NEED(env, env->nranks > 4 || fpclassify(plain[0]) == (env->nranks < 4 ? FP_SUBNORMAL : FP_NORMAL));
  fenv_t before;
  fegetenv(&before);
  spoil_environment(env->rank);
  int round = fegetround(), traps = fegetexcept();
  gyre_status st = gyre_all_reduce(env->comm, in, spoilt, INEXACT, GYRE_F32, GYRE_SUM);
  if (!st) st = gyre_all_reduce(env->comm, big, sum, 2, GYRE_F64, GYRE_SUM);
  if (!st) st = gyre_all_reduce(env->comm, &third, &average, 1, GYRE_F64, GYRE_AVG);
  if (!st) st = gyre_reduce(env->comm, in, spoilt, INEXACT, GYRE_F32, GYRE_MAX, 0);
  if (!st) st = gyre_all_reduce(env->comm, in, spoilt, INEXACT, GYRE_F32, GYRE_SUM);
  bool kept = fegetround() == round && fegetexcept() == traps;
  fesetenv(&before);
  NEED(env, st == GYRE_OK);
  NEED(env, kept);
  NEED(env, memcmp(plain, spoilt, sizeof plain) == 0);
  NEED(env, isnan(sum[1]) && average == 1.0);
  return 0;
}

static void rule_fp_environment_does_not_matter(void **state) {
  static const char *const algos[] = {NULL, "all_reduce=ring", "all_reduce=tree",
                                      "all_reduce=recursive_doubling"};
  (void)state;
  for (size_t a = 0; a < sizeof algos / sizeof *algos; a++) {
    for (int n = 2; n <= 3; n = ranks_next(n))
      run_ranks_with_algo(n, spoil_and_reduce, NULL, algos[a]);
  }
}

/* ----------------------------------------------------------------------------- threads, embedding --- */

static int32_t one_to(int n) { return n * (n + 1) / 2; }

static void crowd_reduce(struct crowd *c, size_t count) {
  gyre_request *req[RANKS_MAX];
  int32_t *in[RANKS_MAX], *out[RANKS_MAX];
  for (int r = 0; r < c->n; r++) {
    in[r] = test_malloc(count * sizeof(int32_t));
    out[r] = test_calloc(count, sizeof(int32_t));
    for (size_t i = 0; i < count; i++) in[r][i] = r + 1;
    assert_int_equal(
        gyre_all_reduce_async(c->comm[r], in[r], out[r], count, GYRE_I32, GYRE_SUM, &req[r]),
        GYRE_OK);
  }
  assert_int_equal(wait_all(req, c->n), GYRE_OK);
  for (int r = 0; r < c->n; r++) {
    for (size_t i = 0; i < count; i++) assert_int_equal(out[r][i], one_to(c->n));
    test_free(in[r]);
    test_free(out[r]);
  }
}

static void rule_several_ranks_driven_by_one_thread(void **state) {
  (void)state;
  for (uint32_t flags = 0; flags <= GYRE_F_NO_PROGRESS_THREAD; flags += GYRE_F_NO_PROGRESS_THREAD) {
    struct crowd c;
    crowd_create(&c, 4, flags);
    for (int r = 0; r < 4; r++) {
      assert_int_equal(gyre_comm_rank(c.comm[r]), r);
      assert_int_equal(gyre_comm_size(c.comm[r]), 4);
    }
    crowd_reduce(&c, 1);
    crowd_reduce(&c, 300000);
    crowd_destroy(&c);
  }
}

struct member { /* a rank that is a thread */
  pthread_t thread;
  gyre_context *ctx; /* shared, or NULL: its own */
  const gyre_unique_id *id;
  const char *rendezvous;
  int rank, n;
  bool good;
};

static void *be_member(void *arg) {
  struct member *m = arg;
  gyre_context *ctx = m->ctx;
  gyre_comm *comm;
  gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
  config.id = m->id;
  config.rendezvous = m->rendezvous;
  if (!ctx && gyre_context_create(&ctx)) return NULL;
  if (gyre_comm_create(ctx, m->rank, m->n, &config, &comm)) {
    fprintf(stderr, "%s\n", gyre_last_error());
    return NULL;
  }
  m->good = true;
  for (int k = 0; k < 50; k++) {
    int32_t in = m->rank + 1, out = 0;
    if (gyre_all_reduce(comm, &in, &out, 1, GYRE_I32, GYRE_SUM) || out != one_to(m->n))
      m->good = false;
  }
  gyre_comm_destroy(comm);
  if (!m->ctx) gyre_context_destroy(ctx);
  return NULL;
}

static void join_members(struct member *m, int n) {
  for (int r = 0; r < n; r++) {
    m[r].rank = r;
    m[r].n = n;
    assert_int_equal(pthread_create(&m[r].thread, NULL, be_member, &m[r]), 0);
  }
  for (int r = 0; r < n; r++) pthread_join(m[r].thread, NULL);
  for (int r = 0; r < n; r++) assert_true(m[r].good);
}

static void rule_several_ranks_as_threads_of_one_context(void **state) {
  (void)state;
  for (uint32_t flags = 0; flags <= GYRE_F_NO_PROGRESS_THREAD; flags += GYRE_F_NO_PROGRESS_THREAD) {
    gyre_context *ctx;
    gyre_unique_id id;
    gyre_context_config config = GYRE_CONTEXT_CONFIG_INIT;
    config.flags = flags;
    assert_int_equal(gyre_context_create_with(&config, &ctx), GYRE_OK);
    assert_int_equal(gyre_unique_id_create(ctx, &id), GYRE_OK);
    struct member m[4];
    for (int r = 0; r < 4; r++) m[r] = (struct member){.ctx = ctx, .id = &id};
    join_members(m, 4);
    gyre_context_destroy(ctx);
  }
}

static void rule_several_ranks_with_contexts_of_their_own(void **state) {
  (void)state;
  char dir[] = "/tmp/gyre-test-XXXXXX", rendezvous[64];
  assert_non_null(mkdtemp(dir));
  snprintf(rendezvous, sizeof rendezvous, "file://%s/job", dir);
  struct member m[4];
  for (int r = 0; r < 4; r++) m[r] = (struct member){.rendezvous = rendezvous};
  join_members(m, 4);
  assert_int_equal(rmdir(dir), 0); /* the rendezvous has cleaned up */
}

struct worker { /* a thread of a rank */
  struct rank_env *env;
  gyre_comm *comm;
  pthread_mutex_t *turn; /* threads that share a communicator agree on the order */
  int index, *next;
  int failed;
};

static void *work_alone(void *arg) {
  struct worker *w = arg;
  for (int k = 0; k < 100; k++) {
    int32_t in = k + w->index, out = 0;
    gyre_status st = gyre_all_reduce(w->comm, &in, &out, 1, GYRE_I32, GYRE_SUM);
    if (st || out != in * w->env->nranks) w->failed++;
  }
  return NULL;
}

static int many_workers(struct rank_env *env) {
  enum { WORKERS = 4 };
  struct worker w[WORKERS];
  pthread_t thread[WORKERS];
  for (int i = 0; i < WORKERS; i++) {
    char suffix[16];
    snprintf(suffix, sizeof suffix, "w%d", i);
    w[i] = (struct worker){.env = env, .index = i};
    NEED(env, another(env, suffix, &w[i].comm) == GYRE_OK);
  }
  for (int i = 0; i < WORKERS; i++) {
    NEED(env, pthread_create(&thread[i], NULL, work_alone, &w[i]) == 0);
  }
  for (int i = 0; i < WORKERS; i++) pthread_join(thread[i], NULL);
  for (int i = 0; i < WORKERS; i++) {
    NEED(env, w[i].failed == 0);
    gyre_comm_destroy(w[i].comm);
  }
  return 0;
}

static void rule_threads_share_a_context(void **state) {
  (void)state;
  run_ranks(2, many_workers, NULL);
}

/* Posts in the order 0, 1, 2, ... of `next`, then waits outside. */
static void *work_in_turn(void *arg) {
  struct worker *w = arg;
  for (;;) {
    gyre_request *req;
    int32_t in, out = 0;
    pthread_mutex_lock(w->turn);
    int k = in = (*w->next)++;
    gyre_status st = k < 200 ? gyre_all_reduce_async(w->comm, &in, &out, 1, GYRE_I32, GYRE_SUM, &req)
                             : GYRE_ERR_STATE;
    pthread_mutex_unlock(w->turn);
    if (k >= 200) return NULL;
    if (st || gyre_wait(req, LIMIT_MS) || out != in * w->env->nranks) w->failed++;
  }
}

static int workers_in_turn(struct rank_env *env) {
  enum { WORKERS = 3 };
  pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
  struct worker w[WORKERS];
  pthread_t thread[WORKERS];
  int next = 0;
  for (int i = 0; i < WORKERS; i++) {
    w[i] = (struct worker){.env = env, .comm = env->comm, .turn = &turn, .next = &next};
    NEED(env, pthread_create(&thread[i], NULL, work_in_turn, &w[i]) == 0);
  }
  for (int i = 0; i < WORKERS; i++) pthread_join(thread[i], NULL);
  for (int i = 0; i < WORKERS; i++) NEED(env, w[i].failed == 0);
  return 0;
}

static void rule_threads_may_share_a_communicator_in_order(void **state) {
  (void)state;
  run_ranks(2, workers_in_turn, NULL);
}

/* Progress only when the descriptor says so. */
static gyre_status settle(struct crowd *c, gyre_request **req, int n) {
  struct pollfd fd = {gyre_context_fd(c->ctx), POLLIN, 0};
  gyre_status worst = GYRE_OK;
  if (gyre_progress(c->ctx)) return GYRE_ERR_INTERNAL;
  for (int r = 0; r < n; r++) {
    gyre_status st;
    while ((st = gyre_test(req[r])) == GYRE_IN_PROGRESS) {
      if (poll(&fd, 1, LIMIT_MS) != 1) return GYRE_ERR_INTERNAL;
      if (gyre_progress(c->ctx)) return GYRE_ERR_INTERNAL;
    }
    if (st) worst = st;
    gyre_request_free(req[r]);
  }
  return worst;
}

static void rule_context_fd_is_readable_for_progress_and_deadlines(void **state) {
  (void)state;
  struct crowd c = {.n = 2};
  gyre_context_config context = GYRE_CONTEXT_CONFIG_INIT;
  gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
  gyre_request *req[2];
  gyre_unique_id id;
  context.flags = GYRE_F_NO_PROGRESS_THREAD;
  config.op_timeout_ms = 300;
  assert_int_equal(gyre_context_create_with(&context, &c.ctx), GYRE_OK);
  assert_int_equal(gyre_context_fd(c.ctx), gyre_context_fd(c.ctx));
  assert_int_equal(gyre_unique_id_create(c.ctx, &id), GYRE_OK);
  config.id = &id;
  for (int r = 0; r < 2; r++) {
    assert_int_equal(gyre_comm_create_async(c.ctx, r, 2, &config, &c.comm[r], &req[r]), GYRE_OK);
  }
  assert_int_equal(settle(&c, req, 2), GYRE_OK);
  enum { N = 200000 };
  int32_t *in = test_calloc(N, sizeof *in), *out[2];
  for (int round = 0; round < 5; round++) {
    for (int r = 0; r < 2; r++) {
      out[r] = test_calloc(N, sizeof **out);
      in[N - 1] = round;
      assert_int_equal(gyre_all_reduce_async(c.comm[r], in, out[r], N, GYRE_I32, GYRE_SUM, &req[r]),
                       GYRE_OK);
    }
    assert_int_equal(settle(&c, req, 2), GYRE_OK);
    for (int r = 0; r < 2; r++) {
      assert_int_equal(out[r][N - 1], 2 * round);
      test_free(out[r]);
    }
  }
  test_free(in);
  /* Rank 1 never calls: nothing but time passes. */
  assert_int_equal(gyre_barrier_async(c.comm[0], &req[0]), GYRE_OK);
  assert_int_equal(settle(&c, req, 1), GYRE_ERR_TIMEOUT);
  crowd_destroy(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rule_context_and_communicator_are_separate),
      cmocka_unit_test(rule_many_communicators_need_no_common_order),
      cmocka_unit_test(rule_creation_leaves_out_untouched_on_failure),
      cmocka_unit_test(rule_stale_struct_size_is_refused),
      cmocka_unit_test(rule_version_is_that_of_the_header),
      cmocka_unit_test(rule_null_is_harmless),
      cmocka_unit_test(rule_last_error_is_per_thread),
      cmocka_unit_test(rule_wait_frees_except_on_timeout),
      cmocka_unit_test(rule_requests_outlive_their_communicator_and_context),
      cmocka_unit_test(rule_posting_error_consumes_no_sequence_number),
      cmocka_unit_test(rule_free_is_legal_in_flight),
      cmocka_unit_test(rule_callbacks_run_once_after_the_post),
      cmocka_unit_test(rule_blocking_calls_in_callback_return_state),
      cmocka_unit_test(rule_destroy_returns_after_the_last_callback),
      cmocka_unit_test(rule_context_destroy_ends_what_is_left),
      cmocka_unit_test(rule_abort_from_any_thread),
      cmocka_unit_test(rule_destroy_never_waits_for_a_peer),
      cmocka_unit_test(rule_a_call_in_another_thread_returns_aborted_before_destroy),
      cmocka_unit_test(rule_partial_overlap_is_arg),
      cmocka_unit_test(rule_ranks_may_differ_in_place),
      cmocka_unit_test(rule_in_is_never_written),
      cmocka_unit_test(rule_out_may_be_null_off_root),
      cmocka_unit_test(rule_count_may_be_zero),
      cmocka_unit_test(rule_barrier_completes_when_all_have_called),
      cmocka_unit_test(rule_determinism_bit_identical_on_ranks_and_runs),
      cmocka_unit_test(rule_integer_average_wraps_then_truncates),
      cmocka_unit_test(rule_min_max_nan_wins_and_zeros_are_ordered),
      cmocka_unit_test(rule_fp_environment_does_not_matter),
      cmocka_unit_test(rule_threads_share_a_context),
      cmocka_unit_test(rule_threads_may_share_a_communicator_in_order),
      /* from here on in this process, where libuv keeps threads: no fork after that */
      cmocka_unit_test(rule_several_ranks_driven_by_one_thread),
      cmocka_unit_test(rule_several_ranks_as_threads_of_one_context),
      cmocka_unit_test(rule_several_ranks_with_contexts_of_their_own),
      cmocka_unit_test(rule_context_fd_is_readable_for_progress_and_deadlines),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

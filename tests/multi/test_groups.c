/*
 * test_groups.c - communicators made from others: who is in them and in which order, that they are
 * independent of the one they come from, and that nothing is left of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "ranks.h"

#define RANKS 5

/* An all-gather of the first communicator's ranks must give these, in this order. */
static int expect_members(struct rank_env *env, gyre_comm *comm, const char *what,
                          const int *member, int n) {
  int32_t mine = env->rank, got[RANKS] = {0};
  if (gyre_comm_size(comm) != n) return RANK_FAIL(env, "%s: size %d", what, gyre_comm_size(comm));
  if (gyre_all_gather(comm, &mine, got, 1, GYRE_I32))
    return RANK_FAIL(env, "%s: %s", what, gyre_last_error());
  for (int i = 0; i < n; i++) {
    if (got[i] != member[i])
      return RANK_FAIL(env, "%s: rank %d is %d, not %d", what, i, got[i], member[i]);
    if (member[i] == env->rank && gyre_comm_rank(comm) != i)
      return RANK_FAIL(env, "%s: I am %d, not %d", what, gyre_comm_rank(comm), i);
  }
  return 0;
}

/* The sum of the members' ranks plus 1, `count` times. */
static int expect_sum(struct rank_env *env, gyre_comm *comm, const char *what, float sum,
                      size_t count) {
  float *in = calloc(count + 1, sizeof *in), *out = calloc(count + 1, sizeof *out);
  int failed = 0;
  for (size_t i = 0; i < count; i++) in[i] = (float)(env->rank + 1);
  if (gyre_all_reduce(comm, in, out, count, GYRE_F32, GYRE_SUM))
    failed = RANK_FAIL(env, "%s: %s", what, gyre_last_error());
  for (size_t i = 0; i < count && !failed; i++) {
    if (out[i] != sum) failed = RANK_FAIL(env, "%s: %g, not %g", what, (double)out[i], (double)sum);
  }
  free(in);
  free(out);
  return failed;
}

/* Splits and gives the expected members of this rank's group, by the rule of gyre.h. */
static int split(struct rank_env *env, const char *what, const int *color, const int *key,
                 gyre_comm **out) {
  int member[RANKS], n = 0;
  gyre_comm *const untouched = (gyre_comm *)(void *)env;
  *out = untouched;
  if (gyre_comm_split(env->comm, color[env->rank], key[env->rank], out))
    return RANK_FAIL(env, "%s: %s", what, gyre_last_error());
  if (color[env->rank] < 0) return *out ? RANK_FAIL(env, "%s: got a communicator", what) : 0;
  for (int r = 0; r < env->nranks; r++) {
    if (color[r] != color[env->rank]) continue;
    int at = n++;
    for (; at > 0 && key[member[at - 1]] > key[r]; at--) member[at] = member[at - 1];
    member[at] = r;
  }
  return expect_members(env, *out, what, member, n);
}

struct partition {
  const char *what;
  int color[RANKS], key[RANKS];
};

static const struct partition partitions[] = {
    {"by parity", {0, 1, 0, 1, 0}, {0}},
    {"by key reversed", {7, 7, 7, 7, 7}, {5, 4, 3, 2, 1}},
    {"all alone", {0, 1, 2, 3, 4}, {0}},
    {"some in none", {-1, 3, INT_MIN, 3, 3}, {0, 9, 0, -9, 0}},
    {"all in none", {-1, -2, -3, -4, -5}, {0}},
    {"extreme", {INT_MAX, 0, INT_MAX, 0, INT_MAX}, {INT_MAX, 0, INT_MIN, -1, 0}},
};
#define PARTITIONS (sizeof partitions / sizeof *partitions)

/* All at once alive, beside their parent; parent last, first or in between. */
static int parts(struct rank_env *env) {
  gyre_comm *made[PARTITIONS] = {NULL};
  int failed = 0;
  for (size_t i = 0; i < PARTITIONS && !failed; i++)
    failed = split(env, partitions[i].what, partitions[i].color, partitions[i].key, &made[i]);
  for (size_t i = 0; i < PARTITIONS; i++) gyre_comm_destroy(made[i]);
  return failed || expect_sum(env, env->comm, "the parent", RANKS * (RANKS + 1) / 2, 7);
}

static void ranks_part_by_colour_and_key(void **state) {
  (void)state;
  assert_int_equal(ranks_run(RANKS, parts, NULL), 0);
}

/* A split of a split of a split, whose ancestors are destroyed one after the other. */
static int nest(struct rank_env *env) {
  int rank = env->rank, color = rank < 4 ? 0 : 1, members[] = {3, 2, 1, 0}, alone[] = {4};
  gyre_comm *first, *second, *third;
  if (gyre_comm_split(env->comm, color, -rank, &first))
    return RANK_FAIL(env, "first: %s", gyre_last_error());
  gyre_comm_destroy(env->comm);
  env->comm = first; /* destroyed by whoever made the first */
  int failed = color ? expect_members(env, first, "first", alone, 1)
                     : expect_members(env, first, "first", members, 4);
  if (failed) return failed;
  if (gyre_comm_split(first, rank % 2, rank, &second))
    return RANK_FAIL(env, "second: %s", gyre_last_error());
  gyre_comm_destroy(first);
  env->comm = second;
  int pairs[2][2] = {{0, 2}, {1, 3}};
  failed = color ? expect_members(env, second, "second", alone, 1)
                 : expect_members(env, second, "second", pairs[rank % 2], 2);
  if (failed) return failed;
  if (gyre_comm_dup(second, &third)) return RANK_FAIL(env, "third: %s", gyre_last_error());
  gyre_comm_destroy(second);
  env->comm = third;
  return color ? expect_members(env, third, "third", alone, 1)
               : expect_members(env, third, "third", pairs[rank % 2], 2);
}

static void splits_of_splits_outlive_their_parents(void **state) {
  (void)state;
  assert_int_equal(ranks_run(RANKS, nest, NULL), 0);
}

struct thread {
  pthread_t id;
  struct rank_env *env;
  gyre_comm *comm;
  int failed;
};

static void *traffic(void *arg) {
  struct thread *t = arg;
  for (size_t i = 0; i < 40 && !t->failed; i++)
    t->failed = expect_sum(t->env, t->comm, "in a thread", 6, i % 4 == 3 ? 40009 : i);
  return NULL;
}

/* Threads run collectives on the parent and on duplicates, while this one makes further ones. */
static int beside_traffic(struct rank_env *env) {
  enum { THREADS = 3 };
  struct thread t[THREADS];
  int failed = 0;
  for (int i = 0; i < THREADS; i++) {
    t[i] = (struct thread){.env = env, .comm = env->comm};
    if (i > 0 && gyre_comm_dup(env->comm, &t[i].comm))
      return RANK_FAIL(env, "dup: %s", gyre_last_error());
  }
  for (int i = 0; i < THREADS; i++) pthread_create(&t[i].id, NULL, traffic, &t[i]);
  for (int i = 0; i < 5 && !failed; i++) {
    gyre_comm *more;
    if (gyre_comm_dup(env->comm, &more)) {
      failed = RANK_FAIL(env, "a later dup: %s", gyre_last_error());
    } else {
      failed = expect_sum(env, more, "a later dup", 6, 1009);
      gyre_comm_destroy(more);
    }
  }
  for (int i = 0; i < THREADS; i++) pthread_join(t[i].id, NULL);
  for (int i = 0; i < THREADS; i++) failed |= t[i].failed;
  for (int i = 1; i < THREADS; i++) gyre_comm_destroy(t[i].comm);
  return failed;
}

static void duplicates_run_beside_their_parent(void **state) {
  (void)state;
  assert_int_equal(ranks_run(3, beside_traffic, NULL), 0);
}

/* Several calls in flight at once, posted before any has completed, with a collective between. */
static int many_in_flight(struct rank_env *env) {
  enum { CALLS = 6 };
  gyre_comm *made[CALLS];
  gyre_request *req[CALLS], *sum;
  float one = 1, total = 0;
  for (int i = 0; i < CALLS; i++) {
    gyre_status st = i % 2 ? gyre_comm_dup_async(env->comm, &made[i], &req[i])
                           : gyre_comm_split_async(env->comm, env->rank / 2, 0, &made[i], &req[i]);
    if (st) return RANK_FAIL(env, "post %d: %s", i, gyre_last_error());
    if (i != CALLS / 2) continue;
    if (gyre_all_reduce_async(env->comm, &one, &total, 1, GYRE_F32, GYRE_SUM, &sum))
      return RANK_FAIL(env, "all_reduce: %s", gyre_last_error());
  }
  if (gyre_wait(sum, -1) || total != 4) return RANK_FAIL(env, "all_reduce gave %g", (double)total);
  int all[] = {0, 1, 2, 3}, *half = env->rank < 2 ? all : all + 2, failed = 0;
  for (int i = CALLS - 1; i >= 0; i--) {
    if (gyre_wait(req[i], -1)) return RANK_FAIL(env, "call %d: %s", i, gyre_last_error());
  }
  for (int i = 0; i < CALLS && !failed; i++)
    failed = i % 2 ? expect_members(env, made[i], "dup", all, 4)
                   : expect_members(env, made[i], "split", half, 2);
  for (int i = 0; i < CALLS; i++) gyre_comm_destroy(made[i]);
  return failed;
}

static void calls_may_overlap(void **state) {
  (void)state;
  assert_int_equal(ranks_run(4, many_in_flight, NULL), 0);
}

static int descriptors(void) {
  DIR *dir = opendir("/proc/self/fd");
  int n = -3; /* ".", "..", the directory itself */
  while (dir && readdir(dir)) n++;
  if (dir) closedir(dir);
  return n;
}

/* Sockets whose peer has not closed yet linger: their number goes down by and by. */
static int expect_descriptors(struct rank_env *env, int before) {
  int now = 0;
  for (int i = 0; i < 1000; i++) {
    gyre_progress(env->ctx);
    now = descriptors();
    if (now <= before) return 0;
    poll(NULL, 0, 10);
  }
  return RANK_FAIL(env, "%d descriptors, before there were %d", now, before);
}

static int over_and_over(struct rank_env *env) {
  int failed = 0, before = 0;
  for (int round = 0; round < 100 && !failed; round++) {
    gyre_comm *part;
    if (gyre_comm_split(env->comm, (env->rank + round) % 2, env->rank, &part))
      return RANK_FAIL(env, "round %d: %s", round, gyre_last_error());
    if (round % 10 == 0)
      failed = expect_sum(env, part, "a part", (env->rank + round) % 2 == round % 2 ? 4 : 2, 3);
    gyre_comm_destroy(part);
    if (round == 0) {
      if (gyre_barrier(env->comm)) return RANK_FAIL(env, "barrier: %s", gyre_last_error());
      poll(NULL, 0, 50);
      before = descriptors();
    }
  }
  return failed || expect_descriptors(env, before) || gyre_barrier(env->comm);
}

static void a_hundred_splits_leave_nothing(void **state) {
  (void)state;
  assert_int_equal(ranks_run(3, over_and_over, NULL), 0);
}

/* The verdict of the parent, on every rank, and what the call itself said. */
static int expect_end(struct rank_env *env, gyre_status st, gyre_status wanted, const char *said) {
  gyre_error e = GYRE_ERROR_INIT;
  if (st != wanted || !strstr(gyre_last_error(), said))
    return RANK_FAIL(env, "%s: %s", gyre_status_name(st), gyre_last_error());
  if (gyre_comm_status(env->comm, &e) != wanted || !strstr(e.text, said))
    return RANK_FAIL(env, "the verdict is %s: %s", gyre_status_name(e.status), e.text);
  return 0;
}

/* The last rank does not call, or calls something else; on each rank the same is said. */
static int one_does_not_call(struct rank_env *env) {
  gyre_comm *none = NULL;
  float in = 0, out;
  if (env->rank == env->nranks - 1) {
    gyre_status st = gyre_all_reduce(env->comm, &in, &out, 1, GYRE_F32, GYRE_SUM);
    return expect_end(env, st, GYRE_ERR_TIMEOUT, "did not call gyre_comm_split");
  }
  int failed = expect_end(env, gyre_comm_split(env->comm, 0, 0, &none), GYRE_ERR_TIMEOUT, "rank 2 (");
  if (none) failed = RANK_FAIL(env, "got a communicator");
  if (gyre_comm_dup(env->comm, &none) != GYRE_ERR_TIMEOUT)
    failed = RANK_FAIL(env, "a later call: %s", gyre_last_error());
  return failed;
}

static int one_calls_dup(struct rank_env *env) {
  gyre_comm *none = NULL;
  gyre_status st =
      env->rank == 1 ? gyre_comm_dup(env->comm, &none) : gyre_comm_split(env->comm, 0, 0, &none);
  return expect_end(env, st, GYRE_ERR_MISMATCH, "rank 1 called gyre_comm_dup");
}

/* Without a word: destroys the communicator while the others call. */
static int one_leaves(struct rank_env *env) {
  int leaver = *(const int *)env->arg;
  gyre_comm *none = NULL;
  char said[64];
  if (env->rank == leaver) return 0;
  snprintf(said, sizeof said, "rank %d (", leaver);
  return expect_end(env, gyre_comm_split(env->comm, 0, 0, &none), GYRE_ERR_PEER_LOST, said);
}

static void failures_are_told_to_all(void **state) {
  (void)state;
  gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
  config.connect_timeout_ms = 2000;
  struct ranks_options late = {.config = &config};
  assert_int_equal(ranks_run(3, one_does_not_call, &late), 0);
  assert_int_equal(ranks_run(3, one_calls_dup, NULL), 0);
  for (int leaver = 0; leaver < 3; leaver++) {
    struct ranks_options options = {.arg = &leaver};
    assert_int_equal(ranks_run(3, one_leaves, &options), 0);
  }
}

/* Destroying the parent ends a call in progress, an abort by another rank does so, too. */
static int parent_goes(struct rank_env *env) {
  gyre_comm *made = NULL;
  gyre_request *req;
  if (env->rank == 1) return gyre_comm_abort(env->comm, "enough");
  if (gyre_comm_split_async(env->comm, 0, 0, &made, &req)) return 1;
  if (gyre_wait(req, -1) != GYRE_ERR_ABORTED || made)
    return RANK_FAIL(env, "aborted: %s", gyre_last_error());
  gyre_comm *alone;
  gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
  if (gyre_comm_create(env->ctx, 0, 1, &config, &alone)) return 1;
  gyre_comm_destroy(alone);
  return 0;
}

static int destroyed_in_progress(struct rank_env *env) {
  gyre_comm *made = NULL;
  gyre_request *req;
  if (env->rank == 1) return 0; /* never calls */
  if (gyre_comm_dup_async(env->comm, &made, &req)) return 1;
  gyre_comm_destroy(env->comm);
  env->comm = NULL;
  gyre_status st = gyre_wait(req, -1);
  /* Rank 1 may have left first. */
  if ((st != GYRE_ERR_ABORTED && st != GYRE_ERR_PEER_LOST) || made)
    return RANK_FAIL(env, "destroyed: %s", gyre_last_error());
  return 0;
}

static void calls_end_with_their_parent(void **state) {
  (void)state;
  assert_int_equal(ranks_run(3, parent_goes, NULL), 0);
  assert_int_equal(ranks_run(2, destroyed_in_progress, NULL), 0);
}

struct tried {
  gyre_comm *comm;
  gyre_status split, dup, shrink;
  int done;
};

static void try_blocking(gyre_request *req, gyre_status status, void *user) {
  struct tried *t = user;
  gyre_comm *out = NULL;
  (void)req;
  (void)status;
  t->split = gyre_comm_split(t->comm, 0, 0, &out);
  t->dup = gyre_comm_dup(t->comm, &out);
  t->shrink = gyre_comm_shrink(t->comm, &out);
  t->done = out ? 2 : 1;
}

static void nothing_blocks_in_a_callback(void **state) {
  (void)state;
  gyre_context_config config = GYRE_CONTEXT_CONFIG_INIT;
  gyre_context *ctx;
  gyre_request *req;
  struct tried t = {.done = 0};
  config.flags = GYRE_F_NO_PROGRESS_THREAD;
  assert_int_equal(gyre_context_create_with(&config, &ctx), GYRE_OK);
  assert_int_equal(gyre_comm_create(ctx, 0, 1, NULL, &t.comm), GYRE_OK);
  assert_int_equal(gyre_barrier_async(t.comm, &req), GYRE_OK);
  assert_int_equal(gyre_request_on_complete(req, try_blocking, &t), GYRE_OK);
  for (int i = 0; i < 1000 && !t.done; i++) gyre_progress(ctx);
  assert_int_equal(t.done, 1);
  assert_int_equal(t.split, GYRE_ERR_STATE);
  assert_int_equal(t.dup, GYRE_ERR_STATE);
  assert_int_equal(t.shrink, GYRE_ERR_STATE);
  gyre_request_free(req);
  gyre_context_destroy(ctx);
}

static void bad_arguments_are_refused(void **state) {
  (void)state;
  gyre_context *ctx;
  gyre_comm *comm, *out = NULL;
  gyre_request *req;
  assert_int_equal(gyre_context_create(&ctx), GYRE_OK);
  assert_int_equal(gyre_comm_create(ctx, 0, 1, NULL, &comm), GYRE_OK);
  assert_int_equal(gyre_comm_split(NULL, 0, 0, &out), GYRE_ERR_ARG);
  assert_int_equal(gyre_comm_split(comm, 0, 0, NULL), GYRE_ERR_ARG);
  assert_int_equal(gyre_comm_split_async(comm, 0, 0, &out, NULL), GYRE_ERR_ARG);
  assert_int_equal(gyre_comm_dup(NULL, &out), GYRE_ERR_ARG);
  assert_int_equal(gyre_comm_dup(comm, NULL), GYRE_ERR_ARG);
  assert_int_equal(gyre_comm_dup_async(comm, NULL, &req), GYRE_ERR_ARG);
  assert_null(out);
  assert_int_equal(gyre_comm_dup(comm, &out), GYRE_OK);
  assert_int_equal(gyre_comm_size(out), 1);
  gyre_context_destroy(ctx); /* destroys both */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranks_part_by_colour_and_key),
      cmocka_unit_test(splits_of_splits_outlive_their_parents),
      cmocka_unit_test(duplicates_run_beside_their_parent),
      cmocka_unit_test(calls_may_overlap),
      cmocka_unit_test(a_hundred_splits_leave_nothing),
      cmocka_unit_test(failures_are_told_to_all),
      cmocka_unit_test(calls_end_with_their_parent),
      cmocka_unit_test(nothing_blocks_in_a_callback),
      cmocka_unit_test(bad_arguments_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

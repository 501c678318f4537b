/*
 * test_point_to_point.c - sends and receives over TCP and to the rank itself: every pair, 1 to 8
 * ranks, odd sizes, many in flight, in any order against collectives; and what ends them: other
 * counts and types, nobody at the other end, a rank that has left or died.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ranks.h"

static uint32_t element(int from, int to, unsigned k, size_t i) {
  return (uint32_t)(i * 2654435761u) ^ (uint32_t)from << 24 ^ (uint32_t)to << 16 ^ k << 8;
}

static uint32_t *filled(int from, int to, unsigned k, size_t count) {
  uint32_t *data = malloc((count + 1) * sizeof *data);
  for (size_t i = 0; i < count; i++) data[i] = element(from, to, k, i);
  return data;
}

static int check(const struct rank_env *env, const uint32_t *data, int from, unsigned k,
                 size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (data[i] != element(from, env->rank, k, i))
      return RANK_FAIL(env, "message %u from rank %d: element %zu is wrong", k, from, i);
  }
  if (data[count] != 0xA5A5A5A5)
    return RANK_FAIL(env, "message %u from rank %d: written beyond its end", k, from);
  return 0;
}

static uint32_t *room(size_t count) {
  uint32_t *data = malloc((count + 1) * sizeof *data);
  memset(data, 0xA5, (count + 1) * sizeof *data);
  return data;
}

/* ----------------------------------------------------------------------------------- shift --- */

/* Each rank to the next, from the previous; alone, to itself. */
static int shift(struct rank_env *env) {
  static const size_t counts[] = {0, 1, 7, 4097, 300007};
  int to = (env->rank + 1) % env->nranks, from = (env->rank + env->nranks - 1) % env->nranks;
  int failed = 0;
  for (unsigned k = 0; k < sizeof counts / sizeof *counts && !failed; k++) {
    size_t count = counts[k];
    uint32_t *out = filled(env->rank, to, k, count), *in = room(count);
    gyre_request *req = NULL;
    gyre_status st = gyre_recv_async(env->comm, in, count, GYRE_U32, from, &req);
    if (!st) st = gyre_send(env->comm, out, count, GYRE_U32, to);
    if (!st) st = gyre_wait(req, -1);
    failed = st ? RANK_FAIL(env, "shift: %s", gyre_last_error()) : check(env, in, from, k, count);
    free(in);
    free(out);
  }
  return failed;
}

static void test_shift(void **state) {
  (void)state;
  for (int n = 1; n <= 8; n = ranks_next(n)) assert_int_equal(ranks_run(n, shift, NULL), 0);
}

/* ------------------------------------------------------------------------------- every pair --- */

#define ROUNDS 6
#define MAX_RANKS 5

static size_t count_of(unsigned k) { return k == 3 ? 100003 : k * 37; }

struct pair {
  uint32_t *out[ROUNDS], *in[ROUNDS];
  gyre_request *req[2 * ROUNDS];
};

static gyre_status post_pair(const struct rank_env *env, struct pair *p, int peer, bool sends) {
  gyre_status st = GYRE_OK;
  for (unsigned k = 0; k < ROUNDS && !st; k++) {
    if (sends) st = gyre_send_async(env->comm, p->out[k], count_of(k), GYRE_U32, peer, &p->req[k]);
    else
      st = gyre_recv_async(env->comm, p->in[k], count_of(k), GYRE_U32, peer, &p->req[ROUNDS + k]);
  }
  return st;
}

/* Every rank to every rank, itself too; half of the ranks post all sends first, half all receives,
 * and an all-reduce before, between or behind. */
static int all_pairs(struct rank_env *env) {
  struct pair pair[MAX_RANKS];
  int64_t one = 1, sum = 0;
  gyre_request *collective = NULL;
  gyre_status st = GYRE_OK;
  int failed = 0;
  for (int peer = 0; peer < env->nranks; peer++) {
    for (unsigned k = 0; k < ROUNDS; k++) {
      pair[peer].out[k] = filled(env->rank, peer, k, count_of(k));
      pair[peer].in[k] = room(count_of(k));
      pair[peer].req[k] = pair[peer].req[ROUNDS + k] = NULL;
    }
  }
  for (int step = 0; step < 3 && !st; step++) {
    if (step == env->rank % 3)
      st = gyre_all_reduce_async(env->comm, &one, &sum, 1, GYRE_I64, GYRE_SUM, &collective);
    if (step == 2) break;
    for (int i = 0; i < env->nranks && !st; i++) {
      int peer = step ? i : (env->rank + i) % env->nranks;
      st = post_pair(env, &pair[peer], peer, (step + env->rank) % 2);
    }
  }
  if (!st) st = gyre_wait(collective, -1);
  if (!st && sum != env->nranks)
    failed = RANK_FAIL(env, "the all-reduce gave %lld", (long long)sum);
  for (int peer = 0; peer < env->nranks; peer++) {
    for (unsigned k = 0; k < ROUNDS; k++) {
      if (!st) st = gyre_wait(pair[peer].req[k], -1);
      if (!st) st = gyre_wait(pair[peer].req[ROUNDS + k], -1);
      if (!st && !failed) failed = check(env, pair[peer].in[k], peer, k, count_of(k));
      if (st) break;
      free(pair[peer].in[k]);
      free(pair[peer].out[k]);
    }
  }
  return st ? RANK_FAIL(env, "all pairs: %s", gyre_last_error()) : failed;
}

static void test_all_pairs(void **state) {
  (void)state;
  for (int n = 1; n <= MAX_RANKS; n = ranks_next(n))
    assert_int_equal(ranks_run(n, all_pairs, NULL), 0);
}

/* ---------------------------------------------------------------------------------- refused --- */

static int refused(struct rank_env *env) {
  gyre_comm *c = env->comm;
  gyre_request *req = NULL;
  char byte = 0;
  if (gyre_send(c, &byte, 1, GYRE_U8, env->nranks) != GYRE_ERR_ARG ||
      gyre_recv(c, &byte, 1, GYRE_U8, -1) != GYRE_ERR_ARG ||
      gyre_send(c, NULL, 1, GYRE_U8, 0) != GYRE_ERR_ARG ||
      gyre_recv(c, &byte, SIZE_MAX / 2, GYRE_F64, 0) != GYRE_ERR_ARG ||
      gyre_send(NULL, &byte, 1, GYRE_U8, 0) != GYRE_ERR_ARG ||
      gyre_send(c, &byte, 1, (gyre_dtype)99, 0) != GYRE_ERR_ARG ||
      gyre_recv_async(c, &byte, 1, GYRE_U8, 0, NULL) != GYRE_ERR_ARG)
    return RANK_FAIL(env, "a bad argument was taken");
  if (gyre_recv_async(c, &byte, 1, GYRE_U8, env->rank, &req) ||
      gyre_send(c, "x", 1, GYRE_U8, env->rank) || gyre_wait(req, -1) || byte != 'x')
    return RANK_FAIL(env, "the communicator is not usable: %s", gyre_last_error());
  return 0;
}

static void test_refused(void **state) {
  (void)state;
  assert_int_equal(ranks_run(2, refused, NULL), 0);
}

/* ----------------------------------------------------------------------------------- faults --- */

/* Waits for the communicator's end by making passes, then judges it. */
static int expect_verdict(struct rank_env *env, gyre_status status, int culprit, const char *part) {
  gyre_error e = GYRE_ERROR_INIT;
  for (int ms = 0; ms < 30000 && gyre_comm_status(env->comm, &e) == GYRE_OK; ms++) usleep(1000);
  if (e.status != status || e.culprit_rank != culprit || !strstr(e.text, part))
    return RANK_FAIL(env, "%s, culprit %d, not %s, culprit %d, \"%s\": %s",
                     gyre_status_name(e.status), e.culprit_rank, gyre_status_name(status), culprit,
                     part, e.text);
  return 0;
}

static int differ(struct rank_env *env, size_t count, gyre_dtype type, int receiver,
                  const char *part) {
  char data[64] = {0};
  gyre_request *req = NULL;
  if (env->rank == 2 - receiver) gyre_send_async(env->comm, data, 7, GYRE_F32, receiver, &req);
  if (env->rank == receiver) gyre_recv_async(env->comm, data, count, type, 2 - receiver, &req);
  gyre_request_free(req);
  return expect_verdict(env, GYRE_ERR_MISMATCH, -1, part);
}

static int other_count(struct rank_env *env) {
  return differ(env, 8, GYRE_F32, 0, "rank 2 sends f32 x 7; rank 0 receives f32 x 8");
}

static int other_type(struct rank_env *env) {
  return differ(env, 7, GYRE_I32, 2, "rank 0 sends f32 x 7; rank 2 receives i32 x 7");
}

static int other_count_alone(struct rank_env *env) {
  char data[64] = {0};
  gyre_request *send = NULL;
  if (gyre_send_async(env->comm, data, 7, GYRE_F32, 0, &send)) return RANK_FAIL(env, "send");
  gyre_status st = gyre_recv(env->comm, data, 6, GYRE_F32, 0);
  gyre_request_free(send);
  return st == GYRE_ERR_MISMATCH ? 0 : RANK_FAIL(env, "%s", gyre_last_error());
}

static void test_mismatch(void **state) {
  (void)state;
  assert_int_equal(ranks_run(3, other_count, NULL), 0);
  assert_int_equal(ranks_run(3, other_type, NULL), 0);
  assert_int_equal(ranks_run(1, other_count_alone, NULL), 0);
}

static int nobody_sends(struct rank_env *env) {
  char byte;
  if (env->rank == 2 && gyre_recv(env->comm, &byte, 1, GYRE_U8, 1) != GYRE_ERR_TIMEOUT)
    return RANK_FAIL(env, "a receive of what nobody sent: %s", gyre_last_error());
  return expect_verdict(env, GYRE_ERR_TIMEOUT, 1,
                        "has not sent message 1 from rank 1 to rank 2 (u8 x 1)");
}

static int nobody_receives(struct rank_env *env) {
  size_t count = 64u << 20;
  if (env->rank == 0) {
    char *data = calloc(count, 1);
    gyre_status st = gyre_send(env->comm, data, count, GYRE_U8, 1);
    free(data);
    if (st != GYRE_ERR_TIMEOUT) return RANK_FAIL(env, "%s", gyre_last_error());
  }
  return expect_verdict(env, GYRE_ERR_TIMEOUT, 1, "has not received message 1 from rank 0 to rank 1");
}

/* The collective's deadline comes first; the text tells what else that rank has in flight. */
static int waits_instead(struct rank_env *env) {
  char byte;
  gyre_request *req = NULL;
  if (env->rank == 1) {
    usleep(2000000);
    if (gyre_recv_async(env->comm, &byte, 1, GYRE_U8, 2, &req)) return RANK_FAIL(env, "posting");
  } else if (gyre_barrier(env->comm) != GYRE_ERR_TIMEOUT) {
    return RANK_FAIL(env, "a barrier without rank 1: %s", gyre_last_error());
  }
  int failed = expect_verdict(env, GYRE_ERR_TIMEOUT, 1, "it has a message with rank 2 in flight");
  gyre_request_free(req);
  return failed;
}

/* The message's deadline comes first; its sender is kept by a collective that rank 2 has not called. */
static int sender_is_kept(struct rank_env *env) {
  char byte = 0;
  gyre_request *req = NULL;
  if (env->rank == 0) gyre_recv_async(env->comm, &byte, 1, GYRE_U8, 1, &req);
  if (env->rank == 1) {
    usleep(300000);
    if (gyre_broadcast(env->comm, &byte, &byte, 1, GYRE_U8, 2) != GYRE_ERR_TIMEOUT)
      return RANK_FAIL(env, "a broadcast without its root: %s", gyre_last_error());
  }
  int failed = expect_verdict(env, GYRE_ERR_TIMEOUT, 2, "keeps rank 1 from a message with rank 0");
  gyre_request_free(req);
  return failed;
}

static void test_nobody_there(void **state) {
  gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
  struct ranks_options options = {.config = &config};
  (void)state;
  config.op_timeout_ms = 1000;
  assert_int_equal(ranks_run(3, nobody_sends, &options), 0);
  assert_int_equal(ranks_run(2, nobody_receives, &options), 0);
  assert_int_equal(ranks_run(3, sender_is_kept, &options), 0);
  config.op_timeout_ms = 2500;
  assert_int_equal(ranks_run(3, waits_instead, &options), 0);
}

/* What was sent before its sender left arrives all the same; then nothing comes any more. */
static int sender_leaves(struct rank_env *env) {
  char byte = 0;
  if (env->rank == 1) return gyre_send(env->comm, "x", 1, GYRE_U8, 0) ? RANK_FAIL(env, "send") : 0;
  if (env->rank > 1) return 0;
  if (gyre_recv(env->comm, &byte, 1, GYRE_U8, 1) || byte != 'x')
    return RANK_FAIL(env, "the message of a rank that left: %s", gyre_last_error());
  if (gyre_recv(env->comm, &byte, 1, GYRE_U8, 1) != GYRE_ERR_PEER_LOST)
    return RANK_FAIL(env, "a second one: %s", gyre_last_error());
  return expect_verdict(env, GYRE_ERR_PEER_LOST, 1, "rank 1");
}

/* It never had a connection for messages. */
static int peer_left_before(struct rank_env *env) {
  char byte = 0;
  if (env->rank == 0) return 0;
  if (gyre_recv(env->comm, &byte, 1, GYRE_U8, 0) != GYRE_ERR_PEER_LOST)
    return RANK_FAIL(env, "a receive from a rank that left: %s", gyre_last_error());
  return expect_verdict(env, GYRE_ERR_PEER_LOST, 0, "rank 0");
}

static int sender_dies(struct rank_env *env) {
  char byte;
  if (env->rank == 1) _exit(0);
  if (env->rank == 2 && gyre_recv(env->comm, &byte, 1, GYRE_U8, 1) != GYRE_ERR_PEER_LOST)
    return RANK_FAIL(env, "a receive from a dead rank: %s", gyre_last_error());
  return expect_verdict(env, GYRE_ERR_PEER_LOST, 1, "rank 1");
}

static void test_peer_is_gone(void **state) {
  (void)state;
  assert_int_equal(ranks_run(3, sender_leaves, NULL), 0);
  assert_int_equal(ranks_run(2, peer_left_before, NULL), 0);
  assert_int_equal(ranks_run(3, sender_dies, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_shift),        cmocka_unit_test(test_all_pairs),
      cmocka_unit_test(test_refused),      cmocka_unit_test(test_mismatch),
      cmocka_unit_test(test_nobody_there), cmocka_unit_test(test_peer_is_gone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_lifetime.c - contexts, communicators and requests that end in an unusual order, inside one
 * process. */
#include "crowd.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define RANKS 3

static float one = 1;

/* Requests that nobody has waited for outlive operation, communicator and context. */
static void requests_outlive_their_context(void **state) {
  (void)state;
  struct crowd c;
  gyre_request *done[RANKS], *open[RANKS - 1];
  float sum[RANKS];
  crowd_open(&c, RANKS, RANKS);
  crowd_meet(&c, NULL);
  for (int r = 0; r < RANKS; r++) {
    assert_int_equal(
        gyre_all_reduce_async(c.comm[r], &one, &sum[r], 1, GYRE_F32, GYRE_SUM, &done[r]), GYRE_OK);
  }
  for (int r = 0; r < RANKS; r++) {
    for (int ms = 0; gyre_test(done[r]) == GYRE_IN_PROGRESS && ms < WATCHDOG_MS; ms++) sleep_ms(1);
  }
  for (int r = 1; r < RANKS; r++) { /* rank 0 does not call, so these are in flight when all ends */
    assert_int_equal(gyre_barrier_async(c.comm[r], &open[r - 1]), GYRE_OK);
  }
  crowd_close(&c); /* its communicators are not destroyed */
  for (int r = 0; r < RANKS; r++) assert_int_equal(gyre_wait(done[r], -1), GYRE_OK);
  for (int r = 1; r < RANKS; r++) {
    gyre_status st = gyre_test(open[r - 1]);
    assert_true(st == GYRE_ERR_ABORTED || st == GYRE_ERR_PEER_LOST);
    assert_int_equal(gyre_wait(open[r - 1], -1), st);
  }
}

static void a_creation_in_progress_is_aborted_with_its_context(void **state) {
  (void)state;
  struct crowd c;
  struct holdings before = holdings_now();
  gyre_unique_id id;
  gyre_request *req[2];
  gyre_comm *comm[2] = {NULL, NULL};
  gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
  crowd_open(&c, RANKS, 2);
  assert_int_equal(gyre_unique_id_create(c.ctx[0], &id), GYRE_OK);
  config.id = &id;
  for (int r = 0; r < 2; r++) { /* the third never comes */
    assert_int_equal(gyre_comm_create_async(c.ctx[r], r, RANKS, &config, &comm[r], &req[r]), GYRE_OK);
  }
  sleep_ms(50);
  assert_int_equal(gyre_test(req[0]), GYRE_IN_PROGRESS);
  crowd_close(&c);
  for (int r = 0; r < 2; r++) {
    gyre_status st = gyre_wait(req[r], -1);
    if (st != GYRE_ERR_ABORTED && (r == 0 || st != GYRE_ERR_PEER_LOST))
      fail_msg("rank %d: %s", r, gyre_last_error());
    assert_null(comm[r]);
  }
  holdings_settle(&before);
}

/* ------------------------------------------------------------------------------------ threads --- */

struct blocked {
  gyre_comm *comm;
  gyre_status status;
  char text[512];
};

static void *block(void *arg) {
  struct blocked *b = arg;
  float sum;
  b->status = gyre_all_reduce(b->comm, &one, &sum, 1, GYRE_F32, GYRE_SUM);
  strncpy(b->text, gyre_last_error(), sizeof b->text - 1);
  return NULL;
}

static void abort_frees_every_blocked_thread(void **state) {
  (void)state;
  int n = rounds(20);
  for (int i = 0; i < n; i++) {
    struct crowd c;
    struct blocked b[RANKS] = {{0}};
    pthread_t thread[RANKS];
    crowd_open(&c, RANKS, i % 2 ? RANKS : 1);
    crowd_meet(&c, NULL);
    for (int r = 0; r < RANKS - 1; r++) { /* the last does not call */
      b[r].comm = c.comm[r];
      assert_int_equal(pthread_create(&thread[r], NULL, block, &b[r]), 0);
    }
    sleep_ms(i % 4);
    assert_int_equal(gyre_comm_abort(c.comm[i % RANKS], "enough"), GYRE_OK);
    for (int r = 0; r < RANKS - 1; r++) {
      pthread_join(thread[r], NULL);
      assert_int_equal(b[r].status, GYRE_ERR_ABORTED);
      assert_non_null(strstr(b[r].text, "enough"));
      assert_true(names_rank(b[r].text, i % RANKS));
    }
    crowd_part(&c);
    crowd_close(&c);
  }
}

static void destroy_frees_a_blocked_thread(void **state) {
  (void)state;
  int n = rounds(20);
  for (int i = 0; i < n; i++) {
    struct crowd c;
    struct blocked b[RANKS] = {{0}};
    pthread_t thread[RANKS];
    crowd_open(&c, RANKS, i % 2 ? RANKS : 1);
    crowd_meet(&c, NULL);
    gyre_request *keep; /* a call that has certainly been posted when destroy comes */
    float sum;
    assert_int_equal(gyre_all_reduce_async(c.comm[0], &one, &sum, 1, GYRE_F32, GYRE_SUM, &keep),
                     GYRE_OK);
    for (int r = 1; r < RANKS - 1; r++) {
      b[r].comm = c.comm[r];
      assert_int_equal(pthread_create(&thread[r], NULL, block, &b[r]), 0);
    }
    sleep_ms(i % 4);
    gyre_comm_destroy(c.comm[0]);
    c.comm[0] = NULL;
    assert_int_equal(gyre_wait(keep, -1), GYRE_ERR_ABORTED);
    for (int r = 1; r < RANKS - 1; r++) {
      pthread_join(thread[r], NULL);
      assert_int_equal(b[r].status, GYRE_ERR_PEER_LOST);
      assert_non_null(strstr(b[r].text, "left at operation 1"));
    }
    crowd_part(&c);
    crowd_close(&c);
  }
}

/* ---------------------------------------------------------------------------------- callbacks --- */

struct called {
  gyre_comm *comm;
  int times;
  gyre_status status, destroyed;
};

static void abort_it(gyre_request *req, gyre_status status, void *user) {
  (void)req;
  struct called *k = user;
  float sum;
  k->times++;
  k->status = status;
  gyre_comm_destroy(k->comm); /* refused */
  k->destroyed = gyre_all_reduce(k->comm, &one, &sum, 1, GYRE_F32,
                                 GYRE_SUM); /* refused as well: it would wait */
  gyre_comm_abort(k->comm, "from a callback");
}

static void abort_is_legal_in_a_callback_and_destroy_is_not(void **state) {
  (void)state;
  struct crowd c;
  struct called called = {0};
  gyre_request *req[RANKS];
  float sum[RANKS];
  crowd_open(&c, RANKS, RANKS);
  crowd_meet(&c, NULL);
  called.comm = c.comm[1];
  for (int r = 0; r < RANKS; r++) {
    assert_int_equal(gyre_all_reduce_async(c.comm[r], &one, &sum[r], 1, GYRE_F32, GYRE_SUM, &req[r]),
                     GYRE_OK);
  }
  assert_int_equal(gyre_request_on_complete(req[1], abort_it, &called), GYRE_OK);
  for (int r = 0; r < RANKS; r++) {
    gyre_status st = gyre_wait(req[r], WATCHDOG_MS);
    assert_true(st == GYRE_OK || (r != 1 && st == GYRE_ERR_ABORTED));
  }
  for (int r = 0; r < RANKS; r++) {
    gyre_error e = GYRE_ERROR_INIT;
    for (int ms = 0; gyre_comm_status(c.comm[r], &e) == GYRE_OK && ms < WATCHDOG_MS; ms += 5)
      sleep_ms(5);
    assert_int_equal(e.status, GYRE_ERR_ABORTED);
    assert_int_equal(e.culprit_rank, 1);
    assert_non_null(strstr(e.text, "from a callback"));
  }
  crowd_part(&c);
  crowd_close(&c);
  assert_int_equal(called.times, 1);
  assert_int_equal(called.status, GYRE_OK);
  assert_int_equal(called.destroyed, GYRE_ERR_STATE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(requests_outlive_their_context),
      cmocka_unit_test(a_creation_in_progress_is_aborted_with_its_context),
      cmocka_unit_test(abort_frees_every_blocked_thread),
      cmocka_unit_test(destroy_frees_a_blocked_thread),
      cmocka_unit_test(abort_is_legal_in_a_callback_and_destroy_is_not),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

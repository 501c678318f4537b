/*
 * test_stop.c - a rank is stopped (SIGSTOP): the others name it when the operation's deadline is
 * over. When it wakes up it learns that it was given up, and blames nobody else.
 */
#include "world.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define RANKS 4
#define DEADLINE_MS 1000

static int work(struct self *self) {
  size_t count = *(const size_t *)self->arg;
  float *in = calloc(count, sizeof *in), *out = calloc(count, sizeof *out);
  gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
  config.op_timeout_ms = (uint32_t)patience(DEADLINE_MS);
  self_create(self, &config);
  gyre_status st = GYRE_OK;
  for (int i = 0; st == GYRE_OK; i++) {
    st = gyre_all_reduce(self->comm, in, out, count, GYRE_F32, GYRE_SUM);
    if (i == 3) self_say(self, READY, st, 0);
  }
  self_say(self, RETURNED, st, 0);
  free(in);
  free(out);
  return 0;
}

static void check_other(const struct report *r, int victim, int64_t stopped_at) {
  double after = (double)(r->at_ns - stopped_at) / 1e9;
  bool right = r->status == GYRE_ERR_TIMEOUT && r->verdict.culprit_rank == victim &&
               names_rank(r->text, victim) && strstr(r->text, "ms, the operation time-out") &&
               strstr(r->text, " bytes in and ") && after > 0.5 &&
               after < (patience(DEADLINE_MS) + at_most(3000)) / 1000.0;
  if (right) return;
  fail_msg("rank %d was stopped; rank %d returned %s after %.3f s, blames %d: %s", victim, r->rank,
           gyre_status_name(r->status), after, r->verdict.culprit_rank, r->text);
}

static void the_others_name_a_stopped_rank_and_it_blames_nobody(void **state) {
  (void)state;
  static const size_t counts[] = {1, 1 << 20};
  struct world w[RANKS];
  struct report ready[RANKS], end[RANKS];
  int64_t stopped_at[RANKS];
  int n = rounds(1);
  for (int round = 0; round < n; round++) {
    for (int victim = 0; victim < RANKS;
         victim++) { /* one world for each victim, since all of them mostly sleep */
      world_start(&w[victim], RANKS, work, &counts[(round + victim) % 2]);
      world_collect(&w[victim], READY, -1, ready);
      stopped_at[victim] = now_ns();
      world_signal(&w[victim], victim, SIGSTOP);
    }
    for (int victim = 0; victim < RANKS; victim++) {
      world_collect(&w[victim], RETURNED, victim, end);
      for (int r = 0; r < RANKS; r++) {
        if (r != victim) check_other(&end[r], victim, stopped_at[victim]);
      }
    }
    sleep_ms(round % 2 ? 0 : 1500); /* the others are gone, or still there, when it wakes up */
    for (int victim = 0; victim < RANKS; victim++) {
      struct report woken[RANKS];
      world_signal(&w[victim], victim, SIGCONT);
      while (world_hear(&w[victim], &woken[victim], WATCHDOG_MS) && woken[victim].kind != RETURNED)
        continue;
      int blamed = woken[victim].verdict.culprit_rank;
      if (woken[victim].status >= 0 || (blamed != victim && blamed != -1)) {
        fail_msg("rank %d woke up, returned %s and blames %d: %s", victim,
                 gyre_status_name(woken[victim].status), blamed, woken[victim].text);
      }
      world_end(&w[victim], -1);
    }
  }
}

/* Shorter than the deadline: nobody is blamed. */
static int work_on(struct self *self) {
  float one = 1, sum = 0;
  gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
  config.op_timeout_ms = (uint32_t)patience(4 * DEADLINE_MS);
  self_create(self, &config);
  for (int i = 0; i < 400; i++) {
    gyre_status st = gyre_all_reduce(self->comm, &one, &sum, 1, GYRE_F32, GYRE_SUM);
    if (i == 3) self_say(self, READY, st, 0);
    if (st) {
      self_say(self, RETURNED, st, 0);
      return 1;
    }
    sleep_ms(5);
  }
  self_say(self, RETURNED, GYRE_OK, 0);
  return 0;
}

static void a_short_stop_is_forgiven(void **state) {
  (void)state;
  struct world w[RANKS];
  struct report ready[RANKS], end[RANKS];
  for (int victim = 0; victim < RANKS; victim++) {
    world_start(&w[victim], RANKS, work_on, NULL);
    world_collect(&w[victim], READY, -1, ready);
  }
  for (int victim = 0; victim < RANKS; victim++) world_signal(&w[victim], victim, SIGSTOP);
  sleep_ms(DEADLINE_MS);
  for (int victim = 0; victim < RANKS; victim++) world_signal(&w[victim], victim, SIGCONT);
  for (int victim = 0; victim < RANKS; victim++) {
    world_collect(&w[victim], RETURNED, -1, end);
    for (int r = 0; r < RANKS; r++) {
      if (end[r].status)
        fail_msg("rank %d was stopped for a moment; rank %d: %s", victim, r, end[r].text);
    }
    world_end(&w[victim], -1);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(the_others_name_a_stopped_rank_and_it_blames_nobody, world_teardown),
      cmocka_unit_test_teardown(a_short_stop_is_forgiven, world_teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

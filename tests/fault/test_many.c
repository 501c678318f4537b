/* test_many.c - communicators come and go by the hundred and leave nothing; sixty-four ranks meet
 * on one machine. */
#include "crowd.h"

#include <stdio.h>
#include <stdlib.h>

#define RANKS 4
#define WARM_UP 30
#define RSS_SLACK_KIB 4096

static void check_flat(const struct holdings *before, int n) {
  holdings_settle(before);
  struct holdings after = holdings_now();
  if (!sanitized() && after.rss_kib > before->rss_kib + RSS_SLACK_KIB) {
    fail_msg("resident memory grew from %ld to %ld KiB in %d rounds", before->rss_kib,
             after.rss_kib, n);
  }
}

/* A communicator's life on contexts that stay. */
static void communicators_leave_nothing(void **state) {
  (void)state;
  struct crowd c;
  struct holdings before;
  int n = rounds(100);
  crowd_open(&c, RANKS, RANKS);
  for (int i = 0; i < WARM_UP + n; i++) {
    if (i == WARM_UP) {
      sleep_ms(1100); /* what still lingers */
      before = holdings_now();
    }
    crowd_meet(&c, NULL);
    crowd_all_reduce(&c);
    crowd_part(&c);
  }
  check_flat(&before, n);
  crowd_close(&c);
}

static void contexts_leave_nothing(void **state) {
  (void)state;
  struct crowd c;
  struct holdings before;
  int n = rounds(100) / 4 + 1;
  for (int i = 0; i < WARM_UP / 4 + n; i++) {
    if (i == WARM_UP / 4) before = holdings_now();
    crowd_open(&c, RANKS, RANKS);
    crowd_meet(&c, NULL);
    crowd_all_reduce(&c);
    crowd_part(&c);
    crowd_close(&c);
  }
  check_flat(&before, n);
}

/* The same with a process for each rank: each says how much it grew. */
static int come_and_go(struct self *self) {
  struct holdings before = {0}, after;
  gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
  int n = *(const int *)self->arg;
  config.rendezvous = self->rendezvous;
  gyre_status st = gyre_context_create(&self->ctx);
  for (int i = 0; i < WARM_UP + n && !st; i++) {
    float one = 1, sum = 0;
    gyre_comm *comm;
    if (i == WARM_UP) {
      sleep_ms(1100);
      before = holdings_now();
    }
    st = gyre_comm_create(self->ctx, self->rank, self->nranks, &config, &comm);
    if (st) break;
    st = gyre_all_reduce(comm, &one, &sum, 1, GYRE_F32, GYRE_SUM);
    if (!st && sum < 3.5f) return 1;
    gyre_comm_destroy(comm);
  }
  for (int ms = 0; ms < 10000; ms += 10) {
    after = holdings_now();
    if (after.descriptors <= before.descriptors && after.threads <= before.threads) break;
    sleep_ms(10);
  }
  bool flat = after.descriptors <= before.descriptors && after.threads <= before.threads &&
              (sanitized() || after.rss_kib <= before.rss_kib + RSS_SLACK_KIB);
  if (!flat) {
    fprintf(stderr, "rank %d: descriptors %d -> %d, threads %d -> %d, resident %ld -> %ld KiB\n",
            self->rank, before.descriptors, after.descriptors, before.threads, after.threads,
            before.rss_kib, after.rss_kib);
  }
  self_say(self, RETURNED, st, flat ? 0 : 1);
  return 0;
}

static void communicators_of_processes_leave_nothing(void **state) {
  (void)state;
  struct world w;
  struct report end[RANKS];
  int n = rounds(100);
  world_start(&w, RANKS, come_and_go, &n);
  for (int r = 0; r < RANKS; r++) { /* the rounds themselves may take long */
    assert_true(world_hear(&w, &end[r], WATCHDOG_MS * 10));
    if (end[r].status || end[r].value)
      fail_msg("rank %d: %s %s", end[r].rank, gyre_status_name(end[r].status), end[r].text);
  }
  world_end(&w, -1);
}

/* ------------------------------------------------------------------------------- sixty-four --- */

static int be_one_of_many(struct self *self) {
  int64_t mine = self->rank, sum = -1;
  self_create(self, NULL);
  gyre_status st = gyre_all_reduce(self->comm, &mine, &sum, 1, GYRE_I64, GYRE_SUM);
  self_say(self, RETURNED, st, (uint64_t)sum);
  self_hear(self);
  return 0;
}

static void sixty_four_processes_meet(void **state) {
  (void)state;
  struct world w;
  static struct report end[WORLD_MAX];
  int n = sanitized() ? 16 : 64;
  world_start(&w, n, be_one_of_many, NULL);
  world_collect(&w, RETURNED, -1, end);
  for (int r = 0; r < n; r++) {
    if (end[r].status || end[r].value != (uint64_t)(n * (n - 1) / 2))
      fail_msg("rank %d: %s", r, end[r].text);
  }
  world_tell_all(&w, 'e');
  world_end(&w, -1);
}

static void sixty_four_ranks_meet_in_one_process(void **state) {
  (void)state;
  for (int n_ctx = 1; n_ctx <= 4; n_ctx *= 4) {
    struct crowd c;
    struct holdings before = holdings_now();
    crowd_open(&c, 64, n_ctx);
    crowd_meet(&c, NULL);
    crowd_all_reduce(&c);
    crowd_all_reduce(&c);
    crowd_part(&c);
    crowd_close(&c);
    holdings_settle(&before);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(contexts_leave_nothing, world_teardown),
      cmocka_unit_test_teardown(communicators_leave_nothing, world_teardown),
      cmocka_unit_test_teardown(communicators_of_processes_leave_nothing, world_teardown),
      cmocka_unit_test_teardown(sixty_four_processes_meet, world_teardown),
      cmocka_unit_test_teardown(sixty_four_ranks_meet_in_one_process, world_teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

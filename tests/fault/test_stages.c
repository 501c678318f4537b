/*
 * test_stages.c - a rank dies while the ranks meet, or before the first operation; and signals that
 * interrupt system calls do no harm.
 */
#include "world.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RANKS 4
#define BOUND_MS 3000
#define LATE_MS 3000 /* rank 0 goes on telling those that come late */

static double seconds_since(int64_t then, const struct report *r) {
  return (double)(r->at_ns - then) / 1e9;
}

/* -------------------------------------------------------------------------- while ranks meet --- */

/* The last rank never comes, so the others are still meeting when the victim dies. */
static int try_to_meet(struct self *self) {
  gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
  config.rendezvous = self->rendezvous;
  config.connect_timeout_ms = (uint32_t)patience(20000);
  if (gyre_context_create(&self->ctx)) return 1;
  self_say(self, READY, GYRE_OK, 0);
  if (self->rank == RANKS - 1) {
    self_hear(self);
    return 0;
  }
  self_say(self, RETURNED,
           gyre_comm_create(self->ctx, self->rank, self->nranks, &config, &self->comm), 0);
  self_hear(self);
  return 0;
}

static void a_rank_that_dies_while_the_ranks_meet_is_named(void **state) {
  (void)state;
  for (int victim = 0; victim < 2; victim++) {
    struct world w;
    struct report r;
    world_start(&w, RANKS, try_to_meet, NULL);
    for (int n = 0; n < RANKS; n++) assert_true(world_hear(&w, &r, WATCHDOG_MS));
    sleep_ms(patience(500)); /* all but the last have found rank 0 */
    int64_t killed_at = now_ns();
    world_signal(&w, victim, SIGKILL);
    for (int n = 0; n < RANKS - 2; n++) {
      assert_true(world_hear(&w, &r, WATCHDOG_MS));
      /* A rank that had not found rank 0 yet goes on looking; it is told when its time is over. */
      if (r.kind != RETURNED || r.status >= 0 || !names_rank(r.text, victim))
        fail_msg("rank %d died; rank %d: %s: %s", victim, r.rank, gyre_status_name(r.status), r.text);
      if (r.status == GYRE_ERR_PEER_LOST &&
          seconds_since(killed_at, &r) > (patience(LATE_MS) + at_most(BOUND_MS)) / 1e3)
        fail_msg("rank %d learnt it after %.3f s", r.rank, seconds_since(killed_at, &r));
    }
    world_tell_all(&w, 'e');
    char job[80];
    snprintf(job, sizeof job, "%s/job", w.dir);
    if (victim == 0) unlink(job); /* which it could not remove */
    world_end(&w, victim);
  }
}

/* ------------------------------------------------------------------ before the first operation --- */

static int begin_after_a_death(struct self *self) {
  float one = 1, sum;
  self_create(self, NULL);
  self_say(self, READY, GYRE_OK, 0);
  self_hear(self);
  gyre_status st = gyre_all_reduce(self->comm, &one, &sum, 1, GYRE_F32, GYRE_SUM);
  self_say(self, RETURNED, st, 0);
  self_hear(self);
  return 0;
}

static void kill_idle(int victim) {
  struct world w;
  struct report ready[RANKS], end[RANKS];
  world_start(&w, RANKS, begin_after_a_death, NULL);
  world_collect(&w, READY, -1, ready);
  int64_t killed_at = now_ns();
  world_signal(&w, victim, SIGKILL);
  world_tell_all(&w, 'g');
  world_collect(&w, RETURNED, victim, end);
  for (int r = 0; r < RANKS; r++) {
    bool right =
        r == victim || (end[r].status == GYRE_ERR_PEER_LOST &&
                        end[r].verdict.culprit_rank == victim && names_rank(end[r].text, victim) &&
                        seconds_since(killed_at, &end[r]) < at_most(BOUND_MS) / 1e3);
    if (right) continue;
    fail_msg("rank %d died; rank %d: %s after %.3f s, blames %d: %s", victim, r,
             gyre_status_name(end[r].status), seconds_since(killed_at, &end[r]),
             end[r].verdict.culprit_rank, end[r].text);
  }
  world_tell_all(&w, 'e');
  world_end(&w, victim);
}

static void a_rank_that_dies_before_the_first_operation_is_named(void **state) {
  (void)state;
  kill_idle(0);
  kill_idle(2);
}

/* ------------------------------------------------------------------------------------ signals --- */

static atomic_bool storm;
static atomic_int caught;

static void on_signal(int number) {
  (void)number;
  atomic_fetch_add(&caught, 1);
}

/* To every thread of this process, every millisecond; those that block it never see it. */
static void *send_signals(void *arg) {
  (void)arg;
  while (atomic_load(&storm)) {
    DIR *dir = opendir("/proc/self/task");
    for (struct dirent *e; dir && (e = readdir(dir));) {
      if (atoi(e->d_name) > 0) syscall(SYS_tgkill, getpid(), atoi(e->d_name), SIGUSR1);
    }
    if (dir) closedir(dir);
    usleep(1000);
  }
  return NULL;
}

static int work_in_a_storm(struct self *self) {
  enum { N = 100003 };
  struct sigaction action = {.sa_handler = on_signal}; /* without SA_RESTART */
  pthread_t thread;
  static int64_t in[N], out[N];
  gyre_status st = GYRE_OK;
  uint64_t wrong = 0;
  sigaction(SIGUSR1, &action, NULL);
  atomic_store(&storm, true);
  pthread_create(&thread, NULL, send_signals, NULL);
  self_create(self, NULL);
  for (size_t i = 0; i < N; i++) in[i] = (int64_t)i * (self->rank + 1);
  for (int round = 0; round < 30 && !st; round++) {
    size_t n = round % 2 ? N : 7;
    st = gyre_all_reduce(self->comm, in, out, n, GYRE_I64, GYRE_SUM);
    for (size_t i = 0; i < n; i++) wrong += out[i] != (int64_t)i * RANKS * (RANKS + 1) / 2;
    if (!st) st = gyre_barrier(self->comm);
  }
  gyre_comm_destroy(self->comm);
  self->comm = NULL;
  gyre_context_destroy(self->ctx);
  self->ctx = NULL;
  for (int ms = 0; ms < 5000 && !atomic_load(&caught); ms++) usleep(1000);
  atomic_store(&storm, false);
  pthread_join(thread, NULL);
  if (!atomic_load(&caught)) wrong = 1;
  self_say(self, RETURNED, st, wrong);
  return 0;
}

static void signals_do_no_harm(void **state) {
  (void)state;
  struct world w;
  struct report end[RANKS];
  world_start(&w, RANKS, work_in_a_storm, NULL);
  world_collect(&w, RETURNED, -1, end);
  for (int r = 0; r < RANKS; r++) {
    if (end[r].status || end[r].value)
      fail_msg("rank %d: %s, %llu wrong", r, end[r].text, (unsigned long long)end[r].value);
  }
  world_end(&w, -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(a_rank_that_dies_while_the_ranks_meet_is_named, world_teardown),
      cmocka_unit_test_teardown(a_rank_that_dies_before_the_first_operation_is_named, world_teardown),
      cmocka_unit_test_teardown(signals_do_no_harm, world_teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

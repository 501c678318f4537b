/*
 * test_silence.c - a rank that is stopped while nothing is in flight is named within the peer
 * time-out; who computes, comes late, has no progress thread, or was stopped with all the others,
 * is not.
 */
#include "world.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS 4
#define BEAT_MS 100

static gyre_comm_config with_beats(int peer_ms) {
  gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
  config.heartbeat_ms = BEAT_MS;
  config.peer_timeout_ms = (uint32_t)peer_ms;
  return config;
}

static int short_ms(void) { return patience(1000); }
/* Where nobody shall be lost on a busy machine, on which a process may have to wait for its turn. */
static int long_ms(void) { return sanitized() ? 8000 : 4000; }

/* Until the communicator has failed, without calling for progress. */
static int idle(struct self *self) {
  gyre_comm_config config = with_beats(short_ms());
  gyre_error verdict = GYRE_ERROR_INIT;
  const bool *used = self->arg;
  self_create(self, &config);
  if (*used && gyre_barrier(self->comm)) return 1;
  self_say(self, READY, GYRE_OK, 0);
  for (int ms = 0; ms < WATCHDOG_MS && !gyre_comm_status(self->comm, &verdict); ms += 5)
    sleep_ms(5);
  self_say(self, RETURNED, verdict.status, 0);
  self_hear(self); /* so that nobody's end is what the others notice */
  return 0;
}

static void check_survivor(const struct report *r, int victim, int64_t stopped_at) {
  double after = (double)(r->at_ns - stopped_at) / 1e9;
  bool right = r->verdict.status == GYRE_ERR_PEER_LOST && r->verdict.culprit_rank == victim &&
               names_rank(r->verdict.text, victim) &&
               strstr(r->verdict.text, "longer than the peer time-out of") &&
               strstr(r->verdict.text, " at 127.0.0.1:") && after > short_ms() / 2000.0 &&
               after < (short_ms() + at_most(3000)) / 1000.0;
  if (right) return;
  fail_msg("rank %d was stopped; rank %d: %s after %.3f s, blames %d: %s", victim, r->rank,
           gyre_status_name(r->verdict.status), after, r->verdict.culprit_rank, r->verdict.text);
}

static void a_rank_that_stops_between_operations_is_named(void **state) {
  (void)state;
  static const bool used[] = {false, true};
  struct world w[RANKS];
  struct report ready[RANKS], end[RANKS];
  int64_t stopped_at[RANKS];
  for (int victim = 0; victim < RANKS; victim++) {
    world_start(&w[victim], RANKS, idle, &used[victim % 2]);
    world_collect(&w[victim], READY, -1, ready);
    stopped_at[victim] = now_ns();
    world_signal(&w[victim], victim, SIGSTOP);
  }
  for (int victim = 0; victim < RANKS; victim++) {
    world_collect(&w[victim], RETURNED, victim, end);
    for (int r = 0; r < RANKS; r++) {
      if (r != victim) check_survivor(&end[r], victim, stopped_at[victim]);
    }
    world_signal(&w[victim], victim, SIGCONT);
    do assert_true(world_hear(&w[victim], &end[victim], WATCHDOG_MS));
    while (end[victim].kind != RETURNED);
    int blamed = end[victim].verdict.culprit_rank;
    if (end[victim].status >= 0 || (blamed != victim && blamed != -1))
      fail_msg("rank %d woke up and blames %d: %s", victim, blamed, end[victim].verdict.text);
    world_tell_all(&w[victim], 'e');
    world_end(&w[victim], -1);
  }
}

/* -------------------------------------------------------------------------------- no failure --- */

enum how { COMPUTES, HAS_NO_THREAD, ALL_ARE_STOPPED, COMES_LATE };

/* Rank 1 does not call for one and a half peer time-outs; then there is an operation. */
static int go_on(struct self *self) {
  enum how how = *(const enum how *)self->arg;
  gyre_comm_config config = with_beats(long_ms());
  size_t n = how == COMES_LATE ? 8u << 20 : 7;
  float *data = calloc(n, sizeof *data);
  int64_t until;
  if (how == HAS_NO_THREAD) {
    gyre_context_config context = GYRE_CONTEXT_CONFIG_INIT;
    if (self->rank == 1) context.flags = GYRE_F_NO_PROGRESS_THREAD;
    config.rendezvous = self->rendezvous;
    if (gyre_context_create_with(&context, &self->ctx) ||
        gyre_comm_create(self->ctx, self->rank, self->nranks, &config, &self->comm))
      return 1;
  } else {
    self_create(self, &config);
  }
  gyre_status st = gyre_barrier(self->comm);
  self_say(self, READY, st, 0);
  if (how == ALL_ARE_STOPPED) self_hear(self);
  if (how == COMPUTES && self->rank == 1) {
    for (until = now_ns() + 1500000LL * long_ms(); now_ns() < until;) continue;
  } else if (how != ALL_ARE_STOPPED && how != COMPUTES && self->rank == 1) {
    sleep_ms(long_ms() + long_ms() / 2);
  }
  if (!st) st = gyre_broadcast(self->comm, data, data, n, GYRE_F32, 0);
  if (!st) st = gyre_barrier(self->comm);
  self_say(self, RETURNED, st, 0);
  free(data);
  return 0;
}

static void who_is_only_busy_late_or_stopped_with_all_others_is_not_lost(void **state) {
  (void)state;
  static const enum how hows[] = {COMPUTES, HAS_NO_THREAD, ALL_ARE_STOPPED, COMES_LATE};
  enum { N = sizeof hows / sizeof *hows };
  struct world w[N];
  struct report ready[RANKS], end[RANKS];
  for (int i = 0; i < N; i++) {
    world_start(&w[i], RANKS - 1, go_on, &hows[i]);
    world_collect(&w[i], READY, -1, ready);
    for (int r = 0; r < RANKS - 1 && hows[i] == ALL_ARE_STOPPED; r++)
      world_signal(&w[i], r, SIGSTOP);
  }
  sleep_ms(long_ms() + long_ms() / 2);
  for (int i = 0; i < N; i++) {
    for (int r = 0; r < RANKS - 1 && hows[i] == ALL_ARE_STOPPED; r++)
      world_signal(&w[i], r, SIGCONT);
    world_tell_all(&w[i], 'g');
    world_collect(&w[i], RETURNED, -1, end);
    for (int r = 0; r < RANKS - 1; r++) {
      if (end[r].status) fail_msg("case %d, rank %d: %s", i, r, end[r].text);
    }
    world_end(&w[i], -1);
  }
}

/* ------------------------------------------------------------------------ between real hosts --- */

/* A rank of tests/hosts: says the verdict that comes while it is idle. */
static int be_idle_by_environment(void) {
  gyre_context *ctx = NULL;
  gyre_comm *comm = NULL;
  gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
  gyre_error verdict = GYRE_ERROR_INIT;
  config.flags = GYRE_F_EAGER_LINKS;
  if (gyre_context_create(&ctx) || gyre_comm_create_from_env(ctx, &config, &comm) ||
      gyre_barrier(comm)) {
    fprintf(stderr, "%s\n", gyre_last_error());
    return 2;
  }
  printf("idle\n");
  fflush(stdout);
  for (int ms = 0; ms < WATCHDOG_MS && !gyre_comm_status(comm, &verdict); ms += 20) sleep_ms(20);
  if (verdict.status) fprintf(stderr, "%s: %s\n", gyre_status_name(verdict.status), verdict.text);
  gyre_comm_destroy(comm);
  gyre_context_destroy(ctx);
  return verdict.status ? 1 : 0;
}

int main(int argc, char **argv) {
  if (argc > 1 && !strcmp(argv[1], "idle")) return be_idle_by_environment();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(a_rank_that_stops_between_operations_is_named, world_teardown),
      cmocka_unit_test_teardown(who_is_only_busy_late_or_stopped_with_all_others_is_not_lost,
                                world_teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

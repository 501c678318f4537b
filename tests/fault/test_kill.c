/* test_kill.c - one rank of four dies by SIGKILL in the middle of all-reduces: every other rank
 * names it within two seconds. */
#include "world.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS 4
#define BOUND_MS 2000

struct load { /* what the ranks do when the blow falls */
  size_t bytes;
  int in_flight;
};

static const struct load loads[] = {{8, 1}, {64 << 10, 1}, {8 << 20, 1}, {8, 6}, {256 << 10, 6}};
#define LOADS (int)(sizeof loads / sizeof *loads)

/* Operations until one fails. */
static gyre_status hammer(struct self *self, const struct load *load) {
  size_t count = load->bytes / sizeof(float);
  gyre_request *req[8] = {NULL};
  float *in = calloc(count, sizeof *in), *out[8];
  for (int i = 0; i < load->in_flight; i++) out[i] = calloc(count, sizeof *in);
  gyre_status st = GYRE_OK;
  for (unsigned round = 0; st == GYRE_OK; round++) {
    if (load->in_flight == 1) {
      st = gyre_all_reduce(self->comm, in, out[0], count, GYRE_F32, GYRE_SUM);
    }
    for (int i = 0; i < load->in_flight && load->in_flight > 1 && st == GYRE_OK; i++) {
      st = gyre_all_reduce_async(self->comm, in, out[i], count, GYRE_F32, GYRE_SUM, &req[i]);
    }
    for (int i = 0; i < load->in_flight; i++) { /* every one ends, and the first error is kept */
      gyre_status one = gyre_wait(req[i], -1);
      req[i] = NULL;
      if (st == GYRE_OK) st = one;
    }
    if (round == 3) self_say(self, READY, GYRE_OK, 0);
  }
  for (int i = 0; i < load->in_flight; i++) free(out[i]);
  free(in);
  return st;
}

static int survive(struct self *self) {
  self_create(self, NULL);
  gyre_status st = hammer(self, self->arg);
  self_say(self, RETURNED, st, 0);
  /* Whatever is called later gives the same verdict at once. */
  float one = 1, sum;
  gyre_status later = gyre_all_reduce(self->comm, &one, &sum, 1, GYRE_F32, GYRE_SUM);
  return later == st ? 0 : 1;
}

static void check_survivor(const struct report *r, int victim, int64_t killed_at) {
  bool right = r->status == GYRE_ERR_PEER_LOST && r->verdict.status == GYRE_ERR_PEER_LOST &&
               r->verdict.culprit_rank == victim && names_rank(r->text, victim) &&
               r->at_ns - killed_at < at_most(BOUND_MS) * INT64_C(1000000);
  if (right) return;
  fail_msg("rank %d was killed; rank %d returned %s after %.3f s, blames %d (%s): %s", victim,
           r->rank, gyre_status_name(r->status), (double)(r->at_ns - killed_at) / 1e9,
           r->verdict.culprit_rank, gyre_status_name(r->verdict.status), r->text);
}

static void one_round(const struct load *load, int victim, int delay_ms) {
  struct world w;
  struct report ready[RANKS], end[RANKS];
  world_start(&w, RANKS, survive, load);
  world_collect(&w, READY, -1, ready);
  sleep_ms(delay_ms);
  int64_t killed_at = now_ns();
  world_signal(&w, victim, SIGKILL);
  world_collect(&w, RETURNED, victim, end);
  for (int r = 0; r < RANKS; r++) {
    if (r != victim) check_survivor(&end[r], victim, killed_at);
  }
  const char *text = end[victim == 0].verdict.text;
  for (int r = 0; r < RANKS;
       r++) { /* one verdict, unless the root, which gives it, is the one that died */
    if (victim != 0 && r != victim) assert_string_equal(end[r].verdict.text, text);
  }
  world_end(&w, victim);
}

static void every_survivor_names_the_killed_rank(void **state) {
  (void)state;
  unsigned seed = (unsigned)now_ns();
  int n = rounds(10);
  print_message("seed %u, %d rounds\n", seed, n);
  for (int i = 0; i < n; i++)
    one_round(&loads[i % LOADS], (i + i / LOADS) % RANKS, rand_r(&seed) % 20);
}

/* The survivors do not call anything when it happens: the next call tells them. */
static int be_idle(struct self *self) {
  float one = 1, sum;
  self_create(self, NULL);
  if (gyre_all_reduce(self->comm, &one, &sum, 1, GYRE_F32, GYRE_SUM)) return 1;
  self_say(self, READY, GYRE_OK, 0);
  self_hear(self);
  self_say(self, RETURNED, gyre_all_reduce(self->comm, &one, &sum, 1, GYRE_F32, GYRE_SUM), 0);
  return 0;
}

static void idle_ranks_learn_it_at_their_next_call(void **state) {
  (void)state;
  for (int victim = 0; victim < RANKS; victim += RANKS - 1) {
    struct world w;
    struct report ready[RANKS], end[RANKS];
    world_start(&w, RANKS, be_idle, NULL);
    world_collect(&w, READY, -1, ready);
    int64_t killed_at = now_ns();
    world_signal(&w, victim, SIGKILL);
    sleep_ms(100);
    world_tell_all(&w, 'g');
    world_collect(&w, RETURNED, victim, end);
    for (int r = 0; r < RANKS; r++) {
      if (r != victim) check_survivor(&end[r], victim, killed_at);
    }
    world_end(&w, victim);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(every_survivor_names_the_killed_rank, world_teardown),
      cmocka_unit_test_teardown(idle_ranks_learn_it_at_their_next_call, world_teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

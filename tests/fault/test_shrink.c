/*
 * test_shrink.c - ranks die in collectives, in splits and in shrinking itself: those that are left
 * agree on who they are and go on, or all learn that they are too few. By seed: who dies, when, and
 * what the others were doing.
 */
#include "world.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS 4
#define CONNECT_MS 3000

static int connect_ms(void) { return sanitized() ? 2 * CONNECT_MS : CONNECT_MS; }

enum work { COLLECTIVES, SPLITS, ABORT };

struct plan {
  unsigned seed;
  int connect_ms;
  enum work work;
  int victim[2], n_victim;
  int delay_ms[2]; /* before each death */
  bool early;      /* the old communicator is destroyed as soon as there is a new one */
};

static bool has_heard(struct self *self, bool *heard) {
  struct pollfd p = {self->hear_fd, POLLIN, 0};
  if (!*heard && poll(&p, 1, 0) == 1) *heard = self_hear(self) == 's';
  return *heard;
}

/* Who is in it, and whether all of them have heard that nobody dies any more. */
static gyre_status look_around(struct self *self, gyre_comm *comm, bool *heard, uint32_t *members,
                               bool *over) {
  uint32_t me = 1u << self->rank, calm = has_heard(self, heard), all_calm = 0;
  gyre_status st = gyre_all_reduce(comm, &me, members, 1, GYRE_U32, GYRE_SUM);
  if (!st) st = gyre_all_reduce(comm, &calm, &all_calm, 1, GYRE_U32, GYRE_MIN);
  *over = !st && all_calm;
  return st;
}

/* A failure of the parts is not one of the whole, but soon will be. */
static void part(struct self *self, gyre_comm *comm) {
  gyre_comm *half = NULL;
  if (gyre_comm_split(comm, self->rank % 2, 0, &half)) return;
  gyre_barrier(half);
  gyre_comm_destroy(half);
}

static int survive(struct self *self) {
  const struct plan *plan = self->arg;
  gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
  config.connect_timeout_ms = (uint32_t)plan->connect_ms;
  self_create(self, &config);
  self_say(self, READY, GYRE_OK, 0);
  self_hear(self);
  gyre_status st = GYRE_OK;
  uint32_t members = 0;
  bool over = false, heard = false;
  gyre_comm *old = NULL;
  if (plan->work == ABORT && self->rank == (int)(plan->seed % RANKS))
    gyre_comm_abort(self->comm, "to be shrunk");
  while (!over) {
    if (plan->work == SPLITS) part(self, self->comm);
    if (look_around(self, self->comm, &heard, &members, &over) == GYRE_OK) continue;
    gyre_comm *next = NULL;
    st = gyre_comm_shrink(self->comm, &next);
    if (st) break;
    gyre_comm_destroy(old);
    old = self->comm;
    self->comm = next;
    if (!plan->early) continue;
    gyre_comm_destroy(old);
    old = NULL;
  }
  self_say(self, RETURNED, st, members);
  if (!heard) self_hear(self);
  self_hear(self); /* keeps what it has until all have reported */
  gyre_comm_destroy(old);
  return 0;
}

static struct plan draw(unsigned seed) {
  struct plan plan = {.seed = seed, .connect_ms = connect_ms(), .work = (enum work)(seed % 3)};
  unsigned state = seed * 2654435761u + 1;
  plan.n_victim = 1 + (int)(seed % 2);
  plan.early = rand_r(&state) % 2;
  plan.victim[0] = rand_r(&state) % RANKS;
  plan.victim[1] = (plan.victim[0] + 1 + rand_r(&state) % (RANKS - 1)) % RANKS;
  for (int i = 0; i < 2; i++)
    plan.delay_ms[i] = rand_r(&state) % 2 ? rand_r(&state) % 4 : rand_r(&state) % 40;
  return plan;
}

/* All survivors are in it and nobody else; or, if that is legitimate, all are left out. */
static void check(const struct plan *plan, const struct report *r, const bool *dead) {
  uint32_t alive = 0;
  int in = 0, out = 0, left = 0;
  for (int i = 0; i < RANKS; i++) {
    if (dead[i]) continue;
    alive |= 1u << i;
    left++;
    in += r[i].status == GYRE_OK;
    out += r[i].status == GYRE_ERR_PEER_LOST && strstr(r[i].text, "excluded");
  }
  bool may_be_too_few = left < RANKS / 2 || (left == RANKS / 2 && dead[0]);
  bool right = in == left || (may_be_too_few && out == left);
  for (int i = 0; i < RANKS; i++)
    if (!dead[i] && r[i].status == GYRE_OK && r[i].value != alive) right = false;
  if (right) return;
  for (int i = 0; i < RANKS; i++) {
    if (!dead[i])
      fprintf(stderr, "rank %d: %s, with 0x%x: %s; verdict: %s\n", i, gyre_status_name(r[i].status),
              (unsigned)r[i].value, r[i].text, r[i].verdict.text);
  }
  fail_msg("seed %u: work %d, deaths of %d after %d ms and %d after %d ms (%d of them)", plan->seed,
           (int)plan->work, plan->victim[0], plan->delay_ms[0], plan->victim[1], plan->delay_ms[1],
           plan->n_victim);
}

static void collect(struct world *w, const bool *dead, struct report *out) {
  int missing = 0;
  for (int i = 0; i < RANKS; i++) missing += !dead[i];
  while (missing > 0) {
    struct report r;
    if (!world_hear(w, &r, 2 * WATCHDOG_MS)) fail_msg("%d survivors hang", missing);
    if (r.kind != RETURNED || dead[r.rank]) continue;
    out[r.rank] = r;
    missing--;
  }
}

static void run_seed(unsigned seed) {
  struct world w;
  struct report r[RANKS];
  struct plan plan = draw(seed);
  bool dead[RANKS] = {false};
  world_start(&w, RANKS, survive, &plan);
  world_collect(&w, READY, -1, r);
  world_tell_all(&w, 'g');
  for (int i = 0; i < plan.n_victim; i++) {
    sleep_ms(plan.delay_ms[i]);
    world_signal(&w, plan.victim[i], SIGKILL);
    dead[plan.victim[i]] = true;
  }
  world_tell_all(&w, 's');
  collect(&w, dead, r);
  check(&plan, r, dead);
  world_tell_all(&w, 'e');
  world_end(&w, -1);
}

static void survivors_agree_and_go_on(void **state) {
  (void)state;
  const char *first = getenv("SEED");
  unsigned seed = first ? (unsigned)atoi(first) : 0;
  for (int i = 0; i < rounds(12); i++) run_seed(seed + (unsigned)i);
}

/* All deaths before anybody shrinks: who is left decides whether they may go on. */
static void too_few_are_left_out(void **state) {
  (void)state;
  static const struct {
    bool dead[RANKS];
    bool enough;
  } cases[] = {{{1, 1, 0, 0}, false},
               {{1, 0, 0, 1}, false},
               {{0, 1, 1, 0}, true},
               {{0, 1, 1, 1}, false},
               {{1, 0, 0, 0}, true}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    struct world w;
    struct report r[RANKS];
    struct plan plan = {.connect_ms = connect_ms()};
    const bool *dead = cases[c].dead;
    uint32_t alive = 0;
    world_start(&w, RANKS, survive, &plan);
    world_collect(&w, READY, -1, r);
    for (int i = 0; i < RANKS; i++) {
      if (dead[i]) world_signal(&w, i, SIGKILL);
      else alive |= 1u << i;
    }
    world_tell_all(&w, 'g');
    world_tell_all(&w, 's');
    collect(&w, dead, r);
    for (int i = 0; i < RANKS; i++) {
      if (dead[i]) continue;
      bool right = cases[c].enough
                       ? r[i].status == GYRE_OK && r[i].value == alive
                       : r[i].status == GYRE_ERR_PEER_LOST && strstr(r[i].text, "excluded: only");
      if (!right)
        fail_msg("case %zu: rank %d: %s with 0x%x: %s", c, i, gyre_status_name(r[i].status),
                 (unsigned)r[i].value, r[i].text);
    }
    world_tell_all(&w, 'e');
    world_end(&w, -1);
  }
}

/* One, often the coordinator, is stopped in the middle of it for about as long as the others wait.
 * Whatever they make of that: who is in a communicator agrees with all in it on who is, and there is
 * no second one. */
static void run_pause(unsigned seed) {
  struct world w;
  struct report r[RANKS];
  struct plan plan = draw(seed);
  bool dead[RANKS] = {false};
  uint32_t in = 0;
  plan.work = ABORT;
  int victim = seed % 3 ? 0 : plan.victim[0];
  world_start(&w, RANKS, survive, &plan);
  world_collect(&w, READY, -1, r);
  world_tell_all(&w, 'g');
  sleep_ms(plan.delay_ms[0] / 2);
  world_signal(&w, victim, SIGSTOP);
  sleep_ms(plan.connect_ms + plan.delay_ms[1] * 100);
  world_signal(&w, victim, SIGCONT);
  world_tell_all(&w, 's');
  collect(&w, dead, r);
  for (int i = 0; i < RANKS; i++) in |= r[i].status == GYRE_OK ? 1u << i : 0;
  for (int i = 0; i < RANKS; i++) {
    bool right = r[i].status == GYRE_OK
                     ? r[i].value == in
                     : r[i].status == GYRE_ERR_PEER_LOST && strstr(r[i].text, "excluded");
    if (!right)
      fail_msg("seed %u: rank %d, of 0x%x: %s, with 0x%x: %s", seed, i, (unsigned)in,
               gyre_status_name(r[i].status), (unsigned)r[i].value, r[i].text);
  }
  world_tell_all(&w, 'e');
  world_end(&w, -1);
}

static void a_pause_brings_no_second_decision(void **state) {
  (void)state;
  const char *first = getenv("SEED");
  unsigned seed = first ? (unsigned)atoi(first) : 0;
  int n = (rounds(12) + 5) / 6; /* they take long, because all wait */
  for (int i = 0; i < n; i++) run_pause(seed + (unsigned)i);
}

/* One is stopped when the others shrink, and calls when it is all over. */
static int shrink_after_abort(struct self *self) {
  gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
  config.connect_timeout_ms = self->rank == RANKS - 1 ? 60000 : 1500;
  self_create(self, &config);
  self_say(self, READY, GYRE_OK, 0);
  self_hear(self);
  gyre_comm *next = NULL, *again = NULL;
  gyre_comm_abort(self->comm, "to be shrunk");
  gyre_barrier(self->comm);
  gyre_status st = gyre_comm_shrink(self->comm, &next);
  self_say(self, RETURNED, st, next ? (uint64_t)gyre_comm_size(next) : 0);
  if (!st && gyre_comm_shrink(self->comm, &again) != GYRE_ERR_STATE) return 7;
  if (!st && gyre_comm_shrink(next, &again) != GYRE_ERR_STATE) return 8;
  self_hear(self);
  gyre_comm_destroy(self->comm);
  self->comm = next;
  return 0;
}

static void who_comes_late_is_told(void **state) {
  (void)state;
  struct world w;
  struct report r[RANKS];
  world_start(&w, RANKS, shrink_after_abort, NULL);
  world_collect(&w, READY, -1, r);
  world_signal(&w, RANKS - 1, SIGSTOP);
  world_tell_all(&w, 'g');
  world_collect(&w, RETURNED, RANKS - 1, r);
  for (int i = 0; i < RANKS - 1; i++) {
    if (r[i].status || r[i].value != RANKS - 1) fail_msg("rank %d: %s", i, r[i].text);
  }
  world_signal(&w, RANKS - 1, SIGCONT);
  struct report late;
  if (!world_hear(&w, &late, WATCHDOG_MS)) fail_msg("the late rank hangs");
  if (late.status != GYRE_ERR_PEER_LOST || !strstr(late.text, "excluded: ranks 0-2 of 4"))
    fail_msg("the late rank: %s: %s", gyre_status_name(late.status), late.text);
  world_tell_all(&w, 'e');
  world_end(&w, -1);
}

static void bad_calls_are_refused(void **state) {
  (void)state;
  gyre_context *ctx;
  gyre_comm *comm, *out = NULL, *alone;
  assert_int_equal(gyre_context_create(&ctx), GYRE_OK);
  assert_int_equal(gyre_comm_create(ctx, 0, 1, NULL, &comm), GYRE_OK);
  assert_int_equal(gyre_comm_shrink(NULL, &out), GYRE_ERR_ARG);
  assert_int_equal(gyre_comm_shrink(comm, NULL), GYRE_ERR_ARG);
  assert_int_equal(gyre_comm_shrink(comm, &out), GYRE_ERR_STATE);
  assert_null(out);
  assert_int_equal(gyre_comm_abort(comm, "enough"), GYRE_OK);
  assert_int_equal(gyre_comm_shrink(comm, &alone), GYRE_OK);
  assert_int_equal(gyre_comm_size(alone), 1);
  assert_int_equal(gyre_comm_shrink(comm, &out), GYRE_ERR_STATE);
  gyre_comm_destroy(comm);
  assert_int_equal(gyre_barrier(alone), GYRE_OK);
  gyre_context_destroy(ctx);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(survivors_agree_and_go_on, world_teardown),
      cmocka_unit_test_teardown(too_few_are_left_out, world_teardown),
      cmocka_unit_test_teardown(a_pause_brings_no_second_decision, world_teardown),
      cmocka_unit_test_teardown(who_comes_late_is_told, world_teardown),
      cmocka_unit_test(bad_calls_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

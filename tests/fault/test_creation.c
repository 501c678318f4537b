/* test_creation.c - ranks that do not come, have another secret, other settings or somebody else's rank: everybody is told. */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS 4
#define TIMEOUT_MS 1500

struct oddity {
  int odd;             /* the rank it is about; those that are missing: a bit each */
  unsigned missing;
  const char *name, *usual, *other; /* a variable, as all ranks but the odd one have it */
  int same_as;         /* the odd rank says it is this one; -1: it says the truth */
};

static int try_to_meet(struct self *self) {
  const struct oddity *o = self->arg;
  bool odd = self->rank == o->odd;
  gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
  config.rendezvous = self->rendezvous;
  config.connect_timeout_ms = TIMEOUT_MS;
  if (o->missing >> self->rank & 1) return 0;
  if (o->name) setenv(o->name, odd ? o->other : o->usual, 1);
  gyre_status st = gyre_context_create(&self->ctx);
  int rank = odd && o->same_as >= 0 ? o->same_as : self->rank;
  if (!st) st = gyre_comm_create(self->ctx, rank, RANKS, &config, &self->comm);
  self_say(self, RETURNED, st, 0);
  self_hear(self);
  return 0;
}

static void meet(struct world *w, const struct oddity *o, struct report *end) {
  world_start(w, RANKS, try_to_meet, o);
  int64_t began = now_ns();
  for (int r = 0; r < RANKS; r++) {
    if (o->missing >> r & 1) continue;
    struct report one;
    if (!world_hear(w, &one, WATCHDOG_MS)) fail_msg("a rank hangs in gyre_comm_create");
    end[one.rank] = one;
    if (one.at_ns - began > 10 * TIMEOUT_MS * 1000000LL) fail_msg("rank %d waited too long", one.rank);
  }
  world_tell_all(w, 'e');
}

static void expect(const struct report *r, gyre_status status, const char *said) {
  if (r->status == status && strstr(r->text, said)) return;
  fail_msg("rank %d: %s instead of %s with \"%s\": %s", r->rank, gyre_status_name(r->status), gyre_status_name(status), said,
           r->text);
}

static void missing_ranks_are_named_on_every_rank_that_came(void **state) {
  (void)state;
  static const struct { unsigned missing; const char *said; } cases[] = {
    { 1u << 2, "rank 2 of 4 did not come" }, { 1u << 1 | 1u << 3, "ranks 1, 3 of 4 did not come" }, { 1u << 0, "rank 0" } };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct world w;
    struct report end[RANKS];
    struct oddity o = { .odd = -1, .missing = cases[i].missing, .same_as = -1 };
    meet(&w, &o, end);
    for (int r = 0; r < RANKS; r++) {
      if (!(o.missing >> r & 1)) expect(&end[r], GYRE_ERR_TIMEOUT, cases[i].said);
    }
    world_end(&w, -1);
  }
}

static void a_wrong_secret_keeps_a_rank_out(void **state) {
  (void)state;
  struct world w;
  struct report end[RANKS];
  struct oddity o = { .odd = 2, .name = "GYRE_SECRET", .usual = "sesame", .other = "barley", .same_as = -1 };
  meet(&w, &o, end);
  for (int r = 0; r < RANKS; r++) {
    if (r == 2) expect(&end[r], GYRE_ERR_AUTH, "secret");
    else expect(&end[r], GYRE_ERR_TIMEOUT, "rank 2 of 4 did not come");
  }
  world_end(&w, -1);
}

static void another_agreed_setting_is_told_with_both_values(void **state) {
  (void)state;
  static const struct { const char *name, *usual, *other; } cases[] = {
    { "GYRE_SLICE_BYTES", "65536", "131072" }, { "GYRE_ALGO", "ring", "tree" }, { "GYRE_OP_TIMEOUT_MS", "5000", "7000" } };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct world w;
    struct report end[RANKS];
    struct oddity o = { .odd = 3, .name = cases[i].name, .usual = cases[i].usual, .other = cases[i].other, .same_as = -1 };
    meet(&w, &o, end);
    for (int r = 0; r < RANKS; r++) {
      expect(&end[r], GYRE_ERR_MISMATCH, cases[i].name);
      expect(&end[r], GYRE_ERR_MISMATCH, cases[i].usual);
      expect(&end[r], GYRE_ERR_MISMATCH, cases[i].other);
    }
    world_end(&w, -1);
  }
}

static void two_processes_with_one_rank_are_told(void **state) {
  (void)state;
  struct world w;
  struct report end[RANKS];
  struct oddity o = { .odd = 3, .same_as = 1 };
  meet(&w, &o, end);
  for (int r = 0; r < RANKS; r++) expect(&end[r], GYRE_ERR_ARG, "two processes say they are rank 1");
  world_end(&w, -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test_teardown(missing_ranks_are_named_on_every_rank_that_came, world_teardown),
    cmocka_unit_test_teardown(a_wrong_secret_keeps_a_rank_out, world_teardown),
    cmocka_unit_test_teardown(another_agreed_setting_is_told_with_both_values, world_teardown),
    cmocka_unit_test_teardown(two_processes_with_one_rank_are_told, world_teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_creation.c - ranks that do not come, have another secret, other settings or somebody else's
 * rank: everybody is told. */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS 4
#define SHORT_MS 3000 /* for ranks that are waited for in vain */
#define LONG_MS 20000

struct oddity {
  unsigned missing;                 /* ranks that do not come, a bit each */
  int odd;                          /* the rank it is about; -1: none */
  const char *name, *usual, *other; /* a variable, as all ranks but the odd one have it */
  int same_as;                      /* the odd rank says it is this one; -1: it says the truth */
  gyre_status status, odd_status;
  const char *said[3], *odd_said; /* in the text of all, of the odd one */
};

static const struct oddity oddities[] = {
    {1u << 2, -1, NULL, NULL, NULL, -1, GYRE_ERR_TIMEOUT, 0, {"rank 2 of 4 did not come"}, NULL},
    {1u << 1 | 1u << 3, -1, NULL, NULL, NULL, -1, GYRE_ERR_TIMEOUT, 0, {"ranks 1, 3 of 4 did not come"}, NULL},
    {1u << 0, -1, NULL, NULL, NULL, -1, GYRE_ERR_TIMEOUT, 0, {"rank 0"}, NULL},
    {0,
     2,
     "GYRE_SECRET",
     "sesame",
     "barley",
     -1,
     GYRE_ERR_TIMEOUT,
     GYRE_ERR_AUTH,
     {"rank 2 of 4 did not come", "secret"},
     "secret"},
    {0,
     3,
     "GYRE_SLICE_BYTES",
     "65536",
     "131072",
     -1,
     GYRE_ERR_MISMATCH,
     0,
     {"GYRE_SLICE_BYTES", "\"65536\"", "\"131072\""},
     NULL},
    {0, 1, "GYRE_ALGO", "ring", "tree", -1, GYRE_ERR_MISMATCH, 0, {"GYRE_ALGO", "\"ring\"", "\"tree\""}, NULL},
    {0,
     2,
     "GYRE_OP_TIMEOUT_MS",
     "5000",
     "7000",
     -1,
     GYRE_ERR_MISMATCH,
     0,
     {"GYRE_OP_TIMEOUT_MS", "\"5000\"", "\"7000\""},
     NULL},
    {0, 3, NULL, NULL, NULL, 1, GYRE_ERR_ARG, 0, {"two processes say they are rank 1"}, NULL},
};
#define ODDITIES (sizeof oddities / sizeof *oddities)

static bool waits_in_vain(const struct oddity *o) { return o->status == GYRE_ERR_TIMEOUT; }

static int try_to_meet(struct self *self) {
  const struct oddity *o = self->arg;
  bool odd = self->rank == o->odd;
  gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
  config.rendezvous = self->rendezvous;
  config.connect_timeout_ms = (uint32_t)patience(waits_in_vain(o) ? SHORT_MS : LONG_MS);
  if (o->missing >> self->rank & 1) return 0;
  if (o->name) setenv(o->name, odd ? o->other : o->usual, 1);
  gyre_status st = gyre_context_create(&self->ctx);
  int rank = odd && o->same_as >= 0 ? o->same_as : self->rank;
  if (!st) st = gyre_comm_create(self->ctx, rank, RANKS, &config, &self->comm);
  self_say(self, RETURNED, st, 0);
  self_hear(self);
  return 0;
}

static void check(const struct oddity *o, const struct report *r) {
  bool odd = r->rank == o->odd && o->odd_status;
  bool right = r->status == (odd ? o->odd_status : o->status);
  for (int i = 0; i < 3 && !odd && o->said[i]; i++) right = right && strstr(r->text, o->said[i]);
  if (odd) right = right && strstr(r->text, o->odd_said);
  if (!right) fail_msg("rank %d: %s: %s", r->rank, gyre_status_name(r->status), r->text);
}

static void everybody_is_told_why_the_ranks_do_not_meet(void **state) {
  (void)state;
  static struct world w[ODDITIES];
  for (size_t i = 0; i < ODDITIES; i++)
    world_start(&w[i], RANKS, try_to_meet, &oddities[i]); /* side by side: they wait */
  for (size_t i = 0; i < ODDITIES; i++) {
    for (int r = 0; r < RANKS; r++) {
      struct report one;
      if (oddities[i].missing >> r & 1) continue;
      if (!world_hear(&w[i], &one, WATCHDOG_MS)) fail_msg("a rank hangs in gyre_comm_create");
      check(&oddities[i], &one);
    }
    world_tell_all(&w[i], 'e');
    world_end(&w[i], -1);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(everybody_is_told_why_the_ranks_do_not_meet, world_teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

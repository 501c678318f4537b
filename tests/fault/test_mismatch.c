/*
 * test_mismatch.c - ranks call different things: each learns what the ranks called, within two
 * seconds, or two seconds after the deadline when one of them does not call at all.
 */
#include "world.h"

#include <stdlib.h>
#include <string.h>

#define BOUND_MS 2000
#define DEADLINE_MS 1000
#define LARGE (1u << 18)
#define AT_A_TIME 5 /* worlds side by side, as those that stall do nothing for a second */

struct calling { /* what one rank calls */
  char coll; /* a: all_reduce, b: broadcast, r: reduce, g: all_gather, s: reduce_scatter, B: barrier, -: nothing */
  gyre_dtype type;
  gyre_op op;
  int root;
  int more; /* added to the count */
};

struct mismatch {
  const char *name;
  struct calling most, odd; /* the last rank calls `odd` */
  const char *said[2];      /* both stand in every rank's text */
  bool on_follow_up; /* both calls may return OK, as nobody waits for anybody; the next one tells */
};

#define F32 GYRE_F32
static const struct mismatch mismatches[] = {
    {"count", {'a', F32, GYRE_SUM, 0, 0}, {'a', F32, GYRE_SUM, 0, 1}, {"f32 x ", "f32 x "}, false},
    {"type", {'a', F32, GYRE_SUM, 0, 0}, {'a', GYRE_I32, GYRE_SUM, 0, 0}, {"f32 x ", "i32 x "}, false},
    {"operator", {'a', F32, GYRE_SUM, 0, 0}, {'a', F32, GYRE_MAX, 0, 0}, {"sum", "max"}, false},
    {"collective",
     {'a', F32, GYRE_SUM, 0, 0},
     {'g', F32, GYRE_SUM, 0, 0},
     {"all_reduce(", "all_gather("},
     false},
    {"barrier", {'a', F32, GYRE_SUM, 0, 0}, {'B', F32, GYRE_SUM, 0, 0}, {"all_reduce(", "barrier("}, false},
    {"scatter",
     {'s', F32, GYRE_SUM, 0, 0},
     {'r', F32, GYRE_SUM, 0, 0},
     {"reduce_scatter(", " reduce("},
     false},
    {"broadcast, two are root", {'b', F32, 0, 0, 0}, {'b', F32, 0, -1, 0}, {"root 0", "root "}, true},
    {"broadcast, each waits", {'b', F32, 0, -1, 0}, {'b', F32, 0, 0, 0}, {"root 0", "root "}, false},
    {"reduce, two are root",
     {'r', F32, GYRE_SUM, 0, 0},
     {'r', F32, GYRE_SUM, -1, 0},
     {"root 0", "root "},
     false},
    {"reduce, each sends",
     {'r', F32, GYRE_SUM, -1, 0},
     {'r', F32, GYRE_SUM, 0, 0},
     {"root 0", "root "},
     true},
};
#define MISMATCHES (sizeof mismatches / sizeof *mismatches)
_Static_assert(MISMATCHES % AT_A_TIME == 0, "the table is taken in equal parts");

struct plan {
  const struct mismatch *mismatch;
  size_t count;
};

/* *called_at: when it was, as the time to allocate is no part of it. */
static gyre_status call(struct self *self, const struct calling *c, size_t count, int64_t *called_at) {
  size_t n = count + (size_t)c->more, ranks = (size_t)self->nranks;
  int root = c->root < 0 ? self->nranks - 1 : c->root;
  void *in = calloc(n * ranks, 8), *out = calloc(n * ranks, 8);
  gyre_status st = GYRE_OK;
  *called_at = now_ns();
  switch (c->coll) {
    case 'a': st = gyre_all_reduce(self->comm, in, out, n, c->type, c->op); break;
    case 'b': st = gyre_broadcast(self->comm, in, out, n, c->type, root); break;
    case 'r': st = gyre_reduce(self->comm, in, out, n, c->type, c->op, root); break;
    case 'g': st = gyre_all_gather(self->comm, in, out, n, c->type); break;
    case 's': st = gyre_reduce_scatter(self->comm, in, out, n, c->type, c->op); break;
    case 'B': st = gyre_barrier(self->comm); break;
    default: break;
  }
  free(in);
  free(out);
  return st;
}

/* Where an operation needs nothing from the others it may be over before they disagree: the verdict
 * comes all the same. */
static gyre_status wait_for_verdict(struct self *self) {
  gyre_error verdict = GYRE_ERROR_INIT;
  for (int ms = 0; ms < 10000; ms += 5) {
    if (gyre_comm_status(self->comm, &verdict)) return gyre_barrier(self->comm);
    sleep_ms(5);
  }
  return GYRE_OK;
}

static int disagree(struct self *self) {
  const struct plan *plan = self->arg;
  bool odd = self->rank == self->nranks - 1;
  gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
  self_create(self, &config);
  /* A call they agree on first, so that links are there and sequence numbers count. */
  if (gyre_barrier(self->comm)) return 1;
  self_say(self, READY, GYRE_OK, 0);
  self_hear(self);
  int64_t called_at;
  gyre_status st =
      call(self, odd ? &plan->mismatch->odd : &plan->mismatch->most, plan->count, &called_at);
  if (!st) st = wait_for_verdict(self);
  self_say(self, RETURNED, st, (uint64_t)called_at);
  self_hear(self);
  return 0;
}

static bool has_both(const char *text, const char *const said[2]) {
  const char *first = strstr(text, said[0]);
  if (!first) return false;
  return strcmp(said[0], said[1]) ? strstr(text, said[1]) != NULL
                                  : strstr(first + 1, said[1]) != NULL;
}

static void check_truth(const struct plan *plan, int nranks, const struct report *r, int64_t began) {
  double after = (double)(r->at_ns - began) / 1e9;
  bool right = r->status == GYRE_ERR_MISMATCH && r->verdict.status == GYRE_ERR_MISMATCH &&
               r->verdict.op_seq == 2 && has_both(r->text, plan->mismatch->said) &&
               names_rank(r->text, nranks - 1) &&
               r->at_ns - began < at_most(BOUND_MS) * INT64_C(1000000);
  int blamed =
      r->verdict.culprit_rank; /* the only one of its opinion, unless some had not called yet */
  if (blamed != -1 && (nranks == 2 || blamed != nranks - 1)) right = false;
  if (right) return;
  fail_msg(
      "%s, %d ranks, %zu elements: rank %d returned %s after %.3f s, operation %llu, blames %d: %s",
      plan->mismatch->name, nranks, plan->count, r->rank, gyre_status_name(r->status), after,
      (unsigned long long)r->verdict.op_seq, r->verdict.culprit_rank, r->text);
}

static void disagree_side_by_side(const struct mismatch *first, int nranks, size_t count) {
  static struct world w[AT_A_TIME];
  static struct plan plan[AT_A_TIME];
  struct report ready[WORLD_MAX], end[WORLD_MAX];
  for (int m = 0; m < AT_A_TIME; m++) {
    plan[m] = (struct plan){&first[m], count};
    world_start(&w[m], nranks, disagree, &plan[m]);
  }
  for (int m = 0; m < AT_A_TIME; m++) world_collect(&w[m], READY, -1, ready);
  for (int m = 0; m < AT_A_TIME; m++) world_tell_all(&w[m], 'g');
  for (int m = 0; m < AT_A_TIME; m++) {
    int64_t began = 0; /* when the last of them called */
    world_collect(&w[m], RETURNED, -1, end);
    for (int r = 0; r < nranks; r++)
      began = (int64_t)end[r].value > began ? (int64_t)end[r].value : began;
    for (int r = 0; r < nranks; r++) check_truth(&plan[m], nranks, &end[r], began);
    for (int r = 1; r < nranks; r++) assert_string_equal(end[r].verdict.text, end[0].verdict.text);
    world_tell_all(&w[m], 'e');
    world_end(&w[m], -1);
  }
}

static void every_rank_learns_what_was_called(void **state) {
  (void)state;
  int n = rounds(1);
  for (int i = 0; i < 3 * n; i++) {
    size_t count = (i / 3 + i) % 2 ? LARGE : 5;
    for (size_t m = 0; m < MISMATCHES; m += AT_A_TIME)
      disagree_side_by_side(&mismatches[m], 2 + i % 3, count);
  }
}

/* ------------------------------------------------------------------------------- does not call --- */

static int one_is_missing(struct self *self) {
  const int *missing = self->arg;
  gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
  config.op_timeout_ms = (uint32_t)patience(DEADLINE_MS);
  self_create(self, &config);
  if (gyre_barrier(self->comm)) return 1;
  self_say(self, READY, GYRE_OK, 0);
  self_hear(self);
  float one = 1, sum;
  gyre_status st = GYRE_OK;
  if (self->rank != *missing) st = gyre_all_reduce(self->comm, &one, &sum, 1, GYRE_F32, GYRE_SUM);
  if (!st) st = wait_for_verdict(self); /* the one that did not call is told as well */
  self_say(self, RETURNED, st, 0);
  self_hear(self);
  return 0;
}

static void a_rank_that_does_not_call_is_named_at_the_deadline(void **state) {
  (void)state;
  static struct world w[9];
  static int missing[9];
  struct report ready[WORLD_MAX], end[WORLD_MAX];
  int64_t began[9];
  int n_worlds = 0;
  for (int nranks = 2; nranks <= 4; nranks++) {
    for (int m = 0; m < nranks; m++) {
      missing[n_worlds] = m;
      world_start(&w[n_worlds], nranks, one_is_missing, &missing[n_worlds]);
      n_worlds++;
    }
  }
  for (int i = 0; i < n_worlds; i++) world_collect(&w[i], READY, -1, ready);
  for (int i = 0; i < n_worlds; i++) {
    began[i] = now_ns();
    world_tell_all(&w[i], 'g');
  }
  for (int i = 0; i < n_worlds; i++) {
    world_collect(&w[i], RETURNED, -1, end);
    for (int r = 0; r < w[i].nranks; r++) {
      double after = (double)(end[r].at_ns - began[i]) / 1e9;
      bool right = end[r].status == GYRE_ERR_TIMEOUT && end[r].verdict.culprit_rank == missing[i] &&
                   names_rank(end[r].text, missing[i]) && strstr(end[r].text, "has not called") &&
                   strstr(end[r].text, "all_reduce(f32 x 1") &&
                   after < (patience(DEADLINE_MS) + at_most(2000)) / 1000.0;
      if (right) continue;
      fail_msg("rank %d of %d did not call; rank %d returned %s after %.3f s, blames %d: %s",
               missing[i], w[i].nranks, r, gyre_status_name(end[r].status), after,
               end[r].verdict.culprit_rank, end[r].text);
    }
    world_tell_all(&w[i], 'e');
    world_end(&w[i], -1);
  }
}

/* ---------------------------------------------------------------------------- one more, one less --- */

/* Three operations on all ranks, but two on the odd one, which then leaves. */
static int one_less(struct self *self) {
  float one = 1, sum;
  self_create(self, NULL);
  gyre_status st = GYRE_OK;
  int n = self->rank == *(const int *)self->arg ? 2 : 3;
  for (int i = 0; i < n && !st; i++)
    st = gyre_all_reduce(self->comm, &one, &sum, 1, GYRE_F32, GYRE_SUM);
  self_say(self, RETURNED, st, 0);
  return 0;
}

static void a_rank_that_left_one_operation_early_is_named(void **state) {
  (void)state;
  struct report end[WORLD_MAX];
  for (int nranks = 2; nranks <= 4; nranks++) {
    for (int odd = 0; odd < nranks; odd += nranks - 1) {
      struct world w;
      int64_t began = now_ns();
      world_start(&w, nranks, one_less, &odd);
      world_collect(&w, RETURNED, -1, end);
      for (int r = 0; r < nranks; r++) {
        double after = (double)(end[r].at_ns - began) / 1e9;
        bool right = r == odd
                         ? end[r].status == GYRE_OK
                         : end[r].status == GYRE_ERR_PEER_LOST &&
                               end[r].verdict.culprit_rank == odd && names_rank(end[r].text, odd) &&
                               strstr(end[r].text, "left at operation 3");
        if (!right) {
          fail_msg("rank %d of %d left after operation 2; rank %d returned %s after %.3f s, blames "
                   "%d: %s",
                   odd, nranks, r, gyre_status_name(end[r].status), after,
                   end[r].verdict.culprit_rank, end[r].text);
        }
      }
      world_end(&w, -1);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(every_rank_learns_what_was_called, world_teardown),
      cmocka_unit_test_teardown(a_rank_that_does_not_call_is_named_at_the_deadline, world_teardown),
      cmocka_unit_test_teardown(a_rank_that_left_one_operation_early_is_named, world_teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * test_leave.c - ranks that leave: what they reported OK reaches the others, what they did not
 * finish is named as left, and leaving disturbs nobody who does not need them.
 */
#include "world.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RANKS 4
#define MIB 64

struct parting {
  int leaver;
  bool gather;   /* all_gather instead of broadcast */
  bool abruptly; /* the process ends without destroying its context */
  uint64_t salt;
};

static uint64_t expected(const struct parting *p, uint64_t i) {
  return (i + p->salt) * 0x9e3779b97f4a7c15u;
}

static size_t wrong(const struct parting *p, const uint64_t *data, size_t n) {
  size_t bad = 0;
  for (size_t i = 0; i < n; i++) bad += data[i] != expected(p, i);
  return bad;
}

/* Leaves at once, or stays a moment and looks at what it got. */
static int give_and_go(struct self *self) {
  const struct parting *p = self->arg;
  size_t n = ((size_t)(sanitized() ? MIB / 8 : MIB) << 20) / sizeof(uint64_t), block = n / RANKS;
  uint64_t *data = calloc(n, sizeof *data), *mine = data + block * (size_t)self->rank;
  bool leaves = self->rank == p->leaver;
  self_create(self, NULL);
  if (p->gather) {
    for (size_t i = 0; i < block; i++) mine[i] = expected(p, block * (size_t)self->rank + i);
  } else if (leaves) {
    for (size_t i = 0; i < n; i++) data[i] = expected(p, i);
  }
  gyre_status st = p->gather ? gyre_all_gather(self->comm, mine, data, block, GYRE_U64)
                             : gyre_broadcast(self->comm, data, data, n, GYRE_U64, p->leaver);
  if (leaves) {
    gyre_comm_destroy(self->comm);
    self->comm = NULL;
    if (p->abruptly) _exit(st ? 1 : 0);
    gyre_context_destroy(self->ctx);
    self->ctx = NULL;
  } else {
    self_say(self, RETURNED, st, wrong(p, data, n));
  }
  free(data);
  return st ? 1 : 0;
}

static void part(const struct parting *p) {
  struct world w;
  struct report end[RANKS];
  world_start(&w, RANKS, give_and_go, p);
  world_collect(&w, RETURNED, p->leaver, end);
  for (int r = 0; r < RANKS; r++) {
    if (r == p->leaver || (end[r].status == GYRE_OK && end[r].value == 0)) continue;
    fail_msg("rank %d left after its %s%s; rank %d: %s, %llu elements wrong: %s", p->leaver,
             p->gather ? "all_gather" : "broadcast", p->abruptly ? " abruptly" : "", r,
             gyre_status_name(end[r].status), (unsigned long long)end[r].value, end[r].text);
  }
  world_end(&w, -1);
}

static void what_a_leaving_rank_sent_arrives(void **state) {
  (void)state;
  int n = rounds(4);
  for (int i = 0; i < n; i++) {
    struct parting root = {0, false, i % 2 == 1, (uint64_t)i};
    part(&root);
    if (i % 4 == 0) {
      struct parting other = {1 + i / 4 % 3, false, i / 4 % 2 == 0, (uint64_t)i};
      struct parting gather = {i / 4 % RANKS, true, i / 4 % 2 == 1, (uint64_t)i};
      part(&other);
      part(&gather);
    }
  }
}

/* ------------------------------------------------------------------------ with operations in flight --- */

static int leave_in_flight(struct self *self) {
  size_t n = 2u << 20;
  float *in = calloc(n, sizeof *in), *out = calloc(n, sizeof *out), *more = calloc(n, sizeof *more);
  gyre_request *req[2] = {NULL, NULL};
  setenv("GYRE_VERDICT_MS", "10000", 1); /* a root that is starved for a moment shall not matter here */
  self_create(self, NULL);
  gyre_status st = gyre_barrier(self->comm);
  if (st) return 1;
  if (self->rank == *(const int *)self->arg) {
    st = gyre_all_reduce_async(self->comm, in, out, n, GYRE_F32, GYRE_SUM, &req[0]);
    if (!st) st = gyre_all_reduce_async(self->comm, in, more, n, GYRE_F32, GYRE_SUM, &req[1]);
    gyre_comm_destroy(self->comm);
    self->comm = NULL;
    gyre_status first = gyre_wait(req[0], -1), second = gyre_wait(req[1], -1);
    bool right = !st && (first == GYRE_OK || first == GYRE_ERR_ABORTED) && second == GYRE_ERR_ABORTED;
    self_say(self, RETURNED, right ? GYRE_ERR_ABORTED : GYRE_ERR_INTERNAL, 0);
  } else {
    for (int i = 0; i < 4 && !st; i++)
      st = gyre_all_reduce(self->comm, in, out, n, GYRE_F32, GYRE_SUM);
    self_say(self, RETURNED, st, 0);
  }
  free(in);
  free(out);
  free(more);
  return 0;
}

static void a_rank_that_leaves_operations_in_flight_is_named(void **state) {
  (void)state;
  for (int leaver = 0; leaver < RANKS; leaver++) {
    struct world w;
    struct report end[RANKS];
    world_start(&w, RANKS, leave_in_flight, &leaver);
    world_collect(&w, RETURNED, -1, end);
    for (int r = 0; r < RANKS; r++) {
      bool right = r == leaver ? end[r].status == GYRE_ERR_ABORTED
                               : end[r].status == GYRE_ERR_PEER_LOST &&
                                     end[r].verdict.culprit_rank == leaver &&
                                     strstr(end[r].text, "left at operation") &&
                                     strstr(end[r].text, ": it destroyed its communicator; ") &&
                                     names_rank(end[r].text, leaver);
      if (!right) {
        fail_msg("rank %d left; rank %d returned %s, blames %d: %s", leaver, r,
                 gyre_status_name(end[r].status), end[r].verdict.culprit_rank, end[r].text);
      }
    }
    world_end(&w, -1);
  }
}

/* ------------------------------------------------------------------- while another thread waits --- */

static void *wait_in_thread(void *arg) {
  struct self *self = arg;
  float one = 1, sum;
  self_say(self, NOTE, GYRE_OK, 0);
  gyre_status st = gyre_all_reduce(self->comm, &one, &sum, 1, GYRE_F32, GYRE_SUM);
  struct self after = *self;
  after.comm = NULL; /* it may be gone by now */
  self_say(&after, RETURNED, st, 0);
  return NULL;
}

static int destroy_under_a_waiter(struct self *self) {
  pthread_t thread;
  self_create(self, NULL);
  if (gyre_barrier(self->comm)) return 1;
  if (self->rank == 1) {
    struct self other = *self;
    pthread_create(&thread, NULL, wait_in_thread, &other);
    self_hear(self); /* the thread is about to call; give it time to be inside */
    sleep_ms(50);
    gyre_comm_destroy(self->comm);
    self->comm = NULL;
    pthread_join(thread, NULL);
  } else {
    self_hear(self);
    float one = 1, sum;
    gyre_status st = GYRE_OK;
    /* The first may end well, as the other's part of it was sent before it left. */
    for (int i = 0; i < 2 && !st; i++)
      st = gyre_all_reduce(self->comm, &one, &sum, 1, GYRE_F32, GYRE_SUM);
    self_say(self, RETURNED, st, 0);
  }
  return 0;
}

static void destroy_ends_a_call_in_another_thread(void **state) {
  (void)state;
  struct world w;
  struct report note, end[2];
  world_start(&w, 2, destroy_under_a_waiter, NULL);
  assert_true(world_hear(&w, &note, WATCHDOG_MS));
  world_tell(&w, 1, 'd');
  do assert_true(world_hear(&w, &end[1], WATCHDOG_MS));
  while (end[1].rank != 1);
  assert_int_equal(end[1].status, GYRE_ERR_ABORTED);
  world_tell(&w, 0, 'c');
  assert_true(world_hear(&w, &end[0], WATCHDOG_MS));
  assert_int_equal(end[0].status, GYRE_ERR_PEER_LOST);
  assert_non_null(strstr(end[0].text, "left at operation 2"));
  world_end(&w, -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(what_a_leaving_rank_sent_arrives, world_teardown),
      cmocka_unit_test_teardown(a_rank_that_leaves_operations_in_flight_is_named, world_teardown),
      cmocka_unit_test_teardown(destroy_ends_a_call_in_another_thread, world_teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_abort.c - gyre_comm_abort from another thread and from a callback ends the communicator on
 * every rank, with its reason. */
#include "world.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define RANKS 4

struct aborting {
  int by; /* the rank that aborts */
  bool in_callback;
};

static void *abort_in_thread(void *arg) {
  struct self *self = arg;
  sleep_ms(50); /* the other thread is inside its call by then, most likely */
  gyre_comm_abort(self->comm, "the loss is NaN");
  return NULL;
}

static void abort_in_callback(gyre_request *req, gyre_status status, void *user) {
  (void)req;
  struct self *self = user;
  if (status == GYRE_OK) gyre_comm_abort(self->comm, "the loss is NaN");
}

/* All but the last rank call an operation that cannot end, as that one never calls it. */
static int be_aborted(struct self *self) {
  const struct aborting *a = self->arg;
  float one = 1, sum = 0, other;
  pthread_t thread;
  gyre_request *req = NULL;
  bool aborts = self->rank == a->by, threaded = aborts && !a->in_callback;
  self_create(self, NULL);
  gyre_status st = gyre_all_reduce_async(self->comm, &one, &sum, 1, GYRE_F32, GYRE_SUM, &req);
  if (st) return 1;
  if (aborts && a->in_callback && gyre_request_on_complete(req, abort_in_callback, self)) return 1;
  st = gyre_wait(
      req, -1); /* where it aborts in its callback this may be late for OK only on the other ranks */
  if (threaded && pthread_create(&thread, NULL, abort_in_thread, self)) return 1;
  if (!st && self->rank != RANKS - 1)
    st = gyre_all_reduce(self->comm, &one, &other, 1, GYRE_F32, GYRE_SUM);
  for (int ms = 0; !st && ms < WATCHDOG_MS; ms += 5) {
    gyre_error e = GYRE_ERROR_INIT;
    sleep_ms(5);
    if (gyre_comm_status(self->comm, &e)) st = gyre_barrier(self->comm);
  }
  if (threaded) pthread_join(thread, NULL);
  self_say(self, RETURNED, st, 0);
  self_hear(self);
  return 0;
}

static void abort_ends_the_communicator_on_every_rank(void **state) {
  (void)state;
  int n = rounds(1);
  for (int i = 0; i < n; i++) {
    for (int k = 0; k < 2 * RANKS; k++) {
      struct aborting a = {k % RANKS, k >= RANKS};
      struct world w;
      struct report end[RANKS];
      world_start(&w, RANKS, be_aborted, &a);
      world_collect(&w, RETURNED, -1, end);
      for (int r = 0; r < RANKS; r++) {
        bool right = end[r].status == GYRE_ERR_ABORTED && end[r].verdict.culprit_rank == a.by &&
                     strstr(end[r].text, "the loss is NaN") && names_rank(end[r].text, a.by);
        if (!right) {
          fail_msg("rank %d aborted%s; rank %d returned %s, blames %d: %s", a.by,
                   a.in_callback ? " in a callback" : "", r, gyre_status_name(end[r].status),
                   end[r].verdict.culprit_rank, end[r].text);
        }
      }
      world_tell_all(&w, 'e');
      world_end(&w, -1);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(abort_ends_the_communicator_on_every_rank, world_teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

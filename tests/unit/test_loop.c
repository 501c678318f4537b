/*
 * test_loop.c - the hand-over of loop.c under stress: posters, waiters with and without time-outs, pollers and callbacks in
 * many threads, with short random sleeps before every lock, unlock and poll. loop.c is compiled in here for these sleeps.
 * Nothing may be lost, run twice, run by two threads at once, or come only when a sleep of a second ends.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

static _Thread_local uint64_t dice; /* 0: this thread does not sleep */

static uint64_t roll(void) {
  dice ^= dice << 13;
  dice ^= dice >> 7;
  dice ^= dice << 17;
  return dice >> 11;
}

static void stumble(void) {
  if (dice && roll() % 8 == 0) usleep((useconds_t)(roll() % 200));
}

#define pthread_mutex_lock(m) (stumble(), pthread_mutex_lock(m))
#define pthread_mutex_trylock(m) (stumble(), pthread_mutex_trylock(m))
#define pthread_mutex_unlock(m) (stumble(), pthread_mutex_unlock(m))
#define poll(fds, n, ms) (stumble(), poll(fds, n, ms))
#include "../../src/loop.c"
#undef pthread_mutex_lock
#undef pthread_mutex_trylock
#undef pthread_mutex_unlock
#undef poll

#define WAIT_MS 60000     /* a test that waits longer has failed */
#define LATE_NS 900000000 /* from completion to return: only the longest sleep takes so long ... */
#define LATE_MAX 3        /* ... or a machine that stood still */
#define THREADS 4
#define OPS 120 /* of each thread */

enum kind { AT_ONCE, TIMER, PACKET, DEFERRED, KINDS };

struct world {
  struct gy_loop *loop;
  struct gy_source source;
  atomic_int in_pass, in_callback, passes; /* threads that are there now; how often */
  atomic_int run, called, wrong, late;
  pthread_mutex_t net_lock; /* the network thread's */
  struct op *sent;
  atomic_bool closed;
  uint64_t seed;
  bool thread;
};

struct op {
  struct gy_command start, call;
  struct world *w;
  struct op *next;
  enum kind kind;
  int fd, ms;
  uv_timer_t timer;
  uv_poll_t packet;
  atomic_int ran, called, done;
  atomic_int_fast64_t done_at;
};

static void wrong_if(struct world *w, bool is, const char *what) {
  if (!is) return;
  if (atomic_fetch_add(&w->wrong, 1) < 5) print_error("%s\n", what);
}

static void seed_thread(const struct world *w, uint64_t i) {
  dice = w->seed * 0x9e3779b97f4a7c15u + i + 1;
  for (int k = 0; k < 8; k++) roll();
}

/* ------------------------------------------------------------------------------ operations --- */

static void finish(struct op *op) {
  atomic_store(&op->done_at, now_ns());
  gy_loop_complete(op->w->loop, &op->done);
}

static void call_back(struct gy_command *c) {
  struct op *op = (struct op *)(void *)((char *)c - offsetof(struct op, call));
  wrong_if(op->w, atomic_fetch_add(&op->w->in_callback, 1) != 0, "two callbacks at once");
  wrong_if(op->w, atomic_fetch_add(&op->called, 1) != 0, "a callback ran twice");
  stumble();
  atomic_fetch_sub(&op->w->in_callback, 1);
  atomic_fetch_add(&op->w->called, 1);
  if (op->kind == DEFERRED) {
    finish(op);
  } else {
    wrong_if(op->w, !atomic_load(&op->done), "a callback before the completion");
  }
}

static void complete(struct op *op) {
  gy_loop_defer(op->w->loop, &op->call);
  finish(op);
}

static void on_timer(uv_timer_t *t) {
  struct op *op = t->data;
  gy_loop_busy(op->w->loop, -1);
  uv_close((uv_handle_t *)t, NULL);
  complete(op);
}

static void on_packet(uv_poll_t *p, int status, int events) {
  struct op *op = p->data;
  wrong_if(op->w, status || !(events & UV_READABLE), "a packet of the wrong kind");
  gy_loop_busy(op->w->loop, -1);
  uv_close((uv_handle_t *)p, NULL);
  complete(op);
}

static void send_packet(struct op *op) {
  pthread_mutex_lock(&op->w->net_lock);
  op->next = op->w->sent;
  op->w->sent = op;
  pthread_mutex_unlock(&op->w->net_lock);
}

static void start(struct gy_command *c) {
  struct op *op = (struct op *)(void *)c;
  struct world *w = op->w;
  uv_loop_t *uv = gy_loop_uv(w->loop);
  wrong_if(w, atomic_fetch_add(&w->in_pass, 1) != 0, "a command beside a pass");
  wrong_if(w, atomic_fetch_add(&op->ran, 1) != 0, "a command ran twice");
  atomic_fetch_add(&w->run, 1);
  switch (op->kind) {
    case TIMER:
      uv_timer_init(uv, &op->timer);
      op->timer.data = op;
      uv_timer_start(&op->timer, on_timer, (uint64_t)op->ms, 0);
      gy_loop_busy(w->loop, 1);
      break;
    case PACKET: /* the kernel hears of it in the next turn of libuv only */
      uv_poll_init(uv, &op->packet, op->fd);
      op->packet.data = op;
      uv_poll_start(&op->packet, UV_READABLE, on_packet);
      gy_loop_busy(w->loop, 1);
      send_packet(op);
      break;
    case DEFERRED: gy_loop_defer(w->loop, &op->call); break;
    default: complete(op); break;
  }
  stumble();
  atomic_fetch_sub(&w->in_pass, 1);
}

static unsigned pass_of(struct gy_source *s, bool spin) {
  struct world *w = (struct world *)(void *)((char *)s - offsetof(struct world, source));
  (void)spin;
  wrong_if(w, atomic_fetch_add(&w->in_pass, 1) != 0, "two passes at once");
  atomic_fetch_add(&w->passes, 1);
  atomic_fetch_sub(&w->in_pass, 1);
  return 0;
}

static bool arm_of(struct gy_source *s) {
  (void)s;
  return true;
}

/* Answers what was sent, a little later. */
static void *network(void *arg) {
  struct world *w = arg;
  seed_thread(w, 99);
  for (bool closed = false; !closed;) {
    closed = atomic_load(&w->closed);
    pthread_mutex_lock(&w->net_lock);
    struct op *op = w->sent;
    w->sent = NULL;
    pthread_mutex_unlock(&w->net_lock);
    if (!op) usleep(100);
    while (op) {
      struct op *next = op->next; /* the operation may be over once it is rung */
      stumble();
      ring(op->fd);
      op = next;
    }
  }
  return NULL;
}

/* ---------------------------------------------------------------------------------- posters --- */

struct poster {
  struct world *w;
  struct op *op; /* OPS of them */
  uint64_t index;
  pthread_t thread;
};

static void look_at_time(struct op *op) {
  if (now_ns() - atomic_load(&op->done_at) > LATE_NS) atomic_fetch_add(&op->w->late, 1);
}

static void wait_for(struct op *op, int timeout_ms) {
  gyre_status st = gy_loop_wait(op->w->loop, &op->done, timeout_ms);
  if (st == GYRE_OK) look_at_time(op);
  wrong_if(op->w, st == GYRE_OK && !atomic_load(&op->done), "a wait that returned too early");
  wrong_if(op->w, st == GYRE_IN_PROGRESS && timeout_ms == WAIT_MS, "a wait without an end");
}

static void *post_all(void *arg) {
  struct poster *p = arg;
  struct gy_loop *l = p->w->loop;
  seed_thread(p->w, p->index);
  for (int i = 0; i < OPS; i++) {
    struct op *op = &p->op[i];
    bool will_wait = roll() % 3 == 0;
    gy_loop_post(l, &op->start, will_wait);
    if (will_wait) {
      wait_for(op, WAIT_MS);
      continue;
    }
    switch (roll() % 4) {
      case 0: /* waits with time-outs, then to the end */
        for (int k = 0; k < 3; k++) wait_for(op, (int)(roll() % 3));
        wait_for(op, WAIT_MS);
        break;
      case 1: /* polls a little */
        for (int k = 0; k < 5 && !atomic_load(&op->done); k++) gy_loop_progress(l);
        break;
      default: break; /* leaves it */
    }
  }
  return NULL;
}

/* Of operations that were left: without a thread somebody must drive, else the background thread does. */
static void see_done(struct op *op) {
  if (!op->w->thread) {
    wait_for(op, WAIT_MS);
    return;
  }
  for (int ms = 0; !atomic_load(&op->done) && ms < WAIT_MS; ms++) usleep(1000);
  wrong_if(op->w, !atomic_load(&op->done), "an operation that nobody drove");
}

static void check_ops(struct op *op, int n) {
  for (int i = 0; i < n; i++) {
    for (int ms = 0; !atomic_load(&op[i].called) && ms < WAIT_MS; ms++) {
      if (!op->w->thread) gy_loop_progress(op->w->loop);
      usleep(1000);
    }
    wrong_if(op->w, atomic_load(&op[i].ran) != 1, "a command did not run once");
    wrong_if(op->w, atomic_load(&op[i].called) != 1, "a callback did not run once");
  }
}

static void fill(struct world *w, struct op *op, int n) {
  seed_thread(w, 7);
  for (int i = 0; i < n; i++) {
    op[i] = (struct op){.w = w, .kind = (enum kind)(roll() % KINDS), .ms = (int)(roll() % 3)};
    op[i].start.run = start;
    op[i].call.run = call_back;
    op[i].fd = op[i].kind == PACKET ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
    assert_true(op[i].kind != PACKET || op[i].fd >= 0);
  }
  dice = 0;
}

static void open_loop(struct world *w, const char *progress, const char *spin_us, bool thread) {
  struct gy_settings settings;
  assert_int_equal(gy_settings_load(&settings), GYRE_OK);
  assert_int_equal(gy_settings_set(&settings, "GYRE_PROGRESS", progress), GYRE_OK);
  assert_int_equal(gy_settings_set(&settings, "GYRE_SPIN_US", spin_us), GYRE_OK);
  *w = (struct world){.seed = 20240607, .thread = thread, .source = {NULL, pass_of, arm_of}};
  pthread_mutex_init(&w->net_lock, NULL);
  assert_int_equal(gy_loop_create(&settings, thread, &w->loop), GYRE_OK);
  pthread_mutex_lock(&w->loop->lock);
  gy_loop_add(w->loop, &w->source);
  pthread_mutex_unlock(&w->loop->lock);
}

static void close_loop(struct world *w) {
  gy_loop_destroy(w->loop);
  pthread_mutex_destroy(&w->net_lock);
}

static void check_quiet(struct gy_loop *l) {
  pthread_mutex_lock(&l->lock);
  pthread_mutex_lock(&l->slot_lock);
  assert_int_equal(l->busy, 0);
  assert_null(l->sleeping);
  assert_null(l->deferred);
  assert_null(atomic_load(&l->posted));
  assert_true(!l->driver || l->driver == &l->background);
  pthread_mutex_unlock(&l->slot_lock);
  pthread_mutex_unlock(&l->lock);
}

static void stress(const char *progress, const char *spin_us, bool thread, bool yield) {
  enum { N = THREADS * OPS };
  struct world w;
  struct poster p[THREADS];
  struct op *op = test_calloc(N, sizeof *op);
  pthread_t net;
  open_loop(&w, progress, spin_us, thread);
  atomic_store(&w.loop->yield, yield);
  fill(&w, op, N);
  assert_int_equal(pthread_create(&net, NULL, network, &w), 0);
  for (uint64_t t = 0; t < THREADS; t++) {
    p[t] = (struct poster){.w = &w, .op = op + t * OPS, .index = t};
    assert_int_equal(pthread_create(&p[t].thread, NULL, post_all, &p[t]), 0);
  }
  for (int t = 0; t < THREADS; t++) pthread_join(p[t].thread, NULL);
  for (int i = 0; i < N; i++) see_done(&op[i]);
  check_ops(op, N);
  atomic_store(&w.closed, true);
  pthread_join(net, NULL);
  check_quiet(w.loop);
  close_loop(&w);
  assert_int_equal(atomic_load(&w.run), N);
  assert_int_equal(atomic_load(&w.called), N);
  assert_int_equal(atomic_load(&w.wrong), 0);
  assert_in_range(atomic_load(&w.late), 0, LATE_MAX);
  assert_true(atomic_load(&w.passes) > 0);
  for (int i = 0; i < N; i++) {
    if (op[i].fd >= 0) close(op[i].fd);
  }
  test_free(op);
}

static void test_callers_drive(void **state) {
  (void)state;
  stress("caller", "50", true, false);
}

static void test_callers_drive_without_spinning(void **state) {
  (void)state;
  stress("caller", "0", true, false);
}

static void test_callers_drive_and_yield(void **state) {
  (void)state;
  stress("caller", "50", true, true);
}

static void test_thread_drives(void **state) {
  (void)state;
  stress("thread", "50", true, false);
}

static void test_without_thread(void **state) {
  (void)state;
  stress("caller", "0", false, false);
}

/* -------------------------------------------------------------------------------- single --- */

/* Someone else's event loop: only what the descriptor says. */
static void test_descriptor(void **state) {
  enum { N = 60 };
  struct world w;
  struct op op[N];
  pthread_t net;
  (void)state;
  open_loop(&w, "caller", "0", false);
  fill(&w, op, N);
  assert_int_equal(pthread_create(&net, NULL, network, &w), 0);
  struct pollfd fd = {gy_loop_fd(w.loop), POLLIN, 0};
  assert_true(fd.fd >= 0);
  for (int i = 0; i < N; i++) {
    gy_loop_post(w.loop, &op[i].start, false);
    gy_loop_progress(w.loop);
    while (!atomic_load(&op[i].done)) {
      assert_int_equal(poll(&fd, 1, WAIT_MS), 1);
      gy_loop_progress(w.loop);
    }
    look_at_time(&op[i]);
  }
  check_ops(op, N);
  atomic_store(&w.closed, true);
  pthread_join(net, NULL);
  check_quiet(w.loop);
  close_loop(&w);
  assert_int_equal(atomic_load(&w.called), N);
  assert_int_equal(atomic_load(&w.wrong), 0);
  assert_in_range(atomic_load(&w.late), 0, LATE_MAX);
  for (int i = 0; i < N; i++) {
    if (op[i].fd >= 0) close(op[i].fd);
  }
}

static unsigned always_busy(struct gy_source *s, bool spin) {
  (void)s;
  (void)spin;
  return 1;
}

static void test_time_out_among_events(void **state) {
  struct world w;
  atomic_int never = 0;
  (void)state;
  open_loop(&w, "caller", "50", false);
  w.source.pass = always_busy;
  int64_t start_ns = now_ns();
  assert_int_equal(gy_loop_wait(w.loop, &never, 20), GYRE_IN_PROGRESS);
  assert_true(now_ns() - start_ns >= 20000000);
  close_loop(&w);
}

struct slow_call { /* a deferred command that takes its time */
  struct gy_command start, call;
  struct gy_loop *loop;
  atomic_int entered, done;
  int ms;
};

static void slow(struct gy_command *c) {
  struct slow_call *s = (struct slow_call *)(void *)((char *)c - offsetof(struct slow_call, call));
  assert_true(gy_loop_in_callback());
  atomic_store(&s->entered, 1);
  usleep((useconds_t)s->ms * 1000);
  gy_loop_complete(s->loop, &s->done);
}

static void defer_slow(struct gy_command *c) {
  struct slow_call *s = (struct slow_call *)(void *)c;
  s->call.run = slow;
  gy_loop_defer(s->loop, &s->call);
}

/* A caller that drives while the background thread is in a callback waits for the callback behind that one. */
static void test_wait_behind_callback(void **state) {
  struct world w;
  (void)state;
  open_loop(&w, "caller", "0", true);
  for (int round = 0; round < 20; round++) {
    struct slow_call first = {.start.run = defer_slow, .loop = w.loop, .ms = 10};
    struct slow_call second = {.start.run = defer_slow, .loop = w.loop};
    gy_loop_post(w.loop, &first.start, false);
    for (int ms = 0; !atomic_load(&first.entered) && ms < WAIT_MS; ms++) usleep(1000);
    gy_loop_post(w.loop, &second.start, true);
    int64_t start_ns = now_ns();
    assert_int_equal(gy_loop_wait(w.loop, &second.done, WAIT_MS), GYRE_OK);
    if (now_ns() - start_ns > LATE_NS) atomic_fetch_add(&w.late, 1);
    assert_int_equal(atomic_load(&first.done), 1);
    assert_int_equal(gy_loop_wait(w.loop, &first.done, WAIT_MS), GYRE_OK);
  }
  close_loop(&w);
  assert_in_range(atomic_load(&w.late), 0, LATE_MAX);
}

/* What is still deferred when the loop ends runs. */
static void test_destroy_runs_deferred(void **state) {
  (void)state;
  for (int thread = 0; thread < 2; thread++) {
    struct world w;
    open_loop(&w, "caller", "0", thread);
    struct slow_call s = {.start.run = defer_slow, .loop = w.loop};
    gy_loop_post(w.loop, &s.start, true);
    close_loop(&w);
    assert_int_equal(atomic_load(&s.done), 1);
  }
}

/* A context without a communicator has no libuv handle, of which libuv says that it is to end at once. */
static void test_idle_sleeps(void **state) {
  (void)state;
  struct world w;
  open_loop(&w, "caller", "0", true);
  usleep(300000);
  int before = atomic_load(&w.passes);
  usleep(300000);
  int passes = atomic_load(&w.passes) - before;
  close_loop(&w);
  if (passes > 20) fail_msg("%d passes in 300 ms", passes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_idle_sleeps),
      cmocka_unit_test(test_callers_drive),
      cmocka_unit_test(test_callers_drive_without_spinning),
      cmocka_unit_test(test_callers_drive_and_yield),
      cmocka_unit_test(test_thread_drives),
      cmocka_unit_test(test_without_thread),
      cmocka_unit_test(test_descriptor),
      cmocka_unit_test(test_time_out_among_events),
      cmocka_unit_test(test_wait_behind_callback),
      cmocka_unit_test(test_destroy_runs_deferred),
  };
  alarm(170);
  return cmocka_run_group_tests(tests, NULL, NULL);
}

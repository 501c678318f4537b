/*
 * loop.c - the lock, the driver slot, the background thread. See loop.h.
 *
 * Two locks. `lock` is held during a pass; only a driver blocks on it, others try. `slot_lock`
 * guards who is the driver and who sleeps; it is held for a few instructions and taken inside
 * `lock`, never the other way round.
 *
 * What keeps a wake-up from being lost, everywhere below: the one who leaves something (a command,
 * a finished request) writes it, then reads whether someone sleeps; the one who goes to sleep
 * writes that it sleeps, then reads whether something was left. Both with sequentially consistent
 * order, so at least one of the two sees the other.
 */
#include "loop.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <openssl/crypto.h>
#include "fork.h"
#include "status.h"

#define IDLE_TAKEOVER_MS \
  5 /* without a driver for so long, the background thread takes the slot ... */
#define BUSY_TAKEOVER_MS \
  1 /* ... or for so long, with operations in flight: somebody polls by gyre_test, or has stopped to */
#define SLEEP_MAX_MS 1000  /* no sleep is longer, so no wait is without a deadline */
#define UV_EVERY 32        /* passes of a spinning driver between turns of the libuv loop */
#define YIELDS_PER_SPIN 50 /* when ranks exceed cores ... */
#define YIELD_MAX_NS \
  2000000 /* ... and no longer, as beside busy strangers every yield costs their turns: sleepers come first */

struct waiter { /* a thread in gy_loop_wait, or the background thread; on its stack */
  struct waiter *next;
  const atomic_int *done;
  pthread_cond_t cond;
  bool promoted;      /* the leaving driver handed the slot over */
  atomic_bool asleep; /* as the driver: in poll(), or about to be */
};

struct gy_loop {
  uv_loop_t uv;
  pthread_mutex_t lock;
  _Atomic(struct gy_command *) posted; /* newest first */
  struct gy_source *sources;
  struct gy_command *deferred, **deferred_tail;
  bool deferring; /* somebody is running deferred commands */
  atomic_int busy;
  unsigned turn; /* passes until libuv's next turn */
  uint64_t now, last_pass;

  pthread_mutex_t slot_lock;
  struct waiter *driver, *sleeping;
  atomic_int n_sleeping;       /* these, and drivers in poll() */
  atomic_uint_fast64_t drives; /* how often the slot was taken by a caller */
  int wake_fd;                 /* wakes a driver that is a caller */
  int background_fd;           /* wakes the background thread */
  uint64_t wake_at;            /* when the sleeping driver means to wake (ms), under lock */

  struct waiter background;
  pthread_t thread;
  bool has_thread, thread_only;
  struct gy_loop *next; /* of all of this process */
  pid_t owner;
  atomic_bool stop, yield;
  int64_t spin_ns;

  int outer_fd, timer_fd; /* gyre_context_fd */
};

static _Thread_local unsigned in_callback; /* a fork's generation, plus 1; 0: in none */

bool gy_loop_in_callback(void) { return in_callback && in_callback == gy_fork_generation() + 1; }
uv_loop_t *gy_loop_uv(struct gy_loop *l) { return &l->uv; }
uint64_t gy_loop_now(const struct gy_loop *l) { return l->now; }
uint64_t gy_loop_last_pass(const struct gy_loop *l) { return l->last_pass; }
void gy_loop_busy(struct gy_loop *l, int delta) { atomic_fetch_add(&l->busy, delta); }
void gy_loop_yield(struct gy_loop *l, bool on) { atomic_store(&l->yield, on); }
void gy_loop_turn(struct gy_loop *l) { l->turn = 0; }

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static void ring(int fd) {
  const uint64_t one = 1;
  ssize_t n = write(fd, &one, sizeof one); /* a full counter wakes just as well */
  (void)n;
}

static void unring(int fd) {
  uint64_t count;
  ssize_t n = read(fd, &count, sizeof count);
  (void)n;
}

/* With slot_lock held. */
static void wake_driver(struct gy_loop *l) {
  if (!l->driver || !atomic_load(&l->driver->asleep)) return;
  ring(l->driver == &l->background ? l->background_fd : l->wake_fd);
}

void gy_loop_add(struct gy_loop *l, struct gy_source *s) {
  s->next = l->sources;
  l->sources = s;
}

void gy_loop_remove(struct gy_loop *l, struct gy_source *s) {
  for (struct gy_source **p = &l->sources; *p; p = &(*p)->next) {
    if (*p != s) continue;
    *p = s->next;
    return;
  }
}

void gy_loop_defer(struct gy_loop *l, struct gy_command *c) {
  c->next = NULL;
  *l->deferred_tail = c;
  l->deferred_tail = &c->next;
}

void gy_loop_complete(struct gy_loop *l, atomic_int *done) {
  atomic_store(done, 1);
  if (atomic_load(&l->n_sleeping) == 0) return;
  pthread_mutex_lock(&l->slot_lock);
  for (struct waiter *w = l->sleeping; w; w = w->next) {
    if (w->done == done) pthread_cond_signal(&w->cond);
  }
  if (l->driver && l->driver->done == done) wake_driver(l);
  pthread_mutex_unlock(&l->slot_lock);
}

/* ------------------------------------------------------------------------------- a pass --- */

static bool run_posted(struct gy_loop *l) {
  struct gy_command *newest = atomic_exchange(&l->posted, NULL), *oldest = NULL;
  if (!newest) return false;
  while (newest) { /* reverse: first posted, first run */
    struct gy_command *next = newest->next;
    newest->next = oldest;
    oldest = newest;
    newest = next;
  }
  while (oldest) {
    struct gy_command *next = oldest->next; /* the command may free itself */
    oldest->run(oldest);
    oldest = next;
  }
  return true;
}

static void run_uv(struct gy_loop *l) {
  l->turn = UV_EVERY;
  l->last_pass = l->now;
  uv_update_time(&l->uv);
  l->now = uv_now(&l->uv);
  uv_run(&l->uv, UV_RUN_NOWAIT);
}

static unsigned pass(struct gy_loop *l, bool spin) {
  unsigned events = run_posted(l) ? 1 : 0;
  for (struct gy_source *s = l->sources, *next; s; s = next) {
    next = s->next; /* a source may remove itself */
    events += s->pass(s, spin);
  }
  if (!spin || l->turn-- == 0) {
    run_uv(l);
    if (run_posted(l)) events++;
  }
  return events;
}

/* What arming found out completes nothing; true: the driver may sleep until `l->wake_at`. */
static bool arm(struct gy_loop *l) {
  bool quiet = true;
  for (struct gy_source *s = l->sources; s; s = s->next) {
    if (!s->arm(s)) quiet = false;
  }
  if (!quiet) return false;
  run_uv(l); /* registers what was armed with the kernel */
  for (struct gy_source *s = l->sources; s; s = s->next) {
    if (s->pass(s, false)) quiet = false;
  }
  return quiet && (!l->deferred || l->deferring);
}

/* Milliseconds until libuv has something to do; -1: nothing. A loop without a handle has none, where
 * libuv, which means to end then, says 0. */
static int uv_timeout(const struct gy_loop *l) {
  return uv_loop_alive(&l->uv) ? uv_backend_timeout(&l->uv) : -1;
}

static int sleep_ms(struct gy_loop *l, int64_t deadline_ns) {
  int ms = uv_timeout(l);
  if (ms < 0 || ms > SLEEP_MAX_MS) ms = SLEEP_MAX_MS;
  if (deadline_ns >= 0) {
    int64_t left = (deadline_ns - now_ns() + 999999) / 1000000;
    if (left < 0) left = 0;
    if (left < ms) ms = (int)left;
  }
  l->wake_at = l->now + (uint64_t)ms;
  return ms;
}

/* With slot_lock held. It is parked, or still asleep in poll() from when it was the driver
 * before. */
static void give_to_background(struct gy_loop *l) {
  l->driver = &l->background;
  pthread_cond_signal(&l->background.cond);
  wake_driver(l);
}

/* A pass by a thread that is not the driver: it must leave nothing behind that a sleeping driver
 * would miss. */
static void visit(struct gy_loop *l, bool will_wait) {
  run_posted(l);
  if (will_wait) return;
  unsigned events = pass(l, false);
  bool quiet = arm(l);
  int ms = uv_timeout(l);
  bool earlier = ms >= 0 && l->now + (uint64_t)ms < l->wake_at;
  bool wake = events || !quiet || earlier;
  pthread_mutex_lock(&l->slot_lock);
  if (!l->driver && (l->busy > 0 || l->deferred) && l->has_thread) {
    give_to_background(l);
  } else if (wake && l->driver) {
    wake_driver(l);
  } else if (wake && !l->has_thread) {
    ring(l->wake_fd); /* so that gyre_context_fd is readable */
  }
  pthread_mutex_unlock(&l->slot_lock);
}

/* Gives the lock up. Whoever tried to post meanwhile and could not get it is served. */
static void unlock(struct gy_loop *l) {
  pthread_mutex_unlock(&l->lock);
  atomic_thread_fence(memory_order_seq_cst);
  while (atomic_load(&l->posted) && pthread_mutex_trylock(&l->lock) == 0) {
    visit(l, false);
    pthread_mutex_unlock(&l->lock);
    atomic_thread_fence(memory_order_seq_cst);
  }
}

/* Called by a driver with the lock held; returns with it held. */
static void run_deferred(struct gy_loop *l) {
  if (l->deferring) return; /* another thread is at it and looks again before it stops */
  l->deferring = true;
  while (l->deferred) {
    struct gy_command *c = l->deferred;
    l->deferred = c->next;
    if (!l->deferred) l->deferred_tail = &l->deferred;
    unlock(l);
    in_callback = gy_fork_generation() + 1;
    c->run(c);
    in_callback = 0;
    pthread_mutex_lock(&l->lock);
  }
  l->deferring = false;
}

static bool is_driver(struct gy_loop *l, const struct waiter *me) {
  pthread_mutex_lock(&l->slot_lock);
  bool mine = l->driver == me;
  pthread_mutex_unlock(&l->slot_lock);
  return mine;
}

/* Called by the driver `me`, with the lock held, after arm() allowed it. False: a caller has taken
 * the slot from the background thread meanwhile; then the lock is not held, so that the two do not
 * queue for it. */
static bool sleep_until(struct gy_loop *l, struct waiter *me, int64_t deadline_ns) {
  int wake_fd = me == &l->background ? l->background_fd : l->wake_fd;
  struct pollfd fds[2] = {{uv_backend_fd(&l->uv), POLLIN, 0}, {wake_fd, POLLIN, 0}};
  int ms = sleep_ms(l, deadline_ns);
  atomic_fetch_add(&l->n_sleeping, 1);
  atomic_store(&me->asleep, true);
  /* Once the lock is given up, a visitor may take what was posted, and its poster has seen that
   * nobody sleeps. */
  bool done = me->done && atomic_load(me->done); /* by a deferred command, which holds no lock */
  bool nothing_left = !done && !atomic_load(&l->posted) && is_driver(l, me);
  pthread_mutex_unlock(&l->lock);
  if (nothing_left) poll(fds, 2, ms);
  atomic_store(&me->asleep, false);
  atomic_fetch_sub(&l->n_sleeping, 1);
  if (fds[1].revents) unring(wake_fd);
  if (!is_driver(l, me)) return false;
  pthread_mutex_lock(&l->lock);
  return true;
}

/* --------------------------------------------------------------------------- the driver --- */

/* to_background: work is left that nobody may come back for soon. */
static void hand_over(struct gy_loop *l, bool to_background) {
  pthread_mutex_lock(&l->slot_lock);
  struct waiter *next = NULL;
  for (struct waiter *w = l->sleeping; w && !l->thread_only; w = w->next) {
    if (!atomic_load(w->done)) next = w; /* the one that has slept longest stands last */
  }
  if (next) {
    next->promoted = true;
    l->driver = next;
    pthread_cond_signal(&next->cond);
  } else if (l->has_thread && to_background) {
    give_to_background(l);
  } else {
    l->driver = NULL;
  }
  pthread_mutex_unlock(&l->slot_lock);
}

static void drive(struct gy_loop *l, struct waiter *me, int64_t deadline_ns) {
  const atomic_int *done = me->done;
  int64_t spin_until = -1;
  int yields = 0;
  pthread_mutex_lock(&l->lock);
  while (!atomic_load_explicit(done, memory_order_acquire)) {
    unsigned events = pass(l, true);
    if (l->deferred) run_deferred(l);
    if (deadline_ns >= 0 && now_ns() >= deadline_ns) break;
    if (events) {
      yields = 0;
      spin_until = -1;
      continue;
    }
    int64_t now = now_ns();
    if (spin_until < 0) spin_until = now + l->spin_ns;
    bool yield = atomic_load_explicit(&l->yield, memory_order_relaxed);
    if (now < spin_until ||
        (yield && l->spin_ns > 0 && yields < YIELDS_PER_SPIN && now < spin_until + YIELD_MAX_NS)) {
      if (!yield) {
        relax();
        continue;
      }
      yields++;
      unlock(l);
      sched_yield();
      pthread_mutex_lock(&l->lock);
      continue;
    }
    if (arm(l)) (void)sleep_until(l, me, deadline_ns); /* nobody takes the slot from a caller */
    spin_until = -1;
    yields = 0;
  }
  bool work_left = l->busy > 0 || l->deferred;
  hand_over(l, work_left);
  unlock(l);
}

/* Takes the slot if it is free or the background thread's, which then lets go. */
static bool take_slot(struct gy_loop *l, struct waiter *me) {
  if (l->thread_only || (l->driver && l->driver != &l->background)) return false;
  wake_driver(l); /* the background thread, if it has the slot and sleeps: so that it lets go */
  l->driver = me;
  atomic_fetch_add_explicit(&l->drives, 1, memory_order_relaxed);
  return true;
}

static void until(struct timespec *out, int64_t deadline_ns) {
  int64_t at = now_ns() + (int64_t)SLEEP_MAX_MS * 1000000;
  if (deadline_ns >= 0 && deadline_ns < at) at = deadline_ns;
  out->tv_sec = (time_t)(at / 1000000000);
  out->tv_nsec = (long)(at % 1000000000);
}

static void monotonic_cond(pthread_cond_t *c) {
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(c, &attr);
  pthread_condattr_destroy(&attr);
}

/* Sleeps, with slot_lock held, until done, promoted or late. */
static void sleep_as_waiter(struct gy_loop *l, struct waiter *me, int64_t deadline_ns) {
  me->next = l->sleeping;
  l->sleeping = me;
  atomic_fetch_add(&l->n_sleeping, 1);
  while (!me->promoted && !atomic_load(me->done) && (deadline_ns < 0 || now_ns() < deadline_ns)) {
    struct timespec at;
    until(&at, deadline_ns);
    pthread_cond_timedwait(&me->cond, &l->slot_lock, &at);
  }
  atomic_fetch_sub(&l->n_sleeping, 1);
  for (struct waiter **p = &l->sleeping; *p; p = &(*p)->next) {
    if (*p != me) continue;
    *p = me->next;
    break;
  }
}

gyre_status gy_loop_wait(struct gy_loop *l, const atomic_int *done, int timeout_ms) {
  if (atomic_load_explicit(done, memory_order_acquire)) return GYRE_OK;
  int64_t deadline = timeout_ms < 0 ? -1 : now_ns() + (int64_t)timeout_ms * 1000000;
  struct waiter me = {.done = done};
  pthread_mutex_lock(&l->slot_lock);
  bool driver = take_slot(l, &me), slept = !driver;
  if (slept) {
    monotonic_cond(&me.cond);
    wake_driver(l); /* the post before this wait may have left it something */
    sleep_as_waiter(l, &me, deadline);
    driver = me.promoted;
  }
  pthread_mutex_unlock(&l->slot_lock);
  if (driver) drive(l, &me, deadline);
  if (slept) pthread_cond_destroy(&me.cond);
  return atomic_load_explicit(done, memory_order_acquire) ? GYRE_OK : GYRE_IN_PROGRESS;
}

struct call { /* on its caller's stack */
  struct gy_command command;
  struct gy_loop *loop;
  void (*fn)(void *arg);
  void *arg;
  atomic_int done;
};

static void run_call(struct gy_command *c) {
  struct call *call = (struct call *)(void *)c;
  call->fn(call->arg);
  gy_loop_complete(call->loop, &call->done);
}

void gy_loop_call(struct gy_loop *l, void (*fn)(void *arg), void *arg) {
  struct call call = {.command = {.run = run_call}, .loop = l, .fn = fn, .arg = arg};
  gy_loop_post(l, &call.command, true);
  gy_loop_wait(l, &call.done, -1);
}

void gy_loop_progress(struct gy_loop *l) {
  atomic_int never = 0;
  struct waiter me = {.done = &never};
  pthread_mutex_lock(&l->slot_lock);
  bool driver = take_slot(l, &me);
  int timer_fd = l->timer_fd;
  pthread_mutex_unlock(&l->slot_lock);
  if (!driver) return;
  pthread_mutex_lock(&l->lock);
  unring(l->wake_fd);
  pass(l, false);
  if (l->deferred) run_deferred(l);
  bool quiet = arm(l);
  if (timer_fd >= 0) {
    int ms = sleep_ms(l, -1);
    struct itimerspec at = {.it_value = {ms / 1000, (long)(ms % 1000) * 1000000}};
    if (ms == 0) at.it_value.tv_nsec = 1;
    timerfd_settime(timer_fd, 0, &at, NULL);
  }
  if (!quiet) ring(l->wake_fd);
  hand_over(l, false); /* who polls comes back; if not, the background thread takes the slot by itself */
  unlock(l);
}

void gy_loop_push(struct gy_loop *l, struct gy_command *c) {
  struct gy_command *head = atomic_load_explicit(&l->posted, memory_order_relaxed);
  do { c->next = head; } while (!atomic_compare_exchange_weak(&l->posted, &head, c));
}

void gy_loop_post(struct gy_loop *l, struct gy_command *c, bool will_wait) {
  gy_loop_push(l, c);
  gy_loop_kick(l, will_wait);
}

void gy_loop_kick(struct gy_loop *l, bool will_wait) {
  atomic_thread_fence(memory_order_seq_cst);
  if (pthread_mutex_trylock(&l->lock) == 0) {
    visit(l, will_wait);
    unlock(l);
    return;
  }
  pthread_mutex_lock(&l->slot_lock);
  wake_driver(l);
  pthread_mutex_unlock(&l->slot_lock);
}

/* ------------------------------------------------------------------- background thread --- */

static void drive_in_background(struct gy_loop *l) {
  pthread_mutex_lock(&l->lock);
  for (;;) {
    pass(l, false);
    if (l->deferred) run_deferred(l);
    bool quiet = arm(l);
    if (!is_driver(l, &l->background) || atomic_load(&l->stop)) break;
    if (quiet && !sleep_until(l, &l->background, -1)) return;
  }
  unlock(l);
}

static void *background_main(void *arg) {
  struct gy_loop *l = arg;
  uint64_t seen = 0;
  pthread_mutex_lock(&l->slot_lock);
  while (!atomic_load(&l->stop)) {
    if (l->driver == &l->background) {
      pthread_mutex_unlock(&l->slot_lock);
      drive_in_background(l);
      pthread_mutex_lock(&l->slot_lock);
      continue;
    }
    int64_t at = now_ns() + (int64_t)(l->busy > 0 ? BUSY_TAKEOVER_MS : IDLE_TAKEOVER_MS) * 1000000;
    struct timespec ts;
    until(&ts, at);
    pthread_cond_timedwait(&l->background.cond, &l->slot_lock, &ts);
    uint64_t drives = atomic_load_explicit(&l->drives, memory_order_relaxed);
    if (!l->driver && drives == seen && now_ns() >= at) l->driver = &l->background;
    seen = drives;
  }
  pthread_mutex_unlock(&l->slot_lock);
  return NULL;
}

static gyre_status start_thread(struct gy_loop *l) {
  sigset_t all, old;
  sigfillset(&all); /* the application's signals are for its own threads */
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int rc = pthread_create(&l->thread, NULL, background_main, l);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (rc) return gy_fail_errno(GYRE_ERR_SYS, rc, "starting the progress thread");
  l->has_thread = true;
  return GYRE_OK;
}

/* --------------------------------------------------------------------- create, destroy --- */

static void close_own(int fd) {
  gy_fork_disown(fd);
  close(fd);
}

static void close_uv_loop(uv_loop_t *uv) {
  gy_fork_disown(uv_backend_fd(uv));
  uv_loop_close(uv);
}

static void tell_to_stop(struct gy_loop *l) {
  atomic_store(&l->stop, true);
  pthread_mutex_lock(&l->slot_lock);
  pthread_cond_signal(&l->background.cond);
  ring(l->background_fd);
  pthread_mutex_unlock(&l->slot_lock);
}

/* ------------------------------------------------------------------- a process that exits --- */
/* A program may exit without destroying anything. The libraries below clean up then, so their users
 * must have stopped: a progress thread would run into what is gone. What other threads of the
 * program do is its own affair. */

#define EXIT_WAIT_S 2

static struct gy_loop *loops; /* gy_fork_hold guards it */
static pthread_once_t exit_once = PTHREAD_ONCE_INIT;

/* The next loop of this process whose thread has to stop; NULL. */
static struct gy_loop *next_to_stop(void) {
  gy_fork_hold();
  struct gy_loop *l = loops;
  while (l && (l->owner != getpid() || !l->has_thread || atomic_load(&l->stop))) l = l->next;
  if (l) atomic_store(&l->stop, true);
  gy_fork_release();
  return l;
}

static void on_exit_of_process(void) {
  for (struct gy_loop *l; (l = next_to_stop());) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += EXIT_WAIT_S; /* it may wait for a lock that this thread holds */
    if (pthread_equal(pthread_self(), l->thread)) continue;
    tell_to_stop(l);
    if (pthread_timedjoin_np(l->thread, NULL, &until) == 0) l->has_thread = l->thread_only = false;
  }
}

static void watch_exit(void) {
  /* What is registered later runs earlier; asked for nothing, OpenSSL would not register itself. */
  (void)OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CRYPTO_STRINGS, NULL);
  (void)atexit(on_exit_of_process);
}

static void list(struct gy_loop *l) {
  pthread_once(&exit_once, watch_exit);
  l->owner = getpid();
  gy_fork_hold();
  l->next = loops;
  loops = l;
  gy_fork_release();
}

static void unlist(struct gy_loop *l) {
  gy_fork_hold();
  struct gy_loop **at = &loops;
  while (*at && *at != l) at = &(*at)->next;
  if (*at) *at = l->next;
  gy_fork_release();
}

/* Where descriptors run out while it makes a loop, libuv ends the process or loses one. */
static gyre_status find_descriptors(void) {
  enum { LIBUV_NEEDS = 8 };
  int fd[LIBUV_NEEDS], n = 0, error = 0;
  gy_fork_hold();
  while (n < LIBUV_NEEDS && (fd[n] = eventfd(0, EFD_CLOEXEC)) >= 0) n++;
  if (n < LIBUV_NEEDS) error = errno;
  while (n > 0) close(fd[--n]);
  gy_fork_release();
  if (!error) return GYRE_OK;
  return gy_fail_errno(GYRE_ERR_SYS, error, "making an event loop");
}

/* libuv aborts the process if its table of watched descriptors, whose length is a power of two, cannot
 * grow: so we see first whether it can. */
static bool has_room(const uv_loop_t *uv, int fd) {
  size_t n = 64;
  if ((unsigned)fd < uv->nwatchers) return true;
  while (n < (size_t)fd + 3) n *= 2;
  void *table = malloc(n * sizeof(void *));
  free(table);
  return table != NULL;
}

gyre_status gy_loop_watch(uv_loop_t *uv, uv_poll_t *poll, int fd) {
  if (!has_room(uv, fd)) return gy_fail(GYRE_ERR_NOMEM, "out of memory to watch a socket");
  int rc = uv_poll_init(uv, poll, fd);
  if (!rc) return GYRE_OK;
  return gy_fail_errno(rc == UV_ENOMEM ? GYRE_ERR_NOMEM : GYRE_ERR_SYS, -rc, "cannot watch a socket");
}

gyre_status gy_loop_create(const struct gy_settings *settings, bool background, struct gy_loop **out) {
  gyre_status st;
  struct gy_loop *l = calloc(1, sizeof *l);
  if (!l) return gy_fail(GYRE_ERR_NOMEM, "out of memory for the loop");
  st = find_descriptors();
  if (st) goto free_loop;
  int rc = uv_loop_init(&l->uv);
  if (rc) {
    st = gy_fail_errno(rc == UV_ENOMEM ? GYRE_ERR_NOMEM : GYRE_ERR_SYS, -rc, "making an event loop");
    goto free_loop;
  }
  gy_fork_own(uv_backend_fd(&l->uv));
  l->deferred_tail = &l->deferred;
  l->outer_fd = l->timer_fd = -1;
  l->spin_ns = gy_settings_spin_us(settings) * 1000;
  l->thread_only = background && !strcmp(settings->progress, "thread");
  pthread_mutex_init(&l->lock, NULL);
  pthread_mutex_init(&l->slot_lock, NULL);
  monotonic_cond(&l->background.cond);
  l->wake_fd = gy_fork_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (l->wake_fd < 0) {
    st = gy_fail_errno(GYRE_ERR_SYS, errno, "making an eventfd");
    goto close_uv;
  }
  l->background_fd = gy_fork_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (l->background_fd < 0) {
    st = gy_fail_errno(GYRE_ERR_SYS, errno, "making an eventfd");
    goto close_wake_fd;
  }
  if (l->thread_only) l->driver = &l->background;
  if (background) {
    st = start_thread(l);
    if (st) goto close_background_fd;
  }
  list(l);
  *out = l;
  return GYRE_OK;

close_background_fd:
  close_own(l->background_fd);
close_wake_fd:
  close_own(l->wake_fd);
close_uv:
  close_uv_loop(&l->uv);
free_loop:
  free(l);
  return st;
}

void gy_loop_destroy(struct gy_loop *l) {
  unlist(l);
  if (l->has_thread) {
    tell_to_stop(l);
    pthread_join(l->thread, NULL);
  }
  pthread_mutex_lock(&l->lock);
  run_posted(l);
  run_deferred(l); /* callbacks of what the end of the context ended */
  pthread_mutex_unlock(&l->lock);
  while (uv_loop_alive(&l->uv) && uv_run(&l->uv, UV_RUN_ONCE)) continue;
  close_uv_loop(&l->uv);
  if (l->outer_fd >= 0) close_own(l->outer_fd);
  if (l->timer_fd >= 0) close_own(l->timer_fd);
  close_own(l->background_fd);
  close_own(l->wake_fd);
  pthread_mutex_destroy(&l->slot_lock);
  pthread_mutex_destroy(&l->lock);
  free(l);
}

static bool watch(int outer, int fd) {
  struct epoll_event ev = {.events = EPOLLIN};
  return epoll_ctl(outer, EPOLL_CTL_ADD, fd, &ev) == 0;
}

int gy_loop_fd(struct gy_loop *l) {
  pthread_mutex_lock(&l->slot_lock);
  if (l->outer_fd >= 0) goto unlock_slot;
  int outer = gy_fork_own(epoll_create1(EPOLL_CLOEXEC));
  int timer = gy_fork_own(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (outer < 0 || timer < 0 || !watch(outer, uv_backend_fd(&l->uv)) || !watch(outer, l->wake_fd) ||
      !watch(outer, timer)) {
    gy_fail_errno(GYRE_ERR_SYS, errno, "making the context's descriptor");
    if (outer >= 0) close_own(outer);
    if (timer >= 0) close_own(timer);
    goto unlock_slot;
  }
  l->outer_fd = outer;
  l->timer_fd = timer;
  ring(l->wake_fd); /* the first gyre_progress sets the timer */
unlock_slot:
  pthread_mutex_unlock(&l->slot_lock);
  return l->outer_fd;
}

/*
 * dump_signal.c - see dump_signal.h.
 *
 * The handler knows no more than the descriptors in `slots`. Who closes one takes it out first and
 * then waits until no handler is running that might have read it, as its number may soon be that of
 * another file.
 */
#include "dump_signal.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "comm.h"
#include "dump.h"
#include "net_core.h"

#define SLOTS 64

struct gy_dump_signal {
  struct gy_watch w;
  gyre_context *ctx;
  int number; /* of the signal */
};

/* A signal's number in the upper half, a descriptor in the lower; 0: free. */
static atomic_llong slots[SLOTS];
static atomic_int handling; /* handlers that may have read a slot */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for what follows */
static int users[NSIG];
static struct sigaction before[NSIG];
static bool covered[NSIG]; /* somebody's handler lay over ours when the last user left */

/* ----------------------------------------------------------------------------- the handler --- */

static void call_before(int number, siginfo_t *info, void *where) {
  const struct sigaction *b = &before[number];
  if (b->sa_flags & SA_SIGINFO) b->sa_sigaction(number, info, where);
  else if (b->sa_handler != SIG_DFL && b->sa_handler != SIG_IGN) b->sa_handler(number);
}

/* Async-signal-safe. */
static void on_signal(int number, siginfo_t *info, void *where) {
  const uint64_t one = 1;
  int saved = errno;
  atomic_fetch_add(&handling, 1);
  for (int i = 0; i < SLOTS; i++) {
    long long slot = atomic_load(&slots[i]);
    if (slot >> 32 != number) continue;
    ssize_t n = write((int)(slot & INT32_MAX), &one, sizeof one);
    (void)n; /* a full counter wakes just as well */
  }
  atomic_fetch_sub(&handling, 1);
  errno = saved;
  call_before(number, info, where);
}

static bool is_ours(const struct sigaction *a) {
  return a->sa_flags & SA_SIGINFO && a->sa_sigaction == on_signal;
}

static bool is_none(const struct sigaction *a) {
  return !(a->sa_flags & SA_SIGINFO) && (a->sa_handler == SIG_DFL || a->sa_handler == SIG_IGN);
}

/* If somebody has put a handler of his own over ours since, it stays: he may be calling ours. */
static void restore(int number) {
  struct sigaction now;
  sigaction(number, NULL, &now);
  covered[number] = !is_ours(&now) && !is_none(&now);
  if (is_ours(&now)) sigaction(number, &before[number], NULL);
}

/* A child has no contexts, and is to die of the signal where its parent would have. */
static void forget(void) {
  pthread_mutex_init(&lock, NULL);
  atomic_store(&handling, 0);
  for (int i = 0; i < SLOTS; i++) atomic_store(&slots[i], 0);
  for (int number = 1; number < NSIG; number++) {
    if (users[number]) restore(number);
    users[number] = 0;
  }
}

/* --------------------------------------------------------------------------- its installing --- */

static gyre_status take_slot(int number, int fd, int *out) {
  for (int i = 0; i < SLOTS; i++) {
    if (atomic_load(&slots[i])) continue;
    atomic_store(&slots[i], (long long)number << 32 | fd);
    *out = i;
    return GYRE_OK;
  }
  return gy_fail(GYRE_ERR_STATE, "GYRE_TRACE_SIGNAL: at most %d contexts at a time may have it",
                 SLOTS);
}

static gyre_status install(int number, int fd) {
  struct sigaction ours = {.sa_sigaction = on_signal,
                           .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK},
                   now;
  int slot;
  pthread_mutex_lock(&lock);
  gyre_status st = take_slot(number, fd, &slot);
  if (st) goto unlock;
  sigaction(number, NULL, &now);
  bool beneath = covered[number] && !is_none(&now); /* over it, the two would call each other */
  if (users[number] == 0 && !is_ours(&now) && !beneath) {
    before[number] = now; /* is there when the first handler runs */
    if (sigaction(number, &ours, NULL) != 0) {
      st = gy_fail_errno(GYRE_ERR_SYS, errno, "GYRE_TRACE_SIGNAL: cannot handle signal %d", number);
      atomic_store(&slots[slot], 0);
      goto unlock;
    }
  }
  users[number]++;
unlock:
  pthread_mutex_unlock(&lock);
  return st;
}

static void uninstall(int number, int fd) {
  pthread_mutex_lock(&lock);
  for (int i = 0; i < SLOTS; i++)
    if (atomic_load(&slots[i]) == ((long long)number << 32 | fd)) atomic_store(&slots[i], 0);
  if (--users[number] == 0) restore(number);
  pthread_mutex_unlock(&lock);
  while (atomic_load(&handling)) sched_yield(); /* it only writes a few descriptors */
}

/* --------------------------------------------------------------------------------- the loop --- */

/* The rank in the communicator that has been there for longest; -1: GYRE_RANK says it. */
static int rank_of(const gyre_context *ctx) {
  int rank = -1;
  for (const gyre_comm *c = ctx->comms; c; c = c->next) rank = c->core.rank;
  return rank;
}

static void on_event(uv_poll_t *poll, int status, int events) {
  struct gy_dump_signal *s = poll->data;
  uint64_t count;
  (void)status;
  (void)events;
  if (read(s->w.fd, &count, sizeof count) != sizeof count) return;
  gy_dump_by_setting(s->ctx, rank_of(s->ctx), "signal");
}

gyre_status gy_dump_signal_open(gyre_context *ctx, struct gy_dump_signal **out) {
  int number = gy_settings_trace_signal(&ctx->settings);
  if (!number) return GYRE_OK;
  struct gy_dump_signal *s = calloc(1, sizeof *s);
  if (!s) return gy_fail(GYRE_ERR_NOMEM, "out of memory for GYRE_TRACE_SIGNAL");
  if (!gy_fork_in_child(forget)) {
    free(s);
    return gy_fail(GYRE_ERR_INTERNAL, "no room for another fork handler");
  }
  gy_fork_hold();
  int fd = gy_fork_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  gy_fork_release();
  gyre_status st = fd < 0
                       ? gy_fail_errno(GYRE_ERR_SYS, errno, "making an eventfd (descriptor limit?)")
                       : gy_watch_open(&s->w, ctx->net, fd);
  if (st) goto close_fd;
  s->ctx = ctx;
  s->number = number;
  int rc = uv_poll_start(&s->w.poll, UV_READABLE, on_event);
  st = rc ? gy_fail_errno(GYRE_ERR_SYS, -rc, "watching an eventfd") : install(number, fd);
  if (st) goto close_watch;
  *out = s;
  return GYRE_OK;

close_watch:
  gy_watch_close(&s->w); /* frees it */
  s = NULL;
close_fd:
  if (fd >= 0) {
    gy_fork_disown(fd);
    close(fd);
  }
  free(s);
  return st;
}

void gy_dump_signal_close(struct gy_dump_signal *s) {
  if (!s) return;
  int number = s->number, fd = gy_watch_close(&s->w);
  uninstall(number, fd);
  gy_fork_disown(fd);
  close(fd);
}

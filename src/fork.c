/*
 * fork.c - see fork.h.
 *
 * The child's handler runs before fork() returns, alone in its process, while any lock may be held
 * for ever by a thread that is not there: it calls nothing but fstat and close.
 */
#include "fork.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#define FD_MAX (1 << 16) /* descriptors above this are not watched */
#define HOOKS_MAX 8

static atomic_uint_fast64_t owned[FD_MAX]; /* by descriptor: what identifies the file; 0: not owned */
static atomic_int highest = -1;
static atomic_uint generation;
static _Atomic(void (*)(void)) hooks[HOOKS_MAX];
static pthread_mutex_t hold = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t installed = PTHREAD_ONCE_INIT;

static uint64_t identity(int fd) {
  struct stat st;
  if (fstat(fd, &st) != 0) return 0;
  return (uint64_t)st.st_ino * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)st.st_dev ^
         (uint64_t)st.st_mode << 32 ^ 1;
}

static void in_child(void) {
  int saved = errno, last = atomic_load(&highest);
  gy_fork_release(); /* this thread holds it, as in the parent */
  for (int fd = 0; fd <= last; fd++) {
    uint64_t id = atomic_load_explicit(&owned[fd], memory_order_relaxed);
    if (id && id == identity(fd)) close(fd);
    if (id) atomic_store_explicit(&owned[fd], 0, memory_order_relaxed);
  }
  atomic_fetch_add(&generation, 1);
  for (int i = 0; i < HOOKS_MAX; i++) {
    void (*fn)(void) = atomic_load(&hooks[i]);
    if (fn) fn();
  }
  errno = saved;
}

void gy_fork_hold(void) { pthread_mutex_lock(&hold); }
void gy_fork_release(void) { pthread_mutex_unlock(&hold); }

static void install(void) { pthread_atfork(gy_fork_hold, gy_fork_release, in_child); }

unsigned gy_fork_generation(void) {
  return atomic_load_explicit(&generation, memory_order_relaxed);
}

struct gy_birth gy_birth_now(void) {
  pthread_once(&installed, install);
  return (struct gy_birth){gy_fork_generation(), getpid()};
}

gyre_status gy_birth_check(const struct gy_birth *birth, const char *function) {
  if (birth->generation == gy_fork_generation()) return GYRE_OK;
  return gy_fail(GYRE_ERR_STATE,
                 "%s: it belongs to process %ld, of which this process, %ld, is a fork: a child "
                 "cannot use it; create a context of the child's own, or call exec",
                 function, (long)birth->pid, (long)getpid());
}

int gy_fork_own(int fd) {
  if (fd < 0 || fd >= FD_MAX) return fd;
  pthread_once(&installed, install);
  atomic_store_explicit(&owned[fd], identity(fd), memory_order_relaxed);
  for (int seen = atomic_load(&highest); fd > seen;) {
    if (atomic_compare_exchange_weak(&highest, &seen, fd)) break;
  }
  return fd;
}

void gy_fork_disown(int fd) {
  if (fd >= 0 && fd < FD_MAX) atomic_store_explicit(&owned[fd], 0, memory_order_relaxed);
}

bool gy_fork_in_child(void (*fn)(void)) {
  for (int i = 0; i < HOOKS_MAX; i++) {
    void (*free_place)(void) = NULL;
    if (atomic_load(&hooks[i]) == fn) return true;
    if (atomic_compare_exchange_strong(&hooks[i], &free_place, fn) || free_place == fn) return true;
  }
  return false;
}

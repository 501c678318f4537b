/*
 * log.c - see log.h.
 *
 * Thread: any. A line is one write(2) of at most PIPE_BUF bytes, so lines of threads and of
 *         processes that share a pipe never mix. gy_log_open is serialised; it replaces the file
 *         behind one descriptor, so that a thread that is writing never holds a closed one.
 * Owner:  the process; the descriptor stays open until it ends.
 */
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fork.h"
#include "path.h"

#define LINE_MAX_BYTES 4096
_Static_assert(LINE_MAX_BYTES <= PIPE_BUF, "a line must be written atomically to a pipe");

atomic_int gy_log_level = GY_LOG_WARN;

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int log_fd = STDERR_FILENO;
static char open_path[PATH_MAX]; /* under open_lock; "": standard error */

static gyre_status switch_to(const char *path) {
  int fd = *path
               ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0644)
               : fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
  if (fd < 0)
    return gy_fail_errno(GYRE_ERR_ARG, errno, "GYRE_LOG_FILE=%.200s: cannot open %s for appending",
                         path, *path ? path : "standard error");
  int current = atomic_load(&log_fd);
  if (current == STDERR_FILENO) {
    atomic_store(&log_fd, fd);
    return GYRE_OK;
  }
  int moved = dup3(fd, current, O_CLOEXEC), why = errno;
  close(fd);
  if (moved < 0) return gy_fail_errno(GYRE_ERR_SYS, why, "replacing the log file by %s", path);
  return GYRE_OK;
}

static void renew_lock(void) { pthread_mutex_init(&open_lock, NULL); }

gyre_status gy_log_open(enum gy_level level, const char *file) {
  char path[PATH_MAX];
  gy_fork_in_child(renew_lock);
  gyre_status st = gy_path_expand("GYRE_LOG_FILE", file, -1, path, sizeof path);
  if (st != GYRE_OK) return st;
  pthread_mutex_lock(&open_lock);
  if (strcmp(path, open_path) != 0) {
    st = switch_to(path);
    if (st == GYRE_OK) memcpy(open_path, path, sizeof path);
  }
  if (st == GYRE_OK) atomic_store(&gy_log_level, (int)level);
  pthread_mutex_unlock(&open_lock);
  return st;
}

static size_t compose(char line[LINE_MAX_BYTES], enum gy_level level, const char *fmt, va_list args)
    GY_PRINTF(3, 0);
static size_t compose(char line[LINE_MAX_BYTES], enum gy_level level, const char *fmt, va_list args) {
  static const char *const names[] = {"OFF", "ERROR", "WARN", "INFO", "DEBUG"};
  struct timespec now;
  struct tm tm;
  clock_gettime(CLOCK_REALTIME, &now);
  localtime_r(&now.tv_sec, &tm);
  size_t n = gy_format(line, LINE_MAX_BYTES - 1, "gyre %02d:%02d:%02d.%03ld pid %ld %s ", tm.tm_hour,
                       tm.tm_min, tm.tm_sec, now.tv_nsec / 1000000, (long)getpid(), names[level]);
  vsnprintf(line + n, LINE_MAX_BYTES - 1 - n, fmt, args);
  gy_one_line(line);
  n = strlen(line);
  line[n++] = '\n';
  return n;
}

/* write(2) that raises no SIGPIPE when the reader of a pipe is gone: the signal is blocked in this
 * thread and, if the write made it pending, taken away again. A line that cannot be written is
 * dropped. */
static void write_line(const char *line, size_t n) {
  sigset_t pipe_set, old_set, pending;
  sigemptyset(&pipe_set);
  sigaddset(&pipe_set, SIGPIPE);
  sigpending(&pending);
  bool was_pending = sigismember(&pending, SIGPIPE) == 1;
  if (pthread_sigmask(SIG_BLOCK, &pipe_set, &old_set) != 0) return;
  ssize_t written;
  do {
    written = write(atomic_load_explicit(&log_fd, memory_order_relaxed), line, n);
  } while (written < 0 && errno == EINTR);
  if (written < 0 && errno == EPIPE && !was_pending) {
    const struct timespec at_once = {0, 0};
    while (sigtimedwait(&pipe_set, NULL, &at_once) < 0 && errno == EINTR) continue;
  }
  pthread_sigmask(SIG_SETMASK, &old_set, NULL);
}

void gy_log_write(enum gy_level level, const char *fmt, ...) {
  int saved_errno = errno;
  char line[LINE_MAX_BYTES];
  va_list args;
  va_start(args, fmt);
  size_t n = compose(line, level, fmt, args);
  va_end(args);
  write_line(line, n);
  errno = saved_errno;
}

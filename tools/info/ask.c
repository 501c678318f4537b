/*
 * ask.c - see ask.h.
 *
 * All processes are asked at once, so that their answers are of about the same moment, and share one
 * deadline.
 */
#include "ask.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "query.h"
#include "status.h"

#define BYTES_MAX ((size_t)256 << 20) /* of a document */

struct question {
  char name[64];
  int fd; /* -1: it is over */
  char *data;
  size_t len, capacity;
  bool complete;
};

static int complain(const char *name, const char *why) {
  fprintf(stderr, "gyre-info: %s: %s\n", name, why);
  return 1;
}

/* NULL: there is room. */
static const char *make_room(char **data, size_t len, size_t *capacity) {
  if (len < *capacity) return NULL;
  if (*capacity >= BYTES_MAX) return "it is longer than 256 MiB";
  size_t more = *capacity ? 2 * *capacity : 1 << 16;
  char *larger = realloc(*data, more);
  if (!larger) return "out of memory";
  *data = larger;
  *capacity = more;
  return NULL;
}

static int add(struct job *job, const char *name, const char *data, size_t len) {
  char why[512];
  struct document *d = document_read(name, data ? data : "", len, why, sizeof why);
  if (d && job_add(job, d, why, sizeof why)) return 0;
  fprintf(stderr, "gyre-info: %s\n", why);
  return 1;
}

/* ------------------------------------------------------------------------------------ files --- */

static int read_file(struct job *job, const char *path) {
  FILE *f = fopen(path, "r");
  char *data = NULL;
  size_t len = 0, capacity = 0, n;
  if (!f) return complain(path, strerror(errno));
  const char *why;
  do {
    why = make_room(&data, len, &capacity);
    n = why ? 0 : fread(data + len, 1, capacity - len, f);
    len += n;
  } while (n > 0);
  if (!why && ferror(f)) why = strerror(errno);
  int failed = why ? complain(path, why) : add(job, path, data, len);
  free(data);
  fclose(f);
  return failed;
}

/* -------------------------------------------------------------------------------- processes --- */

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* A descriptor, or -1 and *why: the name may be that of a process of another PID namespace, or of
 * anybody who means to deceive. */
static int connect_to(long pid, int number, const char **why) {
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  struct timeval patience = {.tv_sec = GY_QUERY_MS / 1000};
  struct ucred who;
  socklen_t size = sizeof who;
  size_t len =
      gy_format(at.sun_path + 1, sizeof at.sun_path - 1, "%s/%ld/%d", GY_QUERY_PREFIX, pid, number);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    *why = strerror(errno);
    return -1;
  }
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (connect(fd, (struct sockaddr *)&at,
              (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len)) != 0) {
    *why = strerror(errno);
  } else if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0 || who.pid != pid) {
    *why = "the socket of that name is another process's";
  } else {
    return fd;
  }
  close(fd);
  return -1;
}

/* The numbers of the sockets that bear the process's name. */
static int find_sockets(long pid, int number[GY_QUERY_CONTEXTS]) {
  FILE *f = fopen("/proc/net/unix", "r");
  char *line = NULL, prefix[48];
  size_t size = 0;
  int n = 0;
  snprintf(prefix, sizeof prefix, " @%s/%ld/", GY_QUERY_PREFIX, pid);
  while (f && n < GY_QUERY_CONTEXTS && getline(&line, &size, f) > 0) {
    const char *at = strstr(line, prefix);
    char *end;
    if (!at) continue;
    long k = strtol(at + strlen(prefix), &end, 10);
    bool listens = strstr(line, " 00010000 ") != NULL; /* not one of those it has accepted */
    if (listens && *end == '\n' && k >= 0 && k < GY_QUERY_CONTEXTS) number[n++] = (int)k;
  }
  free(line);
  if (f) fclose(f);
  return n;
}

static const char *why_silent(long pid) {
  if (kill((pid_t)pid, 0) != 0 && errno == ESRCH) return "there is no such process";
  return "it has no Gyre context that can be asked: none at all, GYRE_TRACE_QUERY=0, or it is in "
         "another network namespace (then run gyre-info there)";
}

/* Appends a question for each context of the process. */
static int ask_process(long pid, struct question **list, size_t *n) {
  int number[GY_QUERY_CONTEXTS], n_number = find_sockets(pid, number), asked = 0;
  const char *why = why_silent(pid);
  char name[64];
  snprintf(name, sizeof name, "process %ld", pid);
  struct question *longer = realloc(*list, (*n + (size_t)n_number + 1) * sizeof **list);
  if (!longer) return complain(name, "out of memory");
  *list = longer;
  for (int i = 0; i < n_number; i++) {
    int fd = connect_to(pid, number[i], &why);
    if (fd < 0) continue;
    struct question *q = &(*list)[(*n)++];
    *q = (struct question){.fd = fd};
    gy_format(q->name, sizeof q->name, "%s", name);
    asked++;
  }
  return asked ? 0 : complain(name, why);
}

static void read_some(struct question *q) {
  const char *why = make_room(&q->data, q->len, &q->capacity);
  ssize_t n = why ? -1 : recv(q->fd, q->data + q->len, q->capacity - q->len, MSG_DONTWAIT);
  if (n < 0 && !why && (errno == EINTR || errno == EAGAIN)) return;
  if (n > 0) {
    q->len += (size_t)n;
    return;
  }
  q->complete = n == 0;
  close(q->fd);
  q->fd = -1;
}

static void read_answers(struct question *list, size_t n) {
  struct pollfd *fds = calloc(n + 1, sizeof *fds);
  int64_t deadline = now_ms() + GY_QUERY_MS, left;
  while (fds && (left = deadline - now_ms()) > 0) {
    bool open = false;
    for (size_t i = 0; i < n; i++) {
      fds[i] = (struct pollfd){list[i].fd, POLLIN, 0};
      open |= list[i].fd >= 0;
    }
    if (!open) break;
    poll(fds, n, (int)left);
    for (size_t i = 0; i < n; i++)
      if (fds[i].revents && list[i].fd >= 0) read_some(&list[i]);
  }
  free(fds);
}

static int take_answer(struct job *job, struct question *q) {
  int failed;
  if (q->fd >= 0)
    failed =
        complain(q->name, "it has not answered within 5 s: is it stopped, or does nobody drive "
                          "it (docs/tracing.md)?");
  else if (!q->complete) failed = complain(q->name, "its answer broke off");
  else if (q->len == 0) failed = complain(q->name, "it gives no answer: is it another user's?");
  else failed = add(job, q->name, q->data, q->len);
  if (q->fd >= 0) close(q->fd);
  free(q->data);
  return failed;
}

static bool is_pid(const char *argument, long *pid) {
  size_t len = strlen(argument);
  if (len == 0 || len > 9 || strspn(argument, "0123456789") != len) return false;
  *pid = strtol(argument, NULL, 10);
  return *pid > 0;
}

int ask_all(struct job *job, char *const *arguments, int n) {
  struct question *list = NULL;
  size_t asked = 0;
  int failed = 0;
  long pid;
  for (int i = 0; i < n; i++)
    if (is_pid(arguments[i], &pid)) failed += ask_process(pid, &list, &asked);
  read_answers(list, asked);
  for (size_t i = 0; i < asked; i++) failed += take_answer(job, &list[i]);
  free(list);
  for (int i = 0; i < n; i++)
    if (!is_pid(arguments[i], &pid)) failed += read_file(job, arguments[i]);
  return failed;
}

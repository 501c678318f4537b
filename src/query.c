/*
 * query.c - see query.h.
 *
 * So that no question disturbs the job: few clients at a time, a pause after each, an answer of
 * bounded length that is written when the socket takes it, and a deadline after which whoever does
 * not read is left.
 */
#include "query.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "dump.h"
#include "log.h"
#include "net_core.h"

#define CLIENTS_MAX 4
#define PAUSE_MS 20
#define OPERATIONS_MAX 256 /* of each communicator: making the answer takes a millisecond or so */

struct client {
  struct gy_watch w;
  struct gy_query *query;
  struct client *next;
  struct gy_json answer;
  size_t sent;
};

struct gy_query {
  struct gy_watch w;
  gyre_context *ctx;
  struct client *clients;
  unsigned n_clients;
};

static void on_connection(uv_poll_t *poll, int status, int events);

/* --------------------------------------------------------------------------------- clients --- */

static void resume(struct gy_query *q) {
  if (q->n_clients < CLIENTS_MAX && !uv_is_active((uv_handle_t *)&q->w.timer))
    (void)uv_poll_start(&q->w.poll, UV_READABLE, on_connection);
}

static void client_close(struct client *c) {
  struct gy_query *q = c->query;
  for (struct client **p = &q->clients; *p; p = &(*p)->next) {
    if (*p != c) continue;
    *p = c->next;
    break;
  }
  q->n_clients--;
  gy_json_free(&c->answer);
  close(gy_watch_close(&c->w));
}

static void on_late(uv_timer_t *timer) {
  struct client *c = timer->data;
  struct gy_query *q = c->query;
  client_close(c);
  resume(q);
}

static void on_writable(uv_poll_t *poll, int status, int events) {
  struct client *c = poll->data;
  struct gy_query *q = c->query;
  (void)status; /* an error is met by send */
  (void)events;
  while (c->sent < c->answer.len) {
    ssize_t n = send(c->w.fd, c->answer.data + c->sent, c->answer.len - c->sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n < 0) break;
    c->sent += (size_t)n;
  }
  client_close(c);
  resume(q);
}

static bool may_ask(int fd) {
  struct ucred who;
  socklen_t len = sizeof who;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 &&
         (who.uid == geteuid() || who.uid == 0);
}

static void client_open(struct gy_query *q, int fd) {
  struct client *c = may_ask(fd) ? calloc(1, sizeof *c) : NULL;
  if (!c) goto close_fd;
  if (gy_dump_write(&c->answer, q->ctx, NULL, "query", OPERATIONS_MAX)) goto free_client;
  if (gy_watch_open(&c->w, q->w.net, fd)) goto free_client;
  c->query = q;
  c->next = q->clients;
  q->clients = c;
  q->n_clients++;
  uv_update_time(c->w.net->loop); /* the loop may have slept outside uv_run */
  uv_timer_start(&c->w.timer, on_late, GY_QUERY_MS, 0);
  if (uv_poll_start(&c->w.poll, UV_WRITABLE, on_writable) != 0) client_close(c);
  return;

free_client:
  gy_json_free(&c->answer);
  free(c);
close_fd:
  close(fd);
}

/* -------------------------------------------------------------------------------- listener --- */

static void on_pause_over(uv_timer_t *timer) { resume(timer->data); }

static void on_connection(uv_poll_t *poll, int status, int events) {
  struct gy_query *q = poll->data;
  (void)status;
  (void)events;
  gy_fork_hold();
  int fd = gy_fork_own(accept4(q->w.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
  gy_fork_release();
  if (fd >= 0) client_open(q, fd);
  uv_poll_stop(&q->w.poll);
  uv_timer_start(&q->w.timer, on_pause_over, PAUSE_MS, 0);
}

/* The first name that is free: other contexts of this process have names, too, and so may processes
 * of another PID namespace. */
static int bind_name(int fd) {
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  for (int i = 0; i < GY_QUERY_CONTEXTS; i++) {
    size_t len = gy_format(at.sun_path + 1, sizeof at.sun_path - 1, "%s/%ld/%d", GY_QUERY_PREFIX,
                           (long)getpid(), i);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
    if (bind(fd, (struct sockaddr *)&at, size) == 0) return 0;
    if (errno != EADDRINUSE) return -1;
  }
  return -1;
}

static int open_listener(void) {
  gy_fork_hold();
  int fd = gy_fork_own(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  gy_fork_release();
  if (fd < 0 || (bind_name(fd) == 0 && listen(fd, 8) == 0)) return fd;
  int saved = errno;
  close(fd);
  errno = saved;
  return -1;
}

void gy_query_open(gyre_context *ctx, struct gy_query **out) {
  struct gy_query *q = ctx->settings.trace_query ? calloc(1, sizeof *q) : NULL;
  if (!q) return;
  int fd = open_listener();
  if (fd < 0) {
    gy_log(GY_LOG_INFO, "gyre-info --job cannot ask this process: a Unix socket: %s",
           strerror(errno));
    goto free_query;
  }
  if (gy_watch_open(&q->w, ctx->net, fd)) goto close_fd;
  q->ctx = ctx;
  resume(q);
  *out = q;
  return;

close_fd:
  close(fd);
free_query:
  free(q);
}

void gy_query_close(struct gy_query *q) {
  if (!q) return;
  while (q->clients) client_close(q->clients);
  close(gy_watch_close(&q->w));
}

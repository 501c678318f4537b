/*
 * watch.c - a socket with its timer on the loop; see net_core.h.
 *
 * Thread: the driving thread. Owner: the watch owns its descriptor until it is closed.
 */
#include <errno.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <unistd.h>
#include "fork.h"
#include "loop.h"
#include "net_core.h"
#include "status.h"

#ifndef TCP_RTO_MAX_MS /* Linux 6.15 */
#define TCP_RTO_MAX_MS 44
#endif

gyre_status gy_watch_open(struct gy_watch *w, struct gy_net *net, int fd) {
  gyre_status st = gy_loop_watch(net->loop, &w->poll, fd);
  if (st != GYRE_OK) return st;
  uv_timer_init(net->loop, &w->timer);
  w->net = net;
  w->fd = fd;
  w->poll.data = w->timer.data = w;
  w->open_handles = 2;
  gy_net_hold(net);
  gy_net_hold(net);
  return GYRE_OK;
}

static void handle_closed(uv_handle_t *handle) {
  struct gy_watch *w = handle->data;
  struct gy_net *net = w->net;
  if (--w->open_handles == 0) free(w);
  gy_net_release(net);
}

int gy_watch_close(struct gy_watch *w) {
  int fd = w->fd;
  /* uv_close on a poll handle takes the descriptor out of the loop's table and out of epoll at
   * once, and forgets events already fetched for it (so in libuv 1.44, seen by strace; test_net.c
   * relies on it). Only the memory must wait. */
  uv_close((uv_handle_t *)&w->poll, handle_closed);
  uv_close((uv_handle_t *)&w->timer, handle_closed);
  return fd;
}

static void set_number(int fd, int level, int name, unsigned value) {
  int v = value > INT_MAX ? INT_MAX : (int)value;
  (void)setsockopt(fd, level, name, &v, sizeof v); /* a kernel without it notices later */
}

void gy_socket_peer_timeout(int fd, uint32_t timeout_ms, bool always_read) {
  /* In seconds. The probes take a quarter longer than the time-out, which the caller judges by
   * itself; an idle connection that lives is heard of well within half of it. */
  enum { PROBES = 4, RETRY_MIN_MS = 1000, RETRY_MAX_MS = 120000 }; /* what the kernel takes */
  unsigned every = timeout_ms / (1000 * PROBES);
  if (every < 1) every = 1;
  if (every > 32767) every = 32767;
  set_number(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_number(fd, IPPROTO_TCP, TCP_KEEPIDLE, every);
  set_number(fd, IPPROTO_TCP, TCP_KEEPINTVL, every);
  set_number(fd, IPPROTO_TCP, TCP_KEEPCNT, PROBES);
  if (always_read) set_number(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, timeout_ms);
  /* The kernel waits longer and longer between its tries; a link that comes back is to be found
   * again before the time is over. */
  unsigned retry = timeout_ms / 4;
  if (retry < RETRY_MIN_MS) retry = RETRY_MIN_MS;
  if (retry > RETRY_MAX_MS) retry = RETRY_MAX_MS;
  set_number(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, retry);
}

int gy_socket(int family) {
  int on = 1;
  gy_fork_hold();
  int fd = gy_fork_own(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  gy_fork_release();
  if (fd < 0) return -1;
  if (family != AF_UNIX && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) {
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
  }
  return fd;
}

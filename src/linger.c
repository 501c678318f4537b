/*
 * linger.c - sockets whose owner is done, kept until the peer has read everything.
 *
 * Role:   closing a socket with unread bytes in it makes the kernel send a reset, which destroys
 *         what the peer has not read yet. So: send the tail, shut down writing, discard what comes
 *         until the peer's EOF, and only then close.
 * Thread: the driving thread. Owner: the net.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "net_core.h"
#include "status.h"

struct lingering {
  struct gy_watch w;
  TAILQ_ENTRY(lingering) link;
  bool peer_done; /* its EOF has been read */
  size_t len, sent;
  uint8_t tail[];
};

static void linger_close(struct lingering *l) {
  struct gy_net *net = l->w.net;
  TAILQ_REMOVE(&net->lingering, l, link);
  net->n_lingering--;
  close(gy_watch_close(&l->w));
}

/* How many bytes went out; a broken connection takes all of them. */
static size_t send_some(int fd, const uint8_t *data, size_t len) {
  size_t sent = 0;
  while (sent < len) {
    ssize_t n = send(fd, data + sent, len - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? sent : len;
    sent += (size_t)n;
  }
  return sent;
}

/* True when the peer is done, too: EOF or an error. Bounded, so that a peer that keeps sending
 * cannot hold the loop. */
static bool discard_some(int fd) {
  char scrap[16384];
  for (int i = 0; i < 64; i++) {
    ssize_t n = recv(fd, scrap, sizeof scrap, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno != EAGAIN && errno != EWOULDBLOCK;
    if (n == 0) return true;
  }
  return false;
}

static void linger_event(uv_poll_t *poll, int status, int events);

static void linger_advance(struct lingering *l) {
  if (l->sent < l->len) {
    l->sent += send_some(l->w.fd, l->tail + l->sent, l->len - l->sent);
    if (l->sent == l->len) shutdown(l->w.fd, SHUT_WR);
  }
  bool sending = l->sent < l->len;
  /* The peer's EOF while we still send only means that it writes no more; it may well be
   * reading. */
  if (!l->peer_done) l->peer_done = discard_some(l->w.fd);
  int events = (sending ? UV_WRITABLE : 0) | (l->peer_done ? 0 : UV_READABLE);
  if (events == 0 || uv_poll_start(&l->w.poll, events, linger_event) != 0) linger_close(l);
}

static void linger_event(uv_poll_t *poll, int status, int events) {
  (void)status; /* whatever it is, send and recv will meet it */
  (void)events;
  linger_advance(poll->data);
}

static void linger_expired(uv_timer_t *timer) { linger_close(timer->data); }

void gy_net_linger(struct gy_net *net, int fd, const void *tail, size_t tail_len, uint32_t linger_ms) {
  const uint8_t *data = tail;
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  size_t sent = send_some(fd, data, tail_len);
  if (sent == tail_len) shutdown(fd, SHUT_WR);
  struct lingering *l = net->closing || linger_ms == 0 ? NULL : malloc(sizeof *l + (tail_len - sent));
  if (l == NULL || gy_watch_open(&l->w, net, fd) != GYRE_OK) {
    free(l);
    close(fd); /* the kernel still delivers what was sent, unless the peer sends more */
    return;
  }
  l->len = tail_len - sent;
  l->sent = 0;
  l->peer_done = false;
  if (l->len != 0) memcpy(l->tail, data + sent, l->len);
  TAILQ_INSERT_TAIL(&net->lingering, l, link);
  net->n_lingering++;
  uv_update_time(net->loop); /* the loop may have slept outside uv_run: its clock is then old */
  uv_timer_start(&l->w.timer, linger_expired, linger_ms, 0);
  if (uv_poll_start(&l->w.poll, UV_READABLE | (l->len != 0 ? UV_WRITABLE : 0), linger_event) != 0)
    linger_close(l);
}

unsigned gy_net_lingering(const struct gy_net *net) { return net->n_lingering; }

void gy_linger_close_all(struct gy_net *net) {
  struct lingering *l;
  while ((l = TAILQ_FIRST(&net->lingering)) != NULL) linger_close(l);
}

/*
 * channel.c - a stream of typed messages over one control connection.
 *
 * Role:   frames messages as {u32 length of the body, u8 type, 3 zero bytes, body}; one uv_poll_t
 *         watches the socket.
 * Thread: the driving thread only.
 * Owner:  whoever opened it. The memory goes in the handle's close callback, which never runs
 *         inside another callback, so a message callback may close the channel it was called for.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#include "channel.h"
#include "loop.h"
#include "status.h"

#define HEADER 8u
#define READ_ROOM 4096u /* least room offered to a receive */
#define READ_BUDGET \
  (1u << 20) /* bytes taken in one turn of the loop; the rest has to wait for the next */
#define KEEP_CAPACITY (64u << 10) /* a larger buffer is given back when it is empty */

struct buffer { /* bytes [pos, len) of data are waiting */
  uint8_t *data;
  size_t pos, len, capacity;
};

struct gy_channel {
  uv_poll_t poll;
  int fd;      /* -1 once the owner is done */
  int watched; /* what `poll` has been started for */
  bool dead;   /* `closed` has been or is being told */
  int broken;  /* errno that ended sending or receiving; 0: none yet */
  const struct gy_channel_events *events;
  void *user;
  uint64_t last_heard;
  struct buffer in, out;
  char peer[GY_ADDRESS_TEXT];
};

static void on_poll(uv_poll_t *handle, int status, int events);

/* --------------------------------------------------------------------------------- buffer --- */

static size_t buffer_waiting(const struct buffer *b) { return b->len - b->pos; }

static uint8_t *buffer_at(const struct buffer *b) { return b->data ? b->data + b->pos : NULL; }

/* Makes room for `more` bytes behind len; moves what waits to the front first. */
static bool buffer_room(struct buffer *b, size_t more) {
  if (b->capacity - b->len >= more) return true;
  size_t waiting = buffer_waiting(b);
  if (b->pos > 0) {
    memmove(b->data, b->data + b->pos, waiting);
    b->pos = 0;
    b->len = waiting;
  }
  if (b->capacity - b->len >= more) return true;
  size_t capacity = b->capacity < READ_ROOM ? READ_ROOM : 2 * b->capacity;
  if (capacity < waiting + more) capacity = waiting + more;
  uint8_t *data = realloc(b->data, capacity);
  if (!data) return false;
  b->data = data;
  b->capacity = capacity;
  return true;
}

static void buffer_take(struct buffer *b, size_t bytes) {
  b->pos += bytes;
  if (b->pos < b->len) return;
  b->pos = b->len = 0;
  if (b->capacity > KEEP_CAPACITY) {
    free(b->data);
    *b = (struct buffer){0};
  }
}

/* ------------------------------------------------------------------------------ the socket --- */

static bool released(const struct gy_channel *ch) { return ch->fd < 0; }

/* Watches for what is waited for now. libuv's start is two system calls, so only on a change. */
static void watch(struct gy_channel *ch) {
  int want = 0;
  if (!released(ch) && !ch->dead) {
    want = UV_READABLE;
    /* A broken socket need not become readable; a writable one it is at once. */
    if (buffer_waiting(&ch->out) > 0 || ch->broken) want |= UV_WRITABLE;
  }
  if (want == ch->watched) return;
  ch->watched = want;
  if (want == 0) uv_poll_stop(&ch->poll);
  else uv_poll_start(&ch->poll, want, on_poll);
}

/* A failed send says nothing about what was received before: it is kept, and told once all that can
 * be read is read. */
static void break_sending(struct gy_channel *ch, int sys_errno) {
  if (!ch->broken) ch->broken = sys_errno;
  ch->out.pos = ch->out.len = 0;
}

/* How many of the bytes went out now; a failure other than "full" breaks the channel. */
static size_t send_now(struct gy_channel *ch, struct iovec *iov, size_t n) {
  struct msghdr msg = {.msg_iov = iov, .msg_iovlen = n};
  ssize_t sent;
  do sent = sendmsg(ch->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
  while (sent < 0 && errno == EINTR);
  if (sent >= 0) return (size_t)sent;
  if (errno != EAGAIN && errno != EWOULDBLOCK) break_sending(ch, errno);
  return 0;
}

static void flush(struct gy_channel *ch) {
  while (!ch->broken && buffer_waiting(&ch->out) > 0) {
    struct iovec iov = {buffer_at(&ch->out), buffer_waiting(&ch->out)};
    size_t sent = send_now(ch, &iov, 1);
    if (sent == 0) return;
    buffer_take(&ch->out, sent);
  }
}

static void die(struct gy_channel *ch, int sys_errno) {
  ch->dead = true;
  ch->broken = sys_errno;
  watch(ch);
  ch->events->closed(ch->user, ch, sys_errno);
}

/* Hands over every complete message. False: the channel is dead or its owner has let go. */
static bool deliver(struct gy_channel *ch) {
  while (buffer_waiting(&ch->in) >= HEADER) {
    const uint8_t *at = buffer_at(&ch->in);
    struct gy_reader r = {.data = at, .len = HEADER};
    size_t len = gy_r_u32(&r);
    uint8_t type = gy_r_u8(&r);
    if (len > GY_MESSAGE_MAX || at[5] || at[6] || at[7]) {
      die(ch, EBADMSG);
      return false;
    }
    if (buffer_waiting(&ch->in) - HEADER < len) return true;
    ch->events->message(ch->user, ch, type, at + HEADER, len);
    if (released(ch)) return false;
    buffer_take(&ch->in, HEADER + len);
  }
  return true;
}

static void receive(struct gy_channel *ch) {
  for (size_t taken = 0; taken < READ_BUDGET;) {
    if (!buffer_room(&ch->in, READ_ROOM)) {
      die(ch, ENOMEM);
      return;
    }
    ssize_t got = recv(ch->fd, ch->in.data + ch->in.len, ch->in.capacity - ch->in.len, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (ch->broken) die(ch, ch->broken);
      return;
    }
    if (got <= 0) {
      /* A failed send may have consumed the socket's error: then this is a plain end of file. */
      die(ch, ch->broken ? ch->broken : got < 0 ? errno : 0);
      return;
    }
    taken += (size_t)got;
    ch->in.len += (size_t)got;
    ch->last_heard = uv_now(ch->poll.loop);
    if (!deliver(ch)) return;
  }
}

static void on_poll(uv_poll_t *handle, int status, int events) {
  struct gy_channel *ch = handle->data;
  if (status < 0) { /* libuv has stopped the handle; reading finds out what happened */
    ch->watched = 0;
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(ch->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    break_sending(ch, error ? error : EIO);
  } else if (events & UV_WRITABLE) {
    flush(ch);
  }
  receive(ch);
  if (!released(ch)) watch(ch);
}

/* ------------------------------------------------------------------------------- interface --- */

gyre_status gy_channel_open(uv_loop_t *loop, const struct gy_conn *conn,
                            const struct gy_channel_events *events, void *user,
                            struct gy_channel **out) {
  struct gy_channel *ch = calloc(1, sizeof *ch);
  if (!ch) return gy_fail(GYRE_ERR_NOMEM, "no memory for a control connection");
  if (!buffer_room(&ch->in, READ_ROOM)) { /* now, so that to hear a verdict takes no memory */
    free(ch);
    return gy_fail(GYRE_ERR_NOMEM, "no memory for a control connection");
  }
  gyre_status st = gy_loop_watch(loop, &ch->poll, conn->fd);
  if (st) {
    free(ch->in.data);
    free(ch);
    return st;
  }
  ch->poll.data = ch;
  ch->fd = conn->fd;
  ch->events = events;
  ch->user = user;
  ch->last_heard = uv_now(loop);
  gy_address_text(&conn->peer, ch->peer);
  watch(ch);
  *out = ch;
  return GYRE_OK;
}

void gy_channel_rebind(struct gy_channel *ch, const struct gy_channel_events *events, void *user) {
  ch->events = events;
  ch->user = user;
}

gyre_status gy_channel_send(struct gy_channel *ch, uint8_t type, const void *body, size_t len) {
  if (len > GY_MESSAGE_MAX)
    return gy_fail(GYRE_ERR_ARG, "a control message of %zu bytes is longer than %u", len,
                   GY_MESSAGE_MAX);
  if (ch->dead || ch->broken) return GYRE_OK;
  uint8_t header[HEADER] = {(uint8_t)len, (uint8_t)(len >> 8), (uint8_t)(len >> 16),
                            (uint8_t)(len >> 24), type};
  struct iovec iov[2] = {{header, HEADER}, {(void *)(uintptr_t)body, len}};
  size_t sent = buffer_waiting(&ch->out) > 0 ? 0 : send_now(ch, iov, len > 0 ? 2 : 1);
  size_t left = HEADER + len - sent;
  if (left > 0 && !ch->broken) {
    if (!buffer_room(&ch->out, left)) {
      if (sent > 0)
        break_sending(ch, ENOMEM); /* half a message: nothing after it would be understood */
      watch(ch);
      return gy_fail(GYRE_ERR_NOMEM, "no memory to queue a control message of %zu bytes to %s", len,
                     ch->peer);
    }
    size_t skip = sent;
    for (int i = 0; i < 2; i++) {
      size_t from = skip < iov[i].iov_len ? skip : iov[i].iov_len;
      skip -= from;
      size_t rest = iov[i].iov_len - from;
      if (rest > 0)
        memcpy(ch->out.data + ch->out.len, (const uint8_t *)iov[i].iov_base + from, rest);
      ch->out.len += rest;
    }
  }
  watch(ch);
  return GYRE_OK;
}

static void on_handle_closed(uv_handle_t *handle) {
  struct gy_channel *ch = handle->data;
  free(ch->in.data);
  free(ch->out.data);
  free(ch);
}

static int release(struct gy_channel *ch) {
  int fd = ch->fd;
  ch->fd = -1;
  uv_poll_stop(&ch->poll); /* before the descriptor may be closed or watched by another handle */
  uv_close((uv_handle_t *)&ch->poll, on_handle_closed);
  return fd;
}

void gy_channel_close(struct gy_channel *ch) { close(release(ch)); }

void gy_channel_finish(struct gy_channel *ch, struct gy_net *net, uint32_t linger_ms) {
  int fd = release(ch);
  if (ch->broken) close(fd);
  else gy_net_linger(net, fd, buffer_at(&ch->out), buffer_waiting(&ch->out), linger_ms);
}

void gy_channel_peer_timeout(struct gy_channel *ch, uint32_t timeout_ms, bool always_read) {
  gy_socket_peer_timeout(ch->fd, timeout_ms, always_read);
}

const char *gy_channel_peer(const struct gy_channel *ch) { return ch->peer; }

uint64_t gy_channel_last_heard(const struct gy_channel *ch) { return ch->last_heard; }

/*
 * fuzz_channel.c - any bytes, in any pieces, at a control channel.
 *
 * The first byte says how the rest is cut. A reader of a few lines says which messages there are
 * and whether the bytes end malformed: the channel must deliver exactly those, then say `closed`
 * once, with the right errno. With GY_LIBFUZZER defined libFuzzer drives it; otherwise main runs
 * it over generated inputs, after those of a corpus.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "channel.h"
#include "replay.h"

#define PIECES_MAX (64u << 10) /* less than a socket takes at once */

#define require(condition)                                                    \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      abort();                                                                \
    }                                                                         \
  } while (0)

struct heard {
  const uint8_t *bytes; /* what was sent */
  size_t size, at;      /* the next message must begin here */
  int closed, sys_errno;
};

static bool malformed(const struct heard *h) {
  const uint8_t *p = h->bytes + h->at;
  if (h->size - h->at < 8) return false;
  uint32_t len = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
  return len > GY_MESSAGE_MAX || p[5] || p[6] || p[7];
}

static void on_message(void *user, struct gy_channel *ch, uint8_t type, const void *body, size_t len) {
  struct heard *h = user;
  const uint8_t *p = h->bytes + h->at;
  (void)ch;
  require(h->closed == 0);
  require(h->size - h->at >= 8 + len && !malformed(h));
  require(p[4] == type &&
          len == ((size_t)p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24));
  require(len == 0 || memcmp(body, p + 8, len) == 0);
  h->at += 8 + len;
}

static void on_closed(void *user, struct gy_channel *ch, int sys_errno) {
  struct heard *h = user;
  (void)ch;
  h->closed++;
  h->sys_errno = sys_errno;
}

static const struct gy_channel_events events = {on_message, on_closed};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  uv_loop_t loop;
  struct gy_conn conn;
  struct gy_channel *ch;
  int fd[2];
  if (size < 1) return 0;
  size_t piece = (size_t)(data[0] & 0x7f) + 1;
  bool end = data[0] & 0x80;
  struct heard h = {.bytes = data + 1, .size = size - 1 < PIECES_MAX ? size - 1 : PIECES_MAX};
  memset(&conn, 0, sizeof conn);
  conn.peer.sa.v4.sin_family = AF_INET;
  require(uv_loop_init(&loop) == 0);
  require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd) == 0);
  conn.fd = fd[0];
  require(gy_channel_open(&loop, &conn, &events, &h, &ch) == GYRE_OK);
  for (size_t sent = 0; sent < h.size && !h.closed;) {
    size_t n = h.size - sent < piece ? h.size - sent : piece;
    require(write(fd[1], h.bytes + sent, n) == (ssize_t)n);
    sent += n;
    uv_run(&loop, UV_RUN_NOWAIT);
  }
  if (end) shutdown(fd[1], SHUT_WR);
  for (int i = 0; i < 3; i++) uv_run(&loop, UV_RUN_NOWAIT);
  require(h.closed == (end || malformed(&h)));
  require(!h.closed || h.sys_errno == (malformed(&h) ? EBADMSG : 0));
  if (!malformed(&h) && h.size - h.at >= 8) { /* what is left is the beginning of a message */
    const uint8_t *p = h.bytes + h.at;
    require(((size_t)p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24) >
            h.size - h.at - 8);
  }
  gy_channel_close(ch);
  close(fd[1]);
  uv_run(&loop, UV_RUN_DEFAULT);
  require(uv_loop_close(&loop) == 0);
  return 0;
}

#ifndef GY_LIBFUZZER
static uint32_t draw(uint32_t *seed) {
  *seed = *seed * 1664525u + 1013904223u;
  return *seed >> 8;
}

/* Mostly valid messages, then a few bytes are changed. */
static size_t generate(uint32_t seed, uint8_t *out, size_t capacity) {
  size_t len = 0;
  uint32_t messages = draw(&seed) % 12;
  out[len++] = (uint8_t)draw(&seed);
  for (uint32_t i = 0; i < messages; i++) {
    size_t body = draw(&seed) % (draw(&seed) % 4 == 0 ? 3000 : 40);
    if (len + 8 + body > capacity) break;
    memset(out + len, 0, 8);
    out[len] = (uint8_t)body;
    out[len + 1] = (uint8_t)(body >> 8);
    out[len + 4] = (uint8_t)draw(&seed);
    len += 8;
    for (; body > 0; body--) out[len++] = (uint8_t)draw(&seed);
  }
  for (uint32_t n = draw(&seed) % 3; n > 0; n--)
    out[draw(&seed) % len] ^= (uint8_t)(1u << draw(&seed) % 8);
  return draw(&seed) % 4 == 0 ? len - draw(&seed) % len : len;
}

int main(int argc, char **argv) {
  static uint8_t data[PIECES_MAX];
  for (int i = 1; i < argc; i++)
    if (!replay_folder(argv[i])) return 1;
  for (uint32_t seed = 1; seed <= 3000; seed++)
    LLVMFuzzerTestOneInput(data, generate(seed, data, sizeof data));
  return 0;
}
#endif

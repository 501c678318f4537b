/*
 * fuzz_frames.c - any bytes, in any pieces, at a TCP link with receives posted.
 *
 * The first byte says how the rest is cut, the second which receives are posted. A reader of a few
 * lines says what must come of it: how many receives are done, with which data, and whether the
 * link is broken, by what. With GY_LIBFUZZER defined libFuzzer drives it; otherwise main runs it
 * over generated inputs, after those of a corpus.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "replay.h"
#include "transport/tcp/link.h"

#define require(condition)                                                    \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      abort();                                                                \
    }                                                                         \
  } while (0)

enum { RECEIVES = 5, LARGEST = GY_FRAME_SMALL + 1000, STREAM_MAX = 3 * LARGEST };
enum verdict { NOTHING, NO_FRAME, OTHER_CALL, LOST };

static const struct gy_descriptor call = {
    .seq = 0x0123456789, .count = 1000, .root = 3, .coll = 4, .dtype = 8};
static const size_t sizes[] = {0, 4, 12, 60, 64, 4000, GY_FRAME_SMALL, LARGEST};

struct state { /* of the link under test */
  unsigned done;
  enum verdict verdict;
  unsigned verdicts;
};

void gy_on_xfer_done(struct gy_link *l, struct gy_xfer *x) {
  struct state *s = l->end;
  require(x->index == s->done && x->moved == x->bytes && s->verdicts == 0);
  s->done++;
}

void gy_on_link_down(struct gy_link *l, gyre_status why, int sys_errno) {
  struct state *s = l->end;
  s->verdicts++;
  require(why == GYRE_ERR_PROTO || (why == GYRE_ERR_PEER_LOST && sys_errno == 0));
  s->verdict = why == GYRE_ERR_PROTO ? NO_FRAME : LOST;
}

void gy_on_mismatch(struct gy_link *l, const struct gy_descriptor *mine,
                    const struct gy_descriptor *theirs) {
  struct state *s = l->end;
  require(memcmp(mine, theirs, sizeof *mine) != 0);
  s->verdicts++;
  s->verdict = OTHER_CALL;
}

void gy_on_unclaimed(struct gy_link *l, const struct gy_descriptor *theirs) {
  (void)l, (void)theirs;
}

/* ------------------------------------------------------------------------------- what must be --- */

struct script { /* what is posted, and where its payload came in the stream */
  size_t bytes[RECEIVES], at[RECEIVES];
  bool reduced[RECEIVES];
};

static struct script script_of(uint8_t choice) {
  struct script s;
  for (unsigned k = 0; k < RECEIVES; k++) {
    s.bytes[k] = sizes[(choice + k * 3u) % 8];
    s.reduced[k] = (((choice >> 3) + k) & 1) != 0;
  }
  return s;
}

static bool same_call(const struct gy_descriptor *d) {
  return (uint32_t)d->seq == (uint32_t)call.seq && d->count == call.count && d->root == call.root &&
         d->coll == call.coll && d->dtype == call.dtype && d->op == call.op && d->algo == call.algo;
}

/* Reads the stream to its end or to what breaks it. */
static enum verdict foretell(struct script *s, const uint8_t *stream, size_t size, bool ends,
                             unsigned *done) {
  size_t at = 0;
  for (*done = 0; *done < RECEIVES; ++*done) {
    struct gy_frame f;
    size_t bytes = s->bytes[*done];
    if (size < at + GY_FRAME_BYTES) return ends ? LOST : NOTHING;
    if (!gy_frame_decode(stream + at, GY_FRAME_BYTES, &f)) return NO_FRAME;
    if (!same_call(&f.call)) return OTHER_CALL;
    if (f.index != *done || f.bytes != bytes) return NO_FRAME;
    if (size < at + f.offset + bytes) return ends ? LOST : NOTHING;
    s->at[*done] = at + f.offset;
    at += f.offset + bytes + gy_frame_tail(f.offset, bytes);
  }
  return NOTHING;
}

/* ---------------------------------------------------------------------------------- the link --- */

struct posted {
  struct gy_reducer sum;
  struct gy_xfer x[RECEIVES];
  uint32_t *to[RECEIVES], *operand[RECEIVES];
};

static void post_all(struct tcp_link *l, const struct script *s, struct posted *p) {
  p->sum = (struct gy_reducer){.kernel = gy_reduce_reference(GYRE_U32, GYRE_SUM)};
  for (unsigned k = 0; k < RECEIVES; k++) {
    p->to[k] = malloc(s->bytes[k] + 4);
    p->operand[k] = malloc(s->bytes[k] + 4);
    require(p->to[k] && p->operand[k]);
    for (size_t i = 0; i < s->bytes[k] / 4; i++) p->operand[k][i] = (uint32_t)(i * 77 + k);
    p->x[k] = (struct gy_xfer){
        .addr = p->to[k], .bytes = s->bytes[k], .esize = 4, .index = k, .call = &call};
    if (s->reduced[k]) {
      p->x[k].operand = p->operand[k];
      p->x[k].reducer = &p->sum;
    }
    *l->rx.tail = &p->x[k];
    l->rx.tail = &p->x[k].next;
  }
}

static void check_data(const struct script *s, const struct posted *p, unsigned done,
                       const uint8_t *stream) {
  for (unsigned k = 0; k < done; k++) {
    for (size_t i = 0; i < s->bytes[k] / 4; i++) {
      uint32_t sent;
      memcpy(&sent, stream + s->at[k] + i * 4, 4);
      require(p->to[k][i] == sent + (s->reduced[k] ? p->operand[k][i] : 0));
    }
  }
}

static void receive_all(struct tcp_link *l) {
  while (l->rx.head && !l->down && gy_tcp_receive(l)) {}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static uint8_t staging[STAGING_BYTES + 4096];
  struct tcp t = {.staging = staging};
  struct state state = {0, NOTHING, 0};
  int fd[2];
  if (size < 2) return 0;
  size_t piece = 1 + (size_t)(data[0] & 0x7f) * (data[0] & 0x7f) * 3, sent = 0;
  bool ends = data[0] & 0x80;
  struct script s = script_of(data[1]);
  struct posted p;
  const uint8_t *stream = data + 2;
  size -= 2;
  require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd) == 0);
  struct tcp_link l = {.tcp = &t, .fd = fd[0], .base = {.end = &state}, .head = GY_FRAME_BYTES};
  l.rx.tail = &l.rx.head;
  post_all(&l, &s, &p);
  while (sent < size && !l.down && l.rx.head) {
    size_t n = size - sent < piece ? size - sent : piece;
    ssize_t wrote = send(fd[1], stream + sent, n, MSG_NOSIGNAL);
    if (wrote > 0) sent += (size_t)wrote;
    receive_all(&l);
  }
  if (ends) shutdown(fd[1], SHUT_WR);
  receive_all(&l);
  unsigned done;
  enum verdict want = foretell(&s, stream, size, ends, &done);
  require(state.done == done);
  require(state.verdict == want && state.verdicts == (want != NOTHING));
  check_data(&s, &p, done, stream);
  for (unsigned k = 0; k < RECEIVES; k++) {
    free(p.to[k]);
    free(p.operand[k]);
  }
  close(fd[0]);
  close(fd[1]);
  return 0;
}

#ifndef GY_LIBFUZZER
static uint32_t draw(uint32_t *seed) {
  *seed = *seed * 1664525u + 1013904223u;
  return *seed >> 8;
}

static size_t add_frame(uint32_t *seed, uint8_t *out, unsigned index, size_t bytes) {
  size_t offset = bytes > GY_FRAME_SMALL ? GY_FRAME_BYTES + draw(seed) % 64 : GY_FRAME_BYTES;
  struct gy_frame f = {.type = GY_FRAME_SLICE,
                       .offset = (uint16_t)offset,
                       .bytes = (uint32_t)bytes,
                       .index = index,
                       .call = call};
  size_t whole = offset + bytes + gy_frame_tail(offset, bytes);
  memset(out, (int)(draw(seed) & 0xFF), whole);
  for (size_t i = 0; i < bytes; i += 1 + draw(seed) % 9) out[offset + i] = (uint8_t)draw(seed);
  gy_frame_encode(&f, GY_FRAME_BYTES, out);
  return whole;
}

/* A valid stream for what will be posted; then headers, mostly, are damaged, or bytes are lost or
 * repeated. */
static size_t generate(uint32_t seed, uint8_t *out, size_t capacity) {
  size_t len = 2, header[RECEIVES];
  out[0] = (uint8_t)draw(&seed);
  out[1] = (uint8_t)draw(&seed);
  struct script s = script_of(out[1]);
  unsigned n = 0;
  for (; n < RECEIVES && len + s.bytes[n] + 256 < capacity; n++) {
    header[n] = len;
    len += add_frame(&seed, out + len, n, s.bytes[n]);
  }
  if (draw(&seed) % 3 == 0) return len;
  for (uint32_t damage = draw(&seed) % 3; damage > 0; damage--) {
    size_t at = header[draw(&seed) % n] + draw(&seed) % GY_FRAME_BYTES;
    out[at] ^= (uint8_t)(1u << draw(&seed) % 8);
  }
  if (draw(&seed) % 4 == 0) {
    size_t at = 2 + draw(&seed) % (len - 2), gone = 1 + draw(&seed) % 40;
    if (at + gone < len) {
      memmove(out + at, out + at + gone, len - at - gone);
      len -= gone;
    }
  }
  return draw(&seed) % 4 == 0 ? len - draw(&seed) % (len - 1) : len;
}

int main(int argc, char **argv) {
  static uint8_t data[STREAM_MAX];
  for (int i = 1; i < argc; i++)
    if (!replay_folder(argv[i])) return 1;
  for (uint32_t seed = 1; seed <= 1500; seed++)
    LLVMFuzzerTestOneInput(data, generate(seed, data, sizeof data));
  return 0;
}
#endif

/*
 * test_tcp_wire.c - a TCP link against a peer made by hand: golden bytes, frames cut at every
 * place, a peer that is slow, leaves in the middle, or says what it must not.
 *
 * Rank 1 runs the transport, rank 0 is the hand, unless a test says otherwise. The driver spins, so
 * that a write in two pieces is seen in two pieces.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "raw_peer.h"
#include "transport/tcp/link.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

struct fixture {
  struct world w;
  struct end *end;
  int fd;
  uint16_t lane;
};

static struct fixture fix;

/* A new link of rank 1 whose other end is fix.fd. */
static void link_new(struct fixture *f) {
  f->end = end_open(&f->w, 1, 0, ++f->lane);
  f->fd = raw_dial(&f->w, 0, 1, f->lane);
  assert_true(f->fd >= 0);
}

static void link_end(struct fixture *f) {
  end_close(f->end, false);
  if (f->fd >= 0) close(f->fd);
  f->fd = -1;
  f->w.n_end = 0;
}

static struct fixture *fixture_open(void) {
  memset(&fix, 0, sizeof fix);
  world_open(&fix.w, &gy_tcp_ops, 2, 8);
  fix.w.spin = true;
  world_open_transport(&fix.w, 1);
  link_new(&fix);
  return &fix;
}

static void fixture_close(struct fixture *f) {
  if (f->end && f->end->link) link_end(f);
  world_close(&f->w);
}

static void steps(struct world *w, int n) {
  for (int i = 0; i < n; i++) world_step(w);
}

/* ------------------------------------------------------------------------------ golden bytes --- */

static const struct gy_frame golden_frame = {.type = 1,
                                             .offset = 0x5F,
                                             .bytes = 0x04030201,
                                             .index = 0x14131211,
                                             .call = {.seq = 0x28272625,
                                                      .count = UINT64_C(0x3837363534333231),
                                                      .root = 0x44434241,
                                                      .coll = 5,
                                                      .dtype = 11,
                                                      .op = 4,
                                                      .algo = 12}};
static const uint8_t golden_bytes[GY_FRAME_BYTES] = {
    0x01, 0x00, 0x5F, 0x00, 0x01, 0x02, 0x03, 0x04, 0x11, 0x12, 0x13, 0x14, 5,    11,   4,    12,
    0x25, 0x26, 0x27, 0x28, 0x41, 0x42, 0x43, 0x44, 0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38};

static void test_golden_header(void **state) {
  (void)state;
  uint8_t bytes[GY_FRAME_BYTES];
  struct gy_frame f = golden_frame, back;
  gy_frame_encode(&f, GY_FRAME_BYTES, bytes);
  assert_memory_equal(bytes, golden_bytes, sizeof bytes);
  f.call.seq |= UINT64_C(0x99) << 32; /* stays at home */
  gy_frame_encode(&f, GY_FRAME_BYTES, bytes);
  assert_memory_equal(bytes, golden_bytes, sizeof bytes);
  assert_true(gy_frame_decode(golden_bytes, GY_FRAME_BYTES, &back));
  assert_int_equal(back.offset, golden_frame.offset);
  assert_int_equal(back.bytes, golden_frame.bytes);
  assert_int_equal(back.index, golden_frame.index);
  assert_memory_equal(&back.call, &golden_frame.call, sizeof back.call);
}

static bool decodes(unsigned at, uint8_t value, uint32_t bytes) {
  uint8_t header[GY_FRAME_BYTES];
  struct gy_frame f = golden_frame;
  f.offset = GY_FRAME_BYTES;
  f.bytes = bytes;
  gy_frame_encode(&f, GY_FRAME_BYTES, header);
  header[at] = value;
  return gy_frame_decode(header, GY_FRAME_BYTES, &f);
}

static void test_header_is_checked(void **state) {
  (void)state;
  assert_true(decodes(0, 1, 100));
  assert_false(decodes(0, 0, 100));
  assert_false(decodes(0, 2, 100));
  assert_false(decodes(1, 1, 100));
  assert_false(decodes(2, 31, GY_FRAME_SMALL + 1)); /* the payload's place: 32 to 95, 32 for a small one */
  assert_true(decodes(2, 95, GY_FRAME_SMALL + 1));
  assert_false(decodes(2, 96, GY_FRAME_SMALL + 1));
  assert_false(decodes(3, 1, GY_FRAME_SMALL + 1));
  assert_false(decodes(2, 33, GY_FRAME_SMALL));
  assert_int_equal(gy_frame_tail(32, 0), 32);
  assert_int_equal(gy_frame_tail(32, 32), 0);
  assert_int_equal(gy_frame_tail(95, 1), 32);
  assert_int_equal(gy_frame_tail(32, 33), 63);
}

/* ---------------------------------------------------------------------------------- sending --- */

/* Every byte that leaves, read in pieces of at most `piece`. */
static void check_stream(struct fixture *f, size_t piece) {
  static const size_t sizes[] = {0,      1, 31, 32, 33, 4096, GY_FRAME_SMALL, GY_FRAME_SMALL + 1,
                                 100001, 3};
  struct transfer t[COUNT(sizes)];
  uint8_t *out[COUNT(sizes)], *got = malloc(200000);
  unsigned posted = 0;
  for (unsigned k = 0; k < COUNT(sizes); k++) {
    out[k] = (uint8_t *)malloc(sizes[k] + 64) + k * 5;
    pattern_fill(out[k], sizes[k], 1, k);
  }
  uint32_t first = f->end->posted[0];
  for (unsigned k = 0; k < COUNT(sizes); k++) {
    for (; posted < COUNT(sizes) && f->end->posted[0] - f->end->done[0] < 8; posted++)
      post_send(f->end, &t[posted], out[posted], sizes[posted]);
    struct gy_frame h;
    raw_read(&f->w, f->fd, got, GY_FRAME_BYTES, piece);
    assert_true(gy_frame_decode(got, GY_FRAME_BYTES, &h));
    assert_int_equal(h.index, first + k);
    assert_int_equal(h.bytes, sizes[k]);
    assert_int_equal(h.call.seq, (uint32_t)f->end->call.seq);
    assert_int_equal(h.call.count, f->end->call.count);
    size_t want_offset =
        GY_FRAME_BYTES; /* a large payload starts where its source does within a line */
    if (sizes[k] > GY_FRAME_SMALL)
      while (want_offset % 64 != (uintptr_t)out[k] % 64) want_offset++;
    assert_int_equal(h.offset, want_offset);
    size_t whole = (want_offset + sizes[k] + 63) / 64 * 64;
    raw_read(&f->w, f->fd, got, whole - GY_FRAME_BYTES, piece);
    for (size_t i = 0; i < want_offset - GY_FRAME_BYTES; i++) assert_int_equal(got[i], 0);
    pattern_check(got + want_offset - GY_FRAME_BYTES, sizes[k], 1, k);
    for (size_t i = want_offset + sizes[k]; i < whole; i++)
      assert_int_equal(got[i - GY_FRAME_BYTES], 0);
    WORLD_UNTIL(&f->w, f->end->done[0] > first + k);
  }
  for (unsigned k = 0; k < COUNT(sizes); k++) free(out[k] - k * 5);
  free(got);
}

static void test_sent_stream(void **state) {
  (void)state;
  struct fixture *f = fixture_open();
  check_stream(f, 1u << 20);
  check_stream(f, 777);
  fixture_close(f);
}

/* Both buffers so small that most writes are short ones, at ever different places. */
static void test_short_writes(void **state) {
  (void)state;
  struct fixture *f = fixture_open();
  int small = 4096;
  setsockopt(((struct tcp_link *)f->end->link)->fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  setsockopt(f->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  check_stream(f, 61);
  check_stream(f, 1);
  fixture_close(f);
}

/* -------------------------------------------------------------------------------- receiving --- */

struct shape { /* of a received message */
  bool plain;
  struct reduction r;
};

static const struct shape shapes[] = {
    {.plain = true},
    {.r = {GYRE_U8, GYRE_SUM, false, 0}},
    {.r = {GYRE_I16, GYRE_MAX, true, 0}},
    {.r = {GYRE_BF16, GYRE_SUM, true, 0}},
    {.r = {GYRE_F32, GYRE_AVG, false, 3}},
    {.r = {GYRE_I64, GYRE_AVG, true, 7}},
};

struct expectation { /* a message that is to be received */
  struct transfer t;
  uint8_t *incoming, *operand, *out, *want;
  size_t bytes;
};

static void small_values(uint8_t *at, const struct shape *s, size_t bytes, unsigned who) {
  pattern_fill(at, bytes, who, 0);
  for (size_t i = 0; i + 4 <= bytes && s->r.type == GYRE_F32; i += 4) {
    float v = (float)(at[i] % 16);
    memcpy(at + i, &v, 4);
  }
  for (size_t i = 0; i + 2 <= bytes && s->r.type == GYRE_BF16; i += 2) {
    uint16_t v = gy_f32_to_bf16((float)(at[i] % 16));
    memcpy(at + i, &v, 2);
  }
}

static void expect(struct end *e, struct expectation *x, const struct shape *s, size_t elements) {
  size_t esize = s->plain ? 1 : gyre_dtype_size(s->r.type), bytes = elements * esize;
  x->bytes = bytes;
  x->incoming = malloc(4 * (bytes + 8));
  x->operand = x->incoming + bytes + 8;
  x->out = x->operand + bytes + 8;
  x->want = x->out + bytes + 8;
  small_values(x->incoming, s, bytes, 3);
  small_values(x->operand, s, bytes, 5);
  memset(x->out, 0xC3, bytes + 8);
  if (s->plain) {
    memcpy(x->want, x->incoming, bytes);
    post_recv(e, &x->t, x->out, bytes);
  } else {
    gy_reduce_reference(s->r.type, s->r.op)(x->want, s->r.swap ? x->incoming : x->operand,
                                            s->r.swap ? x->operand : x->incoming, elements,
                                            s->r.finish);
    post_reduce(e, &x->t, &s->r, x->out, x->operand, bytes);
  }
}

static void met(struct fixture *f, struct expectation *x) {
  WORLD_UNTIL(&f->w, x->t.done);
  if (x->bytes) assert_memory_equal(x->out, x->want, x->bytes);
  for (size_t i = 0; i < 8; i++) assert_int_equal(x->out[x->bytes + i], 0xC3);
  free(x->incoming);
}

/* Two frames, the first of them of this shape, written in two pieces that meet at `cut`. */
static void receive_cut(struct fixture *f, const struct shape *s, size_t elements, size_t offset,
                        size_t cut, uint8_t *stream) {
  struct expectation x, next;
  uint32_t index = f->end->posted[1];
  expect(f->end, &x, s, elements);
  expect(f->end, &next, &shapes[0], 9);
  size_t n = raw_frame(stream, &f->end->call, index, offset, x.incoming, x.bytes);
  n += raw_frame(stream + n, &f->end->call, index + 1, GY_FRAME_BYTES, next.incoming, 9);
  if (cut > n) cut = n;
  raw_write(&f->w, f->fd, stream, cut);
  steps(&f->w, 3);
  raw_write(&f->w, f->fd, stream + cut, n - cut);
  met(f, &x);
  met(f, &next);
  assert_int_equal(f->end->downs + f->end->mismatches, 0);
}

static void test_cut_at_every_byte(void **state) {
  (void)state;
  static uint8_t stream[512];
  struct fixture *f = fixture_open();
  for (size_t s = 0; s < COUNT(shapes); s++) {
    size_t elements = shapes[s].plain ? 45 : 88 / gyre_dtype_size(shapes[s].r.type);
    for (size_t cut = 0; cut <= 192; cut++)
      receive_cut(f, &shapes[s], elements, GY_FRAME_BYTES, cut, stream);
    receive_cut(f, &shapes[s], 0, GY_FRAME_BYTES, 20, stream);
  }
  fixture_close(f);
}

/* Frames whose payload is staged, stands at an odd place, and is larger than the staging buffer. */
static void test_cut_large_frames(void **state) {
  (void)state;
  static const size_t offsets[] = {32, 33, 47, 64, 95},
                      sizes[] = {GY_FRAME_SMALL + 8, STAGING_BYTES + 24};
  uint8_t *stream = malloc(STAGING_BYTES + 1024);
  struct fixture *f = fixture_open();
  uint64_t seed = 5;
  for (size_t s = 0; s < COUNT(shapes); s++) {
    for (size_t k = 0; k < COUNT(sizes); k++) {
      size_t elements = sizes[k] / (shapes[s].plain ? 1 : gyre_dtype_size(shapes[s].r.type));
      for (size_t o = 0; o < COUNT(offsets); o++) {
        size_t end = offsets[o] + sizes[k];
        size_t cuts[] = {31,
                         32,
                         33,
                         offsets[o],
                         offsets[o] + 3,
                         4000,
                         end - 1,
                         end,
                         end + 1,
                         (size_t)test_random(&seed, end),
                         (size_t)test_random(&seed, end)};
        for (size_t c = o % 2; c < COUNT(cuts); c += 2)
          receive_cut(f, &shapes[s], elements, offsets[o], cuts[c], stream);
      }
    }
  }
  fixture_close(f);
  free(stream);
}

static void test_byte_by_byte(void **state) {
  (void)state;
  uint8_t stream[1024];
  struct fixture *f = fixture_open();
  struct expectation x[COUNT(shapes)];
  size_t n = 0;
  for (unsigned s = 0; s < COUNT(shapes); s++) {
    expect(f->end, &x[s], &shapes[s], 8 + s);
    n += raw_frame(stream + n, &f->end->call, s, GY_FRAME_BYTES, x[s].incoming, x[s].bytes);
  }
  for (size_t i = 0; i < n; i++) raw_write(&f->w, f->fd, stream + i, 1);
  for (unsigned s = 0; s < COUNT(shapes); s++) met(f, &x[s]);
  assert_int_equal(f->end->downs, 0);
  fixture_close(f);
}

/* A hundred frames in one write, received one after the other: none is taken before its receive is
 * posted. */
static void test_frames_wait_for_their_receives(void **state) {
  (void)state;
  enum { N = 100 };
  static uint8_t stream[N * 128];
  struct fixture *f = fixture_open();
  size_t n = 0;
  uint8_t payload[40], got[48];
  struct transfer t;
  for (unsigned k = 0; k < N; k++) {
    pattern_fill(payload, sizeof payload, 0, k);
    n += raw_frame(stream + n, &f->end->call, k, GY_FRAME_BYTES, payload, k % 41);
  }
  raw_write(&f->w, f->fd, stream, n);
  for (unsigned k = 0; k < N; k++) {
    memset(got, 0, sizeof got);
    post_recv(f->end, &t, got, k % 41);
    WORLD_UNTIL(&f->w, t.done);
    pattern_check(got, k % 41, 0, k);
    for (size_t i = k % 41; i < sizeof got; i++) assert_int_equal(got[i], 0);
    steps(&f->w, (int)(k % 3));
  }
  fixture_close(f);
}

/* ---------------------------------------------------------------------------------- nonsense --- */

/* What was written breaks the link, once, as PROTO, with this in the text; a byte at a time too. */
static void breaks(struct fixture *f, const uint8_t *bytes, size_t n, size_t posted,
                   const char *text) {
  for (int pieces = 0; pieces < 2; pieces++) {
    struct transfer t;
    uint8_t *got = calloc(1, posted + 1);
    post_recv(f->end, &t, got, posted);
    for (size_t i = 0; pieces && i + 1 < n && i < 64 && !f->end->downs; i++) {
      raw_write(&f->w, f->fd, bytes + i, 1);
    }
    size_t already = pieces ? (n < 65 ? n - 1 : 64) : 0;
    if (!f->end->downs) send(f->fd, bytes + already, n - already, MSG_NOSIGNAL);
    WORLD_UNTIL(&f->w, f->end->downs || f->end->mismatches);
    steps(&f->w, 5);
    assert_int_equal(f->end->downs, 1);
    assert_int_equal(f->end->why, GYRE_ERR_PROTO);
    if (!strstr(f->end->text, text)) fail_msg("\"%s\" is not in \"%s\"", text, f->end->text);
    assert_false(t.done);
    link_end(f);
    free(got);
    link_new(f);
  }
}

static void test_nonsense(void **state) {
  (void)state;
  uint8_t bytes[512], payload[100] = {0};
  struct fixture *f = fixture_open();
  const struct gy_descriptor *call = &f->end->call;
  memset(bytes, 0xFF, sizeof bytes);
  breaks(f, bytes, 64, 100, "no frame");
  memset(bytes, 0, sizeof bytes);
  breaks(f, bytes, 64, 100, "no frame");
  memcpy(bytes, "GET / HTTP/1.1\r\nHost: here\r\nAccept: */*\r\n\r\n", 44);
  breaks(f, bytes, 44, 100, "no frame");
  size_t n = raw_frame(bytes, call, 1, 32, payload, 100);
  breaks(f, bytes, n, 100, "frame 1 of 100 bytes came where frame 0 of 100 bytes was due");
  n = raw_frame(bytes, call, 0, 32, payload, 99);
  breaks(f, bytes, n, 100, "of 99 bytes");
  n = raw_frame(bytes, call, 0, 32, payload, 100);
  breaks(f, bytes, n, 99, "of 100 bytes");
  breaks(f, bytes, n, GY_FRAME_SMALL + 1, "of 100 bytes");
  n = raw_frame(bytes, call, 0, 32, payload, 100);
  bytes[1] = 0x80;
  breaks(f, bytes, n, 100, "no frame");
  fixture_close(f);
}

/* An end anywhere in a frame is the peer's loss, and never a message. */
static void test_end_within_a_frame(void **state) {
  (void)state;
  static const size_t ends[] = {0, 1, 31, 32, 33, 60, 131};
  uint8_t bytes[256], payload[100] = {7};
  for (int reset = 0; reset < 2; reset++) {
    struct fixture *f = fixture_open();
    for (size_t k = 0; k < COUNT(ends); k++) {
      struct transfer t;
      uint8_t got[100];
      post_recv(f->end, &t, got, sizeof got);
      raw_frame(bytes, &f->end->call, 0, 32, payload, sizeof payload);
      raw_write(&f->w, f->fd, bytes, ends[k]);
      steps(&f->w, 3);
      struct linger hard = {1, 0};
      if (reset) setsockopt(f->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
      close(f->fd);
      f->fd = -1;
      WORLD_UNTIL(&f->w, f->end->downs);
      steps(&f->w, 5);
      assert_int_equal(f->end->downs, 1);
      assert_int_equal(f->end->why, GYRE_ERR_PEER_LOST);
      assert_int_equal(f->end->sys_errno, reset ? ECONNRESET : 0);
      assert_false(t.done);
      link_end(f);
      link_new(f);
    }
    fixture_close(f);
  }
}

/* A peer that will send no more may still be sent to; what it had sent counts. */
static void test_half_close(void **state) {
  (void)state;
  uint8_t bytes[256], payload[20], got[20], out[50];
  struct fixture *f = fixture_open();
  struct transfer in, more, send;
  pattern_fill(payload, sizeof payload, 0, 0);
  pattern_fill(out, sizeof out, 1, 0);
  post_recv(f->end, &in, got, sizeof got);
  size_t n = raw_frame(bytes, &f->end->call, 0, 32, payload, sizeof payload);
  raw_write(&f->w, f->fd, bytes, n);
  shutdown(f->fd, SHUT_WR);
  WORLD_UNTIL(&f->w, in.done);
  pattern_check(got, sizeof got, 0, 0);
  steps(&f->w, 10);
  assert_int_equal(f->end->downs, 0);
  post_send(f->end, &send, out, sizeof out);
  raw_read(&f->w, f->fd, bytes, 128, 128);
  pattern_check(bytes + 32, sizeof out, 1, 0);
  WORLD_UNTIL(&f->w, send.done);
  post_recv(f->end, &more, got, sizeof got);
  WORLD_UNTIL(&f->w, f->end->downs);
  assert_int_equal(f->end->why, GYRE_ERR_PEER_LOST);
  fixture_close(f);
}

/* Sending into a connection that was reset is reported once and raises no signal, also where the
 * kernel says EPIPE: after an orderly end in the other direction. */
static void test_send_after_reset(void **state) {
  (void)state;
  static uint8_t out[300000];
  for (int ended = 0; ended < 2; ended++) {
    struct fixture *f = fixture_open();
    struct linger hard = {1, 0};
    struct transfer t[3];
    if (ended) shutdown(f->fd, SHUT_WR);
    setsockopt(f->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close(f->fd);
    f->fd = -1;
    for (int k = 0; k < 3; k++) post_send(f->end, &t[k], out, sizeof out);
    WORLD_UNTIL(&f->w, f->end->downs);
    steps(&f->w, 10);
    assert_int_equal(f->end->downs, 1);
    assert_int_equal(f->end->sys_errno, ended ? EPIPE : ECONNRESET);
    fixture_close(f);
  }
}

/* A peer that goes without having read everything resets the connection; what it had sent is
 * received all the same, even if it is a send that notices first. */
static void test_last_words_are_read(void **state) {
  (void)state;
  uint8_t bytes[256], payload[20], got[2][20], out[100] = {1};
  struct fixture *f = fixture_open();
  struct transfer in[2], send[2];
  pattern_fill(payload, sizeof payload, 0, 0);
  post_send(f->end, &send[0], out, sizeof out);
  WORLD_UNTIL(&f->w, send[0].done);
  steps(&f->w, 2);
  size_t n = raw_frame(bytes, &f->end->call, 0, 32, payload, sizeof payload);
  assert_int_equal(write(f->fd, bytes, n), n);
  close(f->fd);
  f->fd = -1;
  for (int k = 0; k < 2; k++) post_recv(f->end, &in[k], got[k], sizeof got[k]);
  post_send(f->end, &send[1], out, sizeof out);
  assert_int_equal(f->end->downs, 0);
  WORLD_UNTIL(&f->w, f->end->downs);
  assert_true(in[0].done);
  pattern_check(got[0], sizeof got[0], 0, 0);
  assert_false(in[1].done);
  assert_true(f->end->sys_errno == ECONNRESET || f->end->sys_errno == EPIPE);
  fixture_close(f);
}

/* A frame that nobody has asked for is named while everybody sleeps, and received later all the
 * same. */
static void test_unclaimed(void **state) {
  (void)state;
  uint8_t bytes[256], payload[20], got[20];
  struct fixture *f = fixture_open();
  struct transfer in;
  f->w.spin = false;
  world_idle(&f->w, 10); /* nothing is there, and nothing is asked for */
  struct gy_descriptor call = f->end->call;
  call.root = 5;
  pattern_fill(payload, sizeof payload, 0, 0);
  size_t n = raw_frame(bytes, &call, 0, 32, payload, sizeof payload);
  assert_int_equal(send(f->fd, bytes, n, MSG_NOSIGNAL), n);
  world_idle(&f->w, 20);
  assert_true(f->end->unclaimed > 0);
  assert_int_equal(f->end->theirs.root, 5);
  assert_int_equal(f->end->theirs.seq, (uint32_t)call.seq);
  unsigned turns = f->w.turns;
  world_idle(&f->w, 60);
  assert_true(f->w.turns - turns < 20);
  f->end->call.root = 5;
  post_recv(f->end, &in, got, sizeof got);
  WORLD_UNTIL(&f->w, in.done);
  pattern_check(got, sizeof got, 0, 0);
  fixture_close(f);
}

/* ------------------------------------------------------------------------------- connections --- */

static void test_refused_dialler(void **state) {
  (void)state;
  struct fixture *f = fixture_open();
  assert_int_equal(raw_dial(&f->w, 0, 1, f->lane), -1); /* a second connection of a lane */
  if (!strstr(gyre_last_error(), "already")) fail_msg("%s", gyre_last_error());
  int early = raw_dial(&f->w, 0, 1, 77); /* nobody has opened that lane yet: it waits */
  assert_true(early >= 0);
  assert_int_equal(raw_dial(&f->w, 0, 1, 77), -1);
  if (!strstr(gyre_last_error(), "already")) fail_msg("%s", gyre_last_error());
  unsigned fds = count_fds();
  struct transfer in;
  uint8_t bytes[64], byte = 0;
  struct end *e = end_open(&f->w, 1, 0, 77);
  assert_int_equal(count_fds(), fds);
  post_recv(e, &in, &byte, 1);
  raw_write(&f->w, early, bytes, raw_frame(bytes, &e->call, 0, 32, "x", 1));
  WORLD_UNTIL(&f->w, in.done);
  assert_int_equal(byte, 'x');
  int unused = raw_dial(&f->w, 0, 1, 78); /* closed with the transport */
  world_close_transports(&f->w);
  f->end = NULL;
  WORLD_UNTIL(&f->w, recv(unused, bytes, 1, MSG_DONTWAIT) == 0);
  close(unused);
  close(early);
  close(f->fd);
  fixture_close(f);
}

/* Rank 1 has nothing to dial rank 0 for. */
static void test_wrong_direction(void **state) {
  (void)state;
  memset(&fix, 0, sizeof fix);
  world_open(&fix.w, &gy_tcp_ops, 2, 8);
  fix.w.spin = true;
  world_open_transport(&fix.w, 0);
  assert_int_equal(raw_dial(&fix.w, 1, 0, 0), -1);
  if (!strstr(gyre_last_error(), "no business")) fail_msg("%s", gyre_last_error());
  fixture_close(&fix);
}

/* A transport that dials: the peer by hand accepts, and is sent what was posted before. */
static void test_dialling(void **state) {
  (void)state;
  memset(&fix, 0, sizeof fix);
  world_open(&fix.w, &gy_tcp_ops, 2, 8);
  fix.w.spin = true;
  world_open_transport(&fix.w, 0);
  struct transfer t;
  uint8_t out[10], got[64];
  struct end *e = end_open(&fix.w, 0, 1, 3);
  pattern_fill(out, sizeof out, 0, 0);
  post_send(e, &t, out, sizeof out);
  fix.fd = raw_accept(&fix.w, 1);
  raw_read(&fix.w, fix.fd, got, sizeof got, 64);
  pattern_check(got + 32, sizeof out, 0, 0);
  WORLD_UNTIL(&fix.w, t.done);
  close(fix.fd);
  fixture_close(&fix);
}

static uint16_t closed_port(void) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t len = sizeof a;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_true(fd >= 0);
  assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
  assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
  close(fd);
  return ntohs(a.sin_port);
}

/* Nobody listens where the peer should be: the link ends after the time-out with the address in the
 * text. */
static void test_connection_refused(void **state) {
  (void)state;
  memset(&fix, 0, sizeof fix);
  world_open(&fix.w, &gy_tcp_ops, 2, 8);
  fix.w.rank[0].settings.connect_timeout_ms = 300;
  struct gy_address *a = &fix.w.member[1].address[0];
  memset(a, 0, sizeof *a);
  a->sa.v4 = (struct sockaddr_in){
      .sin_family = AF_INET, .sin_port = htons(closed_port()), .sin_addr = {htonl(INADDR_LOOPBACK)}};
  fix.w.member[1].n_address = 1;
  world_open_transport(&fix.w, 0);
  struct transfer send, recv;
  uint8_t byte = 1;
  struct end *e = end_open(&fix.w, 0, 1, 0);
  post_send(e, &send, &byte, 1);
  post_recv(e, &recv, &byte, 1);
  WORLD_UNTIL(&fix.w, e->downs);
  assert_int_equal(e->downs, 1);
  assert_int_equal(e->why, GYRE_ERR_TIMEOUT);
  assert_non_null(strstr(e->text, "127.0.0.1"));
  assert_non_null(strstr(e->text, "refused"));
  world_idle(&fix.w, 20);
  assert_int_equal(e->downs, 1);
  end_close(e, true);
  fixture_close(&fix);
}

/* Another host that told loopback addresses alone cannot be dialled; that is said at once. */
static void test_unreachable(void **state) {
  (void)state;
  memset(&fix, 0, sizeof fix);
  world_open(&fix.w, &gy_tcp_ops, 2, 8);
  memset(fix.w.member[1].host, 0x55, sizeof fix.w.member[1].host);
  world_open_transport(&fix.w, 0);
  struct gy_link *l;
  assert_int_equal(gy_tcp_ops.link_open(fix.w.rank[0].tl, 1, 0, NULL, &l), GYRE_ERR_SYS);
  assert_non_null(strstr(gyre_last_error(), "rank 1"));
  char why[200];
  fix.w.member[1].n_address = 0;
  assert_int_equal(gy_tcp_ops.reach(&fix.w.rank[0].core, 1, why, sizeof why), 0);
  assert_non_null(strstr(why, "no address"));
  fixture_close(&fix);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_golden_header),
      cmocka_unit_test(test_header_is_checked),
      cmocka_unit_test(test_sent_stream),
      cmocka_unit_test(test_short_writes),
      cmocka_unit_test(test_cut_at_every_byte),
      cmocka_unit_test(test_cut_large_frames),
      cmocka_unit_test(test_byte_by_byte),
      cmocka_unit_test(test_frames_wait_for_their_receives),
      cmocka_unit_test(test_nonsense),
      cmocka_unit_test(test_end_within_a_frame),
      cmocka_unit_test(test_half_close),
      cmocka_unit_test(test_send_after_reset),
      cmocka_unit_test(test_last_words_are_read),
      cmocka_unit_test(test_unclaimed),
      cmocka_unit_test(test_refused_dialler),
      cmocka_unit_test(test_wrong_direction),
      cmocka_unit_test(test_dialling),
      cmocka_unit_test(test_connection_refused),
      cmocka_unit_test(test_unreachable),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

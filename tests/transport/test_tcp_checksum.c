/*
 * test_tcp_checksum.c - TCP links whose frames carry checksums: golden bytes, what every transport
 * must do with data, and one flipped bit at every place of a frame.
 */
#include "conformance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "crc32c.h"
#include "raw_peer.h"
#include "transport/tcp/link.h"

static const size_t borders[] = {GY_FRAME_SMALL, STAGING_BYTES};
static const struct conformance summed = {&gy_tcp_ops, borders, 2, 0, true, NULL, true};
const struct conformance *conformance = &summed;

/* ------------------------------------------------------------------------------ golden bytes --- */

static const struct gy_frame golden_frame = {.type = 1,
                                             .offset = 0x67,
                                             .bytes = 0x04030201,
                                             .index = 0x14131211,
                                             .payload_sum = 0x54535251,
                                             .call = {.seq = 0x28272625,
                                                      .count = UINT64_C(0x3837363534333231),
                                                      .root = 0x44434241,
                                                      .coll = 5,
                                                      .dtype = 11,
                                                      .op = 4,
                                                      .algo = 12}};
static const uint8_t golden_bytes[GY_FRAME_SUMMED] = {
    0x01, 0x01, 0x67, 0x00, 0x01, 0x02, 0x03, 0x04, 0x11, 0x12, 0x13, 0x14, 5,    11,
    4,    12,   0x25, 0x26, 0x27, 0x28, 0x41, 0x42, 0x43, 0x44, 0x31, 0x32, 0x33, 0x34,
    0x35, 0x36, 0x37, 0x38, 0x51, 0x52, 0x53, 0x54, 0,    0,    0,    0};

static void golden_header(void **state) {
  (void)state;
  uint8_t bytes[GY_FRAME_SUMMED], want[GY_FRAME_SUMMED];
  struct gy_frame back;
  memcpy(want, golden_bytes, sizeof want);
  uint32_t sum = gy_crc32c_portable(0, golden_bytes, 36);
  for (int i = 0; i < 4; i++) want[36 + i] = (uint8_t)(sum >> 8 * i);
  gy_frame_encode(&golden_frame, GY_FRAME_SUMMED, bytes);
  assert_memory_equal(bytes, want, sizeof bytes);
  assert_int_equal(gy_frame_sum(bytes), sum);
  assert_int_equal(gy_frame_stated_sum(bytes), sum);
  assert_true(gy_frame_decode(bytes, GY_FRAME_SUMMED, &back));
  assert_int_equal(back.payload_sum, golden_frame.payload_sum);
  assert_int_equal(back.offset, golden_frame.offset);
  assert_false(gy_frame_decode(bytes, GY_FRAME_BYTES, &back)); /* both ends agree on it */
  bytes[1] = 0;
  assert_false(gy_frame_decode(bytes, GY_FRAME_SUMMED, &back));
}

/* -------------------------------------------------------------------------------- a hand's link --- */

struct fixture {
  struct world w;
  struct end *end;
  int fd;
  uint16_t lane;
};

static struct fixture fix;

static void link_new(struct fixture *f) {
  f->end = end_open(&f->w, 1, 0, ++f->lane);
  f->fd = raw_dial(&f->w, 0, 1, f->lane);
  assert_true(f->fd >= 0);
}

static void link_end(struct fixture *f) {
  end_close(f->end, false);
  close(f->fd);
  f->w.n_end = 0;
}

static struct fixture *fixture_open(void) {
  memset(&fix, 0, sizeof fix);
  world_open(&fix.w, &gy_tcp_ops, 2, 8);
  fix.w.spin = true;
  fix.w.roster.agreed.checksum = true;
  world_open_transport(&fix.w, 1);
  link_new(&fix);
  return &fix;
}

static void what_is_sent_has_its_checksums(void **state) {
  (void)state;
  static uint8_t out[GY_FRAME_SMALL + 100], got[GY_FRAME_SMALL + 300];
  static const size_t sizes[] = {0, 1, 24, 100, GY_FRAME_SMALL, GY_FRAME_SMALL + 1};
  struct fixture *f = fixture_open();
  for (unsigned k = 0; k < sizeof sizes / sizeof *sizes; k++) {
    struct transfer t;
    struct gy_frame h;
    pattern_fill(out, sizes[k], 1, k);
    post_send(f->end, &t, out, sizes[k]);
    raw_read(&f->w, f->fd, got, GY_FRAME_SUMMED, 7);
    assert_true(gy_frame_decode(got, GY_FRAME_SUMMED, &h));
    assert_int_equal(gy_frame_stated_sum(got), gy_crc32c_portable(0, got, 36));
    assert_int_equal(h.payload_sum, gy_crc32c_portable(0, out, sizes[k]));
    size_t rest = h.offset + sizes[k] + gy_frame_tail(h.offset, sizes[k]) - GY_FRAME_SUMMED;
    raw_read(&f->w, f->fd, got, rest, 5000);
    pattern_check(got + h.offset - GY_FRAME_SUMMED, sizes[k], 1, k);
    WORLD_UNTIL(&f->w, t.done);
  }
  link_end(f);
  world_close(&f->w);
}

/* ----------------------------------------------------------------------------- flipped bits --- */

static const struct reduction f32_sum = {GYRE_F32, GYRE_SUM, false, 0};

/* One frame with one bit flipped, in two pieces: it ends the link, and the slice is not done. */
static void flip(struct fixture *f, size_t bytes, size_t offset, size_t bit, bool reduce,
                 const char *text) {
  uint8_t *frame = calloc(1, bytes + 256), *payload = calloc(1, bytes), *to = calloc(2, bytes);
  struct transfer t;
  if (reduce) post_reduce(f->end, &t, &f32_sum, to, to + bytes, bytes);
  else post_recv(f->end, &t, to, bytes);
  size_t n = raw_frame_summed(frame, &f->end->call, 0, offset, payload, bytes);
  frame[bit / 8] ^= (uint8_t)(1u << bit % 8);
  size_t cut = bit * 7 % n;
  raw_write(&f->w, f->fd, frame, cut);
  world_step(&f->w);
  if (!f->end->downs) send(f->fd, frame + cut, n - cut, MSG_NOSIGNAL);
  WORLD_UNTIL(&f->w, f->end->downs || t.done || f->end->mismatches);
  if (t.done || f->end->mismatches || f->end->why != GYRE_ERR_PROTO)
    fail_msg("bit %zu of %zu bytes: %s", bit, bytes, t.done ? "not noticed" : f->end->text);
  if (!strstr(f->end->text, text)) fail_msg("\"%s\" is not in \"%s\"", text, f->end->text);
  world_step(&f->w);
  assert_int_equal(f->end->downs, 1);
  link_end(f);
  link_new(f);
  free(frame);
  free(payload);
  free(to);
}

static void a_flipped_bit_ends_the_link(void **state) {
  (void)state;
  struct fixture *f = fixture_open();
  for (size_t bit = 0; bit < 8 * GY_FRAME_SUMMED; bit++)
    flip(f, 24, GY_FRAME_SUMMED, bit, bit % 2, "checksum of the header");
  for (size_t bit = 0; bit < 8 * 24; bit++)
    flip(f, 24, GY_FRAME_SUMMED, 8 * GY_FRAME_SUMMED + bit, bit % 2, "checksum of the payload");
  for (size_t k = 0; k < 40; k++) {
    size_t bytes = STAGING_BYTES + 24, offset = GY_FRAME_SUMMED + k, bit = k * 52631 % (8 * bytes);
    flip(f, bytes, offset, 8 * offset + bit, k % 2, "checksum of the payload");
  }
  link_end(f);
  world_close(&f->w);
}

static void the_text_says_where(void **state) {
  (void)state;
  char sent[32];
  const char *const said[] = {"rank 0 (",
                              "rank 1 (",
                              "127.0.0.1:",
                              "message 0",
                              "instruction 0 slice 0",
                              "operation 21474836482",
                              "is 0x",
                              sent};
  struct fixture *f = fixture_open();
  struct transfer t;
  uint8_t frame[128], payload[4] = {0}, got[4];
  post_recv(f->end, &t, got, sizeof got);
  size_t n = raw_frame_summed(frame, &f->end->call, 0, GY_FRAME_SUMMED, payload, sizeof payload);
  frame[GY_FRAME_SUMMED] = 1;
  raw_write(&f->w, f->fd, frame, n);
  WORLD_UNTIL(&f->w, f->end->downs);
  snprintf(sent, sizeof sent, "0x%08x was sent", gy_crc32c_portable(0, payload, sizeof payload));
  for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
    if (!strstr(f->end->text, said[i])) fail_msg("\"%s\" is not in \"%s\"", said[i], f->end->text);
  }
  link_end(f);
  world_close(&f->w);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(golden_header),
      cmocka_unit_test(what_is_sent_has_its_checksums),
      cmocka_unit_test(a_flipped_bit_ends_the_link),
      cmocka_unit_test(the_text_says_where),
      cmocka_unit_test(conformance_sizes),
      cmocka_unit_test(conformance_reductions),
      cmocka_unit_test(conformance_random_traffic),
      cmocka_unit_test(conformance_other_call),
      cmocka_unit_test(conformance_graceful_close_loses_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_wire.c - message bodies: the bytes themselves, every short read, and text that does not
 * fit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include "channel.h"

static struct gy_address v4(const char *text, uint16_t port) {
  struct gy_address a;
  memset(&a, 0, sizeof a);
  a.sa.v4.sin_family = AF_INET;
  a.sa.v4.sin_port = htons(port);
  assert_int_equal(inet_pton(AF_INET, text, &a.sa.v4.sin_addr), 1);
  return a;
}

static struct gy_address v6(const char *text, uint16_t port, uint32_t scope) {
  struct gy_address a;
  memset(&a, 0, sizeof a);
  a.sa.v6.sin6_family = AF_INET6;
  a.sa.v6.sin6_port = htons(port);
  a.sa.v6.sin6_scope_id = scope;
  assert_int_equal(inet_pton(AF_INET6, text, &a.sa.v6.sin6_addr), 1);
  return a;
}

static void write_all(struct gy_writer *w) {
  struct gy_address a = v4("10.1.2.3", 0x1234), b = v6("fe80::1", 7, 3);
  gy_w_u8(w, 0xab);
  gy_w_u16(w, 0x0102);
  gy_w_u32(w, 0x01020304u);
  gy_w_u64(w, UINT64_C(0x0102030405060708));
  gy_w_i32(w, -2);
  gy_w_bytes(w, "xyz", 3);
  gy_w_text(w, "hi");
  gy_w_text(w, "");
  gy_w_address(w, &a);
  gy_w_address(w, &b);
}

static const uint8_t golden[] = {
    0xab,                                           /* u8 */
    0x02, 0x01,                                     /* u16 */
    0x04, 0x03, 0x02, 0x01,                         /* u32 */
    0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, /* u64 */
    0xfe, 0xff, 0xff, 0xff,                         /* i32 */
    'x',  'y',  'z',                                /* bytes */
    2,    0,    'h',  'i',                          /* text */
    0,    0,                                        /* empty text */
    4,    0x34, 0x12, 10,   1,    2,    3,          /* IPv4: family, port, address */
    6,    7,    0,    0xfe, 0x80, 0,    0,    0,    0, 0, 0, 0,
    0,    0,    0,    0,    0,    0,    1,    3,    0, 0, 0, /* IPv6, scope */
};

static void test_writes_golden_bytes(void **state) {
  (void)state;
  struct gy_writer w = {0};
  write_all(&w);
  assert_false(w.failed);
  assert_int_equal(w.len, sizeof golden);
  assert_memory_equal(w.data, golden, sizeof golden);
  gy_w_free(&w);
  assert_null(w.data);
  assert_int_equal(w.len, 0);
}

static void read_all(struct gy_reader *r, bool check) {
  char bytes[3], text[8], empty[8];
  struct gy_address a, b, want_a = v4("10.1.2.3", 0x1234), want_b = v6("fe80::1", 7, 3);
  uint8_t x8 = gy_r_u8(r);
  uint16_t x16 = gy_r_u16(r);
  uint32_t x32 = gy_r_u32(r);
  uint64_t x64 = gy_r_u64(r);
  int32_t i32 = gy_r_i32(r);
  gy_r_bytes(r, bytes, sizeof bytes);
  gy_r_text(r, text, sizeof text);
  gy_r_text(r, empty, sizeof empty);
  gy_r_address(r, &a);
  gy_r_address(r, &b);
  if (!check) return;
  assert_int_equal(x8, 0xab);
  assert_int_equal(x16, 0x0102);
  assert_int_equal(x32, 0x01020304u);
  assert_true(x64 == UINT64_C(0x0102030405060708));
  assert_int_equal(i32, -2);
  assert_memory_equal(bytes, "xyz", 3);
  assert_string_equal(text, "hi");
  assert_string_equal(empty, "");
  assert_memory_equal(&a, &want_a, sizeof a);
  assert_memory_equal(&b, &want_b, sizeof b);
}

static void test_reads_back(void **state) {
  (void)state;
  struct gy_reader r = {.data = golden, .len = sizeof golden};
  read_all(&r, true);
  assert_false(r.failed);
  assert_int_equal(r.pos, r.len);
}

/* Whatever is cut off, the reader fails, gives zeros, and touches nothing beyond (the copy is
 * exact, for ASan). */
static void test_every_short_body_fails(void **state) {
  (void)state;
  for (size_t len = 0; len < sizeof golden; len++) {
    uint8_t *copy = malloc(len ? len : 1);
    assert_non_null(copy);
    memcpy(copy, golden, len);
    struct gy_reader r = {.data = copy, .len = len};
    read_all(&r, false);
    assert_true(r.failed);
    assert_true(r.pos <= len);
    assert_int_equal(gy_r_u32(&r), 0); /* stays failed */
    free(copy);
  }
}

static void test_failed_read_gives_zeros(void **state) {
  (void)state;
  uint8_t out[4] = {1, 2, 3, 4};
  char text[4] = "abc";
  struct gy_reader r = {.data = golden, .len = 3};
  gy_r_bytes(&r, out, sizeof out);
  assert_true(r.failed);
  assert_memory_equal(out, "\0\0\0\0", 4);
  gy_r_text(&r, text, sizeof text);
  assert_string_equal(text, "");
}

static void test_text_is_cut_and_terminated(void **state) {
  (void)state;
  struct gy_writer w = {0};
  char out[4];
  gy_w_text(&w, "abcdef");
  gy_w_u8(&w, 9);
  struct gy_reader r = {.data = w.data, .len = w.len};
  gy_r_text(&r, out, sizeof out);
  assert_string_equal(out, "abc");
  assert_int_equal(gy_r_u8(&r), 9); /* the whole text was consumed */
  assert_false(r.failed);
  gy_w_free(&w);
}

static void test_text_of_any_length(void **state) {
  (void)state;
  const size_t long_len = 70000; /* longer than the length field can say: cut to 65535 */
  char *in = malloc(long_len + 1), *out = malloc(long_len + 1);
  assert_non_null(in);
  assert_non_null(out);
  memset(in, 'q', long_len);
  in[long_len] = '\0';
  struct gy_writer w = {0};
  gy_w_text(&w, in);
  assert_int_equal(w.len, 2 + 65535);
  struct gy_reader r = {.data = w.data, .len = w.len};
  gy_r_text(&r, out, long_len + 1);
  assert_false(r.failed);
  assert_int_equal(strlen(out), 65535);
  gy_w_free(&w);
  free(in);
  free(out);
}

static void test_unknown_address_family_fails(void **state) {
  (void)state;
  uint8_t bytes[] = {5, 1, 2, 3, 4, 5, 6};
  struct gy_address a;
  struct gy_reader r = {.data = bytes, .len = sizeof bytes};
  gy_r_address(&r, &a);
  assert_true(r.failed);
  assert_int_equal(a.sa.any.sa_family, AF_INET);
  assert_int_equal(a.sa.v4.sin_addr.s_addr, 0);
}

static void test_writer_grows(void **state) {
  (void)state;
  struct gy_writer w = {0};
  for (uint32_t i = 0; i < 100000; i++) gy_w_u32(&w, i);
  assert_false(w.failed);
  assert_int_equal(w.len, 400000);
  struct gy_reader r = {.data = w.data, .len = w.len};
  for (uint32_t i = 0; i < 100000; i++) assert_int_equal(gy_r_u32(&r), i);
  gy_w_free(&w);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_writes_golden_bytes),
      cmocka_unit_test(test_reads_back),
      cmocka_unit_test(test_every_short_body_fails),
      cmocka_unit_test(test_failed_read_gives_zeros),
      cmocka_unit_test(test_text_is_cut_and_terminated),
      cmocka_unit_test(test_text_of_any_length),
      cmocka_unit_test(test_unknown_address_family_fails),
      cmocka_unit_test(test_writer_grows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_auth.c - HMAC, digests and random bytes against published vectors, and the bytes of the
 * handshake's messages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "handshake.h"
#include "status.h"

static void to_hex(const uint8_t *data, size_t len, char *out) {
  for (size_t i = 0; i < len; i++) sprintf(out + 2 * i, "%02x", data[i]);
}

static void assert_hex(const void *data, size_t len, const char *hex) {
  char text[2 * GY_REJECT_BYTES + 1];
  assert_true(2 * len < sizeof text);
  to_hex(data, len, text);
  assert_string_equal(text, hex);
}

static struct gy_secret secret_of(const char *text) {
  struct gy_secret s = {.len = strlen(text)};
  memcpy(s.bytes, text, s.len);
  return s;
}

/* RFC 4231, test case 2; however the message is cut in two. */
static void test_hmac_vector(void **state) {
  (void)state;
  static const char message[] = "what do ya want for nothing?";
  struct gy_secret s = secret_of("Jefe");
  for (size_t cut = 0; cut < sizeof message; cut++) {
    uint8_t out[32];
    assert_int_equal(gy_hmac(&s, message, cut, message + cut, strlen(message) - cut, out), GYRE_OK);
    assert_hex(out, sizeof out, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  }
}

static void test_hmac_empty_secret(void **state) {
  (void)state;
  struct gy_secret none = {.len = 0};
  uint8_t out[32];
  assert_int_equal(gy_hmac(&none, NULL, 0, NULL, 0, out), GYRE_OK);
  assert_hex(out, sizeof out, "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

/* RFC 4231, test case 6: a key longer than the hash's block. */
static void test_hmac_long_secret(void **state) {
  (void)state;
  static const char message[] = "Test Using Larger Than Block-Size Key - Hash Key First";
  struct gy_secret s = {.len = 131};
  uint8_t out[32];
  memset(s.bytes, 0xaa, s.len);
  assert_int_equal(gy_hmac(&s, message, strlen(message), NULL, 0, out), GYRE_OK);
  assert_hex(out, sizeof out, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

static void test_digest(void **state) {
  (void)state;
  uint8_t out[16];
  assert_int_equal(gy_digest16("abc", 3, out), GYRE_OK);
  assert_hex(out, sizeof out, "ba7816bf8f01cfea414140de5dae2223");
  assert_int_equal(gy_digest16("", 0, out), GYRE_OK);
  assert_hex(out, sizeof out, "e3b0c44298fc1c149afbf4c8996fb924");
}

static void test_random_differs(void **state) {
  (void)state;
  uint8_t a[32] = {0}, b[32] = {0};
  assert_int_equal(gy_random(a, sizeof a), GYRE_OK);
  assert_int_equal(gy_random(b, sizeof b), GYRE_OK);
  assert_memory_not_equal(a, b, sizeof a);
}

static void test_equal(void **state) {
  (void)state;
  uint8_t a[32] = {0}, b[32] = {0};
  assert_true(gy_equal_const_time(a, b, sizeof a));
  for (size_t i = 0; i < sizeof a; i++) {
    b[i] = 0x80;
    assert_false(gy_equal_const_time(a, b, sizeof a));
    b[i] = 0;
  }
}

/* ---------------------------------------------------------------------------- golden bytes --- */

static void fill(uint8_t *out, size_t len, uint8_t first) {
  for (size_t i = 0; i < len; i++) out[i] = (uint8_t)(first + i);
}

static struct gy_hello sample_hello(void) {
  struct gy_hello h = {
      .min_version = 1, .max_version = 0x0203, .features = 0x04050607, .has_secret = true};
  h.id = (struct gy_identity){.kind = GY_CONN_DATA, .lane = 0x0809, .from = 0x0a0b0c0d, .to = 1};
  fill(h.id.key, sizeof h.id.key, 0xa0);
  fill(h.nonce, sizeof h.nonce, 0xc0);
  return h;
}

static void test_golden_hello(void **state) {
  (void)state;
  struct gy_hello h = sample_hello(), back;
  uint8_t out[GY_HELLO_BYTES];
  gy_hello_encode(&h, out);
  assert_hex(out, sizeof out,
             "475952450102010003020908"
             "070605040d0c0b0a01000000"
             "0100000000000000"
             "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf"
             "c0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedf");
  assert_int_equal(gy_handshake_size(out), sizeof out);
  memset(&back, 0, sizeof back);
  assert_true(gy_hello_decode(out, &back));
  assert_int_equal(back.min_version, h.min_version);
  assert_int_equal(back.max_version, h.max_version);
  assert_int_equal(back.features, h.features);
  assert_true(back.has_secret);
  assert_int_equal(back.id.kind, h.id.kind);
  assert_int_equal(back.id.lane, h.id.lane);
  assert_int_equal(back.id.from, h.id.from);
  assert_int_equal(back.id.to, h.id.to);
  assert_memory_equal(back.id.key, h.id.key, sizeof h.id.key);
  assert_memory_equal(back.nonce, h.nonce, sizeof h.nonce);
}

static void test_golden_challenge(void **state) {
  (void)state;
  struct gy_challenge c = {.has_secret = true, .version = 0x0102, .features = 0x03040506}, back;
  uint8_t out[GY_CHALLENGE_BYTES];
  fill(c.nonce, sizeof c.nonce, 0x10);
  fill(c.hmac, sizeof c.hmac, 0x80);
  gy_challenge_encode(&c, out);
  assert_hex(out, sizeof out,
             "475952450201020106050403"
             "00000000"
             "101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f"
             "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f");
  assert_int_equal(gy_handshake_size(out), sizeof out);
  assert_true(gy_challenge_decode(out, &back));
  assert_int_equal(back.version, c.version);
  assert_int_equal(back.features, c.features);
  assert_memory_equal(back.nonce, c.nonce, sizeof c.nonce);
  assert_memory_equal(back.hmac, c.hmac, sizeof c.hmac);
}

static void test_golden_response_and_welcome(void **state) {
  (void)state;
  uint8_t hmac[GY_HMAC_BYTES], response[GY_RESPONSE_BYTES], welcome[GY_WELCOME_BYTES];
  fill(hmac, sizeof hmac, 0x80);
  gy_response_encode(hmac, response);
  assert_hex(response, sizeof response,
             "4759524503000000808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f");
  gy_welcome_encode(welcome);
  assert_hex(welcome, sizeof welcome, "4759524504000000");
  assert_int_equal(gy_handshake_size(response), sizeof response);
  assert_int_equal(gy_handshake_size(welcome), sizeof welcome);
}

static void test_golden_reject(void **state) {
  (void)state;
  uint8_t out[GY_REJECT_BYTES], zero[GY_REJECT_TEXT] = {0};
  char text[GY_REJECT_TEXT + 1], longer[GY_REJECT_TEXT + 50];
  gyre_status st = GYRE_OK;
  gy_reject_encode(GYRE_ERR_AUTH, "no\nway", out);
  assert_hex(out, 18,
             "47595245050006"
             "00"
             "f8ffffff"
             "6e6f0a776179");
  assert_memory_equal(out + 18, zero, sizeof out - 18);
  assert_int_equal(gy_handshake_size(out), sizeof out);
  assert_true(gy_reject_decode(out, &st, text));
  assert_int_equal(st, GYRE_ERR_AUTH);
  assert_string_equal(text, "no?way"); /* it will stand in a line */
  memset(longer, 'x', sizeof longer);
  longer[sizeof longer - 1] = '\0';
  gy_reject_encode(GYRE_ERR_MISMATCH, longer, out);
  assert_true(gy_reject_decode(out, &st, text));
  assert_int_equal(strlen(text), GY_REJECT_TEXT);
}

static void test_impossible_contents(void **state) {
  (void)state;
  uint8_t out[GY_REJECT_BYTES];
  struct gy_hello h = sample_hello(), back;
  char text[GY_REJECT_TEXT + 1];
  gyre_status st;
  static const struct {
    size_t at;
    uint8_t value;
  } hello[] = {{5, 0}, {5, 4}, {19, 0x80}, {23, 0x80}, {24, 2}};
  for (size_t i = 0; i < sizeof hello / sizeof hello[0]; i++) {
    gy_hello_encode(&h, out);
    assert_true(gy_hello_decode(out, &back));
    out[hello[i].at] = hello[i].value;
    assert_false(gy_hello_decode(out, &back));
  }
  h.min_version = 9;
  h.max_version = 8;
  gy_hello_encode(&h, out);
  assert_false(gy_hello_decode(out, &back));
  static const int32_t status[] = {0, 1, -16, INT32_MIN, INT32_MAX};
  for (size_t i = 0; i < sizeof status / sizeof status[0]; i++) {
    gy_reject_encode((gyre_status)status[i], "x", out);
    assert_false(gy_reject_decode(out, &st, text));
  }
  gy_reject_encode(GYRE_ERR_AUTH, "x", out);
  out[7] = 2; /* 513 bytes of text */
  assert_false(gy_reject_decode(out, &st, text));
  static const char *const prefix[] = {"GYRX\1   ", "GYRE\0   ", "GYRE\6   ", "gyre\1   "};
  for (size_t i = 0; i < sizeof prefix / sizeof prefix[0]; i++)
    assert_int_equal(gy_handshake_size((const uint8_t *)prefix[i]), 0);
}

/* The proofs of a whole handshake, with fixed nonces, computed anew from the description in
 * handshake.h. */
static void test_golden_proofs(void **state) {
  (void)state;
  struct gy_secret s = secret_of("sesame");
  struct gy_handshake acceptor;
  struct gy_hello h = sample_hello();
  uint8_t transcript[GY_TRANSCRIPT_BYTES], proof[32];
  gy_handshake_accept(&acceptor);
  gy_hello_encode(&h, acceptor.in);
  memcpy(transcript, acceptor.in, GY_HELLO_BYTES);
  assert_int_equal(gy_handshake_take(&acceptor, GY_HELLO_BYTES), GY_EVENT_HELLO);
  assert_int_equal(gy_handshake_challenge(&acceptor, &s), GYRE_OK);
  memcpy(transcript + GY_HELLO_BYTES, acceptor.out, GY_CHALLENGE_SIGNED);
  assert_int_equal(acceptor.out[6] | acceptor.out[7] << 8, 1); /* the highest version both speak */
  assert_int_equal(acceptor.out[8], 0);                        /* no feature we do not know */
  assert_int_equal(gy_hmac(&s, "acceptor", 8, transcript, sizeof transcript, proof), GYRE_OK);
  assert_memory_equal(acceptor.out + GY_CHALLENGE_SIGNED, proof, sizeof proof);
  assert_int_equal(gy_hmac(&s, "dialler\0", 8, transcript, sizeof transcript, proof), GYRE_OK);
  gy_response_encode(proof, acceptor.in);
  assert_int_equal(gy_handshake_take(&acceptor, GY_RESPONSE_BYTES), GY_EVENT_PROVEN);
}

/* Whatever a peer says or leaves out, there is a text to report. */
static void test_reject_without_words(void **state) {
  (void)state;
  struct gy_secret s = secret_of("sesame");
  struct gy_hello h = sample_hello();
  struct gy_handshake dialler;
  assert_int_equal(gy_handshake_dial(&dialler, &h.id, &s), GYRE_OK);
  gy_reject_encode(GYRE_ERR_MISMATCH, "", dialler.in);
  assert_int_equal(gy_handshake_take(&dialler, GY_REJECT_BYTES), GY_EVENT_FAILED);
  assert_int_equal(dialler.failure, GY_FAIL_REJECTED);
  assert_int_equal(dialler.status, GYRE_ERR_MISMATCH);
  assert_string_equal(gyre_last_error(), "it gives no reason");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_hmac_vector),
      cmocka_unit_test(test_hmac_empty_secret),
      cmocka_unit_test(test_hmac_long_secret),
      cmocka_unit_test(test_digest),
      cmocka_unit_test(test_random_differs),
      cmocka_unit_test(test_equal),
      cmocka_unit_test(test_golden_hello),
      cmocka_unit_test(test_golden_challenge),
      cmocka_unit_test(test_golden_response_and_welcome),
      cmocka_unit_test(test_golden_reject),
      cmocka_unit_test(test_impossible_contents),
      cmocka_unit_test(test_golden_proofs),
      cmocka_unit_test(test_reject_without_words),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_crc32c.c - known checksums, and every way against the definition, bit by bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "crc32c.h"

typedef uint32_t (*sum_fn)(uint32_t sum, const void *data, size_t bytes);
static const sum_fn ways[] = {gy_crc32c, gy_crc32c_portable};

static uint32_t by_definition(uint32_t sum, const uint8_t *p, size_t bytes) {
  sum = ~sum;
  while (bytes--) {
    sum ^= *p++;
    for (int bit = 0; bit < 8; bit++) sum = sum >> 1 ^ (sum & 1 ? 0x82F63B78u : 0);
  }
  return ~sum;
}

static void known_checksums(void **state) {
  (void)state;
  uint8_t zeros[32] = {0}, ones[32], up[32], down[32];
  memset(ones, 0xFF, sizeof ones);
  for (int i = 0; i < 32; i++) {
    up[i] = (uint8_t)i;
    down[31 - i] = (uint8_t)i;
  }
  for (int w = 0; w < 2; w++) { /* RFC 3720, B.4; the check value of the catalogues */
    assert_int_equal(ways[w](0, zeros, 32), 0x8A9136AAu);
    assert_int_equal(ways[w](0, ones, 32), 0x62A8AB43u);
    assert_int_equal(ways[w](0, up, 32), 0x46DD794Eu);
    assert_int_equal(ways[w](0, down, 32), 0x113FDB5Cu);
    assert_int_equal(ways[w](0, "123456789", 9), 0xE3069283u);
    assert_int_equal(ways[w](0, NULL, 0), 0);
    assert_int_equal(ways[w](0x12345678u, NULL, 0), 0x12345678u);
  }
}

static void every_length_and_alignment(void **state) {
  (void)state;
  static uint8_t data[20000];
  static const size_t lengths[] = {0,    1,    7,    8,    9,    63,   64,   1023, 1024, 3071,
                                   3072, 3073, 4095, 6143, 6144, 6151, 9215, 9217, 16384};
  uint32_t seed = 1;
  for (size_t i = 0; i < sizeof data; i++) {
    seed = seed * 1664525u + 1013904223u;
    data[i] = (uint8_t)(seed >> 24);
  }
  for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
    for (size_t at = 0; at < 9; at++) {
      uint32_t want = by_definition(7, data + at, lengths[k]);
      for (int w = 0; w < 2; w++) assert_int_equal(ways[w](7, data + at, lengths[k]), want);
    }
  }
}

static void pieces_give_the_whole(void **state) {
  (void)state;
  static uint8_t data[7000];
  for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)(i * i >> 3);
  uint32_t want = by_definition(0, data, sizeof data);
  for (size_t cut = 0; cut <= sizeof data; cut += 13) {
    for (int w = 0; w < 2; w++) {
      uint32_t first = ways[w](0, data, cut);
      assert_int_equal(ways[1 - w](first, data + cut, sizeof data - cut), want);
    }
  }
}

static void any_flipped_bit_shows(void **state) {
  (void)state;
  uint8_t data[100] = {1, 2, 3};
  uint32_t want = gy_crc32c(0, data, sizeof data);
  for (size_t bit = 0; bit < 8 * sizeof data; bit++) {
    data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    assert_int_not_equal(gy_crc32c(0, data, sizeof data), want);
    data[bit / 8] ^= (uint8_t)(1u << bit % 8);
  }
}

static void the_way_has_a_name(void **state) {
  (void)state;
#ifdef __x86_64__
  if (__builtin_cpu_supports("sse4.2")) assert_string_equal(gy_crc32c_way(), "sse4.2");
#endif
  assert_non_null(gy_crc32c_way());
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(known_checksums),       cmocka_unit_test(every_length_and_alignment),
      cmocka_unit_test(pieces_give_the_whole), cmocka_unit_test(any_flipped_bit_shows),
      cmocka_unit_test(the_way_has_a_name),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

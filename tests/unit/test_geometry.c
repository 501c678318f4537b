/* test_geometry.c - chunks tile the buffer, slices tile the chunk, borders lie on lines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "geometry.h"

static struct gy_geometry make(enum gy_layout layout, unsigned n_chunk, size_t count, size_t esize,
                               size_t slice_bytes) {
  struct gy_program p = {.n_chunk = (uint16_t)n_chunk, .layout = (uint8_t)layout};
  struct gy_geometry g;
  gy_geometry_init(&g, &p, count, esize, slice_bytes);
  return g;
}

static void check_slices(const struct gy_geometry *g, unsigned chunk) {
  size_t sum = 0, bytes = gy_chunk_bytes(g, chunk);
  uint32_t slices = gy_chunk_slices(g, chunk);
  assert_true(slices >= 1);
  for (uint32_t s = 0; s < slices; s++) {
    size_t slice = gy_slice_bytes(g, chunk, s);
    if (s + 1 < slices) assert_int_equal(slice, g->slice_bytes);
    if (bytes > 0) assert_true(slice > 0);
    assert_int_equal(slice % g->esize, 0);
    sum += slice;
  }
  assert_int_equal(sum, bytes);
  assert_int_equal(gy_slice_bytes(g, chunk, slices), 0);
}

static void chunks_of_a_split_tile_the_buffer(void **state) {
  (void)state;
  static const size_t counts[] = {0,  1,   7,   15,  16,   17,   63,   64,
                                  65, 127, 128, 129, 1000, 4097, 65536};
  static const unsigned chunks[] = {1, 2, 3, 4, 5, 7, 8, 16, 128};
  for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
    for (size_t j = 0; j < sizeof chunks / sizeof chunks[0]; j++)
      for (size_t esize = 1; esize <= 8; esize *= 2) {
        struct gy_geometry g = make(GY_SPLIT, chunks[j], counts[i], esize, 128);
        size_t at = 0;
        for (unsigned c = 0; c < chunks[j]; c++) {
          assert_int_equal(gy_chunk_offset(&g, GY_IN, c), at);
          if (at < counts[i] * esize) assert_int_equal(at % 64, 0);
          check_slices(&g, c);
          at += gy_chunk_bytes(&g, c);
        }
        assert_int_equal(at, counts[i] * esize);
      }
}

static void chunks_of_a_split_are_nearly_equal(void **state) {
  (void)state;
  struct gy_geometry g = make(GY_SPLIT, 4, 1000, 4, 256);
  assert_int_equal(gy_chunk_bytes(&g, 0), 1024); /* 250 elements, up to the next line */
  assert_int_equal(gy_chunk_bytes(&g, 2), 1024);
  assert_int_equal(gy_chunk_bytes(&g, 3), 4000 - 3 * 1024);
  g = make(GY_SPLIT, 4, 16, 4, 256); /* one line: it all goes to the first chunk */
  assert_int_equal(gy_chunk_bytes(&g, 0), 64);
  assert_int_equal(gy_chunk_bytes(&g, 1), 0);
  assert_int_equal(gy_chunk_slices(&g, 3), 1);
}

static void blocks_have_the_length_of_the_count(void **state) {
  (void)state;
  struct gy_geometry g = make(GY_BLOCK, 5, 33, 2, 64);
  for (unsigned c = 0; c < 5; c++) {
    assert_int_equal(gy_chunk_offset(&g, GY_IN, c), c * 66);
    assert_int_equal(gy_chunk_bytes(&g, c), 66);
    assert_int_equal(gy_chunk_slices(&g, c), 2);
    check_slices(&g, c);
  }
}

static void offsets_pass_four_gigabytes(void **state) {
  (void)state;
  size_t count = (size_t)3 << 31, slice = 256u << 10;
  struct gy_geometry g = make(GY_SPLIT, 2, count, 8, slice);
  assert_int_equal(gy_chunk_offset(&g, GY_IN, 1), count * 8 / 2);
  assert_int_equal(gy_chunk_bytes(&g, 1), count * 8 / 2);
  assert_int_equal(gy_chunk_slices(&g, 1), count * 4 / slice);
  assert_int_equal(gy_slice_bytes(&g, 1, (uint32_t)(count * 4 / slice) - 1), slice);
  g = make(GY_BLOCK, 3, count, 8, slice);
  assert_int_equal(gy_chunk_offset(&g, GY_IN, 2), count * 16);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(chunks_of_a_split_tile_the_buffer),
      cmocka_unit_test(chunks_of_a_split_are_nearly_equal),
      cmocka_unit_test(blocks_have_the_length_of_the_count),
      cmocka_unit_test(offsets_pass_four_gigabytes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

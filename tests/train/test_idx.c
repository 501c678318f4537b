/*
 * test_idx.c - IDX files: good ones are read exactly, bad ones are refused with the file's name,
 * the reason and the package to install, and leave nothing behind.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "idx.h"

#define COUNT 7u
#define ROWS 3u
#define COLS 5u
#define PIXELS ((size_t)COUNT * ROWS * COLS)
#define MAX_FILE 256

/* A data set's two files, as bytes to be spoiled before they are written. */
struct fixture {
  char dir[64];
  uint8_t images[MAX_FILE], labels[MAX_FILE];
  size_t images_size, labels_size;
  struct idx_data loaded; /* poisoned before each load */
  char why[IDX_WHY_SIZE];
};

static void put_word(uint8_t *to, uint32_t word) {
  for (int i = 0; i < 4; i++) to[i] = (uint8_t)(word >> (24 - 8 * i));
}

static int set_up(void **state) {
  struct fixture *f = calloc(1, sizeof *f);
  assert_non_null(f);
  strcpy(f->dir, "/tmp/gyre-idx-XXXXXX");
  assert_non_null(mkdtemp(f->dir));
  const uint32_t images_header[] = {0x803, COUNT, ROWS, COLS}, labels_header[] = {0x801, COUNT};
  for (size_t i = 0; i < 4; i++) put_word(f->images + 4 * i, images_header[i]);
  for (size_t i = 0; i < PIXELS; i++) f->images[16 + i] = (uint8_t)(i * 37);
  f->images_size = 16 + PIXELS;
  for (size_t i = 0; i < 2; i++) put_word(f->labels + 4 * i, labels_header[i]);
  for (size_t i = 0; i < COUNT; i++) f->labels[8 + i] = (uint8_t)(9 - i);
  f->labels_size = 8 + COUNT;
  *state = f;
  return 0;
}

static const char *const names[] = {"images-idx3-ubyte", "images-idx3-ubyte.gz",
                                    "labels-idx1-ubyte", "labels-idx1-ubyte.gz"};

static void path_of(const struct fixture *f, const char *name, char path[128]) {
  snprintf(path, 128, "%s/train-%s", f->dir, name);
}

static int tear_down(void **state) {
  struct fixture *f = *state;
  for (size_t i = 0; i < 4; i++) {
    char path[128];
    path_of(f, names[i], path);
    unlink(path);
  }
  rmdir(f->dir);
  free(f);
  return 0;
}

static void write_plain(const struct fixture *f, const char *name, const uint8_t *bytes, size_t n) {
  char path[128];
  path_of(f, name, path);
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, n, file), n);
  assert_int_equal(fclose(file), 0);
}

static size_t compress_file(const uint8_t *bytes, size_t n, uint8_t out[2 * MAX_FILE]) {
  z_stream z = {0};
  assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  z.next_in = (Bytef *)(uintptr_t)bytes;
  z.avail_in = (uInt)n;
  z.next_out = out;
  z.avail_out = 2 * MAX_FILE;
  assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
  size_t size = z.total_out;
  deflateEnd(&z);
  return size;
}

static void write_both_plain(const struct fixture *f) {
  write_plain(f, "images-idx3-ubyte", f->images, f->images_size);
  write_plain(f, "labels-idx1-ubyte", f->labels, f->labels_size);
}

static bool load(struct fixture *f) {
  memset(&f->loaded, 0xee, sizeof f->loaded);
  memset(f->why, 0, sizeof f->why);
  return idx_load(f->dir, "train", NULL, NULL, &f->loaded, f->why);
}

static void expect_loaded(struct fixture *f) {
  bool ok = load(f);
  if (!ok) print_error("%s\n", f->why);
  assert_true(ok);
  assert_int_equal(f->loaded.count, COUNT);
  assert_int_equal(f->loaded.rows, ROWS);
  assert_int_equal(f->loaded.cols, COLS);
  assert_memory_equal(f->loaded.images, f->images + 16, PIXELS);
  assert_memory_equal(f->loaded.labels, f->labels + 8, COUNT);
  idx_destroy(&f->loaded);
}

static void expect_refused(struct fixture *f, const char *file, const char *reason) {
  struct idx_data poison;
  memset(&poison, 0xee, sizeof poison);
  assert_false(load(f));
  if (!strstr(f->why, file) || !strstr(f->why, reason)) print_error("got: %s\n", f->why);
  assert_non_null(strstr(f->why, file));
  assert_non_null(strstr(f->why, reason));
  assert_non_null(strstr(f->why, "leave out --data"));
  assert_null(strstr(f->why, "reinstall")); /* the directory is the user's, not the package's */
  assert_null(strstr(strstr(f->why, file) + 1, file));
  assert_memory_equal(&f->loaded, &poison, sizeof poison);
}

static void reads_plain_files(void **state) {
  write_both_plain(*state);
  expect_loaded(*state);
}

static void reads_gzip_files(void **state) {
  struct fixture *f = *state;
  uint8_t gz[2 * MAX_FILE];
  write_plain(f, "images-idx3-ubyte.gz", gz, compress_file(f->images, f->images_size, gz));
  write_plain(f, "labels-idx1-ubyte.gz", gz, compress_file(f->labels, f->labels_size, gz));
  expect_loaded(f);
}

static void refuses_missing_files(void **state) {
  struct fixture *f = *state;
  expect_refused(f, "train-images-idx3-ubyte", "no such file");
  write_plain(f, "images-idx3-ubyte", f->images, f->images_size);
  expect_refused(f, "train-labels-idx1-ubyte", "no such file");
}

static bool count_down(void *user) {
  int *left = user;
  return (*left)-- > 0;
}

static void stops_when_told(void **state) {
  struct fixture *f = *state;
  int left = 3;
  write_both_plain(f);
  assert_false(idx_load(f->dir, "train", count_down, &left, &f->loaded, f->why));
  assert_string_equal(f->why, "");
  left = 1000;
  assert_true(idx_load(f->dir, "train", count_down, &left, &f->loaded, f->why));
  idx_destroy(&f->loaded);
}

static void refuses_wrong_magic(void **state) {
  struct fixture *f = *state;
  f->images[3] = 0x01;
  write_both_plain(f);
  expect_refused(f, "train-images-idx3-ubyte", "starts with 0x00000801 instead of 0x00000803");
}

static void refuses_every_truncation_of_plain_files(void **state) {
  struct fixture *f = *state;
  write_both_plain(f);
  for (size_t n = 0; n < f->images_size; n++) {
    write_plain(f, "images-idx3-ubyte", f->images, n);
    expect_refused(f, "train-images-idx3-ubyte", "the file ends after");
  }
  write_plain(f, "images-idx3-ubyte", f->images, f->images_size);
  for (size_t n = 0; n < f->labels_size; n++) {
    write_plain(f, "labels-idx1-ubyte", f->labels, n);
    expect_refused(f, "train-labels-idx1-ubyte", "the file ends after");
  }
}

static void refuses_every_truncation_of_gzip_files(void **state) {
  struct fixture *f = *state;
  uint8_t gz[2 * MAX_FILE];
  size_t size = compress_file(f->images, f->images_size, gz);
  write_plain(f, "labels-idx1-ubyte", f->labels, f->labels_size);
  for (size_t n = 0; n < size; n++) {
    write_plain(f, "images-idx3-ubyte.gz", gz, n);
    expect_refused(f, "train-images-idx3-ubyte.gz", "");
    if (n > 20) /* past the gzip header it is known to be gzip */
      expect_refused(f, "train-images-idx3-ubyte.gz", "cut short");
  }
}

/* With any byte of the compressed data or its checksum changed, nothing may be loaded as if it were
 * right. (Bytes 4 to 9 of a gzip header are a date and remarks, which change nothing.) */
static void refuses_corrupt_gzip_files(void **state) {
  struct fixture *f = *state;
  uint8_t gz[2 * MAX_FILE];
  size_t size = compress_file(f->images, f->images_size, gz);
  write_plain(f, "labels-idx1-ubyte", f->labels, f->labels_size);
  for (size_t i = 10; i < size; i++) {
    gz[i] ^= 0x55;
    write_plain(f, "images-idx3-ubyte.gz", gz, size);
    expect_refused(f, "train-images-idx3-ubyte.gz", "");
    gz[i] ^= 0x55;
  }
  write_plain(f, "images-idx3-ubyte.gz", gz, size);
  expect_loaded(f);
}

static void refuses_trailing_bytes(void **state) {
  struct fixture *f = *state;
  f->labels_size++;
  write_both_plain(f);
  expect_refused(f, "train-labels-idx1-ubyte", "more bytes than its header says");
}

static void refuses_labels_above_nine(void **state) {
  struct fixture *f = *state;
  f->labels[8 + 4] = 10;
  write_both_plain(f);
  expect_refused(f, "train-labels-idx1-ubyte", "label 4 is 10");
}

static void refuses_counts_that_differ(void **state) {
  struct fixture *f = *state;
  put_word(f->labels + 4, COUNT - 1);
  f->labels_size--;
  write_both_plain(f);
  expect_refused(f, "train-labels-idx1-ubyte", "holds 6 labels for 7 images");
}

static void refuses_empty_and_huge_dimensions(void **state) {
  struct fixture *f = *state;
  put_word(f->images + 8, 0);
  write_both_plain(f);
  expect_refused(f, "train-images-idx3-ubyte", "is 0");
  /* The product of these overflows 64 bits. */
  for (size_t i = 1; i < 4; i++) put_word(f->images + 4 * i, UINT32_MAX);
  write_both_plain(f);
  expect_refused(f, "train-images-idx3-ubyte", "claims more than 2 GiB");
}

static void refuses_a_directory_that_is_not_there(void **state) {
  struct fixture *f = *state;
  strcat(f->dir, "/none");
  bool loaded = load(f);
  f->dir[strlen(f->dir) - strlen("/none")] = '\0';
  assert_false(loaded);
  assert_non_null(strstr(f->why, "no such file"));
}

int main(void) {
#define IDX_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      IDX_TEST(reads_plain_files),
      IDX_TEST(reads_gzip_files),
      IDX_TEST(refuses_missing_files),
      IDX_TEST(stops_when_told),
      IDX_TEST(refuses_wrong_magic),
      IDX_TEST(refuses_every_truncation_of_plain_files),
      IDX_TEST(refuses_every_truncation_of_gzip_files),
      IDX_TEST(refuses_corrupt_gzip_files),
      IDX_TEST(refuses_trailing_bytes),
      IDX_TEST(refuses_labels_above_nine),
      IDX_TEST(refuses_counts_that_differ),
      IDX_TEST(refuses_empty_and_huge_dimensions),
      IDX_TEST(refuses_a_directory_that_is_not_there),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

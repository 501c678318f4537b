/*
 * test_golden.c - the printed programs of every algorithm, compared with tests/golden/.
 *
 * After an intended change, run this test once with TEST_GOLDEN_UPDATE=1 in the environment: it
 * writes the files anew; read the difference before committing it. TEST_SOURCE_DIR is the
 * repository's root (default: the working directory).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schedule.h"

static bool differs_in_place(const struct gy_algo *algo) {
  return algo->coll == GY_ALL_TO_ALL || strcmp(algo->name, "recursive_doubling") == 0;
}

/* Two ranks, a power of two, and neither. */
static void print_all(const struct gy_algo *algo, FILE *to) {
  static const int sizes[] = {2, 3, 4};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
    for (uint8_t in_place = 0; in_place < 2; in_place++) {
      if (in_place && !differs_in_place(algo)) continue;
      fprintf(to, "%s %s%s\n", gy_coll_name(algo->coll), algo->name, in_place ? ", in place" : "");
      for (int rank = 0; rank < sizes[i]; rank++) {
        struct gy_key key = {
            .coll = algo->coll, .in_place = in_place, .nranks = sizes[i], .rank = rank};
        struct gy_program *p = NULL;
        if (gy_program_build(algo, &key, &p) != GYRE_OK) fail_msg("%s", gyre_last_error());
        gy_program_print(p, &key, to);
        gy_program_free(p);
      }
      fputc('\n', to);
    }
}

static void golden_path(const struct gy_algo *algo, char *out, size_t capacity) {
  const char *root = getenv("TEST_SOURCE_DIR");
  snprintf(out, capacity, "%s/tests/golden/%s.%s.txt", root == NULL ? "." : root,
           gy_coll_name(algo->coll), algo->name);
}

static void write_file(const char *path, const char *text) {
  FILE *f = fopen(path, "w");
  if (f == NULL || fputs(text, f) == EOF || fclose(f) != 0) fail_msg("cannot write %s", path);
}

static char *read_file(const char *path) {
  FILE *f = fopen(path, "r");
  if (f == NULL) fail_msg("cannot read %s; see the head of this file", path);
  char *text = calloc(1, 1 << 16);
  assert_non_null(text);
  size_t n = fread(text, 1, (1 << 16) - 1, f);
  assert_true(n > 0 && n < (1 << 16) - 1);
  fclose(f);
  return text;
}

static void compare_lines(const char *path, const char *want, const char *got) {
  for (unsigned line = 1; *want != '\0' || *got != '\0'; line++) {
    size_t n = strcspn(want, "\n"), m = strcspn(got, "\n");
    if (n != m || memcmp(want, got, n) != 0)
      fail_msg("%s:%u\n  expected: %.*s\n  printed:  %.*s", path, line, (int)n, want, (int)m, got);
    want += n + (want[n] == '\n');
    got += m + (got[m] == '\n');
  }
}

static void programs_print_as_recorded(void **state) {
  (void)state;
  size_t n;
  const struct gy_algo *const *all = gy_algorithms(&n);
  for (size_t i = 0; i < n; i++) {
    char path[512], *printed = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&printed, &size);
    assert_non_null(to);
    print_all(all[i], to);
    fclose(to);
    golden_path(all[i], path, sizeof path);
    if (getenv("TEST_GOLDEN_UPDATE") != NULL) write_file(path, printed);
    char *recorded = read_file(path);
    compare_lines(path, recorded, printed);
    free(recorded);
    free(printed);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(programs_print_as_recorded)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

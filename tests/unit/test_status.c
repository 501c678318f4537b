/* test_status.c - the last error of a thread, and the static names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"

static void fail_keeps_status_text_and_errno(void **state) {
  (void)state;
  errno = EBUSY;
  assert_int_equal(gy_fail(GYRE_ERR_TIMEOUT, "rank %d of %s", 3, "job"), GYRE_ERR_TIMEOUT);
  assert_string_equal(gyre_last_error(), "rank 3 of job");
  assert_int_equal(errno, EBUSY);
}

static void fail_errno_appends_the_reason(void **state) {
  (void)state;
  errno = EBUSY;
  assert_int_equal(gy_fail_errno(GYRE_ERR_SYS, ECONNREFUSED, "dialling %s", "10.0.0.1:7"),
                   GYRE_ERR_SYS);
  char expected[256];
  snprintf(expected, sizeof expected, "dialling 10.0.0.1:7: %s (errno %d)", strerror(ECONNREFUSED),
           ECONNREFUSED);
  assert_string_equal(gyre_last_error(), expected);
  assert_int_equal(errno, EBUSY);
}

static void a_failure_may_quote_the_one_before(void **state) {
  (void)state;
  gy_fail(GYRE_ERR_SYS, "inner");
  gy_fail(GYRE_ERR_SYS, "outer: %s", gyre_last_error());
  assert_string_equal(gyre_last_error(), "outer: inner");
  gy_fail_errno(GYRE_ERR_SYS, ENOENT, "%s", gyre_last_error());
  assert_non_null(strstr(gyre_last_error(), "outer: inner: "));
  char before[256];
  snprintf(before, sizeof before, "%s", gyre_last_error());
  assert_int_equal(gy_fail_text(GYRE_ERR_AUTH, gyre_last_error()), GYRE_ERR_AUTH);
  assert_string_equal(gyre_last_error(), before);
}

static void a_long_text_is_cut_with_a_mark_and_keeps_the_errno(void **state) {
  (void)state;
  char *text = malloc(10001);
  assert_non_null(text);
  memset(text, 'x', 10000);
  text[10000] = 0;
  gy_fail(GYRE_ERR_ARG, "%s", text);
  size_t len = strlen(gyre_last_error());
  assert_true(len >= 2047);
  assert_string_equal(gyre_last_error() + len - 4, "x...");
  gy_fail_text(GYRE_ERR_ARG, text);
  assert_int_equal(strlen(gyre_last_error()), len);
  assert_string_equal(gyre_last_error() + len - 4, "x...");
  gy_fail_errno(GYRE_ERR_SYS, EPERM, "%s", text);
  char suffix[128];
  int n = snprintf(suffix, sizeof suffix, "x...: %s (errno %d)", strerror(EPERM), EPERM);
  len = strlen(gyre_last_error());
  assert_string_equal(gyre_last_error() + len - (size_t)n, suffix);
  free(text);
}

static void a_text_is_one_printable_line(void **state) {
  (void)state;
  gy_fail_text(GYRE_ERR_PROTO, "a\nb\tc\x1b[31m\x7f\xc3\xa9");
  assert_string_equal(gyre_last_error(), "a b c?[31m?\xc3\xa9");
}

static void *other_thread(void *arg) {
  (void)arg;
  char *first = strdup(gyre_last_error());
  gy_fail(GYRE_ERR_ARG, "of the other");
  return first;
}

static void the_text_is_per_thread(void **state) {
  (void)state;
  gy_fail(GYRE_ERR_ARG, "of this one");
  pthread_t t;
  void *first;
  assert_int_equal(pthread_create(&t, NULL, other_thread, NULL), 0);
  assert_int_equal(pthread_join(t, &first), 0);
  assert_string_equal(first, "");
  assert_string_equal(gyre_last_error(), "of this one");
  free(first);
}

static void format_returns_what_it_stored(void **state) {
  (void)state;
  char out[8] = "1234567";
  assert_int_equal(gy_format(out, sizeof out, "%d", 42), 2);
  assert_string_equal(out, "42");
  assert_int_equal(gy_format(out, sizeof out, "%s", "abcdefgh"), 7);
  assert_string_equal(out, "abcd...");
  assert_int_equal(gy_format(out, sizeof out, "%s", "abcdefg"), 7);
  assert_string_equal(out, "abcdefg");
  assert_int_equal(gy_format(out, 1, "%s", "abc"), 0);
  assert_string_equal(out, "");
  assert_int_equal(gy_format(out, 3, "%s", "abc"), 2);
  assert_string_equal(out, "ab");
  out[0] = 'z';
  assert_int_equal(gy_format(out, 0, "%s", "abc"), 0);
  assert_int_equal(out[0], 'z');
}

static void statuses_have_names(void **state) {
  (void)state;
  static const char *const names[] = {
      "OK",   "ARG",      "NOMEM",   "SYS",       "CUDA",    "VERBS", "PROTO",       "VERSION",
      "AUTH", "MISMATCH", "TIMEOUT", "PEER_LOST", "ABORTED", "STATE", "UNSUPPORTED", "INTERNAL"};
  for (int i = 0; i < 16; i++) assert_string_equal(gyre_status_name((gyre_status)-i), names[i]);
  assert_string_equal(gyre_status_name(GYRE_IN_PROGRESS), "IN_PROGRESS");
  assert_string_equal(gyre_status_name((gyre_status)2), "UNKNOWN");
  assert_string_equal(gyre_status_name((gyre_status)-16), "UNKNOWN");
}

static void types_have_sizes_and_names(void **state) {
  (void)state;
  static const struct {
    gyre_dtype type;
    const char *name;
    size_t size;
  } all[GYRE_DTYPE_COUNT] = {{GYRE_F32, "f32", 4},         {GYRE_F64, "f64", 8},
                             {GYRE_F16, "f16", 2},         {GYRE_BF16, "bf16", 2},
                             {GYRE_I8, "i8", 1},           {GYRE_U8, "u8", 1},
                             {GYRE_I16, "i16", 2},         {GYRE_U16, "u16", 2},
                             {GYRE_I32, "i32", 4},         {GYRE_U32, "u32", 4},
                             {GYRE_I64, "i64", 8},         {GYRE_U64, "u64", 8},
                             {GYRE_F32_I32, "f32_i32", 8}, {GYRE_F64_I64, "f64_i64", 16},
                             {GYRE_I32_I32, "i32_i32", 8}, {GYRE_I64_I64, "i64_i64", 16},
                             {GYRE_F8_E4M3, "f8e4m3", 1},  {GYRE_F8_E5M2, "f8e5m2", 1}};
  for (size_t i = 0; i < GYRE_DTYPE_COUNT; i++) {
    assert_string_equal(gyre_dtype_name(all[i].type), all[i].name);
    assert_int_equal(gyre_dtype_size(all[i].type), all[i].size);
  }
  assert_null(gyre_dtype_name((gyre_dtype)GYRE_DTYPE_COUNT));
  assert_null(gyre_dtype_name((gyre_dtype)-1));
  assert_int_equal(gyre_dtype_size((gyre_dtype)GYRE_DTYPE_COUNT), 0);
  assert_int_equal(gyre_dtype_size((gyre_dtype)-1), 0);
}

static void operators_have_names(void **state) {
  (void)state;
  assert_string_equal(gyre_op_name(GYRE_SUM), "sum");
  assert_string_equal(gyre_op_name(GYRE_PROD), "prod");
  assert_string_equal(gyre_op_name(GYRE_MIN), "min");
  assert_string_equal(gyre_op_name(GYRE_MAX), "max");
  assert_string_equal(gyre_op_name(GYRE_AVG), "avg");
  assert_string_equal(gyre_op_name(GYRE_BAND), "band");
  assert_string_equal(gyre_op_name(GYRE_BOR), "bor");
  assert_string_equal(gyre_op_name(GYRE_BXOR), "bxor");
  assert_string_equal(gyre_op_name(GYRE_LAND), "land");
  assert_string_equal(gyre_op_name(GYRE_LOR), "lor");
  assert_string_equal(gyre_op_name(GYRE_LXOR), "lxor");
  assert_string_equal(gyre_op_name(GYRE_MINLOC), "minloc");
  assert_string_equal(gyre_op_name(GYRE_MAXLOC), "maxloc");
  assert_null(gyre_op_name((gyre_op)GYRE_OP_COUNT));
  assert_null(gyre_op_name((gyre_op)-1));
}

static void the_versions_agree(void **state) {
  (void)state;
  char text[32];
  int v = gyre_version();
  assert_int_equal(v, GYRE_VERSION);
  snprintf(text, sizeof text, "%d.%d.%d", v / 10000, v / 100 % 100, v % 100);
  assert_string_equal(gyre_version_string(), text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(fail_keeps_status_text_and_errno),
      cmocka_unit_test(fail_errno_appends_the_reason),
      cmocka_unit_test(a_failure_may_quote_the_one_before),
      cmocka_unit_test(a_long_text_is_cut_with_a_mark_and_keeps_the_errno),
      cmocka_unit_test(a_text_is_one_printable_line),
      cmocka_unit_test(the_text_is_per_thread),
      cmocka_unit_test(format_returns_what_it_stored),
      cmocka_unit_test(statuses_have_names),
      cmocka_unit_test(types_have_sizes_and_names),
      cmocka_unit_test(operators_have_names),
      cmocka_unit_test(the_versions_agree),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

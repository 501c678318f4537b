/* test_check.c - the verification of gyre-perf against collectives that err on purpose, on one
 * rank. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "session.h"

#define COUNT ((size_t)20000)
#define WRONG_AT ((size_t)12345)

static struct perf_collective coll;
static struct perf_options options;
static struct perf_session *session;
static gyre_context *ctx;
static gyre_comm *comm;

static gyre_status copy(const struct perf_call *c) {
  if (c->in != c->out) memcpy(c->out, c->in, c->count * gyre_dtype_size(c->type));
  return GYRE_OK;
}

static gyre_status corrupt_one(const struct perf_call *c) {
  copy(c);
  ((unsigned char *)c->out)[WRONG_AT * gyre_dtype_size(c->type)] ^= 1;
  return GYRE_OK;
}

static gyre_status lose_the_end(const struct perf_call *c) {
  if (c->in != c->out) memcpy(c->out, c->in, (c->count - 3) * gyre_dtype_size(c->type));
  return GYRE_OK;
}

static gyre_status write_the_input(const struct perf_call *c) {
  copy(c);
  ((unsigned char *)(uintptr_t)c->in)[0] ^= 1;
  return GYRE_OK;
}

static gyre_status repeat_the_first_call(const struct perf_call *c) {
  static float kept[COUNT];
  static int calls;
  if (calls++ == 0) memcpy(kept, c->in, sizeof(kept));
  memcpy(c->out, kept, sizeof(kept));
  return GYRE_OK;
}

static int set_up(void **state) {
  (void)state;
  session = malloc(sizeof(*session));
  char *argv[] = {"gyre-perf", "all_reduce", "-e", "1M", NULL};
  char why[256];
  if (session == NULL || perf_options_parse(&options, 4, argv, why, sizeof(why)) != PERF_RUN)
    return 1;
  if (gyre_context_create(&ctx) != GYRE_OK || gyre_comm_create_from_env(ctx, NULL, &comm) != GYRE_OK)
    return 1;
  coll = *options.coll;
  options.coll = &coll;
  return perf_session_open(session, &options, comm) == GYRE_OK ? 0 : 1;
}

static int tear_down(void **state) {
  (void)state;
  bool ok = perf_session_close(session);
  free(session);
  gyre_comm_destroy(comm);
  gyre_context_destroy(ctx);
  return ok ? 0 : 1;
}

/* Wrong elements of one checked call; what it printed on standard error goes to `said`. */
static uint64_t check(gyre_status (*run)(const struct perf_call *), gyre_dtype type, bool in_place,
                      char said[512]) {
  struct perf_shape shape = {COUNT * gyre_dtype_size(type), COUNT, type, GYRE_SUM};
  uint64_t wrong = 0;
  FILE *file = tmpfile();
  assert_non_null(file);
  int keep = dup(STDERR_FILENO);
  assert_true(keep >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
  coll.run = run;
  gyre_status st = perf_check(session, &shape, in_place, &wrong);
  dup2(keep, STDERR_FILENO);
  close(keep);
  rewind(file);
  size_t n = fread(said, 1, 511, file);
  said[n] = '\0';
  fclose(file);
  assert_int_equal(st, GYRE_OK);
  return wrong;
}

static void a_right_one_passes(void **state) {
  (void)state;
  char said[512];
  for (int type = 0; type < GYRE_DTYPE_COUNT; type++) {
    assert_int_equal(check(copy, (gyre_dtype)type, false, said), 0);
    assert_int_equal(check(copy, (gyre_dtype)type, true, said), 0);
    assert_string_equal(said, "");
  }
}

static void one_wrong_element_is_found(void **state) {
  (void)state;
  char said[512];
  for (int type = 0; type < GYRE_DTYPE_COUNT; type++) {
    assert_int_equal(check(corrupt_one, (gyre_dtype)type, false, said), 1);
    assert_non_null(strstr(said, "1 wrong; first on rank 0, output index 12345: got "));
    assert_int_equal(check(corrupt_one, (gyre_dtype)type, true, said), 1);
    assert_non_null(strstr(said, "in place"));
  }
}

static void missing_elements_are_found(void **state) {
  (void)state;
  char said[512];
  assert_int_equal(check(lose_the_end, GYRE_F32, false, said), 3);
  assert_non_null(strstr(said, "output index 19997: got "));
}

static void a_written_input_is_found(void **state) {
  (void)state;
  char said[512];
  assert_int_equal(check(write_the_input, GYRE_I32, false, said), 1);
  assert_non_null(strstr(said, "input, which must not be written: element 0"));
}

static void stale_results_are_found(void **state) {
  (void)state;
  char said[512];
  assert_int_equal(check(repeat_the_first_call, GYRE_F32, false, said), 0);
  assert_true(check(repeat_the_first_call, GYRE_F32, false, said) > COUNT / 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_right_one_passes),         cmocka_unit_test(one_wrong_element_is_found),
      cmocka_unit_test(missing_elements_are_found), cmocka_unit_test(a_written_input_is_found),
      cmocka_unit_test(stale_results_are_found),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}

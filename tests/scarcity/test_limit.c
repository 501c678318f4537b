/*
 * test_limit.c - a process whose limit of descriptors leaves it so many and no more, from none on: two ranks in
 * it work, or each call says what to raise; and nobody is kept busy by waiting for a descriptor.
 * STRIDE and SEED in the environment as for test_scarcity.c.
 */
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "gyre/gyre.h"

enum { WORKS = 0, REFUSED = 1, WRONG = 2 };

static bool told; /* what to raise */

/* Whether the call went well. */
static bool good(gyre_status st) {
  if (st && strstr(gyre_last_error(), "ulimit -n")) told = true;
  if (st && getenv("VERBOSE")) fprintf(stderr, "%s\n", gyre_last_error());
  return st == GYRE_OK;
}

static bool two_ranks(gyre_context **ctx) {
  gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
  gyre_unique_id id;
  gyre_comm *comm[2] = {NULL, NULL};
  gyre_request *req[2];
  int32_t in[2] = {20, 22}, out[2] = {0, 0};
  bool all = good(gyre_unique_id_create(ctx[0], &id));
  config.id = &id;
  config.connect_timeout_ms = 500;
  for (int r = 0; r < 2 && all; r++)
    all = good(gyre_comm_create_async(ctx[r], r, 2, &config, &comm[r], &req[r]));
  if (!all) return false;
  for (int r = 0; r < 2; r++) all &= good(gyre_wait(req[r], 20000));
  for (int r = 0; r < 2 && all; r++)
    all = good(gyre_all_reduce_async(comm[r], &in[r], &out[r], 1, GYRE_I32, GYRE_SUM, &req[r]));
  for (int r = 0; r < 2 && all; r++) all &= good(gyre_wait(req[r], 20000));
  if (all && (out[0] != 42 || out[1] != 42)) fprintf(stderr, "a wrong sum\n");
  for (int r = 0; r < 2; r++) gyre_comm_destroy(comm[r]);
  return all;
}

static int64_t ns_of(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int child(int free_descriptors) {
  gyre_context *ctx[2] = {NULL, NULL};
  int next = open("/dev/null", O_RDONLY | O_CLOEXEC); /* the lowest that is free */
  close(next);
  struct rlimit limit = {(rlim_t)(next + free_descriptors), (rlim_t)(next + free_descriptors)};
  setenv("GYRE_LINGER_MS", "20", 1);
  setenv("GYRE_LOG", "off", 1);
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return WRONG;
  int64_t wall = ns_of(CLOCK_MONOTONIC), busy = ns_of(CLOCK_PROCESS_CPUTIME_ID);
  bool all =
      good(gyre_context_create(&ctx[0])) && good(gyre_context_create(&ctx[1])) && two_ranks(ctx);
  for (int i = 0; i < 2; i++) gyre_context_destroy(ctx[i]);
  wall = ns_of(CLOCK_MONOTONIC) - wall;
  busy = ns_of(CLOCK_PROCESS_CPUTIME_ID) - busy;
  if (wall > 400000000 && busy > wall / 2) {
    fprintf(stderr, "%d ms busy of %d\n", (int)(busy / 1000000), (int)(wall / 1000000));
    return WRONG;
  }
  if (!all && !told) fprintf(stderr, "what to raise is not said: %s\n", gyre_last_error());
  return all ? WORKS : told ? REFUSED : WRONG;
}

static int run(int free_descriptors) {
  int status = 0;
  pid_t pid = fork();
  if (pid == 0) {
    alarm(60);
    _exit(child(free_descriptors));
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  if (!WIFEXITED(status) || WEXITSTATUS(status) == WRONG)
    fail_msg("%d free descriptors: the process ended with %#x", free_descriptors, (unsigned)status);
  return WEXITSTATUS(status);
}

static unsigned number(const char *name, unsigned otherwise) {
  const char *text = getenv(name);
  return text ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

static void from_none_on(void **state) {
  (void)state;
  enum { PLENTY = 200 };
  unsigned stride = number("STRIDE", 6), seed = number("SEED", 0);
  int in_a_row = 0;
  assert_int_equal(run(0), REFUSED);
  assert_int_equal(run(PLENTY), WORKS);
  for (int n = 1 + (int)(seed % stride); n < PLENTY && in_a_row < 3; n += (int)stride)
    in_a_row = run(n) == WORKS ? in_a_row + 1 : 0;
  assert_int_equal(in_a_row, 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(from_none_on)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

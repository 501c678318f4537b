/* test_dump_signal.c - the flight recorder is written on a signal, whatever the application is
 * doing, and the signal is the application's again afterwards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gyre/gyre.h"

#define RANKS 2
#define PATIENCE_MS 60000

static char dir[] = "/tmp/gyre-test-XXXXXX";
static gyre_context *ctx[RANKS];
static gyre_comm *comm[RANKS];
static atomic_int calls; /* of the application's own handler */

static void own_handler(int number) {
  (void)number;
  atomic_fetch_add(&calls, 1);
}

static void take_over(int number) {
  struct sigaction own = {.sa_handler = own_handler, .sa_flags = SA_RESTART};
  assert_int_equal(sigaction(number, &own, NULL), 0);
}

static void (*handler_of(int number))(int) {
  struct sigaction now;
  assert_int_equal(sigaction(number, NULL, &now), 0);
  return now.sa_flags & SA_SIGINFO ? NULL : now.sa_handler;
}

static void open_pair(void) {
  gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
  gyre_request *req[RANKS];
  gyre_unique_id id;
  for (int r = 0; r < RANKS; r++) assert_int_equal(gyre_context_create(&ctx[r]), GYRE_OK);
  assert_int_equal(gyre_unique_id_create(ctx[0], &id), GYRE_OK);
  config.id = &id;
  for (int r = 0; r < RANKS; r++)
    assert_int_equal(gyre_comm_create_async(ctx[r], r, RANKS, &config, &comm[r], &req[r]), GYRE_OK);
  for (int r = 0; r < RANKS; r++) assert_int_equal(gyre_wait(req[r], -1), GYRE_OK);
}

static void close_pair(void) {
  for (int r = 0; r < RANKS; r++) gyre_context_destroy(ctx[r]);
}

static void path_of(int rank, char *out, size_t size) { snprintf(out, size, "%s/%d", dir, rank); }

/* Waits for a rank's file, removes it, and says whether `part` is in it. */
static bool file_has(int rank, const char *part) {
  char path[64], *text = calloc(1, 1 << 20);
  FILE *f = NULL;
  path_of(rank, path, sizeof path);
  for (int i = 0; i < PATIENCE_MS / 5 && !(f = fopen(path, "r")); i++) usleep(5000);
  bool found = f && fread(text, 1, (1 << 20) - 1, f) > 0 && strstr(text, part);
  if (f) fclose(f);
  free(text);
  remove(path);
  return found;
}

static int set_up(void **state) {
  (void)state;
  char file[64];
  snprintf(file, sizeof file, "%s/%%r", dir);
  setenv("GYRE_TRACE_FILE", file, 1);
  setenv("GYRE_TRACE_SIGNAL", "USR2", 1);
  atomic_store(&calls, 0);
  signal(SIGUSR2, SIG_DFL);
  return 0;
}

/* ------------------------------------------------------------------------------------ tests --- */

static void what_cannot_be_is_refused(void **state) {
  (void)state;
  static const char *const no[] = {"KILL",   "SEGV", "9",  "15", "0",   "RTMIN+99",
                                   "RTMIN+", "usr2", "-1", "65", "USR3"};
  static const char *const yes[] = {"USR1", "SIGUSR2", "12", "RTMIN+3", "HUP", "QUIT", ""};
  for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
    setenv("GYRE_TRACE_SIGNAL", no[i], 1);
    assert_int_equal(gyre_context_create(&ctx[0]), GYRE_ERR_ARG);
    assert_non_null(strstr(gyre_last_error(), "must be HUP, QUIT, USR1, USR2 or a real-time"));
  }
  for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) {
    setenv("GYRE_TRACE_SIGNAL", yes[i], 1);
    assert_int_equal(gyre_context_create(&ctx[0]), GYRE_OK);
    gyre_context_destroy(ctx[0]);
  }
  setenv("GYRE_TRACE_SIGNAL", "USR2", 1);
  unsetenv("GYRE_TRACE_FILE");
  assert_int_equal(gyre_context_create(&ctx[0]), GYRE_ERR_ARG);
  assert_non_null(strstr(gyre_last_error(), "GYRE_TRACE_SIGNAL=USR2"));
  assert_non_null(strstr(gyre_last_error(), "set GYRE_TRACE_FILE"));
  setenv("GYRE_TRACE_FILE", "/tmp/%q", 1);
  assert_int_equal(gyre_context_create(&ctx[0]), GYRE_ERR_ARG);
  assert_non_null(strstr(gyre_last_error(), "GYRE_TRACE_FILE=/tmp/%q"));
}

static void an_application_in_its_own_code_is_no_obstacle(void **state) {
  (void)state;
  take_over(SIGUSR2);
  open_pair();
  for (int i = 1; i <= 2; i++) {
    raise(SIGUSR2);
    assert_int_equal(atomic_load(&calls), i);
    for (int r = 0; r < RANKS; r++) assert_true(file_has(r, "\"reason\": \"signal\""));
  }
  gyre_context_destroy(ctx[1]);
  raise(SIGUSR2);
  assert_true(file_has(0, "\"rank\": 0, \"size\": 2"));
  gyre_context_destroy(ctx[0]);
  assert_ptr_equal(handler_of(SIGUSR2), own_handler);
  raise(SIGUSR2);
  assert_int_equal(atomic_load(&calls), 4);
}

static void *ask_and_help(void *arg) {
  bool *seen = arg;
  float in[7] = {0}, out[7];
  for (int i = 0; i < PATIENCE_MS / 10 && !*seen; i++) { /* until it is inside */
    kill(getpid(), SIGUSR2);
    *seen = file_has(0, "\"status\": \"IN_PROGRESS\"");
  }
  gyre_all_reduce(comm[1], in, out, 7, GYRE_F32, GYRE_SUM);
  return NULL;
}

static void neither_is_a_collective_that_waits(void **state) {
  (void)state;
  pthread_t thread;
  bool seen = false;
  float in[7] = {0}, out[7];
  open_pair();
  assert_int_equal(pthread_create(&thread, NULL, ask_and_help, &seen), 0);
  assert_int_equal(gyre_all_reduce(comm[0], in, out, 7, GYRE_F32, GYRE_SUM), GYRE_OK);
  pthread_join(thread, NULL);
  assert_true(seen);
  close_pair();
  for (int r = 0; r < RANKS; r++) {
    char path[64];
    path_of(r, path, sizeof path);
    remove(path);
  }
  assert_ptr_equal(handler_of(SIGUSR2), SIG_DFL);
}

static void a_child_has_no_part_in_it(void **state) {
  (void)state;
  open_pair();
  int status = 0;
  pid_t child = fork();
  if (child == 0) {
    raise(SIGUSR2); /* kills it */
    _exit(0);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR2);
  usleep(100000);
  for (int r = 0; r < RANKS; r++) {
    char path[64];
    path_of(r, path, sizeof path);
    assert_int_not_equal(access(path, F_OK), 0);
  }
  close_pair();
}

static void (*beneath)(int, siginfo_t *, void *);

static void over_it(int number, siginfo_t *info, void *where) {
  atomic_fetch_add(&calls, 1);
  beneath(number, info, where);
}

static void who_comes_over_it_stays(void **state) {
  (void)state;
  struct sigaction theirs = {.sa_sigaction = over_it, .sa_flags = SA_SIGINFO}, before, now;
  assert_int_equal(gyre_context_create(&ctx[0]), GYRE_OK);
  assert_int_equal(sigaction(SIGUSR2, &theirs, &before), 0);
  beneath = before.sa_sigaction;
  for (int i = 1; i <= 2; i++) { /* the second context comes while it is there */
    setenv("GYRE_RANK", "0", 1);
    raise(SIGUSR2);
    assert_int_equal(atomic_load(&calls), i);
    assert_true(file_has(0, "\"communicators\": []"));
    gyre_context_destroy(ctx[0]);
    assert_int_equal(sigaction(SIGUSR2, NULL, &now), 0);
    assert_ptr_equal(now.sa_sigaction, over_it);
    if (i == 1) assert_int_equal(gyre_context_create(&ctx[0]), GYRE_OK);
  }
  unsetenv("GYRE_RANK");
  signal(SIGUSR2, SIG_DFL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(what_cannot_be_is_refused, set_up),
      cmocka_unit_test_setup(neither_is_a_collective_that_waits, set_up),
      cmocka_unit_test_setup(an_application_in_its_own_code_is_no_obstacle, set_up),
      cmocka_unit_test_setup(who_comes_over_it_stays, set_up),
      cmocka_unit_test_setup(a_child_has_no_part_in_it, set_up),
  };
  if (!mkdtemp(dir)) return 1;
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  return rmdir(dir) == 0 ? failed : 1;
}

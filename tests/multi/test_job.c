/* test_job.c - a rank of four keeps the others waiting: gyre-info --job names it, from the processes
 * and from the files that a signal has them write. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ranks.h"

#define RANKS 4
#define LATE 2 /* the rank that does not call */
#define COUNT 7
#define TRIES 100

static char dir[] = "/tmp/gyre-test-XXXXXX";
static char output[1 << 16];

/* gyre-info --job ARGUMENTS; its status, and what it printed in `output`. */
static int gyre_info(const char *arguments) {
  char command[1024];
  const char *build = getenv("TEST_BUILD_DIR");
  snprintf(command, sizeof command, "%s/tools/gyre-info --job %s", build ? build : "build/release",
           arguments);
  FILE *f = popen(command, "r");
  if (!f) return -1;
  output[fread(output, 1, sizeof output - 1, f)] = 0;
  int status = pclose(f);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Until it has noticed: it takes no wait of less than a second seriously. */
static int names(const char *arguments, const char *cause, const char *waiters) {
  for (int i = 0; i < TRIES; i++) {
    int status = gyre_info(arguments);
    if (status == 3) return strstr(output, cause) && strstr(output, waiters) ? 0 : 1;
    if (status != 0) return 1;
    usleep(200000);
  }
  return 1;
}

static int name_by_pid(const int32_t *pid, const char *cause, const char *waiters) {
  char arguments[128];
  snprintf(arguments, sizeof arguments, "%d %d %d %d", pid[0], pid[1], pid[2], pid[3]);
  return names(arguments, cause, waiters);
}

/* Files of two ranks, the processes of the others. */
static int name_by_file(const int32_t *pid, const char *cause, const char *waiters) {
  char arguments[256], path[64];
  snprintf(arguments, sizeof arguments, "%s/0 %d %d %s/3", dir, pid[1], pid[2], dir);
  for (int r = 0; r < RANKS; r++) kill(pid[r], SIGUSR2);
  for (int r = 0; r < RANKS; r++) {
    snprintf(path, sizeof path, "%s/%d", dir, r);
    for (int i = 0; i < 10 * TRIES && access(path, F_OK) != 0; i++) usleep(20000);
  }
  int failed = names(arguments, cause, waiters);
  for (int r = 0; r < RANKS; r++) {
    snprintf(path, sizeof path, "%s/%d", dir, r);
    failed |= remove(path) != 0;
  }
  return failed;
}

static int keep_waiting(struct rank_env *e) {
  int32_t pid[RANKS], mine = (int32_t)getpid();
  float in[COUNT] = {1}, out[COUNT];
  char c = 1;
  if (gyre_all_gather(e->comm, &mine, pid, 1, GYRE_I32))
    return RANK_FAIL(e, "%s", gyre_last_error());
  if (e->rank == LATE) {
    static const char cause[] = ") has not called operation 2 all_reduce(f32 x 7, sum, ",
                      waiters[] = "; it keeps waiting: ranks 0 1 3, since ";
    if (name_by_pid(pid, cause, waiters) || name_by_file(pid, cause, waiters) ||
        !strstr(output, "cause    rank 2 ("))
      return RANK_FAIL(e, "the collective: gyre-info says:\n%s", output);
  }
  if (gyre_all_reduce(e->comm, in, out, COUNT, GYRE_F32, GYRE_SUM))
    return RANK_FAIL(e, "%s", gyre_last_error());
  if (e->rank == 1 && gyre_recv(e->comm, &c, 1, GYRE_U8, LATE))
    return RANK_FAIL(e, "%s", gyre_last_error());
  if (e->rank == LATE) {
    if (name_by_pid(pid, ") has not sent message 1 from rank 2 to rank 1 (u8 x 1)", "keeps waiting: "))
      return RANK_FAIL(e, "the message: gyre-info says:\n%s", output);
    if (gyre_send(e->comm, &c, 1, GYRE_U8, 1)) return RANK_FAIL(e, "%s", gyre_last_error());
  }
  return gyre_barrier(e->comm) ? RANK_FAIL(e, "%s", gyre_last_error()) : 0;
}

static void the_late_rank_is_named(void **state) {
  (void)state;
  char file[64];
  gyre_info("/dev/null 2>&1");
  if (strstr(output, "built without --job")) skip();
  snprintf(file, sizeof file, "%s/%%r", dir);
  setenv("GYRE_TRACE_FILE", file, 1);
  setenv("GYRE_TRACE_SIGNAL", "USR2", 1);
  assert_int_equal(ranks_run(RANKS, keep_waiting, &(struct ranks_options){.timeout_s = 150}), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_late_rank_is_named)};
  if (!mkdtemp(dir)) return 1;
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  return rmdir(dir) == 0 ? failed : 1;
}

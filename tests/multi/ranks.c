/* ranks.c - see ranks.h. */
#include "ranks.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A rank that crashes ends: the test framework's own handlers would go on with the tests after this
 * one, in the child. */
static void crash_by_default(void) {
  static const int crashes[] = {SIGFPE, SIGILL, SIGSEGV, SIGBUS, SIGSYS, SIGABRT};
  for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++) signal(crashes[i], SIG_DFL);
}

static int be_rank(int rank, int nranks, rank_body body, const struct ranks_options *o,
                   const char *rendezvous) {
  struct rank_env env = {
      .rank = rank, .nranks = nranks, .rendezvous = rendezvous, .arg = o ? o->arg : NULL};
  gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
  if (o && o->config) config = *o->config;
  config.rendezvous = rendezvous;
  crash_by_default();
  alarm(o && o->timeout_s ? o->timeout_s : 240);
  if (gyre_context_create(&env.ctx)) return RANK_FAIL(&env, "context: %s", gyre_last_error());
  int failed;
  if (gyre_comm_create(env.ctx, rank, nranks, &config, &env.comm)) {
    failed = RANK_FAIL(&env, "communicator: %s", gyre_last_error());
  } else {
    failed = body(&env);
  }
  gyre_comm_destroy(env.comm);
  gyre_context_destroy(env.ctx);
  return failed;
}

/* A sanitizer looks for leaks on exit, which takes longer than most of these tests: two ranks of each world do. */
static void leave(int rank, int nranks, int status) {
  fflush(NULL);
  if (rank > 0 && rank < nranks - 1) _exit(status);
  exit(status);
}

static int end_of(pid_t pid, int rank) {
  int status = 0;
  waitpid(pid, &status, 0); /* the rank's alarm bounds this */
  if (WIFSIGNALED(status)) fprintf(stderr, "rank %d: ended by signal %d\n", rank, WTERMSIG(status));
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
}

bool ranks_take(size_t value, size_t n, size_t others) {
  const char *all = getenv("TEST_ALL");
  return (all && strcmp(all, "1") == 0) || value == others % n;
}

int ranks_run(int nranks, rank_body body, const struct ranks_options *options) {
  char dir[] = "/tmp/gyre-test-XXXXXX", rendezvous[64];
  pid_t *pid = calloc((size_t)nranks, sizeof *pid);
  int failed = 0;
  if (!pid || !mkdtemp(dir)) return nranks;
  snprintf(rendezvous, sizeof rendezvous, "file://%s/job", dir);
  fflush(NULL);
  for (int r = 0; r < nranks; r++) {
    pid[r] = fork();
    if (pid[r] != 0) continue;
    free(pid);
    leave(r, nranks, be_rank(r, nranks, body, options, rendezvous));
  }
  for (int r = 0; r < nranks; r++) failed += pid[r] < 0 ? 1 : end_of(pid[r], r);
  free(pid);
  rmdir(dir);
  return failed;
}

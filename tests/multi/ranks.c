/* ranks.c - see ranks.h. */
#include "ranks.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../leave.h"

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

static int end_of(pid_t pid, int rank) {
  int status = 0;
  waitpid(pid, &status, 0); /* the rank's alarm bounds this */
  if (WIFSIGNALED(status)) fprintf(stderr, "rank %d: ended by signal %d\n", rank, WTERMSIG(status));
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
}

static bool is_set(const char *name) {
  const char *value = getenv(name);
  return value && strcmp(value, "1") == 0;
}

bool ranks_take(size_t value, size_t n, size_t others) {
  return is_set("TEST_ALL") || value == others % n;
}

int ranks_next(int nranks) {
  const char *sanitize = getenv("TEST_SANITIZE");
  const char *taken = !sanitize || !*sanitize || is_set("TEST_WHOLE") ? "12345678"
                      : strcmp(sanitize, "thread")                    ? "1235"
                                                                      : "124";
  while (++nranks <= 8 && !strchr(taken, '0' + nranks)) continue;
  return nranks;
}

int ranks_run(int nranks, rank_body body, const struct ranks_options *options) {
  static unsigned worlds;
  char dir[] = "/tmp/gyre-test-XXXXXX", rendezvous[64];
  pid_t *pid = calloc((size_t)nranks, sizeof *pid);
  int failed = 0;
  if (!pid || !mkdtemp(dir)) return nranks;
  snprintf(rendezvous, sizeof rendezvous, "file://%s/job", dir);
  fflush(NULL);
  worlds++;
  for (int r = 0; r < nranks; r++) {
    pid[r] = fork();
    if (pid[r] != 0) continue;
    free(pid);
    rank_leave(r, nranks, worlds, be_rank(r, nranks, body, options, rendezvous));
  }
  for (int r = 0; r < nranks; r++) failed += pid[r] < 0 ? 1 : end_of(pid[r], r);
  free(pid);
  rmdir(dir);
  return failed;
}

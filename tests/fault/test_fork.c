/* test_fork.c - children that a rank forks: they hide no death, disturb no collective, and are told
 * that what they inherit is not theirs. */
#include "world.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANKS 3
#define BOUND_MS 2000
#define COUNT 1000

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define NO_THREADS_IN_CHILDREN 1
#endif
#endif
#ifdef __SANITIZE_THREAD__
#define NO_THREADS_IN_CHILDREN 1
#endif

/* Fails a child or a rank. */
#define MUST(condition)                                                                     \
  do {                                                                                      \
    if (condition) break;                                                                   \
    fprintf(stderr, "%s:%d: not so: %s (last error: %s)\n", __FILE__, __LINE__, #condition, \
            gyre_last_error());                                                             \
    _exit(9);                                                                               \
  } while (0)

static gyre_status sum_up(gyre_comm *comm) {
  float in[COUNT], out[COUNT];
  for (int i = 0; i < COUNT; i++) in[i] = (float)i;
  gyre_status st = gyre_all_reduce(comm, in, out, COUNT, GYRE_F32, GYRE_SUM);
  for (int i = 0; i < COUNT && st == GYRE_OK; i++)
    MUST(out[i] == (float)(i * gyre_comm_size(comm)));
  return st;
}

static int child_status(pid_t pid) {
  int status = -1;
  for (int i = 0; i < WATCHDOG_MS / 5; i++) {
    if (waitpid(pid, &status, WNOHANG) == pid)
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    sleep_ms(5);
  }
  kill(pid, SIGKILL);
  waitpid(pid, &status, 0);
  return -1;
}

/* ------------------------------------------------------------------------- a sleeping child --- */

static int sire(struct self *self) {
  self_create(self, NULL);
  if (sum_up(self->comm)) return 1;
  pid_t child = 0;
  if (self->rank == *(const int *)self->arg) {
    child = fork();
    if (child == 0) { /* as a worker that loads data */
      for (int i = 0; i < 30; i++) poll(NULL, 0, 1000);
      _exit(0);
    }
  }
  self_say(self, READY, GYRE_OK, (uint64_t)child);
  gyre_status st;
  do { st = sum_up(self->comm); } while (st == GYRE_OK);
  self_say(self, RETURNED, st, 0);
  return 0;
}

static void a_sleeping_child_does_not_hide_its_parents_death(void **state) {
  (void)state;
  for (int victim = 0; victim < RANKS; victim += RANKS - 1) {
    struct world w;
    struct report ready[RANKS], end[RANKS];
    world_start(&w, RANKS, sire, &victim);
    world_collect(&w, READY, -1, ready);
    pid_t child = (pid_t)ready[victim].value;
    assert_true(child > 0);
    int64_t killed_at = now_ns();
    world_signal(&w, victim, SIGKILL);
    world_collect(&w, RETURNED, victim, end);
    bool slept = kill(child, 0) == 0;
    kill(child, SIGKILL);
    assert_true(slept);
    for (int r = 0; r < RANKS; r++) {
      if (r == victim) continue;
      assert_int_equal(end[r].status, GYRE_ERR_PEER_LOST);
      assert_int_equal(end[r].verdict.culprit_rank, victim);
      assert_true(end[r].at_ns - killed_at < at_most(BOUND_MS) * INT64_C(1000000));
    }
    world_end(&w, victim);
  }
}

/* ----------------------------------------------------------- a child in the middle of it all --- */

static int sockets_open(void) {
  int n = 0;
  for (int fd = 0; fd < 1024; fd++) { /* opendir would allocate */
    char path[32], target[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(path, target, sizeof target - 1);
    n += len > 7 && strncmp(target, "socket:", 7) == 0;
  }
  return n;
}

static void refused(gyre_status st, pid_t parent) {
  char expected[64];
  snprintf(expected, sizeof expected, "belongs to process %ld", (long)parent);
  MUST(st == GYRE_ERR_STATE);
  MUST(strstr(gyre_last_error(), expected));
}

static void use_own_context(void) {
#ifndef NO_THREADS_IN_CHILDREN
  gyre_context *ctx;
  gyre_comm *comm;
  MUST(gyre_context_create(&ctx) == GYRE_OK);
  MUST(gyre_comm_create(ctx, 0, 1, NULL, &comm) == GYRE_OK);
  MUST(sum_up(comm) == GYRE_OK);
  gyre_comm_destroy(comm);
  gyre_context_destroy(ctx);
#endif
}

/* Tries everything on what is its parent's, then leaves through atexit. */
static void be_child(struct self *self, gyre_request *req) {
  static struct self kept; /* what is not freed stays reachable, so that no leak is reported */
  static gyre_request *volatile kept_req;
  gyre_error verdict = GYRE_ERROR_INIT;
  gyre_counters counters = GYRE_COUNTERS_INIT;
  gyre_unique_id id;
  gyre_request *other;
  gyre_comm *comm;
  float in = 1, out;
  pid_t parent = getppid();
  kept = *self;
  kept_req = req;
  MUST(sockets_open() == 0);
  refused(gyre_all_reduce(self->comm, &in, &out, 1, GYRE_F32, GYRE_SUM), parent);
  refused(gyre_barrier_async(self->comm, &other), parent);
  refused(gyre_recv_async(self->comm, &out, 1, GYRE_F32, 0, &other), parent);
  refused(gyre_comm_status(self->comm, &verdict), parent);
  refused(gyre_comm_counters(self->comm, &counters), parent);
  refused(gyre_comm_dump(self->comm, "/nowhere"), parent);
  refused(gyre_comm_abort(self->comm, "never"), parent);
  refused(gyre_comm_create(self->ctx, 0, 1, NULL, &comm), parent);
  refused(gyre_unique_id_create(self->ctx, &id), parent);
  refused(gyre_progress(self->ctx), parent);
  MUST(gyre_context_fd(self->ctx) == -1);
  if (req) refused(gyre_test(req), parent);
  if (req) refused(gyre_wait(kept_req, -1), parent);
  gyre_request_free(req);
  gyre_comm_destroy(self->comm);
  gyre_context_destroy(self->ctx);
  MUST(gyre_comm_rank(self->comm) == kept.rank);
  /* The allocator of the sanitizers, unlike the C library's, is not made whole after a fork: where
   * another thread of the parent may have been inside it, the child allocates nothing. */
  if (sanitized() && !req) _exit(0);
  use_own_context();
  /* What the parent's other threads held is nobody's in the child, and would be reported as leaked. */
  if (sanitized()) _exit(0);
  exit(0);
}

static void *sum_often(void *arg) {
  struct self *self = arg;
  for (int i = 0; i < 300; i++) MUST(sum_up(self->comm) == GYRE_OK);
  return NULL;
}

static int fork_in_the_middle(struct self *self) {
  pthread_t thread;
  gyre_request *req;
  float in = 1, out;
  self_create(self, NULL);
  MUST(pthread_create(&thread, NULL, sum_often, self) == 0);
  for (int i = 0; i < 3 && self->rank < 2; i++) {
    pid_t child = fork();
    if (child == 0) be_child(self, NULL);
    MUST(child > 0);
    MUST(child_status(child) == 0);
  }
  MUST(pthread_join(thread, NULL) == 0);
  /* With an operation that cannot end before the children have. */
  MUST(gyre_all_reduce_async(self->comm, &in, &out, 1, GYRE_F32, GYRE_SUM, &req) == GYRE_OK);
  if (self->rank == 0) {
    self_say(self, READY, GYRE_OK, 0);
    pid_t child = fork();
    if (child == 0) be_child(self, req);
    MUST(child_status(child) == 0);
  }
  MUST(gyre_wait(req, -1) == GYRE_OK && out == RANKS);
  MUST(sum_up(self->comm) == GYRE_OK);
  return 0;
}

static void children_are_told_and_disturb_nobody(void **state) {
  (void)state;
  struct world w;
  world_start(&w, RANKS, fork_in_the_middle, NULL);
  world_end(&w, -1);
}

/* ------------------------------------------------------------------------ exec and the like --- */

static int run_programs(struct self *self) {
  extern char **environ;
  char *const argv[] = {"sh", "-c", "exit 4", NULL};
  self_create(self, NULL);
  for (int i = 0; i < 3; i++) {
    pid_t child;
    if (sum_up(self->comm)) return 1;
    MUST(WEXITSTATUS(system("exit 3")) == 3);
    MUST(posix_spawn(&child, "/bin/sh", NULL, NULL, argv, environ) == 0);
    MUST(child_status(child) == 4);
    child = fork();
    if (child == 0) execl("/bin/sh", "sh", "-c", "exit 5", (char *)NULL);
    MUST(child_status(child) == 5);
  }
  return sum_up(self->comm) != GYRE_OK;
}

static void programs_may_be_run(void **state) {
  (void)state;
  struct world w;
  world_start(&w, RANKS, run_programs, NULL);
  world_end(&w, -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(a_sleeping_child_does_not_hide_its_parents_death, world_teardown),
      cmocka_unit_test_teardown(children_are_told_and_disturb_nobody, world_teardown),
      cmocka_unit_test_teardown(programs_may_be_run, world_teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

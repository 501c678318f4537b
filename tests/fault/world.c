/* world.c - see world.h. */
#include "world.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../leave.h"

#define WORLDS 64
static struct world *living[WORLDS];
static unsigned worlds_started;

int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void sleep_ms(int ms) { poll(NULL, 0, ms); }

bool sanitized(void) {
  const char *sanitize = getenv("TEST_SANITIZE");
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#endif
  return sanitize && *sanitize;
}

int patience(int ms) { return sanitized() ? 4 * ms : ms; }

int at_most(int ms) {
  const char *bounds = getenv("BOUNDS");
  return bounds && strcmp(bounds, "strict") == 0 ? ms : 10 * ms;
}

int rounds(int quick) {
  const char *wanted = getenv("ROUNDS");
  if (wanted && atoi(wanted) > 0) return atoi(wanted);
  return sanitized() ? (quick + 3) / 4 : quick;
}

bool names_rank(const char *text, int rank) {
  char name[32];
  size_t len = (size_t)snprintf(name, sizeof name, "rank %d", rank);
  for (const char *p = text; (p = strstr(p, name)); p += len) {
    if (p[len] < '0' || p[len] > '9') return true;
  }
  return false;
}

/* ------------------------------------------------------------------------------------- a rank --- */

static void must(const struct self *self, const char *what, gyre_status st) {
  if (st == GYRE_OK) return;
  fprintf(stderr, "rank %d: %s: %s: %s\n", self->rank, what, gyre_status_name(st), gyre_last_error());
  exit(3);
}

void self_create(struct self *self, const gyre_comm_config *config) {
  gyre_comm_config c = GYRE_COMM_CONFIG_INIT;
  if (config) c = *config;
  c.rendezvous = self->rendezvous;
  must(self, "context", gyre_context_create(&self->ctx));
  must(self, "communicator", gyre_comm_create(self->ctx, self->rank, self->nranks, &c, &self->comm));
}

void self_say(struct self *self, enum kind kind, gyre_status status, uint64_t value) {
  struct report r = {.rank = self->rank,
                     .kind = (int)kind,
                     .status = status,
                     .verdict = GYRE_ERROR_INIT,
                     .at_ns = now_ns(),
                     .value = value};
  if (status < 0) snprintf(r.text, sizeof r.text, "%s", gyre_last_error());
  if (self->comm) gyre_comm_status(self->comm, &r.verdict);
  if (write(self->say_fd, &r, sizeof r) != (ssize_t)sizeof r) exit(4);
}

char self_hear(struct self *self) {
  struct pollfd p = {self->hear_fd, POLLIN, 0};
  char what = 0;
  if (poll(&p, 1, WATCHDOG_MS) != 1 || read(self->hear_fd, &what, 1) != 1) exit(5);
  return what;
}

static void be_rank(struct world *w, int rank, body_fn body, const void *arg, int say_fd,
                    int hear_fd) {
  struct self self = {.rank = rank,
                      .nranks = w->nranks,
                      .arg = arg,
                      .rendezvous = w->rendezvous,
                      .say_fd = say_fd,
                      .hear_fd = hear_fd};
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(3 * WATCHDOG_MS / 1000);
  signal(SIGPIPE, SIG_DFL); /* as in a program that never heard of it */
  int status = body(&self);
  gyre_comm_destroy(self.comm);
  gyre_context_destroy(self.ctx);
  rank_leave(rank, w->nranks, worlds_started, status);
}

/* --------------------------------------------------------------------------------- the parent --- */

static void keep(struct world *w) {
  for (int i = 0; i < WORLDS; i++) {
    if (living[i]) continue;
    living[i] = w;
    return;
  }
  fail_msg("more than %d worlds", WORLDS);
}

static void forget(const struct world *w) {
  for (int i = 0; i < WORLDS; i++) {
    if (living[i] == w) living[i] = NULL;
  }
}

void world_start(struct world *w, int nranks, body_fn body, const void *arg) {
  worlds_started++;
  int up[2], down[2];
  memset(w, 0, sizeof *w);
  snprintf(w->dir, sizeof w->dir, "/tmp/gyre-fault-XXXXXX");
  if (!mkdtemp(w->dir) || pipe(up)) fail_msg("no directory or pipe: %s", strerror(errno));
  snprintf(w->rendezvous, sizeof w->rendezvous, "file://%s/job", w->dir);
  w->nranks = nranks;
  w->hear_fd = up[0];
  keep(w);
  fflush(NULL);
  for (int r = 0; r < nranks; r++) {
    if (pipe(down)) fail_msg("no pipe: %s", strerror(errno));
    w->rank[r].say_fd = down[1];
    w->rank[r].pid = fork();
    if (w->rank[r].pid < 0) fail_msg("no process: %s", strerror(errno));
    if (w->rank[r].pid == 0) {
      for (int q = 0; q <= r; q++) close(w->rank[q].say_fd);
      close(up[0]);
      be_rank(w, r, body, arg, up[1], down[0]);
    }
    close(down[0]);
  }
  close(up[1]);
}

bool world_hear(struct world *w, struct report *out, int64_t timeout_ms) {
  struct pollfd p = {w->hear_fd, POLLIN, 0};
  int n;
  do n = poll(&p, 1, (int)timeout_ms);
  while (n < 0 && errno == EINTR);
  return n == 1 && read(w->hear_fd, out, sizeof *out) == (ssize_t)sizeof *out;
}

void world_collect(struct world *w, enum kind kind, int without, struct report *out) {
  bool have[WORLD_MAX] = {false};
  int missing = w->nranks - (without >= 0);
  int64_t end = now_ns() + (int64_t)WATCHDOG_MS * 1000000;
  while (missing > 0) {
    struct report r;
    int64_t left = (end - now_ns()) / 1000000;
    if (left <= 0 || !world_hear(w, &r, left)) {
      for (int q = 0; q < w->nranks; q++) {
        if (!have[q] && q != without)
          fprintf(stderr, "rank %d of %d has said nothing\n", q, w->nranks);
      }
      fail_msg("%d reports of kind %d did not come", missing, kind);
    }
    if (r.kind != (int)kind || r.rank == without || have[r.rank]) continue;
    have[r.rank] = true;
    out[r.rank] = r;
    missing--;
  }
}

void world_tell(struct world *w, int rank, char what) {
  signal(SIGPIPE, SIG_IGN);
  ssize_t n = write(w->rank[rank].say_fd, &what, 1);
  (void)n; /* the rank may be dead: then it is missed elsewhere */
}

void world_tell_all(struct world *w, char what) {
  for (int r = 0; r < w->nranks; r++) world_tell(w, r, what);
}

void world_signal(struct world *w, int rank, int signal) {
  if (signal == SIGKILL) w->rank[rank].killed = true;
  kill(w->rank[rank].pid, signal);
}

/* The exit status, or -1 after it had to be killed. */
static int reap(pid_t pid, int64_t end_ns) {
  int status;
  for (;;) {
    pid_t got = waitpid(pid, &status, WNOHANG);
    if (got == pid) return status;
    if (got < 0 || now_ns() > end_ns) break;
    sleep_ms(2);
  }
  kill(pid, SIGKILL);
  waitpid(pid, &status, 0);
  return -1;
}

static void close_world(struct world *w) {
  for (int r = 0; r < w->nranks; r++) {
    if (w->rank[r].say_fd > 0) close(w->rank[r].say_fd);
  }
  close(w->hear_fd);
  forget(w);
}

void world_end(struct world *w, int killed) {
  int64_t end = now_ns() + (int64_t)WATCHDOG_MS * 1000000;
  int bad = 0;
  for (int r = 0; r < w->nranks; r++) {
    int status = reap(w->rank[r].pid, end);
    w->rank[r].pid = 0;
    if (r == killed || w->rank[r].killed ||
        (status >= 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0))
      continue;
    fprintf(stderr, "rank %d of %d: %s\n", r, w->nranks,
            status < 0 ? "hung and was killed" : "ended badly");
    if (status >= 0) fprintf(stderr, "  wait status 0x%x\n", (unsigned)status);
    bad++;
  }
  close_world(w);
  if (rmdir(w->dir)) fail_msg("something is left in %s: %s", w->dir, strerror(errno));
  if (bad) fail_msg("%d ranks ended badly", bad);
}

int world_teardown(void **state) {
  (void)state;
  for (int i = 0; i < WORLDS; i++) {
    struct world *w = living[i];
    if (!w) continue;
    char job[64];
    for (int r = 0; r < w->nranks; r++) {
      if (w->rank[r].pid <= 0) continue;
      kill(w->rank[r].pid, SIGKILL);
      waitpid(w->rank[r].pid, NULL, 0);
    }
    close_world(w);
    snprintf(job, sizeof job, "%s/job", w->dir);
    unlink(job);
    rmdir(w->dir);
  }
  return 0;
}

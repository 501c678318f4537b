/* job.c - see job.h. */
#include "job.h"

#include <dirent.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gyre/gyre.h"

enum { RANKS = 3, BIG = 40000, PATIENCE_MS = 8000 };

struct self {
  int rank;
  gyre_context *ctx;
  gyre_comm *comm, *child; /* child: what split, dup or shrink made */
  gyre_request *req[2];
  gyre_op op;
  bool dead; /* comm has failed */
  bool made; /* this rank has what all were making */
  bool retried;
  gyre_error verdict;
  char error[640]; /* of what failed last */
  int64_t *in, *out;
};

static struct {
  int victim;
  enum scarce what;
  pthread_barrier_t barrier;
  gyre_unique_id id;
  struct self rank[RANKS];
  pthread_mutex_t lock;
  atomic_bool bad;
  int64_t start;
  long ms;
} job = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void complain(const struct self *s, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  pthread_mutex_lock(&job.lock);
  fprintf(stderr, "rank %d (rank %d was refused %s): ", s ? s->rank : -1, job.victim, inject_where());
  vfprintf(stderr, format, arguments);
  fprintf(stderr, "\n");
  pthread_mutex_unlock(&job.lock);
  va_end(arguments);
  atomic_store(&job.bad, true);
}

/* For whoever looks into one. */
static void tell(const struct self *s, const char *call, gyre_status st) {
  if (!getenv("VERBOSE")) return;
  fprintf(stderr, "%5ld ms, rank %d: %s: %s: %s\n", (long)(now_ms() - job.start), s->rank, call,
          gyre_status_name(st), st ? gyre_last_error() : "");
}

static bool mine(const struct self *s) { return s->rank == job.victim && inject_struck(); }

static void meet(void) { pthread_barrier_wait(&job.barrier); }

/* Whether all ranks have made what they were making. */
static bool all_made(void) {
  bool all = true;
  meet();
  for (int r = 0; r < RANKS; r++) all &= job.rank[r].made;
  meet();
  return all;
}

/* The library's own reason for a status of the rank that runs short. */
static bool true_status(gyre_status st) {
  return job.what == MEMORY ? st == GYRE_ERR_NOMEM || st == GYRE_ERR_SYS : st == GYRE_ERR_SYS;
}

/* What a call of this rank returned on its own account. Memory: also what the system and OpenSSL could
 * not do for want of it. */
static void check_own_failure(struct self *s, const char *call, gyre_status st) {
  snprintf(s->error, sizeof s->error, "%s", gyre_last_error());
  tell(s, call, st);
  if (!mine(s)) {
    complain(s, "%s: %s: %s", call, gyre_status_name(st), s->error);
    return;
  }
  if (!true_status(st)) complain(s, "%s: %s: %s", call, gyre_status_name(st), s->error);
  if (strlen(s->error) < 10) complain(s, "%s: no text: \"%s\"", call, s->error);
  if (job.what == DESCRIPTORS && !strstr(s->error, "ulimit -n"))
    complain(s, "%s: what to raise is not said: %s", call, s->error);
  inject_rest();
}

/* Makes a call that takes no place in any order if it fails; then once more. */
#define TWICE(s, call)                                                                         \
  do {                                                                                         \
    gyre_status st_ = (call);                                                                  \
    if (!st_) break;                                                                           \
    check_own_failure((s), #call, st_);                                                        \
    st_ = (call);                                                                              \
    if (st_)                                                                                   \
      complain((s), "once more: %s: %s: %s", #call, gyre_status_name(st_), gyre_last_error()); \
  } while (0)

/* ----------------------------------------------------------------------------- communicators --- */

static bool names(const char *text, int rank) {
  char name[16];
  snprintf(name, sizeof name, "rank %d", rank);
  for (const char *at = text; (at = strstr(at, name)); at++) {
    if (at[strlen(name)] < '0' || at[strlen(name)] > '9') return true;
  }
  return false;
}

/* A communicator that failed on one rank fails on all, with one story. */
static void share_the_verdict(struct self *s, gyre_comm *comm, bool dead) {
  s->verdict = (gyre_error)GYRE_ERROR_INIT;
  s->made = !dead;
  if (all_made() || !comm) {
    meet();
    meet();
    return;
  }
  for (int64_t end = now_ms() + PATIENCE_MS; now_ms() < end;) {
    if (gyre_comm_status(comm, &s->verdict)) break;
    usleep(2000);
  }
  if (!s->verdict.status) complain(s, "another rank has a verdict, this one has none");
  meet();
  if (s->rank == 0) {
    for (int r = 1; r < RANKS; r++) {
      const gyre_error *v = &job.rank[r].verdict;
      if (job.rank[r].comm == NULL) continue;
      if (v->status != s->verdict.status || v->culprit_rank != s->verdict.culprit_rank)
        complain(s, "verdicts differ: %s, rank %d: %s | %s, rank %d: %s",
                 gyre_status_name(s->verdict.status), s->verdict.culprit_rank, s->verdict.text,
                 gyre_status_name(v->status), v->culprit_rank, v->text);
    }
    if (s->verdict.culprit_rank != job.victim || !names(s->verdict.text, job.victim))
      complain(s, "the culprit is not named: %s, rank %d: %s", gyre_status_name(s->verdict.status),
               s->verdict.culprit_rank, s->verdict.text);
  }
  meet();
}

/* The end of a call in which all ranks have a part. */
static gyre_status finish(struct self *s, gyre_request *req, const char *call) {
  gyre_status st = gyre_wait(req, PATIENCE_MS);
  if (st == GYRE_IN_PROGRESS) {
    complain(s, "%s hangs", call);
    gyre_request_free(req);
  }
  if (st) snprintf(s->error, sizeof s->error, "%s", gyre_last_error());
  tell(s, call, st);
  if (st == GYRE_ERR_NOMEM || s->rank == job.victim) inject_rest();
  return st;
}

static void create(struct self *s) {
  for (int attempt = 0; attempt < 2; attempt++) {
    gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
    config.id = &job.id;
    config.connect_timeout_ms = 4000;
    config.op_timeout_ms = 4000;
    if (s->rank == 0) TWICE(s, gyre_unique_id_create(s->ctx, &job.id));
    meet();
    TWICE(s, gyre_comm_create_async(s->ctx, s->rank, RANKS, &config, &s->comm, &s->req[0]));
    gyre_status st = finish(s, s->req[0], "gyre_comm_create");
    if (st && attempt) complain(s, "created again: %s: %s", gyre_status_name(st), s->error);
    if (st && !inject_struck()) complain(s, "creation: %s: %s", gyre_status_name(st), s->error);
    s->made = st == GYRE_OK;
    if (all_made()) return;
    if (st && !names(s->error, job.victim) && s->rank != job.victim)
      complain(s, "the creation failed and the text does not say who: %s: %s", gyre_status_name(st),
               s->error);
    s->dead = st != GYRE_OK;
    int64_t sum, one = 1;
    if (!st && !gyre_all_reduce(s->comm, &one, &sum, 1, GYRE_I64, GYRE_SUM))
      complain(s, "an all-reduce without a rank that was not created");
    gyre_comm_destroy(s->comm);
    s->comm = NULL;
    s->dead = false;
    meet();
  }
}

/* A communicator of `n` ranks works, or fails on each in one way. */
static void use(struct self *s, gyre_comm *comm, int n) {
  int64_t one = 10, sum = 0;
  gyre_error v = GYRE_ERROR_INIT;
  gyre_status st = gyre_all_reduce(comm, &one, &sum, 1, GYRE_I64, GYRE_SUM);
  if (st && !gyre_comm_status(comm, &v)) {
    check_own_failure(s, "all-reduce", st);
    st = gyre_all_reduce(comm, &one, &sum, 1, GYRE_I64, GYRE_SUM);
  }
  if (!st && sum != 10 * n) complain(s, "the sum of %d ranks is %ld", n, (long)sum);
  if (st && !inject_struck())
    complain(s, "all-reduce: %s: %s", gyre_status_name(st), gyre_last_error());
  gyre_comm_status(comm, &v);
  if (v.status) inject_rest();
  if (v.status && !names(v.text, job.victim) && v.culprit_rank < 0)
    complain(s, "nobody is named: %s: %s", gyre_status_name(v.status), v.text);
}

/* A communicator made of another: by all, or it fails where it is used. */
static void derive(struct self *s, bool split) {
  s->child = NULL;
  if (split) TWICE(s, gyre_comm_split_async(s->comm, 1, -s->rank, &s->child, &s->req[0]));
  else TWICE(s, gyre_comm_dup_async(s->comm, &s->child, &s->req[0]));
  gyre_status st = finish(s, s->req[0], split ? "split" : "dup");
  if (st && !inject_struck()) complain(s, "derived: %s: %s", gyre_status_name(st), s->error);
  if (st && s->rank == job.victim && strlen(s->error) < 10) complain(s, "no text: %s", s->error);
  s->made = st == GYRE_OK;
  bool all = all_made();
  if (!st && all) use(s, s->child, RANKS);
  if (!st && !all) {
    int64_t one = 1, sum;
    if (!gyre_all_reduce(s->child, &one, &sum, 1, GYRE_I64, GYRE_SUM))
      complain(s, "an all-reduce without a rank that has no such communicator");
  }
  /* The new communicator's ranks may be meant. */
  int there = split ? RANKS - 1 - job.victim : job.victim;
  if (st && s->rank != job.victim && !names(s->error, job.victim) && !names(s->error, there))
    complain(s, "derived, and the text does not say who: %s: %s", gyre_status_name(st), s->error);
  meet();
  gyre_comm_destroy(s->child);
  gyre_error v = GYRE_ERROR_INIT;
  s->dead = gyre_comm_status(s->comm, &v) != GYRE_OK;
}

static void shrink(struct self *s) {
  gyre_error v = GYRE_ERROR_INIT;
  if (s->rank == 1) gyre_comm_abort(s->comm, "to be shrunk");
  for (int64_t end = now_ms() + PATIENCE_MS; !gyre_comm_status(s->comm, &v) && now_ms() < end;)
    usleep(1000);
  if (!v.status) complain(s, "no verdict after an abort");
  s->child = NULL;
  TWICE(s, gyre_comm_shrink_async(s->comm, &s->child, &s->req[0]));
  gyre_status st = finish(s, s->req[0], "shrink");
  if (st && !inject_struck()) complain(s, "shrink: %s: %s", gyre_status_name(st), s->error);
  s->made = st == GYRE_OK;
  all_made();
  int n = gyre_comm_size(s->child);
  if (!st && n < 2) complain(s, "shrunk to %d ranks", n);
  if (!st) use(s, s->child, n);
  meet();
  gyre_comm_destroy(s->child);
}

/* -------------------------------------------------------------------------------- operations --- */

static void add(void *dst, const void *left, const void *right, size_t n, gyre_dtype type,
                void *user) {
  (void)type, (void)user;
  for (size_t i = 0; i < n; i++)
    ((int64_t *)dst)[i] = ((const int64_t *)left)[i] + ((const int64_t *)right)[i];
}

static gyre_status post_sum(struct self *s, size_t n, gyre_op op, gyre_request **req) {
  for (size_t i = 0; i < n; i++) s->in[i] = (int64_t)i + s->rank;
  memset(s->out, 0, n * sizeof *s->out);
  return gyre_all_reduce_async(s->comm, s->in, s->out, n, GYRE_I64, op, req);
}

static gyre_status post_exchange(struct self *s, gyre_request **req) {
  static const size_t counts[RANKS] = {3, 3, 3}, displs[RANKS] = {0, 5, 10};
  memset(s->out, 0, 16 * sizeof *s->out);
  for (int i = 0; i < 16; i++) s->in[i] = i + 100 * s->rank;
  return gyre_all_to_all_v_async(s->comm, s->in, counts, displs, s->out, counts, displs, GYRE_I64,
                                 req);
}

static bool right(const struct self *s, int step) {
  int before = (s->rank + RANKS - 1) % RANKS;
  switch (step) {
    case 0: return s->out[0] == 3 && s->out[6] == 21;
    case 1:
      for (size_t i = 0; i < BIG; i++)
        if (s->out[i] != 3 * (int64_t)i + 3) return false;
      return true;
    case 2: return s->out[0] == 3 && s->out[99] == 300;
    case 3:
      for (int r = 0; r < RANKS; r++)
        if (s->out[5 * r] != 5 * s->rank + 100 * r || s->out[5 * r + 2] != 5 * s->rank + 2 + 100 * r)
          return false;
      return s->out[3] == 0;
    default: return s->out[0] == 7 + before;
  }
}

static gyre_status post(struct self *s, int step, int part) {
  switch (step) {
    case 0: return post_sum(s, 7, GYRE_SUM, &s->req[0]);
    case 1: return post_sum(s, BIG, GYRE_SUM, &s->req[0]);
    case 2: return post_sum(s, 100, s->op, &s->req[0]);
    case 3: return post_exchange(s, &s->req[0]);
    default: break;
  }
  s->in[0] = 7 + s->rank;
  if (part == 0) {
    s->out[0] = 0;
    return gyre_recv_async(s->comm, s->out, 1, GYRE_I64, (s->rank + RANKS - 1) % RANKS, &s->req[0]);
  }
  return gyre_send_async(s->comm, s->in, 1, GYRE_I64, (s->rank + 1) % RANKS, &s->req[1]);
}

/* A posting that fails leaves the communicator as it was, and takes no place in the order. */
static void operate(struct self *s, int step) {
  int parts = step == 4 ? 2 : 1;
  gyre_status failed = GYRE_OK;
  int posted = 0;
  for (; posted < parts && !s->dead; posted++) {
    gyre_error v = GYRE_ERROR_INIT;
    gyre_status st = post(s, step, posted);
    if (st && !gyre_comm_status(s->comm, &v)) {
      check_own_failure(s, "posting", st);
      st = post(s, step, posted);
    }
    if (st) {
      s->dead = true;
      break;
    }
  }
  for (int i = 0; i < posted; i++) {
    gyre_status st = finish(s, s->req[i], "operation");
    if (st) failed = st;
  }
  if (failed) s->dead = true;
  if (failed && !inject_struck())
    complain(s, "step %d: %s: %s", step, gyre_status_name(failed), s->error);
  if (!s->dead && !right(s, step)) complain(s, "the result of step %d is wrong", step);
}

/* --------------------------------------------------------------------------------------- job --- */

static void *rank_main(void *arg) {
  struct self *s = arg;
  char path[64];
  gyre_counters counters = GYRE_COUNTERS_INIT;
  inject_rank(s->rank);
  TWICE(s, gyre_context_create(&s->ctx));
  create(s);
  if (!s->comm) goto destroy_context;
  TWICE(s, gyre_op_create(s->comm, add, NULL, GYRE_OP_COMMUTATIVE, &s->op));
  for (int step = 0; step < 5 && !s->dead; step++) operate(s, step);
  snprintf(path, sizeof path, "scarcity-%d.%d.json", (int)getpid(), s->rank);
  TWICE(s, gyre_comm_dump(s->comm, path));
  unlink(path);
  TWICE(s, gyre_comm_counters(s->comm, &counters));
  share_the_verdict(s, s->comm, s->dead);
  for (int split = 0; split < 2 && !s->verdict.status; split++) {
    derive(s, split);
    share_the_verdict(s, s->comm, s->dead);
  }
  shrink(s);
  gyre_comm_destroy(s->comm);
destroy_context:
  gyre_context_destroy(s->ctx);
  return NULL;
}

static int entries(const char *path) {
  int n = 0;
  DIR *dir = opendir(path);
  while (dir && readdir(dir)) n++;
  if (dir) closedir(dir);
  return n;
}

/* Threads may take a moment to be gone. */
static void check_holdings(int descriptors, int threads, long blocks) {
  for (int64_t end = now_ms() + 2000; now_ms() < end && entries("/proc/self/task") > threads;)
    usleep(1000);
  if (entries("/proc/self/task") > threads) complain(NULL, "threads are left");
  if (entries("/proc/self/fd") != descriptors)
    complain(NULL, "descriptors: %d, now %d", descriptors, entries("/proc/self/fd"));
  if (inject_blocks() != blocks)
    complain(NULL, "%ld blocks of memory are left", inject_blocks() - blocks);
}

static void run(int victim) {
  static int64_t in[RANKS][BIG], out[RANKS][BIG];
  pthread_t thread[RANKS];
  setenv("GYRE_LINGER_MS", "20", 1);
  setenv("GYRE_LOG", "off", 1);
  pthread_barrier_init(&job.barrier, NULL, RANKS);
  atomic_store(&job.bad, false);
  job.victim = victim;
  job.start = now_ms();
  alarm(60); /* what hangs in spite of everything */
  for (int r = 0; r < RANKS; r++) {
    job.rank[r] = (struct self){.rank = r, .in = in[r], .out = out[r]};
    pthread_create(&thread[r], NULL, rank_main, &job.rank[r]);
  }
  for (int r = 0; r < RANKS; r++) pthread_join(thread[r], NULL);
  alarm(0);
  job.ms = (long)(now_ms() - job.start);
  pthread_barrier_destroy(&job.barrier);
}

bool job_run(enum scarce what, int victim, unsigned k, enum extent extent) {
  int descriptors = entries("/proc/self/fd"), threads = entries("/proc/self/task");
  long blocks = inject_blocks();
  job.what = what;
  inject_begin(what, victim, k, extent);
  run(victim);
  check_holdings(descriptors, threads, blocks);
  inject_end();
  return !atomic_load(&job.bad);
}

unsigned job_count(enum scarce what, int victim) {
  job.what = what;
  inject_begin(what, victim, 0, ONE);
  run(victim);
  unsigned n = inject_end();
  return atomic_load(&job.bad) ? 0 : n;
}

long job_ms(void) { return job.ms; }

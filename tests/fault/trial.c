/* trial.c - see trial.h. */
#include "trial.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checked.h"
#include "crowd.h"
#include "hosts.h"

#define LEFT_BEHIND 9
#define LIBUV_KEEPS 2 /* descriptors of a process: the pipe for its signals */
#define BIT(r) (1u << (r))

/* ------------------------------------------------------------------------------------- a rank --- */

struct worker {
  struct self *self;
  const struct plan *plan;
  const struct harm *mine; /* NULL */
  bool calm;               /* the parent has said that nothing more will happen */
  bool shrunk;
  uint32_t members;
  int64_t last_ok;
};

static void hear_all(struct worker *w, char until) {
  while (self_hear(w->self) != until) continue;
}

static bool is_calm(struct worker *w) {
  struct pollfd p = {w->self->hear_fd, POLLIN, 0};
  while (!w->calm && poll(&p, 1, 0) == 1) w->calm = self_hear(w->self) == 's';
  return w->calm;
}

static void on_signal(int number) { (void)number; }

static void sire_child(struct self *self) {
  pid_t child = fork();
  if (child == 0) { /* as a worker that loads data */
    alarm(60);
    for (int i = 0; i < 60; i++) sleep_ms(1000);
    _exit(0);
  }
  self_say(self, NOTE, GYRE_OK, (uint64_t)child);
}

/* What the rank does to itself before this round; false: it takes no part any more. */
static bool act(struct worker *w, unsigned round) {
  const struct harm *h = w->mine;
  if (!h || w->shrunk || round != h->round) return true;
  if (h->act == CHILD) sire_child(w->self);
  if (h->act != EXIT && h->act != LEAVE && h->act != ABORT && h->act != PAUSE) return true;
  self_say(w->self, NOTE, GYRE_OK, 0);
  switch (h->act) {
    case EXIT: exit(0);
    case LEAVE:
      gyre_comm_destroy(w->self->comm);
      w->self->comm = NULL;
      return false;
    case ABORT: gyre_comm_abort(w->self->comm, "as planned"); break;
    default:
      if (h->hold_ms) sleep_ms(h->hold_ms);
      else hear_all(w, 'w');
  }
  return true;
}

/* Who is in the communicator, and whether all of them may stop. */
static gyre_status look_around(struct worker *w, bool *over) {
  uint64_t mine = BIT(w->self->rank) | (uint64_t)is_calm(w) << 32, all = 0;
  gyre_status st = gyre_all_reduce(w->self->comm, &mine, &all, 1, GYRE_U64, GYRE_SUM);
  if (st) return st;
  w->members = (uint32_t)all;
  *over = all >> 32 == (uint64_t)gyre_comm_size(w->self->comm);
  return GYRE_OK;
}

static gyre_status work(struct worker *w) {
  struct self *self = w->self;
  bool over = false;
  for (unsigned round = 0; !over; round++) {
    if (!act(w, round)) return GYRE_OK;
    unsigned seed = w->plan->seed + (unsigned)gyre_comm_size(self->comm);
    gyre_status st = checked_round(self->comm, seed, round, w->plan->max_count);
    if (!st) st = look_around(w, &over);
    if (st) return st;
    w->last_ok = now_ns();
    if (w->shrunk && round == 0) self_say(self, NOTE, GYRE_OK, w->members);
    if (!w->shrunk && round == 1) self_say(self, READY, GYRE_OK, 0);
    sleep_ms(w->plan->pace_ms);
  }
  return GYRE_OK;
}

static gyre_status work_and_shrink(struct worker *w) {
  struct self *self = w->self;
  gyre_status st;
  while ((st = work(w)) != GYRE_OK && w->plan->stage == SHRINKING) {
    gyre_comm *next = NULL;
    st = gyre_comm_shrink(self->comm, &next);
    if (st) return st;
    gyre_comm_destroy(self->comm);
    self->comm = next;
    w->shrunk = true;
  }
  return st;
}

static void part(struct self *self) {
  gyre_comm_destroy(self->comm);
  gyre_context_destroy(self->ctx);
  self->comm = NULL;
  self->ctx = NULL;
}

static void set_limit(const struct holdings *held, int more) {
  struct rlimit limit = {0, 0};
  limit.rlim_cur = limit.rlim_max = (rlim_t)(held->descriptors + more);
  setrlimit(RLIMIT_NOFILE, &limit);
}

static gyre_status join(struct worker *w) {
  struct self *self = w->self;
  gyre_comm_config config = w->plan->config;
  config.rendezvous = self->rendezvous;
  if (w->mine && w->mine->act == RULE) config.fault = w->mine->rule;
  gyre_status st = gyre_context_create(&self->ctx);
  if (!st) st = gyre_comm_create(self->ctx, self->rank, self->nranks, &config, &self->comm);
  return st;
}

static void show_descriptors(void) {
  char path[32], target[200];
  for (int fd = 3; fd < 200; fd++) {
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n <= 0) continue;
    target[n] = '\0';
    fprintf(stderr, "  %d: %s\n", fd, target);
  }
}

static int left_behind(const struct holdings *before) {
  struct holdings now = holdings_now();
  for (int ms = 0; ms < WATCHDOG_MS / 4; ms += 10) {
    if (now.descriptors <= before->descriptors + LIBUV_KEEPS && now.threads <= before->threads)
      return 0;
    sleep_ms(10);
    now = holdings_now();
  }
  fprintf(stderr, "left behind: descriptors %d -> %d, threads %d -> %d\n", before->descriptors,
          now.descriptors, before->threads, now.threads);
  show_descriptors();
  return LEFT_BEHIND;
}

static void *return_at_once(void *unused) { return unused; }

/* The thread sanitizer starts one more thread of its own beside the first that a forked process starts. */
static void let_sanitizer_start_its_own(void) {
  pthread_t thread;
  if (sanitized() && !pthread_create(&thread, NULL, return_at_once, NULL))
    pthread_join(thread, NULL);
}

static int take_part(struct self *self) {
  struct worker w = {.self = self, .plan = self->arg};
  struct sigaction action = {.sa_handler = on_signal}; /* without SA_RESTART */
  w.mine = plan_harm_of(w.plan, self->rank);
  enum act mine = w.mine ? w.mine->act : NOTHING;
  sigaction(SIGUSR1, &action, NULL);
  if (w.plan->hosts) {
    if (!hosts_enter(self->rank)) return 6;
    self_say(self, NOTE, GYRE_OK, 0);
    self_hear(self);
  }
  if (mine == ABSENT) {
    hear_all(&w, 'e');
    return 0;
  }
  let_sanitizer_start_its_own();
  struct holdings before = holdings_now();
  if (mine == LATE) sleep_ms(w.mine->hold_ms);
  if (mine == LIMIT) set_limit(&before, w.mine->limit);
  gyre_status st = join(&w);
  if (!st && w.plan->stage == IDLE) {
    self_say(self, READY, GYRE_OK, 0);
    hear_all(&w, 'g');
  }
  if (!st) st = work_and_shrink(&w);
  self_say(self, RETURNED, st, w.plan->stage == SHRINKING ? w.members : (uint64_t)w.last_ok);
  if (st && self->comm && gyre_barrier(self->comm) != st) return 5; /* the verdict stays */
  if (w.plan->leaves_early) part(self);
  hear_all(&w, 'e');
  part(self);
  if (mine == LIMIT) set_limit(&before, 100);
  return left_behind(&before);
}

/* --------------------------------------------------------------------------------- the parent --- */

struct trial {
  const struct plan *plan;
  struct world w;
  uint32_t ready, returned, noted;
  struct report end[WORLD_MAX];
  int64_t began, struck, settled;
  int64_t gone_ms; /* for so long a cable was cut */
  pid_t child;
};

static void take(struct trial *t, const struct report *r) {
  if (r->kind == READY) t->ready |= BIT(r->rank);
  if (r->kind == RETURNED) {
    t->returned |= BIT(r->rank);
    t->end[r->rank] = *r;
  }
  if (r->kind != NOTE) return;
  t->noted |= BIT(r->rank);
  if (t->plan->stage == SHRINKING) {
    if (r->at_ns > t->settled) t->settled = r->at_ns;
  } else if (!t->struck) {
    t->struck = r->at_ns;
    t->child = (pid_t)r->value;
  }
}

/* The next report, if it comes in time. */
static bool listen_once(struct trial *t, int64_t until) {
  struct report r;
  int64_t left = (until - now_ns()) / 1000000;
  if (left < 0 || !world_hear(&t->w, &r, left + 1)) return false;
  take(t, &r);
  return true;
}

static int64_t from_now(int64_t ms) { return now_ns() + ms * 1000000; }

static uint32_t everybody(const struct trial *t) { return BIT(t->plan->nranks) - 1; }

static uint32_t survivors(const struct trial *t) {
  uint32_t set = 0;
  for (int r = 0; r < t->plan->nranks; r++)
    if (plan_survives(t->plan, r)) set |= BIT(r);
  return set;
}

static void build_hosts(struct trial *t) {
  int64_t until = from_now(WATCHDOG_MS);
  while (t->noted != everybody(t))
    if (!listen_once(t, until)) fail_msg("ranks do not start");
  if (!hosts_connect(&t->w)) fail_msg("cannot lay the cables");
  t->noted = 0;
  t->struck = 0;
  world_tell_all(&t->w, 'n');
}

/* Until all are at work, or something has happened already. */
static void await_ready(struct trial *t) {
  int64_t until = from_now(WATCHDOG_MS);
  if (t->plan->stage == MEETING) return;
  while (t->ready != everybody(t) && !t->returned && !t->struck)
    if (!listen_once(t, until)) fail_msg("the ranks do not get ready: 0x%x", t->ready);
}

static void send_signals(struct trial *t, int ms) {
  for (int64_t until = from_now(ms); now_ns() < until; sleep_ms(1)) {
    for (int r = 0; r < t->plan->nranks; r++) kill(t->w.rank[r].pid, SIGUSR1);
  }
}

static void strike(struct trial *t, const struct harm *h) {
  sleep_ms(h->delay_ms);
  switch (h->act) {
    case KILL:
      t->struck = now_ns();
      world_signal(&t->w, h->victim, SIGKILL);
      break;
    case STOP:
      t->struck = now_ns();
      world_signal(&t->w, h->victim, SIGSTOP);
      break;
    case CABLE:
      t->struck = now_ns();
      hosts_cut(h->victim);
      if (!h->hold_ms) break;
      sleep_ms(h->hold_ms);
      hosts_mend(h->victim);
      t->gone_ms = (now_ns() - t->struck) / 1000000;
      break;
    case APART:
      t->struck = now_ns();
      if (!hosts_part(&t->w, h->victim, h->other)) fail_msg("cannot part two hosts");
      break;
    case SIGNALS: send_signals(t, h->hold_ms); break;
    case CHILD:
      for (int64_t until = from_now(WATCHDOG_MS); !t->child;)
        if (!listen_once(t, until)) fail_msg("there is no child");
      t->struck = now_ns();
      world_signal(&t->w, h->victim, SIGKILL);
      break;
    case RULE:
      if (h->rule[0] == 'k') t->w.rank[h->victim].killed = true;
      break;
    default: break;
  }
}

static void collect(struct trial *t, uint32_t set, int64_t ms) {
  int64_t until = from_now(ms);
  while ((t->returned & set) != set) {
    if (listen_once(t, until)) continue;
    for (int r = 0; r < t->plan->nranks; r++) {
      if (t->returned & BIT(r))
        fprintf(stderr, "rank %d: %s: %s\n", r, gyre_status_name(t->end[r].status), t->end[r].text);
      else if (set & BIT(r)) fprintf(stderr, "rank %d has not returned\n", r);
    }
    fail_msg("ranks hang");
  }
}

/* ------------------------------------------------------------------------------- the judgement --- */

static void show(const struct trial *t) {
  for (int r = 0; r < t->plan->nranks; r++) {
    const struct report *e = &t->end[r];
    if (!(t->returned & BIT(r))) continue;
    fprintf(stderr, "rank %d after %lld ms: %s, culprit %d: %s\n", r,
            (long long)(e->at_ns - t->struck) / 1000000, gyre_status_name(e->status),
            e->verdict.status ? e->verdict.culprit_rank : -2, e->text);
  }
}

/* Whom a report names: the verdict's culprit, or, of a communicator that never was, the text's. */
static int named(const struct trial *t, const struct report *e) {
  uint32_t culprits = plan_culprits(t->plan);
  if (e->verdict.status) return e->verdict.culprit_rank;
  for (int r = 0; r < t->plan->nranks; r++)
    if (culprits & BIT(r) && names_rank(e->text, r)) return r;
  return -1;
}

static void judge_failure(const struct trial *t, uint32_t set) {
  const struct plan *plan = t->plan;
  const struct report *first = NULL;
  bool same_cause = plan->n_harm == 1 && plan->stage != MEETING && plan->harm[0].act != LIMIT;
  for (int r = 0; r < plan->nranks; r++) {
    const struct report *e = &t->end[r];
    if (!(set & BIT(r))) continue;
    if (!first) first = e;
    int culprit = named(t, e);
    const char *wrong = NULL;
    if (!plan_allows(plan, e->status)) wrong = "cause";
    else if (culprit < 0 || !(plan_culprits(plan) & BIT(culprit))) wrong = "culprit";
    else if (!names_rank(e->text, culprit)) wrong = "text";
    else if (same_cause && e->status != first->status) wrong = "cause, unlike others'";
    else if (plan->n_harm == 1 && culprit != named(t, first) && !(plan->hosts && plan->nranks == 2))
      wrong = "culprit, unlike others'";
    if (!wrong) continue;
    show(t);
    fail_msg("rank %d: wrong %s", r, wrong);
  }
}

static bool all_are_well(const struct trial *t, uint32_t set) {
  for (int r = 0; r < t->plan->nranks; r++)
    if (set & BIT(r) && t->end[r].status) return false;
  return true;
}

/* All of them are in it and nobody else; or, if that is legitimate, all are left out. */
static void judge_shrunk(const struct trial *t, uint32_t set) {
  int n = t->plan->nranks, left = __builtin_popcount(set), in = 0, out = 0;
  for (int r = 0; r < n; r++) {
    if (!(set & BIT(r))) continue;
    in += t->end[r].status == GYRE_OK && t->end[r].value == set;
    out += t->end[r].status == GYRE_ERR_PEER_LOST && strstr(t->end[r].text, "excluded");
  }
  bool may_be_too_few = 2 * left < n || (2 * left == n && !(set & 1));
  if (in == left || (may_be_too_few && out == left)) return;
  show(t);
  fail_msg("the survivors do not agree");
}

/* Since when the fault has been there: what is not known is taken to be the last success. */
static int64_t since(const struct trial *t, uint32_t set) {
  int64_t at = t->struck;
  for (int r = 0; r < t->plan->nranks && !t->struck; r++) {
    int64_t ok = (int64_t)t->end[r].value;
    if (set & BIT(r) && ok && (!at || ok < at)) at = ok;
  }
  return at ? at : t->began;
}

static void judge_time(const struct trial *t, uint32_t set, struct outcome *out) {
  int64_t last = t->settled, from = since(t, set);
  for (int r = 0; r < t->plan->nranks && !t->settled; r++)
    if (set & BIT(r) && t->end[r].at_ns > last) last = t->end[r].at_ns;
  out->bound_ms = t->plan->kind->bound_ms(t->plan);
  out->took_ms = last > from ? (last - from) / 1000000 : 0;
  if (out->took_ms <= at_most((int)out->bound_ms)) return;
  show(t);
  fail_msg("it took %lld ms; the bound is %lld ms", (long long)out->took_ms,
           (long long)out->bound_ms);
}

static bool has_ended(const struct trial *t, int rank) {
  siginfo_t info = {0};
  return waitid(P_PID, (id_t)t->w.rank[rank].pid, &info, WEXITED | WNOWAIT | WNOHANG) == 0 &&
         info.si_pid != 0;
}

/* Who was stopped or paused goes on, learns what became of it, and blames nobody else. */
static void wake(struct trial *t) {
  for (int i = 0; i < t->plan->n_harm; i++) {
    const struct harm *h = &t->plan->harm[i];
    bool stopped = h->act == STOP || (h->act == RULE && !strncmp(h->rule, "stop", 4));
    bool paused = h->act == PAUSE && !h->hold_ms;
    /* Who was to exit may have been kept from it. */
    for (int64_t until = from_now(WATCHDOG_MS); h->act == EXIT && !has_ended(t, h->victim);) {
      if (t->returned & BIT(h->victim)) break;
      (void)listen_once(t, from_now(10));
      if (now_ns() > until) fail_msg("rank %d was to exit and hangs", h->victim);
    }
    if (stopped) world_signal(&t->w, h->victim, SIGCONT);
    if (paused) world_tell(&t->w, h->victim, 'w');
    if ((!stopped && !paused) || t->w.rank[h->victim].killed) continue;
    collect(t, BIT(h->victim), WATCHDOG_MS);
    const struct report *e = &t->end[h->victim];
    int blamed = e->verdict.culprit_rank;
    if (e->status < 0 && (blamed < 0 || plan_culprits(t->plan) & BIT(blamed))) continue;
    show(t);
    fail_msg("rank %d went on and blames %d", h->victim, blamed);
  }
}

/* On a busy machine a cable may stay cut for longer than was meant: then either is right. */
static bool was_gone_for_long(const struct trial *t) {
  return t->gone_ms > t->plan->config.peer_timeout_ms * 2 / 3;
}

static void judge(struct trial *t, uint32_t set, struct outcome *out) {
  const struct plan *plan = t->plan;
  if (plan->kind->harmless && was_gone_for_long(t) && !all_are_well(t, set)) {
    judge_failure(t, set);
    return;
  }
  if (plan->stage == SHRINKING) {
    judge_shrunk(t, set);
  } else if (plan->kind->harmless || (plan->harm[0].act == LIMIT && all_are_well(t, set))) {
    if (all_are_well(t, set)) return;
    show(t);
    fail_msg("something has failed that should not");
  } else {
    judge_failure(t, set);
  }
  judge_time(t, set, out);
}

static void end_world(struct trial *t) {
  char job[80];
  world_tell_all(&t->w, 'e');
  snprintf(job, sizeof job, "%s/job", t->w.dir);
  /* Who was killed before all had met could not remove it. */
  if (t->plan->stage == MEETING && t->w.rank[0].killed) unlink(job);
  world_end(&t->w, -1);
  if (t->child > 0) {
    kill(t->child, SIGKILL);
    waitpid(t->child, NULL, 0);
  }
  if (waitpid(-1, NULL, WNOHANG) >= 0 || errno != ECHILD) fail_msg("a process is left");
}

void trial_run(const struct plan *plan, struct outcome *out) {
  struct trial t = {.plan = plan, .began = now_ns()};
  int64_t bound = plan->kind->harmless ? WATCHDOG_MS : plan->kind->bound_ms(plan);
  *out = (struct outcome){-1, -1};
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  if (plan->hosts) {
    setenv("GYRE_SECRET", "between hosts", 1);
    setenv("GYRE_IFACE", "eth0", 1);
    const char *why = hosts_open();
    if (why) fail_msg("%s", why);
  }
  world_start(&t.w, plan->nranks, take_part, plan);
  if (plan->hosts) build_hosts(&t);
  await_ready(&t);
  for (int i = 0; i < plan->n_harm; i++) strike(&t, &plan->harm[i]);
  if (plan->stage == IDLE) world_tell_all(&t.w, 'g');
  if (plan->kind->harmless || plan->harm[0].act == LIMIT) sleep_ms(300);
  if (plan->kind->harmless || plan->harm[0].act == LIMIT || plan->stage == SHRINKING)
    world_tell_all(&t.w, 's');
  uint32_t set = survivors(&t), told = plan->harm[0].act == LIMIT ? everybody(&t) : set;
  collect(&t, told, at_most((int)bound) + WATCHDOG_MS / 4);
  judge(&t, set, out);
  wake(&t);
  end_world(&t);
}

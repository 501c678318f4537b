/*
 * timing.c - calls whose time is taken. See session.h.
 *
 * A row is measured in rounds; in each, every kind of call (out of place, in place, over bare
 * sockets) has a batch, so that all kinds see the same moods of the machine. Rank 0 decides how
 * many calls the next batch has and when to stop. Within a batch calls follow each other at once,
 * each timed on every rank; collectives that let a rank leave before others have come are timed
 * behind a barrier of their own, which does not count.
 */
#include "session.h"

#include <string.h>
#include <time.h>

#define ROUNDS 7u            /* aimed at, and the least with raw sockets */
#define LEAST_ROUNDS 3u      /* without */
#define CALIBRATION_SHARE 20 /* of a row's time, to find out how long a call takes */
#define LEAD_IN_BATCH 16u    /* batches from this size on start with two calls that do not count */

struct timed {
  struct perf_session *s;
  struct perf_call call[2];
  size_t count;
  int kinds[PERF_KINDS];
  int n_kinds;
};

struct plan { /* rank 0's */
  uint64_t began_ns, batch, rounds, calls;
};

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ------------------------------------------------------------------------------------ calls --- */

static gyre_status call_collective(struct timed *t, int kind, uint64_t calls, bool record) {
  const struct perf_collective *coll = t->s->options->coll;
  for (uint64_t i = 0; i < calls; i++) {
    gyre_status st = coll->synchronises ? GYRE_OK : gyre_barrier(t->s->comm);
    uint64_t begin = now_ns();
    if (st == GYRE_OK) st = coll->run(&t->call[kind]);
    uint64_t end = now_ns();
    if (st != GYRE_OK) return st;
    if (record) perf_samples_add(&t->s->samples[kind], end - begin);
  }
  return GYRE_OK;
}

static gyre_status call_raw(struct timed *t, uint64_t calls, bool record) {
  struct perf_session *s = t->s;
  const float *in = t->call[PERF_OUT_OF_PLACE].in;
  float *out = t->call[PERF_OUT_OF_PLACE].out;
  for (uint64_t i = 0; i < calls; i++) {
    uint64_t begin = now_ns();
    bool ok = perf_raw_all_reduce(&s->raw, in, out, t->count);
    uint64_t end = now_ns();
    if (!ok) {
      snprintf(s->why, sizeof(s->why), "%s", s->raw.why);
      return GYRE_ERR_SYS;
    }
    if (record) perf_samples_add(&s->samples[PERF_RAW], end - begin);
  }
  return GYRE_OK;
}

static gyre_status call_kind(struct timed *t, int kind, uint64_t calls, bool record) {
  return kind == PERF_RAW ? call_raw(t, calls, record) : call_collective(t, kind, calls, record);
}

/* One batch of every kind. */
static gyre_status round_of(struct timed *t, uint64_t calls, bool record) {
  gyre_status st = GYRE_OK;
  for (int i = 0; st == GYRE_OK && i < t->n_kinds; i++) {
    st = gyre_barrier(t->s->comm);
    if (st == GYRE_OK && record && calls >= LEAD_IN_BATCH) st = call_kind(t, t->kinds[i], 2, false);
    if (st == GYRE_OK) st = call_kind(t, t->kinds[i], calls, record);
  }
  return st;
}

/* ------------------------------------------------------------------------------------- plan --- */

/* Rounds of 1, 2, 4 ... calls until one has lasted long enough; they are warm-up as well. */
static gyre_status calibrate(struct timed *t, uint64_t *batch) {
  double seconds = t->s->options->seconds;
  uint64_t target_ns = (uint64_t)(seconds * 1e9) / CALIBRATION_SHARE;
  *batch = 1;
  for (uint64_t calls = 1;;) {
    uint64_t begin = now_ns(), next = 0;
    gyre_status st = round_of(t, calls, false);
    uint64_t took = now_ns() - begin;
    if (took < target_ns && calls < UINT64_C(1) << 30) next = calls * 2;
    double fits = seconds * 1e9 / ROUNDS * (double)calls / (double)(took > 0 ? took : 1);
    *batch = fits < 1.0 ? 1 : (uint64_t)fits;
    if (st == GYRE_OK) st = perf_agree(t->s, &next);
    if (st != GYRE_OK || next == 0) return st;
    calls = next;
  }
}

/* Calls in the next batch; 0: enough. */
static uint64_t next_batch(const struct timed *t, const struct plan *plan) {
  const struct perf_options *o = t->s->options;
  if (o->iterations != 0) { /* in ROUNDS batches that differ by one call at most */
    uint64_t left = o->iterations - plan->calls;
    uint64_t rounds_left = plan->rounds < ROUNDS ? ROUNDS - plan->rounds : 1;
    return (left + rounds_left - 1) / rounds_left;
  }
  uint64_t least = o->raw ? ROUNDS : LEAST_ROUNDS;
  if (plan->rounds < least) return plan->batch;
  double spent = (double)(now_ns() - plan->began_ns) / 1e9;
  double half_round = spent / (double)plan->rounds / 2.0;
  return spent + half_round < o->seconds ? plan->batch : 0;
}

static struct perf_times times_of(const struct perf_samples *samples) {
  return (struct perf_times){.p50 = perf_samples_percentile(samples, 50.0) / 1000.0,
                             .p90 = perf_samples_percentile(samples, 90.0) / 1000.0,
                             .p99 = perf_samples_percentile(samples, 99.0) / 1000.0,
                             .min = (double)samples->min_ns / 1000.0,
                             .max = (double)samples->max_ns / 1000.0};
}

static gyre_status gather_times(struct timed *t) {
  gyre_status st = GYRE_OK;
  for (int i = 0; st == GYRE_OK && i < t->n_kinds; i++) {
    int kind = t->kinds[i];
    struct perf_times mine = times_of(&t->s->samples[kind]);
    st = gyre_all_gather(t->s->comm, &mine, t->s->times[kind], sizeof(mine) / sizeof(double),
                         GYRE_F64);
  }
  return st;
}

static struct timed start(struct perf_session *s, const struct perf_shape *shape) {
  struct timed t = {.s = s, .count = shape->count};
  t.call[PERF_OUT_OF_PLACE] = perf_call_of(s, shape, false);
  t.call[PERF_IN_PLACE] = perf_call_of(s, shape, true);
  t.kinds[t.n_kinds++] = PERF_OUT_OF_PLACE;
  if (perf_collective_sides(s->options->coll) > 1) t.kinds[t.n_kinds++] = PERF_IN_PLACE;
  if (s->options->raw && shape->count > 0) /* nothing to send takes no time */
    t.kinds[t.n_kinds++] = PERF_RAW;
  for (int kind = 0; kind < PERF_KINDS; kind++) perf_samples_clear(&s->samples[kind]);
  return t;
}

gyre_status perf_time(struct perf_session *s, const struct perf_shape *shape) {
  struct timed t = start(s, shape);
  struct plan plan = {0};
  gyre_status st = round_of(&t, s->options->warmup, false);
  if (st == GYRE_OK && s->options->iterations == 0) st = calibrate(&t, &plan.batch);
  plan.began_ns = now_ns();
  while (st == GYRE_OK) {
    uint64_t calls = next_batch(&t, &plan);
    st = perf_agree(s, &calls);
    if (st != GYRE_OK || calls == 0) break;
    st = round_of(&t, calls, true);
    plan.rounds++;
    plan.calls += calls;
  }
  return st == GYRE_OK ? gather_times(&t) : st;
}

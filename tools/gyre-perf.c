/*
 * gyre-perf.c - measures and verifies collectives.
 *
 * Role:   one row per size, type and operator, on all ranks of the job; rank 0 shows them. Uses
 *         only the public header of the library. Parts in perf/: options, size (the sweep),
 *         collective (what can be measured), element and data (what goes in and must come out),
 *         ran (the algorithm), samples (latencies), hosts (memory), raw (the bare sockets to compare with), output, and
 *         session with check and timing, which run a row.
 * Thread: one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gyre/gyre.h"
#include "perf/options.h"
#include "perf/ran.h"
#include "perf/session.h"
#include "perf/size.h"

enum { STATUS_OK = 0, STATUS_FAILED = 1, STATUS_USAGE = 2 };

/* ------------------------------------------------------------------------------------- rows --- */

static struct perf_side side_of(const struct perf_session *s, int kind, uint64_t wrong) {
  const struct perf_times *rank = s->times[kind];
  struct perf_side side = {
      .iterations = s->samples[kind].count, .time = rank[0], .by_rank = rank, .wrong = wrong};
  for (int r = 1; r < s->nranks; r++) {
    struct perf_times *t = &side.time;
    t->p50 = rank[r].p50 > t->p50 ? rank[r].p50 : t->p50;
    t->p90 = rank[r].p90 > t->p90 ? rank[r].p90 : t->p90;
    t->p99 = rank[r].p99 > t->p99 ? rank[r].p99 : t->p99;
    t->max = rank[r].max > t->max ? rank[r].max : t->max;
    t->min = rank[r].min < t->min ? rank[r].min : t->min;
  }
  return side;
}

static void show(struct perf_session *s, const struct perf_shape *shape, const uint64_t wrong[2]) {
  const struct perf_collective *coll = s->options->coll;
  struct perf_row row = {.bytes = shape->bytes, .count = shape->count};
  row.type = coll->has_data ? gyre_dtype_name(shape->type) : "none";
  row.op = coll->has_op ? gyre_op_name(shape->op) : "none";
  row.sides = perf_collective_sides(coll);
  for (int i = 0; i < row.sides; i++) row.side[i] = side_of(s, i, wrong[i]);
  char what[96], ran[PERF_ALGO_BYTES];
  bool recorded = s->options->json != NULL || s->options->csv != NULL;
  int length = snprintf(what, sizeof(what), "%s(", coll->name);
  if (coll->has_data)
    snprintf(what + length, sizeof(what) - (size_t)length, "%s x %zu", row.type, shape->count);
  if (recorded && perf_algorithm_that_ran(s->comm, what, ran)) row.algo = ran;
  if (s->samples[PERF_RAW].count > 0) row.raw_p50 = side_of(s, PERF_RAW, 0).time.p50;
  perf_output_row(&s->output, &row);
}

/* Verified calls come before and after the timed ones, so that a first call and a late one are
 * among them. */
static gyre_status check_row(struct perf_session *s, const struct perf_shape *shape,
                             uint64_t wrong[2]) {
  gyre_status st = GYRE_OK;
  int sides = perf_collective_sides(s->options->coll);
  for (int i = 0; s->options->check && st == GYRE_OK && i < sides; i++)
    st = perf_check(s, shape, i == PERF_IN_PLACE, &wrong[i]);
  return st;
}

static gyre_status run_row(struct perf_session *s, const struct perf_shape *shape) {
  uint64_t wrong[2] = {0, 0};
  gyre_status st = check_row(s, shape, wrong);
  if (st == GYRE_OK && s->options->raw) st = perf_check_raw(s, shape);
  perf_prepare(s, shape);
  if (st == GYRE_OK) st = perf_time(s, shape);
  if (st == GYRE_OK) st = check_row(s, shape, wrong);
  if (st == GYRE_OK && s->rank == 0) show(s, shape, wrong);
  return st;
}

static gyre_status run_sweep(struct perf_session *s, gyre_dtype type, gyre_op op) {
  const struct perf_options *o = s->options;
  size_t esize = gyre_dtype_size(type);
  size_t grain = perf_collective_grain(o->coll, esize, s->nranks);
  struct perf_sweep sweep = {
      .min = o->min_bytes, .max = o->max_bytes, .factor = o->factor, .grain = grain};
  gyre_status st = GYRE_OK;
  while (st == GYRE_OK && perf_sweep_next(&sweep)) {
    struct perf_shape shape = {
        .bytes = sweep.bytes, .count = sweep.bytes / grain, .type = type, .op = op};
    st = run_row(s, &shape);
  }
  return st;
}

/* Every type and operator that was asked for; operators count once where there are none. */
static gyre_status run_all(struct perf_session *s) {
  const struct perf_options *o = s->options;
  if (!o->coll->has_data) return run_row(s, &(struct perf_shape){.type = GYRE_U8});
  gyre_status st = GYRE_OK;
  int first_type = o->type < 0 ? 0 : o->type, types = o->type < 0 ? GYRE_DTYPE_COUNT : 1;
  bool all_ops = o->op < 0 && o->coll->has_op;
  int first_op = o->op < 0 ? 0 : o->op, ops = all_ops ? GYRE_OP_COUNT : 1;
  for (int t = first_type; st == GYRE_OK && t < first_type + types; t++)
    for (int op = first_op; st == GYRE_OK && op < first_op + ops; op++)
      if (perf_collective_takes(o->coll, (gyre_dtype)t, (gyre_op)op))
        st = run_sweep(s, (gyre_dtype)t, (gyre_op)op);
  return st;
}

/* ---------------------------------------------------------------------------------- failure --- */

/* A socket of our own may notice a dead rank before the communicator does: give it a second to say
 * who died, else end it, so that the other ranks do not wait for this one. */
static void settle_raw_failure(struct perf_session *s) {
  gyre_request *request = NULL;
  if (gyre_barrier_async(s->comm, &request) != GYRE_OK) return;
  gyre_status st = gyre_wait(request, 1000);
  if (st == GYRE_IN_PROGRESS) gyre_request_free(request);
  if (st == GYRE_IN_PROGRESS || st == GYRE_OK) gyre_comm_abort(s->comm, s->why);
}

/* The communicator's record, if there is one, is the last line. */
static void report_failure(struct perf_session *s, const char *last_error) {
  gyre_error record = GYRE_ERROR_INIT;
  if (s->why[0] != '\0') fprintf(stderr, "gyre-perf: %s\n", s->why);
  if (s->raw.why[0] != '\0') settle_raw_failure(s);
  if (gyre_comm_status(s->comm, &record) == GYRE_OK) {
    if (s->why[0] == '\0') fprintf(stderr, "gyre-perf: %s\n", last_error);
    return;
  }
  char culprit[32] = "";
  snprintf(culprit, sizeof(culprit), "rank %d", record.culprit_rank);
  if (record.culprit_rank >= 0 && strstr(record.text, culprit) == NULL)
    fprintf(stderr, "gyre-perf: %s: %s (%s)\n", gyre_status_name(record.status), record.text,
            culprit);
  else fprintf(stderr, "gyre-perf: %s: %s\n", gyre_status_name(record.status), record.text);
}

/* -------------------------------------------------------------------------------------- run --- */

/* What depends on the number of ranks; said once. */
static int check_ranks(const struct perf_options *o, gyre_comm *comm) {
  int n = gyre_comm_size(comm);
  bool first = gyre_comm_rank(comm) == 0;
  if (o->coll->has_root && o->root >= n) {
    if (first) fprintf(stderr, "gyre-perf: -r %d: the job has ranks 0 to %d\n", o->root, n - 1);
    return STATUS_USAGE;
  }
  if (o->raw && n < 2) {
    if (first)
      fprintf(stderr, "gyre-perf: --raw needs at least 2 ranks; start it by gyre-run -n 2\n");
    return STATUS_USAGE;
  }
  return STATUS_OK;
}

static void show_head(const struct perf_session *s) {
  char raw[64] = "";
  if (s->options->raw)
    snprintf(raw, sizeof(raw), "congestion control %s, %s", s->raw.congestion,
             s->raw.yields ? "yielding" : "spinning");
  if (s->rank == 0) perf_output_head(&s->output, s->hosts.count, s->options->raw ? raw : NULL);
}

static int run_session(const struct perf_options *o, gyre_comm *comm) {
  struct perf_session *s = malloc(sizeof(*s));
  if (s == NULL) {
    fprintf(stderr, "gyre-perf: out of memory\n");
    return STATUS_FAILED;
  }
  gyre_status st = perf_session_open(s, o, comm);
  if (st == GYRE_OK) {
    show_head(s);
    st = run_all(s);
  }
  if (st != GYRE_OK) {
    fflush(stdout);
    report_failure(s, gyre_last_error());
  }
  bool wrong = s->total_wrong > 0;
  bool written = perf_session_close(s);
  if (!written) fprintf(stderr, "gyre-perf: %s\n", s->why);
  free(s);
  return st == GYRE_OK && written && !wrong ? STATUS_OK : STATUS_FAILED;
}

/* An algorithm's name alone is meant for the collective that is measured, so that one it does not
 * have is refused. */
static const char *algo_choice(const struct perf_options *o, char *out, size_t capacity) {
  if (o->algo == NULL || o->algo[0] == '\0' || strchr(o->algo, '=') != NULL) return o->algo;
  snprintf(out, capacity, "%s=%s", o->coll->name, o->algo);
  return out;
}

/* Whether the library knows the names on the command line: a communicator of one rank tells at
 * once, before other ranks are waited for. */
static bool names_are_known(gyre_context *ctx, const gyre_comm_config *config) {
  gyre_comm *alone = NULL;
  if (config->transports == NULL && config->algo == NULL) return true;
  if (gyre_comm_create(ctx, 0, 1, config, &alone) != GYRE_OK) return false;
  gyre_comm_destroy(alone);
  return true;
}

static int run(const struct perf_options *o) {
  gyre_context *ctx = NULL;
  gyre_comm *comm = NULL;
  char choice[256];
  gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
  config.transports = o->transport;
  config.algo = algo_choice(o, choice, sizeof(choice));
  int status = STATUS_FAILED;
  if (gyre_context_create(&ctx) != GYRE_OK) {
    fprintf(stderr, "gyre-perf: %s\n", gyre_last_error());
    return STATUS_FAILED;
  }
  if (!names_are_known(ctx, &config)) {
    fprintf(stderr, "gyre-perf: %s\n", gyre_last_error());
    status = STATUS_USAGE;
    goto destroy_context;
  }
  if (gyre_comm_create_from_env(ctx, &config, &comm) != GYRE_OK) {
    fprintf(stderr, "gyre-perf: %s\n", gyre_last_error());
    goto destroy_context;
  }
  status = check_ranks(o, comm);
  if (status == STATUS_OK) status = run_session(o, comm);
  gyre_comm_destroy(comm);
destroy_context:
  gyre_context_destroy(ctx);
  return status;
}

int main(int argc, char **argv) {
  struct perf_options options;
  char why[256];
  switch (perf_options_parse(&options, argc, argv, why, sizeof(why))) {
    case PERF_HELP: fputs(perf_options_help(), stdout); return STATUS_OK;
    case PERF_VERSION: printf("gyre-perf %s\n", gyre_version_string()); return STATUS_OK;
    case PERF_USAGE_ERROR:
      fprintf(stderr, "gyre-perf: %s\nTry gyre-perf --help.\n", why);
      return STATUS_USAGE;
    default: return run(&options);
  }
}

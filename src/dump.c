/* dump.c - see dump.h. Also the public functions that tell what a communicator has done. */
#include "dump.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "log.h"
#include "message.h"
#include "path.h"
#include "trace.h"

/* ------------------------------------------------------------------------------------- times --- */

struct clocks { /* both at one moment, so that monotonic times can be told as times of day */
  int64_t monotonic_ns, wall_ns;
};

static struct clocks read_clocks(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (struct clocks){gy_trace_now(), (int64_t)t.tv_sec * 1000000000 + t.tv_nsec};
}

static void put_wall(struct gy_json *j, int64_t wall_ns) {
  time_t s = (time_t)(wall_ns / 1000000000);
  char text[32];
  struct tm tm;
  gmtime_r(&s, &tm);
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
  gy_json_put(j, "\"%s.%06dZ\"", text, (int)(wall_ns % 1000000000 / 1000));
}

/* "posted_ns": 123, "posted": "2025-..." or nulls. */
static void put_time(struct gy_json *j, const char *name, int64_t ns, const struct clocks *now) {
  if (!ns) {
    gy_json_put(j, ", \"%s_ns\": null, \"%s\": null", name, name);
    return;
  }
  gy_json_put(j, ", \"%s_ns\": %" PRId64 ", \"%s\": ", name, ns, name);
  put_wall(j, now->wall_ns - (now->monotonic_ns - ns));
}

/* -------------------------------------------------------------------------------- operations --- */

static void put_call(struct gy_json *j, const struct gy_descriptor *d) {
  char what[160];
  size_t n_algo;
  const struct gy_algo *const *algos = gy_algorithms(&n_algo);
  const size_t esize = gyre_dtype_size((gyre_dtype)d->dtype);
  gy_json_put(j, "{\"seq\": %" PRIu64 ", \"what\": ", d->seq);
  gy_json_text(j, gy_descriptor_text(d, what, sizeof what));
  gy_json_put(j, ", \"collective\": ");
  gy_json_text(j, gy_coll_name(d->coll));
  gy_json_put(j, ", \"type\": ");
  gy_json_text(j, gyre_dtype_name((gyre_dtype)d->dtype));
  if (d->count == GY_COUNT_VARIES) gy_json_put(j, ", \"count\": null, \"bytes\": null, \"op\": ");
  else
    gy_json_put(j, ", \"count\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"op\": ", d->count,
                d->count * esize);
  gy_json_text(j, gyre_op_name((gyre_op)d->op));
  gy_json_put(j, ", \"root\": %" PRIu32 ", \"algorithm\": ", d->root);
  gy_json_text(j, d->algo < n_algo ? algos[d->algo]->name : NULL);
}

static void put_operation(struct gy_json *j, const gyre_comm *c, const struct gy_trace_entry *t,
                          const struct clocks *now) {
  struct gy_op_report report = {.bytes_in = t->bytes_in, .bytes_out = t->bytes_out};
  bool in_flight = t->status == GYRE_IN_PROGRESS;
  if (in_flight) gy_engine_report(c->engine, t->call.seq, &report);
  put_call(j, &t->call);
  put_time(j, "posted", t->posted_ns, now);
  put_time(j, "started", t->started_ns, now);
  put_time(j, "finished", t->finished_ns, now);
  gy_json_put(j, ", \"status\": \"%s\", \"moved_in\": %" PRIu64 ", \"moved_out\": %" PRIu64,
              gyre_status_name(t->status), report.bytes_in, report.bytes_out);
  if (in_flight && report.state == GY_OP_RUNNING && report.waiting_for >= 0) {
    char link[256];
    gy_json_put(j, ", \"waiting\": {\"rank\": %d, \"instruction\": %u, \"slice\": %u, \"link\": ",
                report.waiting_for, report.insn, report.slice);
    gy_json_text(j, gy_engine_describe(c->engine, report.waiting_for, link, sizeof link));
    gy_json_put(j, "}");
  } else {
    gy_json_put(j, ", \"waiting\": null");
  }
  gy_json_put(j, "}");
}

static void put_message(struct gy_json *j, const gyre_comm *c, const struct gy_trace_entry *t,
                        const struct clocks *now) {
  const struct gy_descriptor *d = &t->call;
  uint64_t in = t->bytes_in, out = t->bytes_out;
  char what[160];
  if (t->status == GYRE_IN_PROGRESS) gy_engine_message_moved(c->engine, t->number, &in, &out);
  gy_json_put(j, "{\"number\": %" PRIu64 ", \"what\": ", d->seq);
  gy_json_text(j, gy_descriptor_text(d, what, sizeof what));
  gy_json_put(j, ", \"kind\": \"%s\", \"peer\": %d, \"type\": ", t->receives ? "recv" : "send",
              t->receives ? gy_message_from(d->root) : gy_message_to(d->root));
  gy_json_text(j, gyre_dtype_name((gyre_dtype)d->dtype));
  gy_json_put(j, ", \"count\": %" PRIu64 ", \"bytes\": %" PRIu64, d->count,
              d->count * gyre_dtype_size((gyre_dtype)d->dtype));
  put_time(j, "posted", t->posted_ns, now);
  put_time(j, "started", t->started_ns, now);
  put_time(j, "finished", t->finished_ns, now);
  gy_json_put(j, ", \"status\": \"%s\", \"moved_in\": %" PRIu64 ", \"moved_out\": %" PRIu64 "}",
              gyre_status_name(t->status), in, out);
}

/* The entries of a ring, oldest first, of which the last has number `last`: at most `most`. */
static void put_ring(struct gy_json *j, const gyre_comm *c, const char *name,
                     const struct gy_trace *ring, uint64_t last, uint64_t most,
                     const struct clocks *now) {
  uint64_t n = gy_trace_room(ring);
  const char *before = "\n      ";
  if (n > most) n = most;
  gy_json_put(j, ",\n    \"%s\": [", name);
  for (uint64_t i = last > n ? last - n + 1 : 1; i <= last; i++) {
    const struct gy_trace_entry *t = gy_trace_find(ring, i);
    if (!t) continue;
    gy_json_put(j, "%s", before);
    if (t->call.coll == GY_MESSAGE) put_message(j, c, t, now);
    else put_operation(j, c, t, now);
    before = ",\n      ";
  }
  gy_json_put(j, "]");
}

/* ----------------------------------------------------------------------------- communicators --- */

static void put_verdict(struct gy_json *j, const gyre_error *v) {
  gy_json_put(j, ",\n    \"verdict\": ");
  if (v->status == GYRE_OK) {
    gy_json_put(j, "null");
    return;
  }
  gy_json_put(j,
              "{\"status\": \"%s\", \"culprit\": %d, \"reporter\": %d, \"operation\": %" PRIu64
              ", \"errno\": %d, \"text\": ",
              gyre_status_name(v->status), v->culprit_rank, v->reporter_rank, v->op_seq,
              v->sys_errno);
  gy_json_text(j, v->text);
  gy_json_put(j, "}");
}

static void put_members(struct gy_json *j, const gyre_comm *c) {
  gy_json_put(j, ",\n    \"members\": [");
  for (int r = 0; r < c->core.nranks; r++) {
    const struct gy_member *m = &c->roster->member[r];
    struct gy_peer_counts counts;
    gy_engine_count_peer(c->engine, r, &counts);
    gy_json_put(j, "%s\n      {\"rank\": %d, \"host\": ", r ? "," : "", r);
    gy_json_text(j, m->host_name);
    gy_json_put(j,
                ", \"pid\": %u, \"bytes_sent\": %" PRIu64 ", \"bytes_received\": %" PRIu64
                ", \"wait_ns\": %" PRIu64 "}",
                m->pid, counts.bytes_out, counts.bytes_in, counts.wait_ns);
  }
  gy_json_put(j, "]");
}

static void put_comm(struct gy_json *j, const gyre_comm *c, uint64_t most, const struct clocks *now) {
  bool met = c->engine && c->fault;
  const gyre_error *v = met ? gy_fault_verdict(c->fault) : NULL;
  const char *state = !met ? "creating" : v->status == GYRE_OK ? "usable" : "failed";
  gy_json_put(j, "{\"rank\": %d, \"size\": %d, \"state\": \"%s\"", c->core.rank, c->core.nranks,
              state);
  if (met) {
    struct gy_engine_counts counts;
    gy_engine_count(c->engine, &counts);
    gy_json_put(j, ", \"id\": \"");
    for (size_t i = 0; i < sizeof c->roster->epoch; i++)
      gy_json_put(j, "%02x", c->roster->epoch[i]);
    gy_json_put(j,
                "\",\n    \"posted\": %" PRIu64 ", \"completed\": %" PRIu64 ", \"failed\": %" PRIu64
                ", \"started\": %" PRIu64 ", \"first_unfinished\": %" PRIu64,
                counts.posted, counts.completed, counts.failed, counts.started,
                gy_engine_frontier(c->engine));
    put_verdict(j, v);
    put_members(j, c);
    put_ring(j, c, "operations", gy_engine_trace(c->engine), counts.posted, most, now);
    put_ring(j, c, "messages", gy_engine_message_trace(c->engine), counts.messages, most, now);
  }
  gy_json_put(j, "}");
}

gyre_status gy_dump_write(struct gy_json *j, gyre_context *ctx, const gyre_comm *only,
                          const char *reason, uint64_t most) {
  struct clocks now = read_clocks();
  char host[64] = "";
  gethostname(host, sizeof host - 1);
  gy_json_put(j, "{\"gyre\": \"%s\", \"format\": %d, \"reason\": \"%s\", \"host\": ",
              gyre_version_string(), GY_DUMP_FORMAT, reason);
  gy_json_text(j, host);
  gy_json_put(j, ", \"pid\": %ld, \"now_ns\": %" PRId64 ", \"now\": ", (long)getpid(),
              now.monotonic_ns);
  put_wall(j, now.wall_ns);
  gy_json_put(j, ",\n  \"communicators\": [");
  const char *before = "\n    ";
  for (const gyre_comm *c = ctx->comms; c; c = c->next) {
    if (only && c != only) continue;
    gy_json_put(j, "%s", before);
    put_comm(j, c, most, &now);
    before = ",\n    ";
  }
  gy_json_put(j, "]}\n");
  return j->failed ? gy_fail(GYRE_ERR_NOMEM, "out of memory for the record of the operations")
                   : GYRE_OK;
}

/* ------------------------------------------------------------------------------------- files --- */

static gyre_status write_whole(int fd, const char *path, const char *data, size_t len) {
  for (size_t done = 0; done < len;) {
    ssize_t n = write(fd, data + done, len - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return gy_fail_errno(GYRE_ERR_SYS, n ? errno : ENOSPC, "cannot write %s", path);
    done += (size_t)n;
  }
  return GYRE_OK;
}

/* By another name first, so that a reader never sees half of it. */
static gyre_status replace_file(const char *path, const char *data, size_t len) {
  char temporary[PATH_MAX + 32];
  struct stat st;
  if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
    return gy_fail(GYRE_ERR_ARG, "cannot write %s: it is there and no regular file", path);
  gy_format(temporary, sizeof temporary, "%s.%ld.tmp", path, (long)getpid());
  int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) return gy_fail_errno(GYRE_ERR_SYS, errno, "cannot create %s", temporary);
  gyre_status status = write_whole(fd, temporary, data, len);
  if (close(fd) != 0 && status == GYRE_OK)
    status = gy_fail_errno(GYRE_ERR_SYS, errno, "cannot write %s", temporary);
  if (status == GYRE_OK && rename(temporary, path) != 0)
    status = gy_fail_errno(GYRE_ERR_SYS, errno, "cannot rename %s to %s", temporary, path);
  if (status != GYRE_OK) unlink(temporary);
  return status;
}

gyre_status gy_dump_file(gyre_context *ctx, const gyre_comm *only, const char *reason,
                         const char *path) {
  struct gy_json j = {0};
  gyre_status st = gy_dump_write(&j, ctx, only, reason, UINT64_MAX);
  if (st == GYRE_OK) st = replace_file(path, j.data, j.len);
  gy_json_free(&j);
  return st;
}

void gy_dump_by_setting(gyre_context *ctx, int rank, const char *reason) {
  char path[PATH_MAX];
  const char *file = ctx->settings.trace_file;
  if (!*file) return;
  gyre_status st = gy_path_expand("GYRE_TRACE_FILE", file, rank, path, sizeof path);
  if (st == GYRE_OK) st = gy_dump_file(ctx, NULL, reason, path);
  if (st == GYRE_OK) gy_log(GY_LOG_INFO, "the flight recorder was written to %s", path);
  else gy_log(GY_LOG_WARN, "the flight recorder was not written: %s", gyre_last_error());
}

gyre_status gy_dump_check(const struct gy_settings *s) {
  char path[PATH_MAX];
  if (*s->trace_signal && !*s->trace_file)
    return gy_fail(GYRE_ERR_ARG,
                   "GYRE_TRACE_SIGNAL=%s: it is not said where to write; set GYRE_TRACE_FILE, too",
                   s->trace_signal);
  return gy_path_expand("GYRE_TRACE_FILE", s->trace_file, 0, path, sizeof path);
}

/* -------------------------------------------------------------------------------- public API --- */

struct question {
  gyre_comm *comm;
  const char *path;
  int peer;
  gyre_counters counters;
  gyre_peer_counters peer_counters;
  gyre_status status;
  char text[512];
};

static gyre_status may_ask(const gyre_comm *comm, const void *out, const char *name) {
  if (gy_operator_guard()) return GYRE_ERR_STATE;
  if (!comm || !out) return gy_fail(GYRE_ERR_ARG, "%s: an argument is NULL", name);
  if (gy_birth_check(&comm->ctx->birth, name)) return GYRE_ERR_STATE;
  if (gy_loop_in_callback()) return gy_fail(GYRE_ERR_STATE, "%s: not from a callback", name);
  return GYRE_OK;
}

static void run_dump(void *arg) {
  struct question *q = arg;
  q->status = gy_dump_file(q->comm->ctx, q->comm, "call", q->path);
  if (q->status) gy_format(q->text, sizeof q->text, "%s", gyre_last_error());
}

gyre_status gyre_comm_dump(gyre_comm *comm, const char *path) {
  char expanded[PATH_MAX];
  gyre_status st = may_ask(comm, path, "gyre_comm_dump");
  if (!st) st = gy_path_expand("gyre_comm_dump", path, comm->core.rank, expanded, sizeof expanded);
  if (st) return st;
  struct question q = {.comm = comm, .path = expanded};
  gy_loop_call(comm->ctx->loop, run_dump, &q);
  return q.status ? gy_fail_text(q.status, q.text) : GYRE_OK;
}

static void run_counters(void *arg) {
  struct question *q = arg;
  struct gy_engine *e = q->comm->engine;
  struct gy_engine_counts counts;
  gy_engine_count(e, &counts);
  q->counters = (gyre_counters){.operations_posted = counts.posted,
                                .operations_completed = counts.completed,
                                .operations_failed = counts.failed};
  for (int peer = 0; peer < q->comm->core.nranks; peer++) {
    struct gy_peer_counts one;
    gy_engine_count_peer(e, peer, &one);
    q->counters.bytes_sent += one.bytes_out;
    q->counters.bytes_received += one.bytes_in;
  }
}

static gyre_status bad_size(const char *name, size_t size, size_t least) {
  return gy_fail(GYRE_ERR_ARG, "%s: size is %zu, must be at least %zu: start from the _INIT macro",
                 name, size, least);
}

/* What the caller was compiled with may be shorter than what this library knows. */
static void copy_out(void *out, void *from, size_t known) {
  size_t size, bytes;
  memcpy(&size, out, sizeof size);
  bytes = size < known ? size : known;
  memcpy(from, &bytes, sizeof bytes);
  memcpy(out, from, bytes);
}

gyre_status gyre_comm_counters(gyre_comm *comm, gyre_counters *out) {
  struct question q = {.comm = comm};
  gyre_status st = may_ask(comm, out, "gyre_comm_counters");
  if (st) return st;
  const size_t least = offsetof(gyre_counters, bytes_received) + sizeof out->bytes_received;
  if (out->size < least) return bad_size("gyre_counters", out->size, least);
  gy_loop_call(comm->ctx->loop, run_counters, &q);
  copy_out(out, &q.counters, sizeof q.counters);
  return GYRE_OK;
}

static void run_peer_counters(void *arg) {
  struct question *q = arg;
  struct gy_peer_counts counts;
  gy_engine_count_peer(q->comm->engine, q->peer, &counts);
  q->peer_counters = (gyre_peer_counters){
      .bytes_sent = counts.bytes_out, .bytes_received = counts.bytes_in, .wait_ns = counts.wait_ns};
}

gyre_status gyre_comm_peer_counters(gyre_comm *comm, int peer, gyre_peer_counters *out) {
  struct question q = {.comm = comm, .peer = peer};
  gyre_status st = may_ask(comm, out, "gyre_comm_peer_counters");
  if (st) return st;
  const size_t least = offsetof(gyre_peer_counters, wait_ns) + sizeof out->wait_ns;
  if (out->size < least) return bad_size("gyre_peer_counters", out->size, least);
  if (peer < 0 || peer >= comm->core.nranks) {
    return gy_fail(GYRE_ERR_ARG, "gyre_comm_peer_counters: rank %d: must be from 0 to %d", peer,
                   comm->core.nranks - 1);
  }
  gy_loop_call(comm->ctx->loop, run_peer_counters, &q);
  copy_out(out, &q.peer_counters, sizeof q.peer_counters);
  return GYRE_OK;
}

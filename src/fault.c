/*
 * fault.c - see fault.h.
 *
 * Rank 0 is the root. Suspicions travel to it (REPORT), its judgement comes back (VERDICT). Before
 * it judges a broken data link it waits a moment for a control connection to end, because the rank
 * whose control connection ended is the one that died; the others only saw the consequences. An
 * operation that does not move asks (STALL): the root asks every rank what that operation was there
 * (QUERY, ANSWER) and compares. At the operation's deadline (DEADLINE) it names who did not call,
 * or does not answer.
 *
 * When the root has left, or is the one that does not answer, ranks judge for themselves; a root
 * that was only slow adopts the verdict they send it.
 *
 * A rank that leaves (BYE, LEFT) is no failure until an operation needs it (MISSED). Its data links
 * may end before the word of its leaving is here, which then looks like a death: such a suspicion
 * is dropped as soon as the word comes.
 *
 * A rank that falls silent (heartbeat.h) is lost. Who hears nothing from any other host is itself
 * the one that is cut off, and says so; where there is only one other host, nobody can tell which
 * of the two it is.
 */
#include "fault.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "heartbeat.h"
#include "log.h"
#include "message.h"

/* Messages on a control channel; bootstrap's have lower numbers. */
enum {
  MSG_REPORT = 32, /* verdict so far: a suspicion */
  MSG_MISSED,      /* the same: an operation needs a rank that has left */
  MSG_VERDICT, /* verdict; to the root: an abort, or what a rank has judged that waited for the root in vain */
  MSG_BYE,      /* u64 frontier: the first operation this rank will not take part in; text: why */
  MSG_LEFT,     /* i32 rank, then as in the BYE that the root relays */
  MSG_STALL,    /* u64 seq */
  MSG_DEADLINE, /* u64 seq */
  MSG_CONFLICT, /* verdict: a frame of another call came; the root asks all before it judges */
  MSG_QUERY,    /* u32 id, u64 seq */
  MSG_ANSWER    /* u32 id, u64 seq, report */
};

#define GRACE_MS 150       /* for a control connection to end before a broken data link is judged */
#define QUERY_MS 1000      /* for ranks to answer at a deadline */
#define CONFLICT_MS 500    /* for ranks to answer when a mismatch is certain already */
#define LEFT_MS 500        /* beyond its linger time, for what a rank sent before it left */
#define SLEPT_MS 500       /* between two ticks: this process did not run */
#define LINKS_TELL_MS 3000 /* the kernel probes idle links every second or less often */
#define NOT_LEFT UINT64_MAX
#define NO_SEQ UINT64_MAX /* asked about, it has ranks tell what keeps them */
#define WHY_MAX 64

struct answer {
  bool given;
  struct gy_op_report report;
};

enum purpose { FOR_STALL, FOR_MESSAGE, FOR_CONFLICT, FOR_DEADLINE }; /* rising urgency */

struct member {      /* what is known of another rank */
  uint64_t frontier; /* it left before this operation; NOT_LEFT */
  char why[WHY_MAX]; /* it left */
  struct answer answer;
};

struct gy_fault {
  struct gy_fault_config cfg;
  int rank, nranks;
  struct gy_channel **channels;
  struct member *member;
  uint64_t left_frontier; /* least frontier of those who left */
  bool root_left, root_gone;

  bool told;             /* by the root */
  gyre_error verdict;    /* status GYRE_OK: none */
  gyre_error suspicion;  /* the first one, not judged yet */
  uint64_t judge_at;     /* when it is judged (loop ms); 0: never */
  uint64_t judge_latest; /* a root that lives is waited for until then; 0: not judged yet */
  bool ripe;             /* its time was over at the last tick; the sockets have been read since */

  struct { /* root: the query in progress */
    uint32_t id;
    uint64_t seq, until; /* until 0: none */
    enum purpose purpose;
    int reporter;
    gyre_error fallback;
  } query;

  struct watch { /* the timer outlives the fault until libuv has closed it */
    uv_timer_t timer;
    struct gy_fault *fault;
  } * watch;
  struct gy_heartbeat *heartbeat; /* NULL once there is a verdict */
  uint32_t tick_ms;
  bool ticking; /* only while there is something to watch */
  uint64_t last_tick, moved, moved_at, stall_seq, deadline_seq;
  unsigned late; /* ticks after the operation's deadline */
};

static uint64_t now(const struct gy_fault *f) { return uv_now(f->cfg.core->uv); }
static const struct gy_agreed *agreed(const struct gy_fault *f) {
  return &f->cfg.core->roster->agreed;
}
static bool is_root(const struct gy_fault *f) { return f->rank == 0; }
static bool decided(const struct gy_fault *f) { return f->verdict.status != GYRE_OK; }
const gyre_error *gy_fault_verdict(const struct gy_fault *f) { return &f->verdict; }

static const char *place(const struct gy_fault *f, int rank, char *out, size_t capacity) {
  const struct gy_member *m = &f->cfg.core->roster->member[rank];
  gy_format(out, capacity, "rank %d (%s, pid %u)", rank, m->host_name, m->pid);
  return out;
}

/* --------------------------------------------------------------------------------- messages --- */

static void w_error(struct gy_writer *w, const gyre_error *e) {
  gy_w_i32(w, e->status);
  gy_w_i32(w, e->culprit_rank);
  gy_w_i32(w, e->reporter_rank);
  gy_w_u64(w, e->op_seq);
  gy_w_i32(w, e->sys_errno);
  gy_w_text(w, e->text);
}

static void r_error(struct gy_reader *r, gyre_error *e, int nranks) {
  *e = (gyre_error)GYRE_ERROR_INIT;
  e->status = (gyre_status)gy_r_i32(r);
  e->culprit_rank = gy_r_i32(r);
  e->reporter_rank = gy_r_i32(r);
  e->op_seq = gy_r_u64(r);
  e->sys_errno = gy_r_i32(r);
  gy_r_text(r, e->text, sizeof e->text);
  bool sane = e->status < 0 && e->status >= GYRE_ERR_INTERNAL && e->culprit_rank >= -1 &&
              e->culprit_rank < nranks && e->reporter_rank >= -1 && e->reporter_rank < nranks;
  if (!sane) r->failed = true;
}

static void w_report(struct gy_writer *w, const struct gy_op_report *o) {
  gy_w_u8(w, (uint8_t)o->state);
  gy_w_u64(w, o->call.seq);
  gy_w_u64(w, o->call.count);
  gy_w_u32(w, o->call.root);
  gy_w_u8(w, o->call.coll);
  gy_w_u8(w, o->call.dtype);
  gy_w_u8(w, o->call.op);
  gy_w_u8(w, o->call.algo);
  gy_w_i32(w, o->waiting_for);
  gy_w_u16(w, o->insn);
  gy_w_u32(w, o->slice);
  gy_w_u64(w, o->bytes_in);
  gy_w_u64(w, o->bytes_out);
}

static void r_report(struct gy_reader *r, struct gy_op_report *o, int nranks) {
  uint8_t state = gy_r_u8(r);
  if (state > GY_OP_FORGOTTEN) r->failed = true;
  *o = (struct gy_op_report){
      .state = (enum gy_op_state)(state > GY_OP_FORGOTTEN ? GY_OP_FORGOTTEN : state)};
  o->call.seq = gy_r_u64(r);
  o->call.count = gy_r_u64(r);
  o->call.root = gy_r_u32(r);
  o->call.coll = gy_r_u8(r);
  o->call.dtype = gy_r_u8(r);
  o->call.op = gy_r_u8(r);
  o->call.algo = gy_r_u8(r);
  o->waiting_for = gy_r_i32(r);
  o->insn = gy_r_u16(r);
  o->slice = gy_r_u32(r);
  o->bytes_in = gy_r_u64(r);
  o->bytes_out = gy_r_u64(r);
  if (o->waiting_for < -1 || o->waiting_for >= nranks) r->failed = true;
}

static void send_writer(struct gy_channel *ch, uint8_t type, struct gy_writer *w) {
  if (ch && !w->failed) gy_channel_send(ch, type, w->data, w->len);
  gy_w_free(w);
}

static void send_error(struct gy_fault *f, int to, uint8_t type, const gyre_error *e) {
  struct gy_writer w = {0};
  w_error(&w, e);
  send_writer(f->channels[to], type, &w);
}

static void send_seq(struct gy_fault *f, int to, uint8_t type, uint64_t seq) {
  struct gy_writer w = {0};
  gy_w_u64(&w, seq);
  send_writer(f->channels[to], type, &w);
}

static void start_ticking(struct gy_fault *f);

/* --------------------------------------------------------------------------------- verdicts --- */

static void decide(struct gy_fault *f, const gyre_error *e) {
  if (decided(f)) return;
  f->verdict = *e;
  f->judge_at = 0;
  f->query.until = 0;
  gy_heartbeat_end(f->heartbeat);
  f->heartbeat = NULL;
  gy_log(GY_LOG_INFO, "rank %d: verdict %s: %s", f->rank, gyre_status_name(e->status), e->text);
  if (!is_root(f)) return;
  for (int r = 1; r < f->nranks; r++) send_error(f, r, MSG_VERDICT, e);
}

/* The operation to speak of: the oldest collective, else the oldest message. */
static bool in_flight(const struct gy_fault *f, struct gy_op_report *out) {
  return gy_engine_oldest(f->cfg.engine, out) || gy_engine_message(f->cfg.engine, -1, out);
}

static gyre_error make_error(const struct gy_fault *f, gyre_status status, int culprit,
                             int sys_errno) {
  gyre_error e = GYRE_ERROR_INIT;
  struct gy_op_report oldest;
  e.status = status;
  e.culprit_rank = culprit;
  e.reporter_rank = f->rank;
  e.sys_errno = sys_errno;
  e.op_seq = gy_engine_oldest(f->cfg.engine, &oldest) ? oldest.call.seq : 0;
  return e;
}

static void add_operation(const struct gy_fault *f, gyre_error *e) {
  struct gy_op_report oldest;
  char call[128];
  size_t n = strlen(e->text);
  if (!in_flight(f, &oldest)) return;
  gy_descriptor_text(&oldest.call, call, sizeof call);
  if (oldest.call.coll == GY_MESSAGE) {
    gy_format(e->text + n, sizeof e->text - n, "; in %s", call);
    return;
  }
  gy_format(e->text + n, sizeof e->text - n, "; in operation %llu, %s",
            (unsigned long long)oldest.call.seq, call);
}

static void query(struct gy_fault *f, uint64_t seq, enum purpose purpose, int reporter,
                  const gyre_error *fallback);

/* Of a message that is late the other end need not be at fault: it may be kept by a collective. */
static bool is_late_message(const gyre_error *e) {
  return e->status == GYRE_ERR_TIMEOUT && e->op_seq == 0 && e->culprit_rank >= 0 &&
         e->reporter_rank >= 0;
}

/* A first suspicion waits for the root, or at the root for a control connection to end. `type`: how
 * the root is told. */
static void consider(struct gy_fault *f, const gyre_error *e, uint8_t type) {
  if (decided(f) || f->suspicion.status) return;
  if (is_root(f) && is_late_message(e)) {
    query(f, NO_SEQ, FOR_MESSAGE, e->reporter_rank, e);
    return;
  }
  f->suspicion = *e;
  start_ticking(f);
  if (is_root(f)) {
    f->judge_at = now(f) + GRACE_MS;
  } else if (f->root_left || f->root_gone) {
    decide(f, e);
  } else {
    send_error(f, 0, type, e);
    f->judge_at = now(f) + agreed(f)->verdict_ms + (e->status == GYRE_ERR_TIMEOUT ? QUERY_MS : 0);
  }
}

/* Whether a lost rank has only left before the operation concerned; gy_fault_check says so when its
 * turn has come. */
static bool is_departure(const struct gy_fault *f, const gyre_error *e) {
  return e->status == GYRE_ERR_PEER_LOST && e->culprit_rank >= 0 &&
         e->op_seq >= f->member[e->culprit_rank].frontier;
}

/* --------------------------------------------------------------------------------- silence --- */

static bool same_host(const struct gy_fault *f, int a, int b) {
  const struct gy_member *m = f->cfg.core->roster->member;
  return !memcmp(m[a].host, m[b].host, sizeof m[a].host);
}

/* How long nothing was heard from a rank, or from its host on a data link; UINT64_MAX: unknown. */
static uint64_t silence_of(const struct gy_fault *f, int rank) {
  bool awaited;
  uint64_t control = gy_heartbeat_silence(f->heartbeat, rank);
  uint32_t data = UINT32_MAX;
  if (agreed(f)->peer_timeout_ms >= LINKS_TELL_MS)
    data = gy_engine_silence(f->cfg.engine, rank, &awaited);
  return data != UINT32_MAX && data < control ? data : control;
}

/* Half of the time-out is by far more than two heartbeats lie apart. */
static bool seems_silent(const struct gy_fault *f, int rank) {
  uint64_t ms = silence_of(f, rank);
  return ms != UINT64_MAX && ms > agreed(f)->peer_timeout_ms / 2;
}

static int first_of_host(const struct gy_fault *f, int rank) {
  int first = 0;
  while (!same_host(f, first, rank)) first++;
  return first;
}

/* Whether all that could be heard of on two or more other hosts have fallen silent together: then it
 * is this host that is cut off. */
static bool is_cut_off(const struct gy_fault *f) {
  int silent = -1;
  bool several = false;
  for (int r = 0; r < f->nranks; r++) {
    if (same_host(f, r, f->rank) || silence_of(f, r) == UINT64_MAX) continue;
    if (!seems_silent(f, r)) return false;
    if (silent >= 0 && !same_host(f, silent, r)) several = true;
    silent = r;
  }
  return several;
}

/* A rank has not been heard of for the peer time-out, at this address: its whole host may be gone,
 * or this one. */
static void gone_silent(struct gy_fault *f, int rank, uint64_t ms, const char *address) {
  char who[128];
  unsigned limit = agreed(f)->peer_timeout_ms;
  int culprit = rank;
  bool cut_off = is_cut_off(f);
  if (cut_off) {
    culprit = first_of_host(f, f->rank);
  } else {
    for (int r = rank - 1; r >= 0; r--) {
      if (same_host(f, r, rank) && r != f->rank && seems_silent(f, r)) culprit = r;
    }
  }
  gyre_error e = make_error(f, GYRE_ERR_PEER_LOST, culprit, ETIMEDOUT);
  place(f, culprit, who, sizeof who);
  if (cut_off) {
    gy_format(e.text, sizeof e.text,
              "%s is cut off with its host: rank %d there heard nothing from any other host for "
              "%llu ms, longer than the peer time-out of %u ms",
              who, f->rank, (unsigned long long)ms, limit);
  } else {
    gy_format(e.text, sizeof e.text,
              "%s was not heard of at %s for %llu ms, longer than the peer time-out of %u ms: it "
              "is stopped, or its host hangs or is cut off",
              who, address, (unsigned long long)ms, limit);
  }
  add_operation(f, &e);
  if (!is_root(f))
    send_error(f, 0, MSG_VERDICT, &e); /* so that it learns why, should it be there */
  decide(f, &e);
}

static bool means_silence(int sys_errno) {
  return sys_errno == ETIMEDOUT || sys_errno == EHOSTUNREACH || sys_errno == ENETUNREACH;
}

static void on_silent(void *user, int peer, uint64_t ms) {
  struct gy_fault *f = user;
  if (f->member[peer].frontier != NOT_LEFT) return;
  gone_silent(f, peer, ms, gy_channel_peer(f->channels[peer]));
}

/* Two hosts may have lost each other while both reach the root: only their links tell. */
static void look_at_links(void *user) {
  struct gy_fault *f = user;
  bool awaited;
  char who[128], link[256];
  for (int r = 0; r < f->nranks && !f->suspicion.status; r++) {
    if (r == f->rank || f->member[r].frontier != NOT_LEFT) continue;
    uint32_t ms = gy_engine_silence(f->cfg.engine, r, &awaited);
    if (!awaited || ms == UINT32_MAX || ms < agreed(f)->peer_timeout_ms) continue;
    if (is_cut_off(f)) {
      gone_silent(f, r, ms, "");
      return;
    }
    gyre_error e = make_error(f, GYRE_ERR_PEER_LOST, r, ETIMEDOUT);
    gy_format(
        e.text,
        sizeof e.text, "nothing that was sent to %s arrived for %u ms, longer than the peer time-out of %u ms (%s): its host hangs or is cut off",
        place(f, r, who, sizeof who), ms, agreed(f)->peer_timeout_ms,
        gy_engine_describe(f->cfg.engine, r, link, sizeof link));
    add_operation(f, &e);
    consider(f, &e, MSG_REPORT);
  }
}

/* ------------------------------------------------------------------------------ suspicions --- */

/* Of a rank that has left a message will neither come nor be taken any more. */
static void message_missed(struct gy_fault *f, const struct gy_op_report *o) {
  gyre_error e = make_error(f, GYRE_ERR_PEER_LOST, o->waiting_for, 0);
  char who[128], call[128];
  e.op_seq = 0;
  gy_format(e.text, sizeof e.text, "%s left; %s needs it", place(f, o->waiting_for, who, sizeof who),
            gy_descriptor_text(&o->call, call, sizeof call));
  consider(f, &e, MSG_MISSED);
}

void gy_fault_suspect(struct gy_fault *f, int peer, gyre_status why, int sys_errno) {
  char who[128], detail[400];
  gy_format(detail, sizeof detail, "%s", gyre_last_error());
  gy_fault_check(f); /* where a rank that has left is missed, links break as a consequence */
  if (decided(f)) return;
  bool here = why == GYRE_ERR_NOMEM || (why == GYRE_ERR_SYS && !sys_errno);
  if (peer < 0 || here) {
    gyre_error e = make_error(f, why, f->rank, sys_errno);
    gy_format(e.text, sizeof e.text, "%s failed: %s", place(f, f->rank, who, sizeof who), detail);
    consider(f, &e, MSG_REPORT);
    return;
  }
  gyre_error e = make_error(f, why == GYRE_ERR_SYS ? GYRE_ERR_PEER_LOST : why, peer, sys_errno);
  uint64_t needed = gy_engine_needs(f->cfg.engine, peer);
  struct gy_op_report message;
  if (needed) e.op_seq = needed;
  if (!needed && f->member[peer].frontier != NOT_LEFT &&
      gy_engine_message(f->cfg.engine, peer, &message)) {
    message_missed(f, &message);
    return;
  }
  if (f->member[peer].frontier != NOT_LEFT && (!needed || is_departure(f, &e))) return;
  place(f, peer, who, sizeof who);
  if (why == GYRE_ERR_PEER_LOST && !sys_errno) {
    /* Only the root knows who has said goodbye. */
    gy_format(e.text, sizeof e.text,
              is_root(f) ? "%s closed its connection without a goodbye: it died or was killed"
                         : "%s closed its connection: it died, was killed or left",
              who);
  } else if (sys_errno) {
    gy_format(e.text, sizeof e.text, "the connection to %s broke: %s (errno %d)", who,
              strerror(sys_errno), sys_errno);
  } else {
    gy_format(e.text, sizeof e.text, "the link to %s failed: %s", who, detail);
  }
  add_operation(f, &e);
  consider(f, &e, MSG_REPORT);
}

void gy_fault_abort(struct gy_fault *f, const char *why) {
  if (decided(f)) return;
  gyre_error e = make_error(f, GYRE_ERR_ABORTED, f->rank, 0);
  char who[128];
  gy_format(e.text, sizeof e.text, "%s aborted the communicator: %s",
            place(f, f->rank, who, sizeof who), why && *why ? why : "no reason given");
  if (!is_root(f)) send_error(f, 0, MSG_VERDICT, &e);
  decide(f, &e);
}

void gy_fault_judge(struct gy_fault *f, gyre_status status, int culprit, const char *text) {
  gyre_error e = make_error(f, status, culprit, 0);
  e.op_seq = 0;
  gy_format(e.text, sizeof e.text, "%s", text);
  if (is_root(f)) decide(f, &e);
  else consider(f, &e, MSG_REPORT);
}

void gy_fault_send(struct gy_fault *f, int to, uint8_t type, struct gy_writer *w) {
  send_writer(f->channels[to], type, w);
}

bool gy_fault_has_left(const struct gy_fault *f, int rank) {
  return f->member[rank].frontier != NOT_LEFT;
}

/* The root has seen connections end. A member believes what the root judged, but not what it judged
 * alone: a link that broke may be a consequence. */
void gy_fault_find_dead(const struct gy_fault *f, bool *dead) {
  const gyre_error *v = &f->verdict;
  for (int r = 0; r < f->nranks; r++) {
    if (f->member[r].frontier != NOT_LEFT) dead[r] = true;
    if (is_root(f) && r > 0 && !f->channels[r]) dead[r] = true;
  }
  if (f->root_gone || f->root_left) dead[0] = true;
  if ((f->told || is_root(f)) && v->status == GYRE_ERR_PEER_LOST && v->culprit_rank >= 0)
    dead[v->culprit_rank] = true;
  dead[f->rank] = false;
}

const char *gy_fault_name(const struct gy_fault *f, int rank, char *out, size_t capacity) {
  return place(f, rank, out, capacity);
}

/* --------------------------------------------------------------------------------- queries --- */

size_t gy_fault_list(const bool *in, int nranks, char *out, size_t capacity) {
  size_t n = 0;
  int total = 0;
  for (int r = 0; r < nranks; r++) total += in[r];
  n += gy_format(out, capacity, total == 1 ? "rank" : "ranks");
  const char *separator = " ";
  for (int r = 0; r < nranks; r++) {
    if (!in[r]) continue;
    int last = r;
    while (last + 1 < nranks && in[last + 1]) last++;
    n += gy_format(out + n, capacity - n, last > r ? "%s%d-%d" : "%s%d", separator, r, last);
    separator = ", ";
    r = last;
  }
  return n;
}

static bool has_call(const struct answer *a) {
  return a->given && (a->report.state == GY_OP_RUNNING || a->report.state == GY_OP_DONE);
}

/* Groups the answers by call. More than one group is a mismatch: its text lists them all; the
 * culprit is the only rank outside of the largest group, if there is one such. */
static bool find_mismatch(struct gy_fault *f, gyre_error *e) {
  bool *seen = calloc((size_t)f->nranks, sizeof *seen),
       *group = calloc((size_t)f->nranks, sizeof *group);
  bool found = false;
  int groups = 0, largest = 0, callers = 0, odd = -1;
  size_t n = 0;
  if (!seen || !group) goto free_sets;
  *e = make_error(f, GYRE_ERR_MISMATCH, -1, 0);
  e->op_seq = f->query.seq;
  e->reporter_rank = f->query.reporter;
  n = gy_format(e->text, sizeof e->text,
                "operation %llu differs: ", (unsigned long long)f->query.seq);
  for (int r = 0; r < f->nranks; r++) {
    const struct answer *a = &f->member[r].answer;
    if (seen[r] || !has_call(a)) continue;
    int size = 0;
    memset(group, 0, (size_t)f->nranks * sizeof *group);
    for (int q = r; q < f->nranks; q++) {
      const struct answer *b = &f->member[q].answer;
      if (!has_call(b) || !gy_descriptor_equal(&a->report.call, &b->report.call)) continue;
      group[q] = seen[q] = true;
      size++;
    }
    char call[128];
    n += gy_format(e->text + n, sizeof e->text - n, groups ? "; " : "");
    n += gy_fault_list(group, f->nranks, e->text + n, sizeof e->text - n);
    n += gy_format(e->text + n, sizeof e->text - n, " called %s",
                   gy_descriptor_text(&a->report.call, call, sizeof call));
    groups++;
    callers += size;
    if (size > largest) largest = size;
    if (size == 1) odd = r;
  }
  if (groups == 2 && largest == callers - 1 && largest > 1) e->culprit_rank = odd;
  found = groups > 1;
free_sets:
  free(seen);
  free(group);
  return found;
}

/* Appends how far a rank has come, which waits. */
static void add_step(gyre_error *e, int rank, const struct gy_op_report *o) {
  size_t n = strlen(e->text);
  if (o->state != GY_OP_RUNNING) return;
  if (o->waiting_for >= 0) {
    gy_format(
        e->text + n, sizeof e->text - n,
        "; rank %d waits for rank %d at instruction %u, slice %u, after %llu bytes in and %llu out",
        rank, o->waiting_for, o->insn, o->slice, (unsigned long long)o->bytes_in,
        (unsigned long long)o->bytes_out);
  } else {
    gy_format(e->text + n, sizeof e->text - n, "; rank %d has moved %llu bytes in and %llu out",
              rank, (unsigned long long)o->bytes_in, (unsigned long long)o->bytes_out);
  }
}

/* -1: nobody, or only ranks that an earlier collective keeps from it. Who has a message in flight may
 * be kept by its peer: it comes second. */
static int find_not_called(const struct gy_fault *f) {
  int messaging = -1;
  for (int r = 0; r < f->nranks; r++) {
    const struct gy_op_report *o = &f->member[r].answer.report;
    if (o->state != GY_OP_NOT_CALLED || o->call.seq) continue;
    if (o->waiting_for < 0) return r;
    if (messaging < 0) messaging = r;
  }
  return messaging;
}

/* The collective that keeps a rank; 0: none does. */
static uint64_t kept_by(const struct gy_op_report *o) {
  bool kept = o->state == GY_OP_RUNNING || o->state == GY_OP_NOT_CALLED;
  return kept && o->waiting_for >= 0 ? o->call.seq : 0;
}

/* Who is at the end of the chain of waiting within the earliest collective that keeps anybody: what is later
 * only waits for that. */
static int find_waited_for(const struct gy_fault *f) {
  int r = f->query.reporter;
  uint64_t earliest = f->query.seq;
  for (int q = 0; q < f->nranks; q++) {
    uint64_t seq = kept_by(&f->member[q].answer.report);
    if (!seq || seq >= earliest) continue;
    earliest = seq;
    r = q;
  }
  for (int step = 0; step < f->nranks; step++) {
    const struct gy_op_report *o = &f->member[r].answer.report;
    if (kept_by(o) != earliest) return r;
    r = o->waiting_for;
  }
  /* A circle, as in a ring whose every rank waits: who has come least far waits for what is lost. */
  const struct gy_op_report *least = &f->member[r].answer.report, *o = least;
  for (int step = 0; step < f->nranks; step++) {
    o = &f->member[o->waiting_for].answer.report;
    if (o->insn < least->insn || (o->insn == least->insn && o->slice < least->slice)) least = o;
  }
  return least->waiting_for;
}

/* At the deadline all agree on the call: who keeps it from moving? */
static void find_culprit(struct gy_fault *f, gyre_error *e) {
  char who[128], call[128];
  unsigned long long seq = f->query.seq;
  uint32_t limit = agreed(f)->op_timeout_ms;
  const struct gy_descriptor *d = NULL;
  *e = make_error(f, GYRE_ERR_TIMEOUT, -1, 0);
  e->op_seq = f->query.seq;
  e->reporter_rank = f->query.reporter;
  for (int r = 0; r < f->nranks; r++) {
    if (has_call(&f->member[r].answer)) d = &f->member[r].answer.report.call;
  }
  const char *what = d ? gy_descriptor_text(d, call, sizeof call) : "an operation";
  for (int r = 0; r < f->nranks; r++) {
    if (f->member[r].answer.given || f->member[r].frontier != NOT_LEFT) continue;
    e->culprit_rank = r;
    gy_format(e->text, sizeof e->text,
              "%s does not answer (stopped, or its host hangs or is cut off): operation %llu, %s, "
              "moved nothing for %u ms, the operation time-out",
              place(f, r, who, sizeof who), seq, what, limit);
    return;
  }
  int r = find_not_called(f);
  if (r >= 0) {
    e->culprit_rank = r;
    size_t n =
        gy_format(e->text, sizeof e->text,
                  "%s has not called operation %llu, %s, within %u ms, the operation time-out",
                  place(f, r, who, sizeof who), seq, what, limit);
    int message = f->member[r].answer.report.waiting_for;
    if (message >= 0)
      gy_format(e->text + n, sizeof e->text - n, "; it has a message with rank %d in flight",
                message);
    return;
  }
  r = find_waited_for(f);
  e->culprit_rank = r;
  gy_format(e->text, sizeof e->text,
            "operation %llu, %s, moved nothing for %u ms, the operation time-out; %s is the one "
            "waited for",
            seq, what, limit, place(f, r, who, sizeof who));
}

/* Who does not answer, else who is waited for by the collective that keeps the other end from the message, else that end. */
static void blame_for_message(struct gy_fault *f, gyre_error *e) {
  char who[128];
  uint32_t limit = agreed(f)->op_timeout_ms;
  *e = f->query.fallback;
  int accused = e->culprit_rank, silent = -1;
  for (int r = 0; r < f->nranks; r++) {
    if (f->member[r].answer.given || f->member[r].frontier != NOT_LEFT) continue;
    if (r == accused) return;
    if (silent < 0) silent = r;
  }
  if (silent >= 0) {
    e->culprit_rank = silent;
    gy_format(e->text, sizeof e->text,
              "%s does not answer (stopped, or its host hangs or is cut off); a message between "
              "ranks %d and %d moved nothing for %u ms, the operation time-out",
              place(f, silent, who, sizeof who), f->query.reporter, accused, limit);
    return;
  }
  const struct answer *a = &f->member[accused].answer;
  uint64_t seq = a->given ? kept_by(&a->report) : 0;
  if (!seq) return;
  e->culprit_rank = find_waited_for(f);
  gy_format(e->text, sizeof e->text,
            "operation %llu keeps rank %d from a message with rank %d, which moved nothing for %u "
            "ms, the operation time-out; %s is the one waited for",
            (unsigned long long)seq, accused, f->query.reporter, limit,
            place(f, e->culprit_rank, who, sizeof who));
}

static void blame_for_deadline(struct gy_fault *f, gyre_error *e) {
  const struct answer *reporter = &f->member[f->query.reporter].answer;
  find_culprit(f, e);
  if (reporter->given) add_step(e, f->query.reporter, &reporter->report);
}

static void finish_query(struct gy_fault *f) {
  gyre_error e;
  f->query.until = 0;
  if (find_mismatch(f, &e)) {
    decide(f, &e);
  } else if (f->query.purpose == FOR_CONFLICT) {
    decide(f, &f->query.fallback);
  } else if (f->query.purpose == FOR_MESSAGE) {
    blame_for_message(f, &e);
    decide(f, &e);
  } else if (f->query.purpose == FOR_DEADLINE) {
    blame_for_deadline(f, &e);
    decide(f, &e);
  }
}

static bool all_answered(const struct gy_fault *f) {
  for (int r = 0; r < f->nranks; r++) {
    if (!f->member[r].answer.given && f->member[r].frontier == NOT_LEFT) return false;
  }
  return true;
}

static void take_answer(struct gy_fault *f, int rank, uint32_t id, const struct gy_op_report *o) {
  if (!f->query.until || id != f->query.id) return;
  f->member[rank].answer = (struct answer){true, *o};
  if (all_answered(f)) finish_query(f);
}

/* Root: asks everybody about an operation, unless a query at least as urgent is under way. */
static void query(struct gy_fault *f, uint64_t seq, enum purpose purpose, int reporter,
                  const gyre_error *fallback) {
  static const uint32_t limit[] = {QUERY_MS, QUERY_MS, CONFLICT_MS, QUERY_MS};
  if (decided(f) || (f->query.until && f->query.purpose >= purpose)) return;
  start_ticking(f);
  f->query.id++;
  f->query.seq = seq;
  f->query.purpose = purpose;
  f->query.reporter = reporter;
  f->query.until = now(f) + limit[purpose];
  if (fallback) f->query.fallback = *fallback;
  for (int r = 0; r < f->nranks; r++) f->member[r].answer.given = false;
  for (int r = 1; r < f->nranks; r++) {
    struct gy_writer w = {0};
    gy_w_u32(&w, f->query.id);
    gy_w_u64(&w, seq);
    send_writer(f->channels[r], MSG_QUERY, &w);
  }
  struct gy_op_report mine;
  gy_engine_report(f->cfg.engine, seq, &mine);
  take_answer(f, 0, f->query.id, &mine);
}

/* Nobody but the two ends knows of a message, and here both have been heard. */
static void message_mismatch(struct gy_fault *f, const struct gy_descriptor *mine,
                             const struct gy_descriptor *theirs) {
  gyre_error e = make_error(f, GYRE_ERR_MISMATCH, -1, 0);
  int from = gy_message_from(mine->root), to = gy_message_to(mine->root);
  const char *type = gyre_dtype_name((gyre_dtype)theirs->dtype);
  e.op_seq = 0;
  gy_format(
      e.text, sizeof e.text,
      "message %llu from rank %d to rank %d differs: rank %d sends %s x %llu; rank %d receives "
      "%s x %llu",
      (unsigned long long)mine->seq, from, to, from, type ? type : "?",
      (unsigned long long)theirs->count, to, gyre_dtype_name((gyre_dtype)mine->dtype),
      (unsigned long long)mine->count);
  consider(f, &e, MSG_REPORT);
}

void gy_fault_mismatch(struct gy_fault *f, int peer, const struct gy_descriptor *mine,
                       const struct gy_descriptor *theirs) {
  if (decided(f)) return;
  if (mine->coll == GY_MESSAGE) {
    message_mismatch(f, mine, theirs);
    return;
  }
  char a[128], b[128];
  gyre_error e = make_error(f, GYRE_ERR_MISMATCH, -1, 0);
  e.op_seq = mine->seq < theirs->seq
                 ? mine->seq
                 : theirs->seq; /* a surplus message belongs to an operation that is over here */
  gy_format(e.text, sizeof e.text,
            "operation %llu differs: rank %d called %s; rank %d called %s as its operation %llu",
            (unsigned long long)mine->seq, f->rank, gy_descriptor_text(mine, a, sizeof a), peer,
            gy_descriptor_text(theirs, b, sizeof b), (unsigned long long)theirs->seq);
  const struct gy_coll_traits *traits = gy_coll_traits(mine->coll);
  size_t n = strlen(e.text);
  if (traits && traits->layout == GY_VARY)
    gy_format(e.text + n, sizeof e.text - n, " (counts of the one block between them)");
  if (is_root(f)) {
    query(f, e.op_seq, FOR_CONFLICT, f->rank, &e);
  } else if (f->root_left || f->root_gone) {
    decide(f, &e);
  } else if (!f->suspicion.status) {
    f->suspicion = e;
    start_ticking(f);
    f->judge_at = now(f) + agreed(f)->verdict_ms + CONFLICT_MS;
    send_error(f, 0, MSG_CONFLICT, &e);
  }
}

/* ------------------------------------------------------------------------------ departures --- */

static void member_left(struct gy_fault *f, int rank, uint64_t frontier, const char *why) {
  gy_format(f->member[rank].why, sizeof f->member[rank].why, "%s", why);
  f->member[rank].frontier = frontier;
  if (frontier < f->left_frontier) f->left_frontier = frontier;
  struct gy_op_report o;
  bool missed = gy_engine_oldest(f->cfg.engine, &o) && o.call.seq >= frontier;
  if (f->suspicion.status == GYRE_ERR_PEER_LOST && (missed || is_departure(f, &f->suspicion))) {
    f->suspicion = (gyre_error)
        GYRE_ERROR_INIT; /* it only looked like a death, or was a consequence: gy_fault_check says so */
    f->judge_at = f->judge_latest = 0;
  }
  if (f->query.until && all_answered(f)) finish_query(f);
  f->cfg.rank_left(f->cfg.user, rank);
}

void gy_fault_check(struct gy_fault *f) {
  struct gy_op_report o;
  if (!f->ticking && in_flight(f, &o)) start_ticking(f);
  if (f->left_frontier == NOT_LEFT || decided(f) || f->suspicion.status) return;
  if (!gy_engine_oldest(f->cfg.engine, &o)) return;
  for (int r = 0; r < f->nranks; r++) {
    if (o.call.seq < f->member[r].frontier) continue;
    gyre_error e = make_error(f, GYRE_ERR_PEER_LOST, r, 0);
    char who[128], call[128];
    gy_format(e.text, sizeof e.text, "%s left at operation %llu: %s; operation %llu, %s, needs it",
              place(f, r, who, sizeof who), (unsigned long long)f->member[r].frontier,
              f->member[r].why, (unsigned long long)o.call.seq,
              gy_descriptor_text(&o.call, call, sizeof call));
    consider(f, &e, MSG_MISSED);
    return;
  }
}

static void channel_ended(void *user, struct gy_channel *ch, int sys_errno) {
  struct gy_fault *f = user;
  int r = 0;
  char address[GY_ADDRESS_TEXT];
  while (f->channels[r] != ch) r++;
  gy_format(address, sizeof address, "%s", gy_channel_peer(ch));
  uint64_t heard = gy_channel_last_heard(ch);
  if (!decided(f) && f->member[r].frontier == NOT_LEFT && means_silence(sys_errno))
    gone_silent(f, r, now(f) - heard, address);
  f->channels[r] = NULL;
  gy_channel_close(ch);
  if (r == 0) f->root_gone = true;
  if (decided(f) || f->member[r].frontier != NOT_LEFT) return;
  bool here = sys_errno == ENOMEM;
  gyre_error e =
      make_error(f, here ? GYRE_ERR_NOMEM : GYRE_ERR_PEER_LOST, here ? f->rank : r, sys_errno);
  char who[128];
  place(f, e.culprit_rank, who, sizeof who);
  if (here) {
    gy_format(e.text, sizeof e.text, "%s failed: out of memory to hear rank %d", who, r);
  } else if (sys_errno == EPIPE || sys_errno == ECONNRESET) { /* a kernel's answer for who is gone */
    gy_format(e.text, sizeof e.text,
              "%s closed its connection without a goodbye (%s): it died or was killed", who,
              strerror(sys_errno));
  } else if (sys_errno) {
    gy_format(e.text, sizeof e.text, "the control connection to %s broke: %s (errno %d)", who,
              strerror(sys_errno), sys_errno);
  } else {
    gy_format(e.text, sizeof e.text,
              "%s closed its connection without a goodbye: it died or was killed", who);
  }
  add_operation(f, &e);
  decide(f, &e); /* a rank whose control connection ended goes before what others suspect */
}

/* -------------------------------------------------------------------------------- receiving --- */

static void root_message(struct gy_fault *f, int from, uint8_t type, struct gy_reader *r) {
  char why[WHY_MAX];
  gyre_error e;
  struct gy_op_report o;
  switch (type) {
    case MSG_REPORT:
    case MSG_MISSED:
      r_error(r, &e, f->nranks);
      if (!r->failed && (type == MSG_MISSED || !is_departure(f, &e))) consider(f, &e, type);
      break;
    case MSG_VERDICT:
      r_error(r, &e, f->nranks);
      if (!r->failed) decide(f, &e);
      break;
    case MSG_CONFLICT:
      r_error(r, &e, f->nranks);
      if (!r->failed) query(f, e.op_seq, FOR_CONFLICT, from, &e);
      break;
    case MSG_BYE: {
      uint64_t frontier = gy_r_u64(r);
      gy_r_text(r, why, sizeof why);
      if (r->failed) break;
      for (int to = 1; to < f->nranks; to++) {
        struct gy_writer w = {0};
        if (to == from) continue;
        gy_w_i32(&w, from);
        gy_w_u64(&w, frontier);
        gy_w_text(&w, why);
        send_writer(f->channels[to], MSG_LEFT, &w);
      }
      member_left(f, from, frontier, why);
      break;
    }
    case MSG_STALL:
    case MSG_DEADLINE: {
      uint64_t seq = gy_r_u64(r);
      if (!r->failed) query(f, seq, type == MSG_STALL ? FOR_STALL : FOR_DEADLINE, from, NULL);
      break;
    }
    case MSG_ANSWER: {
      uint32_t id = gy_r_u32(r);
      r_report(r, &o, f->nranks);
      if (!r->failed) take_answer(f, from, id, &o);
      break;
    }
    default: r->failed = true;
  }
}

static void member_message(struct gy_fault *f, uint8_t type, struct gy_reader *r) {
  char why[WHY_MAX];
  gyre_error e;
  switch (type) {
    case MSG_VERDICT:
      r_error(r, &e, f->nranks);
      if (r->failed) break;
      f->told = true;
      decide(f, &e);
      break;
    case MSG_BYE: {
      uint64_t frontier = gy_r_u64(r);
      gy_r_text(r, why, sizeof why);
      if (r->failed) break;
      f->root_left = true;
      member_left(f, 0, frontier, why);
      if (f->suspicion.status) decide(f, &f->suspicion);
      break;
    }
    case MSG_LEFT: {
      int rank = gy_r_i32(r);
      uint64_t frontier = gy_r_u64(r);
      gy_r_text(r, why, sizeof why);
      if (rank <= 0 || rank >= f->nranks) r->failed = true;
      if (!r->failed) member_left(f, rank, frontier, why);
      break;
    }
    case MSG_QUERY: {
      struct gy_op_report o;
      struct gy_writer w = {0};
      uint32_t id = gy_r_u32(r);
      uint64_t seq = gy_r_u64(r);
      if (f->judge_at &&
          f->suspicion.status == GYRE_ERR_TIMEOUT) { /* it is not the root that does not answer */
        f->judge_at = now(f) + QUERY_MS + agreed(f)->verdict_ms;
      }
      gy_engine_report(f->cfg.engine, seq, &o);
      gy_w_u32(&w, id);
      w_report(&w, &o);
      send_writer(f->channels[0], MSG_ANSWER, &w);
      break;
    }
    default: r->failed = true;
  }
}

/* The other end gave up creating the communicator after this one had finished: bootstrap's last
 * word on the channel. */
static void given_up(struct gy_fault *f, int from, struct gy_reader *r) {
  char why[GY_FAIL_TEXT], who[128];
  gyre_status status;
  if (gy_fail_read(r->data, r->len, &status, why)) {
    r->failed = true;
    return;
  }
  gyre_error e = make_error(f, GYRE_ERR_PEER_LOST, from, 0);
  gy_format(e.text, sizeof e.text, "%s gave up creating the communicator: %s",
            place(f, from, who, sizeof who), why);
  decide(f, &e);
}

static void message(void *user, struct gy_channel *ch, uint8_t type, const void *body, size_t len) {
  struct gy_fault *f = user;
  struct gy_reader r = {.data = body, .len = len};
  int from = 0;
  while (f->channels[from] != ch) from++;
  if (decided(f) || type == GY_MESSAGE_BEAT) return;
  if (type == GY_MESSAGE_FAIL) {
    given_up(f, from, &r);
  } else if (type >= GY_MESSAGE_GROUP) {
    f->cfg.other_message(f->cfg.user, from, type, &r);
  } else if (is_root(f)) {
    root_message(f, from, type, &r);
  } else {
    member_message(f, type, &r);
  }
  if (!r.failed || decided(f)) return;
  gyre_error e = make_error(f, GYRE_ERR_PROTO, from, 0);
  char who[128];
  gy_format(e.text, sizeof e.text, "a malformed message (type %u, %zu bytes) came from %s", type,
            len, place(f, from, who, sizeof who));
  consider(f, &e, MSG_REPORT);
}

static const struct gy_channel_events events = {message, channel_ended};

/* ------------------------------------------------------------------------------------ timer --- */

static void log_stall(const struct gy_fault *f, const struct gy_op_report *o, uint64_t still) {
  char call[128], link[256] = "";
  if (o->waiting_for >= 0) gy_engine_describe(f->cfg.engine, o->waiting_for, link, sizeof link);
  gy_log(GY_LOG_INFO, "rank %d: operation %llu, %s, has not moved for %llu ms: instruction %u slice %u, waiting for rank %d (%s)",
         f->rank, (unsigned long long)o->call.seq, gy_descriptor_text(&o->call, call, sizeof call),
         (unsigned long long)still, o->insn, o->slice, o->waiting_for, link);
}

/* The peer's own queries would not tell more: it has not called, or does not answer. One that has
 * left gets the time in which what it sent before may still arrive. */
static void watch_message(struct gy_fault *f, const struct gy_op_report *o, uint64_t still) {
  char who[128], call[128];
  int peer = o->waiting_for;
  if (f->suspicion.status) return;
  if (f->member[peer].frontier != NOT_LEFT &&
      still > (uint64_t)f->cfg.core->settings->linger_ms + LEFT_MS) {
    message_missed(f, o);
  } else if (f->late > 1) {
    gyre_error e = make_error(f, GYRE_ERR_TIMEOUT, peer, 0);
    gy_format(e.text, sizeof e.text,
              "%s has not %s %s within %u ms, or does not answer (stopped, or its host hangs or is "
              "cut off)",
              place(f, peer, who, sizeof who), o->sends ? "received" : "sent",
              gy_descriptor_text(&o->call, call, sizeof call), agreed(f)->op_timeout_ms);
    consider(f, &e, MSG_REPORT);
  } else if (still >= agreed(f)->stall_ms && f->stall_seq != o->call.seq) {
    f->stall_seq = o->call.seq;
    log_stall(f, o, still);
  }
}

/* A stall asks once; a deadline is a suspicion, for which the root is given time to ask
 * everybody. */
static void watch_progress(struct gy_fault *f) {
  struct gy_op_report o;
  uint64_t moved = gy_engine_moved(f->cfg.engine), t = now(f);
  bool active = in_flight(f, &o);
  if (!active || moved != f->moved) {
    f->moved = moved;
    f->moved_at = t;
    f->stall_seq = f->deadline_seq = 0;
    f->late = 0;
    return;
  }
  uint64_t still = t - f->moved_at;
  f->late = still >= agreed(f)->op_timeout_ms ? f->late + 1 : 0;
  if (o.call.coll == GY_MESSAGE) {
    watch_message(f, &o, still);
    return;
  }
  if (f->late > 1 && f->deadline_seq != o.call.seq &&
      !f->suspicion.status) { /* > 1: the sockets have been read since */
    f->deadline_seq = o.call.seq;
    if (is_root(f)) {
      query(f, o.call.seq, FOR_DEADLINE, 0, NULL);
      return;
    }
    gyre_error e = make_error(f, GYRE_ERR_TIMEOUT, f->root_left ? o.waiting_for : 0, 0);
    char who[128], call[128];
    gy_descriptor_text(&o.call, call, sizeof call);
    if (f->root_left) {
      gy_format(e.text, sizeof e.text,
                "operation %llu, %s, moved nothing for %u ms, the operation time-out",
                (unsigned long long)o.call.seq, call, agreed(f)->op_timeout_ms);
      add_step(&e, f->rank, &o);
      decide(f, &e);
      return;
    }
    gy_format(e.text, sizeof e.text,
              "%s does not answer (stopped, or its host hangs or is cut off): operation %llu, %s, "
              "moved nothing for %u ms, the operation time-out",
              place(f, 0, who, sizeof who), (unsigned long long)o.call.seq, call,
              agreed(f)->op_timeout_ms);
    add_step(&e, f->rank, &o);
    f->suspicion = e;
    f->judge_at = t + QUERY_MS + agreed(f)->verdict_ms;
    send_seq(f, 0, MSG_DEADLINE, o.call.seq);
  } else if (still >= agreed(f)->stall_ms && f->stall_seq != o.call.seq) {
    f->stall_seq = o.call.seq;
    log_stall(f, &o, still);
    if (is_root(f)) {
      query(f, o.call.seq, FOR_STALL, 0, NULL);
    } else if (!f->root_left) {
      send_seq(f, 0, MSG_STALL, o.call.seq);
    }
  }
}

static void on_tick(uv_timer_t *timer);

/* A member's time is over, but the root's heart beats: on a busy machine it is about to answer. */
static bool root_may_answer(struct gy_fault *f) {
  uint64_t t = now(f), ms = gy_heartbeat_silence(f->heartbeat, 0);
  if (is_root(f) || f->root_left || f->root_gone || ms == UINT64_MAX) return false;
  if (!f->judge_latest) f->judge_latest = t + agreed(f)->peer_timeout_ms;
  return ms / 2 < gy_heartbeat_interval(agreed(f)) && t < f->judge_latest;
}

static void start_ticking(struct gy_fault *f) {
  if (f->ticking || decided(f)) return;
  f->ticking = true;
  uv_update_time(f->cfg.core->uv); /* the loop may have slept outside uv_run: its clock is then old */
  f->last_tick = f->moved_at = now(f);
  uv_timer_start(&f->watch->timer, on_tick, f->tick_ms, f->tick_ms);
}

/* A gap between ticks means that this process was stopped, or starved: nothing is held against
 * others for that time, and the sockets are read before anything is judged. */
static void discount_sleep(struct gy_fault *f) {
  uint64_t t = now(f), gap = t - f->last_tick;
  f->last_tick = t;
  if (gap < SLEPT_MS) return;
  f->moved_at += gap;
  if (f->judge_at) f->judge_at += gap;
  if (f->query.until) f->query.until += gap;
}

static void on_tick(uv_timer_t *timer) {
  struct gy_fault *f = ((struct watch *)timer->data)->fault;
  struct gy_op_report o;
  bool idle = !f->judge_at && !f->query.until && !in_flight(f, &o);
  if (decided(f) || idle) {
    uv_timer_stop(timer);
    f->ticking = false;
    return;
  }
  discount_sleep(f);
  bool due = (f->judge_at && now(f) >= f->judge_at) || (f->query.until && now(f) >= f->query.until);
  if (due && !f->ripe) {
    f->ripe = true;
    return;
  }
  f->ripe = false;
  if (f->judge_at && now(f) >= f->judge_at && root_may_answer(f)) {
    f->judge_at = now(f) + agreed(f)->verdict_ms;
  } else if (f->judge_at && now(f) >= f->judge_at) {
    gyre_error e = f->suspicion;
    if (!is_root(f)) send_error(f, 0, MSG_VERDICT, &e); /* so that it learns why when it wakes */
    decide(f, &e);
  } else if (f->query.until && now(f) >= f->query.until) {
    finish_query(f);
  } else {
    watch_progress(f);
  }
}

/* --------------------------------------------------------------------------- create and leave --- */

static void free_watch(uv_handle_t *h) { free(h->data); }

gyre_status gy_fault_create(const struct gy_fault_config *config, struct gy_fault **out) {
  struct gy_fault *f = calloc(1, sizeof *f);
  if (!f) goto no_memory;
  f->cfg = *config;
  f->rank = config->core->rank;
  f->nranks = config->core->nranks;
  f->channels = config->channels;
  f->left_frontier = NOT_LEFT;
  f->root_gone = f->rank != 0 && !f->channels[0]; /* it died while the communicator was made */
  f->verdict = f->suspicion = (gyre_error)GYRE_ERROR_INIT;
  f->member = calloc((size_t)f->nranks, sizeof *f->member);
  if (!f->member) goto free_fault;
  for (int r = 0; r < f->nranks; r++) f->member[r].frontier = NOT_LEFT;
  f->watch = calloc(1, sizeof *f->watch);
  if (!f->watch) goto free_member;
  f->watch->fault = f;
  uv_timer_init(config->core->uv, &f->watch->timer);
  f->watch->timer.data = f->watch;
  f->tick_ms = agreed(f)->stall_ms / 8 < 10 ? 10 : agreed(f)->stall_ms / 8;
  if (f->tick_ms > 50) f->tick_ms = 50;
  struct gy_heartbeat_config beats = {.uv = config->core->uv,
                                      .rank = f->rank,
                                      .roster = config->core->roster,
                                      .channels = f->channels,
                                      .silent = on_silent,
                                      .beat = look_at_links,
                                      .user = f};
  if (gy_heartbeat_create(&beats, &f->heartbeat)) goto close_watch;
  for (int r = 0; r < f->nranks; r++) {
    if (!f->channels[r]) continue;
    gy_channel_rebind(f->channels[r], &events, f);
    gy_channel_peer_timeout(f->channels[r], agreed(f)->peer_timeout_ms,
                            !config->core->roster->member[r].unattended);
  }
  *out = f;
  return GYRE_OK;

close_watch:
  uv_close((uv_handle_t *)&f->watch->timer, free_watch);
free_member:
  free(f->member);
free_fault:
  free(f);
no_memory:
  return gy_fail(GYRE_ERR_NOMEM, "out of memory for the fault detector");
}

static void say_goodbye(struct gy_fault *f, int to, const char *why) {
  struct gy_writer w = {0};
  gy_w_u64(&w, gy_engine_frontier(f->cfg.engine));
  gy_w_text(&w, why);
  send_writer(f->channels[to], MSG_BYE, &w);
}

void gy_fault_leave(struct gy_fault *f, const char *why) {
  uint32_t linger = (uint32_t)f->cfg.core->settings->linger_ms;
  for (int r = 0; r < f->nranks; r++) {
    if (!f->channels[r]) continue;
    if (!decided(f)) say_goodbye(f, r, why);
    gy_channel_finish(f->channels[r], f->cfg.core->net, linger);
  }
  if (f->heartbeat) gy_heartbeat_end(f->heartbeat);
  uv_timer_stop(&f->watch->timer);
  uv_close((uv_handle_t *)&f->watch->timer, free_watch);
  free(f->channels);
  free(f->member);
  free(f);
}

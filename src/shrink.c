/*
 * shrink.c - see shrink.h.
 *
 *   member                             coordinator
 *   REPORT: known dead              ->             has waited for all, or for the deadline
 *                                   <- PLAN        to each that reported
 *   ACK                             ->             all; if one dies meanwhile, a new plan without it
 *                                   <- COMMIT      one rank after the other, in their order
 *   DONE                            ->
 *                                   <- GO          to all, when the last is done
 *
 * Whoever has got COMMIT is in the new communicator, whatever happens. When the coordinator dies, or
 * is silent for the connect time-out, the next one takes its place:
 * - As commits go in the order of ranks, and each is answered before the next, the lowest member
 *   alive has one if any alive has: it tells the others what was decided (DECIDED).
 * - A rank reports the last plan it has acknowledged, and a coordinator commits that, if there is
 *   one, instead of a plan of its own. So a coordinator that was only stopped, and goes on, cannot
 *   bring about two decisions.
 * The new communicator may then have a dead rank 0; it fails at once, on all alike.
 *
 * Whoever comes when all is over hears the decision, too: a rank that was only stopped learns that
 * it has been left out. At least half of the ranks are needed, and exactly half only with rank 0, so
 * that no two groups can decide without a rank in common.
 */
#include "shrink.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "log.h"
#include "status.h"

/* Messages on connections of this kind only; and GY_MESSAGE_FAIL to those that are left out. */
enum {
  MSG_REPORT = 72, /* u32 patience in ms, ranks: known dead, plan: the last acknowledged */
  MSG_PLAN,        /* plan */
  MSG_ACK,         /* u32 round */
  MSG_COMMIT,
  MSG_DONE,
  MSG_GO,
  MSG_DECIDED /* plan: what was committed */
};

#define TICK_MS 20
#define SLEPT_MS 500     /* between two ticks: this process did not run */
#define GRACE_MS 3000    /* how much longer than its deadline a member waits for the coordinator */
#define STEP_MIN_MS 1000 /* for an answer to PLAN or COMMIT, which needs no user's call */

enum phase {
  GATHERING, /* reports; a member: from its report on */
  PLANNED,   /* coordinator: until all have acknowledged */
  COMMITTED, /* in the new communicator; the coordinator: until the last is done */
  OVER       /* only answers those who come late */
};

struct plan {
  uint32_t by, round; /* whose; its how many-th, from 1 (0: there is none) */
  uint8_t epoch[GY_KEY_BYTES];
  bool *member; /* of the old ranks */
};

struct peer { /* an inbound connection */
  struct peer *next;
  struct gy_shrink *s;
  struct gy_channel *ch;
  int rank;
  bool reported, asked, acked; /* asked: for this round */
  bool *dead;                  /* what it reported */
  struct plan last;
};

struct gy_shrink {
  struct gy_shrink_config cfg;
  struct gy_secret secret;
  struct gy_roster *roster; /* a copy */
  int rank, nranks;
  enum phase phase;
  bool *dead;
  int coordinator;
  struct plan plan; /* being agreed on, or decided */
  struct plan last; /* member: the last one it has acknowledged */
  bool *here;       /* coordinator: itself and those that have reported */
  int committing;   /* coordinator: whose DONE is awaited */
  struct gy_expect *expect;
  struct peer *peers, **reporter; /* all; by rank those that have reported */
  struct gy_dial *dial;
  struct gy_channel *up; /* member: to the coordinator */
  uint64_t deadline, last_tick;
  bool ripe; /* the deadline was over at the last tick; the sockets have been read since */
  uv_timer_t timer;
};

static uint64_t now(const struct gy_shrink *s) { return uv_now(s->cfg.uv); }
static bool coordinates(const struct gy_shrink *s) { return s->coordinator == s->rank; }
static uint32_t patience(const struct gy_shrink *s) {
  return (uint32_t)s->cfg.settings->connect_timeout_ms;
}
static uint32_t step_ms(const struct gy_shrink *s) {
  return patience(s) / 4 > STEP_MIN_MS ? patience(s) / 4 : STEP_MIN_MS;
}

static void wait_until(struct gy_shrink *s, uint64_t ms_from_now) {
  uv_update_time(s->cfg.uv);
  s->deadline = now(s) + ms_from_now;
  s->ripe = false;
}

/* --------------------------------------------------------------------------------- messages --- */

static void w_ranks(struct gy_writer *w, const bool *in, int n) {
  for (int r = 0; r < n; r += 8) {
    uint8_t bits = 0;
    for (int i = r; i < n && i < r + 8; i++) bits |= (uint8_t)(in[i] << (i - r));
    gy_w_u8(w, bits);
  }
}

static void r_ranks(struct gy_reader *r, bool *out, int n) {
  for (int first = 0; first < n; first += 8) {
    uint8_t bits = gy_r_u8(r);
    for (int i = first; i < n && i < first + 8; i++) out[i] = bits >> (i - first) & 1;
  }
}

static void send_writer(struct gy_channel *ch, uint8_t type, struct gy_writer *w) {
  if (ch && !w->failed) (void)gy_channel_send(ch, type, w->data, w->len);
  gy_w_free(w);
}

static void send_number(struct gy_channel *ch, uint8_t type, uint32_t number) {
  struct gy_writer w = {0};
  gy_w_u32(&w, number);
  send_writer(ch, type, &w);
}

static void w_plan(struct gy_writer *w, const struct plan *plan, int n) {
  gy_w_u32(w, plan->by);
  gy_w_u32(w, plan->round);
  gy_w_bytes(w, plan->epoch, sizeof plan->epoch);
  w_ranks(w, plan->member, n);
}

static void r_plan(struct gy_reader *r, struct plan *plan, int n) {
  plan->by = gy_r_u32(r);
  plan->round = gy_r_u32(r);
  gy_r_bytes(r, plan->epoch, sizeof plan->epoch);
  r_ranks(r, plan->member, n);
}

static void send_plan(const struct gy_shrink *s, struct gy_channel *ch, uint8_t type) {
  struct gy_writer w = {0};
  w_plan(&w, &s->plan, s->nranks);
  send_writer(ch, type, &w);
}

/* A copy, but for the array, which is each one's own. */
static void set_plan(struct plan *to, const struct plan *from, int n) {
  to->by = from->by;
  to->round = from->round;
  memcpy(to->epoch, from->epoch, sizeof to->epoch);
  memcpy(to->member, from->member, (size_t)n * sizeof *to->member);
}

static bool is_later(const struct plan *a, const struct plan *b) {
  if (!a->round || !b->round) return a->round > 0 && !b->round;
  return a->by != b->by ? a->by > b->by : a->round > b->round;
}

static int lowest(const bool *in) {
  int r = 0;
  while (!in[r]) r++;
  return r;
}

/* ------------------------------------------------------------------------------------- ends --- */

static void drop_peer(struct peer *p, bool linger) {
  struct gy_shrink *s = p->s;
  struct peer **at = &s->peers;
  while (*at != p) at = &(*at)->next;
  *at = p->next;
  if (s->reporter[p->rank] == p) s->reporter[p->rank] = NULL;
  if (linger) gy_channel_finish(p->ch, s->cfg.net, (uint32_t)s->cfg.settings->linger_ms);
  else if (p->ch) gy_channel_close(p->ch);
  free(p->dead);
  free(p->last.member);
  free(p);
}

static void hang_up(struct gy_shrink *s) {
  if (s->dial) gy_dial_cancel(s->dial);
  s->dial = NULL;
  if (s->up) gy_channel_close(s->up);
  s->up = NULL;
}

static void fail(struct gy_shrink *s, gyre_status status, const char *text) {
  s->phase = OVER;
  uv_timer_stop(&s->timer);
  gy_fail_text(status, text);
  s->cfg.done(s->cfg.user, status, -1, NULL, NULL);
}

/* To one that asks, when the decision is made. */
static void tell_decision(struct peer *p) {
  send_plan(p->s, p->ch, MSG_DECIDED);
  drop_peer(p, true);
}

/* Those who have reported but are no part of this. */
static void tell_late(struct gy_shrink *s) {
  for (struct peer *p = s->peers, *next; p; p = next) {
    next = p->next;
    if (p->reported && !(coordinates(s) && p->acked && s->plan.member[p->rank])) tell_decision(p);
  }
}

/* The channels of the new communicator, taken out of here. There are none if the coordinator is not
 * its rank 0, which has died then. */
static gyre_status take_channels(struct gy_shrink *s, int n, struct gy_channel ***out) {
  bool lost = s->coordinator != lowest(s->plan.member);
  struct gy_channel **channels = calloc(n > 0 ? (size_t)n : 1, sizeof(struct gy_channel *));
  if (!channels)
    return gy_fail(GYRE_ERR_NOMEM, "no memory for the control connections of %d ranks", n);
  for (int r = 0, i = 0; r < s->nranks && coordinates(s); r++) {
    struct peer *p = s->plan.member[r] ? s->reporter[r] : NULL;
    if (p) {
      if (!lost) channels[i] = p->ch;
      if (!lost) p->ch = NULL;
      drop_peer(p, lost);
    }
    i += s->plan.member[r];
  }
  if (!lost && !coordinates(s)) {
    channels[0] = s->up;
    s->up = NULL;
  }
  hang_up(s);
  *out = channels;
  return GYRE_OK;
}

/* This rank's part is over: the new communicator is made. */
static void finish(struct gy_shrink *s) {
  struct gy_roster *roster = NULL;
  struct gy_channel **channels = NULL;
  int n = 0, mine = 0;
  for (int r = 0; r < s->nranks; r++) {
    if (r == s->rank) mine = n;
    n += s->plan.member[r];
  }
  s->phase = OVER;
  uv_timer_stop(&s->timer);
  gyre_status st = gy_roster_create(n, &roster);
  if (!st) st = take_channels(s, n, &channels);
  if (st) {
    gy_roster_free(roster);
    s->cfg.done(s->cfg.user, st, -1, NULL, NULL);
    return;
  }
  roster->agreed = s->roster->agreed;
  memcpy(roster->epoch, s->plan.epoch, sizeof roster->epoch);
  for (int r = 0, i = 0; r < s->nranks; r++)
    if (s->plan.member[r]) roster->member[i++] = s->roster->member[r];
  gy_roster_free(s->roster);
  s->roster = NULL;
  s->cfg.done(s->cfg.user, GYRE_OK, mine, roster, channels);
}

static void left_out(struct gy_shrink *s) {
  char others[128], text[512];
  gy_fault_list(s->plan.member, s->nranks, others, sizeof others);
  gy_format(text, sizeof text,
            "excluded: %s of %d went on without this rank (%d), which they had lost or waited for "
            "in vain",
            others, s->nranks, s->rank);
  fail(s, GYRE_ERR_PEER_LOST, text);
}

/* ------------------------------------------------------------------------------ coordinator --- */

static void choose_coordinator(struct gy_shrink *s);

static bool is_enough(const struct gy_shrink *s, const bool *member) {
  int n = 0;
  for (int r = 0; r < s->nranks; r++) n += member[r];
  return 2 * n > s->nranks || (2 * n == s->nranks && member[0]);
}

static void exclude(struct peer *p, const char *text) {
  struct gy_writer w = {0};
  gy_fail_write(&w, GYRE_ERR_PEER_LOST, text);
  send_writer(p->ch, GY_MESSAGE_FAIL, &w);
  drop_peer(p, true);
}

static void too_few(struct gy_shrink *s) {
  char who[128], text[512];
  gy_fault_list(s->here, s->nranks, who, sizeof who);
  gy_format(text, sizeof text,
            "excluded: only %s of %d came to shrink the communicator within %u ms; at least half "
            "must, and if exactly half, rank 0 among them",
            who, s->nranks, patience(s));
  while (s->peers) exclude(s->peers, text);
  fail(s, GYRE_ERR_PEER_LOST, text);
}

/* The next in the order of ranks; when there is none, all may go. */
static void commit_next(struct gy_shrink *s) {
  for (s->committing++; s->committing < s->nranks; s->committing++) {
    struct peer *p = s->plan.member[s->committing] ? s->reporter[s->committing] : NULL;
    if (!p || !p->acked) continue;
    wait_until(s, step_ms(s));
    send_number(p->ch, MSG_COMMIT, s->plan.round);
    return;
  }
  for (struct peer *p = s->peers; p; p = p->next)
    if (p->acked && s->plan.member[p->rank]) send_number(p->ch, MSG_GO, s->plan.round);
  tell_late(s);
  if (s->plan.member[s->rank]) finish(s);
  else left_out(s);
}

static void commit_if_all_acked(struct gy_shrink *s) {
  for (const struct peer *p = s->peers; p; p = p->next)
    if (p->asked && !p->acked) return;
  s->phase = COMMITTED;
  s->committing = -1;
  commit_next(s);
}

/* The last plan that somebody here has acknowledged to an earlier coordinator may have been
 * committed, and is the only one that may: those who acknowledged it and those who are here are at
 * least half each, so have a rank in common (as in L. Lamport, The Part-Time Parliament, 1998).
 * Without one this rank is free to plan for those who are here. */
static gyre_status draw_plan(struct gy_shrink *s) {
  const struct plan *last = &s->last;
  uint32_t round = s->plan.round + 1;
  gyre_status st = GYRE_OK;
  for (const struct peer *p = s->peers; p; p = p->next)
    if (p->reported && is_later(&p->last, last)) last = &p->last;
  if (last->round) {
    set_plan(&s->plan, last, s->nranks);
  } else {
    memcpy(s->plan.member, s->here, (size_t)s->nranks * sizeof *s->here);
    st = gy_random(s->plan.epoch, sizeof s->plan.epoch);
  }
  s->plan.by = (uint32_t)s->rank;
  s->plan.round = round;
  return st;
}

static void make_plan(struct gy_shrink *s) {
  for (int r = 0; r < s->nranks; r++) s->here[r] = r == s->rank || s->reporter[r];
  if (!is_enough(s, s->here)) {
    too_few(s);
    return;
  }
  gyre_status st = draw_plan(s);
  if (st) {
    char text[256];
    gy_format(text, sizeof text, "%s", gyre_last_error());
    fail(s, st, text);
    return;
  }
  s->phase = PLANNED;
  wait_until(s, step_ms(s));
  for (struct peer *p = s->peers; p; p = p->next) {
    p->asked = p->reported;
    p->acked = false;
    if (p->asked) send_plan(s, p->ch, MSG_PLAN);
  }
  commit_if_all_acked(s);
}

/* Who is dead to a survivor is not waited for; but whoever reports is alive. */
static void believe(const struct peer *p) {
  for (int r = 0; r < p->s->nranks; r++) p->s->dead[r] |= p->dead[r];
}

static void plan_if_all_reported(struct gy_shrink *s) {
  s->cfg.find_dead(s->cfg.user, s->dead);
  for (int r = 0; r < s->nranks; r++)
    if (r != s->rank && !s->dead[r] && !s->reporter[r]) return;
  make_plan(s);
}

static void peer_gone(struct peer *p) {
  struct gy_shrink *s = p->s;
  int rank = p->rank;
  bool counted = p->reported && coordinates(s), asked = p->asked;
  drop_peer(p, false);
  if (!counted || s->reporter[rank]) return;
  if (s->phase == GATHERING) {
    s->dead[rank] = true;
    plan_if_all_reported(s);
  } else if (s->phase == PLANNED && asked) {
    s->dead[rank] = true;
    make_plan(s);
  } else if (s->phase == COMMITTED && rank == s->committing) {
    commit_next(s);
  }
}

/* ---- what comes in ---- */

static void on_report(struct peer *p, struct gy_reader *r) {
  struct gy_shrink *s = p->s;
  uint32_t patience_ms = gy_r_u32(r);
  p->dead = calloc((size_t)s->nranks, sizeof *p->dead);
  p->last.member = calloc((size_t)s->nranks, sizeof *p->last.member);
  if (!p->dead || !p->last.member) {
    peer_gone(p);
    return;
  }
  r_ranks(r, p->dead, s->nranks);
  r_plan(r, &p->last, s->nranks);
  if (r->failed) return;
  struct peer *before = s->reporter[p->rank];
  if (before) drop_peer(before, false); /* it has dialled anew */
  p->reported = true;
  s->reporter[p->rank] = p;
  if (s->phase == COMMITTED || s->phase == OVER) {
    tell_decision(p);
  } else if (s->phase == GATHERING && coordinates(s)) {
    uv_update_time(s->cfg.uv);
    uint64_t deadline = now(s) + patience_ms;
    if (deadline < s->deadline) s->deadline = deadline;
    believe(p);
    plan_if_all_reported(s);
  } /* else: when this rank has become the coordinator, or has heard the decision */
}

static void on_peer_message(void *user, struct gy_channel *ch, uint8_t type, const void *body,
                            size_t len) {
  struct peer *p = user;
  struct gy_shrink *s = p->s;
  struct gy_reader r = {.data = body, .len = len};
  (void)ch;
  if (type == MSG_REPORT && !p->reported) {
    on_report(p, &r);
    if (!r.failed) return;
  } else if (p->reported && coordinates(s) && (type == MSG_ACK || type == MSG_DONE)) {
    bool current = gy_r_u32(&r) == s->plan.round && !r.failed;
    if (current && type == MSG_ACK && s->phase == PLANNED && p->asked) {
      p->acked = true;
      commit_if_all_acked(s);
    } else if (current && type == MSG_DONE && s->phase == COMMITTED && p->rank == s->committing) {
      commit_next(s);
    }
    return;
  }
  gy_log(GY_LOG_WARN, "rank %d: a malformed message (type %u, %zu bytes) from rank %d in shrink",
         s->rank, type, len, p->rank);
  peer_gone(p);
}

static void on_peer_closed(void *user, struct gy_channel *ch, int sys_errno) {
  (void)ch;
  (void)sys_errno;
  peer_gone(user);
}

static const struct gy_channel_events peer_events = {on_peer_message, on_peer_closed};

static gyre_status on_arrival(void *user, const struct gy_conn *conn) {
  struct gy_shrink *s = user;
  int from = conn->id.from;
  if (from < 0 || from >= s->nranks || from == s->rank)
    return gy_fail(GYRE_ERR_ARG, "rank %d of %d cannot shrink with rank %d", from, s->nranks,
                   s->rank);
  struct peer *p = calloc(1, sizeof *p);
  if (!p) return gy_fail(GYRE_ERR_NOMEM, "rank %d has no memory for rank %d", s->rank, from);
  gyre_status st = gy_channel_open(s->cfg.uv, conn, &peer_events, p, &p->ch);
  if (st) {
    free(p);
    return st;
  }
  p->s = s;
  p->rank = from;
  p->next = s->peers;
  s->peers = p;
  return GYRE_OK;
}

/* ----------------------------------------------------------------------------------- member --- */

/* The coordinator is lost. Before the commit another one takes its place; after it the new
 * communicator has lost its rank 0. */
static void coordinator_gone(struct gy_shrink *s) {
  hang_up(s);
  if (s->phase == COMMITTED) {
    finish(s);
    return;
  }
  s->dead[s->coordinator] = true;
  choose_coordinator(s);
}

static void on_decided(struct gy_shrink *s) {
  hang_up(s);
  if (!s->plan.member[s->rank]) {
    left_out(s);
    return;
  }
  s->phase = COMMITTED; /* and its rank 0 is gone */
  tell_late(s);
  finish(s);
}

static bool is_sane(const struct gy_shrink *s, const struct plan *plan) {
  int n = 0;
  for (int r = 0; r < s->nranks; r++) n += plan->member[r];
  return n > 0 && plan->round > 0 && plan->by < (uint32_t)s->nranks;
}

static void on_up_message(void *user, struct gy_channel *ch, uint8_t type, const void *body,
                          size_t len) {
  struct gy_shrink *s = user;
  struct gy_reader r = {.data = body, .len = len};
  gyre_status status;
  char text[GY_FAIL_TEXT];
  wait_until(s, patience(s) + GRACE_MS);
  if (type == MSG_PLAN && s->phase == GATHERING) {
    r_plan(&r, &s->plan, s->nranks);
    if (!r.failed && is_sane(s, &s->plan)) {
      set_plan(&s->last, &s->plan, s->nranks);
      send_number(ch, MSG_ACK, s->plan.round);
      return;
    }
  } else if (type == MSG_COMMIT && s->phase == GATHERING && s->plan.round && s->plan.member[s->rank]) {
    s->phase = COMMITTED;
    tell_late(s);
    send_number(ch, MSG_DONE, s->plan.round);
    return;
  } else if (type == MSG_GO && s->phase == COMMITTED) {
    finish(s);
    return;
  } else if (type == MSG_DECIDED && s->phase == GATHERING) {
    r_plan(&r, &s->plan, s->nranks);
    if (!r.failed && is_sane(s, &s->plan)) {
      on_decided(s);
      return;
    }
  } else if (type == GY_MESSAGE_FAIL && gy_fail_read(body, len, &status, text) == GYRE_OK) {
    hang_up(s);
    fail(s, status, text);
    return;
  }
  gy_log(GY_LOG_WARN, "rank %d: a malformed message (type %u, %zu bytes) from rank %d in shrink",
         s->rank, type, len, s->coordinator);
  coordinator_gone(s);
}

static void on_up_closed(void *user, struct gy_channel *ch, int sys_errno) {
  (void)ch;
  (void)sys_errno;
  coordinator_gone(user);
}

static const struct gy_channel_events up_events = {on_up_message, on_up_closed};

static void on_dialled(void *user, gyre_status status, const struct gy_conn *conn) {
  struct gy_shrink *s = user;
  s->dial = NULL;
  if (status) {
    gy_log(GY_LOG_INFO, "rank %d counts rank %d as dead: %s", s->rank, s->coordinator,
           gyre_last_error());
    coordinator_gone(s);
    return;
  }
  if (gy_channel_open(s->cfg.uv, conn, &up_events, s, &s->up)) {
    char text[256];
    gy_format(text, sizeof text, "%s", gyre_last_error());
    close(conn->fd);
    fail(s, GYRE_ERR_SYS, text);
    return;
  }
  struct gy_writer w = {0};
  gy_w_u32(&w, s->deadline > now(s) ? (uint32_t)(s->deadline - now(s)) : 1);
  w_ranks(&w, s->dead, s->nranks);
  w_plan(&w, &s->last, s->nranks);
  send_writer(s->up, MSG_REPORT, &w);
  s->deadline += GRACE_MS;
}

static gyre_status dial(struct gy_shrink *s) {
  const struct gy_member *m = &s->roster->member[s->coordinator];
  struct gy_address candidate[GY_ADDRESS_MAX];
  bool same_host = memcmp(m->host, s->roster->member[s->rank].host, sizeof m->host) == 0;
  struct gy_dial_target target = {.candidate = candidate, .was_there = true};
  struct gy_identity id = {.kind = GY_CONN_CONTROL, .from = s->rank, .to = s->coordinator};
  memcpy(id.key, s->roster->epoch, sizeof id.key);
  target.n_candidate =
      gy_address_order(s->cfg.settings, m->address, m->n_address, same_host, candidate);
  if (!target.n_candidate)
    return gy_fail(GYRE_ERR_SYS, "rank %d on %s told no address that can be reached from here",
                   s->coordinator, m->host_name);
  return gy_dial_start(s->cfg.net, &target, &id, &s->secret, patience(s), on_dialled, s, &s->dial);
}

static void choose_coordinator(struct gy_shrink *s) {
  s->plan.round = 0;
  for (;;) {
    s->cfg.find_dead(s->cfg.user, s->dead);
    s->dead[s->rank] = false;
    s->coordinator = 0;
    while (s->dead[s->coordinator]) s->coordinator++; /* to this rank at the most */
    wait_until(s, patience(s));
    if (coordinates(s)) {
      for (const struct peer *p = s->peers; p; p = p->next)
        if (p->reported) believe(p);
      plan_if_all_reported(s);
      return;
    }
    if (dial(s) == GYRE_OK) return;
    gy_log(GY_LOG_INFO, "rank %d counts rank %d as dead: %s", s->rank, s->coordinator,
           gyre_last_error());
    s->dead[s->coordinator] = true;
  }
}

/* ------------------------------------------------------------------------------------ timer --- */

static void too_late(struct gy_shrink *s) {
  struct peer *p = s->peers, *next;
  if (!coordinates(s)) {
    coordinator_gone(s);
  } else if (s->phase == GATHERING) {
    make_plan(s);
  } else if (s->phase == PLANNED) {
    for (; p; p = next) {
      next = p->next;
      if (!p->asked || p->acked) continue;
      s->dead[p->rank] = true;
      drop_peer(p, false);
    }
    make_plan(s);
  } else if (s->phase == COMMITTED) {
    p = s->reporter[s->committing];
    if (p) peer_gone(p);
    else commit_next(s); /* it has dialled anew, and been told */
  }
}

/* Time in which this process did not run counts against nobody, and the sockets are read before
 * anybody is counted as dead. */
static void on_tick(uv_timer_t *timer) {
  struct gy_shrink *s = timer->data;
  uint64_t t = now(s), gap = t - s->last_tick;
  s->last_tick = t;
  if (gap >= SLEPT_MS) s->deadline += gap;
  if (t < s->deadline) {
    if (coordinates(s) && s->phase == GATHERING) plan_if_all_reported(s);
  } else if (!s->ripe) {
    s->ripe = true;
  } else {
    too_late(s);
  }
}

/* -------------------------------------------------------------------------------- interface --- */

static void free_sets(struct gy_shrink *s) {
  free(s->dead);
  free(s->here);
  free(s->reporter);
  free(s->plan.member);
  free(s->last.member);
}

static void on_timer_closed(uv_handle_t *handle) {
  struct gy_shrink *s = handle->data;
  free_sets(s);
  explicit_bzero(s, sizeof *s); /* it held a secret */
  free(s);
}

static gyre_status copy_roster(const struct gy_roster *from, struct gy_roster **out) {
  gyre_status st = gy_roster_create(from->nranks, out);
  if (st) return st;
  (*out)->agreed = from->agreed;
  memcpy((*out)->epoch, from->epoch, sizeof from->epoch);
  memcpy((*out)->member, from->member, (size_t)from->nranks * sizeof *from->member);
  return GYRE_OK;
}

static void begin(uv_timer_t *timer) {
  struct gy_shrink *s = timer->data;
  s->last_tick = now(s);
  uv_timer_start(timer, on_tick, TICK_MS, TICK_MS);
  choose_coordinator(s);
}

gyre_status gy_shrink_start(const struct gy_shrink_config *config, struct gy_shrink **out) {
  gyre_status st = GYRE_ERR_NOMEM;
  struct gy_shrink *s = calloc(1, sizeof *s);
  if (!s) return gy_fail(st, "no memory to shrink a communicator");
  s->cfg = *config;
  s->secret = *config->secret;
  s->rank = config->rank;
  s->nranks = config->roster->nranks;
  s->dead = calloc((size_t)s->nranks, sizeof *s->dead);
  s->here = calloc((size_t)s->nranks, sizeof *s->here);
  s->reporter = calloc((size_t)s->nranks, sizeof(struct peer *));
  s->plan.member = calloc((size_t)s->nranks, sizeof *s->plan.member);
  s->last.member = calloc((size_t)s->nranks, sizeof *s->last.member);
  if (!s->dead || !s->here || !s->reporter || !s->plan.member || !s->last.member) {
    gy_fail(st, "no memory to shrink a communicator of %d ranks", s->nranks);
    goto free_shrink;
  }
  st = copy_roster(config->roster, &s->roster);
  if (st) goto free_shrink;
  st = gy_net_expect(config->net, GY_CONN_CONTROL, s->roster->epoch, s->rank, &s->secret,
                     on_arrival, s, &s->expect);
  if (st) goto free_roster;
  uv_timer_init(config->uv, &s->timer);
  s->timer.data = s;
  uv_timer_start(&s->timer, begin, 0, 0); /* not here: `done` runs from the loop */
  *out = s;
  return GYRE_OK;

free_roster:
  gy_roster_free(s->roster);
free_shrink:
  free_sets(s);
  free(s);
  return st;
}

void gy_shrink_end(struct gy_shrink *s) {
  if (!s) return;
  s->phase = OVER;
  gy_net_unexpect(s->expect);
  hang_up(s);
  while (s->peers) drop_peer(s->peers, false);
  gy_roster_free(s->roster);
  s->roster = NULL;
  uv_close((uv_handle_t *)&s->timer, on_timer_closed);
}

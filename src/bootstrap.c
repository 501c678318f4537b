/*
 * bootstrap.c - how the ranks of a communicator meet: the root and the member.
 *
 * Role:   the root listens, collects and checks JOINs, and answers with the ROSTER. A member finds
 *         the root (see rendezvous.h), dials it, says JOIN, and waits for the ROSTER, or for the
 *         FAIL that tells every rank the same.
 * Thread: the driving thread; disk and name server are asked on libuv's thread pool.
 * Owner:  the communicator. After `done` or cancel the memory lives on until libuv has let go of
 *         the timers and the work.
 *
 * A failure that the root notices while others are still on their way is kept for a moment: ranks
 * that come in it are told the truth instead of finding nobody. A member's own deadline travels in
 * its JOIN: the root gives up before any member does, so that all get its text, which names the
 * missing ranks.
 */
#include "bootstrap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "log.h"
#include "rendezvous.h"
#include "status.h"
#include "work.h"

#define RANKS_MAX 16384
#define AUTO_SLICE_BYTES 262144
#define AUTO_WINDOW 8
#define GRACE_MEMBER_MS 3000 /* how much longer than its deadline a member waits for the root */
#define GRACE_LATE_MS 3000   /* how long a failed root still answers ranks that come late */
#define LOOK_MIN_MS 20       /* between two looks at a file or store */
#define LOOK_MAX_MS 100
#define WATCH_MS 250  /* between two looks of the root whether its file is still its own */
#define RIVAL_MS 1000 /* for another root to answer; it may be no root, or a dead one */

struct arrival { /* root: one connection */
  struct gy_bootstrap *b;
  struct gy_channel *ch;
  bool spoke, joined; /* JOIN has come; JOIN has been accepted */
  int rank;           /* as the hello said; once joined as the JOIN said, which is the same */
  struct arrival *next;
};

struct root {
  struct gy_place place;
  bool published; /* the file is there */
  struct gy_expect *expect;
  struct gy_listen *listen[GY_ADDRESS_MAX];
  size_t n_listen;
  struct arrival *arrivals;
  struct arrival **joined; /* by rank */
  struct gy_roster *roster;
  int n_joined;
  int n_come, n_due; /* processes that have come this far, and that should */
  int hasty;         /* the rank whose deadline comes first */
  struct {           /* another process that says it is rank 0 */
    bool met;
    gyre_status status; /* what to end with if it cannot be asked */
    char text[GY_FAIL_TEXT];
    struct gy_dial *dial;
    struct gy_channel *ch;
  } rival;
};

struct member {
  uv_timer_t look;
  uint64_t look_ms;
  bool found;
  bool seen; /* a place has been read, though perhaps of no use */
  struct gy_place place;
  char reason[GY_FAIL_TEXT]; /* why the last look or dial failed */
  struct gy_dial *dial;
  struct gy_channel *ch;
};

struct gy_bootstrap {
  uv_loop_t *loop;
  struct gy_net *net;
  int rank, nranks;
  bool unattended; /* this rank, see gy_member */
  struct gy_settings settings;
  struct gy_secret secret;
  struct gy_rendezvous rv;
  gy_bootstrap_cb done;
  void *user;
  uint64_t began, deadline; /* uv_now */
  gyre_status status;       /* what all ranks are or will be told; GYRE_OK: no failure yet */
  char text[GY_FAIL_TEXT];
  bool over;        /* nobody is to be told anything any more */
  unsigned pending; /* handles and work that libuv still holds */
  uv_timer_t timer;
  struct { /* one errand to the thread pool at a time */
    struct gy_work job;
    bool running;
    gyre_status status;
    char text[GY_FAIL_TEXT];
    struct gy_place place;
    struct gy_address address[GY_ADDRESS_MAX];
    size_t n_address;
  } work;
  struct root root;
  struct member member;
};

static bool is_root(const struct gy_bootstrap *b) { return b->rank == 0; }

/* ------------------------------------------------------------------------------ life cycle --- */

static void drop(struct gy_bootstrap *b) {
  if (--b->pending > 0 || !b->over) return;
  explicit_bzero(b, sizeof *b); /* it held a secret */
  free(b);
}

static void on_timer_closed(uv_handle_t *handle) { drop(handle->data); }

static void start_timer(struct gy_bootstrap *b, uv_timer_t *timer, uv_timer_cb cb, uint64_t ms) {
  uv_update_time(b->loop);
  uv_timer_start(timer, cb, ms, 0);
}

static uint64_t left_ms(const struct gy_bootstrap *b) {
  uint64_t now = uv_now(b->loop);
  return now < b->deadline ? b->deadline - now : 0;
}

/* Nobody can arrive any more; connections that come from now on are for the next communicator
 * here. */
static void close_door(struct gy_bootstrap *b) {
  struct root *r = &b->root;
  if (r->expect) gy_net_unexpect(r->expect);
  r->expect = NULL;
  while (r->n_listen > 0) gy_net_unlisten(r->listen[--r->n_listen]);
  if (r->published) gy_rendezvous_file_remove(&b->rv, &r->place);
  r->published = false;
}

/* Takes an arrival out of the list and hands back its channel. */
static struct gy_channel *forget(struct arrival *a) {
  struct arrival **at = &a->b->root.arrivals;
  struct gy_channel *ch = a->ch;
  while (*at != a) at = &(*at)->next;
  *at = a->next;
  free(a);
  return ch;
}

/* Lets go of everything but the memory. */
static void release(struct gy_bootstrap *b) {
  b->over = true;
  close_door(b);
  while (b->root.arrivals) gy_channel_close(forget(b->root.arrivals));
  free(b->root.joined);
  b->root.joined = NULL;
  gy_roster_free(b->root.roster);
  b->root.roster = NULL;
  if (b->root.rival.dial) gy_dial_cancel(b->root.rival.dial);
  b->root.rival.dial = NULL;
  if (b->root.rival.ch) gy_channel_close(b->root.rival.ch);
  b->root.rival.ch = NULL;
  if (b->member.dial) gy_dial_cancel(b->member.dial);
  b->member.dial = NULL;
  if (b->member.ch) gy_channel_close(b->member.ch);
  b->member.ch = NULL;
  uv_close((uv_handle_t *)&b->timer, on_timer_closed);
  uv_close((uv_handle_t *)&b->member.look, on_timer_closed);
}

/* Keeps a failure (its text is gyre_last_error()); the first one holds. */
static void keep_failure(struct gy_bootstrap *b, gyre_status status) {
  if (b->status != GYRE_OK) return;
  b->status = status;
  gy_format(b->text, sizeof b->text, "%s", gyre_last_error());
}

static void end_failed(struct gy_bootstrap *b) {
  release(b);
  gy_fail_text(b->status, b->text);
  b->done(b->user, b->status, NULL, NULL);
}

static void end_well(struct gy_bootstrap *b, struct gy_roster *roster, struct gy_channel **channels) {
  release(b);
  gy_log(GY_LOG_INFO, "rank %d of %d has met all others", b->rank, b->nranks);
  b->done(b->user, GYRE_OK, roster, channels);
}

/* The last thing a peer hears: the failure. */
static void tell_failure(struct gy_bootstrap *b, struct gy_channel *ch, gyre_status status,
                         const char *text) {
  struct gy_writer w = {0};
  gy_fail_write(&w, status, text);
  if (!w.failed) (void)gy_channel_send(ch, GY_MESSAGE_FAIL, w.data, w.len);
  gy_w_free(&w);
  gy_channel_finish(ch, b->net, (uint32_t)b->settings.linger_ms);
}

static void describe_self(struct gy_bootstrap *b, struct gy_member *m) {
  gy_host_id(m->host);
  gy_host_name(m->host_name, sizeof m->host_name);
  m->pid = (uint32_t)getpid();
  m->unattended = b->unattended;
  if (b->nranks > 1) gy_net_listen_local(b->net, m->local);
  m->n_address = b->nranks > 1 ? (uint32_t)gy_net_advertised(b->net, m->address) : 0;
}

/* ------------------------------------------------------------------------------------ root --- */

static void on_root_timer(uv_timer_t *timer);

static void tell_arrival(struct arrival *a) {
  struct gy_bootstrap *b = a->b;
  if (!a->spoke) b->root.n_come++;
  tell_failure(b, forget(a), b->status, b->text);
}

/* Tells the failure to all that are here, then waits a little for those that are not; end_failed
 * runs from the timer. */
static void root_fail(struct gy_bootstrap *b, gyre_status status, uint64_t grace_ms) {
  struct root *r = &b->root;
  if (b->status != GYRE_OK) return;
  keep_failure(b, status);
  gy_log(GY_LOG_INFO, "the ranks cannot meet at %s: %s", b->rv.text, b->text);
  while (r->arrivals) tell_arrival(r->arrivals);
  if (r->n_come >= r->n_due) grace_ms = 0;
  uint64_t left = left_ms(b);
  start_timer(b, &b->timer, on_root_timer, grace_ms < left ? grace_ms : left);
}

static void root_fail_late(struct gy_bootstrap *b, gyre_status status) {
  root_fail(b, status, GRACE_LATE_MS);
}

/* "2, 5-7", the ranks that have not joined; *n is their number. */
static void list_missing(const struct gy_bootstrap *b, char *out, size_t capacity, int *n) {
  const size_t longest = 32; /* ", 16382-16383" and the dots */
  size_t len = 0;
  bool cut = false;
  *n = 0;
  for (int first = 1, last; first < b->nranks; first = last + 1) {
    last = first;
    if (b->root.joined[first]) continue;
    while (last + 1 < b->nranks && !b->root.joined[last + 1]) last++;
    *n += last - first + 1;
    cut = len + longest > capacity;
    if (cut) continue;
    len += gy_format(out + len, capacity - len, "%s%d", len > 0 ? ", " : "", first);
    if (last > first) len += gy_format(out + len, capacity - len, "-%d", last);
  }
  if (cut) gy_format(out + len, capacity - len, ", ...");
}

static gyre_status fail_missing(struct gy_bootstrap *b) {
  char missing[256], whose[64] = ", the connect time-out", refused[320], tries[32] = "";
  const char *others = "";
  const char *alone = b->secret.len > 0 || b->settings.insecure
                          ? ""
                          : " Rank 0 has no secret, so only ranks of its own host can: set "
                            "GYRE_SECRET or GYRE_SECRET_FILE on every rank.";
  int n;
  list_missing(b, missing, sizeof missing, &n);
  if (b->root.hasty != 0)
    gy_format(whose, sizeof whose, ", when the connect time-out of rank %d ended", b->root.hasty);
  unsigned n_refused = gy_net_refused(b->root.expect, refused, sizeof refused);
  if (n_refused > 1) gy_format(tries, sizeof tries, " (%u tries)", n_refused);
  if (n_refused > 0) others = n == 1 ? "" : "; were the others started, and can they reach rank 0?";
  else
    others = n == 1 ? "was it started, and can it reach rank 0?"
                    : "were they started, and can they reach rank 0?";
  return gy_fail(GYRE_ERR_TIMEOUT, "%s %s of %d did not come to %s within %llu ms%s; %s%s%s%s",
                 n == 1 ? "rank" : "ranks", missing, b->nranks, b->rv.text,
                 (unsigned long long)(b->deadline - b->began), whose, refused, tries, others, alone);
}

static void on_root_timer(uv_timer_t *timer) {
  struct gy_bootstrap *b = timer->data;
  if (b->status != GYRE_OK) end_failed(b);
  else root_fail(b, fail_missing(b), 0);
}

static bool has_loopback(const struct gy_member *m) {
  for (uint32_t i = 0; i < m->n_address; i++)
    if (gy_address_is_loopback(&m->address[i])) return true;
  return m->n_address == 0; /* it has not said */
}

static bool is_loopback_only(const struct gy_member *m) {
  for (uint32_t i = 0; i < m->n_address; i++)
    if (!gy_address_is_loopback(&m->address[i])) return false;
  return m->n_address > 0;
}

/* Who may use loopback only, by GYRE_IFACE, and those who may not use it have met here, but no link
 * between them would ever open: better said now than in their first operation. The first of the
 * former is enough to find out: a second one either shares its host, or cannot reach it. */
static gyre_status check_reach(const struct gy_bootstrap *b) {
  const struct gy_member *m = b->root.roster->member;
  char address[GY_ADDRESS_TEXT];
  int i = 0;
  while (i < b->nranks && !is_loopback_only(&m[i])) i++;
  for (int j = 0; j < b->nranks && i < b->nranks; j++) {
    bool same_host = memcmp(m[i].host, m[j].host, sizeof m[i].host) == 0;
    /* The lower rank dials, and loopback can be dialled from anywhere on the host. */
    if (j == i || m[j].n_address == 0 || (same_host && (j < i || has_loopback(&m[j])))) continue;
    return gy_fail(GYRE_ERR_ARG,
                   "rank %d (host %s pid %u) listens on loopback only and cannot reach rank %d "
                   "(host %s pid %u) at %s: set GYRE_IFACE alike on all ranks, or on none",
                   i, m[i].host_name, m[i].pid, j, m[j].host_name, m[j].pid,
                   gy_address_text(&m[j].address[0], address));
  }
  return GYRE_OK;
}

static void root_succeed(struct gy_bootstrap *b) {
  struct root *r = &b->root;
  struct gy_writer w = {0};
  struct gy_channel **channels = calloc((size_t)b->nranks, sizeof(struct gy_channel *));
  gyre_status status = check_reach(b);
  if (status == GYRE_OK) status = gy_random(r->roster->epoch, sizeof r->roster->epoch);
  if (status == GYRE_OK) gy_roster_write(&w, r->roster);
  if (status == GYRE_OK && (!channels || w.failed))
    status = gy_fail(GYRE_ERR_NOMEM, "out of memory for %d ranks", b->nranks);
  close_door(b);
  for (int i = 1; status == GYRE_OK && i < b->nranks; i++)
    status = gy_channel_send(r->joined[i]->ch, GY_MESSAGE_ROSTER, w.data, w.len);
  gy_w_free(&w);
  if (status != GYRE_OK) {
    free(channels);
    if (status != GYRE_ERR_ARG) /* the others hear this text, too */
      gy_fail(status, "rank 0 cannot connect the ranks: %s", gyre_last_error());
    root_fail(b, status, 0);
    return;
  }
  for (int i = 1; i < b->nranks; i++) channels[i] = forget(r->joined[i]);
  while (r->arrivals) { /* has connected but not spoken, and every rank is taken */
    char text[128];
    gy_format(text, sizeof text, "rank %d has already joined: two processes say they are rank %d",
              r->arrivals->rank, r->arrivals->rank);
    tell_failure(b, forget(r->arrivals), GYRE_ERR_ARG, text);
  }
  struct gy_roster *roster = r->roster;
  r->roster = NULL;
  end_well(b, roster, channels);
}

static void quote_value(const char *value, char *out, size_t capacity) {
  gy_format(out, capacity, value[0] ? "\"%s\"" : "not set", value);
}

static gyre_status check_demands(struct gy_bootstrap *b, const struct gy_join *join) {
  size_t n;
  const struct gy_setting *table = gy_settings_table(&n);
  for (uint32_t d = 0; d < join->n_demand; d++) {
    const struct gy_demand *demand = &join->demand[d];
    char mine[sizeof demand->value] = "(unknown to its version)", also[64] = "";
    char here[sizeof demand->value + 2], there[sizeof demand->value + 2];
    for (size_t i = 0; i < n; i++) {
      if (strcmp(table[i].name, demand->name) != 0) continue;
      gy_settings_text(&b->settings, i, mine, sizeof mine);
      if (table[i].member) gy_format(also, sizeof also, " (or %s)", table[i].member);
    }
    quote_value(mine, here, sizeof here);
    quote_value(demand->value, there, sizeof there);
    if (strcmp(mine, demand->value) != 0)
      return gy_fail(
          GYRE_ERR_MISMATCH,
          "%s%s must be equal on all ranks: it is %s on rank %d and %s on rank 0; set it "
          "on rank 0 only, or alike everywhere",
          demand->name, also, there, join->rank, here);
  }
  return GYRE_OK;
}

static gyre_status check_join(struct gy_bootstrap *b, const struct gy_join *join, int hello_rank) {
  const struct gy_member *m = &join->member;
  if (join->version / 100 != GYRE_VERSION / 100)
    return gy_fail(GYRE_ERR_VERSION,
                   "rank %d (host %s pid %u) runs Gyre %u.%u, rank 0 runs %d.%d; use one version",
                   join->rank, m->host_name, m->pid, join->version / 10000,
                   join->version / 100 % 100, GYRE_VERSION_MAJOR, GYRE_VERSION_MINOR);
  if (join->nranks != b->nranks)
    return gy_fail(
        GYRE_ERR_MISMATCH,
        "the world size differs: rank %d (host %s pid %u) was started with %d, rank 0 with %d",
        join->rank, m->host_name, m->pid, join->nranks, b->nranks);
  if (join->rank != hello_rank)
    return gy_fail(GYRE_ERR_PROTO, "host %s pid %u says hello as rank %d and joins as rank %d",
                   m->host_name, m->pid, hello_rank, join->rank);
  if (join->rank < 0 || join->rank >= b->nranks)
    return gy_fail(GYRE_ERR_ARG, "host %s pid %u says it is rank %d, but ranks go from 0 to %d",
                   m->host_name, m->pid, join->rank, b->nranks - 1);
  const struct gy_member *other = &b->root.roster->member[join->rank];
  if (join->rank == 0 || b->root.joined[join->rank])
    return gy_fail(GYRE_ERR_ARG,
                   "two processes say they are rank %d: host %s pid %u and host %s pid %u",
                   join->rank, other->host_name, other->pid, m->host_name, m->pid);
  return check_demands(b, join);
}

/* A member that gives up earlier than this root would take all with it: then rather this root
 * speaks first. */
static void hurry(struct gy_bootstrap *b, const struct gy_join *join) {
  uint64_t deadline = uv_now(b->loop) + join->patience_ms + GRACE_MEMBER_MS / 2;
  if (deadline >= b->deadline) return;
  b->deadline = deadline;
  b->root.hasty = join->rank;
  start_timer(b, &b->timer, on_root_timer, left_ms(b));
}

static void on_join(struct arrival *a, const void *body, size_t len) {
  struct gy_bootstrap *b = a->b;
  struct root *r = &b->root;
  struct gy_join join;
  if (b->status != GYRE_OK) { /* late for a failure */
    tell_arrival(a);
    if (r->n_come >= r->n_due) start_timer(b, &b->timer, on_root_timer, 0);
    return;
  }
  gyre_status status = gy_join_read(body, len, &join);
  a->spoke = true;
  r->n_come++;
  if (status == GYRE_OK) {
    if (join.nranks <= RANKS_MAX && join.nranks - 1 > r->n_due) r->n_due = join.nranks - 1;
    status = check_join(b, &join, a->rank);
  }
  if (status != GYRE_OK) {
    root_fail_late(b, status);
    return;
  }
  a->joined = true;
  r->joined[a->rank] = a;
  r->roster->member[a->rank] = join.member;
  if (++r->n_joined == b->nranks) root_succeed(b);
  else hurry(b, &join);
}

static gyre_status fail_gave_up(struct arrival *a, const void *body, size_t len) {
  gyre_status status;
  char text[GY_FAIL_TEXT];
  gyre_status read = gy_fail_read(body, len, &status, text);
  if (read != GYRE_OK) return read;
  return gy_fail(status, "rank %d (%s) gave up: %s", a->rank, gy_channel_peer(a->ch), text);
}

static void on_root_message(void *user, struct gy_channel *ch, uint8_t type, const void *body,
                            size_t len) {
  struct arrival *a = user;
  struct gy_bootstrap *b = a->b;
  if (type == GY_MESSAGE_FAIL) root_fail_late(b, fail_gave_up(a, body, len));
  else if (type == GY_MESSAGE_JOIN && !a->joined) on_join(a, body, len);
  else
    root_fail_late(b, gy_fail(GYRE_ERR_PROTO,
                              "rank %d (%s) sent message type %u where JOIN was expected", a->rank,
                              gy_channel_peer(ch), type));
}

static void on_root_closed(void *user, struct gy_channel *ch, int sys_errno) {
  struct arrival *a = user;
  struct gy_bootstrap *b = a->b;
  if (!a->joined) { /* has said nothing: it may be the slower of two dials of one process */
    gy_log(GY_LOG_INFO, "%s connected as rank %d and left without joining", gy_channel_peer(ch),
           a->rank);
    gy_channel_close(forget(a));
    return;
  }
  const struct gy_member *m = &b->root.roster->member[a->rank];
  if (sys_errno == ENOMEM) {
    root_fail_late(b, gy_fail(GYRE_ERR_NOMEM, "rank 0 has no memory to hear rank %d", a->rank));
    return;
  }
  const char *how = sys_errno == EBADMSG ? "sent malformed bytes"
                    : sys_errno          ? strerror(sys_errno)
                                         : "closed its connection";
  root_fail_late(b, gy_fail(sys_errno == EBADMSG ? GYRE_ERR_PROTO : GYRE_ERR_PEER_LOST,
                            "rank %d (host %s pid %u, %s) was lost before all ranks had met: %s",
                            a->rank, m->host_name, m->pid, gy_channel_peer(ch), how));
}

static const struct gy_channel_events root_events = {on_root_message, on_root_closed};

static gyre_status on_arrival(void *user, const struct gy_conn *conn) {
  struct gy_bootstrap *b = user;
  struct root *r = &b->root;
  struct arrival *a = calloc(1, sizeof *a);
  if (!a) return gy_fail(GYRE_ERR_NOMEM, "rank 0 has no memory for rank %d", conn->id.from);
  gyre_status status = gy_channel_open(b->loop, conn, &root_events, a, &a->ch);
  if (status != GYRE_OK) {
    free(a);
    return status;
  }
  a->b = b;
  a->rank = conn->id.from;
  a->next = r->arrivals;
  r->arrivals = a;
  return GYRE_OK;
}

/* -------------------------------------------------------------------- asking (another) root --- */

static void fill_demands(const struct gy_bootstrap *b, struct gy_join *join) {
  size_t n;
  const struct gy_setting *table = gy_settings_table(&n);
  for (size_t i = 0; i < n && join->n_demand < GY_DEMAND_MAX; i++) {
    if (table[i].scope != GY_AGREED || !(b->settings.given >> i & 1)) continue;
    struct gy_demand *d = &join->demand[join->n_demand];
    gy_format(d->name, sizeof d->name, "%s", table[i].name);
    gy_settings_text(&b->settings, i, d->value, sizeof d->value);
    if (d->value[0]) join->n_demand++; /* "": whatever rank 0 has */
  }
}

static gyre_status say_join(struct gy_bootstrap *b, struct gy_channel *ch) {
  struct gy_writer w = {0};
  struct gy_join *join = calloc(1, sizeof *join);
  if (join) {
    join->rank = b->rank;
    join->nranks = b->nranks;
    join->version = GYRE_VERSION;
    join->patience_ms = (uint32_t)left_ms(b);
    describe_self(b, &join->member);
    fill_demands(b, join);
    gy_join_write(&w, join);
  }
  gyre_status status = !join || w.failed ? gy_fail(GYRE_ERR_NOMEM, "no memory to join")
                                         : gy_channel_send(ch, GY_MESSAGE_JOIN, w.data, w.len);
  free(join);
  gy_w_free(&w);
  return status;
}

static gyre_status dial_root(struct gy_bootstrap *b, const struct gy_place *place, uint64_t ms,
                             gy_dial_cb done, struct gy_dial **out) {
  struct gy_address candidate[GY_ADDRESS_MAX];
  struct gy_dial_target target = {.candidate = candidate};
  struct gy_identity id = {.kind = GY_CONN_CONTROL, .from = b->rank, .to = 0};
  memcpy(id.key, place->key, sizeof id.key);
  if (b->rv.kind == GY_RENDEZVOUS_TCP) {
    target.host = b->rv.host;
    target.port = b->rv.port;
  } else {
    uint8_t here[16];
    gy_host_id(here);
    bool same_host = memcmp(here, place->host, sizeof here) == 0;
    target.n_candidate =
        gy_address_order(&b->settings, place->address, place->n_address, same_host, candidate);
    if (target.n_candidate == 0)
      return gy_fail(
          GYRE_ERR_SYS,
          "rank 0 (%s) is on another host and listens on loopback only; set GYRE_SECRET or "
          "GYRE_SECRET_FILE on every rank, and let GYRE_IFACE, if set, match more than loopback",
          b->rv.text);
  }
  return gy_dial_start(b->net, &target, &id, &b->secret, ms > 0 ? (uint32_t)ms : 1, done, b, out);
}

/* A root that finds another one at its rendezvous joins it, as rank 0: so the other hears of this
 * one, and its answer, that two processes say they are rank 0, is what both tell their members. */

static void on_rival_message(void *user, struct gy_channel *ch, uint8_t type, const void *body,
                             size_t len) {
  struct gy_bootstrap *b = user;
  gyre_status status = b->root.rival.status;
  char text[GY_FAIL_TEXT];
  (void)ch;
  if (type != GY_MESSAGE_FAIL || gy_fail_read(body, len, &status, text) != GYRE_OK)
    gy_format(text, sizeof text, "%s", b->root.rival.text);
  root_fail_late(b, gy_fail_text(status, text));
}

static void on_rival_closed(void *user, struct gy_channel *ch, int sys_errno) {
  struct gy_bootstrap *b = user;
  (void)sys_errno;
  gy_channel_close(ch);
  b->root.rival.ch = NULL;
  root_fail_late(b, gy_fail_text(b->root.rival.status, b->root.rival.text));
}

static const struct gy_channel_events rival_events = {on_rival_message, on_rival_closed};

static void on_rival_dialled(void *user, gyre_status status, const struct gy_conn *conn) {
  struct gy_bootstrap *b = user;
  b->root.rival.dial = NULL;
  if (status == GYRE_OK) {
    status = gy_channel_open(b->loop, conn, &rival_events, b, &b->root.rival.ch);
    if (status != GYRE_OK) close(conn->fd);
    else status = say_join(b, b->root.rival.ch);
  }
  if (status != GYRE_OK) root_fail_late(b, gy_fail_text(b->root.rival.status, b->root.rival.text));
}

/* gyre_last_error() is what to end with if the other cannot be asked. */
static void meet_rival(struct gy_bootstrap *b, gyre_status status, const struct gy_place *place) {
  uint64_t ms = left_ms(b) < RIVAL_MS ? left_ms(b) : RIVAL_MS;
  b->root.rival.met = true;
  b->root.rival.status = status;
  gy_format(b->root.rival.text, sizeof b->root.rival.text, "%s", gyre_last_error());
  if (dial_root(b, place, ms, on_rival_dialled, &b->root.rival.dial) != GYRE_OK)
    root_fail_late(b, gy_fail_text(status, b->root.rival.text));
}

/* ---- the root's door: what it opens for each rendezvous ---- */

static void resolve_work(struct gy_work *job) {
  struct gy_bootstrap *b = job->data;
  b->work.status = gy_rendezvous_resolve(&b->rv, &b->settings, b->secret.len > 0, b->work.address,
                                         &b->work.n_address);
  if (b->work.status != GYRE_OK)
    gy_format(b->work.text, sizeof b->work.text, "%s", gyre_last_error());
}

static void after_resolve(struct gy_work *job) {
  struct gy_bootstrap *b = job->data;
  b->work.running = false;
  if (!b->over && b->status == GYRE_OK) {
    gyre_status status = gy_fail_text(b->work.status, b->work.text);
    errno = 0;
    for (size_t i = 0; status == GYRE_OK && i < b->work.n_address; i++) {
      status = gy_net_listen_at(b->net, &b->work.address[i], &b->root.listen[b->root.n_listen]);
      if (status == GYRE_OK) b->root.n_listen++;
    }
    if (status == GYRE_ERR_SYS && errno == EADDRINUSE) meet_rival(b, status, &b->root.place);
    else if (status != GYRE_OK) root_fail(b, status, 0);
  }
  drop(b);
}

static void on_watch(uv_timer_t *timer);

static void write_work(struct gy_work *job) {
  struct gy_bootstrap *b = job->data;
  b->work.status = gy_rendezvous_file_write(&b->rv, &b->work.place);
  if (b->work.status != GYRE_OK)
    gy_format(b->work.text, sizeof b->work.text, "%s", gyre_last_error());
}

static void after_write(struct gy_work *job) {
  struct gy_bootstrap *b = job->data;
  b->work.running = false;
  if (b->work.status == GYRE_OK) {
    if (b->over) {
      gy_rendezvous_file_remove(&b->rv, &b->work.place);
    } else {
      b->root.published = true;
      start_timer(b, &b->member.look, on_watch, WATCH_MS);
    }
  } else if (!b->over) {
    root_fail(b, gy_fail_text(b->work.status, b->work.text), 0);
  }
  drop(b);
}

static void read_work(struct gy_work *job) {
  struct gy_bootstrap *b = job->data;
  b->work.status = gy_rendezvous_file_read(&b->rv, &b->work.place);
  if (b->work.status != GYRE_OK)
    gy_format(b->work.text, sizeof b->work.text, "%s", gyre_last_error());
}

static void after_watch(struct gy_work *job) {
  struct gy_bootstrap *b = job->data;
  const struct gy_member *self = b->over ? NULL : &b->root.roster->member[0];
  b->work.running = false;
  if (b->over || b->status != GYRE_OK) {
    /* nothing is to be published any more */
  } else if (b->work.status == GYRE_OK &&
             memcmp(b->work.place.key, b->root.place.key, sizeof b->work.place.key) != 0) {
    gyre_status status = gy_fail(
        GYRE_ERR_ARG,
        "two processes say they are rank 0: host %s pid %u, and another that has overwritten %s; "
        "give each process its own rank, and each job a file of its own",
        self->host_name, self->pid, b->rv.path);
    meet_rival(b, status, &b->work.place);
  } else {
    start_timer(b, &b->member.look, on_watch, WATCH_MS);
  }
  drop(b);
}

static void queue_work(struct gy_bootstrap *b, void (*work)(struct gy_work *job),
                       void (*after)(struct gy_work *job)) {
  b->work.job.data = b;
  b->work.running = true;
  b->pending++;
  gy_work_start(b->loop, &b->work.job, work, after);
}

static void on_watch(uv_timer_t *timer) { queue_work(timer->data, read_work, after_watch); }

/* The id of another context's port would have the others dial where nobody expects them. */
static gyre_status check_id_is_ours(const struct gy_place *place, const struct gy_member *self) {
  char a[GY_ADDRESS_TEXT], b[GY_ADDRESS_TEXT];
  for (uint32_t i = 0; i < place->n_address; i++)
    for (uint32_t j = 0; j < self->n_address; j++)
      if (strcmp(gy_address_text(&place->address[i], a), gy_address_text(&self->address[j], b)) == 0)
        return GYRE_OK;
  return gy_fail(GYRE_ERR_ARG,
                 "rank 0 must use the context that made the unique id: the id says %s, this "
                 "context listens on "
                 "%s",
                 gy_address_text(&place->address[0], a),
                 self->n_address > 0 ? gy_address_text(&self->address[0], b) : "nothing");
}

void gy_agreed_state(struct gy_agreed *a, const struct gy_settings *s) {
  memcpy(a->transports, s->transports, sizeof a->transports);
  memcpy(a->algo, s->algo, sizeof a->algo);
  memcpy(a->tcp_congestion, s->tcp_congestion, sizeof a->tcp_congestion);
  a->slice_bytes = (uint32_t)s->slice_bytes;
  a->window = (uint32_t)s->window;
  a->op_timeout_ms = (uint32_t)s->op_timeout_ms;
  a->stall_ms = (uint32_t)s->stall_ms;
  a->verdict_ms = (uint32_t)s->verdict_ms;
  a->checksum = s->checksum;
  a->heartbeat_ms = (uint32_t)s->heartbeat_ms;
  a->peer_timeout_ms = (uint32_t)s->peer_timeout_ms;
}

void gy_agreed_adopt(const struct gy_agreed *a, struct gy_settings *s) {
  size_t n;
  const struct gy_setting *table = gy_settings_table(&n);
  memcpy(s->transports, a->transports, sizeof a->transports);
  memcpy(s->algo, a->algo, sizeof a->algo);
  memcpy(s->tcp_congestion, a->tcp_congestion, sizeof a->tcp_congestion);
  s->slice_bytes = a->slice_bytes;
  s->window = a->window;
  s->op_timeout_ms = a->op_timeout_ms;
  s->stall_ms = a->stall_ms;
  s->verdict_ms = a->verdict_ms;
  s->checksum = a->checksum;
  s->heartbeat_ms = a->heartbeat_ms;
  s->peer_timeout_ms = a->peer_timeout_ms;
  for (size_t i = 0; i < n; i++) /* they are equal everywhere: no demand need say so */
    if (table[i].scope == GY_AGREED) s->given &= ~(UINT64_C(1) << i);
}

static gyre_status root_prepare(struct gy_bootstrap *b, const struct gy_bootstrap_config *config) {
  struct root *r = &b->root;
  gyre_status status = gy_roster_create(b->nranks, &r->roster);
  if (status != GYRE_OK) return status;
  if (b->settings.slice_bytes == 0) b->settings.slice_bytes = AUTO_SLICE_BYTES;
  if (b->settings.window == 0) b->settings.window = AUTO_WINDOW;
  gy_agreed_state(&r->roster->agreed, &b->settings);
  r->roster->agreed.cost = config->cost;
  describe_self(b, &r->roster->member[0]);
  r->n_joined = 1;
  r->n_due = b->nranks - 1;
  r->joined = calloc((size_t)b->nranks, sizeof(struct arrival *));
  return r->joined ? GYRE_OK : gy_fail(GYRE_ERR_NOMEM, "no memory for %d ranks", b->nranks);
}

static gyre_status root_start(struct gy_bootstrap *b) {
  struct root *r = &b->root;
  const struct gy_member *self = &r->roster->member[0];
  gyre_status status = GYRE_OK;
  r->place = b->rv.place;
  if (b->rv.kind == GY_RENDEZVOUS_ID) {
    status = check_id_is_ours(&r->place, self);
  } else if (b->rv.kind == GY_RENDEZVOUS_FILE || b->rv.kind == GY_RENDEZVOUS_STORE) {
    status = gy_random(r->place.key, sizeof r->place.key);
    memcpy(r->place.host, self->host, sizeof r->place.host);
    r->place.n_address = self->n_address;
    memcpy(r->place.address, self->address, sizeof r->place.address);
  }
  if (status == GYRE_OK)
    status = gy_net_expect(b->net, GY_CONN_CONTROL, r->place.key, 0, &b->secret, on_arrival, b,
                           &r->expect);
  if (status != GYRE_OK) return status;
  b->work.place = r->place;
  if (b->rv.kind == GY_RENDEZVOUS_STORE) status = gy_rendezvous_store_put(&b->rv, &r->place);
  else if (b->rv.kind == GY_RENDEZVOUS_FILE) queue_work(b, write_work, after_write);
  else if (b->rv.kind == GY_RENDEZVOUS_TCP) queue_work(b, resolve_work, after_resolve);
  start_timer(b, &b->timer, on_root_timer, left_ms(b));
  return status;
}

/* A communicator of one rank: no network. */
static void on_alone(uv_timer_t *timer) {
  struct gy_bootstrap *b = timer->data;
  struct gy_channel **channels = calloc(1, sizeof(struct gy_channel *));
  gyre_status status = channels ? gy_random(b->root.roster->epoch, sizeof b->root.roster->epoch)
                                : gy_fail(GYRE_ERR_NOMEM, "no memory for a communicator");
  if (status != GYRE_OK) {
    free(channels);
    keep_failure(b, status);
    end_failed(b);
    return;
  }
  struct gy_roster *roster = b->root.roster;
  b->root.roster = NULL;
  end_well(b, roster, channels);
}

/* ---------------------------------------------------------------------------------- member --- */

/* This member's own failure: the root is told, for all the others. */
static void member_give_up(struct gy_bootstrap *b, gyre_status status) {
  struct gy_channel *ch = b->member.ch;
  keep_failure(b, status);
  b->member.ch = NULL;
  if (ch) tell_failure(b, ch, b->status, b->text);
  end_failed(b);
}

/* What the root said or how it went: there is nobody to tell. */
static void member_fail(struct gy_bootstrap *b, gyre_status status) {
  keep_failure(b, status);
  end_failed(b);
}

static void on_roster(struct gy_bootstrap *b, const void *body, size_t len) {
  struct gy_roster *roster;
  gyre_status status = gy_roster_read(body, len, &roster);
  if (status == GYRE_OK && roster->nranks != b->nranks) {
    status = gy_fail(GYRE_ERR_PROTO, "rank 0 sent a roster of %d ranks where there are %d",
                     roster->nranks, b->nranks);
    gy_roster_free(roster);
  }
  if (status != GYRE_OK) {
    member_give_up(b, status);
    return;
  }
  struct gy_channel **channels = calloc((size_t)b->nranks, sizeof(struct gy_channel *));
  if (!channels) {
    gy_roster_free(roster);
    member_give_up(
        b, gy_fail(GYRE_ERR_NOMEM, "no memory for the control connections of %d ranks", b->nranks));
    return;
  }
  channels[0] = b->member.ch;
  b->member.ch = NULL;
  end_well(b, roster, channels);
}

static void on_member_message(void *user, struct gy_channel *ch, uint8_t type, const void *body,
                              size_t len) {
  struct gy_bootstrap *b = user;
  gyre_status status;
  char text[GY_FAIL_TEXT];
  if (type == GY_MESSAGE_ROSTER) {
    on_roster(b, body, len);
  } else if (type == GY_MESSAGE_FAIL) {
    gyre_status read = gy_fail_read(body, len, &status, text);
    member_fail(b, read == GYRE_OK ? gy_fail_text(status, text) : read);
  } else {
    member_give_up(b, gy_fail(GYRE_ERR_PROTO,
                              "rank 0 (%s) sent message type %u where ROSTER was expected",
                              gy_channel_peer(ch), type));
  }
}

static void on_member_closed(void *user, struct gy_channel *ch, int sys_errno) {
  struct gy_bootstrap *b = user;
  if (sys_errno == ENOMEM) {
    member_fail(b, gy_fail(GYRE_ERR_NOMEM, "rank %d has no memory to hear rank 0", b->rank));
    return;
  }
  const char *how = sys_errno == EBADMSG ? "it sent malformed bytes"
                    : sys_errno          ? strerror(sys_errno)
                                         : "it closed the connection; see its own error";
  member_fail(b, gy_fail(sys_errno == EBADMSG ? GYRE_ERR_PROTO : GYRE_ERR_PEER_LOST,
                         "rank 0 (%s, at %s) was lost before all ranks had met: %s",
                         gy_channel_peer(ch), b->rv.text, how));
}

static const struct gy_channel_events member_events = {on_member_message, on_member_closed};

static void keep_reason(struct gy_bootstrap *b) {
  gy_format(b->member.reason, sizeof b->member.reason, "%s", gyre_last_error());
}

/* A file or store may hold the place of a dead job, until the living rank 0 writes its own: then an
 * address that does not answer, or answers something else, is no reason to give up. AUTH and the
 * like are: they come from who knows this key. */
static bool may_be_stale(const struct gy_bootstrap *b, gyre_status status) {
  if (b->rv.kind != GY_RENDEZVOUS_FILE && b->rv.kind != GY_RENDEZVOUS_STORE) return false;
  return status == GYRE_ERR_SYS || status == GYRE_ERR_PROTO || status == GYRE_ERR_TIMEOUT;
}

static void on_dialled(void *user, gyre_status status, const struct gy_conn *conn) {
  struct gy_bootstrap *b = user;
  struct member *m = &b->member;
  m->dial = NULL;
  if (status != GYRE_OK) {
    char why[GY_FAIL_TEXT];
    gy_format(why, sizeof why, "%s", gyre_last_error());
    (void)gy_fail(status, "rank %d cannot reach rank 0 at %s: %s", b->rank, b->rv.text, why);
    keep_reason(b);
    if (may_be_stale(b, status) && left_ms(b) > 0)
      m->found = false; /* dialled again at the next look */
    else member_fail(b, status);
    return;
  }
  status = gy_channel_open(b->loop, conn, &member_events, b, &m->ch);
  if (status != GYRE_OK) {
    close(conn->fd);
    member_fail(b, status);
    return;
  }
  uv_timer_stop(&m->look);
  status = say_join(b, m->ch);
  if (status != GYRE_OK) member_give_up(b, status);
}

static gyre_status dial(struct gy_bootstrap *b) {
  struct member *m = &b->member;
  if (m->dial) gy_dial_cancel(m->dial);
  m->dial = NULL;
  return dial_root(b, &m->place, left_ms(b), on_dialled, &m->dial);
}

static void on_look(uv_timer_t *timer);

/* The place has been looked up: dial if it is a new one, and look again until the root is
 * reached. */
static void on_looked(struct gy_bootstrap *b, gyre_status status, const struct gy_place *place) {
  struct member *m = &b->member;
  if (status == GYRE_OK && !(m->found && gy_place_equal(place, &m->place))) {
    m->found = true;
    m->place = *place;
    status = dial(b);
    if (status != GYRE_OK) m->found = false;
    if (status == GYRE_ERR_SYS) { /* the next content may be better */
      if (!m->seen) gy_log(GY_LOG_WARN, "rank %d is still looking: %s", b->rank, gyre_last_error());
      status = GYRE_IN_PROGRESS;
      keep_reason(b);
    }
    m->seen = true;
  } else if (status == GYRE_IN_PROGRESS && !m->dial && !m->seen) {
    keep_reason(b); /* why a place was of no use tells more than that there is none any more */
  }
  if (status != GYRE_OK && status != GYRE_IN_PROGRESS) {
    member_fail(b, status);
  } else if (left_ms(b) == 0 && !m->dial) {
    member_fail(b, gy_fail(GYRE_ERR_TIMEOUT,
                           "rank %d found no rank 0 by %s within %llu ms, the connect time-out: %s",
                           b->rank, b->rv.text, (unsigned long long)(b->deadline - b->began),
                           m->reason));
  } else {
    start_timer(b, &m->look, on_look, m->look_ms);
    if (m->look_ms < LOOK_MAX_MS)
      m->look_ms = 2 * m->look_ms < LOOK_MAX_MS ? 2 * m->look_ms : LOOK_MAX_MS;
  }
}

static void after_read(struct gy_work *job) {
  struct gy_bootstrap *b = job->data;
  b->work.running = false;
  if (!b->over && !b->member.ch) {
    if (b->work.status != GYRE_OK) gy_fail_text(b->work.status, b->work.text);
    on_looked(b, b->work.status, &b->work.place);
  }
  drop(b);
}

static void on_look(uv_timer_t *timer) {
  struct gy_bootstrap *b = timer->data;
  struct gy_place place;
  if (b->rv.kind == GY_RENDEZVOUS_FILE) {
    queue_work(b, read_work, after_read);
  } else {
    gyre_status status = gy_rendezvous_store_get(&b->rv, &place);
    on_looked(b, status, &place);
  }
}

static void on_member_timer(uv_timer_t *timer) {
  struct gy_bootstrap *b = timer->data;
  unsigned long long ms = (unsigned long long)(b->deadline - b->began);
  if (b->member.ch)
    member_give_up(b, gy_fail(GYRE_ERR_TIMEOUT,
                              "rank 0 (%s) was reached by rank %d at %s, but said nothing within "
                              "%llu ms, the connect time-out; is it "
                              "stopped?",
                              gy_channel_peer(b->member.ch), b->rank, b->rv.text, ms));
  else
    member_fail(
        b, gy_fail(GYRE_ERR_TIMEOUT,
                   "rank %d did not reach rank 0 at %s within %llu ms, the connect time-out%s%s",
                   b->rank, b->rv.text, ms, b->member.reason[0] ? ": " : "", b->member.reason));
}

static gyre_status member_start(struct gy_bootstrap *b) {
  struct member *m = &b->member;
  m->look_ms = LOOK_MIN_MS;
  start_timer(b, &b->timer, on_member_timer, left_ms(b) + GRACE_MEMBER_MS);
  if (b->rv.kind == GY_RENDEZVOUS_FILE || b->rv.kind == GY_RENDEZVOUS_STORE) {
    start_timer(b, &m->look, on_look, 0);
    return GYRE_OK;
  }
  m->place = b->rv.place;
  return dial(b);
}

/* ------------------------------------------------------------------------------- interface --- */

void gy_bootstrap_secret(const struct gy_bootstrap_config *config, struct gy_secret *out) {
  struct gy_place place;
  memset(out, 0, sizeof *out);
  if (config->meeting) {
    *out = *config->meeting->secret;
  } else if (config->id) {
    if (gy_id_read(config->id, &place, out->bytes) == GYRE_OK) out->len = GY_ID_SECRET;
  } else {
    out->len = strnlen(config->settings->secret, sizeof config->settings->secret);
    memcpy(out->bytes, config->settings->secret, out->len);
  }
}

gyre_status gy_unique_id_make(struct gy_net *net, gyre_unique_id *out) {
  struct gy_place place = {0};
  uint8_t secret[GY_ID_SECRET];
  gyre_status status = gy_net_listen(net, true);
  if (status != GYRE_OK) return status;
  place.n_address = (uint32_t)gy_net_advertised(net, place.address);
  if (place.n_address == 0)
    return gy_fail(GYRE_ERR_SYS, "this context listens on no address that an id could hold");
  gy_host_id(place.host);
  status = gy_random(place.key, sizeof place.key);
  if (status == GYRE_OK) status = gy_random(secret, sizeof secret);
  if (status == GYRE_OK) status = gy_id_write(&place, secret, out);
  explicit_bzero(secret, sizeof secret);
  return status;
}

static struct gy_bootstrap *create(uv_loop_t *loop, struct gy_net *net,
                                   const struct gy_bootstrap_config *config) {
  struct gy_bootstrap *b = calloc(1, sizeof *b);
  if (!b) return NULL;
  b->loop = loop;
  b->net = net;
  b->rank = config->rank;
  b->nranks = config->nranks;
  b->unattended = config->unattended;
  b->settings = *config->settings;
  gy_bootstrap_secret(config, &b->secret);
  uv_timer_init(loop, &b->timer);
  uv_timer_init(loop, &b->member.look);
  b->timer.data = b->member.look.data = b;
  b->pending = 2;
  uv_update_time(loop);
  b->began = uv_now(loop);
  b->deadline = b->began + (uint64_t)b->settings.connect_timeout_ms;
  return b;
}

gyre_status gy_bootstrap_start(uv_loop_t *loop, struct gy_net *net,
                               const struct gy_bootstrap_config *config, gy_bootstrap_cb done,
                               void *user, struct gy_bootstrap **out) {
  struct gy_rendezvous rv = {0};
  if (config->nranks < 1 || config->nranks > RANKS_MAX)
    return gy_fail(GYRE_ERR_ARG, "a world size of %d: must be from 1 to %d", config->nranks,
                   RANKS_MAX);
  if (config->rank < 0 || config->rank >= config->nranks)
    return gy_fail(GYRE_ERR_ARG, "rank %d of %d: must be from 0 to %d", config->rank,
                   config->nranks, config->nranks - 1);
  gyre_status status = config->nranks > 1 ? gy_rendezvous_parse(config, &rv) : GYRE_OK;
  if (status != GYRE_OK) return status;
  struct gy_bootstrap *b = create(loop, net, config);
  if (!b) return gy_fail(GYRE_ERR_NOMEM, "no memory for a communicator");
  b->rv = rv;
  b->done = done;
  b->user = user;
  if (b->nranks > 1) status = gy_net_listen(net, b->secret.len > 0);
  if (status == GYRE_OK && is_root(b)) status = root_prepare(b, config);
  if (status == GYRE_OK) {
    if (b->nranks == 1) start_timer(b, &b->timer, on_alone, 0);
    else status = is_root(b) ? root_start(b) : member_start(b);
  }
  if (status != GYRE_OK) {
    release(b);
    return status;
  }
  *out = b;
  return GYRE_OK;
}

void gy_bootstrap_cancel(struct gy_bootstrap *b, const char *why) {
  const char *text = why ? why : "the creation of the communicator was given up";
  while (b->root.arrivals) tell_failure(b, forget(b->root.arrivals), GYRE_ERR_ABORTED, text);
  if (b->member.ch) tell_failure(b, b->member.ch, GYRE_ERR_ABORTED, text);
  b->member.ch = NULL;
  release(b);
}

/*
 * dial.c - dialling: name, candidates, racing, back-off, and the dialler's side of the handshake.
 *
 * Role:   every candidate address has at most one attempt (a socket) at a time. Attempts race until
 *         an acceptor proves itself; that one is committed to and the others are closed, so that an
 *         acceptor with several addresses delivers one connection only. One timer per dial: its
 *         next tick is the next try or the deadline.
 * Thread: the driving thread; the callback runs from the loop.
 * Owner:  the net; a dial is freed when libuv has let go of its timer and its name look-up.
 */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <openssl/crypto.h>
#include "handshake.h"
#include "log.h"
#include "net_core.h"
#include "status.h"
#include "work.h"

enum {
  STAGGER_MS = 250, /* between first tries of candidates */
  BACKOFF_MIN_MS = 20,
  BACKOFF_MAX_MS = 1000,
  GRACE_MS = 1000 /* for other candidates, after one gave a final answer without proof of who it is */
};

struct attempt { /* one socket on its way to one candidate */
  struct gy_watch w;
  struct gy_dial *dial;
  struct candidate *candidate;
  bool connected;
  struct gy_handshake hs;
};

struct candidate {
  struct gy_address address;
  struct attempt *attempt; /* NULL: none now */
  uint64_t next_ms;        /* loop time of the next try */
  uint32_t backoff_ms;
  unsigned tries;
  bool out;                      /* it gave a final answer */
  bool refused;                  /* the last try was: nothing listens there */
  bool starved;                  /* the last try was: this process has no more of what it takes */
  char why[GY_REJECT_TEXT + 40]; /* about its last failure */
};

struct gy_dial {
  struct gy_net *net;
  TAILQ_ENTRY(gy_dial) link;
  struct gy_identity id;
  struct gy_secret secret;
  gy_dial_cb cb;
  void *user;
  bool over, was_there;
  unsigned open_handles; /* timer, and the look-up while it runs */
  uv_timer_t timer;
  uint64_t started, deadline;

  char host[256]; /* "": addresses were given */
  uint16_t port;
  struct gy_work lookup;
  int lookup_rc; /* of getaddrinfo, with its list */
  struct addrinfo *found;
  bool looking_up;
  uint64_t next_lookup;
  uint32_t lookup_backoff_ms;
  char lookup_why[160];

  struct candidate candidate[GY_ADDRESS_MAX];
  size_t n_candidate;
  struct attempt *committed; /* the acceptor that has proven itself; nobody else is tried meanwhile */
  gyre_status verdict;       /* a final answer that GRACE_MS still holds back */
  char verdict_text[800];
};

static void dial_plan(struct gy_dial *d);

/* ------------------------------------------------------------------------------ what is said --- */

static size_t name_dial(const struct gy_dial *d, char *out, size_t capacity) {
  size_t n = gy_format(out, capacity, "rank %d dialling rank %d (%s)", d->id.from, d->id.to,
                       d->id.kind == GY_CONN_CONTROL ? "control" : "data");
  if (d->host[0] != '\0')
    n += gy_format(out + n, capacity - n, strchr(d->host, ':') != NULL ? " at [%s]:%u" : " at %s:%u",
                   d->host, (unsigned)d->port);
  return n;
}

static const char *state_of(const struct candidate *c) {
  if (c->attempt == NULL) return c->why[0] != '\0' ? c->why : "not tried";
  if (!c->attempt->connected) return "no answer to the connection request";
  return "connected, but it does not answer: that rank has not come yet, is out of descriptors "
         "(ulimit -n), or another program listens there";
}

/* Nobody was asked: it is not the peer that is missing. */
static bool is_starved(const struct gy_dial *d) {
  for (size_t i = 0; i < d->n_candidate; i++)
    if (!d->candidate[i].starved) return false;
  return d->n_candidate > 0;
}

static gyre_status fail_timeout(const struct gy_dial *d) {
  char text[3600];
  size_t n = name_dial(d, text, sizeof text);
  uint64_t tenths = (uv_now(d->net->loop) - d->started + 50) /
                    100; /* whole numbers: the caller may trap inexact ones */
  n += gy_format(text + n, sizeof text - n,
                 ": no connection within %llu.%llu s, the connect time-out",
                 (unsigned long long)(tenths / 10), (unsigned long long)(tenths % 10));
  if (d->n_candidate == 0)
    n += gy_format(text + n, sizeof text - n, "; the name %s",
                   d->lookup_why[0] ? d->lookup_why : "was not resolved in time");
  for (size_t i = 0; i < d->n_candidate; i++) {
    const struct candidate *c = &d->candidate[i];
    char address[GY_ADDRESS_TEXT];
    n += gy_format(text + n, sizeof text - n, "; %s (%u %s): %s",
                   gy_address_text(&c->address, address), c->tries, c->tries == 1 ? "try" : "tries",
                   state_of(c));
  }
  if (is_starved(d)) return gy_fail(GYRE_ERR_SYS, "%s (raise the limit)", text);
  return gy_fail(GYRE_ERR_TIMEOUT, "%s", text);
}

/* Keeps the first final answer: "rank 3 dialling rank 0 (control): 10.0.0.1:7000: <c->why>". */
static void keep_verdict(struct gy_dial *d, const struct candidate *c, gyre_status status,
                         bool refusal) {
  char address[GY_ADDRESS_TEXT];
  if (d->verdict != GYRE_OK) return;
  d->verdict = status;
  size_t n = name_dial(d, d->verdict_text, sizeof d->verdict_text);
  gy_format(d->verdict_text + n, sizeof d->verdict_text - n, ": %s%s: %s",
            gy_address_text(&c->address, address), refusal ? " refused" : "", c->why);
}

/* ---------------------------------------------------------------------------- begin and end --- */

static void dial_release(struct gy_dial *d) {
  struct gy_net *net = d->net;
  if (--d->open_handles == 0) {
    OPENSSL_cleanse(&d->secret, sizeof d->secret);
    free(d);
  }
  gy_net_release(net);
}

static void timer_closed(uv_handle_t *handle) { dial_release(handle->data); }

/* The descriptor is the caller's. */
static int attempt_detach(struct attempt *a) {
  a->candidate->attempt = NULL;
  if (a->dial->committed == a) a->dial->committed = NULL;
  return gy_watch_close(&a->w);
}

static void dial_end(struct gy_dial *d) {
  if (d->over) return;
  d->over = true;
  TAILQ_REMOVE(&d->net->dials, d, link);
  for (size_t i = 0; i < d->n_candidate; i++)
    if (d->candidate[i].attempt != NULL) close(attempt_detach(d->candidate[i].attempt));
  /* A look-up cannot be stopped: its end comes when the resolver gives up. */
  uv_close((uv_handle_t *)&d->timer, timer_closed);
}

void gy_dial_cancel(struct gy_dial *d) { dial_end(d); }

static void dial_fail(struct gy_dial *d, gyre_status status, const char *text) {
  dial_end(d);
  d->cb(d->user, gy_fail_text(status, text), NULL);
}

static void dial_timed_out(struct gy_dial *d) {
  gyre_status st = d->verdict;
  if (st == GYRE_OK) st = fail_timeout(d);
  dial_fail(d, st, d->verdict != GYRE_OK ? d->verdict_text : gyre_last_error());
}

static void dial_succeed(struct gy_dial *d, struct attempt *a) {
  struct gy_conn conn = {.fd = a->w.fd, .id = d->id, .peer = a->candidate->address};
  gyre_status st = gy_address_local(conn.fd, &conn.local);
  if (st != GYRE_OK) {
    dial_fail(d, st, gyre_last_error());
    return;
  }
  attempt_detach(a);
  dial_end(d);
  d->cb(d->user, GYRE_OK, &conn);
}

/* -------------------------------------------------------------------------------- attempts --- */

static void attempt_event(uv_poll_t *poll, int status, int events);

/* A failure of one candidate brings the first tries of the others forward. */
static void hasten_others(struct gy_dial *d) {
  uint64_t next = uv_now(d->net->loop);
  for (size_t i = 0; i < d->n_candidate; i++) {
    struct candidate *c = &d->candidate[i];
    if (c->tries != 0 || c->out) continue;
    if (c->next_ms > next) c->next_ms = next;
    next += STAGGER_MS;
  }
}

/* c->why is set: try again later. */
static void candidate_back_off(struct gy_dial *d, struct candidate *c) {
  c->next_ms = uv_now(d->net->loop) + c->backoff_ms;
  c->backoff_ms = c->backoff_ms * 2 < BACKOFF_MAX_MS ? c->backoff_ms * 2 : BACKOFF_MAX_MS;
  hasten_others(d);
  dial_plan(d);
}

static void attempt_failed(struct attempt *a, const char *why) {
  struct gy_dial *d = a->dial;
  struct candidate *c = a->candidate;
  gy_format(c->why, sizeof c->why, "%s", why);
  c->refused = false;
  close(attempt_detach(a));
  candidate_back_off(d, c);
}

static void attempt_refused(struct attempt *a, int sys_errno) {
  struct candidate *c = a->candidate;
  attempt_failed(a, strerror(sys_errno));
  c->refused = sys_errno == ECONNREFUSED;
}

static bool others_may_answer(const struct gy_dial *d) {
  for (size_t i = 0; i < d->n_candidate; i++)
    if (!d->candidate[i].out) return true;
  return false;
}

/* A final answer from c, with c->why set. `proven`: by the acceptor we want. */
static void candidate_final(struct gy_dial *d, struct candidate *c, gyre_status status,
                            bool refusal, bool proven) {
  c->out = true;
  keep_verdict(d, c, status, refusal);
  if (proven || !others_may_answer(d)) {
    dial_fail(d, d->verdict, d->verdict_text);
    return;
  }
  /* Whoever answered may be a stranger at an address that means different hosts in different
   * places. */
  uint64_t grace = uv_now(d->net->loop) + GRACE_MS;
  if (d->deadline > grace) d->deadline = grace;
  hasten_others(d);
  dial_plan(d);
}

/* The acceptor has no memory or no descriptor just now. */
static bool short_of(gyre_status status) {
  return status == GYRE_ERR_NOMEM || status == GYRE_ERR_SYS;
}

static void handshake_failed(struct attempt *a) {
  struct gy_dial *d = a->dial;
  struct candidate *c = a->candidate;
  enum gy_handshake_failure failure = (enum gy_handshake_failure)a->hs.failure;
  gyre_status status = a->hs.status;
  bool proven = d->committed == a;
  bool rejected = failure == GY_FAIL_REJECTED;
  /* "Not here (yet)" and what another program says are no answers; what the right peer says, or a
   * peer of the wrong version or secret, is. */
  bool final = failure == GY_FAIL_VERSION || failure == GY_FAIL_SECRET ||
               (rejected && !short_of(status) && (proven || status != GYRE_ERR_TIMEOUT)) ||
               (proven && failure == GY_FAIL_FOREIGN);
  if (!final) {
    attempt_failed(a, gyre_last_error());
    return;
  }
  gy_format(c->why, sizeof c->why, "%s", gyre_last_error());
  int fd = attempt_detach(a);
  if (failure == GY_FAIL_SECRET || failure == GY_FAIL_VERSION)
    gy_net_reject(d->net, fd, status, c->why); /* so that both ends know */
  else close(fd);
  candidate_final(d, c, status, rejected, proven);
}

static void commit(struct attempt *a) {
  struct gy_dial *d = a->dial;
  for (size_t i = 0; i < d->n_candidate; i++) {
    struct attempt *other = d->candidate[i].attempt;
    if (other == NULL || other == a) continue;
    d->candidate[i].next_ms = uv_now(d->net->loop); /* should this one still fail */
    close(attempt_detach(other));
  }
  d->committed = a;
}

static void attempt_pump(struct attempt *a) {
  for (;;) {
    switch (gy_handshake_pump(&a->hs, a->w.fd)) {
      case GY_EVENT_CHALLENGED:
        commit(a);
        if (gy_handshake_respond(&a->hs) == GYRE_OK) continue;
        attempt_failed(a, gyre_last_error());
        return;
      case GY_EVENT_WELCOME: dial_succeed(a->dial, a); return;
      case GY_EVENT_FAILED: handshake_failed(a); return;
      default:
        if (uv_poll_start(&a->w.poll, gy_handshake_poll(&a->hs), attempt_event) != 0)
          attempt_failed(a, "cannot watch the socket");
        return;
    }
  }
}

/* Dialling a free port of this host, the kernel may pick that very port for our end and connect the
 * socket to itself. */
static bool connected_to_itself(int fd) {
  struct gy_address local, peer;
  if (gy_address_local(fd, &local) != GYRE_OK || gy_address_peer(fd, &peer) != GYRE_OK)
    return false;
  return memcmp(&local, &peer, gy_address_len(&local)) == 0;
}

static void attempt_event(uv_poll_t *poll, int status, int events) {
  struct attempt *a = poll->data;
  (void)status; /* an error is in SO_ERROR, or met by the next send or receive */
  (void)events;
  if (!a->connected) {
    int failed = 0;
    socklen_t len = sizeof failed;
    if (getsockopt(a->w.fd, SOL_SOCKET, SO_ERROR, &failed, &len) != 0) failed = errno;
    if (failed == 0 && connected_to_itself(a->w.fd)) failed = ECONNREFUSED;
    if (failed != 0) {
      attempt_refused(a, failed);
      return;
    }
    a->connected = true;
    if (gy_handshake_dial(&a->hs, &a->dial->id, &a->dial->secret) != GYRE_OK) {
      attempt_failed(a, gyre_last_error());
      return;
    }
  }
  attempt_pump(a);
}

/* With GYRE_IFACE, connections to other hosts leave from there, except to the rendezvous: that is
 * where the operator said, perhaps on a management network, where an answer to another network's
 * address may be dropped. 0 or an errno. */
static int bind_source(const struct gy_dial *d, int fd, const struct gy_address *to) {
  const struct gy_settings *settings = d->net->settings;
  struct gy_address from[GY_ADDRESS_MAX];
  size_t n = 0;
  int on = 1;
  if (settings->iface[0] == '\0' || d->host[0] != '\0' || gy_address_is_loopback(to)) return 0;
  if (gy_address_choose(settings, d->secret.len != 0, from, &n) != GYRE_OK) return EADDRNOTAVAIL;
  for (size_t i = 0; i < n; i++) {
    if (from[i].sa.any.sa_family != to->sa.any.sa_family || gy_address_is_loopback(&from[i]) ||
        gy_address_is_link_local(&from[i]) != gy_address_is_link_local(to))
      continue;
    /* The port is chosen in connect, where it need only be unique for this destination. */
    (void)setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    return bind(fd, &from[i].sa.any, gy_address_len(&from[i])) == 0 ? 0 : errno;
  }
  return EADDRNOTAVAIL;
}

/* A socket that is connecting, or -1 with errno. */
static int open_connecting(const struct gy_dial *d, const struct gy_address *to) {
  int fd = gy_socket(to->sa.any.sa_family);
  if (fd < 0) return -1;
  int failed = bind_source(d, fd, to);
  if (failed == 0 && connect(fd, &to->sa.any, gy_address_len(to)) != 0 && errno != EINPROGRESS &&
      errno != EINTR)
    failed = errno;
  if (failed == 0) return fd;
  close(fd);
  errno = failed;
  return -1;
}

static void candidate_try(struct gy_dial *d, struct candidate *c) {
  c->tries++;
  c->starved = false;
  int fd = open_connecting(d, &c->address);
  if (fd < 0) {
    c->starved = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    const char *iface = d->net->settings->iface;
    bool restricted = errno == EADDRNOTAVAIL && iface[0] != '\0' && d->host[0] == '\0';
    c->refused = errno == ECONNREFUSED;
    if (restricted)
      gy_format(c->why, sizeof c->why,
                "GYRE_IFACE=%s leaves this rank no address to connect from; set it alike on all "
                "ranks",
                iface);
    else gy_format(c->why, sizeof c->why, "%s%s", strerror(errno), gy_errno_advice(errno));
    goto back_off;
  }
  struct attempt *a = calloc(1, sizeof *a);
  gy_format(c->why, sizeof c->why, "out of memory");
  if (a == NULL) goto close_fd;
  if (gy_watch_open(&a->w, d->net, fd) != GYRE_OK) goto free_attempt;
  a->dial = d;
  a->candidate = c;
  c->attempt = a;
  if (uv_poll_start(&a->w.poll, UV_WRITABLE, attempt_event) != 0)
    attempt_failed(a, "cannot watch the socket");
  return;
free_attempt:
  free(a);
close_fd:
  close(fd);
back_off:
  candidate_back_off(d, c);
}

/* ---------------------------------------------------------------------------- name look-up --- */

static gyre_status fail_no_secret(void) {
  return gy_fail(GYRE_ERR_AUTH, "without a secret only loopback is allowed; set GYRE_SECRET or "
                                "GYRE_SECRET_FILE on every rank");
}

/* Takes over the addresses that may be dialled; false if there is none. */
static bool add_candidate(struct gy_dial *d, const struct gy_address *a) {
  if (d->secret.len == 0 && !d->net->settings->insecure && !gy_address_is_loopback(a)) return false;
  if (d->n_candidate == GY_ADDRESS_MAX) return true;
  d->candidate[d->n_candidate] =
      (struct candidate){.address = *a,
                         .backoff_ms = BACKOFF_MIN_MS,
                         .next_ms = uv_now(d->net->loop) + STAGGER_MS * d->n_candidate};
  d->n_candidate++;
  return true;
}

static void lookup(struct gy_work *w) {
  struct gy_dial *d = w->data;
  const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  d->found = NULL;
  d->lookup_rc = getaddrinfo(d->host, NULL, &hints, &d->found);
}

static void lookup_done(struct gy_work *w) {
  struct gy_dial *d = w->data;
  int rc = d->lookup_rc;
  struct addrinfo *list = rc == 0 ? d->found : NULL;
  bool allowed = true;
  d->looking_up = false;
  if (d->over) goto release;
  for (const struct addrinfo *i = list; i != NULL; i = i->ai_next) {
    struct gy_address a;
    memset(&a, 0, sizeof a);
    if (i->ai_addrlen > sizeof a) continue;
    memcpy(&a, i->ai_addr, i->ai_addrlen);
    gy_address_set_port(&a, d->port);
    if (!add_candidate(d, &a)) allowed = false;
  }
  if (d->n_candidate == 0 && !allowed) {
    char text[400];
    size_t n = name_dial(d, text, sizeof text);
    (void)fail_no_secret();
    gy_format(text + n, sizeof text - n, ": that is another host, and %s", gyre_last_error());
    dial_fail(d, GYRE_ERR_AUTH, text);
  } else {
    if (d->n_candidate == 0) {
      gy_format(d->lookup_why, sizeof d->lookup_why, "cannot be resolved: %s",
                rc != 0 ? gai_strerror(rc) : "no address");
      d->next_lookup = uv_now(d->net->loop) + d->lookup_backoff_ms;
      d->lookup_backoff_ms =
          d->lookup_backoff_ms * 2 < BACKOFF_MAX_MS ? d->lookup_backoff_ms * 2 : BACKOFF_MAX_MS;
    }
    dial_plan(d);
  }
release:
  if (list != NULL) freeaddrinfo(list);
  dial_release(d);
}

static void lookup_start(struct gy_dial *d) {
  d->lookup.data = d;
  d->looking_up = true;
  d->open_handles++;
  gy_net_hold(d->net);
  gy_work_start(d->net->loop, &d->lookup, lookup, lookup_done);
}

/* -------------------------------------------------------------------------------- the plan --- */

/* Whoever listened there before does so no more. */
static bool is_gone(const struct gy_dial *d) {
  for (size_t i = 0; i < d->n_candidate; i++)
    if (d->candidate[i].attempt != NULL || !d->candidate[i].refused) return false;
  return d->was_there && d->n_candidate > 0;
}

static void dial_tick(uv_timer_t *timer) {
  struct gy_dial *d = timer->data;
  uint64_t now = uv_now(d->net->loop);
  if (is_gone(d)) {
    char text[400];
    size_t n = name_dial(d, text, sizeof text);
    gy_format(text + n, sizeof text - n, ": nothing listens there any more: it has ended");
    dial_fail(d, GYRE_ERR_PEER_LOST, text);
    return;
  }
  if (now >= d->deadline) {
    dial_timed_out(d);
    return;
  }
  if (d->n_candidate == 0) {
    if (!d->looking_up && d->next_lookup <= now) lookup_start(d);
  } else if (d->committed == NULL) {
    for (size_t i = 0; i < d->n_candidate; i++) {
      struct candidate *c = &d->candidate[i];
      if (c->attempt == NULL && !c->out && c->next_ms <= now) candidate_try(d, c);
    }
  }
  dial_plan(d);
}

/* Sets the timer to what comes next: a try or the deadline. */
static void dial_plan(struct gy_dial *d) {
  uint64_t now = uv_now(d->net->loop), next = d->deadline;
  if (d->n_candidate == 0 && !d->looking_up && d->next_lookup < next) next = d->next_lookup;
  for (size_t i = 0; i < d->n_candidate && d->committed == NULL; i++) {
    const struct candidate *c = &d->candidate[i];
    if (c->attempt == NULL && !c->out && c->next_ms < next) next = c->next_ms;
  }
  uv_timer_start(&d->timer, dial_tick, next > now ? next - now : 0, 0);
}

gyre_status gy_dial_start(struct gy_net *net, const struct gy_dial_target *target,
                          const struct gy_identity *id, const struct gy_secret *secret,
                          uint32_t timeout_ms, gy_dial_cb cb, void *user, struct gy_dial **out) {
  gyre_status st = GYRE_OK;
  struct gy_address numeric;
  if (net->closing) return gy_fail(GYRE_ERR_STATE, "the network is closing");
  if (target->n_candidate == 0 && (target->host == NULL || target->host[0] == '\0'))
    return gy_fail(GYRE_ERR_ARG, "rank %d has no address of rank %d to dial", id->from, id->to);
  struct gy_dial *d = calloc(1, sizeof *d);
  if (d == NULL) return gy_fail(GYRE_ERR_NOMEM, "out of memory dialling rank %d", id->to);
  uv_update_time(net->loop); /* the loop may have slept outside uv_run: its clock is then old */
  d->net = net;
  d->id = *id;
  d->secret = *secret;
  d->cb = cb;
  d->user = user;
  d->was_there = target->was_there;
  d->started = d->next_lookup = uv_now(net->loop);
  d->deadline = d->started + timeout_ms;
  d->lookup_backoff_ms = BACKOFF_MIN_MS;
  for (size_t i = 0; i < target->n_candidate; i++) (void)add_candidate(d, &target->candidate[i]);
  if (target->n_candidate == 0) {
    d->port = target->port;
    if (gy_format(d->host, sizeof d->host, "%s", target->host) != strlen(target->host)) {
      st = gy_fail(GYRE_ERR_ARG, "the host name \"%s\" is too long", target->host);
      goto free_dial;
    }
    if (gy_address_numeric(d->host, d->port, &numeric)) (void)add_candidate(d, &numeric);
    else numeric.sa.any.sa_family = AF_UNSPEC;
  }
  if (d->n_candidate == 0 && (target->n_candidate != 0 || numeric.sa.any.sa_family != AF_UNSPEC)) {
    st = fail_no_secret();
    goto free_dial;
  }
  uv_timer_init(net->loop, &d->timer);
  d->timer.data = d;
  d->open_handles = 1;
  gy_net_hold(net);
  TAILQ_INSERT_TAIL(&net->dials, d, link);
  dial_plan(d);
  *out = d;
  return GYRE_OK;
free_dial:
  OPENSSL_cleanse(&d->secret, sizeof d->secret);
  free(d);
  return st;
}

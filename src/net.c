/*
 * net.c - the net: listeners, inbound handshakes, and handing authenticated connections to those
 * who expect them.
 *
 * Role:   an inbound connection goes HELLO -> (parked until somebody expects it) -> CHALLENGE ->
 *         RESPONSE -> accept callback -> WELCOME or REJECT. Dialling is in dial.c, lingering in
 *         linger.c, the handshake itself in handshake.c.
 * Thread: the driving thread.
 * Owner:  the net owns its listeners, expectations and inbound connections; see net.h for the rest.
 */
#include "net.h"
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <openssl/crypto.h>
#include "fork.h"
#include "handshake.h"
#include "log.h"
#include "net_core.h"
#include "status.h"

struct gy_listen {
  struct gy_watch w;
  TAILQ_ENTRY(gy_listen) link;
  struct gy_address at;
  unsigned users;  /* of gy_net_listen_at */
  bool of_process; /* one of those that gy_net_listen opened */
};

struct gy_expect {
  struct gy_net *net;
  TAILQ_ENTRY(gy_expect) link;
  uint8_t kind;
  uint8_t key[GY_KEY_BYTES];
  int32_t to;
  struct gy_secret secret;
  gy_accept_cb cb;
  void *user;
  unsigned refused;
  char refused_text[320]; /* about the last */
};

struct inbound { /* a connection from accept until its handshake is over */
  struct gy_watch w;
  TAILQ_ENTRY(inbound) link;
  struct gy_address peer;
  struct gy_handshake hs;
  struct gy_expect *expect; /* from CHALLENGE on */
  uint64_t deadline;
};

/* --------------------------------------------------------------------------------- the net --- */

gyre_status gy_net_create(uv_loop_t *loop, const struct gy_settings *settings, struct gy_net **out) {
  struct gy_net *net = calloc(1, sizeof *net);
  if (net == NULL) return gy_fail(GYRE_ERR_NOMEM, "out of memory creating the network state");
  net->loop = loop;
  net->settings = settings;
  TAILQ_INIT(&net->listeners);
  TAILQ_INIT(&net->expects);
  TAILQ_INIT(&net->inbound);
  TAILQ_INIT(&net->dials);
  TAILQ_INIT(&net->lingering);
  *out = net;
  return GYRE_OK;
}

void gy_net_hold(struct gy_net *net) { net->held++; }

void gy_net_release(struct gy_net *net) {
  if (--net->held != 0 || !net->closing) return;
  void (*closed)(void *user) = net->closed;
  void *user = net->closed_user;
  free(net);
  if (closed != NULL) closed(user);
}

static void listener_close(struct gy_listen *l);
static void inbound_drop(struct inbound *in);

static void anchor_closed(uv_handle_t *handle) { gy_net_release(handle->data); }

static void expect_free(struct gy_expect *e) {
  TAILQ_REMOVE(&e->net->expects, e, link);
  OPENSSL_cleanse(&e->secret, sizeof e->secret);
  free(e);
}

void gy_net_close(struct gy_net *net, void (*closed)(void *user), void *user) {
  struct gy_listen *l;
  struct gy_expect *e;
  struct gy_dial *d;
  struct inbound *in;
  net->closing = true;
  net->closed = closed;
  net->closed_user = user;
  while ((l = TAILQ_FIRST(&net->listeners)) != NULL) listener_close(l);
  while ((in = TAILQ_FIRST(&net->inbound)) != NULL) inbound_drop(in);
  while ((e = TAILQ_FIRST(&net->expects)) != NULL) expect_free(e);
  while ((d = TAILQ_FIRST(&net->dials)) != NULL) gy_dial_cancel(d);
  gy_linger_close_all(net);
  uv_timer_init(net->loop, &net->anchor);
  net->anchor.data = net;
  gy_net_hold(net);
  uv_close((uv_handle_t *)&net->anchor, anchor_closed);
}

/* ---------------------------------------------------------------------- inbound handshakes --- */

void gy_net_reject(struct gy_net *net, int fd, gyre_status status, const char *text) {
  uint8_t message[GY_REJECT_BYTES];
  gy_reject_encode(status, text, message);
  /* A flood of refusals must not pile up sockets: beyond the limit a refusal is sent, but not
   * waited for. */
  gy_net_linger(net, fd, message, sizeof message,
                net->n_lingering < GY_INBOUND_MAX ? GY_REJECT_LINGER_MS : 0);
}

/* Takes the connection out of the net; the descriptor is the caller's. `in` must not be used any
 * more. */
static int inbound_detach(struct inbound *in) {
  struct gy_net *net = in->w.net;
  TAILQ_REMOVE(&net->inbound, in, link);
  net->n_inbound--;
  return gy_watch_close(&in->w);
}

static void inbound_drop(struct inbound *in) { close(inbound_detach(in)); }

/* `text` may be gyre_last_error(). */
static void inbound_reject(struct inbound *in, gyre_status status, const char *text) {
  struct gy_net *net = in->w.net;
  char peer[GY_ADDRESS_TEXT];
  gy_log(GY_LOG_INFO, "refused %s: %s: %s", gy_address_text(&in->peer, peer),
         gyre_status_name(status), text);
  gy_net_reject(net, inbound_detach(in), status, text);
}

static void count_refusal(struct gy_expect *e, const struct inbound *in, const char *text) {
  char peer[GY_ADDRESS_TEXT];
  e->refused++;
  gy_format(e->refused_text, sizeof e->refused_text,
            "a process at %s that says it is rank %d was refused: %s",
            gy_address_text(&in->peer, peer), in->hs.hello.id.from, text);
}

static struct gy_expect *find_expect(struct gy_net *net, uint8_t kind, const uint8_t *key,
                                     int32_t to) {
  struct gy_expect *e;
  TAILQ_FOREACH(e, &net->expects, link)
  if (e->kind == kind && e->to == to && memcmp(e->key, key, GY_KEY_BYTES) == 0) return e;
  return NULL;
}

static void inbound_event(uv_poll_t *poll, int status, int events);
static void inbound_timer(uv_timer_t *timer);

static void inbound_watch(struct inbound *in) {
  if (uv_poll_start(&in->w.poll, gy_handshake_poll(&in->hs), inbound_event) != 0) inbound_drop(in);
}

static void inbound_deadline(struct inbound *in, uint64_t ms) {
  uint64_t most = (uint64_t)in->w.net->settings->connect_timeout_ms;
  if (ms > most) ms = most;
  in->deadline = uv_now(in->w.net->loop) + ms;
  uv_timer_start(&in->w.timer, inbound_timer, ms, 0);
}

static void inbound_proven(struct inbound *in) {
  struct gy_expect *e = in->expect;
  struct gy_net *net = in->w.net;
  gy_accept_cb cb = e->cb;
  void *user = e->user;
  struct gy_conn conn = {.fd = in->w.fd, .id = in->hs.hello.id, .peer = in->peer};
  gyre_status st = gy_address_local(conn.fd, &conn.local);
  if (st != GYRE_OK) { /* the peer is gone already */
    inbound_drop(in);
    return;
  }
  inbound_detach(in);
  gy_net_hold(net); /* the callback may close the net */
  st = cb(user, &conn);
  if (st == GYRE_OK) {
    uint8_t welcome[GY_WELCOME_BYTES];
    gy_welcome_encode(welcome);
    /* 88 bytes in all have been sent on this socket, so it takes these; if it does not, it is
     * broken, and its new owner is made to see that. */
    if (send(conn.fd, welcome, sizeof welcome, MSG_NOSIGNAL) != (ssize_t)sizeof welcome)
      shutdown(conn.fd, SHUT_RDWR);
  } else {
    gy_net_reject(net, conn.fd, st, gyre_last_error());
  }
  gy_net_release(net);
}

static void inbound_advance(struct inbound *in);

/* A complete HELLO: challenge it if somebody waits for it, otherwise leave it parked. */
static void inbound_match(struct inbound *in) {
  const struct gy_identity *id = &in->hs.hello.id;
  struct gy_net *net = in->w.net;
  struct gy_expect *e = find_expect(net, id->kind, id->key, id->to);
  if (e == NULL) {
    inbound_watch(in);
    return;
  }
  gyre_status st;
  if (e->secret.len == 0 && !net->settings->insecure && !gy_address_is_loopback(&in->peer))
    st = gy_fail(GYRE_ERR_AUTH,
                 "rank %d at another address than loopback, but rank %d has no secret; without a "
                 "secret only "
                 "loopback is allowed; set GYRE_SECRET or GYRE_SECRET_FILE on every rank",
                 id->from, id->to);
  else st = gy_handshake_challenge(&in->hs, &e->secret);
  if (st != GYRE_OK) {
    count_refusal(e, in, gyre_last_error());
    inbound_reject(in, st, gyre_last_error());
    return;
  }
  in->expect = e;
  inbound_deadline(in, GY_HELLO_MS);
  inbound_advance(in);
}

static void inbound_failed(struct inbound *in) {
  const struct gy_handshake *hs = &in->hs;
  const char *text = gyre_last_error();
  /* A peer's own words are not repeated before it has proven who it is. */
  if (hs->failure == GY_FAIL_REJECTED)
    text = hs->status == GYRE_ERR_AUTH ? "its secret differs; give all ranks the same GYRE_SECRET "
                                         "or GYRE_SECRET_FILE"
                                       : "it gave up in the handshake";
  struct gy_expect *e = in->expect;
  if (hs->failure == GY_FAIL_VERSION)
    e = find_expect(in->w.net, hs->hello.id.kind, hs->hello.id.key, hs->hello.id.to);
  if (e != NULL && hs->failure != GY_FAIL_CLOSED) count_refusal(e, in, text);
  if (hs->failure == GY_FAIL_VERSION || hs->failure == GY_FAIL_SECRET) {
    inbound_reject(in, hs->status, text);
    return;
  }
  char peer[GY_ADDRESS_TEXT];
  gy_log(GY_LOG_DEBUG, "dropped %s: %s", gy_address_text(&in->peer, peer), text);
  inbound_drop(in);
}

static void inbound_advance(struct inbound *in) {
  switch (gy_handshake_pump(&in->hs, in->w.fd)) {
    case GY_EVENT_HELLO:
      inbound_deadline(in, UINT64_MAX);
      inbound_match(in);
      break;
    case GY_EVENT_PROVEN: inbound_proven(in); break;
    case GY_EVENT_FAILED: inbound_failed(in); break;
    default: inbound_watch(in);
  }
}

static void inbound_event(uv_poll_t *poll, int status, int events) {
  (void)status; /* an error is met by the next send or receive, with its errno */
  (void)events;
  inbound_advance(poll->data);
}

/* Either the deadline, or somebody new is expecting: see wake_parked. */
static void inbound_timer(uv_timer_t *timer) {
  struct inbound *in = timer->data;
  const struct gy_identity *id = &in->hs.hello.id;
  uint64_t now = uv_now(in->w.net->loop);
  if (now < in->deadline) {
    uv_timer_start(timer, inbound_timer, in->deadline - now, 0);
    if (in->hs.state == GY_PARKED) inbound_match(in);
  } else if (in->hs.state == GY_PARKED) {
    char text[GY_REJECT_TEXT];
    gy_format(text, sizeof text,
              "nobody here has asked for a %s connection from rank %d to rank %d within %lld ms",
              id->kind == GY_CONN_CONTROL ? "control" : "data", id->from, id->to,
              (long long)in->w.net->settings->connect_timeout_ms);
    inbound_reject(in, GYRE_ERR_TIMEOUT, text);
  } else {
    if (in->expect != NULL)
      count_refusal(in->expect, in, "it did not answer the challenge in time");
    inbound_drop(in);
  }
}

/* The oldest one that has not even said hello makes room. False if all have. */
static bool inbound_evict(struct gy_net *net) {
  struct inbound *in;
  TAILQ_FOREACH(in, &net->inbound, link) {
    if (in->hs.state != GY_AWAIT_HELLO) continue;
    gy_log(GY_LOG_DEBUG, "dropped a silent connection: more than %d at once", GY_INBOUND_MAX);
    inbound_drop(in);
    return true;
  }
  return false;
}

static void inbound_open(struct gy_net *net, int fd, const struct gy_address *peer) {
  int on = 1;
  if (net->n_inbound >= GY_INBOUND_MAX && !inbound_evict(net))
    goto close_fd; /* the dialler will try again */
  if (peer->sa.any.sa_family != AF_UNIX &&
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
    goto close_fd;
  struct inbound *in = calloc(1, sizeof *in);
  if (in == NULL) goto close_fd;
  if (gy_watch_open(&in->w, net, fd) != GYRE_OK) goto free_in;
  in->peer = *peer;
  gy_handshake_accept(&in->hs);
  TAILQ_INSERT_TAIL(&net->inbound, in, link);
  net->n_inbound++;
  inbound_deadline(in, GY_HELLO_MS);
  inbound_advance(in); /* the hello is often here already */
  return;
free_in:
  free(in);
close_fd:
  close(fd);
}

/* ------------------------------------------------------------------------------- listeners --- */

static void listener_event(uv_poll_t *poll, int status, int events);

static void listener_resume(uv_timer_t *timer) {
  struct gy_listen *l = timer->data;
  if (uv_poll_start(&l->w.poll, UV_READABLE, listener_event) != 0)
    uv_timer_start(timer, listener_resume, GY_ACCEPT_PAUSE_MS, 0);
}

/* Who waits for a connection gets to know why it did not come. */
static void cannot_accept(struct gy_net *net, int sys_errno) {
  struct gy_expect *e;
  gy_log(GY_LOG_INFO, "cannot accept a connection: %s%s; trying again in %d ms",
         strerror(sys_errno), gy_errno_advice(sys_errno), GY_ACCEPT_PAUSE_MS);
  TAILQ_FOREACH(e, &net->expects, link) {
    e->refused++;
    gy_format(e->refused_text, sizeof e->refused_text, "rank %d could not accept a connection: %s%s",
              e->to, strerror(sys_errno), gy_errno_advice(sys_errno));
  }
}

static void listener_event(uv_poll_t *poll, int status, int events) {
  struct gy_listen *l = poll->data;
  struct gy_net *net = l->w.net;
  (void)events;
  for (int i = 0; status == 0 && i < 64; i++) { /* bounded: others on the loop want their turn */
    struct gy_address peer;
    socklen_t len = sizeof peer;
    memset(&peer, 0, sizeof peer);
    gy_fork_hold();
    int fd = gy_fork_own(accept4(l->w.fd, &peer.sa.any, &len, SOCK_NONBLOCK | SOCK_CLOEXEC));
    gy_fork_release();
    if (fd >= 0) {
      inbound_open(net, fd, &peer);
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return;
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      status = -errno;
      cannot_accept(net, errno);
    }
    /* Everything else is the fate of one connection that died in the queue. */
  }
  if (status == 0) return;
  /* Out of descriptors or memory the listener stays readable; looking away for a moment keeps the
   * loop from spinning. */
  uv_poll_stop(poll);
  uv_timer_start(&l->w.timer, listener_resume, GY_ACCEPT_PAUSE_MS, 0);
}

static void listener_close(struct gy_listen *l) {
  TAILQ_REMOVE(&l->w.net->listeners, l, link);
  close(gy_watch_close(&l->w));
}

static bool same_address(const struct gy_address *a, const struct gy_address *b) {
  if (a->sa.any.sa_family != b->sa.any.sa_family || gy_address_port(a) != gy_address_port(b))
    return false;
  if (a->sa.any.sa_family == AF_UNIX)
    return memcmp(&a->sa.local, &b->sa.local, gy_address_len(a)) == 0;
  if (a->sa.any.sa_family == AF_INET) return a->sa.v4.sin_addr.s_addr == b->sa.v4.sin_addr.s_addr;
  return memcmp(&a->sa.v6.sin6_addr, &b->sa.v6.sin6_addr, sizeof a->sa.v6.sin6_addr) == 0 &&
         a->sa.v6.sin6_scope_id == b->sa.v6.sin6_scope_id;
}

static struct gy_listen *find_listener(struct gy_net *net, const struct gy_address *at) {
  struct gy_listen *l;
  TAILQ_FOREACH(l, &net->listeners, link)
  if (same_address(&l->at, at)) return l;
  return NULL;
}

/* A listening socket, or -1 with errno. */
static int open_listening(const struct gy_address *at) {
  int on = 1, saved;
  int fd = gy_socket(at->sa.any.sa_family);
  if (fd < 0) return -1;
  if (at->sa.any.sa_family != AF_UNIX && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0)
    goto close_fd;
  if (at->sa.any.sa_family == AF_INET6 &&
      setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) != 0)
    goto close_fd;
  /* With SO_REUSEADDR two sockets may be bound to one port: only listen() tells whether it is
   * really free. */
  if (bind(fd, &at->sa.any, gy_address_len(at)) != 0 || listen(fd, SOMAXCONN) != 0) goto close_fd;
  return fd;
close_fd:
  saved = errno;
  close(fd);
  errno = saved;
  return -1;
}

/* Puts a listening socket on the loop; takes fd also on failure. */
static gyre_status listener_open(struct gy_net *net, int fd, const struct gy_address *at,
                                 struct gy_listen **out) {
  struct gy_listen *l = calloc(1, sizeof *l);
  gyre_status st = GYRE_OK;
  if (l == NULL) {
    st = gy_fail(GYRE_ERR_NOMEM, "out of memory opening a listener");
    goto close_fd;
  }
  st = gy_watch_open(&l->w, net, fd);
  if (st != GYRE_OK) goto free_listener;
  l->at = *at;
  TAILQ_INSERT_TAIL(&net->listeners, l, link);
  int rc = uv_poll_start(&l->w.poll, UV_READABLE, listener_event);
  if (rc != 0) {
    listener_close(l);
    return gy_fail_errno(GYRE_ERR_SYS, -rc, "cannot watch a listening socket");
  }
  *out = l;
  return GYRE_OK;
free_listener:
  free(l);
close_fd:
  close(fd);
  return st;
}

static bool address_missing(int sys_errno) {
  /* An IPv6 address still being checked for duplicates, one that has just gone, or a family that is
   * switched off. */
  return sys_errno == EADDRNOTAVAIL || sys_errno == EAFNOSUPPORT || sys_errno == ENODEV;
}

static void close_all(int *fd, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (fd[i] >= 0) close(fd[i]);
}

/* One port on all of `at` (0: the kernel picks it on the first). Addresses that cannot be had are
 * left out (fd -1). Returns the port, or 0 with errno and nothing open. */
static uint16_t open_everywhere(struct gy_address *at, size_t n, uint16_t port,
                                int fd[GY_ADDRESS_MAX]) {
  int failed = EADDRNOTAVAIL;
  size_t opened = 0;
  for (size_t i = 0; i < n; i++) {
    struct gy_address bound = at[i];
    gy_address_set_port(&at[i], port);
    fd[i] = open_listening(&at[i]);
    if (fd[i] < 0) {
      failed = errno;
      if (address_missing(failed)) continue;
      close_all(fd, i);
      errno = failed;
      return 0;
    }
    opened++;
    if (port != 0) continue;
    if (gy_address_local(fd[i], &bound) == GYRE_OK) port = gy_address_port(&bound);
    gy_address_set_port(&at[i], port);
  }
  if (opened == 0) errno = failed;
  return opened == 0 ? 0 : port;
}

/* "first[-last]" or "". */
static gyre_status parse_range(const char *text, unsigned *first, unsigned *last) {
  unsigned a = 0, b = 0;
  int used = 0;
  *first = *last = 0;
  if (text[0] == '\0') return GYRE_OK;
  if (sscanf(text, "%5u%n", &a, &used) == 1 && text[used] == '\0') b = a;
  else if (sscanf(text, "%5u-%5u%n", &a, &b, &used) != 2 || text[used] != '\0') a = 0;
  if (a == 0 || b < a || b > 65535)
    return gy_fail(GYRE_ERR_ARG,
                   "GYRE_PORT=%s must be first[-last] with 1 <= first <= last <= 65535", text);
  *first = a;
  *last = b;
  return GYRE_OK;
}

/* Finds a port that is free on every address. */
static gyre_status open_some_port(struct gy_net *net, struct gy_address *at, size_t n,
                                  int fd[GY_ADDRESS_MAX], uint16_t *port) {
  enum {
    ANY_TRIES = 64
  }; /* how often the kernel may pick a port that is taken on another address */
  unsigned first, last;
  char text[GY_ADDRESS_TEXT];
  gyre_status st = parse_range(net->settings->port, &first, &last);
  if (st != GYRE_OK) return st;
  if (net->port != 0) first = last = net->port;
  unsigned tries = first == 0 ? ANY_TRIES : last - first + 1;
  int failed = EADDRINUSE;
  for (unsigned i = 0; i < tries; i++) {
    uint16_t opened = open_everywhere(at, n, (uint16_t)(first == 0 ? 0 : first + i), fd);
    if (opened != 0) {
      *port = opened;
      return GYRE_OK;
    }
    failed = errno;
    if (failed != EADDRINUSE) break;
  }
  gy_address_set_port(&at[0], (uint16_t)last);
  gy_address_text(&at[0], text);
  if (failed != EADDRINUSE) return gy_fail_errno(GYRE_ERR_SYS, failed, "cannot listen at %s", text);
  if (first == 0)
    return gy_fail_errno(GYRE_ERR_SYS, failed,
                         "no port is free on all of the %zu addresses of this host", n);
  return gy_fail_errno(
      GYRE_ERR_SYS, failed,
      "no port from %u to %u is free on all of the %zu addresses, as at %s; give each "
      "process of this host a port of its own, or a range, by GYRE_PORT",
      first, last, n, text);
}

/* GYRE_ADVERTISE: a numeric host, with or without a port. */
static gyre_status parse_advertise(const char *text, uint16_t port, struct gy_address *out) {
  char host[256];
  size_t len = strlen(text);
  gy_format(host, sizeof host, "%s", text);
  if (len > 2 && text[0] == '[' && text[len - 1] == ']')
    gy_format(host, sizeof host, "%.*s", (int)len - 2, text + 1);
  if (gy_address_numeric(host, port, out)) return GYRE_OK;
  gyre_status st =
      strchr(text, ':') != NULL ? gy_address_split(text, host, sizeof host, &port) : GYRE_OK;
  if (st != GYRE_OK) return st;
  if (gy_address_numeric(host, port, out)) return GYRE_OK;
  return gy_fail(
      GYRE_ERR_ARG,
      "GYRE_ADVERTISE=%s must be a numeric address, with or without a port, as in 10.0.0.1:7000",
      text);
}

/* Tried on a socket: the kernel knows best which names it has, and which it lets this process use. */
static gyre_status check_congestion(const char *name) {
  char offered[256] = "";
  if (!*name || strcmp(name, "auto") == 0) return GYRE_OK;
  gy_fork_hold();
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), sys_errno = 0;
  if (fd >= 0 && setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)))
    sys_errno = errno;
  if (fd >= 0) close(fd);
  gy_fork_release();
  if (sys_errno == 0) return GYRE_OK; /* that no socket can be had shows elsewhere */
  if (sys_errno != ENOENT && sys_errno != EPERM)
    return gy_fail_errno(GYRE_ERR_SYS, sys_errno, "cannot try GYRE_TCP_CONGESTION=%s", name);
  FILE *f = fopen("/proc/sys/net/ipv4/tcp_allowed_congestion_control", "re");
  if (f != NULL && fgets(offered, sizeof offered, f) != NULL) offered[strcspn(offered, "\n")] = 0;
  if (f != NULL) fclose(f);
  return gy_fail_errno(
      GYRE_ERR_ARG, sys_errno,
      "GYRE_TCP_CONGESTION=%s: must be auto or a name that this kernel offers (%s)", name, offered);
}

gyre_status gy_net_check(const struct gy_settings *settings) {
  struct gy_address told;
  gyre_status st = check_congestion(settings->tcp_congestion);
  if (st == GYRE_OK && settings->advertise[0] != '\0')
    st = parse_advertise(settings->advertise, 1, &told);
  return st;
}

gyre_status gy_net_listen(struct gy_net *net, bool has_secret) {
  struct gy_address at[GY_ADDRESS_MAX], told;
  int fd[GY_ADDRESS_MAX];
  size_t n = 0, missing = 0;
  uint16_t port = 0;
  gyre_status st = GYRE_OK;
  uv_update_time(net->loop);
  if (net->settings->advertise[0] != '\0') st = parse_advertise(net->settings->advertise, 1, &told);
  if (st == GYRE_OK) st = gy_address_choose(net->settings, has_secret, at, &n);
  if (st != GYRE_OK) return st;
  for (size_t i = 0; i < n; i++) {
    gy_address_set_port(&at[i], net->port);
    struct gy_listen *l = net->port != 0 ? find_listener(net, &at[i]) : NULL;
    if (l != NULL)
      l->of_process = true; /* perhaps opened as a rendezvous; then it serves as both */
    else at[missing++] = at[i];
  }
  if (missing == 0) return GYRE_OK;
  st = open_some_port(net, at, missing, fd, &port);
  if (st != GYRE_OK) return st;
  struct gy_listen *opened[GY_ADDRESS_MAX];
  size_t n_opened = 0;
  for (size_t i = 0; i < missing; i++) {
    if (fd[i] < 0) continue;
    if (st == GYRE_OK) st = listener_open(net, fd[i], &at[i], &opened[n_opened]);
    else close(fd[i]);
    if (st == GYRE_OK) opened[n_opened++]->of_process = true;
  }
  if (st != GYRE_OK) {
    while (n_opened > 0) listener_close(opened[--n_opened]);
    return st;
  }
  net->port = port;
  return GYRE_OK;
}

size_t gy_net_advertised(const struct gy_net *net, struct gy_address out[GY_ADDRESS_MAX]) {
  const struct gy_listen *l;
  size_t n = 0;
  bool given = net->settings->advertise[0] != '\0';
  if (given && parse_advertise(net->settings->advertise, net->port, &out[n++]) != GYRE_OK) return 0;
  /* The ranks of this host still meet by loopback: a translated address often does not lead back to
   * where it came from. */
  TAILQ_FOREACH(l, &net->listeners, link)
  if (l->of_process && n < GY_ADDRESS_MAX && (!given || gy_address_is_loopback(&l->at)))
    out[n++] = l->at;
  return n;
}

static gyre_status open_local(struct gy_net *net) {
  uint8_t name[GY_LOCAL_BYTES];
  struct gy_address at;
  struct gy_listen *l;
  gyre_status st = gy_random(name, sizeof name);
  if (st != GYRE_OK) return st;
  gy_address_of_local(name, &at);
  int fd = open_listening(&at);
  if (fd < 0)
    return gy_fail_errno(GYRE_ERR_SYS, errno, "cannot listen on a Unix socket%s",
                         gy_errno_advice(errno));
  st = listener_open(net, fd, &at, &l);
  if (st == GYRE_OK) memcpy(net->local, name, sizeof net->local);
  return st;
}

void gy_net_listen_local(struct gy_net *net, uint8_t name[GY_LOCAL_BYTES]) {
  if (!net->local_tried && open_local(net) != GYRE_OK)
    gy_log(GY_LOG_WARN, "no shared memory with the other ranks of this host: %s", gyre_last_error());
  net->local_tried = true;
  memcpy(name, net->local, sizeof net->local);
}

static gyre_status fail_listen_at(const struct gy_address *at, int sys_errno) {
  char text[GY_ADDRESS_TEXT];
  const char *hint = "";
  switch (sys_errno) {
    case EADDRINUSE:
      hint = "; another process listens there: choose another port, or, if it is rank 0 of this "
             "job, give each process its own rank";
      break;
    case EADDRNOTAVAIL:
      hint = "; this host does not have that address: rank 0 must run on the host that has it";
      break;
    case EACCES: hint = "; ports below 1024 need privileges: choose a higher one"; break;
    default: break;
  }
  errno = sys_errno;
  return gy_fail(GYRE_ERR_SYS, "cannot listen at %s: %s (errno %d)%s", gy_address_text(at, text),
                 strerror(sys_errno), sys_errno, hint);
}

gyre_status gy_net_listen_at(struct gy_net *net, const struct gy_address *at, struct gy_listen **out) {
  struct gy_listen *l = gy_address_port(at) != 0 ? find_listener(net, at) : NULL;
  if (l == NULL) {
    struct gy_address bound;
    int fd = open_listening(at);
    if (fd < 0) return fail_listen_at(at, errno);
    gyre_status st = gy_address_local(fd, &bound);
    if (st != GYRE_OK) {
      close(fd);
      return st;
    }
    st = listener_open(net, fd, &bound, &l);
    if (st != GYRE_OK) return st;
  }
  l->users++;
  *out = l;
  return GYRE_OK;
}

void gy_net_unlisten(struct gy_listen *l) {
  if (--l->users == 0 && !l->of_process) listener_close(l);
}

/* ---------------------------------------------------------------------------- expectations --- */

/* Parked connections look again, each from its own timer and so from the loop; equal timers run in
 * the order in which they were started, which is the order of arrival. */
static void wake_parked(struct gy_net *net, const struct gy_expect *e) {
  struct inbound *in;
  TAILQ_FOREACH(in, &net->inbound, link) {
    const struct gy_identity *id = &in->hs.hello.id;
    if (in->hs.state == GY_PARKED && id->kind == e->kind && id->to == e->to &&
        memcmp(id->key, e->key, GY_KEY_BYTES) == 0)
      uv_timer_start(&in->w.timer, inbound_timer, 0, 0);
  }
}

gyre_status gy_net_expect(struct gy_net *net, enum gy_conn_kind kind,
                          const uint8_t key[GY_KEY_BYTES], int to, const struct gy_secret *secret,
                          gy_accept_cb cb, void *user, struct gy_expect **out) {
  if (find_expect(net, (uint8_t)kind, key, to) != NULL)
    return gy_fail(
        GYRE_ERR_ARG,
        "rank %d of this %s is in this process already; give each communicator a rendezvous of its "
        "own, and each process its own ranks",
        to, kind == GY_CONN_CONTROL ? "job" : "communicator");
  struct gy_expect *e = calloc(1, sizeof *e);
  if (e == NULL)
    return gy_fail(GYRE_ERR_NOMEM, "out of memory expecting connections for rank %d", to);
  e->net = net;
  e->kind = (uint8_t)kind;
  memcpy(e->key, key, GY_KEY_BYTES);
  e->to = to;
  e->secret = *secret;
  e->cb = cb;
  e->user = user;
  TAILQ_INSERT_TAIL(&net->expects, e, link);
  wake_parked(net, e);
  *out = e;
  return GYRE_OK;
}

void gy_net_unexpect(struct gy_expect *e) {
  struct inbound *in = TAILQ_FIRST(&e->net->inbound), *next;
  char text[GY_REJECT_TEXT];
  gy_format(text, sizeof text, "rank %d accepts no more connections of this kind", e->to);
  for (; in != NULL; in = next) {
    next = TAILQ_NEXT(in, link);
    if (in->expect == e) inbound_reject(in, GYRE_ERR_ABORTED, text);
  }
  expect_free(e);
}

unsigned gy_net_refused(const struct gy_expect *e, char *text, size_t capacity) {
  gy_format(text, capacity, "%s", e->refused_text);
  return e->refused;
}

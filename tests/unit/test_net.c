/* test_net.c - the net: an acceptor and a dialler in one process, honest peers and others; what is
 * delivered, what is refused with which words, and what is left behind. Where a peer must misbehave
 * it is a bare socket driven by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>
#include "handshake.h"
#include "status.h"

#define WAIT_MS 30000 /* a test that waits longer has failed */
#define MAX_ACCEPTED 8

struct world { /* one loop, a net that accepts and one that dials */
  uv_loop_t loop;
  uv_timer_t limit;
  bool late;
  int closed;
  struct gy_settings accepting, dialling;
  struct gy_net *a, *d;
};

struct accepted {
  int n;
  struct gy_conn conn[MAX_ACCEPTED];
  gyre_status refuse; /* what the callback returns, if not OK */
  uv_loop_t *poll_on; /* make a poll handle for the descriptor, inside the callback */
  uv_poll_t poll;
};

struct dialled {
  int n;
  gyre_status status;
  struct gy_conn conn;
  char text[4096];
  struct gy_dial *dial;
};

static const struct gy_secret no_secret;
static struct gy_secret secret_of(const char *text) {
  struct gy_secret s = {.len = strlen(text)};
  memcpy(s.bytes, text, s.len);
  return s;
}

static const struct gy_identity ident = {
    .kind = GY_CONN_DATA, .key = "0123456789abcde", .lane = 5, .from = 3, .to = 1};

static void on_limit(uv_timer_t *t) { ((struct world *)t->data)->late = true; }
static void on_closed(void *user) { ++*(int *)user; }

static void world_open(struct world *w) {
  memset(w, 0, sizeof *w);
  w->accepting.connect_timeout_ms = w->dialling.connect_timeout_ms = 20000;
  assert_int_equal(uv_loop_init(&w->loop), 0);
  uv_timer_init(&w->loop, &w->limit);
  w->limit.data = w;
  uv_timer_start(&w->limit, on_limit, WAIT_MS, 0);
  uv_unref((uv_handle_t *)&w->limit);
  assert_int_equal(gy_net_create(&w->loop, &w->accepting, &w->a), GYRE_OK);
  assert_int_equal(gy_net_create(&w->loop, &w->dialling, &w->d), GYRE_OK);
}

#define RUN_UNTIL(w, condition)        \
  do {                                 \
    while (!(condition)) {             \
      assert_false((w)->late);         \
      uv_run(&(w)->loop, UV_RUN_ONCE); \
    }                                  \
  } while (0)

static void on_wake(uv_timer_t *t) { *(bool *)t->data = true; }
static void on_timer_gone(uv_handle_t *h) { *(bool *)h->data = false; }

static void run_for(struct world *w, uint64_t ms) {
  uv_timer_t t;
  bool flag = false;
  uv_update_time(&w->loop);
  uv_timer_init(&w->loop, &t);
  t.data = &flag;
  uv_timer_start(&t, on_wake, ms, 0);
  RUN_UNTIL(w, flag);
  uv_close((uv_handle_t *)&t, on_timer_gone);
  RUN_UNTIL(w, !flag);
}

static void world_close(struct world *w) {
  gy_net_close(w->a, on_closed, &w->closed);
  gy_net_close(w->d, on_closed, &w->closed);
  assert_int_equal(w->closed, 0); /* from the loop only */
  RUN_UNTIL(w, w->closed == 2);
  uv_close((uv_handle_t *)&w->limit, NULL);
  uv_run(&w->loop, UV_RUN_DEFAULT);
  assert_int_equal(uv_loop_close(&w->loop), 0);
}

static void on_watched_gone(uv_handle_t *h) { (void)h; }
static void on_watched(uv_poll_t *p, int status, int events) {
  (void)events;
  assert_int_equal(status, 0);
  uv_close((uv_handle_t *)p, on_watched_gone);
}

static gyre_status on_accept(void *user, const struct gy_conn *conn) {
  struct accepted *a = user;
  if (a->refuse != GYRE_OK) return gy_fail(a->refuse, "slice_bytes is 65536 here and 4096 there");
  assert_true(a->n < MAX_ACCEPTED);
  a->conn[a->n++] = *conn;
  if (a->poll_on != NULL) {
    assert_int_equal(uv_poll_init(a->poll_on, &a->poll, conn->fd), 0);
    assert_int_equal(uv_poll_start(&a->poll, UV_READABLE, on_watched), 0);
  }
  return GYRE_OK;
}

static void on_dialled(void *user, gyre_status status, const struct gy_conn *conn) {
  struct dialled *d = user;
  d->n++;
  d->status = status;
  assert_int_equal(conn != NULL, status == GYRE_OK);
  if (conn != NULL) d->conn = *conn;
  else gy_format(d->text, sizeof d->text, "%s", gyre_last_error());
}

static struct gy_address at(const char *host, uint16_t port) {
  struct gy_address a;
  assert_true(gy_address_numeric(host, port, &a));
  return a;
}

/* A listener of the accepting net on a free port of this host; the port. */
static uint16_t listen_on(struct world *w, const char *host) {
  struct gy_address a = at(host, 0), bound;
  int fd = socket(a.sa.any.sa_family, SOCK_STREAM, 0), on = 1;
  struct gy_listen *l;
  assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
  assert_int_equal(bind(fd, &a.sa.any, gy_address_len(&a)), 0);
  assert_int_equal(gy_address_local(fd, &bound), GYRE_OK);
  close(fd);
  assert_int_equal(gy_net_listen_at(w->a, &bound, &l), GYRE_OK);
  return gy_address_port(&bound);
}

static struct gy_expect *expect(struct world *w, const struct gy_identity *id,
                                const struct gy_secret *s, struct accepted *a) {
  struct gy_expect *e = NULL;
  assert_int_equal(
      gy_net_expect(w->a, (enum gy_conn_kind)id->kind, id->key, id->to, s, on_accept, a, &e),
      GYRE_OK);
  return e;
}

static void dial(struct world *w, const struct gy_address *to, size_t n, const struct gy_identity *id,
                 const struct gy_secret *s, uint32_t ms, struct dialled *d) {
  const struct gy_dial_target target = {.candidate = to, .n_candidate = n};
  memset(d, 0, sizeof *d);
  assert_int_equal(gy_dial_start(w->d, &target, id, s, ms, on_dialled, d, &d->dial), GYRE_OK);
  assert_int_equal(d->n, 0); /* from the loop only */
}

static int count_fds(void) {
  int n = 0;
  DIR *dir = opendir("/proc/self/fd");
  assert_non_null(dir);
  while (readdir(dir) != NULL) n++;
  closedir(dir);
  return n;
}

/* ------------------------------------------------------------------------- bare sockets --- */

static void send_exactly(int fd, const void *data, size_t len) {
  assert_int_equal(send(fd, data, len, MSG_NOSIGNAL), len);
}

/* Reads from a bare socket while the loop runs; the bytes got before EOF or reset. */
static size_t recv_looping(struct world *w, int fd, void *out, size_t len) {
  size_t got = 0;
  while (got < len) {
    ssize_t n = recv(fd, (char *)out + got, len - got, MSG_DONTWAIT);
    if (n > 0) got += (size_t)n;
    else if (n == 0 || errno != EAGAIN) break;
    else {
      assert_false(w->late);
      run_for(w, 1);
    }
  }
  return got;
}

static int bare_connect(uint16_t port) {
  struct gy_address a = at("127.0.0.1", port);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_true(fd >= 0);
  assert_int_equal(connect(fd, &a.sa.any, gy_address_len(&a)), 0);
  return fd;
}

static int bare_listen(uint16_t *port) {
  struct gy_address a = at("127.0.0.1", 0);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(bind(fd, &a.sa.any, gy_address_len(&a)), 0);
  assert_int_equal(listen(fd, 16), 0);
  assert_int_equal(gy_address_local(fd, &a), GYRE_OK);
  *port = gy_address_port(&a);
  return fd;
}

static int bare_accept(struct world *w, int listener) {
  int fd;
  fcntl(listener, F_SETFL, O_NONBLOCK);
  while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) < 0) {
    assert_int_equal(errno, EAGAIN);
    assert_false(w->late);
    run_for(w, 1);
  }
  return fd;
}

static void tcp_pair(int fd[2]) {
  uint16_t port;
  int listener = bare_listen(&port);
  fd[0] = bare_connect(port);
  fd[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
  assert_true(fd[1] >= 0);
  close(listener);
}

/* An acceptor's side by hand: reads the hello, answers with a challenge under `s`. */
static int bare_challenge(struct world *w, int listener, const struct gy_secret *s,
                          struct gy_handshake *h) {
  int fd = bare_accept(w, listener);
  gy_handshake_accept(h);
  assert_int_equal(recv_looping(w, fd, h->in, GY_HELLO_BYTES), GY_HELLO_BYTES);
  assert_int_equal(gy_handshake_take(h, GY_HELLO_BYTES), GY_EVENT_HELLO);
  assert_int_equal(gy_handshake_challenge(h, s), GYRE_OK);
  send_exactly(fd, h->out, h->out_len);
  return fd;
}

/* A dialler's side by hand, until the acceptor's challenge has come and is right. */
static int bare_dial(struct world *w, uint16_t port, const struct gy_secret *s,
                     struct gy_handshake *h) {
  int fd = bare_connect(port);
  assert_int_equal(gy_handshake_dial(h, &ident, s), GYRE_OK);
  send_exactly(fd, h->out, h->out_len);
  assert_int_equal(recv_looping(w, fd, h->in, GY_CHALLENGE_BYTES), GY_CHALLENGE_BYTES);
  assert_int_equal(gy_handshake_take(h, GY_CHALLENGE_BYTES), GY_EVENT_CHALLENGED);
  return fd;
}

static gyre_status bare_rejected(struct world *w, int fd, char text[GY_REJECT_TEXT + 1]) {
  uint8_t message[GY_REJECT_BYTES + 1];
  gyre_status st = GYRE_OK;
  assert_int_equal(recv_looping(w, fd, message, sizeof message), GY_REJECT_BYTES); /* and then EOF */
  assert_int_equal(gy_handshake_size(message), GY_REJECT_BYTES);
  assert_true(gy_reject_decode(message, &st, text));
  return st;
}

/* ------------------------------------------------------------------------------ good ones --- */

static void check_socket(int fd) {
  int on = 0;
  socklen_t len = sizeof on;
  assert_true((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
  assert_true((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
  assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, &len), 0);
  assert_true(on != 0);
}

static void check_joined(const struct gy_conn *acceptor, const struct gy_conn *dialler) {
  char byte = 0, text[2][GY_ADDRESS_TEXT];
  assert_memory_equal(&acceptor->id.key, &dialler->id.key, GY_KEY_BYTES);
  assert_int_equal(acceptor->id.kind, dialler->id.kind);
  assert_int_equal(acceptor->id.lane, dialler->id.lane);
  assert_int_equal(acceptor->id.from, dialler->id.from);
  assert_int_equal(acceptor->id.to, dialler->id.to);
  assert_string_equal(gy_address_text(&acceptor->peer, text[0]),
                      gy_address_text(&dialler->local, text[1]));
  assert_string_equal(gy_address_text(&acceptor->local, text[0]),
                      gy_address_text(&dialler->peer, text[1]));
  check_socket(acceptor->fd);
  check_socket(dialler->fd);
  send_exactly(acceptor->fd, "a", 1);
  send_exactly(dialler->fd, "d", 1);
  assert_int_equal(recv(dialler->fd, &byte, 1, 0), 1);
  assert_int_equal(byte, 'a');
  assert_int_equal(recv(acceptor->fd, &byte, 1, 0), 1);
  assert_int_equal(byte, 'd');
}

static void good_handshake(const char *host, const struct gy_secret *s) {
  struct world w;
  struct accepted acc = {0};
  struct dialled dl;
  char text[128];
  world_open(&w);
  acc.poll_on = &w.loop; /* the descriptor must be free of handles when it is delivered */
  struct gy_expect *e = expect(&w, &ident, s, &acc);
  struct gy_address to = at(host, listen_on(&w, host));
  dial(&w, &to, 1, &ident, s, 5000, &dl);
  RUN_UNTIL(&w, dl.n == 1 && acc.n == 1);
  assert_int_equal(dl.status, GYRE_OK);
  check_joined(&acc.conn[0], &dl.conn);
  send_exactly(dl.conn.fd, "x", 1);
  RUN_UNTIL(&w, uv_is_closing((uv_handle_t *)&acc.poll)); /* the new handle sees events */
  assert_int_equal(gy_net_refused(e, text, sizeof text), 0);
  world_close(&w);
  close(acc.conn[0].fd);
  close(dl.conn.fd);
}

static void test_handshake_v4(void **state) {
  (void)state;
  struct gy_secret s = secret_of("sesame");
  good_handshake("127.0.0.1", &s);
  good_handshake("127.0.0.1", &no_secret);
}

static void test_handshake_v6(void **state) {
  (void)state;
  struct gy_secret s = secret_of("sesame");
  good_handshake("::1", &s);
}

static void test_name_is_resolved(void **state) {
  (void)state;
  struct world w;
  struct accepted acc = {0};
  struct dialled dl = {0};
  world_open(&w);
  expect(&w, &ident, &no_secret, &acc);
  const struct gy_dial_target target = {.host = "localhost", .port = listen_on(&w, "127.0.0.1")};
  assert_int_equal(gy_dial_start(w.d, &target, &ident, &no_secret, 20000, on_dialled, &dl, &dl.dial),
                   GYRE_OK);
  RUN_UNTIL(&w, dl.n == 1 && acc.n == 1);
  assert_int_equal(dl.status, GYRE_OK);
  world_close(&w);
  close(acc.conn[0].fd);
  close(dl.conn.fd);
}

static void test_unknown_name_times_out(void **state) {
  (void)state;
  struct world w;
  struct dialled dl = {0};
  char host[] = "no such host"; /* no name may hold a blank: nobody is asked */
  world_open(&w);
  const struct gy_dial_target target = {.host = host, .port = 7000};
  assert_int_equal(gy_dial_start(w.d, &target, &ident, &no_secret, 120, on_dialled, &dl, &dl.dial),
                   GYRE_OK);
  host[0] = 'X'; /* it was copied */
  RUN_UNTIL(&w, dl.n == 1);
  assert_int_equal(dl.status, GYRE_ERR_TIMEOUT);
  assert_non_null(strstr(dl.text, "no such host:7000"));
  world_close(&w);
}

/* Bytes that follow the last message of the handshake at once belong to the receiver of the
 * socket. */
static void test_no_byte_beyond_the_handshake(void **state) {
  (void)state;
  struct world w;
  struct accepted acc = {0};
  struct dialled dl;
  struct gy_secret s = secret_of("sesame");
  struct gy_handshake h;
  uint8_t both[GY_RESPONSE_BYTES + 4], got[8];
  uint16_t port;
  world_open(&w);
  expect(&w, &ident, &s, &acc);
  int fd = bare_dial(&w, listen_on(&w, "127.0.0.1"), &s, &h);
  assert_int_equal(gy_handshake_respond(&h), GYRE_OK);
  memcpy(both, h.out, GY_RESPONSE_BYTES);
  memcpy(both + GY_RESPONSE_BYTES, "GYRE", 4);
  send_exactly(fd, both, sizeof both);
  RUN_UNTIL(&w, acc.n == 1);
  assert_int_equal(recv(acc.conn[0].fd, got, sizeof got, 0), 4);
  assert_memory_equal(got, "GYRE", 4);
  close(fd);
  close(acc.conn[0].fd);

  int listener = bare_listen(&port);
  struct gy_address to = at("127.0.0.1", port);
  dial(&w, &to, 1, &ident, &s, 5000, &dl);
  fd = bare_challenge(&w, listener, &s, &h);
  assert_int_equal(recv_looping(&w, fd, h.in, GY_RESPONSE_BYTES), GY_RESPONSE_BYTES);
  assert_int_equal(gy_handshake_take(&h, GY_RESPONSE_BYTES), GY_EVENT_PROVEN);
  gy_welcome_encode(both);
  memcpy(both + GY_WELCOME_BYTES, "tail", 4);
  send_exactly(fd, both, GY_WELCOME_BYTES + 4);
  RUN_UNTIL(&w, dl.n == 1);
  assert_int_equal(dl.status, GYRE_OK);
  assert_int_equal(recv(dl.conn.fd, got, sizeof got, 0), 4);
  assert_memory_equal(got, "tail", 4);
  close(dl.conn.fd);
  close(fd);
  close(listener);
  world_close(&w);
}

/* ------------------------------------------------------------------------------- secrets --- */

static void refused_secret(const struct gy_secret *acceptor, const struct gy_secret *dialler,
                           const char *dialler_text, const char *acceptor_text) {
  struct world w;
  struct accepted acc = {0};
  struct dialled dl;
  char text[256];
  world_open(&w);
  struct gy_expect *e = expect(&w, &ident, acceptor, &acc);
  struct gy_address to = at("127.0.0.1", listen_on(&w, "127.0.0.1"));
  dial(&w, &to, 1, &ident, dialler, 20000, &dl);
  RUN_UNTIL(&w, dl.n == 1 && gy_net_refused(e, text, sizeof text) == 1);
  assert_int_equal(dl.status, GYRE_ERR_AUTH);
  assert_non_null(strstr(dl.text, dialler_text));
  assert_non_null(strstr(dl.text, "127.0.0.1:"));
  assert_non_null(strstr(text, acceptor_text));
  assert_non_null(strstr(text, "127.0.0.1:"));
  assert_int_equal(acc.n, 0);
  world_close(&w);
  assert_int_equal(dl.n, 1);
}

static void test_wrong_secret(void **state) {
  (void)state;
  struct gy_secret s = secret_of("sesame"), t = secret_of("sesamf"), longer = secret_of("sesame ");
  refused_secret(&s, &t, "secrets of rank 3 and rank 1 differ", "its secret differs");
  refused_secret(&t, &s, "secrets of rank 3 and rank 1 differ", "its secret differs");
  refused_secret(&s, &longer, "secrets of rank 3 and rank 1 differ", "its secret differs");
}

static void test_missing_secret(void **state) {
  (void)state;
  struct gy_secret s = secret_of("sesame");
  refused_secret(&s, &no_secret, "rank 3 has no secret but rank 1 has one",
                 "rank 3 has no secret but rank 1 has one");
  refused_secret(&no_secret, &s, "rank 1 has no secret but rank 3 has one",
                 "rank 1 has no secret but rank 3 has one");
}

/* A dialler without the secret has only two proofs at hand: noise, and the acceptor's own. */
static void test_false_proofs(void **state) {
  (void)state;
  for (int echo = 0; echo <= 1; echo++) {
    struct world w;
    struct accepted acc = {0};
    struct gy_secret s = secret_of("sesame");
    struct gy_handshake h;
    uint8_t challenge[GY_CHALLENGE_BYTES], response[GY_RESPONSE_BYTES];
    char text[GY_REJECT_TEXT + 1];
    world_open(&w);
    struct gy_expect *e = expect(&w, &ident, &s, &acc);
    int fd = bare_connect(listen_on(&w, "127.0.0.1"));
    assert_int_equal(gy_handshake_dial(&h, &ident, &s), GYRE_OK);
    send_exactly(fd, h.out, h.out_len);
    assert_int_equal(recv_looping(&w, fd, challenge, sizeof challenge), sizeof challenge);
    if (!echo) assert_int_equal(gy_random(challenge + GY_CHALLENGE_SIGNED, GY_HMAC_BYTES), GYRE_OK);
    gy_response_encode(challenge + GY_CHALLENGE_SIGNED, response);
    send_exactly(fd, response, sizeof response);
    assert_int_equal(bare_rejected(&w, fd, text), GYRE_ERR_AUTH);
    assert_non_null(strstr(text, "rank 3 failed the challenge"));
    assert_int_equal(gy_net_refused(e, text, sizeof text), 1);
    assert_int_equal(acc.n, 0);
    close(fd);
    world_close(&w);
  }
}

/* Any byte of hello or challenge that changes on the way spoils the proof. */
static void test_transcript_is_covered(void **state) {
  (void)state;
  struct gy_secret s = secret_of("sesame");
  struct gy_handshake dialler, acceptor;
  for (size_t i = 0; i < GY_HELLO_BYTES + GY_CHALLENGE_SIGNED; i++) {
    enum gy_handshake_event event;
    assert_int_equal(gy_handshake_dial(&dialler, &ident, &s), GYRE_OK);
    gy_handshake_accept(&acceptor);
    memcpy(acceptor.in, dialler.out, GY_HELLO_BYTES);
    if (i < GY_HELLO_BYTES) acceptor.in[i] ^= 2;
    event = gy_handshake_take(&acceptor, GY_HELLO_BYTES);
    if (event != GY_EVENT_HELLO || gy_handshake_challenge(&acceptor, &s) != GYRE_OK)
      continue; /* seen even earlier */
    memcpy(dialler.in, acceptor.out, GY_CHALLENGE_BYTES);
    if (i >= GY_HELLO_BYTES) dialler.in[i - GY_HELLO_BYTES] ^= 2;
    assert_int_equal(gy_handshake_take(&dialler, GY_CHALLENGE_BYTES), GY_EVENT_FAILED);
  }
}

static void test_without_secret_only_loopback(void **state) {
  (void)state;
  struct world w;
  struct dialled dl = {0};
  struct gy_address to[2] = {at("192.0.2.77", 7000), at("fd00::77", 7000)};
  const struct gy_dial_target by_address = {.candidate = to, .n_candidate = 2},
                              by_host = {.host = "192.0.2.77", .port = 7000};
  world_open(&w);
  assert_int_equal(gy_dial_start(w.d, &by_address, &ident, &no_secret, 100, on_dialled, &dl, &dl.dial),
                   GYRE_ERR_AUTH);
  assert_string_equal(gyre_last_error(), "without a secret only loopback is allowed; set "
                                         "GYRE_SECRET or GYRE_SECRET_FILE on every rank");
  assert_int_equal(gy_dial_start(w.d, &by_host, &ident, &no_secret, 100, on_dialled, &dl, &dl.dial),
                   GYRE_ERR_AUTH);
  assert_null(dl.dial);
  world_close(&w);
  assert_int_equal(dl.n, 0);
}

/* ------------------------------------------------------------------------------ strangers --- */

static void test_port_scan(void **state) {
  (void)state;
  enum { SCANS = 40 };
  struct world w;
  struct accepted acc = {0};
  struct dialled dl;
  struct gy_secret s = secret_of("sesame");
  struct gy_handshake h;
  int fd[SCANS];
  world_open(&w);
  w.accepting.connect_timeout_ms = 400; /* caps the deadline for silence, too */
  struct gy_expect *e = expect(&w, &ident, &s, &acc);
  uint16_t port = listen_on(&w, "127.0.0.1");
  for (int i = 0; i < SCANS; i++) {
    uint8_t noise[1000];
    fd[i] = bare_connect(port);
    assert_int_equal(gy_random(noise, sizeof noise), GYRE_OK);
    noise[0] |= 0x80; /* never by chance the right magic */
    assert_int_equal(gy_handshake_dial(&h, &ident, &s), GYRE_OK);
    switch (i % 4) {
      case 0: send_exactly(fd[i], noise, sizeof noise); break;
      case 1: send_exactly(fd[i], h.out, GY_HELLO_BYTES / 2); break;
      case 2: send_exactly(fd[i], "GET / HTTP/1.0\r\n\r\n", 18); break;
      default: break; /* silence */
    }
  }
  struct gy_address to = at("127.0.0.1", port);
  dial(&w, &to, 1, &ident, &s, 20000, &dl);
  RUN_UNTIL(&w, dl.n == 1 && acc.n == 1);
  assert_int_equal(dl.status, GYRE_OK);
  check_joined(&acc.conn[0], &dl.conn);
  for (int i = 0; i < SCANS; i++) { /* every one is closed, without an answer */
    uint8_t byte;
    assert_int_equal(recv_looping(&w, fd[i], &byte, 1), 0);
    close(fd[i]);
  }
  char text[64];
  assert_int_equal(gy_net_refused(e, text, sizeof text), 0);
  close(acc.conn[0].fd);
  close(dl.conn.fd);
  world_close(&w);
}

/* More silent strangers than the limit: the oldest make room, and an honest peer gets in. */
static void test_flood_of_silence(void **state) {
  (void)state;
  enum { FLOOD = 1100 };
  struct world w;
  struct accepted acc = {0};
  struct dialled dl;
  struct rlimit old, raised;
  static int fd[FLOOD];
  int closed = 0;
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
  raised = old;
  raised.rlim_cur = raised.rlim_max;
  if (raised.rlim_max < 2 * FLOOD + 100 || setrlimit(RLIMIT_NOFILE, &raised) != 0) skip();
  world_open(&w);
  expect(&w, &ident, &no_secret, &acc);
  uint16_t port = listen_on(&w, "127.0.0.1");
  for (int i = 0; i < FLOOD; i++) {
    fd[i] = bare_connect(port);
    if (i % 50 == 0) uv_run(&w.loop, UV_RUN_NOWAIT);
  }
  struct gy_address to = at("127.0.0.1", port);
  dial(&w, &to, 1, &ident, &no_secret, 20000, &dl);
  RUN_UNTIL(&w, dl.n == 1 && acc.n == 1);
  assert_int_equal(dl.status, GYRE_OK);
  for (int i = 0; i < FLOOD; i++) {
    char byte;
    bool gone = recv(fd[i], &byte, 1, MSG_DONTWAIT) == 0;
    if (gone) assert_int_equal(i, closed); /* the oldest went first */
    closed += gone;
    close(fd[i]);
  }
  assert_in_range(closed, FLOOD - 1024, FLOOD - 1024 + 1);
  close(acc.conn[0].fd);
  close(dl.conn.fd);
  world_close(&w);
  setrlimit(RLIMIT_NOFILE, &old);
}

static void test_out_of_descriptors(void **state) {
  (void)state;
  struct world w;
  struct accepted acc = {0};
  struct rlimit old, low;
  struct gy_handshake h;
  world_open(&w);
  expect(&w, &ident, &no_secret, &acc);
  int fd = bare_connect(listen_on(&w, "127.0.0.1"));
  assert_int_equal(gy_handshake_dial(&h, &ident, &no_secret), GYRE_OK);
  send_exactly(fd, h.out, h.out_len);
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
  low = old;
  int first_free = dup(0);
  close(first_free);
  low.rlim_cur = (rlim_t)first_free;
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
  uv_timer_t t;
  bool over = false;
  int passes = 0;
  uv_update_time(&w.loop);
  uv_timer_init(&w.loop, &t);
  t.data = &over;
  uv_timer_start(&t, on_wake, 350, 0);
  while (!over && passes < 100000) {
    uv_run(&w.loop, UV_RUN_ONCE);
    passes++;
  }
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
  assert_in_range(passes, 1, 30); /* a pause of 100 ms each: it does not spin */
  uv_close((uv_handle_t *)&t, on_timer_gone);
  uint8_t challenge[GY_CHALLENGE_BYTES]; /* and it recovers by itself */
  assert_int_equal(recv_looping(&w, fd, challenge, sizeof challenge), sizeof challenge);
  close(fd);
  world_close(&w);
}

static void test_version(void **state) {
  (void)state;
  struct world w;
  struct accepted acc = {0};
  struct dialled dl;
  struct gy_hello hello = {.min_version = 7, .max_version = 9, .id = ident};
  uint8_t message[GY_REJECT_BYTES];
  char text[GY_REJECT_TEXT + 1];
  uint16_t port;
  struct gy_handshake h;
  world_open(&w);
  struct gy_expect *e = expect(&w, &ident, &no_secret, &acc);
  int fd = bare_connect(listen_on(&w, "127.0.0.1"));
  gy_hello_encode(&hello, message);
  send_exactly(fd, message, GY_HELLO_BYTES);
  assert_int_equal(bare_rejected(&w, fd, text), GYRE_ERR_VERSION);
  assert_non_null(strstr(text, "7 to 9"));
  assert_non_null(strstr(text, "1 to 1"));
  assert_int_equal(gy_net_refused(e, text, sizeof text), 1);
  close(fd);

  /* The same seen from the dialler: an acceptor of another version. */
  int listener = bare_listen(&port);
  struct gy_address to = at("127.0.0.1", port);
  dial(&w, &to, 1, &ident, &no_secret, 20000, &dl);
  fd = bare_accept(&w, listener);
  assert_int_equal(recv_looping(&w, fd, h.in, GY_HELLO_BYTES), GY_HELLO_BYTES);
  gy_reject_encode(GYRE_ERR_VERSION, "the dialler speaks 1 to 1, the other end 7 to 9", message);
  send_exactly(fd, message, sizeof message);
  RUN_UNTIL(&w, dl.n == 1);
  assert_int_equal(dl.status, GYRE_ERR_VERSION);
  assert_non_null(strstr(dl.text, "7 to 9"));
  close(fd);

  /* One that overlaps with ours is served with what both speak. */
  hello.min_version = 0;
  fd = bare_connect(listen_on(&w, "127.0.0.1"));
  gy_hello_encode(&hello, message);
  send_exactly(fd, message, GY_HELLO_BYTES);
  assert_int_equal(recv_looping(&w, fd, message, GY_CHALLENGE_BYTES), GY_CHALLENGE_BYTES);
  assert_int_equal(message[6] | message[7] << 8, 1);
  close(fd);
  close(listener);
  world_close(&w);
}

/* -------------------------------------------------------------------- parking and matching --- */

static void test_early_arrival_is_parked(void **state) {
  (void)state;
  struct world w;
  struct accepted acc = {0};
  struct dialled dl[3];
  struct gy_identity id = ident;
  world_open(&w);
  struct gy_address to = at("127.0.0.1", listen_on(&w, "127.0.0.1"));
  for (int i = 0; i < 3; i++) {
    id.from = i;
    dial(&w, &to, 1, &id, &no_secret, 20000, &dl[i]);
    run_for(&w, 30);
  }
  assert_int_equal(dl[0].n + dl[1].n + dl[2].n, 0);
  expect(&w, &ident, &no_secret, &acc);
  assert_int_equal(acc.n, 0); /* never inside the call */
  RUN_UNTIL(&w, acc.n == 3 && dl[0].n + dl[1].n + dl[2].n == 3);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(dl[i].status, GYRE_OK);
    assert_int_equal(acc.conn[i].id.from, i); /* in order of arrival */
    close(acc.conn[i].fd);
    close(dl[i].conn.fd);
  }
  world_close(&w);
}

static void test_wrong_key_is_never_delivered(void **state) {
  (void)state;
  struct world w;
  struct accepted acc = {0};
  struct dialled dl[3];
  struct gy_identity id[3] = {ident, ident, ident};
  world_open(&w);
  w.accepting.connect_timeout_ms = 60;
  struct gy_expect *e = expect(&w, &ident, &no_secret, &acc);
  struct gy_address to = at("127.0.0.1", listen_on(&w, "127.0.0.1"));
  id[0].key[GY_KEY_BYTES - 1] ^= 1;
  id[1].kind = GY_CONN_CONTROL;
  id[2].to = 2;
  for (int i = 0; i < 3; i++) dial(&w, &to, 1, &id[i], &no_secret, 300, &dl[i]);
  RUN_UNTIL(&w, dl[0].n + dl[1].n + dl[2].n == 3);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(dl[i].status,
                     GYRE_ERR_TIMEOUT); /* having been told TIMEOUT, and tried again, until the end */
    assert_non_null(strstr(dl[i].text, "tries"));
  }
  assert_int_equal(acc.n, 0);
  gy_net_unexpect(e);
  world_close(&w);
}

static void test_parked_too_long_is_told(void **state) {
  (void)state;
  struct world w;
  struct gy_handshake h;
  char text[GY_REJECT_TEXT + 1];
  world_open(&w);
  w.accepting.connect_timeout_ms = 50;
  int fd = bare_connect(listen_on(&w, "127.0.0.1"));
  assert_int_equal(gy_handshake_dial(&h, &ident, &no_secret), GYRE_OK);
  send_exactly(fd, h.out, h.out_len);
  assert_int_equal(bare_rejected(&w, fd, text), GYRE_ERR_TIMEOUT);
  assert_non_null(strstr(text, "data connection from rank 3 to rank 1"));
  close(fd);
  world_close(&w);
}

static void test_several_ranks_in_one_process(void **state) {
  (void)state;
  struct world w;
  struct accepted acc[2] = {{0}, {0}};
  struct dialled dl[2];
  struct gy_identity id[2] = {ident, ident};
  struct gy_expect *e = NULL;
  world_open(&w);
  id[1].to = 2;
  for (int i = 0; i < 2; i++) expect(&w, &id[i], &no_secret, &acc[i]);
  assert_int_equal(gy_net_expect(w.a, GY_CONN_DATA, ident.key, 2, &no_secret, on_accept, &acc[0], &e),
                   GYRE_ERR_ARG);
  assert_null(e);
  struct gy_address to = at("127.0.0.1", listen_on(&w, "127.0.0.1"));
  for (int i = 0; i < 2; i++) dial(&w, &to, 1, &id[i], &no_secret, 20000, &dl[i]);
  RUN_UNTIL(&w, acc[0].n == 1 && acc[1].n == 1 && dl[0].n + dl[1].n == 2);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(acc[i].conn[0].id.to, id[i].to);
    check_joined(&acc[i].conn[0], &dl[i].conn);
    close(acc[i].conn[0].fd);
    close(dl[i].conn.fd);
  }
  world_close(&w);
}

static void test_refusal_by_the_callback(void **state) {
  (void)state;
  struct world w;
  struct accepted acc = {.refuse = GYRE_ERR_MISMATCH};
  struct dialled dl;
  world_open(&w);
  expect(&w, &ident, &no_secret, &acc);
  struct gy_address to[2] = {at("127.0.0.1", listen_on(&w, "127.0.0.1")), at("127.0.0.1", 1)};
  dial(&w, to, 2, &ident, &no_secret, 20000, &dl);
  RUN_UNTIL(&w, dl.n == 1);
  assert_int_equal(dl.status, GYRE_ERR_MISMATCH);
  assert_non_null(strstr(dl.text, "slice_bytes is 65536 here and 4096 there"));
  assert_non_null(strstr(dl.text, "rank 3 dialling rank 1"));
  world_close(&w);
}

static void test_unexpect_in_the_handshake(void **state) {
  (void)state;
  struct world w;
  struct accepted acc = {0};
  struct gy_handshake h;
  char text[GY_REJECT_TEXT + 1];
  world_open(&w);
  struct gy_expect *e = expect(&w, &ident, &no_secret, &acc);
  int fd = bare_dial(&w, listen_on(&w, "127.0.0.1"), &no_secret, &h);
  gy_net_unexpect(e);
  assert_int_equal(gy_handshake_respond(&h), GYRE_OK);
  send_exactly(fd, h.out, h.out_len);
  assert_int_equal(bare_rejected(&w, fd, text), GYRE_ERR_ABORTED);
  assert_int_equal(acc.n, 0);
  close(fd);
  world_close(&w);
}

/* -------------------------------------------------------------------------------- dialling --- */

static void test_dial_deadline(void **state) {
  (void)state;
  struct world w;
  struct dialled dl;
  uint16_t port;
  char text[GY_ADDRESS_TEXT];
  world_open(&w);
  int listener = bare_listen(&port); /* never accepts: the kernel does, and nobody answers */
  struct gy_address to[2] = {at("127.0.0.1", port), at("127.0.0.1", 1)};
  dial(&w, to, 2, &ident, &no_secret, 400, &dl);
  uint64_t begin = uv_hrtime();
  RUN_UNTIL(&w, dl.n == 1);
  assert_true(uv_hrtime() - begin >= 390 * 1000000ull);
  assert_int_equal(dl.status, GYRE_ERR_TIMEOUT);
  assert_non_null(strstr(dl.text, gy_address_text(&to[0], text)));
  assert_non_null(strstr(dl.text, "does not answer"));
  assert_non_null(strstr(dl.text, "127.0.0.1:1 ("));
  assert_non_null(strstr(dl.text, "Connection refused"));
  assert_non_null(strstr(dl.text, "0.4 s"));
  close(listener);
  world_close(&w);
}

static void test_refused_until_it_appears(void **state) {
  (void)state;
  struct world w;
  struct accepted acc = {0};
  struct dialled dl;
  struct gy_listen *l;
  uint16_t port;
  world_open(&w);
  expect(&w, &ident, &no_secret, &acc);
  close(bare_listen(&port));
  struct gy_address to = at("127.0.0.1", port);
  dial(&w, &to, 1, &ident, &no_secret, 20000, &dl);
  run_for(&w, 100);
  assert_int_equal(dl.n, 0);
  assert_int_equal(gy_net_listen_at(w.a, &to, &l), GYRE_OK);
  RUN_UNTIL(&w, dl.n == 1 && acc.n == 1);
  assert_int_equal(dl.status, GYRE_OK);
  close(acc.conn[0].fd);
  close(dl.conn.fd);
  world_close(&w);
}

/* A stranger behind the first address does not keep the dialler from the second, whether it is
 * silent, talks something else or belongs to another job. */
static void test_stranger_behind_an_address(void **state) {
  (void)state;
  for (int kind = 0; kind < 3; kind++) {
    struct world w;
    struct accepted acc = {0};
    struct dialled dl;
    struct gy_secret s = secret_of("sesame"), other = secret_of("other");
    struct gy_handshake h;
    uint16_t port;
    int fd = -1;
    world_open(&w);
    expect(&w, &ident, &s, &acc);
    int listener = bare_listen(&port);
    struct gy_address to[2] = {at("127.0.0.1", port), at("127.0.0.1", listen_on(&w, "127.0.0.1"))};
    dial(&w, to, 2, &ident, &s, 20000, &dl);
    if (kind == 1) {
      fd = bare_accept(&w, listener);
      send_exactly(fd, "220 mail.example ESMTP\r\n", 24);
    } else if (kind == 2) {
      fd = bare_challenge(&w, listener, &other, &h);
    }
    RUN_UNTIL(&w, dl.n == 1 && acc.n == 1);
    assert_int_equal(dl.status, GYRE_OK);
    assert_int_equal(gy_address_port(&dl.conn.peer), gy_address_port(&to[1]));
    if (fd >= 0) close(fd);
    close(listener);
    close(acc.conn[0].fd);
    close(dl.conn.fd);
    world_close(&w);
  }
}

/* Two addresses of one acceptor that comes late: both are parked there, one is delivered. */
static void test_race_delivers_once(void **state) {
  (void)state;
  struct world w;
  struct accepted acc = {0};
  struct dialled dl;
  char text[64];
  world_open(&w);
  struct gy_address to[2] = {at("127.0.0.1", listen_on(&w, "127.0.0.1")),
                             at("::1", listen_on(&w, "::1"))};
  dial(&w, to, 2, &ident, &no_secret, 20000, &dl);
  run_for(&w, 330); /* past the stagger */
  struct gy_expect *e = expect(&w, &ident, &no_secret, &acc);
  RUN_UNTIL(&w, dl.n == 1 && acc.n == 1);
  run_for(&w, 50);
  assert_int_equal(acc.n, 1);
  assert_int_equal(dl.n, 1);
  assert_int_equal(dl.status, GYRE_OK);
  check_joined(&acc.conn[0], &dl.conn);
  assert_int_equal(gy_net_refused(e, text, sizeof text), 0); /* the one that gave way is no failure */
  close(acc.conn[0].fd);
  close(dl.conn.fd);
  world_close(&w);
}

static void test_acceptor_dies_after_the_proof(void **state) {
  (void)state;
  struct world w;
  struct dialled dl;
  struct gy_handshake h;
  uint16_t port;
  world_open(&w);
  int listener = bare_listen(&port);
  struct gy_address to = at("127.0.0.1", port);
  dial(&w, &to, 1, &ident, &no_secret, 20000, &dl);
  for (int i = 0; i < 2; i++) { /* the first one hangs up: it is dialled again */
    int fd = bare_challenge(&w, listener, &no_secret, &h);
    assert_int_equal(recv_looping(&w, fd, h.in, GY_RESPONSE_BYTES), GY_RESPONSE_BYTES);
    uint8_t welcome[GY_WELCOME_BYTES];
    gy_welcome_encode(welcome);
    if (i == 1) send_exactly(fd, welcome, sizeof welcome);
    close(fd);
  }
  RUN_UNTIL(&w, dl.n == 1);
  assert_int_equal(dl.status, GYRE_OK);
  close(dl.conn.fd);
  close(listener);
  world_close(&w);
}

/* ------------------------------------------------------------------------------- listening --- */

static void test_one_port_everywhere(void **state) {
  (void)state;
  struct world w;
  struct gy_address out[GY_ADDRESS_MAX], v6 = at("::1", 0);
  struct dialled dl;
  struct accepted acc = {0};
  world_open(&w);
  int blocker = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (blocker < 0 || bind(blocker, &v6.sa.any, gy_address_len(&v6)) != 0) skip();
  assert_int_equal(listen(blocker, 1), 0);
  assert_int_equal(gy_address_local(blocker, &v6), GYRE_OK);
  unsigned taken = gy_address_port(&v6);
  if (taken > 65000) skip();

  gy_format(w.accepting.port, sizeof w.accepting.port, "%u", taken);
  assert_int_equal(gy_net_listen(w.a, false), GYRE_ERR_SYS); /* free on 127.0.0.1, but not on ::1 */
  assert_int_equal(gy_net_advertised(w.a, out), 0);
  gy_format(w.accepting.port, sizeof w.accepting.port, "%u-%u", taken, taken + 400);
  assert_int_equal(gy_net_listen(w.a, false), GYRE_OK);
  size_t n = gy_net_advertised(w.a, out);
  assert_int_equal(n, 2);
  assert_true(gy_address_port(&out[0]) > taken);
  for (size_t i = 0; i < n; i++) {
    assert_true(gy_address_is_loopback(&out[i]));
    assert_int_equal(gy_address_port(&out[i]), gy_address_port(&out[0]));
  }
  assert_int_equal(gy_net_listen(w.a, false), GYRE_OK); /* nothing more to do */
  assert_int_equal(gy_net_advertised(w.a, out), 2);
  expect(&w, &ident, &no_secret, &acc);
  for (size_t i = 0; i < n; i++) {
    dial(&w, &out[i], 1, &ident, &no_secret, 20000, &dl);
    RUN_UNTIL(&w, dl.n == 1 && acc.n == (int)i + 1);
    close(acc.conn[i].fd);
    close(dl.conn.fd);
  }
  assert_int_equal(gy_net_listen(w.a, true),
                   GYRE_OK); /* with a secret: the other addresses, too, on the same port */
  size_t all = gy_net_advertised(w.a, out);
  assert_true(all >= n);
  for (size_t i = 0; i < all; i++)
    assert_int_equal(gy_address_port(&out[i]), gy_address_port(&out[0]));
  close(blocker);
  world_close(&w);
}

static void test_any_port_and_bad_range(void **state) {
  (void)state;
  static const char *const bad[] = {"0", "70000", "7-", "-7", "9-7", "7-70000", "x", "7x", "7-8-9"};
  struct world w;
  struct gy_address out[GY_ADDRESS_MAX];
  world_open(&w);
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    gy_format(w.accepting.port, sizeof w.accepting.port, "%s", bad[i]);
    assert_int_equal(gy_net_listen(w.a, false), GYRE_ERR_ARG);
    assert_non_null(strstr(gyre_last_error(), "first[-last]"));
  }
  w.accepting.port[0] = '\0';
  assert_int_equal(gy_net_listen(w.a, false), GYRE_OK);
  assert_true(gy_net_advertised(w.a, out) >= 1);
  assert_true(gy_address_port(&out[0]) != 0);
  world_close(&w);
}

static void test_advertise(void **state) {
  (void)state;
  struct world w;
  struct gy_address out[GY_ADDRESS_MAX], bound[GY_ADDRESS_MAX];
  char text[GY_ADDRESS_TEXT], own[GY_ADDRESS_TEXT];
  world_open(&w);
  gy_format(w.accepting.advertise, sizeof w.accepting.advertise, "node1.example:7000");
  assert_int_equal(gy_net_listen(w.a, false), GYRE_ERR_ARG);
  assert_non_null(strstr(gyre_last_error(), "GYRE_ADVERTISE=node1.example:7000"));
  w.accepting.advertise[0] = '\0';
  assert_int_equal(gy_net_listen(w.a, false), GYRE_OK);
  size_t n = gy_net_advertised(w.a, bound); /* loopback only, without a secret */
  assert_true(n >= 1);
  gy_format(w.accepting.advertise, sizeof w.accepting.advertise, "203.0.113.9:7000");
  assert_int_equal(gy_net_advertised(w.a, out), n + 1); /* the ranks of this host use loopback */
  assert_string_equal(gy_address_text(&out[0], text), "203.0.113.9:7000");
  assert_string_equal(gy_address_text(&out[1], text), gy_address_text(&bound[0], own));
  gy_format(w.accepting.advertise, sizeof w.accepting.advertise, "[2001:db8::9]");
  assert_int_equal(gy_net_advertised(w.a, out), n + 1);
  gy_format(own, sizeof own, "[2001:db8::9]:%u", (unsigned)gy_address_port(&bound[0]));
  assert_string_equal(gy_address_text(&out[0], text), own);
  world_close(&w);
}

static void test_rendezvous_listener(void **state) {
  (void)state;
  struct world w;
  struct gy_listen *one, *two, *three;
  char text[GY_ADDRESS_TEXT];
  world_open(&w);
  uint16_t port;
  close(bare_listen(&port));
  struct gy_address here = at("127.0.0.1", port), away = at("192.0.2.213", port);
  assert_int_equal(gy_net_listen_at(w.a, &here, &one), GYRE_OK);
  assert_int_equal(gy_net_listen_at(w.a, &here, &two), GYRE_OK);
  assert_ptr_equal(one, two);
  assert_int_equal(gy_net_listen_at(w.d, &here, &three),
                   GYRE_ERR_SYS); /* another net is like another process */
  assert_non_null(strstr(gyre_last_error(), gy_address_text(&here, text)));
  assert_non_null(strstr(gyre_last_error(), "choose another port"));
  assert_int_equal(gy_net_listen_at(w.d, &away, &three), GYRE_ERR_SYS);
  assert_non_null(strstr(gyre_last_error(), "does not have that address"));
  gy_net_unlisten(one);
  close(bare_connect(port)); /* still there */
  gy_net_unlisten(two);
  assert_int_equal(gy_net_listen_at(w.d, &here, &three), GYRE_OK);
  world_close(&w);
}

/* ------------------------------------------------------------------------------ the end --- */

static void test_linger_delivers_the_tail(void **state) {
  (void)state;
  enum { TAIL = 1 << 20 };
  struct world w;
  uint8_t *tail = malloc(TAIL), *got = malloc(TAIL + 1);
  size_t have = 0;
  int fd[2], small = 65536;
  world_open(&w);
  tcp_pair(fd);
  setsockopt(fd[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  setsockopt(fd[1], SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  for (size_t i = 0; i < TAIL; i++) tail[i] = (uint8_t)(i * 7 + (i >> 11));
  send_exactly(fd[1], "unread", 6); /* closing with this unread would reset the connection */
  gy_net_linger(w.a, fd[0], tail, TAIL, 20000);
  memset(tail, 0, 16); /* it was copied */
  assert_int_equal(gy_net_lingering(w.a), 1);
  for (;;) {
    uv_run(&w.loop, UV_RUN_NOWAIT);
    if (have % 3 == 0) send_exactly(fd[1], "more", 4);
    ssize_t n =
        recv(fd[1], got + have, TAIL + 1 - have < 30001 ? TAIL + 1 - have : 30001, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) {
      run_for(&w, 1);
      continue;
    }
    assert_true(n >= 0);
    if (n == 0) break;
    have += (size_t)n;
  }
  assert_int_equal(have, TAIL);
  for (size_t i = 0; i < TAIL; i++)
    if (got[i] != (uint8_t)(i * 7 + (i >> 11))) fail_msg("byte %zu differs", i);
  assert_int_equal(gy_net_lingering(w.a), 1); /* until the peer is done as well */
  close(fd[1]);
  RUN_UNTIL(&w, gy_net_lingering(w.a) == 0);
  free(tail);
  free(got);
  world_close(&w);
}

static void test_linger_ends(void **state) {
  (void)state;
  static char tail[8 << 20];
  struct world w;
  int fd[2];
  world_open(&w);
  tcp_pair(fd);
  gy_net_linger(w.a, fd[0], tail, sizeof tail, 60); /* the peer reads nothing */
  assert_int_equal(gy_net_lingering(w.a), 1);
  RUN_UNTIL(&w, gy_net_lingering(w.a) == 0);
  close(fd[1]);
  tcp_pair(fd);
  close(fd[1]);
  gy_net_linger(w.a, fd[0], tail, sizeof tail, 20000); /* the peer is gone: no signal, no wait */
  RUN_UNTIL(&w, gy_net_lingering(w.a) == 0);
  world_close(&w);
}

static void test_rounds_leave_nothing(void **state) {
  (void)state;
  struct world w;
  struct gy_secret s = secret_of("sesame"), other = secret_of("other");
  world_open(&w);
  struct gy_address to = at("127.0.0.1", listen_on(&w, "127.0.0.1"));
  int before = count_fds();
  for (int i = 0; i < 300; i++) {
    struct accepted acc = {0};
    struct dialled dl;
    struct gy_expect *e = expect(&w, &ident, &s, &acc);
    dial(&w, &to, 1, &ident, i % 10 == 9 ? &other : &s, 20000, &dl);
    RUN_UNTIL(&w, dl.n == 1 && (dl.status != GYRE_OK || acc.n == 1));
    assert_int_equal(dl.status, i % 10 == 9 ? GYRE_ERR_AUTH : GYRE_OK);
    if (acc.n == 1) close(acc.conn[0].fd);
    if (dl.status == GYRE_OK) close(dl.conn.fd);
    gy_net_unexpect(e);
  }
  RUN_UNTIL(&w, gy_net_lingering(w.a) + gy_net_lingering(w.d) == 0);
  assert_int_equal(count_fds(), before);
  world_close(&w);
}

static void test_cancel(void **state) {
  (void)state;
  struct world w;
  struct accepted acc = {0};
  struct dialled dl;
  world_open(&w);
  struct gy_address to = at("127.0.0.1", listen_on(&w, "127.0.0.1"));
  dial(&w, &to, 1, &ident, &no_secret, 20000, &dl);
  gy_dial_cancel(dl.dial); /* before anything has begun */
  dial(&w, &to, 1, &ident, &no_secret, 20000, &dl);
  run_for(&w, 20);
  gy_dial_cancel(dl.dial); /* while parked there */
  run_for(&w, 20);
  expect(&w, &ident, &no_secret, &acc);
  run_for(&w, 20);
  assert_int_equal(dl.n, 0);
  assert_int_equal(acc.n, 0);
  world_close(&w);
}

static void test_close_with_everything_in_flight(void **state) {
  (void)state;
  static char tail[4 << 20];
  int before = count_fds();
  for (int passes = 0; passes < 6; passes++) {
    struct world w;
    struct accepted acc = {0};
    struct dialled dl[5];
    struct gy_secret s = secret_of("sesame");
    struct gy_identity other = ident;
    struct gy_handshake h;
    uint16_t silent_port;
    int fd[2];
    world_open(&w);
    other.to = 9;
    int silent = bare_listen(&silent_port);
    uint16_t port = listen_on(&w, "127.0.0.1");
    assert_int_equal(gy_net_listen(w.a, true), GYRE_OK);
    expect(&w, &ident, &s, &acc);
    struct gy_address good = at("127.0.0.1", port), refused = at("127.0.0.1", 1),
                      mute[2] = {at("127.0.0.1", silent_port), at("::1", silent_port)};
    dial(&w, &good, 1, &other, &s, 20000, &dl[0]); /* parked */
    dial(&w, &refused, 1, &ident, &s, 20000, &dl[1]);
    dial(&w, mute, 2, &ident, &s, 20000, &dl[2]);
    const struct gy_dial_target named = {.host = "localhost", .port = 1};
    for (int i = 3; i < 5; i++) {
      memset(&dl[i], 0, sizeof dl[i]);
      assert_int_equal(
          gy_dial_start(w.d, &named, &ident, &s, 20000, on_dialled, &dl[i], &dl[i].dial), GYRE_OK);
    }
    int half = bare_connect(port), challenged = bare_connect(port);
    assert_int_equal(gy_handshake_dial(&h, &ident, &s), GYRE_OK);
    send_exactly(half, h.out, 11);
    send_exactly(challenged, h.out, h.out_len);
    tcp_pair(fd);
    gy_net_linger(w.a, fd[0], tail, sizeof tail, 20000);
    for (int i = 0; i < passes; i++) uv_run(&w.loop, UV_RUN_NOWAIT);
    world_close(&w);
    for (int i = 0; i < 5; i++) assert_int_equal(dl[i].n, 0);
    assert_int_equal(acc.n, 0);
    close(half);
    close(challenged);
    close(fd[1]);
    close(silent);
  }
  assert_int_equal(count_fds(), before);
}

struct closing_user {
  struct world *w;
  int n;
};
static void close_in_callback(void *user, gyre_status status, const struct gy_conn *conn) {
  struct closing_user *c = user;
  assert_int_equal(status, GYRE_OK);
  c->n++;
  close(conn->fd);
  gy_net_close(c->w->d, on_closed, &c->w->closed);
}
static gyre_status close_in_accept(void *user, const struct gy_conn *conn) {
  struct closing_user *c = user;
  c->n++;
  (void)conn;
  gy_net_close(c->w->a, on_closed, &c->w->closed);
  return gy_fail(GYRE_ERR_ABORTED, "closing");
}

static void test_close_inside_callbacks(void **state) {
  (void)state;
  for (int side = 0; side < 2; side++) {
    struct world w;
    struct accepted acc = {0};
    struct closing_user user = {.w = &w};
    struct dialled dl;
    struct gy_dial *d;
    struct gy_expect *e;
    world_open(&w);
    struct gy_address to = at("127.0.0.1", listen_on(&w, "127.0.0.1"));
    const struct gy_dial_target target = {.candidate = &to, .n_candidate = 1};
    if (side == 0) {
      expect(&w, &ident, &no_secret, &acc);
      assert_int_equal(
          gy_dial_start(w.d, &target, &ident, &no_secret, 20000, close_in_callback, &user, &d),
          GYRE_OK);
    } else {
      assert_int_equal(gy_net_expect(w.a, GY_CONN_DATA, ident.key, ident.to, &no_secret,
                                     close_in_accept, &user, &e),
                       GYRE_OK);
      dial(&w, &to, 1, &ident, &no_secret, 20000, &dl);
    }
    RUN_UNTIL(&w, w.closed == 1);
    assert_int_equal(user.n, 1);
    gy_net_close(side == 0 ? w.a : w.d, on_closed, &w.closed);
    RUN_UNTIL(&w, w.closed == 2);
    if (acc.n == 1) close(acc.conn[0].fd);
    uv_close((uv_handle_t *)&w.limit, NULL);
    uv_run(&w.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w.loop), 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_handshake_v4),
      cmocka_unit_test(test_handshake_v6),
      cmocka_unit_test(test_name_is_resolved),
      cmocka_unit_test(test_unknown_name_times_out),
      cmocka_unit_test(test_no_byte_beyond_the_handshake),
      cmocka_unit_test(test_wrong_secret),
      cmocka_unit_test(test_missing_secret),
      cmocka_unit_test(test_false_proofs),
      cmocka_unit_test(test_transcript_is_covered),
      cmocka_unit_test(test_without_secret_only_loopback),
      cmocka_unit_test(test_port_scan),
      cmocka_unit_test(test_flood_of_silence),
      cmocka_unit_test(test_out_of_descriptors),
      cmocka_unit_test(test_version),
      cmocka_unit_test(test_early_arrival_is_parked),
      cmocka_unit_test(test_wrong_key_is_never_delivered),
      cmocka_unit_test(test_parked_too_long_is_told),
      cmocka_unit_test(test_several_ranks_in_one_process),
      cmocka_unit_test(test_refusal_by_the_callback),
      cmocka_unit_test(test_unexpect_in_the_handshake),
      cmocka_unit_test(test_dial_deadline),
      cmocka_unit_test(test_refused_until_it_appears),
      cmocka_unit_test(test_stranger_behind_an_address),
      cmocka_unit_test(test_race_delivers_once),
      cmocka_unit_test(test_acceptor_dies_after_the_proof),
      cmocka_unit_test(test_one_port_everywhere),
      cmocka_unit_test(test_any_port_and_bad_range),
      cmocka_unit_test(test_advertise),
      cmocka_unit_test(test_rendezvous_listener),
      cmocka_unit_test(test_linger_delivers_the_tail),
      cmocka_unit_test(test_linger_ends),
      cmocka_unit_test(test_rounds_leave_nothing),
      cmocka_unit_test(test_cancel),
      cmocka_unit_test(test_close_with_everything_in_flight),
      cmocka_unit_test(test_close_inside_callbacks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

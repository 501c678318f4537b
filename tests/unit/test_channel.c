/* test_channel.c - typed messages over a socket: order, borders, queueing, what is delivered before
 * the end, and who may end a channel when. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>
#include "channel.h"
#include "status.h"

#define LOG_MAX 4096
#define WAIT_MS 20000 /* a test that waits longer has failed */

enum reaction { GO_ON, CLOSE, FINISH, REBIND, REPLY };

struct end { /* one side of a connection, and what has been heard there */
  struct gy_channel *ch;
  int n_message, n_closed, sys_errno;
  uint8_t type[LOG_MAX];
  size_t len[LOG_MAX];
  uint64_t sum[LOG_MAX];
  enum reaction react;
  struct end *heir;
  struct gy_net *net;
  bool in_send; /* nothing may be delivered meanwhile */
};

struct world {
  uv_loop_t loop;
  uv_timer_t limit;
  bool late;
};

static uint64_t sum_of(const uint8_t *data, size_t len) {
  uint64_t h = 1469598103934665603u;
  for (size_t i = 0; i < len; i++) h = (h ^ data[i]) * 1099511628211u;
  return h;
}

static const struct gy_channel_events events;

static void on_message(void *user, struct gy_channel *ch, uint8_t type, const void *body, size_t len) {
  struct end *e = user;
  assert_ptr_equal(ch, e->ch);
  assert_false(e->in_send);
  assert_int_equal(e->n_closed, 0);
  assert_true(e->n_message < LOG_MAX);
  e->type[e->n_message] = type;
  e->len[e->n_message] = len;
  e->sum[e->n_message++] = sum_of(body, len);
  switch (e->react) {
    case GO_ON: break;
    case CLOSE:
      e->ch = NULL;
      gy_channel_close(ch);
      break;
    case FINISH:
      e->ch = NULL;
      gy_channel_finish(ch, e->net, 1000);
      break;
    case REBIND:
      e->heir->ch = ch;
      gy_channel_rebind(ch, &events, e->heir);
      break;
    case REPLY:
      assert_int_equal(gy_channel_send(ch, (uint8_t)(type + 1), body, len), GYRE_OK);
      break;
  }
}

static void on_closed(void *user, struct gy_channel *ch, int sys_errno) {
  struct end *e = user;
  assert_ptr_equal(ch, e->ch);
  assert_false(e->in_send);
  e->n_closed++;
  e->sys_errno = sys_errno;
  if (e->react == CLOSE) {
    e->ch = NULL;
    gy_channel_close(ch);
  }
}

static const struct gy_channel_events events = {on_message, on_closed};

static void on_limit(uv_timer_t *timer) { ((struct world *)timer->data)->late = true; }

static void begin(struct world *w) {
  memset(w, 0, sizeof *w);
  assert_int_equal(uv_loop_init(&w->loop), 0);
  uv_timer_init(&w->loop, &w->limit);
  w->limit.data = w;
  uv_timer_start(&w->limit, on_limit, WAIT_MS, 0);
}

#define until(w, condition)          \
  while (!(condition)) {             \
    uv_run(&(w)->loop, UV_RUN_ONCE); \
    assert_false((w)->late);         \
  }

/* The memory of everything must be gone when the loop has run empty: uv_loop_close and
 * LeakSanitizer tell. */
static void finish(struct world *w) {
  uv_close((uv_handle_t *)&w->limit, NULL);
  uv_run(&w->loop, UV_RUN_DEFAULT);
  assert_int_equal(uv_loop_close(&w->loop), 0);
}

static void nonblocking(int fd) {
  assert_int_equal(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
}

/* A connected pair of TCP sockets, so that resets are real. */
static void connect_pair(int fd[2]) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t len = sizeof at;
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_true(listener >= 0);
  assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
  assert_int_equal(listen(listener, 1), 0);
  assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &len), 0);
  fd[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(connect(fd[0], (struct sockaddr *)&at, sizeof at), 0);
  fd[1] = accept(listener, NULL, NULL);
  assert_true(fd[1] >= 0);
  close(listener);
  nonblocking(fd[0]);
  nonblocking(fd[1]);
}

static void open_end(struct world *w, struct end *e, int fd) {
  struct gy_conn conn;
  memset(&conn, 0, sizeof conn);
  conn.fd = fd;
  assert_int_equal(gy_address_peer(fd, &conn.peer), GYRE_OK);
  assert_int_equal(gy_channel_open(&w->loop, &conn, &events, e, &e->ch), GYRE_OK);
}

/* An end with a channel, and the raw socket at its other side. */
static int open_raw(struct world *w, struct end *e) {
  int fd[2];
  connect_pair(fd);
  open_end(w, e, fd[0]);
  return fd[1];
}

static void open_both(struct world *w, struct end *a, struct end *b) {
  int fd[2];
  connect_pair(fd);
  open_end(w, a, fd[0]);
  open_end(w, b, fd[1]);
}

static void send_on(struct end *e, uint8_t type, const void *body, size_t len) {
  e->in_send = true;
  assert_int_equal(gy_channel_send(e->ch, type, body, len), GYRE_OK);
  e->in_send = false;
}

static uint8_t *pattern(size_t len, unsigned seed) {
  uint8_t *data = malloc(len ? len : 1);
  assert_non_null(data);
  for (size_t i = 0; i < len; i++) data[i] = (uint8_t)(i * 31 + (i >> 8) + seed);
  return data;
}

static void raw_write(int fd, const void *data, size_t len) {
  assert_int_equal(write(fd, data, len), (ssize_t)len);
}

/* ------------------------------------------------------------------------------------------- */

static void test_golden_frame(void **state) {
  (void)state;
  struct world w;
  struct end a = {0};
  uint8_t got[16];
  const uint8_t want[] = {3, 0, 0, 0, 7, 0, 0, 0, 'a', 'b', 'c'};
  begin(&w);
  int raw = open_raw(&w, &a);
  send_on(&a, 7, "abc", 3);
  uv_run(&w.loop, UV_RUN_NOWAIT);
  assert_int_equal(read(raw, got, sizeof got), sizeof want);
  assert_memory_equal(got, want, sizeof want);
  assert_non_null(strstr(gy_channel_peer(a.ch), "127.0.0.1:"));
  gy_channel_close(a.ch);
  close(raw);
  finish(&w);
}

static void test_sizes_in_order(void **state) {
  (void)state;
  static const size_t sizes[] = {0,    1,     2,     7,     8,      9,        4087, 4088,
                                 4089, 65535, 65536, 65537, 300000, 5u << 20, 0,    3};
  const int n = (int)(sizeof sizes / sizeof sizes[0]);
  struct world w;
  static struct end a, b;
  memset(&a, 0, sizeof a);
  memset(&b, 0, sizeof b);
  begin(&w);
  open_both(&w, &a, &b);
  for (int i = 0; i < n; i++) { /* far more than the socket takes: the rest queues */
    uint8_t *data = pattern(sizes[i], (unsigned)i);
    send_on(&a, (uint8_t)i, data, sizes[i]);
    free(data);
  }
  assert_int_equal(b.n_message, 0);
  until(&w, b.n_message == n);
  for (int i = 0; i < n; i++) {
    uint8_t *data = pattern(sizes[i], (unsigned)i);
    assert_int_equal(b.type[i], i);
    assert_int_equal(b.len[i], sizes[i]);
    assert_true(b.sum[i] == sum_of(data, sizes[i]));
    free(data);
  }
  assert_int_equal(b.n_closed, 0);
  gy_channel_close(a.ch);
  gy_channel_close(b.ch);
  finish(&w);
}

static void test_both_ways_at_once(void **state) {
  (void)state;
  enum { ROUNDS = 500 };
  struct world w;
  static struct end a, b;
  memset(&a, 0, sizeof a);
  memset(&b, 0, sizeof b);
  b.react = REPLY;
  begin(&w);
  open_both(&w, &a, &b);
  uint8_t *data = pattern(20000, 1);
  for (int i = 0; i < ROUNDS; i++) send_on(&a, 1, data, (size_t)(i * 37) % 20000);
  until(&w, a.n_message == ROUNDS);
  for (int i = 0; i < ROUNDS; i++) {
    assert_int_equal(a.type[i], 2);
    assert_int_equal(a.len[i], (i * 37) % 20000);
    assert_true(a.sum[i] == sum_of(data, a.len[i]));
  }
  free(data);
  gy_channel_close(a.ch);
  gy_channel_close(b.ch);
  finish(&w);
}

/* Every way of cutting the bytes gives the same messages. */
static void test_any_split(void **state) {
  (void)state;
  const uint8_t bytes[] = {2, 0, 0, 0, 1, 0, 0, 0, 'h', 'i', 0, 0, 0,  0,
                           2, 0, 0, 0, 1, 0, 0, 0, 3,   0,   0, 0, '!'};
  for (size_t cut = 0; cut <= sizeof bytes; cut++) {
    struct world w;
    struct end a = {0};
    begin(&w);
    int raw = open_raw(&w, &a);
    if (cut > 0) {
      raw_write(raw, bytes, cut);
      uint64_t before = gy_channel_last_heard(a.ch);
      uv_run(&w.loop, UV_RUN_ONCE);
      assert_true(gy_channel_last_heard(a.ch) >= before);
    }
    assert_int_equal(a.n_message, cut < 10 ? 0 : cut < 18 ? 1 : cut < 27 ? 2 : 3);
    if (cut < sizeof bytes) raw_write(raw, bytes + cut, sizeof bytes - cut);
    until(&w, a.n_message == 3);
    assert_int_equal(a.len[0], 2);
    assert_true(a.sum[0] == sum_of((const uint8_t *)"hi", 2));
    assert_int_equal(a.len[1], 0);
    assert_int_equal(a.type[2], 3);
    assert_true(a.sum[2] == sum_of((const uint8_t *)"!", 1));
    gy_channel_close(a.ch);
    close(raw);
    finish(&w);
  }
}

static void test_everything_before_eof(void **state) {
  (void)state;
  enum { N = 1000 };
  struct world w;
  static struct end a, b;
  memset(&a, 0, sizeof a);
  memset(&b, 0, sizeof b);
  begin(&w);
  open_both(&w, &a, &b);
  for (int i = 0; i < N; i++) send_on(&a, 9, &i, sizeof i);
  gy_channel_close(a.ch);
  until(&w, b.n_closed);
  assert_int_equal(b.n_message, N);
  assert_int_equal(b.sys_errno, 0);
  assert_int_equal(gy_channel_send(b.ch, 1, "x", 1), GYRE_OK); /* dropped */
  for (int i = 0; i < 5; i++) uv_run(&w.loop, UV_RUN_NOWAIT);
  assert_int_equal(b.n_closed, 1);
  gy_channel_close(b.ch);
  finish(&w);
}

static void reset(int fd) {
  struct linger hard = {.l_onoff = 1, .l_linger = 0};
  assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard), 0);
  close(fd);
}

static const uint8_t one_message[] = {1, 0, 0, 0, 5, 0, 0, 0, 'z'};

/* In one piece: a reset also discards what Nagle's algorithm still holds back. */
static void write_messages(int fd, size_t n) {
  uint8_t all[100 * sizeof one_message];
  for (size_t i = 0; i < n; i++)
    memcpy(all + i * sizeof one_message, one_message, sizeof one_message);
  raw_write(fd, all, n * sizeof one_message);
}

static void test_everything_before_reset(void **state) {
  (void)state;
  struct world w;
  struct end a = {0};
  begin(&w);
  int raw = open_raw(&w, &a);
  write_messages(raw, 100);
  reset(raw);
  until(&w, a.n_closed);
  assert_int_equal(a.n_message, 100);
  assert_int_equal(a.sys_errno, ECONNRESET);
  gy_channel_close(a.ch);
  finish(&w);
}

/* The send that notices the reset takes the socket's error with it: neither the errno nor the
 * messages may get lost, no SIGPIPE may be raised, and nothing is told from inside the send. */
static void test_send_after_reset(void **state) {
  (void)state;
  struct world w;
  struct end a = {0};
  begin(&w);
  int raw = open_raw(&w, &a);
  write_messages(raw, 10);
  reset(raw);
  for (int i = 0; i < 3; i++) send_on(&a, 1, "lost", 4);
  assert_int_equal(a.n_message, 0);
  assert_int_equal(a.n_closed, 0);
  until(&w, a.n_closed);
  assert_int_equal(a.n_message, 10);
  assert_int_equal(a.sys_errno, ECONNRESET);
  gy_channel_close(a.ch);
  finish(&w);
}

static void check_malformed(const uint8_t *bytes, size_t len) {
  struct world w;
  struct end a = {0};
  begin(&w);
  int raw = open_raw(&w, &a);
  raw_write(raw, one_message, sizeof one_message); /* still counts */
  raw_write(raw, bytes, len);
  raw_write(raw, one_message, sizeof one_message); /* does not */
  until(&w, a.n_closed);
  assert_int_equal(a.n_message, 1);
  assert_int_equal(a.sys_errno, EBADMSG);
  for (int i = 0; i < 5; i++) uv_run(&w.loop, UV_RUN_NOWAIT);
  assert_int_equal(a.n_closed, 1);
  gy_channel_close(a.ch);
  close(raw);
  finish(&w);
}

static void test_malformed(void **state) {
  (void)state;
  const uint8_t too_long[] = {1, 0, 0, 4, 5, 0, 0, 0}; /* one more than 64 MiB */
  check_malformed(too_long, sizeof too_long);
  for (size_t i = 5; i < 8; i++) {
    uint8_t reserved[8] = {0, 0, 0, 0, 5, 0, 0, 0};
    reserved[i] = 1;
    check_malformed(reserved, sizeof reserved);
  }
}

static void test_longest_message(void **state) {
  (void)state;
  struct world w;
  static struct end a, b;
  memset(&a, 0, sizeof a);
  memset(&b, 0, sizeof b);
  begin(&w);
  open_both(&w, &a, &b);
  uint8_t *data = pattern((size_t)GY_MESSAGE_MAX + 1, 5);
  assert_int_equal(gy_channel_send(a.ch, 1, data, (size_t)GY_MESSAGE_MAX + 1), GYRE_ERR_ARG);
  send_on(&a, 2, data, GY_MESSAGE_MAX);
  until(&w, b.n_message == 1);
  assert_int_equal(b.len[0], GY_MESSAGE_MAX);
  assert_true(b.sum[0] == sum_of(data, GY_MESSAGE_MAX));
  free(data);
  gy_channel_close(a.ch);
  gy_channel_close(b.ch);
  finish(&w);
}

/* In each of these the three messages are there at once: after the first nothing more may be
 * delivered to this owner. */
static int three_at_once(struct world *w, struct end *a) {
  begin(w);
  int raw = open_raw(w, a);
  for (int i = 0; i < 3; i++) raw_write(raw, one_message, sizeof one_message);
  return raw;
}

static void test_close_inside_message(void **state) {
  (void)state;
  struct world w;
  struct end a = {.react = CLOSE};
  int raw = three_at_once(&w, &a);
  until(&w, a.n_message);
  for (int i = 0; i < 5; i++) uv_run(&w.loop, UV_RUN_NOWAIT);
  assert_int_equal(a.n_message, 1);
  assert_int_equal(a.n_closed, 0);
  close(raw);
  finish(&w);
}

static void test_close_inside_closed(void **state) {
  (void)state;
  struct world w;
  struct end a = {.react = CLOSE};
  begin(&w);
  close(open_raw(&w, &a));
  until(&w, a.n_closed);
  assert_null(a.ch);
  finish(&w);
}

static void test_rebind_inside_message(void **state) {
  (void)state;
  struct world w;
  struct end b = {0}, a = {.react = REBIND, .heir = &b};
  int raw = three_at_once(&w, &a);
  until(&w, b.n_message == 2);
  assert_int_equal(a.n_message, 1);
  close(raw);
  until(&w, b.n_closed);
  assert_int_equal(a.n_closed, 0);
  gy_channel_close(b.ch);
  finish(&w);
}

static void on_net_closed(void *user) { *(bool *)user = true; }

/* What was queued still arrives, although the channel has ended and unread bytes were waiting at
 * its socket. */
static void test_finish_sends_the_queue(void **state) {
  (void)state;
  struct world w;
  static struct end a, b;
  struct gy_settings settings;
  struct gy_net *net;
  bool net_closed = false;
  memset(&a, 0, sizeof a);
  memset(&b, 0, sizeof b);
  memset(&settings, 0, sizeof settings);
  begin(&w);
  assert_int_equal(gy_net_create(&w.loop, &settings, &net), GYRE_OK);
  open_both(&w, &a, &b);
  const size_t len = 6u << 20;
  uint8_t *data = pattern(len, 3);
  send_on(&b, 4, "unread", 6);
  for (int i = 0; i < 3; i++) send_on(&a, 8, data, len);
  gy_channel_finish(a.ch, net, 10000);
  until(&w, b.n_closed);
  assert_int_equal(a.n_message, 0);
  assert_int_equal(b.n_message, 3);
  for (int i = 0; i < 3; i++) assert_true(b.sum[i] == sum_of(data, len));
  assert_int_equal(b.sys_errno, 0);
  free(data);
  gy_channel_close(b.ch);
  until(&w, gy_net_lingering(net) == 0);
  gy_net_close(net, on_net_closed, &net_closed);
  finish(&w);
  assert_true(net_closed);
}

static void test_finish_inside_message(void **state) {
  (void)state;
  struct world w;
  struct gy_settings settings;
  struct end a = {.react = FINISH};
  bool net_closed = false;
  memset(&settings, 0, sizeof settings);
  int raw = three_at_once(&w, &a);
  assert_int_equal(gy_net_create(&w.loop, &settings, &a.net), GYRE_OK);
  until(&w, a.n_message);
  close(raw);
  until(&w, gy_net_lingering(a.net) == 0);
  assert_int_equal(a.n_message, 1);
  assert_int_equal(a.n_closed, 0);
  gy_net_close(a.net, on_net_closed, &net_closed);
  finish(&w);
  assert_true(net_closed);
}

/* A peer that does not read does not block the sender, nor hide its own end from it. */
static void test_peer_dies_with_a_full_queue(void **state) {
  (void)state;
  struct world w;
  struct end a = {0};
  begin(&w);
  int raw = open_raw(&w, &a);
  uint8_t *data = pattern(1u << 20, 3);
  for (int i = 0; i < 16; i++) send_on(&a, 8, data, 1u << 20);
  free(data);
  for (int i = 0; i < 5; i++) uv_run(&w.loop, UV_RUN_NOWAIT);
  assert_int_equal(a.n_closed, 0);
  reset(raw);
  until(&w, a.n_closed);
  assert_true(a.sys_errno == ECONNRESET || a.sys_errno == EPIPE);
  gy_channel_close(a.ch);
  finish(&w);
}

int main(void) {
  signal(SIGPIPE, SIG_DFL); /* as in a user's program: a SIGPIPE would end this test */
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_golden_frame),
      cmocka_unit_test(test_sizes_in_order),
      cmocka_unit_test(test_both_ways_at_once),
      cmocka_unit_test(test_any_split),
      cmocka_unit_test(test_everything_before_eof),
      cmocka_unit_test(test_everything_before_reset),
      cmocka_unit_test(test_send_after_reset),
      cmocka_unit_test(test_malformed),
      cmocka_unit_test(test_longest_message),
      cmocka_unit_test(test_close_inside_message),
      cmocka_unit_test(test_close_inside_closed),
      cmocka_unit_test(test_rebind_inside_message),
      cmocka_unit_test(test_finish_sends_the_queue),
      cmocka_unit_test(test_finish_inside_message),
      cmocka_unit_test(test_peer_dies_with_a_full_queue),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_bootstrap.c - ranks meet, or all of them learn why not. Every "process" here is a net of its
 * own; all run on one loop, or each on a loop and thread of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "bootstrap.h"
#include "rendezvous.h"
#include "status.h"

#define PEERS_MAX 64
#define WAIT_MS 60000 /* a test that waits longer has failed */
#define PING 77

enum kind { TCP, ID, FILE_, STORE, KINDS };

struct store { /* an out-of-band store for one key */
  char value[1024];
  size_t len;
  int put_rc, get_rc;
};

struct peer { /* one process with one rank */
  struct gy_settings settings;
  struct gy_net *net;
  struct gy_bootstrap *b;
  int rank, nranks;
  bool started, ended;
  gyre_status status;
  char text[GY_FAIL_TEXT];
  struct gy_roster *roster;
  struct gy_channel **channels;
  int n_ping, n_lost;
  struct world *world;
  int again; /* how many more communicators to make from inside `done` */
  uint8_t last_epoch[GY_KEY_BYTES];
};

struct world {
  uv_loop_t loop;
  uv_timer_t limit, rest;
  bool late, rested;
  enum kind kind;
  char rendezvous[256], dir[64], path[128];
  struct store store;
  gyre_oob oob;
  gyre_unique_id id;
  bool has_id;
  int n_nets;
  struct peer peer[PEERS_MAX];
};

/* ----------------------------------------------------------------------------------- set-up --- */

static int store_put(void *user, const char *key, const void *value, size_t len) {
  struct store *s = user;
  assert_string_equal(key, "gyre/root");
  assert_true(len <= sizeof s->value);
  if (s->put_rc != 0) return s->put_rc;
  memcpy(s->value, value, len);
  s->len = len;
  return 0;
}

static int store_get(void *user, const char *key, void *value, size_t capacity, size_t *len) {
  struct store *s = user;
  assert_string_equal(key, "gyre/root");
  if (s->get_rc != 0) return s->get_rc;
  if (s->len == 0) return 1;
  assert_true(s->len <= capacity);
  memcpy(value, s->value, s->len);
  *len = s->len;
  return 0;
}

static bool can_bind(uint16_t port) {
  struct sockaddr_in at = {
      .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_true(fd >= 0);
  bool free = bind(fd, (struct sockaddr *)&at, sizeof at) == 0;
  close(fd);
  return free;
}

/* Below the range from which the kernel takes the ports of outgoing connections: one of those would
 * take it before the test listens there. */
static uint16_t free_port(void) {
  static unsigned turn;
  for (int tries = 0; tries < 1000; tries++) {
    uint16_t port = (uint16_t)(12000 + ((unsigned)getpid() * 37 + turn++) % 20000);
    if (can_bind(port)) return port;
  }
  fail_msg("no free port from 12000 to 31999");
  return 0;
}

static void on_rested(uv_timer_t *timer) { ((struct world *)timer->data)->rested = true; }

static void on_limit(uv_timer_t *timer) { ((struct world *)timer->data)->late = true; }

static void begin(struct world *w, enum kind kind) {
  memset(w, 0, sizeof *w);
  assert_int_equal(uv_loop_init(&w->loop), 0);
  uv_timer_init(&w->loop, &w->limit);
  uv_timer_init(&w->loop, &w->rest);
  w->limit.data = w->rest.data = w;
  uv_timer_start(&w->limit, on_limit, WAIT_MS, 0);
  w->kind = kind;
  w->oob = (gyre_oob){&w->store, store_put, store_get};
  snprintf(w->dir, sizeof w->dir, "/tmp/gyre-bootstrap-XXXXXX");
  assert_non_null(mkdtemp(w->dir));
  snprintf(w->path, sizeof w->path, "%s/job", w->dir);
  if (kind == TCP) snprintf(w->rendezvous, sizeof w->rendezvous, "tcp://127.0.0.1:%u", free_port());
  if (kind == FILE_) snprintf(w->rendezvous, sizeof w->rendezvous, "file://%s", w->path);
}

#define until(w, condition)          \
  while (!(condition)) {             \
    uv_run(&(w)->loop, UV_RUN_ONCE); \
    assert_false((w)->late);         \
  }

/* Lets the others go on for a while. */
static void rest(struct world *w, uint64_t ms) {
  w->rested = false;
  uv_timer_start(&w->rest, on_rested, ms, 0);
  until(w, w->rested);
}

static struct peer *new_peer(struct world *w) {
  struct peer *p = &w->peer[w->n_nets++];
  assert_true(w->n_nets <= PEERS_MAX);
  p->world = w;
  assert_int_equal(gy_settings_load(&p->settings), GYRE_OK);
  assert_int_equal(gy_settings_set(&p->settings, "GYRE_CONNECT_TIMEOUT_MS", "30000"), GYRE_OK);
  assert_int_equal(gy_settings_set(&p->settings, "GYRE_IFACE", "127.0.0.0/8"), GYRE_OK);
  snprintf(p->settings.rendezvous, sizeof p->settings.rendezvous, "%s", w->rendezvous);
  assert_int_equal(gy_net_create(&w->loop, &p->settings, &p->net), GYRE_OK);
  return p;
}

static void set(struct peer *p, const char *name, const char *value) {
  assert_int_equal(gy_settings_set(&p->settings, name, value), GYRE_OK);
}

static void on_ping(void *user, struct gy_channel *ch, uint8_t type, const void *body, size_t len) {
  struct peer *p = user;
  if (type == GY_MESSAGE_FAIL && p->rank == 0) return; /* it gave up before it read the roster */
  assert_int_equal(type, PING);
  p->n_ping++;
  if (p->rank == 0) assert_int_equal(gy_channel_send(ch, PING, body, len), GYRE_OK);
}

static void on_lost(void *user, struct gy_channel *ch, int sys_errno) {
  (void)ch;
  (void)sys_errno;
  ((struct peer *)user)->n_lost++;
}

static const struct gy_channel_events ping_events = {on_ping, on_lost};

static void let_go(struct peer *p) {
  for (int i = 0; p->channels && i < p->nranks; i++)
    if (p->channels[i]) gy_channel_finish(p->channels[i], p->net, 1000);
  free(p->channels);
  p->channels = NULL;
  gy_roster_free(p->roster);
  p->roster = NULL;
}

static void join(struct peer *p, int rank, int nranks);

static void on_done(void *user, gyre_status status, struct gy_roster *roster,
                    struct gy_channel **channels) {
  struct peer *p = user;
  assert_false(p->ended);
  p->ended = true;
  p->b = NULL;
  p->status = status;
  p->roster = roster;
  p->channels = channels;
  if (status != GYRE_OK) {
    assert_null(roster);
    assert_null(channels);
    snprintf(p->text, sizeof p->text, "%s", gyre_last_error());
    return;
  }
  for (int i = 0; i < p->nranks; i++) {
    assert_true((channels[i] != NULL) == (p->rank == 0 ? i != 0 : i == 0));
    if (channels[i]) gy_channel_rebind(channels[i], &ping_events, p);
  }
  if (p->again > 0) {
    p->again--;
    assert_memory_not_equal(p->last_epoch, roster->epoch, sizeof p->last_epoch);
    memcpy(p->last_epoch, roster->epoch, sizeof p->last_epoch);
    let_go(p);
    join(p, p->rank, p->nranks);
  }
}

static gyre_status try_join(struct peer *p, int rank, int nranks) {
  struct world *w = p->world;
  struct gy_bootstrap_config config = {.rank = rank, .nranks = nranks, .settings = &p->settings};
  config.cost = (struct gy_cost){1.5, 2.5, 3.5, 4.5, 5.5, 4096};
  if (w->kind == ID) {
    if (!w->has_id) {
      assert_int_equal(gy_unique_id_make(w->peer[0].net, &w->id), GYRE_OK);
      w->has_id = true;
    }
    config.id = &w->id;
  }
  if (w->kind == STORE) config.oob = &w->oob;
  p->rank = rank;
  p->nranks = nranks;
  p->ended = false;
  p->started = true;
  gyre_status status = gy_bootstrap_start(&w->loop, p->net, &config, on_done, p, &p->b);
  assert_false(p->ended); /* never from inside the call */
  return status;
}

static void join(struct peer *p, int rank, int nranks) {
  assert_int_equal(try_join(p, rank, nranks), GYRE_OK);
}

static bool all_ended(const struct world *w) {
  for (int i = 0; i < w->n_nets; i++)
    if (w->peer[i].started && !w->peer[i].ended) return false;
  return true;
}

static int files_in(const char *dir) {
  int n = 0;
  DIR *d = opendir(dir);
  assert_non_null(d);
  for (struct dirent *e; (e = readdir(d)) != NULL;)
    if (e->d_name[0] != '.') n++;
  closedir(d);
  return n;
}

static void on_net_closed(void *user) { ((struct peer *)user)->net = NULL; }

/* The memory of everything must be gone when the loop has run empty: uv_loop_close and
 * LeakSanitizer tell. No file stays. */
static void finish(struct world *w) {
  for (int i = 0; i < w->n_nets; i++) {
    struct peer *p = &w->peer[i];
    if (p->b) gy_bootstrap_cancel(p->b, "the test is over");
    let_go(p);
  }
  for (int i = 0; i < w->n_nets; i++) until(w, gy_net_lingering(w->peer[i].net) == 0);
  for (int i = 0; i < w->n_nets; i++) gy_net_close(w->peer[i].net, on_net_closed, &w->peer[i]);
  uv_close((uv_handle_t *)&w->limit, NULL);
  uv_close((uv_handle_t *)&w->rest, NULL);
  uv_run(&w->loop, UV_RUN_DEFAULT);
  for (int i = 0; i < w->n_nets; i++) assert_null(w->peer[i].net);
  assert_int_equal(uv_loop_close(&w->loop), 0);
  assert_int_equal(files_in(w->dir), 0);
  assert_int_equal(rmdir(w->dir), 0);
}

static void has(const char *text, const char *part) {
  if (!strstr(text, part)) fail_msg("\"%s\" is missing in: %s", part, text);
}

static void check_failed(const struct peer *p, gyre_status status, const char *part) {
  if (p->status != status)
    fail_msg("rank %d: %d (%s) instead of %d", p->rank, p->status, p->text, status);
  has(p->text, part);
}

/* ----------------------------------------------------------------------------------- success --- */

static void check_met(struct world *w, int n) {
  struct gy_writer first = {0}, other = {0};
  struct peer *root = NULL;
  for (int i = 0; i < n; i++) {
    struct peer *p = &w->peer[i];
    if (p->status != GYRE_OK) fail_msg("rank %d: %s", p->rank, p->text);
    if (p->rank == 0) root = p;
    gy_roster_write(i == 0 ? &first : &other, p->roster);
    if (i == 0) continue;
    assert_int_equal(other.len, first.len);
    assert_memory_equal(other.data, first.data, first.len);
    gy_w_free(&other);
  }
  gy_w_free(&first);
  assert_non_null(root);
  const struct gy_roster *r = root->roster;
  static const uint8_t zero[GY_KEY_BYTES];
  assert_memory_not_equal(r->epoch, zero, sizeof zero);
  assert_int_equal(r->nranks, n);
  assert_int_equal(r->agreed.slice_bytes, 262144);
  assert_int_equal(r->agreed.window, 8);
  assert_int_equal(r->agreed.op_timeout_ms, root->settings.op_timeout_ms);
  assert_string_equal(r->agreed.tcp_congestion, root->settings.tcp_congestion);
  assert_true(r->agreed.cost.contention == 5.5 && r->agreed.cost.slice_bytes == 4096);
  for (int i = 0; i < n; i++) {
    struct peer *p = &w->peer[i];
    const struct gy_member *m = &r->member[p->rank];
    struct gy_address own[GY_ADDRESS_MAX];
    uint8_t here[16];
    gy_host_id(here);
    assert_memory_equal(m->host, here, sizeof here);
    assert_int_equal(m->pid, getpid());
    assert_true(m->host_name[0] != '\0');
    assert_int_equal(m->n_address, n == 1 ? 0 : gy_net_advertised(p->net, own));
    assert_true(n == 1 || m->n_address > 0);
    for (uint32_t j = 0; j < m->n_address; j++)
      assert_memory_equal(&m->address[j], &own[j], sizeof own[j]);
    if (p->rank != 0)
      assert_int_equal(gy_channel_send(p->channels[0], PING, &p->rank, sizeof p->rank), GYRE_OK);
  }
  for (int i = 0; i < n; i++) until(w, w->peer[i].n_ping == (w->peer[i].rank == 0 ? n - 1 : 1));
}

static void meet(enum kind kind, int n) {
  static struct world w;
  begin(&w, kind);
  for (int i = 0; i < n; i++) new_peer(&w);
  for (int i = 0; i < n; i++) { /* rank 0 first, last, or in the middle */
    int rank = (i + n / 2 * (n % 3)) % n;
    if (kind == ID) rank = i;
    join(&w.peer[i], rank, n);
  }
  until(&w, all_ended(&w));
  check_met(&w, n);
  finish(&w);
}

static void test_sizes_and_kinds(void **state) {
  (void)state;
  static const int sizes[] = {1, 2, 3, 5, 8, 64};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
    for (int kind = 0; kind < KINDS; kind++) meet((enum kind)kind, sizes[i]);
}

static int open_descriptors(void) { return files_in("/proc/self/fd"); }

static void test_one_rank_needs_no_network(void **state) {
  (void)state;
  static struct world w;
  begin(&w, TCP);
  new_peer(&w);
  w.peer[0].settings.rendezvous[0] = '\0';
  uv_run(&w.loop, UV_RUN_NOWAIT);
  int before = open_descriptors();
  join(&w.peer[0], 0, 1);
  until(&w, all_ended(&w));
  assert_int_equal(w.peer[0].status, GYRE_OK);
  assert_null(w.peer[0].channels[0]);
  assert_int_equal(open_descriptors(), before);
  finish(&w);
}

static void meet_at(const char *fmt) {
  static struct world w;
  begin(&w, TCP);
  snprintf(w.rendezvous, sizeof w.rendezvous, fmt, free_port());
  for (int i = 0; i < 3; i++) join(new_peer(&w), i, 3);
  until(&w, all_ended(&w));
  check_met(&w, 3);
  finish(&w);
}

static void test_tcp_by_name_and_ipv6(void **state) {
  (void)state;
  meet_at("tcp://localhost:%u");
  struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
  int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  bool v6 = fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0;
  if (fd >= 0) close(fd);
  if (v6) meet_at("tcp://[::1]:%u");
}

/* The members come while the root is long gone from its first communicator, and call again before
 * it does. */
static void test_one_rendezvous_again_and_again(void **state) {
  (void)state;
  for (int kind = 0; kind < KINDS; kind++) {
    static struct world w;
    begin(&w, (enum kind)kind);
    for (int i = 0; i < 4; i++) new_peer(&w)->again = 5;
    for (int i = 0; i < 4; i++) join(&w.peer[i], i, 4);
    until(&w, all_ended(&w) && w.peer[0].again == 0 && w.peer[3].again == 0);
    check_met(&w, 4);
    finish(&w);
  }
}

/* Root late: members must find it, however long ago they started to look. */
static void test_root_comes_late(void **state) {
  (void)state;
  for (int kind = 0; kind < KINDS; kind++) {
    static struct world w;
    begin(&w, (enum kind)kind);
    for (int i = 0; i < 3; i++) new_peer(&w);
    join(&w.peer[1], 1, 3);
    join(&w.peer[2], 2, 3);
    rest(&w, 300);
    join(&w.peer[0], 0, 3);
    until(&w, all_ended(&w));
    check_met(&w, 3);
    finish(&w);
  }
}

static void write_file(const char *path, const char *text) {
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  assert_true(fputs(text, f) >= 0);
  assert_int_equal(fclose(f), 0);
}

/* The place of a rank 0 on this host, in the world's file. */
static void write_place(const struct world *w, uint16_t port) {
  char text[GY_PLACE_TEXT];
  struct gy_place place;
  snprintf(
      text, sizeof text,
      "gyre 1 00112233445566778899aabbccddeeff ffeeddccbbaa99887766554433221100 127.0.0.1:%u\n",
      port);
  assert_true(gy_place_scan(text, &place));
  gy_host_id(place.host); /* of this host: otherwise loopback would not even be tried */
  gy_place_print(&place, text);
  write_file(w->path, text);
}

/* ---------------------------------------------------------------------------------- failures --- */

static void test_duplicate_rank(void **state) {
  (void)state;
  for (int late = 0; late < 2; late++) { /* late: rank 1 comes after the root has noticed */
    static struct world w;
    char part[256], host[64];
    begin(&w, TCP);
    static const int ranks[] = {0, 2, 2, 1};
    for (int i = 0; i < 4; i++) new_peer(&w);
    for (int i = 0; i < 4 - late; i++) join(&w.peer[i], ranks[i], 4);
    if (late) {
      until(&w, w.peer[2].ended && w.peer[1].ended);
      assert_false(w.peer[0].ended); /* it still waits for rank 1 */
      join(&w.peer[3], 1, 4);
    }
    until(&w, all_ended(&w));
    gy_host_name(host, sizeof host);
    snprintf(part, sizeof part,
             "two processes say they are rank 2: host %s pid %d and host %s pid %d", host, getpid(),
             host, getpid());
    for (int i = 0; i < 4; i++) {
      check_failed(&w.peer[i], GYRE_ERR_ARG, part);
      assert_string_equal(w.peer[i].text, w.peer[0].text);
    }
    finish(&w);
  }
}

/* As where a launcher numbers each host from 0: both processes hear of it, and all who came. */
static void test_two_roots(void **state) {
  (void)state;
  static const enum kind kinds[] = {TCP, FILE_};
  for (int k = 0; k < 2; k++) {
    static struct world w;
    static const int ranks[] = {0, 1, 0, 2};
    begin(&w, kinds[k]);
    for (int i = 0; i < 4; i++) new_peer(&w);
    for (int i = 0; i < 2; i++) join(&w.peer[i], ranks[i], 4);
    rest(&w, 100);
    for (int i = 2; i < 4; i++) join(&w.peer[i], ranks[i], 4);
    until(&w, all_ended(&w));
    for (int i = 0; i < 4; i++) {
      check_failed(&w.peer[i], GYRE_ERR_ARG, "two processes say they are rank 0: host ");
      assert_string_equal(w.peer[i].text, w.peer[0].text);
    }
    finish(&w);
  }
}

/* Another rank 0 that took the file over and cannot be asked any more. */
static void test_file_is_overwritten(void **state) {
  (void)state;
  static struct world w;
  begin(&w, FILE_);
  for (int i = 0; i < 2; i++) new_peer(&w);
  join(&w.peer[0], 0, 3);
  join(&w.peer[1], 1, 3);
  rest(&w, 100);
  write_place(&w, free_port());
  until(&w, all_ended(&w));
  for (int i = 0; i < 2; i++)
    check_failed(&w.peer[i], GYRE_ERR_ARG, "another that has overwritten /");
  assert_int_equal(unlink(w.path), 0); /* it is not ours to remove */
  finish(&w);
}

static void test_world_size_differs(void **state) {
  (void)state;
  static struct world w;
  begin(&w, TCP);
  for (int i = 0; i < 4; i++) new_peer(&w);
  for (int i = 0; i < 4; i++) join(&w.peer[i], i, i == 2 ? 5 : 4);
  until(&w, all_ended(&w));
  for (int i = 0; i < 4; i++) {
    check_failed(&w.peer[i], GYRE_ERR_MISMATCH, "rank 2 (host ");
    has(w.peer[i].text, "was started with 5, rank 0 with 4");
    assert_string_equal(w.peer[i].text, w.peer[0].text);
  }
  finish(&w);
}

static void settings_differ(const char *name, const char *root, const char *member,
                            const char *shown) {
  static struct world w;
  char values[256];
  begin(&w, TCP);
  for (int i = 0; i < 4; i++) new_peer(&w);
  if (root) set(&w.peer[0], name, root);
  set(&w.peer[2], name, member);
  for (int i = 0; i < 4; i++) join(&w.peer[i], i, 4);
  until(&w, all_ended(&w));
  const char *quote = *shown ? "\"" : "";
  snprintf(values, sizeof values, "it is \"%s\" on rank 2 and %s%s%s on rank 0", member, quote,
           *shown ? shown : "not set", quote);
  for (int i = 0; i < 4; i++) {
    check_failed(&w.peer[i], GYRE_ERR_MISMATCH, name);
    has(w.peer[i].text, values);
    if (strcmp(name, "GYRE_WINDOW") == 0) has(w.peer[i].text, "(or gyre_comm_config.window)");
    assert_string_equal(w.peer[i].text, w.peer[0].text);
  }
  finish(&w);
}

static void test_agreed_setting_differs(void **state) {
  (void)state;
  settings_differ("GYRE_WINDOW", NULL, "16", "8");
  settings_differ("GYRE_SLICE_BYTES", "65536", "262144", "65536");
  settings_differ("GYRE_ALGO", NULL, "ring", "");
  settings_differ("GYRE_ALGO", "tree", "ring", "tree");
  settings_differ("GYRE_OP_TIMEOUT_MS", "5000", "6000", "5000");
  settings_differ("GYRE_STALL_MS", "500", "600", "500");
  settings_differ("GYRE_VERDICT_MS", NULL, "600", "500");
  settings_differ("GYRE_TCP_CONGESTION", NULL, "cubic", "auto");
}

static void test_agreed_and_local_settings_that_may_differ(void **state) {
  (void)state;
  static struct world w;
  begin(&w, TCP);
  for (int i = 0; i < 3; i++) new_peer(&w);
  set(&w.peer[0], "GYRE_ALGO", "tree");
  set(&w.peer[1], "GYRE_ALGO", "tree");
  set(&w.peer[1], "GYRE_WINDOW", "8"); /* what rank 0 has by default */
  set(&w.peer[1], "GYRE_SLICE_BYTES", "262144");
  set(&w.peer[2], "GYRE_ALGO", "");       /* no wish */
  set(&w.peer[2], "GYRE_LINGER_MS", "7"); /* local */
  w.peer[2].settings.op_timeout_ms = 5;   /* differs, but was not given */
  for (int i = 0; i < 3; i++) join(&w.peer[i], i, 3);
  until(&w, all_ended(&w));
  check_met(&w, 3);
  for (int i = 0; i < 3; i++) {
    assert_string_equal(w.peer[i].roster->agreed.algo, "tree");
    assert_int_equal(w.peer[i].roster->agreed.op_timeout_ms, w.peer[0].settings.op_timeout_ms);
  }
  finish(&w);
}

static void test_missing_ranks_are_named_everywhere(void **state) {
  (void)state;
  for (int kind = 0; kind < KINDS; kind++) {
    static struct world w;
    begin(&w, (enum kind)kind);
    static const int ranks[] = {0, 1, 3, 4};
    for (int i = 0; i < 4; i++) set(new_peer(&w), "GYRE_CONNECT_TIMEOUT_MS", "400");
    for (int i = 0; i < 4; i++) join(&w.peer[i], ranks[i], 8);
    until(&w, all_ended(&w));
    for (int i = 0; i < 4; i++) {
      check_failed(&w.peer[i], GYRE_ERR_TIMEOUT, "ranks 2, 5-7 of 8 did not come to ");
      has(w.peer[i].text, "within 400 ms");
      if (kind == TCP || kind == FILE_) has(w.peer[i].text, w.rendezvous);
      assert_string_equal(w.peer[i].text, w.peer[0].text);
    }
    finish(&w);
  }
}

/* Every second rank is missing: too many holes for one line. */
static void test_a_long_list_of_missing_ranks_is_cut(void **state) {
  (void)state;
  static struct world w;
  begin(&w, TCP);
  for (int i = 0; i < PEERS_MAX; i++) set(new_peer(&w), "GYRE_CONNECT_TIMEOUT_MS", "2500");
  for (int i = 0; i < PEERS_MAX; i++) join(&w.peer[i], 2 * i, 2 * PEERS_MAX);
  until(&w, all_ended(&w));
  for (int i = 0; i < PEERS_MAX; i++) {
    check_failed(&w.peer[i], GYRE_ERR_TIMEOUT, "ranks 1, 3, 5, 7, ");
    has(w.peer[i].text, ", ... of 128 did not come to tcp://");
    has(w.peer[i].text, "can they reach rank 0?");
  }
  finish(&w);
}

/* A member whose deadline comes first must not leave without the truth, nor be called lost. */
static void test_the_first_deadline_counts(void **state) {
  (void)state;
  static struct world w;
  begin(&w, TCP);
  for (int i = 0; i < 3; i++) new_peer(&w);
  set(&w.peer[1], "GYRE_CONNECT_TIMEOUT_MS", "300");
  for (int i = 0; i < 3; i++) join(&w.peer[i], i, 4);
  until(&w, all_ended(&w));
  for (int i = 0; i < 3; i++) {
    check_failed(&w.peer[i], GYRE_ERR_TIMEOUT, "rank 3 of 4 did not come");
    has(w.peer[i].text, "connect time-out of rank 1");
  }
  finish(&w);
}

static void test_root_missing(void **state) {
  (void)state;
  for (int kind = 0; kind < KINDS; kind++) {
    static struct world w;
    begin(&w, (enum kind)kind);
    for (int i = 0; i < 3; i++) set(new_peer(&w), "GYRE_CONNECT_TIMEOUT_MS", "300");
    join(&w.peer[1], 1, 3);
    join(&w.peer[2], 2, 3);
    until(&w, all_ended(&w));
    for (int i = 1; i < 3; i++) {
      check_failed(&w.peer[i], GYRE_ERR_TIMEOUT, "rank 0");
      if (kind == TCP) has(w.peer[i].text, w.rendezvous + strlen("tcp://"));
      if (kind == TCP) has(w.peer[i].text, "Connection refused");
      if (kind == FILE_) has(w.peer[i].text, "No such file or directory");
      if (kind == STORE) has(w.peer[i].text, "no \"gyre/root\" yet");
    }
    finish(&w);
  }
}

static void test_wrong_secret(void **state) {
  (void)state;
  for (int kind = 0; kind < KINDS; kind++) {
    if (kind == ID) continue; /* carries its own */
    static struct world w;
    begin(&w, (enum kind)kind);
    for (int i = 0; i < 3; i++) set(new_peer(&w), "GYRE_SECRET", i == 2 ? "wrong" : "right");
    set(&w.peer[0], "GYRE_CONNECT_TIMEOUT_MS", "1500");
    for (int i = 0; i < 3; i++) join(&w.peer[i], i, 3);
    until(&w, w.peer[2].ended);
    check_failed(&w.peer[2], GYRE_ERR_AUTH, "rank 0");
    until(&w, all_ended(&w));
    for (int i = 0; i < 2; i++) {
      check_failed(&w.peer[i], GYRE_ERR_TIMEOUT, "rank 2 of 3 did not come");
      has(w.peer[i].text, "; a process at 127.0.0.1:");
      has(w.peer[i].text, " that says it is rank 2 was refused: its secret differs; give all ranks "
                          "the same GYRE_SECRET");
      assert_null(strstr(w.peer[i].text, "started"));
    }
    finish(&w);
  }
}

static void test_give_up_is_told(void **state) {
  (void)state;
  for (int who = 0; who < 3; who++) {
    static struct world w;
    begin(&w, TCP);
    for (int i = 0; i < 3; i++) join(new_peer(&w), i, 4);
    rest(&w, 200); /* rank 3 is missing, the others have joined */
    gy_bootstrap_cancel(w.peer[who].b, "enough of it");
    w.peer[who].b = NULL;
    w.peer[who].started = false;
    until(&w, all_ended(&w));
    for (int i = 0; i < 3; i++)
      if (i != who) check_failed(&w.peer[i], GYRE_ERR_ABORTED, "enough of it");
    assert_false(w.peer[who].ended);
    finish(&w);
  }
}

/* -------------------------------------------------------------- a peer that is not what it says
 * --- */

struct fake { /* speaks the protocol by hand */
  struct world *w;
  struct gy_dial *dial;
  struct gy_channel *ch;
  bool heard, closed;
  uint8_t type;
  gyre_status status;
  char text[GY_FAIL_TEXT];
};

static void fake_message(void *user, struct gy_channel *ch, uint8_t type, const void *body,
                         size_t len) {
  struct fake *f = user;
  (void)ch;
  f->heard = true;
  f->type = type;
  if (type == GY_MESSAGE_FAIL)
    assert_int_equal(gy_fail_read(body, len, &f->status, f->text), GYRE_OK);
}

static void fake_closed(void *user, struct gy_channel *ch, int sys_errno) {
  (void)ch;
  (void)sys_errno;
  ((struct fake *)user)->closed = true;
}

static const struct gy_channel_events fake_events = {fake_message, fake_closed};

static void fake_dialled(void *user, gyre_status status, const struct gy_conn *conn) {
  struct fake *f = user;
  f->dial = NULL;
  assert_int_equal(status, GYRE_OK);
  assert_int_equal(gy_channel_open(&f->w->loop, conn, &fake_events, f, &f->ch), GYRE_OK);
}

static void tcp_key(const struct world *w, uint8_t key[GY_KEY_BYTES]) {
  struct gy_settings s;
  struct gy_bootstrap_config config = {.settings = &s};
  struct gy_rendezvous rv;
  memset(&s, 0, sizeof s);
  memcpy(s.rendezvous, w->rendezvous, sizeof w->rendezvous);
  assert_int_equal(gy_rendezvous_parse(&config, &rv), GYRE_OK);
  memcpy(key, rv.place.key, GY_KEY_BYTES);
}

static void fake_member(struct world *w, struct fake *f, struct peer *via, int rank) {
  struct gy_identity id = {.kind = GY_CONN_CONTROL, .from = rank, .to = 0};
  struct gy_dial_target target = {.host = "127.0.0.1"};
  struct gy_secret none = {.len = 0};
  memset(f, 0, sizeof *f);
  f->w = w;
  tcp_key(w, id.key);
  target.port = (uint16_t)atoi(strrchr(w->rendezvous, ':') + 1);
  assert_int_equal(gy_dial_start(via->net, &target, &id, &none, 10000, fake_dialled, f, &f->dial),
                   GYRE_OK);
  until(w, f->ch != NULL);
}

/* `at`: its only address, of this host; NULL: none. */
static void fake_join_at(struct fake *f, int rank, int nranks, uint32_t version, const char *at) {
  static struct gy_join join;
  struct gy_writer w = {0};
  memset(&join, 0, sizeof join);
  join.rank = rank;
  join.nranks = nranks;
  join.version = version;
  join.patience_ms = 60000;
  snprintf(join.member.host_name, sizeof join.member.host_name, "elsewhere");
  join.member.pid = 4711;
  if (at) {
    gy_host_id(join.member.host);
    join.member.n_address = 1;
    assert_true(gy_address_numeric(at, 7000, &join.member.address[0]));
  }
  gy_join_write(&w, &join);
  assert_int_equal(gy_channel_send(f->ch, GY_MESSAGE_JOIN, w.data, w.len), GYRE_OK);
  gy_w_free(&w);
}

static void fake_join(struct fake *f, int rank, int nranks, uint32_t version) {
  fake_join_at(f, rank, nranks, version, NULL);
}

static void expect_failure(struct world *w, struct fake *f, gyre_status status, const char *part) {
  until(w, all_ended(w));
  for (int i = 0; i < w->n_nets; i++)
    if (w->peer[i].started) check_failed(&w->peer[i], status, part);
  if (!f->ch) return;
  until(w, f->closed);
  assert_int_equal(f->type, GY_MESSAGE_FAIL); /* it has been told, too */
  assert_int_equal(f->status, status);
  has(f->text, part);
  gy_channel_close(f->ch);
}

/* Ranks 0 and 1 of 3 are there and have met; rank 2 is the fake; peer 3's net serves it. */
static void two_and_a_fake(struct world *w, struct fake *f, int rank) {
  begin(w, TCP);
  for (int i = 0; i < 3; i++) new_peer(w);
  join(&w->peer[0], 0, 3);
  join(&w->peer[1], 1, 3);
  fake_member(w, f, &w->peer[2], rank);
}

static void test_member_dies(void **state) {
  (void)state;
  static struct world w;
  struct fake f;
  begin(&w, TCP);
  for (int i = 0; i < 3; i++) new_peer(&w);
  join(&w.peer[0], 0, 4);
  join(&w.peer[1], 1, 4);
  fake_member(&w, &f, &w.peer[2], 2);
  fake_join(&f, 2, 4, GYRE_VERSION);
  rest(&w, 100);
  assert_false(f.heard);
  gy_channel_close(f.ch);
  f.ch = NULL;
  expect_failure(&w, &f, GYRE_ERR_PEER_LOST, "rank 2 (host elsewhere pid 4711");
  finish(&w);
}

static void test_connection_without_join_is_forgotten(void **state) {
  (void)state;
  static struct world w;
  struct fake f;
  two_and_a_fake(&w, &f, 2);
  gy_channel_close(f.ch);
  join(&w.peer[2], 2, 3);
  until(&w, all_ended(&w));
  check_met(&w, 3);
  finish(&w);
}

/* Rank 2 twice, the second one silent when all have met: it is told, and the others are not
 * disturbed. */
static void test_silent_duplicate_is_told(void **state) {
  (void)state;
  static struct world w;
  struct fake f;
  two_and_a_fake(&w, &f, 2);
  join(&w.peer[2], 2, 3);
  until(&w, all_ended(&w));
  check_met(&w, 3);
  until(&w, f.closed);
  assert_int_equal(f.status, GYRE_ERR_ARG);
  has(f.text, "rank 2 has already joined");
  gy_channel_close(f.ch);
  finish(&w);
}

static void test_bad_joins(void **state) {
  (void)state;
  static struct world w;
  struct fake f;
  two_and_a_fake(&w, &f, 7);
  fake_join(&f, 7, 3, GYRE_VERSION);
  expect_failure(&w, &f, GYRE_ERR_ARG, "says it is rank 7, but ranks go from 0 to 2");
  finish(&w);

  two_and_a_fake(&w, &f, 2);
  fake_join(&f, 1, 3, GYRE_VERSION);
  expect_failure(&w, &f, GYRE_ERR_PROTO, "says hello as rank 2 and joins as rank 1");
  finish(&w);

  two_and_a_fake(&w, &f, 0);
  fake_join(&f, 0, 3, GYRE_VERSION);
  expect_failure(&w, &f, GYRE_ERR_ARG, "two processes say they are rank 0: ");
  finish(&w);

  two_and_a_fake(&w, &f, 2); /* the others listen on loopback only */
  fake_join_at(&f, 2, 3, GYRE_VERSION, "192.0.2.99");
  expect_failure(&w, &f, GYRE_ERR_ARG, " listens on loopback only and cannot reach rank 2 (host ");
  has(f.text, "192.0.2.99:7000: set GYRE_IFACE alike on all ranks");
  finish(&w);

  two_and_a_fake(&w, &f, 2);
  fake_join(&f, 2, 3, GYRE_VERSION + 10000);
  expect_failure(&w, &f, GYRE_ERR_VERSION, "rank 2 (host elsewhere pid 4711) runs Gyre ");
  finish(&w);

  two_and_a_fake(&w, &f, 2);
  assert_int_equal(gy_channel_send(f.ch, GY_MESSAGE_JOIN, "\1\0garbage", 9), GYRE_OK);
  expect_failure(&w, &f, GYRE_ERR_PROTO, "malformed JOIN");
  finish(&w);

  two_and_a_fake(&w, &f, 2);
  assert_int_equal(gy_channel_send(f.ch, GY_MESSAGE_JOIN, "\2\0", 2), GYRE_OK);
  expect_failure(&w, &f, GYRE_ERR_VERSION, "JOIN message of format 2");
  finish(&w);

  two_and_a_fake(&w, &f, 2);
  assert_int_equal(gy_channel_send(f.ch, 99, "", 0), GYRE_OK);
  expect_failure(&w, &f, GYRE_ERR_PROTO, "message type 99");
  finish(&w);
}

/* A root that is none: member 1 meets it and then ... */
struct fake_root {
  struct fake f;
  struct gy_listen *listen;
  struct gy_expect *expect;
};

static gyre_status fake_accept(void *user, const struct gy_conn *conn) {
  struct fake *f = user;
  assert_int_equal(conn->id.from, 1);
  return gy_channel_open(&f->w->loop, conn, &fake_events, f, &f->ch);
}

static void meet_fake_root(struct world *w, struct fake_root *r) {
  uint8_t key[GY_KEY_BYTES];
  struct gy_secret none = {.len = 0};
  struct gy_address at;
  begin(w, TCP);
  memset(r, 0, sizeof *r);
  r->f.w = w;
  for (int i = 0; i < 2; i++) set(new_peer(w), "GYRE_CONNECT_TIMEOUT_MS", "500");
  tcp_key(w, key);
  assert_true(gy_address_numeric("127.0.0.1", (uint16_t)atoi(strrchr(w->rendezvous, ':') + 1), &at));
  assert_int_equal(
      gy_net_expect(w->peer[0].net, GY_CONN_CONTROL, key, 0, &none, fake_accept, &r->f, &r->expect),
      GYRE_OK);
  assert_int_equal(gy_net_listen_at(w->peer[0].net, &at, &r->listen), GYRE_OK);
  join(&w->peer[1], 1, 2);
  until(w, r->f.heard);
  assert_int_equal(r->f.type, GY_MESSAGE_JOIN);
}

static void part_with_fake_root(struct world *w, struct fake_root *r) {
  gy_net_unexpect(r->expect);
  gy_net_unlisten(r->listen);
  if (r->f.ch) gy_channel_close(r->f.ch);
  finish(w);
}

static void test_root_dies(void **state) {
  (void)state;
  static struct world w;
  struct fake_root r;
  meet_fake_root(&w, &r);
  gy_channel_close(r.f.ch);
  r.f.ch = NULL;
  until(&w, all_ended(&w));
  check_failed(&w.peer[1], GYRE_ERR_PEER_LOST, "rank 0 (127.0.0.1:");
  part_with_fake_root(&w, &r);
}

static void test_root_is_silent(void **state) {
  (void)state;
  static struct world w;
  struct fake_root r;
  meet_fake_root(&w, &r);
  until(&w, all_ended(&w));
  check_failed(&w.peer[1], GYRE_ERR_TIMEOUT, "said nothing within 500 ms");
  until(&w, r.f.closed); /* and is told that rank 1 has given up */
  assert_int_equal(r.f.type, GY_MESSAGE_FAIL);
  assert_int_equal(r.f.status, GYRE_ERR_TIMEOUT);
  part_with_fake_root(&w, &r);
}

static void test_root_talks_nonsense(void **state) {
  (void)state;
  static const struct {
    uint8_t type;
    const char *body;
    size_t len;
    const char *part;
  } cases[] = {
      {GY_MESSAGE_ROSTER, "\1\0\2\0\0\0", 6, "malformed ROSTER"},
      {GY_MESSAGE_FAIL, "\1\0\2\0\0\0\0\0", 8, "malformed FAIL"},
      {GY_MESSAGE_JOIN, "", 0, "message type 1"},
      {99, "", 0, "message type 99"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    static struct world w;
    struct fake_root r;
    meet_fake_root(&w, &r);
    assert_int_equal(gy_channel_send(r.f.ch, cases[i].type, cases[i].body, cases[i].len), GYRE_OK);
    until(&w, all_ended(&w));
    check_failed(&w.peer[1], GYRE_ERR_PROTO, cases[i].part);
    part_with_fake_root(&w, &r);
  }
  static struct world w;
  struct fake_root r;
  struct gy_roster *roster;
  struct gy_writer out = {0};
  meet_fake_root(&w, &r);
  assert_int_equal(gy_roster_create(3, &roster), GYRE_OK);
  gy_roster_write(&out, roster);
  gy_roster_free(roster);
  assert_int_equal(gy_channel_send(r.f.ch, GY_MESSAGE_ROSTER, out.data, out.len), GYRE_OK);
  gy_w_free(&out);
  until(&w, all_ended(&w));
  check_failed(&w.peer[1], GYRE_ERR_PROTO, "a roster of 3 ranks where there are 2");
  part_with_fake_root(&w, &r);
}

/* -------------------------------------------------------------------------------- rendezvous --- */

/* What a dead job may have left: garbage, an address where nobody is, an address of another living
 * job. */
static void test_stale_file(void **state) {
  (void)state;
  for (int what = 0; what < 3; what++) {
    static struct world w;
    begin(&w, FILE_);
    for (int i = 0; i < 4; i++) new_peer(&w);
    uint16_t port = free_port();
    if (what == 2) {
      struct gy_address at[GY_ADDRESS_MAX];
      assert_int_equal(gy_net_listen(w.peer[3].net, false), GYRE_OK);
      assert_true(gy_net_advertised(w.peer[3].net, at) > 0);
      port = gy_address_port(&at[0]);
    }
    if (what == 0) write_file(w.path, "something else\n");
    else write_place(&w, port);
    join(&w.peer[1], 1, 3);
    join(&w.peer[2], 2, 3);
    rest(&w, 400);
    assert_false(w.peer[1].ended);
    join(&w.peer[0], 0, 3);
    until(&w, all_ended(&w));
    check_met(&w, 3);
    finish(&w);
  }
}

static void test_file_is_private_and_removed(void **state) {
  (void)state;
  static struct world w;
  struct stat st;
  begin(&w, FILE_);
  for (int i = 0; i < 2; i++) new_peer(&w);
  join(&w.peer[0], 0, 2);
  until(&w, stat(w.path, &st) == 0);
  assert_int_equal(st.st_mode & 0777, 0600);
  assert_int_equal(files_in(w.dir), 1);
  join(&w.peer[1], 1, 2);
  until(&w, all_ended(&w));
  check_met(&w, 2);
  assert_int_equal(files_in(w.dir), 0);
  finish(&w);

  begin(&w, FILE_);
  new_peer(&w);
  join(&w.peer[0], 0, 2);
  until(&w, stat(w.path, &st) == 0);
  char *other =
      "gyre 1 00112233445566778899aabbccddeeff ffeeddccbbaa99887766554433221100 127.0.0.1:9\n";
  write_file(w.path, other); /* another job has taken the name: its file stays */
  gy_bootstrap_cancel(w.peer[0].b, NULL);
  w.peer[0].b = NULL;
  assert_int_equal(files_in(w.dir), 1);
  unlink(w.path);
  finish(&w);
}

static void refused(const char *rendezvous, gyre_status status, const char *part) {
  static struct world w;
  begin(&w, TCP);
  new_peer(&w);
  snprintf(w.peer[0].settings.rendezvous, sizeof w.peer[0].settings.rendezvous, "%s", rendezvous);
  gyre_status got = try_join(&w.peer[0], 0, 2);
  if (got != GYRE_OK) {
    w.peer[0].status = got;
    snprintf(w.peer[0].text, sizeof w.peer[0].text, "%s", gyre_last_error());
    w.peer[0].ended = true;
  }
  until(&w, all_ended(&w));
  check_failed(&w.peer[0], status, part);
  finish(&w);
}

static void test_bad_rendezvous_is_refused_at_once(void **state) {
  (void)state;
  refused("", GYRE_ERR_ARG, "no rendezvous");
  refused("tcp://127.0.0.1", GYRE_ERR_ARG, "must be tcp://host:port");
  refused("tcp://127.0.0.1:0", GYRE_ERR_ARG, "must be tcp://host:port");
  refused("tcp://127.0.0.1:70000", GYRE_ERR_ARG, "must be tcp://host:port");
  refused("tcp://:7000", GYRE_ERR_ARG, "must be tcp://host:port");
  refused("udp://127.0.0.1:7000", GYRE_ERR_ARG, "must be tcp://host:port or file:///");
  refused("file://relative", GYRE_ERR_ARG, "file:///absolute");
  refused("file:///tmp/", GYRE_ERR_ARG, "file:///absolute");
  refused("file:///nowhere/at/all", GYRE_ERR_SYS,
          "its folder must exist and be writable: No such file");
  refused("file:///tmp", GYRE_ERR_SYS, "rank 0 cannot");
  refused("tcp://192.0.2.1:7000", GYRE_ERR_ARG,
          "192.0.2.1 is no address of this machine, which has: ");
  refused("tcp://0.0.0.0:7000", GYRE_ERR_AUTH, "set GYRE_SECRET");
}

static void test_port_is_taken(void **state) {
  (void)state;
  char rendezvous[64], part[64];
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  uint16_t port = free_port();
  at.sin_port = htons(port);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
  assert_int_equal(listen(fd, 1), 0);
  snprintf(rendezvous, sizeof rendezvous, "tcp://127.0.0.1:%u", port);
  snprintf(part, sizeof part, "127.0.0.1:%u", port);
  refused(rendezvous, GYRE_ERR_SYS, part);
  close(fd);
}

static void test_bad_rank_or_size(void **state) {
  (void)state;
  static struct world w;
  begin(&w, TCP);
  new_peer(&w);
  assert_int_equal(try_join(&w.peer[0], 0, 0), GYRE_ERR_ARG);
  assert_int_equal(try_join(&w.peer[0], 0, 16385), GYRE_ERR_ARG);
  assert_int_equal(try_join(&w.peer[0], -1, 2), GYRE_ERR_ARG);
  assert_int_equal(try_join(&w.peer[0], 2, 2), GYRE_ERR_ARG);
  has(gyre_last_error(), "rank 2 of 2");
  finish(&w);
}

static void test_store_failures(void **state) {
  (void)state;
  static struct world w;
  begin(&w, STORE);
  for (int i = 0; i < 2; i++) new_peer(&w);
  w.store.put_rc = -5;
  assert_int_equal(try_join(&w.peer[0], 0, 2), GYRE_ERR_SYS);
  w.peer[0].started = false;
  has(gyre_last_error(), "refused to put \"gyre/root\" (it returned -5)");
  w.store.get_rc = -6;
  join(&w.peer[1], 1, 2);
  until(&w, all_ended(&w));
  check_failed(&w.peer[1], GYRE_ERR_SYS, "failed to get \"gyre/root\" (it returned -6)");
  finish(&w);
}

static void test_unique_id(void **state) {
  (void)state;
  static struct world w;
  struct gy_place place, back;
  uint8_t secret[GY_ID_SECRET], again[GY_ID_SECRET];
  gyre_unique_id id, other;
  begin(&w, ID);
  for (int i = 0; i < 2; i++) new_peer(&w);
  assert_int_equal(gy_unique_id_make(w.peer[0].net, &id), GYRE_OK);
  assert_int_equal(gy_unique_id_make(w.peer[0].net, &other), GYRE_OK);
  assert_memory_not_equal(&id, &other, sizeof id);
  assert_int_equal(gy_id_read(&id, &place, secret), GYRE_OK);
  assert_true(place.n_address > 0);
  struct gy_settings s = w.peer[0].settings;
  struct gy_bootstrap_config config = {.settings = &s, .id = &id};
  struct gy_secret used;
  gy_bootstrap_secret(&config, &used);
  assert_int_equal(used.len, GY_ID_SECRET);
  assert_memory_equal(used.bytes, secret, GY_ID_SECRET);

  /* As many addresses as fit: here 2 IPv6 ones and then an IPv4 one, but not a third IPv6 one
   * before it. */
  memset(&place.address, 0, sizeof place.address);
  assert_true(gy_address_numeric("2001:db8::1", 1, &place.address[0]));
  assert_true(gy_address_numeric("2001:db8::2", 2, &place.address[1]));
  assert_true(gy_address_numeric("2001:db8::3", 3, &place.address[2]));
  assert_true(gy_address_numeric("10.0.0.4", 4, &place.address[3]));
  place.n_address = 4;
  gy_id_write(&place, secret, &id);
  assert_int_equal(gy_id_read(&id, &back, again), GYRE_OK);
  assert_int_equal(back.n_address, 3);
  assert_memory_equal(&back.address[2], &place.address[3], sizeof back.address[2]);
  assert_memory_equal(secret, again, sizeof secret);
  assert_memory_equal(back.key, place.key, sizeof place.key);

  memset(&w.id, 0, sizeof w.id);
  w.has_id = true;
  assert_int_equal(try_join(&w.peer[1], 1, 2), GYRE_ERR_ARG);
  has(gyre_last_error(), "gyre_unique_id_create");
  w.id = other; /* of peer 0's context */
  assert_int_equal(try_join(&w.peer[1], 0, 2), GYRE_ERR_ARG);
  w.peer[1].started = false;
  has(gyre_last_error(), "must use the context that made the unique id");
  finish(&w);
}

static void test_place_text(void **state) {
  (void)state;
  struct gy_place place = {.n_address = 2}, back;
  char text[GY_PLACE_TEXT];
  for (uint8_t i = 0; i < 16; i++) place.key[i] = (uint8_t)(i * 17);
  memset(place.host, 0xa5, sizeof place.host);
  assert_true(gy_address_numeric("10.0.0.1", 7000, &place.address[0]));
  assert_true(gy_address_numeric("2001:db8::1", 7001, &place.address[1]));
  gy_place_print(&place, text);
  assert_string_equal(
      text,
      "gyre 1 00112233445566778899aabbccddeeff a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5 10.0.0.1:7000 "
      "[2001:db8::1]:7001\n");
  assert_true(gy_place_scan(text, &back));
  assert_true(gy_place_equal(&place, &back));
  for (size_t len = 0; len < strlen(text); len++) { /* a half-written one is none */
    char cut[GY_PLACE_TEXT];
    snprintf(cut, sizeof cut, "%.*s", (int)len, text);
    assert_false(gy_place_scan(cut, &back));
  }
  assert_false(gy_place_scan(
      "gyre 2 00112233445566778899aabbccddeeff a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5\n", &back));
  assert_false(gy_place_scan(
      "gyre 1 0011223344556677889900bbccddeefx a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5\n", &back));
}

/* ------------------------------------------------------------------------------- cancelling --- */

static uint32_t draw(uint32_t *seed) {
  *seed = *seed * 1664525u + 1013904223u;
  return *seed >> 8;
}

/* Any rank may give up at any time; whatever the others were doing, nothing is lost, leaked or
 * touched afterwards. */
static void test_cancel_at_any_time(void **state) {
  (void)state;
  for (uint32_t round = 0; round < 160; round++) {
    static struct world w;
    uint32_t seed = round + 1;
    const int n = 4;
    begin(&w, (enum kind)(round % KINDS));
    for (int i = 0; i < n; i++) new_peer(&w);
    for (int i = 0; i < n; i++)
      if (draw(&seed) % 8 != 0) join(&w.peer[i], i, n);
    for (int victims = 0; victims < 2; victims++) {
      for (uint32_t steps = draw(&seed) % 40; steps > 0; steps--) uv_run(&w.loop, UV_RUN_NOWAIT);
      struct peer *p = &w.peer[draw(&seed) % (uint32_t)n];
      if (!p->b) continue;
      gy_bootstrap_cancel(p->b, "cancelled");
      p->b = NULL;
      p->started = false;
    }
    for (uint32_t steps = draw(&seed) % 60; steps > 0; steps--) uv_run(&w.loop, UV_RUN_NOWAIT);
    for (int i = 0; i < n; i++)
      if (w.peer[i].started && w.peer[i].ended && w.peer[i].status != GYRE_OK &&
          w.peer[i].status != GYRE_ERR_ABORTED)
        fail_msg("round %u rank %d: %s", round, i, w.peer[i].text);
    finish(&w);
  }
}

/* --------------------------------------------------------------------- a loop for each thread --- */

static void *rank_thread(void *arg) {
  struct world *w = arg;
  until(w, all_ended(w));
  if (w->peer[0].status != GYRE_OK) return NULL;
  struct peer *p = &w->peer[0];
  if (p->rank != 0) assert_int_equal(gy_channel_send(p->channels[0], PING, "", 0), GYRE_OK);
  until(w, p->n_ping == (p->rank == 0 ? p->nranks - 1 : 1));
  return w;
}

static void test_a_thread_for_each_rank(void **state) {
  (void)state;
  enum { N = 4 };
  static struct world w[N];
  pthread_t thread[N];
  for (int kind = 0; kind < 3;
       kind += 2) { /* TCP and FILE_: these need nothing of one another's memory */
    for (int i = 0; i < N; i++) {
      begin(&w[i], (enum kind)kind);
      memcpy(w[i].rendezvous, w[0].rendezvous, sizeof w[i].rendezvous);
      new_peer(&w[i]);
      join(&w[i].peer[0], i, N);
    }
    for (int i = 0; i < N; i++)
      assert_int_equal(pthread_create(&thread[i], NULL, rank_thread, &w[i]), 0);
    for (int i = 0; i < N; i++) {
      void *ok = NULL;
      assert_int_equal(pthread_join(thread[i], &ok), 0);
      assert_ptr_equal(ok, &w[i]);
    }
    for (int i = 0; i < N; i++) finish(&w[i]);
  }
}

/* ------------------------------------------------------------------------------------- bytes --- */

static void fill_member(struct gy_member *m, uint8_t seed) {
  memset(m->host, seed, sizeof m->host);
  memset(m->local, seed + 64, sizeof m->local);
  snprintf(m->host_name, sizeof m->host_name, "n%u", seed);
  m->pid = 0x01020304u + seed;
  m->unattended = seed % 2;
  m->n_address = 1;
  assert_true(gy_address_numeric("10.0.0.1", (uint16_t)(7000 + seed), &m->address[0]));
}

#define SIXTEEN(x) x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x

static void test_golden_join(void **state) {
  (void)state;
  static struct gy_join join, back;
  struct gy_writer w = {0};
  static const uint8_t want[] = {
      1,           0,                                  /* format */
      3,           0,    0,    0,    8,   0,   0,   0, /* rank, world size */
      100,         0,    0,    0,                      /* version 0.1.0 */
      0x60,        0xea, 0,    0,                      /* patience 60000 ms */
      SIXTEEN(9),                                      /* host */
      SIXTEEN(73),                                     /* its name within the host */
      2,           0,    'n',  '9',                    /* its name */
      13,          3,    2,    1,                      /* pid */
      1,                                               /* it has no progress thread */
      1,           4,    0x61, 0x1b, 10,  0,   0,   1, /* one address: IPv4, port 7009 */
      1,                                               /* one demand */
      11,          0,    'G',  'Y',  'R', 'E', '_', 'W', 'I', 'N', 'D', 'O', 'W', 2, 0, '1', '6',
  };
  memset(&join, 0, sizeof join);
  join.rank = 3;
  join.nranks = 8;
  join.version = 100;
  join.patience_ms = 60000;
  fill_member(&join.member, 9);
  join.n_demand = 1;
  snprintf(join.demand[0].name, sizeof join.demand[0].name, "GYRE_WINDOW");
  snprintf(join.demand[0].value, sizeof join.demand[0].value, "16");
  gy_join_write(&w, &join);
  assert_int_equal(w.len, sizeof want);
  assert_memory_equal(w.data, want, sizeof want);
  assert_int_equal(gy_join_read(w.data, w.len, &back), GYRE_OK);
  assert_memory_equal(&join, &back, sizeof join);
  for (size_t len = 0; len < w.len; len++)
    assert_int_equal(gy_join_read(w.data, len, &back), GYRE_ERR_PROTO);
  gy_w_u8(&w, 0);
  assert_int_equal(gy_join_read(w.data, w.len, &back), GYRE_ERR_PROTO);
  gy_w_free(&w);
}

static void test_golden_roster(void **state) {
  (void)state;
  struct gy_roster *roster, *back;
  struct gy_writer w = {0};
  static const uint8_t want[] = {
      1,
      0, /* format */
      2,
      0,
      0,
      0,             /* world size */
      SIXTEEN(0xee), /* epoch */
      3,
      0,
      't',
      'c',
      'p', /* transports */
      4,
      0,
      'r',
      'i',
      'n',
      'g', /* algo */
      0,
      0,
      4,
      0, /* slice_bytes 262144 */
      8,
      0,
      0,
      0, /* window */
      0xe0,
      0x93,
      4,
      0, /* op_timeout_ms 300000 */
      0xe8,
      3,
      0,
      0, /* stall_ms 1000 */
      0xf4,
      1,
      0,
      0, /* verdict_ms 500 */
      0xe8,
      3,
      0,
      0, /* heartbeat_ms 1000 */
      0x98,
      0x3a,
      0,
      0, /* peer_timeout_ms 15000 */
      4,
      0,
      'a',
      'u',
      't',
      'o', /* tcp_congestion */
      1,   /* checksum */
      0,
      0,
      0,
      0,
      0,
      0,
      0xf8,
      0x3f, /* 1.5 */
      0,
      0,
      0,
      0,
      0,
      0,
      0x04,
      0x40, /* 2.5 */
      0,
      0,
      0,
      0,
      0,
      0,
      0x0c,
      0x40, /* 3.5 */
      0,
      0,
      0,
      0,
      0,
      0,
      0x12,
      0x40, /* 4.5 */
      0,
      0,
      0,
      0,
      0,
      0,
      0x16,
      0x40, /* 5.5 */
      0,
      0x10,
      0,
      0,
      0,
      0,
      0,
      0, /* 4096 */
      SIXTEEN(1),
      SIXTEEN(65),
      2,
      0,
      'n',
      '1',
      5,
      3,
      2,
      1,
      1,
      /* no thread */ 1,
      4,
      0x59,
      0x1b,
      10,
      0,
      0,
      1,
      SIXTEEN(2),
      SIXTEEN(66),
      2,
      0,
      'n',
      '2',
      6,
      3,
      2,
      1,
      0,
      1,
      4,
      0x5a,
      0x1b,
      10,
      0,
      0,
      1,
  };
  assert_int_equal(gy_roster_create(2, &roster), GYRE_OK);
  memset(roster->epoch, 0xee, sizeof roster->epoch);
  roster->agreed = (struct gy_agreed){.transports = "tcp",
                                      .algo = "ring",
                                      .slice_bytes = 262144,
                                      .window = 8,
                                      .op_timeout_ms = 300000,
                                      .stall_ms = 1000,
                                      .verdict_ms = 500,
                                      .heartbeat_ms = 1000,
                                      .peer_timeout_ms = 15000,
                                      .tcp_congestion = "auto",
                                      .checksum = true,
                                      .cost = {1.5, 2.5, 3.5, 4.5, 5.5, 4096}};
  fill_member(&roster->member[0], 1);
  fill_member(&roster->member[1], 2);
  gy_roster_write(&w, roster);
  assert_int_equal(w.len, sizeof want);
  assert_memory_equal(w.data, want, sizeof want);
  assert_int_equal(gy_roster_read(w.data, w.len, &back), GYRE_OK);
  assert_memory_equal(&roster->agreed, &back->agreed, sizeof back->agreed);
  assert_memory_equal(roster->member, back->member, 2 * sizeof *back->member);
  gy_roster_free(back);
  for (size_t len = 0; len < w.len; len++)
    assert_int_equal(gy_roster_read(w.data, len, &back), GYRE_ERR_PROTO);
  gy_w_u8(&w, 0);
  assert_int_equal(gy_roster_read(w.data, w.len, &back), GYRE_ERR_PROTO);
  gy_w_free(&w);
  gy_roster_free(roster);
}

int main(void) {
  static const char *const variables[] = {"GYRE_SECRET", "GYRE_SECRET_FILE", "GYRE_RENDEZVOUS",
                                          "GYRE_ALGO", "GYRE_WINDOW"};
  for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) unsetenv(variables[i]);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sizes_and_kinds),
      cmocka_unit_test(test_one_rank_needs_no_network),
      cmocka_unit_test(test_tcp_by_name_and_ipv6),
      cmocka_unit_test(test_one_rendezvous_again_and_again),
      cmocka_unit_test(test_root_comes_late),
      cmocka_unit_test(test_duplicate_rank),
      cmocka_unit_test(test_two_roots),
      cmocka_unit_test(test_file_is_overwritten),
      cmocka_unit_test(test_world_size_differs),
      cmocka_unit_test(test_agreed_setting_differs),
      cmocka_unit_test(test_agreed_and_local_settings_that_may_differ),
      cmocka_unit_test(test_missing_ranks_are_named_everywhere),
      cmocka_unit_test(test_a_long_list_of_missing_ranks_is_cut),
      cmocka_unit_test(test_the_first_deadline_counts),
      cmocka_unit_test(test_root_missing),
      cmocka_unit_test(test_wrong_secret),
      cmocka_unit_test(test_give_up_is_told),
      cmocka_unit_test(test_member_dies),
      cmocka_unit_test(test_connection_without_join_is_forgotten),
      cmocka_unit_test(test_silent_duplicate_is_told),
      cmocka_unit_test(test_bad_joins),
      cmocka_unit_test(test_root_dies),
      cmocka_unit_test(test_root_is_silent),
      cmocka_unit_test(test_root_talks_nonsense),
      cmocka_unit_test(test_stale_file),
      cmocka_unit_test(test_file_is_private_and_removed),
      cmocka_unit_test(test_bad_rendezvous_is_refused_at_once),
      cmocka_unit_test(test_port_is_taken),
      cmocka_unit_test(test_bad_rank_or_size),
      cmocka_unit_test(test_store_failures),
      cmocka_unit_test(test_unique_id),
      cmocka_unit_test(test_place_text),
      cmocka_unit_test(test_cancel_at_any_time),
      cmocka_unit_test(test_a_thread_for_each_rank),
      cmocka_unit_test(test_golden_join),
      cmocka_unit_test(test_golden_roster),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* world.c - see world.h. */
#include "world.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "status.h"

/* ------------------------------------------------------------------- what a transport calls --- */

void gy_on_xfer_done(struct gy_link *l, struct gy_xfer *x) {
  struct end *e = l->end;
  struct transfer *t = (struct transfer *)(void *)x;
  assert_false(e->world->posting);
  assert_non_null(e->link);
  assert_false(t->done);
  assert_int_equal(x->index, e->done[t->recv]);
  e->done[t->recv]++;
  t->done = true;
}

void gy_on_link_down(struct gy_link *l, gyre_status why, int sys_errno) {
  struct end *e = l->end;
  e->downs++;
  e->world->told++;
  e->why = why;
  e->sys_errno = sys_errno;
  gy_format(e->text, sizeof e->text, "%s", gyre_last_error());
}

void gy_on_mismatch(struct gy_link *l, const struct gy_descriptor *mine,
                    const struct gy_descriptor *theirs) {
  struct end *e = l->end;
  e->mismatches++;
  e->world->told++;
  e->mine = *mine;
  e->theirs = *theirs;
}

void gy_on_unclaimed(struct gy_link *l, const struct gy_descriptor *theirs) {
  struct end *e = l->end;
  e->unclaimed++; /* again and again, from arm: not news */
  e->theirs = *theirs;
}

/* ------------------------------------------------------------------------------- open, close --- */

static void on_limit(uv_timer_t *t) { ((struct world *)t->data)->late = true; }
static void on_closed(void *user) { ++*(int *)user; }

static void rank_open(struct world *w, int rank) {
  struct rank *r = &w->rank[rank];
  gy_settings_defaults(&r->settings);
  r->settings.connect_timeout_ms = 20000;
  assert_int_equal(gy_net_create(&w->loop, &r->settings, &r->net), GYRE_OK);
  assert_int_equal(gy_net_listen(r->net, false), GYRE_OK);
  r->core = (struct gy_comm_core){.uv = &w->loop,
                                  .net = r->net,
                                  .rank = rank,
                                  .nranks = w->roster.nranks,
                                  .roster = &w->roster,
                                  .settings = &r->settings};
  struct gy_member *m = &w->member[rank];
  gy_format(m->host_name, sizeof m->host_name, "here");
  m->n_address = (uint32_t)gy_net_advertised(r->net, m->address);
  assert_true(m->n_address > 0);
  gy_net_listen_local(r->net, m->local);
}

void world_open(struct world *w, const struct gy_tl_ops *ops, int nranks, uint32_t window) {
  memset(w, 0, sizeof *w);
  w->ops = ops;
  assert_int_equal(uv_loop_init(&w->loop), 0);
  uv_timer_init(&w->loop, &w->limit);
  w->limit.data = w;
  uv_timer_start(&w->limit, on_limit, WORLD_LIMIT_MS, 0);
  w->roster.nranks = nranks;
  w->roster.agreed.window = window;
  gy_format(w->roster.agreed.tcp_congestion, sizeof w->roster.agreed.tcp_congestion, "auto");
  w->roster.member = w->member;
  w->call = (struct gy_descriptor){
      .seq = UINT64_C(0x500000002), .count = 77, .coll = GY_ALL_REDUCE, .dtype = GYRE_F32};
  for (int r = 0; r < nranks; r++) rank_open(w, r);
}

/* Each round has the whole limit. */
static void new_round(struct world *w) {
  static unsigned round;
  uv_update_time(&w->loop);
  uv_timer_start(&w->limit, on_limit, WORLD_LIMIT_MS, 0);
  round++;
  memcpy(w->roster.epoch, &round, sizeof round);
}

void world_open_transport(struct world *w, int rank) {
  new_round(w);
  assert_int_equal(w->ops->open(&w->rank[rank].core, &w->rank[rank].tl), GYRE_OK);
}

void world_open_transports(struct world *w) {
  new_round(w);
  for (int r = 0; r < w->roster.nranks; r++)
    assert_int_equal(w->ops->open(&w->rank[r].core, &w->rank[r].tl), GYRE_OK);
}

void world_close_transports(struct world *w) {
  for (unsigned i = 0; i < w->n_end; i++) {
    if (w->end[i].link) end_close(&w->end[i], false);
  }
  w->n_end = 0;
  for (int r = 0; r < w->roster.nranks; r++) {
    if (w->rank[r].tl) w->ops->close(w->rank[r].tl);
    w->rank[r].tl = NULL;
  }
}

void world_close(struct world *w) {
  world_close_transports(w);
  for (int r = 0; r < w->roster.nranks; r++) gy_net_close(w->rank[r].net, on_closed, &w->closed);
  WORLD_UNTIL(w, w->closed == w->roster.nranks);
  uv_close((uv_handle_t *)&w->limit, NULL);
  uv_run(&w->loop, UV_RUN_DEFAULT);
  assert_int_equal(uv_loop_close(&w->loop), 0);
}

struct end *end_open(struct world *w, int rank, int peer, uint16_t lane) {
  assert_true(w->n_end < WORLD_MAX_ENDS);
  struct end *e = &w->end[w->n_end++];
  *e = (struct end){.world = w, .call = w->call};
  assert_int_equal(w->ops->link_open(w->rank[rank].tl, peer, lane, e, &e->link), GYRE_OK);
  assert_ptr_equal(e->link->owner, e);
  assert_int_equal(e->link->peer, peer);
  assert_int_equal(e->link->lane, lane);
  e->link->end = e;
  return e;
}

void end_close(struct end *e, bool graceful) {
  e->world->ops->link_close(e->link, graceful);
  e->link = NULL;
}

/* --------------------------------------------------------------------------------- progress --- */

void world_step(struct world *w) {
  unsigned moved = 0, told = w->told;
  bool quiet = !w->spin;
  for (int r = 0; r < w->roster.nranks; r++) {
    if (w->rank[r].tl) moved += w->ops->poll(w->rank[r].tl, w->spin);
  }
  for (int r = 0; r < w->roster.nranks && quiet && !moved; r++) {
    if (w->rank[r].tl) quiet &= w->ops->arm(w->rank[r].tl);
  }
  w->turns++;
  bool sleep = quiet && !moved && w->told == told;
  uv_run(&w->loop, sleep ? UV_RUN_ONCE : UV_RUN_NOWAIT);
}

static void on_wake(uv_timer_t *t) { *(bool *)t->data = true; }
static void on_gone(uv_handle_t *h) { *(bool *)h->data = false; }

void world_idle(struct world *w, uint64_t ms) {
  uv_timer_t timer;
  bool flag = false;
  uv_update_time(&w->loop);
  uv_timer_init(&w->loop, &timer);
  timer.data = &flag;
  uv_timer_start(&timer, on_wake, ms, 0);
  WORLD_UNTIL(w, flag);
  uv_close((uv_handle_t *)&timer, on_gone);
  WORLD_UNTIL(w, !flag);
}

/* -------------------------------------------------------------------------------- transfers --- */

static void post(struct end *e, struct transfer *t, bool recv) {
  t->recv = recv;
  t->done = false;
  t->x.index = e->posted[recv]++;
  t->x.call = &e->call;
  e->world->posting = true;
  (recv ? e->world->ops->post_recv : e->world->ops->post_send)(e->link, &t->x);
  e->world->posting = false;
}

void post_send(struct end *e, struct transfer *t, const void *from, size_t bytes) {
  *t = (struct transfer){.x = {.addr = (void *)(uintptr_t)from, .bytes = bytes, .esize = 1}};
  post(e, t, false);
}

void post_recv(struct end *e, struct transfer *t, void *to, size_t bytes) {
  *t = (struct transfer){.x = {.addr = to, .bytes = bytes, .esize = 1}};
  post(e, t, true);
}

void post_reduce(struct end *e, struct transfer *t, const struct reduction *r, void *to,
                 const void *operand, size_t bytes) {
  struct gy_reducer reducer = {.kernel = gy_reduce_kernel(r->type, r->op), .divisor = r->finish};
  *t = (struct transfer){.x = {.addr = to,
                               .operand = operand,
                               .bytes = bytes,
                               .reducer = &t->reducer,
                               .esize = (uint8_t)gyre_dtype_size(r->type),
                               .swap = r->swap,
                               .completes = r->finish != 0},
                         .reducer = reducer};
  post(e, t, true);
}

/* ------------------------------------------------------------------------------------- data --- */

static uint8_t pattern(size_t i, unsigned sender, unsigned index) {
  return (uint8_t)((i * 2654435761u >> 5) + i + sender * 101 + index * 37 + 11);
}

void pattern_fill(void *to, size_t bytes, unsigned sender, unsigned index) {
  for (size_t i = 0; i < bytes; i++) ((uint8_t *)to)[i] = pattern(i, sender, index);
}

void pattern_check(const void *at, size_t bytes, unsigned sender, unsigned index) {
  for (size_t i = 0; i < bytes; i++) {
    if (((const uint8_t *)at)[i] == pattern(i, sender, index)) continue;
    fail_msg("message %u of rank %u, %zu bytes: byte %zu is wrong", index, sender, bytes, i);
  }
}

uint64_t test_random(uint64_t *state, uint64_t below) { /* xorshift64* (Vigna 2016) */
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return below ? (*state * 2685821657736338717u >> 11) % below : 0;
}

unsigned count_fds(void) {
  unsigned n = 0;
  DIR *d = opendir("/proc/self/fd");
  assert_non_null(d);
  while (readdir(d)) n++;
  closedir(d);
  return n;
}

size_t resident_kib(void) {
  unsigned long size = 0, resident = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  assert_non_null(f);
  assert_int_equal(fscanf(f, "%lu %lu", &size, &resident), 2);
  fclose(f);
  return resident * (size_t)sysconf(_SC_PAGESIZE) / 1024;
}

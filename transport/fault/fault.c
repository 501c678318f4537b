/*
 * fault.c - a transport that wraps another one and does harm on request (GYRE_FAULT).
 *
 * Links are the wrapped transport's own, so that what it reports goes straight to the engine. What
 * can be done from outside is done here: slices are held back, the process is killed or stopped.
 * What must happen to bytes (short reads and writes, cuts, flipped bits) is put into the link's
 * gy_tamper, which the wrapped transport honours.
 *
 * Everything is drawn from the seed, for each link on its own, so a seed gives the same faults at
 * the same places; when the kernel takes how many bytes is not in its power.
 *
 * Thread: the driving thread. Owner: as every transport.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../../src/log.h"
#include "../../src/status.h"
#include "fault.h"
#include "plan.h"

struct held { /* slices that are held back, in order */
  struct gy_xfer *head, **tail;
};

struct fault_link {
  struct gy_tamper tamper; /* first: found again by the link's pointer to it */
  struct fault_link *next;
  struct fault *fault;
  struct gy_link *link;
  struct held held[2]; /* sends, receives; `moved` is the microsecond when one is let go */
};

struct wake { /* outlives the transport until libuv has closed it */
  uv_timer_t timer;
};

struct fault {
  const struct gy_tl_ops *inner;
  struct gy_tl *tl;
  struct gy_comm_core *core;
  struct gy_fault_plan plan;
  uint64_t slices[GY_FAULT_RULES]; /* sent so far, as each rule counts them */
  uint64_t dice;
  bool reorder;
  struct fault_link *links;
  struct wake *wake;
};

static uint64_t now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* -------------------------------------------------------------------------------- open, close --- */

static void on_wake(uv_timer_t *timer) { (void)timer; } /* the turn of the loop is all it is for */
static void free_wake(uv_handle_t *handle) { free(handle); }

static gyre_status fault_open(const struct gy_tl_ops *inner, struct gy_comm_core *core,
                              struct gy_tl **out) {
  struct fault *f = calloc(1, sizeof *f);
  struct wake *wake = calloc(1, sizeof *wake);
  gyre_status st = GYRE_ERR_NOMEM;
  if (!f || !wake) {
    gy_fail(st, "out of memory for the fault transport");
    goto free_both;
  }
  st = gy_fault_plan_read(core->settings->fault, &f->plan);
  if (!st) st = inner->open(core, &f->tl);
  if (st) goto free_both;
  f->inner = inner;
  f->core = core;
  f->wake = wake;
  f->dice = gy_tamper_seed(f->plan.n ? f->plan.rule[0].seed : 1, core->rank, 0, 0);
  for (unsigned i = 0; i < f->plan.n; i++) {
    const struct gy_fault_rule *r = &f->plan.rule[i];
    if (r->kind == GY_FAULT_REORDER && (r->rank < 0 || r->rank == core->rank)) f->reorder = true;
  }
  uv_timer_init(core->uv, &wake->timer);
  gy_log(GY_LOG_WARN, "rank %d: faults are injected, as GYRE_FAULT asks: %s", core->rank,
         core->settings->fault);
  *out = (struct gy_tl *)f;
  return GYRE_OK;

free_both:
  free(wake);
  free(f);
  return st;
}

static void fault_close(struct gy_tl *tl) {
  struct fault *f = (struct fault *)tl;
  f->inner->close(f->tl);
  uv_timer_stop(&f->wake->timer);
  uv_close((uv_handle_t *)&f->wake->timer, free_wake);
  free(f);
}

static gyre_status fault_link_open(struct gy_tl *tl, int peer, uint16_t lane, void *owner,
                                   struct gy_link **out) {
  struct fault *f = (struct fault *)tl;
  struct fault_link *l = calloc(1, sizeof *l);
  if (!l) return gy_fail(GYRE_ERR_NOMEM, "out of memory for the link to rank %d", peer);
  gyre_status st = f->inner->link_open(f->tl, peer, lane, owner, &l->link);
  if (st) {
    free(l);
    return st;
  }
  uint64_t seed = f->plan.n ? f->plan.rule[0].seed : 1;
  l->tamper = (struct gy_tamper){.cut_at = GY_TAMPER_NEVER,
                                 .flip_at = GY_TAMPER_NEVER,
                                 .dice = gy_tamper_seed(seed, f->core->rank, peer, lane)};
  l->fault = f;
  for (int d = 0; d < 2; d++) l->held[d].tail = &l->held[d].head;
  l->next = f->links;
  f->links = l;
  l->link->tamper = &l->tamper;
  *out = l->link;
  return GYRE_OK;
}

static struct fault_link *of(struct gy_link *link) {
  return (struct fault_link *)(void *)link->tamper;
}

static void fault_link_close(struct gy_link *link, bool graceful) {
  struct fault_link *l = of(link);
  struct fault *f = l->fault;
  struct fault_link **p = &f->links;
  while (*p != l) p = &(*p)->next;
  *p = l->next;
  f->inner->link_close(link, graceful);
  free(l);
}

/* --------------------------------------------------------------------------------- the rules --- */

static bool concerns(const struct gy_fault_rule *r, const struct fault_link *l,
                     const struct gy_xfer *x) {
  return (r->rank < 0 || r->rank == l->fault->core->rank) &&
         (r->peer < 0 || r->peer == l->link->peer) && (!r->op || r->op == x->call->seq);
}

/* Once: from the first slice that it concerns the rule counts the bytes. */
static void aim(uint64_t *at, const struct gy_tamper *t, uint64_t amount) {
  if (*at == GY_TAMPER_NEVER && !t->struck) *at = t->sent + amount;
}

static void apply(struct fault_link *l, unsigned i, const struct gy_xfer *x, uint64_t *delay) {
  const struct gy_fault_rule *r = &l->fault->plan.rule[i];
  struct gy_tamper *t = &l->tamper;
  switch (r->kind) {
    case GY_FAULT_DELAY: *delay += gy_tamper_draw(&t->dice, r->amount + 1); break;
    case GY_FAULT_SHORT: t->most = (uint32_t)r->amount; break;
    case GY_FAULT_CUT: aim(&t->cut_at, t, r->amount); break;
    case GY_FAULT_FLIP:
      aim(&t->flip_at, t, r->amount);
      t->flip = (uint8_t)(1u << r->bit);
      break;
    case GY_FAULT_KILL:
      if (++l->fault->slices[i] == r->amount) kill(getpid(), SIGKILL);
      break;
    case GY_FAULT_STOP:
      if (++l->fault->slices[i] == r->amount) kill(getpid(), SIGSTOP);
      break;
    case GY_FAULT_REORDER: break;
  }
  (void)x;
}

/* ------------------------------------------------------------------------------------- slices --- */

static void hand_over(struct fault_link *l, struct gy_xfer *x, bool recv) {
  x->moved = 0;
  x->next = NULL;
  if (recv) {
    l->fault->inner->post_recv(l->link, x);
  } else {
    l->fault->inner->post_send(l->link, x);
  }
}

static void post(struct gy_link *link, struct gy_xfer *x, bool recv) {
  struct fault_link *l = of(link);
  struct fault *f = l->fault;
  uint64_t delay = 0;
  l->tamper.most = 0;
  for (unsigned i = 0; i < f->plan.n; i++) {
    enum gy_fault_kind kind = f->plan.rule[i].kind;
    bool both = kind == GY_FAULT_DELAY || kind == GY_FAULT_SHORT; /* the others count what is sent */
    if ((both || !recv) && concerns(&f->plan.rule[i], l, x)) apply(l, i, x, &delay);
  }
  struct held *h = &l->held[recv];
  if (!h->head && !delay && !f->reorder) {
    hand_over(l, x, recv);
    return;
  }
  x->moved = now_us() + delay;
  x->next = NULL;
  *h->tail = x;
  h->tail = &x->next;
}

static void fault_post_send(struct gy_link *l, struct gy_xfer *x) { post(l, x, false); }
static void fault_post_recv(struct gy_link *l, struct gy_xfer *x) { post(l, x, true); }

static unsigned let_go(struct fault_link *l, uint64_t now) {
  unsigned n = 0;
  for (int d = 0; d < 2; d++) {
    struct held *h = &l->held[d];
    while (h->head && h->head->moved <= now) {
      struct gy_xfer *x = h->head;
      h->head = x->next;
      if (!h->head) h->tail = &h->head;
      hand_over(l, x, d == 1);
      n++;
    }
  }
  return n;
}

/* The links are taken from a drawn one on, and some not in this pass. */
static unsigned let_go_reordered(struct fault *f, uint64_t now) {
  unsigned n = 0, links = 0, begin;
  for (struct fault_link *l = f->links; l; l = l->next) links++;
  if (!links) return 0;
  begin = (unsigned)gy_tamper_draw(&f->dice, links);
  for (int round = 0; round < 2; round++) {
    unsigned i = 0;
    for (struct fault_link *l = f->links; l; l = l->next, i++) {
      if ((i >= begin) == (round == 0) && gy_tamper_draw(&f->dice, 4)) n += let_go(l, now);
    }
  }
  return n;
}

static unsigned fault_poll(struct gy_tl *tl, bool spin) {
  struct fault *f = (struct fault *)tl;
  unsigned n = 0;
  uint64_t now = f->links ? now_us() : 0;
  if (f->reorder) {
    n = let_go_reordered(f, now);
    if (!gy_tamper_draw(&f->dice, 4)) return n;
  } else {
    for (struct fault_link *l = f->links; l; l = l->next) n += let_go(l, now);
  }
  return n + f->inner->poll(f->tl, spin);
}

static bool fault_arm(struct gy_tl *tl) {
  struct fault *f = (struct fault *)tl;
  uint64_t next = UINT64_MAX;
  for (struct fault_link *l = f->links; l; l = l->next) {
    for (int d = 0; d < 2; d++) {
      if (l->held[d].head && l->held[d].head->moved < next) next = l->held[d].head->moved;
    }
  }
  bool quiet = f->inner->arm(f->tl);
  if (next == UINT64_MAX) {
    uv_timer_stop(&f->wake->timer);
    return quiet;
  }
  uint64_t now = now_us();
  if (next <= now) return false;
  /* Again and again until nothing is held: it may fire between here and the sleep, and, as libuv's
   * clock is cut to milliseconds, before the slice is due. */
  uv_update_time(f->core->uv);
  uv_timer_start(&f->wake->timer, on_wake, (next - now + 999) / 1000, 1);
  return quiet;
}

static size_t fault_describe(const struct gy_link *l, char *out, size_t capacity) {
  const struct fault_link *mine = (const struct fault_link *)(const void *)l->tamper;
  return mine->fault->inner->describe(l, out, capacity);
}

/* -------------------------------------------------------------------------------- the tables --- */

#define TABLE(inner)                                                                                \
  static gyre_status open_##inner(struct gy_comm_core *core, struct gy_tl **out) {                  \
    return fault_open(&gy_##inner##_ops, core, out);                                                \
  }                                                                                                 \
  static int reach_##inner(const struct gy_comm_core *core, int peer, char *why, size_t capacity) { \
    return gy_##inner##_ops.reach(core, peer, why, capacity);                                       \
  }                                                                                                 \
  const struct gy_tl_ops gy_fault_##inner##_ops = {                                                 \
      .name = #inner,                                                                               \
      .abi = GY_TL_ABI,                                                                             \
      .caps = GY_CAP_HOST_MEM | GY_CAP_RECV_REDUCE,                                                 \
      .reach = reach_##inner,                                                                       \
      .open = open_##inner,                                                                         \
      .link_open = fault_link_open,                                                                 \
      .link_close = fault_link_close,                                                               \
      .close = fault_close,                                                                         \
      .post_send = fault_post_send,                                                                 \
      .post_recv = fault_post_recv,                                                                 \
      .poll = fault_poll,                                                                           \
      .arm = fault_arm,                                                                             \
      .describe = fault_describe,                                                                   \
  }

TABLE(tcp);
TABLE(shm);

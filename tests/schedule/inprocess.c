/* inprocess.c - see inprocess.h. */
#include "inprocess.h"

#include <stdlib.h>
#include <string.h>

struct pipe {                                            /* one direction between two ranks */
  struct gy_xfer *send, **send_tail, *recv, **recv_tail; /* posted; in order */
  struct gy_xfer *moving_send, *moving_recv;             /* the first that is not wholly moved */
  uint64_t checksum[GY_WINDOW_MAX];                      /* of each moved send's source */
};

struct link { /* a rank's end */
  struct gy_link base;
  struct rank *rank;
};

struct rank { /* also the transport's handle */
  struct world *world;
  int rank;
  struct gy_comm_core core;
  struct gy_settings settings;
  struct gy_loop *loop;
  struct gy_request_pool *requests;
  struct gy_engine *engine;
  struct link *link; /* by peer */
  const struct gy_tl_ops **ops;
};

struct world {
  struct world_config cfg;
  struct gy_roster roster;
  struct rank *rank;
  struct pipe *pipe; /* [from * nranks + to] */
  uint64_t random;
  char wrong[256];
};

static uint32_t draw(struct world *w, uint32_t below) { /* xorshift64* (Vigna 2016) */
  w->random ^= w->random >> 12;
  w->random ^= w->random << 25;
  w->random ^= w->random >> 27;
  return (uint32_t)((w->random * 2685821657736338717u) >> 33) % below;
}

static struct pipe *pipe_of(struct world *w, int from, int to) {
  return &w->pipe[from * w->cfg.nranks + to];
}

static uint64_t checksum(const struct gy_xfer *x) { /* FNV-1a */
  uint64_t h = 14695981039346656037u;
  for (size_t i = 0; i < x->bytes; i++)
    h = (h ^ ((const unsigned char *)x->addr)[i]) * 1099511628211u;
  return h;
}

static void wrong(struct world *w, const char *what, int from, int to, const struct gy_xfer *x) {
  if (*w->wrong) return;
  gy_format(w->wrong, sizeof w->wrong, "%s: from rank %d to %d, instruction %u, message %u", what,
            from, to, x->insn, x->index);
}

/* ------------------------------------------------------------------------------ the transport --- */

static int reach(const struct gy_comm_core *core, int peer, char *why, size_t capacity) {
  (void)core, (void)peer, (void)why, (void)capacity;
  return 1;
}

static gyre_status open_rank(struct gy_comm_core *core, struct gy_tl **out) {
  *out = (struct gy_tl *)(void *)((char *)core - offsetof(struct rank, core));
  return GYRE_OK;
}

static gyre_status link_open(struct gy_tl *tl, int peer, uint16_t lane, void *owner,
                             struct gy_link **out) {
  struct rank *r = (struct rank *)(void *)tl;
  struct link *l = &r->link[peer];
  l->rank = r;
  l->base = (struct gy_link){.tl = tl, .peer = peer, .lane = lane, .owner = owner};
  *out = &l->base;
  return GYRE_OK;
}

static void link_close(struct gy_link *l, bool graceful) { (void)l, (void)graceful; }
static void close_rank(struct gy_tl *tl) { (void)tl; }
static bool arm(struct gy_tl *tl) { return tl != NULL; }
static size_t describe(const struct gy_link *l, char *out, size_t n) {
  return gy_format(out, n, "to %d", l->peer);
}

static void post_send(struct gy_link *l, struct gy_xfer *x) {
  struct rank *r = (struct rank *)(void *)l->tl;
  struct pipe *p = pipe_of(r->world, r->rank, l->peer);
  x->next = NULL;
  *p->send_tail = x;
  p->send_tail = &x->next;
  if (!p->moving_send) p->moving_send = x;
}

static void post_recv(struct gy_link *l, struct gy_xfer *x) {
  struct rank *r = (struct rank *)(void *)l->tl;
  struct pipe *p = pipe_of(r->world, l->peer, r->rank);
  x->next = NULL;
  *p->recv_tail = x;
  p->recv_tail = &x->next;
  if (!p->moving_recv) p->moving_recv = x;
}

static unsigned report_sends(struct rank *r, struct link *l, struct pipe *p) {
  unsigned n = 0;
  while (p->send && p->send != p->moving_send && draw(r->world, 4) == 0) { /* as late as the dice say */
    struct gy_xfer *x = p->send;
    if (checksum(x) != p->checksum[x->index % r->world->cfg.window]) {
      wrong(r->world, "a source was overwritten before its send was done", r->rank, l->base.peer, x);
    }
    p->send = x->next;
    if (!p->send) p->send_tail = &p->send;
    gy_on_xfer_done(&l->base, x);
    n++;
  }
  return n;
}

static unsigned report_recvs(struct rank *r, struct link *l, struct pipe *p) {
  unsigned n = 0;
  while (p->recv && p->recv != p->moving_recv && draw(r->world, 3)) {
    struct gy_xfer *x = p->recv;
    p->recv = x->next;
    if (!p->recv) p->recv_tail = &p->recv;
    gy_on_xfer_done(&l->base, x);
    n++;
  }
  return n;
}

static unsigned poll_rank(struct gy_tl *tl, bool spin) {
  struct rank *r = (struct rank *)(void *)tl;
  unsigned n = 0;
  (void)spin;
  for (int peer = 0; peer < r->world->cfg.nranks; peer++) {
    if (!r->link[peer].rank) continue;
    n += report_sends(r, &r->link[peer], pipe_of(r->world, r->rank, peer));
    n += report_recvs(r, &r->link[peer], pipe_of(r->world, peer, r->rank));
  }
  return n;
}

static const struct gy_tl_ops ops = {.name = "inprocess",
                                     .abi = GY_TL_ABI,
                                     .caps = GY_CAP_HOST_MEM | GY_CAP_RECV_REDUCE,
                                     .reach = reach,
                                     .open = open_rank,
                                     .link_open = link_open,
                                     .link_close = link_close,
                                     .close = close_rank,
                                     .post_send = post_send,
                                     .post_recv = post_recv,
                                     .poll = poll_rank,
                                     .arm = arm,
                                     .describe = describe};

/* ------------------------------------------------------------------------------ the scheduler --- */

/* Moves some elements of the first unfinished message of a pipe. False: sender or receiver has
 * posted nothing. */
static bool move(struct world *w, int from, int to) {
  struct pipe *p = pipe_of(w, from, to);
  struct gy_xfer *s = p->moving_send, *r = p->moving_recv;
  if (!s || !r) return false;
  if (s->index != r->index || s->bytes != r->bytes || !gy_descriptor_equal(s->call, r->call)) {
    wrong(w, "messages do not match", from, to, s);
    return false;
  }
  size_t left = (s->bytes - s->moved) / s->esize, n = left;
  if (left > 1 && draw(w, 2)) n = 1 + draw(w, (uint32_t)left);
  const char *src = (const char *)s->addr + s->moved;
  char *dst = (char *)r->addr + s->moved;
  const char *operand = (const char *)r->operand + s->moved;
  if (r->reducer && n) {
    gy_reduce(r->reducer, dst, r->swap ? src : operand, r->swap ? operand : src, n, r->completes);
  } else if (n) {
    memmove(dst, src, n * s->esize);
  }
  s->moved += n * s->esize;
  if (s->moved == s->bytes) {
    p->checksum[s->index % w->cfg.window] = checksum(s);
    p->moving_send = s->next;
    p->moving_recv = r->next;
  }
  return true;
}

static bool all_done(gyre_request **req, int n) {
  for (int i = 0; i < n; i++) {
    if (!atomic_load(&req[i]->done)) return false;
  }
  return true;
}

/* One round in which everybody gets every chance: when even that changes nothing, nothing ever
 * will. */
static bool sweep(struct world *w) {
  bool any = false;
  for (int a = 0; a < w->cfg.nranks; a++) {
    for (int b = 0; b < w->cfg.nranks; b++) any |= a != b && move(w, a, b);
  }
  for (int tries = 0; tries < 64; tries++) { /* reports are left to dice */
    for (int r = 0; r < w->cfg.nranks; r++) any |= gy_engine_pass(w->rank[r].engine, false) != 0;
  }
  return any;
}

const char *world_run(struct world *w, gyre_request **req, int n) {
  *w->wrong = 0;
  uint32_t ranks = (uint32_t)w->cfg.nranks;
  while (!*w->wrong && !all_done(req, n)) {
    bool any = false;
    for (int step = 0; step < 200; step++) {
      if (draw(w, 2)) {
        any |= gy_engine_pass(w->rank[draw(w, ranks)].engine, false) != 0;
      } else if (ranks > 1) {
        int from = (int)draw(w, ranks), to = (int)draw(w, ranks);
        any |= from != to && move(w, from, to);
      }
    }
    if (!any && !all_done(req, n) && !sweep(w) && !*w->wrong)
      return "deadlock: no message can move";
  }
  for (int s = 0; s < 64; s++) poll_rank((struct gy_tl *)(void *)&w->rank[0], false);
  return *w->wrong ? w->wrong : NULL;
}

/* -------------------------------------------------------------------------------- set up, down --- */

static void on_down(void *user, int peer, gyre_status why, int sys_errno) {
  (void)peer, (void)why, (void)sys_errno;
  gy_format(((struct world *)user)->wrong, 256, "link down: %s", gyre_last_error());
}

static void on_mismatch(void *user, int peer, const struct gy_descriptor *a,
                        const struct gy_descriptor *b) {
  (void)peer, (void)a, (void)b;
  gy_format(((struct world *)user)->wrong, 256, "mismatch");
}

void world_algo(struct world *w, const char *name) {
  gy_format(w->roster.agreed.algo, sizeof w->roster.agreed.algo, "%s", name);
}

static void rank_init(struct world *w, int rank) {
  struct rank *r = &w->rank[rank];
  size_t n = (size_t)w->cfg.nranks;
  r->world = w;
  r->rank = rank;
  gy_settings_load(&r->settings);
  r->core = (struct gy_comm_core){
      .rank = rank, .nranks = w->cfg.nranks, .roster = &w->roster, .settings = &r->settings};
  r->link = calloc(n, sizeof *r->link);
  r->ops = calloc(n, sizeof *r->ops);
  for (size_t p = 0; p < n; p++) r->ops[p] = &ops;
  gy_loop_create(&r->settings, false, &r->loop);
  gy_request_pool_create(r->loop, &r->requests);
  struct gy_engine_config config = {.core = &r->core,
                                    .loop = r->loop,
                                    .requests = r->requests,
                                    .peer_ops = r->ops,
                                    .link_down = on_down,
                                    .mismatch = on_mismatch,
                                    .user = w};
  gy_engine_create(&config, &r->engine);
}

struct world *world_create(const struct world_config *config) {
  struct world *w = calloc(1, sizeof *w);
  size_t n = (size_t)config->nranks;
  w->cfg = *config;
  w->random = config->seed * 2 + 1;
  w->roster.nranks = config->nranks;
  w->roster.agreed.slice_bytes = config->slice_bytes;
  w->roster.agreed.window = config->window;
  w->rank = calloc(n, sizeof *w->rank);
  w->pipe = calloc(n * n, sizeof *w->pipe);
  for (size_t i = 0; i < n * n; i++) {
    w->pipe[i].send_tail = &w->pipe[i].send;
    w->pipe[i].recv_tail = &w->pipe[i].recv;
  }
  for (int r = 0; r < config->nranks; r++) rank_init(w, r);
  return w;
}

struct gy_engine *world_engine(struct world *w, int rank) {
  return w->rank[rank].engine;
}

void world_install(struct world *w, int rank, const struct gy_algo *algo, const struct gy_key *key,
                   struct gy_program *program) {
  if (gy_engine_install(w->rank[rank].engine, algo, key, program))
    gy_format(w->wrong, sizeof w->wrong, "install failed");
}

void world_free(struct world *w) {
  for (int i = 0; i < w->cfg.nranks; i++) {
    struct rank *r = &w->rank[i];
    gy_engine_fail(r->engine, GYRE_ERR_ABORTED, "the test is over", false);
    gy_engine_free(r->engine);
    gy_loop_destroy(r->loop);
    gy_request_pool_release(r->requests);
    free(r->link);
    free(r->ops);
  }
  free(w->rank);
  free(w->pipe);
  free(w);
}

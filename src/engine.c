/*
 * engine.c - see engine.h.
 *
 * A program's instruction has no state but two counters: slices issued and slices done. A message
 * queue of a program (all its instructions for one direction of one link) becomes a cursor, which
 * waits in that direction's flow behind the cursors of earlier runs; only the first cursor of a
 * flow issues. So messages go in one static order on both ends, and a pass looks at the heads of
 * flows, not at instructions.
 */
#include "engine.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fpenv.h"
#include "geometry.h"
#include "message.h"
#include "select.h"
#include "trace.h"
#include "weights.h"

#define PLANS_MAX 64            /* programs kept */
#define CHOICES 64              /* remembered choices of algorithm */
#define HISTORY 64              /* descriptors kept for stall queries */
#define LOCAL_BYTES (1u << 20)  /* local copying and reducing in one pass */
#define SCRATCH_KEEP (4u << 20) /* scratch that stays with an idle run */
#define QUIET_PASSES 1024       /* busy-polling in vain for so many passes is waiting */

struct cursor { /* a run's messages on one flow, and how far they have been issued */
  struct cursor *next;
  struct gy_run *run;
  uint16_t first, last; /* entries of program->order that share the current phase: [first, last) */
  uint16_t at, end;     /* the entry that is next; end of the queue */
  uint32_t slice;
};

struct slot { /* a message on its way */
  struct gy_xfer xfer;
  struct gy_descriptor call; /* the run's; where lengths vary with the count of this message's block */
};

struct flow { /* one direction of one link */
  struct cursor *head, **tail;
  struct flow *next_dirty;
  struct end *end;
  struct slot *ring; /* window of them, reused in order */
  uint32_t next_index, in_flight;
  bool dirty, recv;
};

struct end {        /* our end of a link */
  struct end *next; /* another lane of the same peer */
  struct gy_link *link;
  const struct gy_tl_ops *ops;
  struct flow flow[2]; /* send, receive */
  int peer;
  uint16_t lane;
};

struct plan {        /* a program in the cache, with idle runs of its size */
  struct plan *next; /* most recently used first */
  const struct gy_algo *algo;
  struct gy_key key;
  struct gy_program *program;
  struct gy_run *idle;
  unsigned active;
};

struct gy_run { /* one operation in flight */
  struct gy_run *next, *next_dirty;
  struct gy_command start;
  struct gy_engine *engine;
  struct plan *plan;
  const struct gy_program *prog;
  struct gy_descriptor call;
  struct gy_geometry geo;
  const char *in;
  char *out, *tmp;
  size_t tmp_capacity, tmp_slot;
  struct gy_reducer reducer;
  struct weights {
    struct gy_reducer reducer;
    double own, *out, *tmp; /* own: of all chunks of IN; of each chunk of OUT, of each scratch slot */
    double *total;          /* the caller's; NULL: the collective has no weights */
  } weights;
  struct gy_operator *created; /* a reference; NULL: built in */
  char *prepared;              /* what stands for the input; NULL: nothing does */
  uint32_t left;               /* instructions that are not finished */
  int64_t posted_ns;
  uint64_t record;              /* its number in the flight recorder */
  uint64_t bytes_in, bytes_out; /* of whole slices, so far */
  bool dirty;
  gyre_request *req;
  size_t *length, *place[2];       /* GY_VARY: see gy_blocks */
  struct cursor *cursor;           /* one for each queue */
  uint32_t *done, *total, *issued; /* one for each instruction */
};

struct choice {
  size_t bytes;
  const struct gy_algo *algo;
  uint8_t coll, ordered;
};

struct messages { /* how many have been posted here, to and from a peer */
  uint64_t sent, received;
};

struct runs { /* in the order of their posting */
  struct gy_run *head, **tail;
};

struct tally {                  /* of a peer */
  uint64_t bytes_in, bytes_out; /* of whole slices */
  int64_t wait_ns;
};

struct gy_engine {
  struct gy_engine_config cfg;
  struct gy_comm_core *core;
  uint32_t window, slice_bytes;

  pthread_mutex_t post_lock; /* the plan cache, idle runs, the order of posts */
  struct plan *plans;
  unsigned n_plans;
  struct choice choice[CHOICES];
  uint64_t next_seq;
  struct messages *messages; /* by peer */
  gyre_status refused;       /* why posts are refused; with its text */
  char refused_text[512];

  /* locked */
  struct runs active, active_messages;
  struct gy_run *dirty_runs;
  struct flow *dirty_flows;
  struct end **ends; /* by peer */
  struct opened {
    const struct gy_tl_ops *ops;
    struct gy_tl *tl;
  } opened[4];
  unsigned n_opened;
  uint64_t moved, started, completed, failures, messages_started;
  struct gy_trace *trace, *message_trace;
  struct tally *tally; /* by peer */
  struct {
    int64_t since; /* 0: nobody is waited for */
    int peer;
    unsigned quiet; /* passes of a spinning driver since something happened */
  } wait;
  struct gy_descriptor history[HISTORY];
  bool failed;
};

/* --------------------------------------------------------------------------- descriptors --- */

bool gy_descriptor_equal(const struct gy_descriptor *a, const struct gy_descriptor *b) {
  return a->seq == b->seq && a->count == b->count && a->root == b->root && a->coll == b->coll &&
         a->dtype == b->dtype && a->op == b->op && a->algo == b->algo;
}

static bool is_message(const struct gy_descriptor *d) { return d->coll == GY_MESSAGE; }

const char *gy_descriptor_text(const struct gy_descriptor *d, char *out, size_t capacity) {
  const struct gy_coll_traits *traits = gy_coll_traits(d->coll);
  const char *type = gyre_dtype_name((gyre_dtype)d->dtype);
  size_t n_algo;
  const struct gy_algo *const *algos = gy_algorithms(&n_algo);
  const char *algo = d->algo < n_algo ? algos[d->algo]->name : "?";
  if (is_message(d) && type) {
    gy_format(out, capacity, "message %llu from rank %d to rank %d (%s x %llu)",
              (unsigned long long)d->seq, gy_message_from(d->root), gy_message_to(d->root), type,
              (unsigned long long)d->count);
    return out;
  }
  if (!traits || !type) {
    gy_format(out, capacity, "an unknown operation (%u, type %u)", d->coll, d->dtype);
    return out;
  }
  if (!traits->has_data) {
    gy_format(out, capacity, "%s()", traits->name);
    return out;
  }
  size_t n =
      gy_format(out, capacity, "%s(%s x %llu", traits->name, type, (unsigned long long)d->count);
  const char *op = gyre_op_name((gyre_op)d->op);
  if (traits->reduces) n += gy_format(out + n, capacity - n, ", %s", op ? op : "?");
  if (traits->reduces && d->op >= GYRE_OP_CREATED_FIRST)
    n += gy_format(out + n, capacity - n, "#%u", d->op);
  if (traits->rooted) n += gy_format(out + n, capacity - n, ", root %u", d->root);
  gy_format(out + n, capacity - n, ", %s)", algo);
  return out;
}

/* ----------------------------------------------------------------------------- addresses --- */

static bool is_weight(const struct gy_run *r, struct gy_ref ref) {
  return gy_is_weight(ref, r->prog->n_chunk);
}

static double *weight_at(const struct gy_run *r, struct gy_ref ref) {
  switch (ref.buf) {
    case GY_IN: return (double *)(uintptr_t)&r->weights.own;
    case GY_OUT: return &r->weights.out[ref.chunk];
    default: return &r->weights.tmp[ref.chunk];
  }
}

static const struct gy_reducer *reducer_of(const struct gy_run *r, struct gy_ref ref) {
  return is_weight(r, ref) ? &r->weights.reducer : &r->reducer;
}

static size_t element_bytes(const struct gy_run *r, struct gy_ref ref) {
  return is_weight(r, ref) ? sizeof(double) : r->geo.esize;
}

static char *slice_address(const struct gy_run *r, struct gy_ref ref, uint32_t slice) {
  if (is_weight(r, ref)) return (char *)weight_at(r, ref);
  size_t at = (size_t)slice * r->geo.slice_bytes;
  switch (ref.buf) {
    case GY_IN: return (char *)(uintptr_t)r->in + gy_chunk_offset(&r->geo, ref.buf, ref.chunk) + at;
    case GY_OUT: return r->out + gy_chunk_offset(&r->geo, ref.buf, ref.chunk) + at;
    default:
      if (!r->prog->tmp_whole) at = slice % r->engine->window * r->geo.slice_bytes;
      return r->tmp + ref.chunk * r->tmp_slot + at;
  }
}

static bool met(const struct gy_run *r, uint16_t dep, uint8_t lag, uint32_t slice) {
  if (dep == GY_NODEP) return true;
  uint32_t done = r->done[dep];
  if (done == r->total[dep]) return true;
  if (lag == GY_LAG_NONE) return done > slice;
  return lag == GY_LAG_WINDOW && done + r->engine->window > slice;
}

static bool ready(const struct gy_run *r, const struct gy_insn *i, uint32_t slice) {
  return met(r, i->dep[0], i->dep_lag[0], slice) && met(r, i->dep[1], i->dep_lag[1], slice);
}

/* ---------------------------------------------------------------------------------- dirty --- */

static void mark_run(struct gy_engine *e, struct gy_run *r) {
  if (r->dirty) return;
  r->dirty = true;
  r->next_dirty = e->dirty_runs;
  e->dirty_runs = r;
}

static void mark_flow(struct gy_engine *e, struct flow *f) {
  if (f->dirty) return;
  f->dirty = true;
  f->next_dirty = e->dirty_flows;
  e->dirty_flows = f;
}

/* -------------------------------------------------------------------------------- cursors --- */

/* The end of the entries that share the phase of the one at `first`. */
static uint16_t phase_end(const struct gy_program *p, uint16_t first, uint16_t end) {
  uint16_t i = first;
  while (i < end && p->insn[p->order[i]].phase == p->insn[p->order[first]].phase) i++;
  return i;
}

static void cursor_init(struct cursor *c, struct gy_run *r, const struct gy_queue *q) {
  *c = (struct cursor){
      .run = r, .first = q->first, .at = q->first, .end = (uint16_t)(q->first + q->count)};
  c->last = phase_end(r->prog, c->first, c->end);
}

/* To the next message in (phase, slice, index) order. False: that was the last. */
static bool cursor_advance(struct cursor *c) {
  const struct gy_program *p = c->run->prog;
  for (;;) {
    if (++c->at == c->last) { /* next slice of this phase */
      bool more = false;
      c->slice++;
      for (uint16_t i = c->first; i < c->last; i++) more |= c->run->total[p->order[i]] > c->slice;
      if (!more) {
        if (c->last == c->end) return false;
        c->first = c->last;
        c->last = phase_end(p, c->first, c->end);
        c->slice = 0;
      }
      c->at = c->first;
    }
    if (c->run->total[p->order[c->at]] > c->slice) return true;
  }
}

/* ------------------------------------------------------------------------------ ends, flows --- */

static void flow_init(struct flow *f, struct end *end, bool recv, struct slot *ring) {
  f->end = end;
  f->recv = recv;
  f->ring = ring;
  f->tail = &f->head;
}

static struct gy_tl *opened_transport(const struct gy_engine *e, const struct gy_tl_ops *ops) {
  for (unsigned i = 0; i < e->n_opened; i++) {
    if (e->opened[i].ops == ops) return e->opened[i].tl;
  }
  return NULL;
}

static gyre_status open_transport(struct gy_engine *e, const struct gy_tl_ops *ops) {
  struct gy_tl *tl;
  if (opened_transport(e, ops)) return GYRE_OK;
  if (e->n_opened == sizeof e->opened / sizeof *e->opened) {
    return gy_fail(GYRE_ERR_INTERNAL, "more than %zu transports in one communicator",
                   sizeof e->opened / sizeof *e->opened);
  }
  gyre_status st = ops->open(e->core, &tl);
  if (!st) e->opened[e->n_opened++] = (struct opened){ops, tl};
  return st;
}

static struct end *end_find(struct gy_engine *e, int peer, uint16_t lane) {
  struct end *end = e->ends[peer];
  while (end && end->lane != lane) end = end->next;
  return end;
}

static gyre_status end_open(struct gy_engine *e, int peer, uint16_t lane) {
  struct end *end = calloc(1, sizeof *end + 2 * (size_t)e->window * sizeof(struct slot));
  if (!end) return gy_fail(GYRE_ERR_NOMEM, "out of memory for the link to rank %d", peer);
  struct slot *ring = (struct slot *)(void *)(end + 1);
  end->ops = e->cfg.peer_ops[peer];
  end->peer = peer;
  end->lane = lane;
  flow_init(&end->flow[0], end, false, ring);
  flow_init(&end->flow[1], end, true, ring + e->window);
  gyre_status st = end->ops->link_open(opened_transport(e, end->ops), peer, lane, e, &end->link);
  if (st) {
    free(end);
    return st;
  }
  end->link->end = end;
  end->next = e->ends[peer];
  e->ends[peer] = end;
  return GYRE_OK;
}

/* --------------------------------------------------------------------------------- a pass --- */

static struct flow *flow_of(struct gy_engine *e, const struct gy_queue *q) {
  return &end_find(e, q->peer, q->lane)->flow[q->recv];
}

static void post(struct gy_engine *e, struct flow *f, struct gy_run *r, uint16_t index,
                 uint32_t slice) {
  const struct gy_insn *i = &r->prog->insn[index];
  struct gy_ref end = f->recv ? i->dst : i->src;
  struct slot *slot = &f->ring[f->next_index % e->window];
  struct gy_xfer *x = &slot->xfer;
  slot->call = r->call;
  if (r->geo.layout == GY_VARY) slot->call.count = r->geo.blocks.length[end.range];
  *x = (struct gy_xfer){.bytes = gy_slice_bytes(&r->geo, end.range, slice),
                        .esize = (uint8_t)element_bytes(r, end),
                        .more = !f->recv && is_weight(r, end),
                        .index = f->next_index++,
                        .insn = index,
                        .slice = slice,
                        .call = &slot->call,
                        .run = r};
  x->addr = slice_address(r, end, slice);
  if (i->op == GY_RECV_REDUCE) {
    x->operand = slice_address(r, i->src, slice);
    x->reducer = reducer_of(r, i->dst);
    x->swap = i->dst.flags & GY_REF_SWAP;
    x->completes = i->dst.flags & GY_REF_FINISH;
  }
  r->issued[index]++;
  f->in_flight++;
  if (f->recv) {
    f->end->ops->post_recv(f->end->link, x);
  } else {
    f->end->ops->post_send(f->end->link, x);
  }
}

/* Issues what the flow's first cursor may, and the next one's, until something must be waited
 * for. */
static void issue(struct gy_engine *e, struct flow *f) {
  struct cursor *c;
  while ((c = f->head) && f->in_flight < e->window) {
    struct gy_run *r = c->run;
    uint16_t index = r->prog->order[c->at];
    if (!ready(r, &r->prog->insn[index], c->slice)) return;
    post(e, f, r, index, c->slice);
    if (cursor_advance(c)) continue;
    f->head = c->next;
    if (!f->head) f->tail = &f->head;
  }
}

static void finish_slice(struct gy_engine *e, struct gy_run *r, uint16_t index) {
  e->moved++;
  if (++r->done[index] == r->total[index]) r->left--;
  mark_run(e, r);
}

static void run_local_slice(struct gy_run *r, const struct gy_insn *i, uint32_t slice) {
  char *dst = slice_address(r, i->dst, slice);
  const char *src = slice_address(r, i->src, slice);
  size_t bytes = gy_slice_bytes(&r->geo, i->dst.range, slice);
  if (i->dst.flags & GY_REF_IDENTITY) {
    gy_reducer_identity(&r->reducer, dst, bytes / r->geo.esize);
    return;
  }
  size_t count = bytes / element_bytes(r, i->dst);
  bool finish = i->dst.flags & GY_REF_FINISH;
  if (i->op == GY_COPY) {
    if (dst != src) gy_copy(dst, src, bytes);
    if (finish && r->weights.total)
      gy_weight_finish(dst, count, r->reducer.type, (gyre_op)r->call.op, *weight_at(r, i->dst));
    return;
  }
  bool swap = i->dst.flags & GY_REF_SWAP;
  gy_reduce(reducer_of(r, i->dst), dst, swap ? src : dst, swap ? dst : src, count, finish);
}

static void run_local(struct gy_engine *e, struct gy_run *r) {
  const struct gy_program *p = r->prog;
  size_t budget = LOCAL_BYTES;
  for (uint16_t k = (uint16_t)(p->n_insn - p->n_local); k < p->n_insn; k++) {
    uint16_t index = p->order[k];
    const struct gy_insn *i = &p->insn[index];
    while (r->done[index] < r->total[index] && ready(r, i, r->done[index])) {
      size_t bytes = gy_slice_bytes(&r->geo, i->dst.range, r->done[index]);
      if (bytes > budget) {
        mark_run(e, r);
        return;
      }
      budget -= bytes;
      run_local_slice(r, i, r->issued[index]++);
      finish_slice(e, r, index);
    }
  }
}

/* Back to its plan; takes post_lock. */
static void run_retire(struct gy_engine *e, struct gy_run *r) {
  gy_operator_unref(r->created);
  r->created = NULL;
  free(r->prepared);
  r->prepared = NULL;
  if (r->tmp_capacity > SCRATCH_KEEP) {
    free(r->tmp);
    r->tmp = NULL;
    r->tmp_capacity = 0;
  }
  pthread_mutex_lock(&e->post_lock);
  r->next = r->plan->idle;
  r->plan->idle = r;
  r->plan->active--;
  pthread_mutex_unlock(&e->post_lock);
}

static struct runs *runs_of(struct gy_engine *e, const struct gy_run *r) {
  return is_message(&r->call) ? &e->active_messages : &e->active;
}

static struct gy_trace *trace_of(struct gy_engine *e, const struct gy_run *r) {
  return is_message(&r->call) ? e->message_trace : e->trace;
}

static bool is_idle(const struct gy_engine *e) {
  return !e->active.head && !e->active_messages.head;
}

static void run_complete(struct gy_engine *e, struct gy_run *r, gyre_status status, const char *text) {
  struct runs *list = runs_of(e, r);
  for (struct gy_run **p = &list->head; *p; p = &(*p)->next) {
    if (*p != r) continue;
    *p = r->next;
    if (!*p) list->tail = p;
    break;
  }
  gyre_request *req = r->req;
  gy_trace_finish(trace_of(e, r), r->record, status, r->bytes_in, r->bytes_out);
  if (!is_message(&r->call)) *(status ? &e->failures : &e->completed) += 1;
  if (!status && r->weights.total) *r->weights.total = r->weights.out[0];
  gy_loop_busy(e->cfg.loop, -1);
  run_retire(e, r);
  gy_request_complete(req, status, text);
}

static void advance(struct gy_engine *e, struct gy_run *r) {
  for (uint16_t q = 0; q < r->prog->n_queue; q++) {
    struct flow *f = flow_of(e, &r->prog->queue[q]);
    if (f->head == &r->cursor[q]) issue(e, f);
  }
  if (r->prog->n_local) run_local(e, r);
}

static void advance_dirty(struct gy_engine *e, unsigned budget) {
  while ((e->dirty_flows || e->dirty_runs) && budget--) {
    struct flow *f = e->dirty_flows;
    if (f) {
      e->dirty_flows = f->next_dirty;
      f->dirty = false;
      issue(e, f);
      continue;
    }
    struct gy_run *r = e->dirty_runs;
    e->dirty_runs = r->next_dirty;
    r->dirty = false;
    if (r->left) advance(e, r);
    if (!r->left && !r->dirty) run_complete(e, r, GYRE_OK, NULL);
  }
}

void gy_on_xfer_done(struct gy_link *l, struct gy_xfer *x) {
  struct gy_engine *e = l->owner;
  struct end *end = l->end;
  struct flow *f = &end->flow[x >= &end->flow[1].ring->xfer]; /* the rings lie one behind the other */
  f->in_flight--;
  if (f->head) mark_flow(e, f);
  if (f->recv) {
    x->run->bytes_in += x->bytes;
    e->tally[end->peer].bytes_in += x->bytes;
  } else {
    x->run->bytes_out += x->bytes;
    e->tally[end->peer].bytes_out += x->bytes;
  }
  finish_slice(e, x->run, x->insn);
}

void gy_on_link_down(struct gy_link *l, gyre_status why, int sys_errno) {
  struct gy_engine *e = l->owner;
  e->cfg.link_down(e->cfg.user, l->peer, why, sys_errno);
}

void gy_on_mismatch(struct gy_link *l, const struct gy_descriptor *mine,
                    const struct gy_descriptor *theirs) {
  struct gy_engine *e = l->owner;
  e->cfg.mismatch(e->cfg.user, l->peer, mine, theirs);
}

/* Early for an operation that is still to come, which is usual; or left over from one that is over
 * here: then the peer called something else, and this rank had nothing to wait for that would have
 * shown it. */
void gy_on_unclaimed(struct gy_link *l, const struct gy_descriptor *theirs) {
  struct gy_engine *e = l->owner;
  struct gy_descriptor other = *theirs;
  if (is_message(theirs)) return; /* the k-th meets the k-th: it can only be early */
  int32_t ahead = (int32_t)((uint32_t)theirs->seq - (uint32_t)e->started);
  if (ahead > 0 || ahead <= -HISTORY) return;
  other.seq = e->started - (uint32_t)-ahead;
  for (const struct gy_run *r = e->active.head; r; r = r->next) {
    if (r->call.seq == other.seq) return;
  }
  e->cfg.mismatch(e->cfg.user, l->peer, &e->history[other.seq % HISTORY], &other);
}

/* Who keeps this rank waiting is looked at only where the driver has nothing better to do: when it
 * goes to sleep, and now and then while it busy-polls in vain. The time from there to the next event
 * is the peer's for whose message the oldest operation waits. */
static void wait_end(struct gy_engine *e) {
  e->wait.quiet = 0;
  if (!e->wait.since) return;
  e->tally[e->wait.peer].wait_ns += gy_trace_now() - e->wait.since;
  e->wait.since = 0;
}

static void wait_begin(struct gy_engine *e) {
  struct gy_op_report oldest;
  unsigned quiet = e->wait.quiet;
  wait_end(e);
  e->wait.quiet = quiet;
  if (!gy_engine_oldest(e, &oldest) && !gy_engine_message(e, -1, &oldest)) return;
  if (oldest.waiting_for < 0) return;
  e->wait.since = gy_trace_now();
  e->wait.peer = oldest.waiting_for;
}

unsigned gy_engine_pass(struct gy_engine *e, bool spin) {
  if (is_idle(e)) {
    if (spin) return 0;
    for (unsigned i = 0; i < e->n_opened; i++) e->opened[i].ops->poll(e->opened[i].tl, false);
    return 0;
  }
  struct gy_fpenv env = gy_fpenv_enter();
  unsigned events = 0;
  for (unsigned i = 0; i < e->n_opened; i++)
    events += e->opened[i].ops->poll(e->opened[i].tl, spin);
  uint64_t before = e->moved;
  advance_dirty(e, 256);
  gy_fpenv_leave(env);
  events += e->moved != before || e->dirty_runs || e->dirty_flows ? 1u : 0u;
  if (events) {
    wait_end(e);
  } else if (++e->wait.quiet % QUIET_PASSES == 0) {
    wait_begin(e);
  }
  return events;
}

bool gy_engine_arm(struct gy_engine *e) {
  if (!is_idle(e)) wait_begin(e); /* the driver is about to sleep */
  bool quiet = !e->dirty_runs && !e->dirty_flows;
  for (unsigned i = 0; i < e->n_opened; i++) quiet &= e->opened[i].ops->arm(e->opened[i].tl);
  return quiet;
}

/* ----------------------------------------------------------------------------- start a run --- */

static gyre_status open_ends(struct gy_engine *e, const struct gy_program *p) {
  gyre_status st = GYRE_OK;
  for (uint16_t q = 0; !st && q < p->n_queue; q++) {
    const struct gy_queue *queue = &p->queue[q];
    if (!end_find(e, queue->peer, queue->lane)) st = end_open(e, queue->peer, queue->lane);
  }
  return st;
}

/* (locked) The command of a posted run. */
static void start_run(struct gy_command *c) {
  struct gy_run *r = (struct gy_run *)(void *)((char *)c - offsetof(struct gy_run, start));
  struct gy_engine *e = r->engine;
  const struct gy_program *p = r->prog;
  struct runs *list = runs_of(e, r);
  r->next = NULL;
  *list->tail = r;
  list->tail = &r->next;
  gy_loop_busy(e->cfg.loop, 1);
  r->record = is_message(&r->call) ? ++e->messages_started : r->call.seq;
  gy_trace_start(trace_of(e, r), r->record, &r->call, r->plan->algo == &gy_message_recv,
                 r->posted_ns);
  if (e->failed) {
    run_complete(e, r, e->refused, e->refused_text);
    return;
  }
  if (!is_message(&r->call)) {
    e->started = r->call.seq;
    e->history[r->call.seq % HISTORY] = r->call;
  }
  gyre_status st = open_ends(e, p);
  if (st) {
    e->cfg.link_down(e->cfg.user, -1, st, 0); /* the text is gyre_last_error() */
    return;
  }
  for (uint16_t q = 0; q < p->n_queue; q++) {
    struct flow *f = flow_of(e, &p->queue[q]);
    cursor_init(&r->cursor[q], r, &p->queue[q]);
    *f->tail = &r->cursor[q];
    f->tail = &r->cursor[q].next;
  }
  r->dirty = false;
  mark_run(e, r);
  struct gy_fpenv env = gy_fpenv_enter();
  advance_dirty(e, 256);
  gy_fpenv_leave(env);
}

/* ------------------------------------------------------------------------- post (any thread) --- */

static void plan_free(struct plan *p) {
  while (p->idle) {
    struct gy_run *next = p->idle->next;
    free(p->idle->tmp);
    free(p->idle);
    p->idle = next;
  }
  gy_program_free(p->program);
  free(p);
}

/* Drops the plan that has been unused for longest, if the cache is full. */
static void make_room(struct gy_engine *e) {
  struct plan **victim = NULL;
  if (e->n_plans < PLANS_MAX) return;
  for (struct plan **p = &e->plans; *p; p = &(*p)->next) {
    if (!(*p)->active) victim = p;
  }
  if (!victim) return;
  struct plan *gone = *victim;
  *victim = gone->next;
  e->n_plans--;
  plan_free(gone);
}

static struct plan *known_plan(struct gy_engine *e, const struct gy_algo *algo,
                               const struct gy_key *key) {
  for (struct plan **p = &e->plans, *plan; (plan = *p); p = &plan->next) {
    if (plan->algo != algo || plan->key.in_place != key->in_place || plan->key.root != key->root)
      continue;
    *p = plan->next; /* to the front */
    plan->next = e->plans;
    e->plans = plan;
    return plan;
  }
  return NULL;
}

static struct plan *add_plan(struct gy_engine *e, const struct gy_algo *algo,
                             const struct gy_key *key, struct gy_program *program) {
  make_room(e);
  struct plan *plan = calloc(1, sizeof *plan);
  if (!plan) {
    gy_fail(GYRE_ERR_NOMEM, "out of memory for a program");
    return NULL;
  }
  *plan = (struct plan){.next = e->plans, .algo = algo, .key = *key, .program = program};
  e->plans = plan;
  e->n_plans++;
  return plan;
}

static gyre_status find_plan(struct gy_engine *e, const struct gy_algo *algo,
                             const struct gy_key *key, struct plan **out) {
  struct gy_program *program;
  *out = known_plan(e, algo, key);
  if (*out) return GYRE_OK;
  gyre_status st = key->coll == GY_MESSAGE
                       ? gy_message_program(key, algo == &gy_message_recv, &program)
                       : gy_program_build(algo, key, &program);
  if (st) return st;
  *out = add_plan(e, algo, key, program);
  if (*out) return GYRE_OK;
  gy_program_free(program);
  return GYRE_ERR_NOMEM;
}

gyre_status gy_engine_install(struct gy_engine *e, const struct gy_algo *algo,
                              const struct gy_key *key, struct gy_program *program) {
  pthread_mutex_lock(&e->post_lock);
  struct plan *plan =
      add_plan(e, algo, key, program); /* before an older one of this key, so found first */
  pthread_mutex_unlock(&e->post_lock);
  return plan ? GYRE_OK : GYRE_ERR_NOMEM;
}

static bool has_weights(unsigned coll) {
  return coll != GY_MESSAGE && gy_coll_traits(coll)->weighted;
}

static struct gy_run *run_alloc(struct gy_engine *e, struct plan *plan) {
  struct gy_run *r = plan->idle;
  if (r) {
    plan->idle = r->next;
    return r;
  }
  const struct gy_program *p = plan->program;
  size_t n = p->layout == GY_VARY ? (size_t)plan->key.nranks : 0,
         lengths = p->layout == GY_VARY ? p->n_chunk : 0,
         weights = has_weights(plan->key.coll) ? (size_t)p->n_chunk + p->n_tmp : 0;
  r = calloc(1, sizeof *r + p->n_queue * sizeof(struct cursor) + weights * sizeof(double) +
                    (lengths + 2 * n) * sizeof(size_t) + 3 * (size_t)p->n_insn * sizeof(uint32_t));
  if (!r) return NULL;
  r->engine = e;
  r->plan = plan;
  r->prog = p;
  r->cursor = (struct cursor *)(void *)(r + 1);
  r->weights.out = (double *)(void *)(r->cursor + p->n_queue);
  r->weights.tmp = r->weights.out + p->n_chunk;
  r->length = (size_t *)(void *)(r->weights.out + weights);
  r->place[GY_IN] = r->length + lengths;
  r->place[GY_OUT] = r->place[GY_IN] + n;
  r->done = (uint32_t *)(void *)(r->place[GY_OUT] + n);
  r->total = r->done + p->n_insn;
  r->issued = r->total + p->n_insn;
  r->start.run = start_run;
  return r;
}

/* The call's arrays, copied: they are the caller's again when the post returns. */
static void run_blocks(struct gy_run *r, const struct gy_call *call) {
  const struct gy_key *key = &r->plan->key;
  r->length[key->rank] = call->count; /* stands where this rank has no more than its own block */
  for (unsigned buf = GY_IN; buf <= GY_OUT; buf++) {
    size_t packed = 0;
    r->place[buf][0] = 0;
    for (unsigned c = 0; call->counts[buf] && c < (unsigned)key->nranks; c++) {
      size_t count = call->counts[buf][c];
      r->length[gy_chunk_range(key, buf, c)] = count;
      r->place[buf][c] = call->displs[buf] ? call->displs[buf][c] : packed;
      packed += count;
    }
  }
  r->geo.blocks = (struct gy_blocks){r->length, {r->place[GY_IN], r->place[GY_OUT]}};
}

static gyre_status run_scratch(struct gy_engine *e, struct gy_run *r) {
  const struct gy_program *p = r->prog;
  if (!p->n_tmp) return GYRE_OK;
  size_t longest = gy_longest_bytes(&r->geo);
  size_t window = (size_t)e->window * r->geo.slice_bytes;
  r->tmp_slot = p->tmp_whole || longest < window ? (longest + 63) / 64 * 64 : window;
  size_t need = r->tmp_slot * p->n_tmp;
  if (need <= r->tmp_capacity) return GYRE_OK;
  char *tmp = aligned_alloc(4096, (need + 4095) / 4096 * 4096);
  if (!tmp) return gy_fail(GYRE_ERR_NOMEM, "out of memory for %zu bytes of scratch", need);
  free(r->tmp);
  r->tmp = tmp;
  r->tmp_capacity = need;
  return GYRE_OK;
}

/* Whether each rank only knows how much is its own. */
static bool count_varies(const struct gy_call *call) {
  if (call->coll == GY_MESSAGE) return false; /* which has no traits */
  const struct gy_coll_traits *traits = gy_coll_traits(call->coll);
  return traits->layout == GY_VARY && (traits->rooted || call->coll == GY_ALL_TO_ALL_V);
}

/* Both ends of a message describe it equally. */
static uint32_t root_of(const struct gy_engine *e, const struct gy_call *call) {
  if (call->coll != GY_MESSAGE) return (uint32_t)call->root;
  return call->receives ? gy_message_pair(call->root, e->core->rank)
                        : gy_message_pair(e->core->rank, call->root);
}

static uint8_t algo_index(const struct gy_algo *algo) {
  size_t n_algo;
  const struct gy_algo *const *algos = gy_algorithms(&n_algo);
  uint8_t index = 0;
  if (algo->coll == GY_MESSAGE) return 0;
  while (algos[index] != algo) index++;
  return index;
}

static void run_fill(struct gy_engine *e, struct gy_run *r, const struct gy_call *call) {
  const struct gy_program *p = r->prog;
  r->call = (struct gy_descriptor){.count = count_varies(call) ? GY_COUNT_VARIES : call->count,
                                   .root = root_of(e, call),
                                   .coll = (uint8_t)call->coll,
                                   .dtype = (uint8_t)call->dtype,
                                   .op = (uint8_t)call->op,
                                   .algo = algo_index(r->plan->algo)};
  r->in = call->in;
  r->out = call->out;
  r->reducer = gy_reducer_of(call->dtype, call->op, call->created, e->core->nranks);
  r->weights.total = call->total;
  if (call->total) {
    r->reducer = gy_reducer_of(call->dtype, GYRE_SUM, NULL, e->core->nranks);
    r->weights.reducer = gy_reducer_of(GYRE_F64, GYRE_SUM, NULL, e->core->nranks);
    r->weights.own = call->weight;
  }
  r->left = p->n_insn;
  r->bytes_in = r->bytes_out = 0;
  for (uint16_t i = 0; i < p->n_insn; i++) {
    const struct gy_insn *insn = &p->insn[i];
    r->done[i] = r->issued[i] = 0;
    r->total[i] = gy_chunk_slices(&r->geo, insn->op == GY_SEND ? insn->src.range : insn->dst.range);
  }
}

static gyre_status choose(struct gy_engine *e, const struct gy_call *call, struct gy_key *key,
                          const struct gy_algo **out) {
  size_t bytes = count_varies(call) ? 0 : call->count * gyre_dtype_size(call->dtype);
  if (call->coll == GY_MESSAGE) {
    *out = call->receives ? &gy_message_recv : &gy_message_send;
    return GYRE_OK;
  }
  if (gy_coll_traits(call->coll)->layout == GY_BLOCK) bytes *= (size_t)e->core->nranks;
  struct choice *c = &e->choice[(bytes * 31 + bytes / 64 + (size_t)call->coll * 7) % CHOICES];
  if (c->algo && c->bytes == bytes && c->coll == call->coll && c->ordered == key->ordered) {
    *out = c->algo;
    return GYRE_OK;
  }
  const struct gy_agreed *agreed = &e->core->roster->agreed;
  gyre_status st = gy_select(agreed->algo, &agreed->cost, key, bytes, out);
  if (st == GYRE_OK) *c = (struct choice){bytes, *out, key->coll, key->ordered};
  return st;
}

/* Counts the operation; its number is its place in the order. */
static uint64_t next_seq(struct gy_engine *e, const struct gy_call *call) {
  if (call->coll != GY_MESSAGE) return e->next_seq++;
  struct messages *m = &e->messages[call->root];
  return call->receives ? ++m->received : ++m->sent;
}

/* Elements before this rank's block in the buffer that holds all. */
static size_t start_of_own(const struct gy_call *call, enum gy_buf buf, int rank) {
  size_t packed = 0;
  if (!call->counts[buf]) return call->count * (size_t)rank;
  if (call->displs[buf]) return call->displs[buf][rank];
  for (int r = 0; r < rank; r++) packed += call->counts[buf][r];
  return packed;
}

uintptr_t gy_call_own(const struct gy_call *call, enum gy_buf buf, int rank) {
  uintptr_t at = (uintptr_t)(buf == GY_IN ? call->in : call->out);
  return at + start_of_own(call, buf, rank) * gyre_dtype_size(call->dtype);
}

bool gy_call_in_place(const struct gy_call *call, int rank) {
  if (call->coll == GY_MESSAGE) return false;
  bool root = rank == call->root;
  enum gy_share in_share = gy_coll_share(call->coll, GY_IN, root),
                out_share = gy_coll_share(call->coll, GY_OUT, root);
  uintptr_t in = (uintptr_t)call->in, out = (uintptr_t)call->out;
  if (in_share == GY_NOTHING || out_share == GY_NOTHING) return false;
  if (in_share == GY_OWN_BLOCK && out_share == GY_ALL) out = gy_call_own(call, GY_OUT, rank);
  if (out_share == GY_OWN_BLOCK && in_share == GY_ALL) in = gy_call_own(call, GY_IN, rank);
  return in == out;
}

/* Where the input must be prepared (operator.h), the posting thread does that before, and the run is
 * one in place of what was made: in `out`, or where that is none or shorter in memory of the run's
 * own. */
static bool fits_out(const struct gy_engine *e, const struct gy_call *call) {
  return gy_coll_share(call->coll, GY_OUT, call->root == e->core->rank) == GY_ALL;
}

/* Of `in`, from its beginning to the end of its last block. */
static size_t input_extent(const struct gy_run *r) {
  size_t extent = 0;
  for (unsigned c = 0; c < r->prog->n_chunk; c++) {
    size_t bytes = gy_chunk_bytes(&r->geo, c), end = gy_chunk_offset(&r->geo, GY_IN, c) + bytes;
    if (bytes && end > extent) extent = end;
  }
  return extent;
}

static gyre_status run_prepared(struct gy_engine *e, struct gy_run *r, const struct gy_call *call) {
  if (fits_out(e, call)) return GYRE_OK;
  size_t bytes = input_extent(r);
  r->prepared = malloc(bytes ? bytes : 1);
  if (!r->prepared)
    return gy_fail(GYRE_ERR_NOMEM, "out of memory for %zu bytes of prepared input", bytes);
  r->in = r->prepared;
  return GYRE_OK;
}

static void prepare_input(struct gy_run *r, const char *in) {
  char *to = (char *)(uintptr_t)r->in;
  for (unsigned c = 0; c < r->prog->n_chunk; c++) {
    size_t bytes = gy_chunk_bytes(&r->geo, c), at = gy_chunk_offset(&r->geo, GY_IN, c);
    if (!bytes) continue;
    if (r->weights.total)
      gy_weight_apply(to + at, in ? in + at : NULL, bytes / r->geo.esize, r->reducer.type,
                      r->weights.own);
    else gy_reducer_prepare(&r->reducer, to + at, in + at, bytes / r->geo.esize);
  }
}

/* (post_lock) Everything that may fail. */
static gyre_status run_prepare(struct gy_engine *e, const struct gy_call *call, bool prepares,
                               struct gy_run **out) {
  const struct gy_algo *algo = NULL;
  struct plan *plan = NULL;
  struct gy_call own = *call;
  if (prepares && fits_out(e, call)) own.in = own.out;
  struct gy_key key = {.coll = (uint8_t)call->coll,
                       .in_place = gy_call_in_place(&own, e->core->rank),
                       .ordered = gy_operator_ordered(call->created),
                       .nranks = e->core->nranks,
                       .rank = e->core->rank,
                       .root = call->root};
  if (prepares && !fits_out(e, call)) key.in_place = 0;
  gyre_status st =
      e->refused ? gy_fail_text(e->refused, e->refused_text) : choose(e, call, &key, &algo);
  if (st == GYRE_OK) st = find_plan(e, algo, &key, &plan);
  if (st) return st;
  struct gy_run *r = run_alloc(e, plan);
  if (!r) return gy_fail(GYRE_ERR_NOMEM, "out of memory for an operation");
  gy_geometry_init(&r->geo, r->prog, call->count, gyre_dtype_size(call->dtype), e->slice_bytes);
  if (r->prog->layout == GY_VARY) run_blocks(r, call);
  st = run_scratch(e, r);
  if (st) goto keep_run;
  run_fill(e, r, &own);
  if (prepares) st = run_prepared(e, r, call);
  if (st) goto keep_run;
  st = GYRE_ERR_NOMEM;
  r->req = gy_request_create(e->cfg.requests);
  if (!r->req) goto free_prepared;
  plan->active++;
  *out = r;
  return GYRE_OK;

free_prepared:
  free(r->prepared);
  r->prepared = NULL;
keep_run:
  r->next = plan->idle;
  plan->idle = r;
  return st;
}

/* Without post_lock, as it takes a pass over the input. The lock is held again afterwards. */
static gyre_status prepare(struct gy_engine *e, struct gy_run *r, const struct gy_call *call) {
  pthread_mutex_unlock(&e->post_lock);
  struct gy_fpenv env = gy_fpenv_enter();
  prepare_input(r, call->in);
  gy_fpenv_leave(env);
  pthread_mutex_lock(&e->post_lock);
  if (!e->refused) return GYRE_OK;
  gyre_request *req = r->req; /* nobody has it yet */
  free(r->prepared);
  r->prepared = NULL;
  r->next = r->plan->idle;
  r->plan->idle = r;
  r->plan->active--;
  gy_request_unref(req);
  gy_request_unref(req);
  return gy_fail_text(e->refused, e->refused_text);
}

gyre_status gy_engine_post(struct gy_engine *e, const struct gy_call *call, bool will_wait,
                           gyre_request **req) {
  struct gy_run *r = NULL;
  bool single = e->core->nranks == 1 || gy_coll_is_scan(call->coll);
  bool prepares =
      has_weights(call->coll) || (call->coll != GY_MESSAGE && gy_coll_traits(call->coll)->reduces &&
                                  gy_operator_prepares(call->op, call->created, single));
  pthread_mutex_lock(&e->post_lock);
  gyre_status st = run_prepare(e, call, prepares, &r);
  if (st == GYRE_OK && prepares) st = prepare(e, r, call);
  if (st) {
    pthread_mutex_unlock(&e->post_lock);
    return st;
  }
  r->created = call->created;
  r->call.seq = next_seq(e, call);
  r->posted_ns = gy_trace_now();
  *req = r->req;
  gy_loop_push(e->cfg.loop,
               &r->start); /* under post_lock: the order of posts is the order of sequence numbers */
  pthread_mutex_unlock(&e->post_lock);
  gy_loop_kick(e->cfg.loop, will_wait);
  return GYRE_OK;
}

/* -------------------------------------------------------------------------- create, fail, free --- */

gyre_status gy_engine_create(const struct gy_engine_config *config, struct gy_engine **out) {
  struct gy_engine *e = calloc(1, sizeof *e);
  if (!e) return gy_fail(GYRE_ERR_NOMEM, "out of memory for the engine");
  e->cfg = *config;
  e->core = config->core;
  uint32_t records = (uint32_t)e->core->settings->trace_ops;
  gyre_status st = gy_trace_create(records, &e->trace);
  if (!st) st = gy_trace_create(records, &e->message_trace);
  if (st) goto free_engine;
  e->ends = calloc((size_t)e->core->nranks, sizeof *e->ends);
  e->tally = calloc((size_t)e->core->nranks, sizeof *e->tally);
  e->messages = calloc((size_t)e->core->nranks, sizeof *e->messages);
  if (!e->ends || !e->tally || !e->messages) {
    st = gy_fail(GYRE_ERR_NOMEM, "out of memory for %d ranks", config->core->nranks);
    goto free_engine;
  }
  e->window = e->core->roster->agreed.window;
  e->slice_bytes = e->core->roster->agreed.slice_bytes;
  e->next_seq = 1;
  e->active.tail = &e->active.head;
  e->active_messages.tail = &e->active_messages.head;
  pthread_mutex_init(&e->post_lock, NULL);
  for (int peer = 0; peer < e->core->nranks;
       peer++) { /* now: a peer may dial long before this rank's first call */
    st = open_transport(e, e->cfg.peer_ops[peer]);
    if (!st) continue;
    gy_engine_free(e);
    return st;
  }
  *out = e;
  return GYRE_OK;

free_engine:
  free(e->messages);
  free(e->tally);
  free(e->ends);
  gy_trace_free(e->message_trace);
  gy_trace_free(e->trace);
  free(e);
  return st;
}

gyre_status gy_engine_warm(struct gy_engine *e) {
  gyre_status st = GYRE_OK;
  for (int peer = 0; !st && peer < e->core->nranks; peer++) {
    if (peer != e->core->rank && !end_find(e, peer, 0)) st = end_open(e, peer, 0);
  }
  return st;
}

static void close_transports(struct gy_engine *e) {
  for (unsigned i = 0; i < e->n_opened; i++) e->opened[i].ops->close(e->opened[i].tl);
  e->n_opened = 0;
}

static void close_links(struct gy_engine *e, bool graceful) {
  for (int peer = 0; peer < e->core->nranks; peer++) {
    while (e->ends[peer]) {
      struct end *end = e->ends[peer];
      e->ends[peer] = end->next;
      end->ops->link_close(end->link, graceful);
      free(end);
    }
  }
  close_transports(e);
}

void gy_engine_fail(struct gy_engine *e, gyre_status status, const char *text, bool graceful) {
  if (e->failed) return;
  e->failed = true;
  pthread_mutex_lock(&e->post_lock);
  e->refused = status;
  gy_format(e->refused_text, sizeof e->refused_text, "%s", text);
  pthread_mutex_unlock(&e->post_lock);
  close_links(e, graceful);
  e->dirty_runs = NULL;
  e->dirty_flows = NULL;
  while (e->active.head) run_complete(e, e->active.head, status, text);
  while (e->active_messages.head) run_complete(e, e->active_messages.head, status, text);
}

void gy_engine_free(struct gy_engine *e) {
  close_transports(e);
  while (e->plans) {
    struct plan *next = e->plans->next;
    plan_free(e->plans);
    e->plans = next;
  }
  pthread_mutex_destroy(&e->post_lock);
  gy_trace_free(e->message_trace);
  gy_trace_free(e->trace);
  free(e->messages);
  free(e->tally);
  free(e->ends);
  free(e);
}

/* --------------------------------------------------------------------------------- reports --- */

static int peer_of(const struct gy_run *r, uint16_t index) {
  const struct gy_insn *i = &r->prog->insn[index];
  return i->op == GY_COPY || i->op == GY_LOCAL_REDUCE ? -1 : i->peer;
}

/* What the run waits for: a receive that is issued but not done, else a send, else whatever is
 * unfinished. */
static void report_run(const struct gy_run *r, struct gy_op_report *out) {
  static const uint8_t wanted[] = {1, 0};
  *out = (struct gy_op_report){.state = GY_OP_RUNNING,
                               .call = r->call,
                               .waiting_for = -1,
                               .bytes_in = r->bytes_in,
                               .bytes_out = r->bytes_out};
  for (size_t k = 0; k < 2; k++) {
    for (uint16_t i = 0; i < r->prog->n_insn; i++) {
      uint8_t op = r->prog->insn[i].op;
      bool recv = op == GY_RECV || op == GY_RECV_REDUCE;
      if (recv != wanted[k] || r->done[i] == r->total[i] || r->issued[i] == r->done[i]) continue;
      out->waiting_for = peer_of(r, i);
      out->insn = i;
      out->slice = r->done[i];
      return;
    }
  }
}

bool gy_engine_oldest(struct gy_engine *e, struct gy_op_report *out) {
  if (!e->active.head) return false;
  report_run(e->active.head, out);
  return true;
}

bool gy_engine_message(const struct gy_engine *e, int peer, struct gy_op_report *out) {
  for (const struct gy_run *r = e->active_messages.head; r; r = r->next) {
    if (peer >= 0 && peer_of(r, 0) != peer) continue;
    report_run(r, out);
    out->waiting_for = peer_of(r, 0);
    out->sends = r->prog->insn[0].op == GY_SEND;
    return true;
  }
  return false;
}

void gy_engine_report(struct gy_engine *e, uint64_t seq, struct gy_op_report *out) {
  *out = (struct gy_op_report){.waiting_for = -1};
  for (const struct gy_run *r = e->active.head; r; r = r->next) {
    if (r->call.seq != seq) continue;
    report_run(r, out);
    return;
  }
  if (seq > e->started) {
    struct gy_op_report other;
    out->state = GY_OP_NOT_CALLED;
    if (gy_engine_oldest(e, &other)) {
      out->call.seq = other.call.seq;
      out->waiting_for = other.waiting_for;
    } else if (gy_engine_message(e, -1, &other)) {
      out->waiting_for = other.waiting_for;
    }
  } else if (seq + HISTORY > e->started) {
    out->state = GY_OP_DONE;
    out->call = e->history[seq % HISTORY];
  } else {
    out->state = GY_OP_FORGOTTEN;
  }
}

const char *gy_engine_describe(const struct gy_engine *e, int peer, char *out, size_t capacity) {
  const struct end *end = e->ends[peer];
  *out = 0;
  if (end) end->ops->describe(end->link, out, capacity);
  return out;
}

uint32_t gy_engine_silence(const struct gy_engine *e, int peer, bool *awaited) {
  uint32_t least = UINT32_MAX;
  *awaited = false;
  for (const struct end *end = e->ends[peer]; end; end = end->next) {
    bool one = false;
    uint32_t ms = end->ops->silence ? end->ops->silence(end->link, &one) : UINT32_MAX;
    if (ms < least) least = ms;
    *awaited |= one;
  }
  return least;
}

uint64_t gy_engine_moved(const struct gy_engine *e) {
  uint64_t sum = e->moved;
  for (int peer = 0; peer < e->core->nranks; peer++) {
    for (const struct end *end = e->ends[peer]; end; end = end->next) {
      sum += end->link->bytes_in + end->link->bytes_out;
    }
  }
  return sum;
}

uint64_t gy_engine_frontier(struct gy_engine *e) {
  uint64_t seq = e->started + 1;
  for (const struct gy_run *r = e->active.head; r; r = r->next) {
    if (r->call.seq < seq) seq = r->call.seq;
  }
  return seq;
}

uint64_t gy_engine_needs(const struct gy_engine *e, int peer) {
  for (const struct gy_run *r = e->active.head; r; r = r->next) {
    for (uint16_t i = 0; i < r->prog->n_insn; i++) {
      if (peer_of(r, i) == peer && r->done[i] < r->total[i]) return r->call.seq;
    }
  }
  return 0;
}

const struct gy_trace *gy_engine_trace(const struct gy_engine *e) { return e->trace; }
const struct gy_trace *gy_engine_message_trace(const struct gy_engine *e) {
  return e->message_trace;
}

void gy_engine_message_moved(const struct gy_engine *e, uint64_t number, uint64_t *in, uint64_t *out) {
  for (const struct gy_run *r = e->active_messages.head; r; r = r->next) {
    if (r->record != number) continue;
    *in = r->bytes_in;
    *out = r->bytes_out;
    return;
  }
}

void gy_engine_count(struct gy_engine *e, struct gy_engine_counts *out) {
  pthread_mutex_lock(&e->post_lock);
  uint64_t posted = e->next_seq - 1;
  pthread_mutex_unlock(&e->post_lock);
  *out = (struct gy_engine_counts){.posted = posted,
                                   .started = e->started,
                                   .completed = e->completed,
                                   .failed = e->failures,
                                   .messages = e->messages_started};
}

void gy_engine_count_peer(const struct gy_engine *e, int peer, struct gy_peer_counts *out) {
  const struct tally *t = &e->tally[peer];
  *out = (struct gy_peer_counts){t->bytes_in, t->bytes_out, (uint64_t)t->wait_ns};
  if (e->wait.since && e->wait.peer == peer)
    out->wait_ns += (uint64_t)(gy_trace_now() - e->wait.since);
}

/*
 * self.c - the transport from a rank to itself: a send meets a receive, and the bytes are copied.
 *
 * Thread: the driving thread. Owner: the engine opens and closes links.
 */
#include <stdlib.h>

#include "../../src/status.h"
#include "../transport.h"

#define POLL_SLICES 16 /* copied in one poll, so that other transports get their turn */

struct xfer_queue {
  struct gy_xfer *head, **tail;
};

struct self_link {
  struct gy_link base; /* first */
  struct self_link *next;
  struct xfer_queue tx, rx;
  bool down;
};

struct self { /* the transport, opened for one communicator */
  int rank;
  struct self_link *links;
};

static int self_reach(const struct gy_comm_core *core, int peer, char *why, size_t capacity) {
  bool same = peer == core->rank;
  gy_format(why, capacity, same ? "the rank itself" : "another rank");
  return same ? 100 : 0;
}

static gyre_status self_open(struct gy_comm_core *core, struct gy_tl **out) {
  struct self *s = calloc(1, sizeof *s);
  if (!s) return gy_fail(GYRE_ERR_NOMEM, "out of memory for the transport to the rank itself");
  s->rank = core->rank;
  *out = (struct gy_tl *)s;
  return GYRE_OK;
}

static void self_close(struct gy_tl *tl) { free(tl); }

static gyre_status self_link_open(struct gy_tl *tl, int peer, uint16_t lane, void *owner,
                                  struct gy_link **out) {
  struct self *s = (struct self *)tl;
  struct self_link *l = calloc(1, sizeof *l);
  if (!l) return gy_fail(GYRE_ERR_NOMEM, "out of memory for the link of rank %d to itself", peer);
  l->base = (struct gy_link){.tl = tl, .peer = peer, .lane = lane, .owner = owner};
  l->tx.tail = &l->tx.head;
  l->rx.tail = &l->rx.head;
  l->next = s->links;
  s->links = l;
  *out = &l->base;
  return GYRE_OK;
}

static void self_link_close(struct gy_link *base, bool graceful) {
  (void)graceful;
  struct self_link **p = &((struct self *)base->tl)->links;
  while (&(*p)->base != base) p = &(*p)->next;
  struct self_link *l = *p;
  *p = l->next;
  free(l);
}

static void append(struct xfer_queue *q, struct gy_xfer *x) {
  x->next = NULL;
  *q->tail = x;
  q->tail = &x->next;
}

static struct gy_xfer *take(struct xfer_queue *q) {
  struct gy_xfer *x = q->head;
  q->head = x->next;
  if (!q->head) q->tail = &q->head;
  return x;
}

static void self_post_send(struct gy_link *base, struct gy_xfer *x) {
  append(&((struct self_link *)base)->tx, x);
}

static void self_post_recv(struct gy_link *base, struct gy_xfer *x) {
  append(&((struct self_link *)base)->rx, x);
}

static bool met(const struct self_link *l) { return !l->down && l->tx.head && l->rx.head; }

static void move(struct self_link *l) {
  const struct gy_descriptor *mine = l->rx.head->call, *theirs = l->tx.head->call;
  if (mine->seq != theirs->seq || mine->count != theirs->count || mine->dtype != theirs->dtype) {
    l->down = true;
    gy_on_mismatch(&l->base, mine, theirs);
    return;
  }
  struct gy_xfer *from = take(&l->tx), *to = take(&l->rx);
  gy_copy(to->addr, from->addr, to->bytes);
  l->base.bytes_out += from->bytes;
  l->base.bytes_in += to->bytes;
  gy_on_xfer_done(&l->base, from);
  gy_on_xfer_done(&l->base, to);
}

static unsigned self_poll(struct gy_tl *tl, bool spin) {
  (void)spin;
  unsigned moved = 0;
  for (struct self_link *l = ((struct self *)tl)->links; l; l = l->next) {
    while (met(l) && moved < POLL_SLICES) {
      move(l);
      moved++;
    }
  }
  return moved;
}

static bool self_arm(struct gy_tl *tl) {
  for (const struct self_link *l = ((struct self *)tl)->links; l; l = l->next) {
    if (met(l)) return false;
  }
  return true;
}

static size_t self_describe(const struct gy_link *base, char *out, size_t capacity) {
  return gy_format(out, capacity, "the rank itself, %llu bytes", (unsigned long long)base->bytes_in);
}

const struct gy_tl_ops gy_self_ops = {
    .name = "self",
    .abi = GY_TL_ABI,
    .caps = GY_CAP_HOST_MEM | GY_CAP_SAME_HOST,
    .reach = self_reach,
    .open = self_open,
    .link_open = self_link_open,
    .link_close = self_link_close,
    .close = self_close,
    .post_send = self_post_send,
    .post_recv = self_post_recv,
    .poll = self_poll,
    .arm = self_arm,
    .describe = self_describe,
};

/*
 * io.c - moves the pieces of a link through its ring.
 *
 * A sleeping end says in the segment what it is to be woken for, then looks once more; the other end looks there after
 * each piece it has written and each batch it has taken. Both store and load in one total order (seq_cst), so that one
 * of the two sees the other.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "../../src/crc32c.h"
#include "../../src/reduce.h"
#include "../../src/status.h"
#include "../fault/fault.h"
#include "link.h"

#define SEND_PIECES \
  4 /* in one poll: sending and receiving in turns keeps what is in flight in the caches */
#define TAKE_PIECES 8

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* ------------------------------------------------------------------------------------- bells --- */

static void wake(struct shm_link *l, uint32_t why) {
  if (!(atomic_load(l->peer_asleep) & why) || !atomic_exchange(l->peer_asleep, 0)) return;
  ssize_t n = send(l->fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  (void)n; /* a full buffer wakes just as well, and that the peer is gone is told by the read */
}

/* -------------------------------------------------------------------------------------- send --- */

bool gy_shm_can_send(struct shm_link *l) {
  if (!l->tx_next || !l->segment || l->ended) return false;
  if (!l->out.free) l->out.free = SHM_CELLS - (l->out.pieces - atomic_load(l->out.taken));
  return l->out.free > 0 && l->out.free <= SHM_CELLS;
}

/* ------------------------------------------------------------------------------ harm on request --- */

#define WHOLE 16 /* a piece holds whole elements; none is larger */

/* How many bytes go with the next piece. */
static size_t draw_length(struct gy_tamper *t, size_t n) {
  if (t->most && n > SHM_LINE)
    n = least(n, ((size_t)gy_tamper_draw(&t->dice, t->most) / SHM_LINE + 1) * SHM_LINE);
  uint64_t left = t->cut_at - t->sent; /* see cut_is_due: at least WHOLE */
  return left < n ? (size_t)left / WHOLE * WHOLE : n;
}

/* To a piece that is in its cell. */
static void tamper_sent(struct gy_tamper *t, uint8_t *piece, size_t n) {
  if (t->flip_at >= t->sent && t->flip_at < t->sent + n) {
    piece[t->flip_at - t->sent] ^= t->flip;
    t->flip_at = GY_TAMPER_NEVER;
    t->struck = true;
  }
  t->sent += n;
}

static bool cut_is_due(struct shm_link *l) {
  struct gy_tamper *t = l->base.tamper;
  if (!t || l->ended || (t->sent < t->cut_at && t->cut_at - t->sent >= WHOLE)) return false;
  t->struck = true;
  l->ended = true;
  shutdown(l->fd, SHUT_RDWR);
  return true;
}

/* -------------------------------------------------------------------------------------------- */

static uint32_t checksum(const struct shm_head *h, const uint8_t *piece, size_t n) {
  const char *from = (const char *)&h->piece;
  return gy_crc32c(gy_crc32c(0, from, (size_t)((const char *)&h->sum - from)), piece, n);
}

static void send_piece(struct shm_link *l, struct gy_xfer *x) {
  struct shm_way *w = &l->out;
  struct shm_head *h = &w->head[w->pieces % SHM_CELLS];
  const struct gy_descriptor *call = x->call;
  const uint8_t *from = (const uint8_t *)x->addr + x->moved;
  size_t n = least(x->bytes - x->moved, SHM_PIECE);
  if (l->base.tamper) n = draw_length(l->base.tamper, n);
  h->offset = (uint16_t)((uintptr_t)from % SHM_LINE);
  uint8_t *to = n <= SHM_TINY ? h->tiny : w->body[w->pieces % SHM_CELLS] + h->offset;
  if (n <= SHM_TINY) {
    if (n) memcpy(to, from, n);
  } else {
    gy_copy(to, from, n);
  }
  h->piece = (uint32_t)n;
  h->index = x->index;
  h->bytes = (uint32_t)x->bytes;
  h->count = call->count;
  h->seq = (uint32_t)call->seq;
  h->root = call->root;
  h->coll = call->coll;
  h->dtype = call->dtype;
  h->op = call->op;
  h->algo = call->algo;
  h->reserved = 0;
  if (l->checksum) h->sum = checksum(h, to, n);
  if (l->base.tamper) tamper_sent(l->base.tamper, to, n);
  w->free--;
  w->pieces++;
  atomic_store(&h->full, w->pieces);
  x->moved += n;
  l->base.bytes_out += n + sizeof *h;
  if (x->moved == x->bytes) l->tx_next = x->next;
}

unsigned gy_shm_send(struct shm_link *l) {
  unsigned n = 0;
  while (n < SEND_PIECES && gy_shm_can_send(l) && !cut_is_due(l)) {
    send_piece(l, l->tx_next);
    wake(l, SHM_WANTS_DATA);
    n++;
  }
  return n;
}

/* ----------------------------------------------------------------------------------- receive --- */

static struct shm_head *next_head(const struct shm_link *l) {
  return &l->in.head[l->in.pieces % SHM_CELLS];
}

bool gy_shm_has_come(const struct shm_link *l) {
  return l->segment && atomic_load(&next_head(l)->full) == l->in.pieces + 1;
}

static struct gy_descriptor call_of(const struct shm_head *h) {
  return (struct gy_descriptor){.seq = h->seq,
                                .count = h->count,
                                .root = h->root,
                                .coll = h->coll,
                                .dtype = h->dtype,
                                .op = h->op,
                                .algo = h->algo};
}

static bool refuse(struct shm_link *l) {
  gy_shm_link_down(l, GYRE_ERR_PROTO, 0);
  return false;
}

static bool check_sum(struct shm_link *l, const struct shm_head *h, const uint8_t *piece, size_t n) {
  const struct gy_xfer *x = l->rx.head;
  uint32_t found = checksum(h, piece, n), stated = h->sum;
  if (found == stated) return true;
  gy_fail(GYRE_ERR_PROTO,
          "a bit was flipped on the way from rank %d to rank %d, in shared memory: message %u, "
          "instruction %u slice %u "
          "of operation %llu, from byte %zu on: the checksum is 0x%08x, 0x%08x was sent",
          l->base.peer, l->shm->core->rank, x->index, x->insn, x->slice,
          (unsigned long long)x->call->seq, x->moved, found, stated);
  return refuse(l);
}

/* That the first piece of a message is of the message that is due. */
static bool check_message(struct shm_link *l, const struct shm_head *h) {
  const struct gy_xfer *x = l->rx.head;
  const struct gy_descriptor *mine = x->call;
  struct gy_descriptor theirs = call_of(h);
  theirs.seq |= mine->seq & ~(uint64_t)UINT32_MAX; /* the low half travels */
  bool same = mine->seq == theirs.seq && mine->count == theirs.count && mine->root == theirs.root &&
              mine->coll == theirs.coll && mine->dtype == theirs.dtype && mine->op == theirs.op &&
              mine->algo == theirs.algo;
  if (!same) {
    l->down = true;
    gy_on_mismatch(&l->base, mine, &theirs);
    return false;
  }
  if (h->index == x->index && h->bytes == x->bytes) return true;
  gy_fail(GYRE_ERR_PROTO, "message %u of %u bytes came where message %u of %zu bytes was due",
          h->index, h->bytes, x->index, x->bytes);
  return refuse(l);
}

/* The peer may write here at any time, so every number is read once, and what it says is not believed. */
static bool take_piece(struct shm_link *l) {
  struct shm_head *h = next_head(l);
  struct gy_xfer *x = l->rx.head;
  size_t n = h->piece, offset = h->offset;
  const uint8_t *from = n <= SHM_TINY ? h->tiny : l->in.body[l->in.pieces % SHM_CELLS] + offset;
  if (n > SHM_PIECE || offset >= SHM_LINE) {
    gy_fail(GYRE_ERR_PROTO, "a piece of %zu bytes at %zu came, more than a cell holds", n, offset);
    return refuse(l);
  }
  if (l->checksum && !check_sum(l, h, from, n)) return false;
  if (!x->moved && !check_message(l, h)) return false;
  if (n > x->bytes - x->moved || (!n && x->bytes) || (x->reducer && n % x->esize)) {
    gy_fail(GYRE_ERR_PROTO, "a piece of %zu bytes came where %zu bytes were due", n,
            x->bytes - x->moved);
    return refuse(l);
  }
  char *to = (char *)x->addr + x->moved;
  if (n && x->reducer) {
    const void *own = (const char *)x->operand + x->moved;
    gy_reduce(x->reducer, to, x->swap ? from : own, x->swap ? own : from, n / x->esize, x->completes);
  } else if (n <= SHM_TINY) {
    if (n) memcpy(to, from, n);
  } else {
    gy_copy(to, from, n);
  }
  x->moved += n;
  l->in.pieces++;
  l->base.bytes_in += n + sizeof *h;
  if (x->moved < x->bytes) return true;
  l->rx.head = x->next;
  if (!l->rx.head) l->rx.tail = &l->rx.head;
  gy_on_xfer_done(&l->base, x);
  return true;
}

unsigned gy_shm_receive(struct shm_link *l) {
  unsigned n = 0;
  while (n < TAKE_PIECES && l->rx.head && gy_shm_has_come(l) && take_piece(l)) n++;
  if (!n) return 0;
  atomic_store(l->in.taken, l->in.pieces);
  wake(l, SHM_WANTS_ROOM);
  return n;
}

void gy_shm_look(struct shm_link *l) {
  struct gy_descriptor call = call_of(next_head(l));
  gy_on_unclaimed(&l->base, &call);
}

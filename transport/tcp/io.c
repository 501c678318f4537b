/*
 * io.c - moves the bytes of a link.
 *
 * Its own sendmsg and recvmsg rather than libuv's streams (docs/adr/0002): one path whether the
 * driver spins or sleeps, payloads land at their final address with the next header in one call,
 * and MSG_NOSIGNAL keeps SIGPIPE from the user's program.
 *
 * Nothing is ever read beyond the header that follows the current frame, so a link needs no buffer
 * of its own: a frame that may not be received yet stays in the kernel, which is the back-pressure.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "../../src/crc32c.h"
#include "../../src/status.h"
#include "../fault/fault.h"
#include "link.h"

#define SEND_FRAMES 8 /* small frames in one sendmsg */
#define SEND_BYTES \
  (256u << 10) /* about so much in one sendmsg, and one sendmsg in a poll: sending and receiving in turns keeps */
               /* what is in flight inside the caches, worth a quarter of the
                                * bandwidth at 64 MiB */

/* ------------------------------------------------------------------------------------ send --- */

static bool has_sums(const struct tcp_link *l) { return l->head == GY_FRAME_SUMMED; }

static uint16_t payload_offset(const struct tcp_link *l, const struct gy_xfer *x) {
  if (x->bytes <= GY_FRAME_SMALL) return (uint16_t)l->head;
  return (uint16_t)(l->head + ((uintptr_t)x->addr - l->head) % GY_FRAME_LINE);
}

void gy_tcp_prepare(struct tcp_link *l, struct gy_xfer *x) {
  struct gy_frame f = {.type = GY_FRAME_SLICE,
                       .offset = payload_offset(l, x),
                       .bytes = (uint32_t)x->bytes,
                       .index = x->index,
                       .call = *x->call};
  if (has_sums(l)) f.payload_sum = gy_crc32c(0, x->addr, x->bytes);
  gy_frame_encode(&f, l->head, l->tx_header[x->index % l->window]);
}

static size_t header_bytes(const struct tcp_link *l, const struct gy_xfer *x) {
  const uint8_t *h = l->tx_header[x->index % l->window];
  return (size_t)h[2] | (size_t)h[3] << 8;
}

static size_t frame_bytes(const struct tcp_link *l, const struct gy_xfer *x) {
  size_t header = header_bytes(l, x);
  return header + x->bytes + gy_frame_tail(header, x->bytes);
}

/* Adds what is left of one frame; returns how many entries it took. */
static int gather(const struct tcp_link *l, const struct gy_xfer *x, struct iovec *iov) {
  static uint8_t zeros[GY_FRAME_LINE];
  size_t header = header_bytes(l, x), moved = x->moved, end = header + x->bytes,
         whole = frame_bytes(l, x);
  int n = 0;
  if (moved < header) {
    iov[n++] = (struct iovec){l->tx_header[x->index % l->window] + moved, header - moved};
    moved = header;
  }
  if (moved < end) {
    iov[n++] = (struct iovec){(char *)x->addr + (moved - header), end - moved};
    moved = end;
  }
  if (moved < whole) iov[n++] = (struct iovec){zeros, whole - moved};
  return n;
}

/* Credits n sent bytes to the frames in order. */
static unsigned sent(struct tcp_link *l, size_t n) {
  unsigned moved = 0;
  for (struct gy_xfer *x; n && (x = l->tx_next);) {
    size_t left = frame_bytes(l, x) - x->moved;
    size_t part = n < left ? n : left;
    x->moved += part;
    l->base.bytes_out += part;
    n -= part;
    moved++;
    if (part == left) l->tx_next = x->next;
  }
  return moved;
}

/* ----------------------------------------------------------------------- harm on request --- */

/* Leaves at most so many bytes. */
static size_t shorten(struct iovec *iov, int *n, size_t most) {
  size_t total = 0;
  for (int i = 0; i < *n; i++) {
    if (total + iov[i].iov_len >= most) {
      iov[i].iov_len = most - total;
      *n = i + 1;
    }
    total += iov[i].iov_len;
  }
  return total;
}

static size_t draw_length(struct gy_tamper *t, struct iovec *iov, int *n, size_t want) {
  if (!t->most || want <= 1) return want;
  return shorten(iov, n, 1 + (size_t)gy_tamper_draw(&t->dice, t->most));
}

static bool next_is_padding(const struct tcp_link *l) {
  const struct gy_xfer *x = l->tx_next;
  size_t payload = header_bytes(l, x);
  return (x->moved >= l->head && x->moved < payload) || x->moved >= payload + x->bytes;
}

static void cut_if_due(const struct tcp_link *l) {
  struct gy_tamper *t = l->base.tamper;
  if (t->sent < t->cut_at) return;
  t->struck = true;
  shutdown(l->fd, SHUT_RDWR);
}

/* What the next send may take: up to a cut, up to the byte that is to be flipped, or that one
 * alone, from a copy. */
static size_t tamper_send(struct tcp_link *l, struct iovec *iov, int *n, size_t want, uint8_t *copy) {
  struct gy_tamper *t = l->base.tamper;
  cut_if_due(l);
  want = draw_length(t, iov, n, want);
  if (t->cut_at > t->sent && want > t->cut_at - t->sent)
    want = shorten(iov, n, (size_t)(t->cut_at - t->sent));
  if (t->flip_at > t->sent && want > t->flip_at - t->sent)
    want = shorten(iov, n, (size_t)(t->flip_at - t->sent));
  if (t->flip_at != t->sent) return want;
  want = shorten(iov, n, 1);
  if (next_is_padding(l)) {
    t->flip_at++;
  } else {
    *copy = *(const uint8_t *)iov[0].iov_base ^ t->flip;
    iov[0].iov_base = copy;
  }
  return want;
}

static void tamper_sent(struct tcp_link *l, size_t n) {
  struct gy_tamper *t = l->base.tamper;
  if (n && t->flip_at == t->sent) {
    t->struck = true;
    t->flip_at = GY_TAMPER_NEVER;
  }
  t->sent += n;
  cut_if_due(l);
}

/* ------------------------------------------------------------------------------------------- */

unsigned gy_tcp_send(struct tcp_link *l) {
  uint8_t flipped;
  struct iovec iov[3 * SEND_FRAMES];
  size_t want = 0;
  int n = 0;
  for (const struct gy_xfer *x = l->tx_next; x && n <= 3 * (SEND_FRAMES - 1) && want < SEND_BYTES;
       x = x->next) {
    int added = gather(l, x, iov + n);
    for (int i = n; i < n + added; i++) want += iov[i].iov_len;
    n += added;
  }
  if (l->base.tamper && l->tx_next && n > 0) want = tamper_send(l, iov, &n, want, &flipped);
  struct msghdr msg = {.msg_iov = iov, .msg_iovlen = (size_t)n};
  ssize_t done;
  do {
    done = sendmsg(l->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (done < 0 && errno == EINTR);
  l->sent = true;
  if (done >= 0) {
    if ((size_t)done < want) l->writable = false;
    if (l->base.tamper) tamper_sent(l, (size_t)done);
    return sent(l, (size_t)done);
  }
  l->writable = false;
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) return 0;
  if (l->rx.head) { /* what the peer sent before it went is still to be read; the end of that says that it is gone */
    l->tx_errno = errno;
    l->readable = true;
  } else {
    gy_tcp_link_down(l, GYRE_ERR_PEER_LOST, errno);
  }
  return 0;
}

unsigned gy_tcp_report_sent(struct tcp_link *l) {
  unsigned n = 0;
  while (l->tx.head && l->tx.head != l->tx_next) {
    struct gy_xfer *x = l->tx.head;
    l->tx.head = x->next;
    if (!l->tx.head) l->tx.tail = &l->tx.head;
    gy_on_xfer_done(&l->base, x);
    n++;
  }
  return n;
}

/* --------------------------------------------------------------------------------- receive --- */

/* Whether a checksum is the one that was sent; otherwise the link is over. */
static bool check_sum(struct tcp_link *l, const char *what, uint32_t stated, uint32_t found) {
  const struct gy_xfer *x = l->rx.head;
  char here[GY_ADDRESS_TEXT], there[GY_ADDRESS_TEXT];
  if (stated == found) return true;
  gy_fail(GYRE_ERR_PROTO,
          "a bit was flipped on the way from rank %d (%s) to rank %d (%s): message %u, instruction "
          "%u slice %u of operation %llu: checksum of the %s is 0x%08x, 0x%08x was sent",
          l->base.peer, gy_address_text(&l->peer, there), l->tcp->core->rank,
          gy_address_text(&l->local, here), x->index, x->insn, x->slice,
          (unsigned long long)x->call->seq, what, found, stated);
  gy_tcp_link_down(l, GYRE_ERR_PROTO, 0);
  return false;
}

static bool check_frame(struct tcp_link *l) {
  const struct gy_xfer *x = l->rx.head;
  struct gy_frame *f = &l->frame;
  if (has_sums(l) && !check_sum(l, "header", gy_frame_stated_sum(l->header), gy_frame_sum(l->header)))
    return false;
  if (!gy_frame_decode(l->header, l->head, f)) {
    gy_fail(GYRE_ERR_PROTO, "the bytes that came are no frame (first byte %u)", l->header[0]);
    gy_tcp_link_down(l, GYRE_ERR_PROTO, 0);
    return false;
  }
  f->call.seq |= x->call->seq & ~(uint64_t)UINT32_MAX; /* the low half travels */
  const struct gy_descriptor *mine = x->call, *theirs = &f->call;
  bool same = mine->seq == theirs->seq && mine->count == theirs->count &&
              mine->root == theirs->root && mine->coll == theirs->coll &&
              mine->dtype == theirs->dtype && mine->op == theirs->op && mine->algo == theirs->algo;
  if (!same) {
    l->down = true;
    gy_on_mismatch(&l->base, mine, theirs);
    return false;
  }
  if (f->index != x->index || f->bytes != x->bytes) {
    gy_fail(GYRE_ERR_PROTO, "frame %u of %u bytes came where frame %u of %zu bytes was due",
            f->index, f->bytes, x->index, x->bytes);
    gy_tcp_link_down(l, GYRE_ERR_PROTO, 0);
    return false;
  }
  l->pad_left = f->offset - l->head;
  l->sum = 0;
  l->checked = true;
  return true;
}

/* Where the next payload bytes of a reducing receive are staged: on the place within a line that
 * they have in the frame, with the carried bytes right before them. */
static uint8_t *staging_at(const struct tcp_link *l, const struct gy_xfer *x) {
  size_t offset = l->checked ? l->frame.offset : l->head;
  return l->tcp->staging + GY_FRAME_LINE + (offset + x->moved) % GY_FRAME_LINE;
}

/* The same place, after the carried bytes have been put before it. */
static uint8_t *stage(struct tcp_link *l, const struct gy_xfer *x) {
  uint8_t *at = staging_at(l, x);
  memcpy(at - l->carried, l->carry, l->carried);
  return at;
}

/* Reduces n fresh bytes, together with the carried ones. */
static void reduce_staged(struct tcp_link *l, struct gy_xfer *x, size_t n) {
  uint8_t *from = staging_at(l, x) - l->carried;
  size_t have = l->carried + n, whole = have - have % x->esize;
  size_t at = x->moved - l->carried; /* where the first staged element belongs */
  char *dst = (char *)x->addr + at;
  const char *operand = (const char *)x->operand + at;
  if (whole) {
    const void *in = from, *own = operand;
    gy_reduce(x->reducer, dst, x->swap ? in : own, x->swap ? own : in, whole / x->esize,
              x->completes);
  }
  l->carried = have - whole;
  memcpy(l->carry, from + whole, l->carried);
  x->moved += n;
}

/* Takes n fresh bytes of the payload. */
static void take_payload(struct tcp_link *l, struct gy_xfer *x, size_t n) {
  if (has_sums(l)) {
    const void *fresh = x->reducer ? staging_at(l, x) : (uint8_t *)x->addr + x->moved;
    l->sum = gy_crc32c(l->sum, fresh, n);
  }
  if (x->reducer) {
    reduce_staged(l, x, n);
  } else {
    x->moved += n;
  }
}

static void finish_frame(struct tcp_link *l) {
  struct gy_xfer *x = l->rx.head;
  l->rx.head = x->next;
  if (!l->rx.head) l->rx.tail = &l->rx.head;
  l->tail_left = gy_frame_tail(l->frame.offset, x->bytes);
  l->checked = false;
  gy_on_xfer_done(&l->base, x);
}

/* Where the next bytes of the stream go: the rest of the padding and header, then padding, payload,
 * and as far as that is known the padding and header behind it. */
static int scatter(struct tcp_link *l, struct iovec *iov, uint8_t *padding) {
  struct gy_xfer *x = l->rx.head;
  int n = 0;
  if (!l->checked) {
    if (l->tail_left) iov[n++] = (struct iovec){padding, l->tail_left};
    iov[n++] = (struct iovec){l->header + l->header_have, l->head - l->header_have};
    if (x->bytes > GY_FRAME_SMALL) return n; /* the payload's place is in the header */
  }
  if (l->pad_left) iov[n++] = (struct iovec){padding, l->pad_left};
  size_t left = x->bytes - x->moved;
  if (x->reducer && left > STAGING_BYTES) {
    iov[n++] = (struct iovec){stage(l, x), STAGING_BYTES};
    return n;
  }
  if (left)
    iov[n++] = (struct iovec){x->reducer ? stage(l, x) : (uint8_t *)x->addr + x->moved, left};
  size_t tail = gy_frame_tail(l->checked ? l->frame.offset : l->head, x->bytes);
  if (tail) iov[n++] = (struct iovec){padding, tail};
  if (l->checked && x->next) iov[n++] = (struct iovec){l->header, l->head};
  return n;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Takes `n` bytes off a count of bytes still to come; what is left of n. */
static size_t consume(size_t *left, size_t n) {
  size_t part = least(*left, n);
  *left -= part;
  return n - part;
}

/* Takes note of n received bytes, in the order in which scatter placed them. */
static void took(struct tcp_link *l, size_t n) {
  struct gy_xfer *x = l->rx.head;
  l->base.bytes_in += n;
  if (!l->checked) {
    n = consume(&l->tail_left, n);
    size_t part = least(l->head - l->header_have, n);
    l->header_have += part;
    n -= part;
    if (l->header_have < l->head || !check_frame(l)) return;
    l->header_have = 0; /* the buffer is free for the next header */
  }
  n = consume(&l->pad_left, n);
  size_t part = least(x->bytes - x->moved, n);
  if (part) take_payload(l, x, part);
  if (x->moved < x->bytes || l->pad_left) return;
  if (has_sums(l) && !check_sum(l, "payload", l->frame.payload_sum, l->sum)) return;
  finish_frame(l);
  l->header_have = consume(&l->tail_left, n - part);
  if (l->header_have == l->head && check_frame(l)) l->header_have = 0;
}

unsigned gy_tcp_receive(struct tcp_link *l) {
  uint8_t padding[GY_FRAME_MAX_OFFSET];
  struct iovec iov[6];
  size_t want = 0;
  int n_iov = scatter(l, iov, padding);
  for (int i = 0; i < n_iov; i++) want += iov[i].iov_len;
  if (l->base.tamper) want = draw_length(l->base.tamper, iov, &n_iov, want);
  struct msghdr msg = {.msg_iov = iov, .msg_iovlen = (size_t)n_iov};
  ssize_t n;
  do { n = recvmsg(l->fd, &msg, MSG_DONTWAIT); } while (n < 0 && errno == EINTR);
  if (n > 0) {
    if ((size_t)n < want) l->readable = false;
    took(l, (size_t)n);
    return 1;
  }
  l->readable = false;
  if (n == 0) {
    gy_tcp_link_down(l, GYRE_ERR_PEER_LOST, l->tx_errno);
  } else if (errno != EAGAIN && errno != EWOULDBLOCK) {
    gy_tcp_link_down(l, GYRE_ERR_PEER_LOST, errno);
  }
  return 0;
}

void gy_tcp_look(struct tcp_link *l) {
  uint8_t header[GY_FRAME_SUMMED];
  struct gy_frame f;
  ssize_t n = recv(l->fd, header, l->head, MSG_PEEK | MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) l->readable = false;
  if (n != (ssize_t)l->head || !gy_frame_decode(header, l->head, &f)) return;
  if (has_sums(l) && gy_frame_stated_sum(header) != gy_frame_sum(header))
    return; /* told when it is received */
  gy_on_unclaimed(&l->base, &f.call);
}

/*
 * io.c - moves the bytes of a link.
 *
 * Its own sendmsg and recvmsg rather than libuv's streams (docs/adr/0002): one path whether the driver spins or sleeps, payloads
 * land at their final address with the next header in one call, and MSG_NOSIGNAL keeps SIGPIPE from the user's program.
 *
 * Nothing is ever read beyond the header that follows the current frame, so a link needs no buffer of its own: a frame that may
 * not be received yet stays in the kernel, which is the back-pressure.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "../../src/status.h"
#include "link.h"

#define SEND_FRAMES 8   /* frames in one sendmsg */
#define READS_PER_POLL 8 /* so that one fast link does not starve the others */

/* ------------------------------------------------------------------------------------ send --- */

static uint16_t payload_offset(const struct gy_xfer *x) {
  (void)x;
  return GY_FRAME_BYTES;
}

void tcp_prepare(struct tcp_link *l, struct gy_xfer *x) {
  struct gy_frame f = { .type = GY_FRAME_SLICE, .offset = payload_offset(x), .bytes = (uint32_t)x->bytes,
                        .index = x->index, .call = *x->call };
  gy_frame_encode(&f, l->tx_header[x->index % l->window]);
}

static size_t header_bytes(const struct tcp_link *l, const struct gy_xfer *x) {
  const uint8_t *h = l->tx_header[x->index % l->window];
  return (size_t)h[2] | (size_t)h[3] << 8;
}

/* Adds what is left of one frame; returns how many entries it took. */
static int gather(const struct tcp_link *l, const struct gy_xfer *x, struct iovec *iov) {
  size_t header = header_bytes(l, x), moved = x->moved;
  int n = 0;
  if (moved < header) {
    iov[n++] = (struct iovec){ l->tx_header[x->index % l->window] + moved, header - moved };
    moved = header;
  }
  if (moved < header + x->bytes) {
    iov[n++] = (struct iovec){ (char *)x->addr + (moved - header), header + x->bytes - moved };
  }
  return n;
}

/* Credits n sent bytes to the frames in order. */
static unsigned sent(struct tcp_link *l, size_t n) {
  unsigned moved = 0;
  while (n) {
    struct gy_xfer *x = l->tx_next;
    size_t left = header_bytes(l, x) + x->bytes - x->moved;
    size_t part = n < left ? n : left;
    x->moved += part;
    l->base.bytes_out += part;
    n -= part;
    moved++;
    if (part == left) l->tx_next = x->next;
  }
  return moved;
}

unsigned tcp_send(struct tcp_link *l) {
  unsigned moved = 0;
  while (l->tx_next && !l->down) {
    struct iovec iov[2 * SEND_FRAMES];
    size_t want = 0;
    int n = 0;
    for (const struct gy_xfer *x = l->tx_next; x && n <= 2 * SEND_FRAMES - 2; x = x->next) {
      int added = gather(l, x, iov + n);
      for (int i = n; i < n + added; i++) want += iov[i].iov_len;
      n += added;
    }
    struct msghdr msg = { .msg_iov = iov, .msg_iovlen = (size_t)n };
    ssize_t done = sendmsg(l->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (done < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) {
        l->writable = false;
      } else {
        tcp_link_down(l, GYRE_ERR_SYS, errno);
      }
      break;
    }
    moved += sent(l, (size_t)done);
    if ((size_t)done < want) {
      l->writable = false;
      break;
    }
  }
  return moved;
}

unsigned tcp_report_sent(struct tcp_link *l) {
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

static bool check_frame(struct tcp_link *l) {
  const struct gy_xfer *x = l->rx.head;
  struct gy_frame *f = &l->frame;
  if (!gy_frame_decode(l->header, f)) {
    gy_fail(GYRE_ERR_PROTO, "the bytes that came are no frame (first byte %u)", l->header[0]);
    tcp_link_down(l, GYRE_ERR_PROTO, 0);
    return false;
  }
  f->call.seq |= x->call->seq & ~(uint64_t)UINT32_MAX; /* the low half travels */
  const struct gy_descriptor *mine = x->call, *theirs = &f->call;
  bool same = mine->seq == theirs->seq && mine->count == theirs->count && mine->root == theirs->root &&
              mine->coll == theirs->coll && mine->dtype == theirs->dtype && mine->op == theirs->op &&
              mine->algo == theirs->algo;
  if (!same) {
    l->down = true;
    gy_on_mismatch(&l->base, mine, theirs);
    return false;
  }
  if (f->index != x->index || f->bytes != x->bytes || (x->bytes <= DIRECT_BYTES && f->offset != GY_FRAME_BYTES)) {
    gy_fail(GYRE_ERR_PROTO, "frame %u of %u bytes came where frame %u of %zu bytes was due", f->index, f->bytes,
            x->index, x->bytes);
    tcp_link_down(l, GYRE_ERR_PROTO, 0);
    return false;
  }
  l->pad_left = f->offset - GY_FRAME_BYTES;
  l->checked = true;
  return true;
}

/* Reduces n fresh bytes that lie in the staging buffer behind the carried ones. */
static void reduce_staged(struct tcp_link *l, struct gy_xfer *x, size_t n) {
  uint8_t *from = l->tcp->staging;
  size_t have = l->carried + n, whole = have - have % x->esize;
  size_t at = x->moved - l->carried; /* where the first staged element belongs */
  char *dst = (char *)x->addr + at;
  const char *operand = (const char *)x->operand + at;
  if (whole) {
    x->reduce(dst, x->swap ? (const void *)from : operand, x->swap ? (const void *)operand : from, whole / x->esize,
              x->finish);
  }
  l->carried = have - whole;
  memcpy(l->carry, from + whole, l->carried);
  x->moved += n;
}

static void finish_frame(struct tcp_link *l) {
  struct gy_xfer *x = l->rx.head;
  l->rx.head = x->next;
  if (!l->rx.head) l->rx.tail = &l->rx.head;
  l->checked = false;
  gy_on_xfer_done(&l->base, x);
}

/* Where the next bytes of the stream go: the rest of the header, padding, payload, and the header behind it. */
static int scatter(struct tcp_link *l, struct iovec *iov, uint8_t *padding) {
  struct gy_xfer *x = l->rx.head;
  int n = 0;
  if (!l->checked) {
    iov[n++] = (struct iovec){ l->header + l->header_have, GY_FRAME_BYTES - l->header_have };
    if (x->bytes > DIRECT_BYTES) return n;
  }
  if (l->checked && l->pad_left) iov[n++] = (struct iovec){ padding, l->pad_left };
  size_t left = x->bytes - x->moved;
  if (!left) return n;
  if (x->reduce) {
    memcpy(l->tcp->staging, l->carry, l->carried);
    size_t room = STAGING_BYTES - l->carried;
    if (left > room) {
      iov[n++] = (struct iovec){ l->tcp->staging + l->carried, room };
      return n;
    }
    iov[n++] = (struct iovec){ l->tcp->staging + l->carried, left };
  } else {
    iov[n++] = (struct iovec){ (char *)x->addr + x->moved, left };
  }
  if (l->checked && x->next) iov[n++] = (struct iovec){ l->header, GY_FRAME_BYTES };
  return n;
}

/* Takes note of n received bytes. */
static void took(struct tcp_link *l, size_t n) {
  struct gy_xfer *x = l->rx.head;
  l->base.bytes_in += n;
  if (!l->checked) {
    size_t part = GY_FRAME_BYTES - l->header_have < n ? GY_FRAME_BYTES - l->header_have : n;
    l->header_have += part;
    n -= part;
    if (l->header_have < GY_FRAME_BYTES || !check_frame(l)) return;
    l->header_have = 0; /* the buffer is free for the next header */
  } else if (l->pad_left) {
    size_t part = l->pad_left < n ? l->pad_left : n;
    l->pad_left -= part;
    n -= part;
  }
  size_t left = x->bytes - x->moved, part = left < n ? left : n;
  if (x->reduce && part) {
    reduce_staged(l, x, part);
  } else {
    x->moved += part;
  }
  if (x->moved == x->bytes && !l->pad_left) {
    l->header_have = n - part; /* what came of the next frame's header */
    finish_frame(l);
    if (l->header_have == GY_FRAME_BYTES && l->rx.head) {
      if (check_frame(l)) l->header_have = 0;
    }
  }
}

unsigned tcp_receive(struct tcp_link *l) {
  unsigned moved = 0;
  for (unsigned reads = 0; l->rx.head && !l->down && reads < READS_PER_POLL; reads++) {
    uint8_t padding[GY_FRAME_MAX_OFFSET];
    struct iovec iov[4];
    size_t want = 0;
    int n_iov = scatter(l, iov, padding);
    for (int i = 0; i < n_iov; i++) want += iov[i].iov_len;
    struct msghdr msg = { .msg_iov = iov, .msg_iovlen = (size_t)n_iov };
    ssize_t n = recvmsg(l->fd, &msg, MSG_DONTWAIT);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        l->readable = false;
      } else {
        tcp_link_down(l, GYRE_ERR_PEER_LOST, errno);
      }
      break;
    }
    if (n == 0) {
      tcp_link_down(l, GYRE_ERR_PEER_LOST, 0);
      break;
    }
    moved++;
    took(l, (size_t)n);
    if ((size_t)n < want) {
      l->readable = false;
      break;
    }
  }
  return moved;
}

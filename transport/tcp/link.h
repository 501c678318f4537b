/*
 * link.h - one TCP link: a socket, what is posted on it, and how far the bytes have come.
 *
 * Thread: the driving thread. Owner: tcp.c makes and ends links, io.c moves their bytes.
 */
#ifndef GY_TCP_LINK_H
#define GY_TCP_LINK_H

#include "frame.h"

#define STAGING_BYTES (256u << 10) /* fits the second-level cache with room for the operand */

struct tcp { /* the transport, opened for one communicator */
  struct gy_comm_core *core;
  struct tcp_link *links;
  struct gy_expect *expect;
  struct early *early; /* connections of peers that opened their end first */
  uint8_t *staging;    /* where payloads that will be reduced are received */
};

struct xfer_queue {
  struct gy_xfer *head, **tail;
};

struct tcp_link {
  struct gy_link base; /* first */
  struct tcp_link *next;
  struct tcp *tcp;
  int fd; /* -1 until the connection is there */
  struct gy_dial *dial;
  uv_poll_t *watch;        /* closes later than the link */
  int watched;             /* events libuv watches now */
  bool readable, writable; /* libuv said so; false once the kernel said EAGAIN */
  bool sent;               /* since the last poll: the next send is left to the next one */
  bool held;               /* what was posted last waits for one more, or for the next poll */
  int tx_errno;            /* sending failed; receiving goes on to the end of what is there */
  bool down;               /* broken and reported */
  struct gy_address local, peer;
  size_t head; /* bytes of a header: GY_FRAME_SUMMED where frames carry checksums */

  struct xfer_queue rx;
  uint8_t header[GY_FRAME_SUMMED];
  size_t header_have;    /* bytes of the current frame's header */
  struct gy_frame frame; /* the current frame, valid when `checked` */
  bool checked;
  size_t pad_left;   /* bytes between header and payload still to be skipped */
  size_t tail_left;  /* the same for those before the next header */
  uint8_t carry[16]; /* the beginning of an element whose rest has not come */
  size_t carried;
  uint32_t sum; /* of the payload so far, with checksums */

  struct xfer_queue tx;    /* in order; those wholly sent stand first until poll reports them */
  struct gy_xfer *tx_next; /* the first that is not wholly sent */
  uint8_t (*tx_header)[GY_FRAME_MAX_OFFSET + 1]; /* one for each transfer of the window */
  uint32_t window;
};

/* io.c: each makes one system call at most and returns how many transfers it moved. */
unsigned gy_tcp_send(struct tcp_link *l);    /* something must be left to send */
unsigned gy_tcp_receive(struct tcp_link *l); /* a receive must be posted */
unsigned gy_tcp_report_sent(struct tcp_link *l);
void gy_tcp_look(struct tcp_link *l); /* nothing is posted, but something may have come: is it for an operation that is over? */
void gy_tcp_prepare(struct tcp_link *l, struct gy_xfer *x); /* writes the header of a posted send */

/* tcp.c */
void gy_tcp_link_down(struct tcp_link *l, gyre_status why, int sys_errno);

#endif

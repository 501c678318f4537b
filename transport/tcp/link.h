/*
 * link.h - one TCP link: a socket, what is posted on it, and how far the bytes have come.
 *
 * Thread: the driving thread. Owner: tcp.c makes and ends links, io.c moves their bytes.
 */
#ifndef GY_TCP_LINK_H
#define GY_TCP_LINK_H

#include "frame.h"

#define STAGING_BYTES (256u << 10) /* fits the second-level cache with room for the operand */
#define DIRECT_BYTES 4096u         /* up to this a payload follows its header at offset 32 and is read with it */

struct tcp {           /* the transport, opened for one communicator */
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
  int fd;              /* -1 until the connection is there */
  struct gy_dial *dial;
  uv_poll_t *watch;    /* closes later than the link */
  int watched;         /* events libuv watches now */
  bool readable, writable; /* libuv said so; false once the kernel said EAGAIN */
  bool down;           /* broken and reported */
  struct gy_address local, peer;

  struct xfer_queue rx;
  uint8_t header[GY_FRAME_BYTES];
  size_t header_have;  /* bytes of the current frame's header */
  struct gy_frame frame; /* the current frame, valid when header_have is 32 and `checked` */
  bool checked;
  size_t pad_left;     /* bytes between header and payload still to be skipped */
  uint8_t carry[8];    /* the beginning of an element whose rest has not come */
  size_t carried;

  struct xfer_queue tx; /* in order; those wholly sent stand first until poll reports them */
  struct gy_xfer *tx_next; /* the first that is not wholly sent */
  uint8_t (*tx_header)[GY_FRAME_MAX_OFFSET]; /* one for each transfer of the window */
  uint32_t window;
};

/* io.c: each returns the number of transfers that moved. */
unsigned tcp_send(struct tcp_link *l);    /* until nothing is left or the kernel is full */
unsigned tcp_receive(struct tcp_link *l); /* until nothing is posted, nothing is there, or a fair share is read */
unsigned tcp_report_sent(struct tcp_link *l);
size_t tcp_frame_bytes(const struct gy_xfer *x); /* header, padding and payload */
void tcp_prepare(struct tcp_link *l, struct gy_xfer *x); /* writes the header of a posted send */

/* tcp.c */
void tcp_link_down(struct tcp_link *l, gyre_status why, int sys_errno);

#endif

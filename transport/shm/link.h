/*
 * link.h - one link through shared memory: a socket, the segment, and what is posted.
 *
 * Thread: the driving thread. Owner: shm.c makes and ends links, io.c moves their bytes.
 */
#ifndef GY_SHM_LINK_H
#define GY_SHM_LINK_H

#include "segment.h"

struct shm { /* the transport, opened for one communicator */
  struct gy_comm_core *core;
  struct shm_link *links;
  struct gy_expect *expect;
  struct shm_early *early; /* connections of peers that opened their end first */
};

struct xfer_queue {
  struct gy_xfer *head, **tail;
};

struct shm_way { /* one direction, as one end sees it */
  struct shm_head *head;
  uint8_t (*body)[SHM_BODY];
  _Atomic uint32_t *taken;
  uint32_t pieces; /* sent or taken so far, the low half of the number */
  uint32_t free;   /* sending: cells that are known to be free */
};

struct shm_link {
  struct gy_link base; /* first */
  struct shm_link *next;
  struct shm *shm;
  int fd; /* -1 until the connection is there: carries the segment, then doorbells, and says that the peer is gone */
  struct gy_dial *dial;
  uv_poll_t *watch;            /* closes later than the link */
  struct shm_segment *segment; /* NULL until it is there */
  struct shm_way out, in;
  _Atomic uint32_t *asleep, *peer_asleep;
  struct xfer_queue rx, tx; /* tx: those wholly sent stand first until poll reports them */
  struct gy_xfer *tx_next;  /* the first that is not wholly sent */
  bool ended; /* the peer has closed, or the socket is broken; what is in the ring still counts */
  int ended_errno;
  bool down; /* broken and reported */
  bool checksum;
};

/* io.c: each moves a few pieces at most, and returns how many. */
unsigned gy_shm_send(struct shm_link *l);
unsigned gy_shm_receive(struct shm_link *l);
bool gy_shm_can_send(struct shm_link *l);       /* something is left, and a cell is free */
bool gy_shm_has_come(const struct shm_link *l); /* a piece is in the ring, posted for or not */
void gy_shm_look(struct shm_link *l);           /* one has come, but nothing is posted */

/* shm.c */
void gy_shm_link_down(struct shm_link *l, gyre_status why, int sys_errno);

#endif

/*
 * segment.h - the memory that the two ends of a link share: for each direction a ring of cells.
 *
 * Role:   a message goes through the ring in pieces, one to a cell. The sender writes the piece, then the head of its
 *         cell, and last the cell's number, by which the receiver knows that the rest is there. The receiver copies or
 *         reduces the piece out of the cell and counts the cell as taken, by which the sender knows that it is free. A
 *         piece of a few bytes stands in the head itself: one cache line holds all of the message.
 * Thread: the driving thread of either process. Owner: the link; each end maps the segment for itself.
 *
 * The dialler makes the segment (memfd), allocates all of it, so that memory that is short is an error here and never a
 * SIGBUS later, seals its size for the same reason, and passes it over the link's socket.
 */
#ifndef GY_SHM_SEGMENT_H
#define GY_SHM_SEGMENT_H

#include <stdatomic.h>

#include "../transport.h"

#define SHM_LINE 64u
#define SHM_CELLS 16u                /* of one direction */
#define SHM_PIECE (32u << 10)        /* bytes of a piece at most: both caches of a core hold one */
#define SHM_TINY 16u                 /* bytes of a piece that stands in the head */
#define SHM_BODY (SHM_PIECE + 4096u) /* a piece starts where its source does within a line */

struct shm_head { /* of a cell: one line */
  _Atomic uint32_t full; /* low half of the piece's number on this link and direction, from 1; written last */
  uint32_t piece;        /* bytes of this piece */
  uint32_t index, bytes; /* of the message */
  uint64_t count;        /* of the call, with what follows */
  uint32_t seq, root;
  uint8_t coll, dtype, op, algo;
  uint16_t offset; /* of the piece in the body */
  uint16_t reserved;
  uint32_t sum; /* with checksums: CRC-32C of the bytes before, from `piece` on, and of the piece */
  uint8_t tiny[SHM_TINY];
  uint8_t unused[4];
};
_Static_assert(sizeof(struct shm_head) == SHM_LINE, "a head is one line");

struct shm_count { /* on a line of its own */
  _Alignas(64) _Atomic uint32_t n;
};

enum { SHM_WANTS_DATA = 1, SHM_WANTS_ROOM = 2 }; /* what a sleeping end is to be woken for */

struct shm_segment {
  _Alignas(4096) uint8_t body[2][SHM_CELLS][SHM_BODY];
  struct shm_head head[2][SHM_CELLS];
  struct shm_count taken[2];  /* low half of the number of cells that the receiver has given back */
  struct shm_count asleep[2]; /* of each end: what for; 0: awake */
};
_Static_assert(SHM_BODY % 4096 == 0, "bodies and heads begin on lines of their own");

/* Both give a mapping that gy_shm_unmap ends. The receiver's may fail with GYRE_IN_PROGRESS: nothing has come yet.
 * SYS, NOMEM with the text; PROTO if what came is no segment; PEER_LOST without text if the peer has gone. */
gyre_status gy_shm_make(int socket, struct shm_segment **out);
gyre_status gy_shm_take(int socket, struct shm_segment **out);
void gy_shm_unmap(struct shm_segment *s);

#endif

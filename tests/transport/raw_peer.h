/*
 * raw_peer.h - a peer of a TCP link made by hand: a socket after the handshake, and frames that are
 * written in any pieces.
 *
 * Thread: one. Owner: the test closes the descriptor.
 */
#ifndef TEST_RAW_PEER_H
#define TEST_RAW_PEER_H

#include "transport/tcp/frame.h"
#include "world.h"

/* Dials rank `to` as rank `from`; the descriptor, or -1 with gyre_last_error() when it was
 * refused. */
int raw_dial(struct world *w, int from, int to, uint16_t lane);
/* Waits until rank `to` is dialled by a transport. */
int raw_accept(struct world *w, int to);

/* Writes a whole frame with the payload at `offset`; returns its length, padding included. */
size_t raw_frame(uint8_t *out, const struct gy_descriptor *call, uint32_t index, size_t offset,
                 const void *payload, size_t bytes);
/* The same with checksums. */
size_t raw_frame_summed(uint8_t *out, const struct gy_descriptor *call, uint32_t index,
                        size_t offset, const void *payload, size_t bytes);
/* All of it, while the world goes on. */
void raw_write(struct world *w, int fd, const void *data, size_t bytes);
/* Exactly so much, in pieces of at most `piece`. */
void raw_read(struct world *w, int fd, void *data, size_t bytes, size_t piece);

#endif

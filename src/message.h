/*
 * message.h - what a send and a receive are to the engine: programs of one instruction.
 *
 * Role:   a message between two ranks (or of a rank to itself) is no collective: it has a lane of its
 *         own and a number of its own, counted for each pair of ranks and direction, so its order
 *         against collectives is free. To the engine it is one more run.
 * Thread: constants and pure functions; programs are freed with gy_program_free.
 */
#ifndef GY_MESSAGE_H
#define GY_MESSAGE_H

#include "schedule.h"

#define GY_MESSAGE 128u      /* in the place of an enum gy_coll */
#define GY_MESSAGE_LANE 255u /* programs of collectives have lower ones */

/* In the place of an algorithm, for the cache: what a key's program does. The key's root is the
 * peer. */
extern const struct gy_algo gy_message_send, gy_message_recv;

/* SEND IN[0] to the peer, or RECV OUT[0] from it. NOMEM. */
gyre_status gy_message_program(const struct gy_key *key, bool receives, struct gy_program **out);

/* Both ends in one number, which stands in a descriptor in the place of the root. */
static inline uint32_t gy_message_pair(int from, int to) {
  return (uint32_t)from | (uint32_t)to << 16;
}
static inline int gy_message_from(uint32_t pair) { return (int)(pair & 0xffff); }
static inline int gy_message_to(uint32_t pair) { return (int)(pair >> 16); }

#endif

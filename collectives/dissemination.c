/*
 * dissemination.c - the barrier.
 *
 * Role:   builder: in round k this rank tells rank r + 2^k and hears from r - 2^k; after ceil(log2
 *         n) rounds it has heard, through others, from all. Hensgen, Finkel and Manber, "Two
 *         algorithms for barrier synchronization", 1988.
 * Thread: pure functions.
 *
 * A round's message says "I have heard all earlier rounds", so it waits for all of them: receives
 * wait for each other, and the send for the last. Its bytes are none.
 */
#include "collectives/algorithms.h"

static gyre_status build(const struct gy_key *key, struct gy_builder *b) {
  gy_b_layout(b, GY_SPLIT, 1);
  unsigned heard = GY_NODEP;
  for (int distance = 1; distance < key->nranks; distance *= 2) {
    unsigned send = gy_b_send(b, gy_ring_rank(key, distance), gy_in(0));
    unsigned recv = gy_b_recv(b, gy_ring_rank(key, -distance), gy_out(0));
    gy_b_after(b, send, heard);
    gy_b_after(b, recv, heard);
    heard = recv;
  }
  return GYRE_OK;
}

static double cost(const struct gy_key *key, size_t bytes, const struct gy_cost *c) {
  (void)bytes;
  return gy_cost_messages(c, gy_log2_ceil(key->nranks));
}

const struct gy_algo gy_barrier_dissemination = {
    .name = "dissemination", .coll = GY_BARRIER, .build = build, .cost_us = cost};

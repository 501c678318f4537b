/*
 * chain.c - broadcast and reduce along a pipelined chain of all ranks (users call it "ring").
 *
 * Role:   builders for large messages: every rank moves each byte once in and once out, slice after
 *         slice. The pipeline is folklore of the field; Sanders, Speck and Traeff, "Two-tree
 *         algorithms for full bandwidth broadcast, reduction and scan", 2009, give its cost.
 * Thread: pure functions.
 */
#include "collectives/algorithms.h"

static gyre_status broadcast_build(const struct gy_key *key, struct gy_builder *b) {
  int v = gy_rooted_rank(key);
  gy_b_layout(b, GY_SPLIT, 1);
  unsigned arrived = v == 0 ? GY_NODEP : gy_b_recv(b, gy_rooted_peer(key, v - 1), gy_out(0));
  if (v < key->nranks - 1) {
    unsigned send = gy_b_send(b, gy_rooted_peer(key, v + 1), v == 0 ? gy_in(0) : gy_out(0));
    gy_b_after(b, send, arrived);
  }
  if (v == 0) gy_b_copy(b, gy_out(0), gy_in(0));
  return GYRE_OK;
}

/* A rank in the middle moves each slice in and out, at the same time where it has a core of its
 * own. */
static double broadcast_cost(const struct gy_key *key, size_t bytes, const struct gy_cost *c) {
  double hops = key->nranks - 1, slice = gy_cost_slice(c, bytes);
  return gy_cost_messages(c, hops) + gy_cost_move(c, hops * slice) +
         gy_cost_move(c, (double)bytes - slice);
}

const struct gy_algo gy_broadcast_ring = {
    .name = "ring", .coll = GY_BROADCAST, .build = broadcast_build, .cost_us = broadcast_cost};

/* From the far end to the root, each rank adding its own. A rank in the middle has no OUT: the
 * sum passes through one scratch slot, whose place is free again once the SEND of the slice a
 * window ago is done. */
static gyre_status reduce_build(const struct gy_key *key, struct gy_builder *b) {
  int v = gy_rooted_rank(key);
  bool end = v == key->nranks - 1;
  gy_b_layout(b, GY_SPLIT, 1);
  unsigned summed = GY_NODEP;
  if (!end) {
    struct gy_ref place = v == 0 ? gy_finish(gy_out(0)) : gy_tmp(0, 0);
    summed = gy_b_recv_reduce(b, gy_rooted_peer(key, v + 1), place, gy_in(0));
  }
  if (v > 0) {
    unsigned send = gy_b_send(b, gy_rooted_peer(key, v - 1), end ? gy_in(0) : gy_tmp(0, 0));
    gy_b_after(b, send, summed);
    if (!end) gy_b_after_window(b, summed, send);
  }
  return GYRE_OK;
}

static double reduce_cost(const struct gy_key *key, size_t bytes, const struct gy_cost *c) {
  double hops = key->nranks - 1, slice = gy_cost_slice(c, bytes);
  return broadcast_cost(key, bytes, c) + gy_cost_reduce(c, hops * slice + (double)bytes - slice);
}

const struct gy_algo gy_reduce_ring = {
    .name = "ring", .coll = GY_REDUCE, .build = reduce_build, .cost_us = reduce_cost};

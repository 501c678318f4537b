/*
 * binomial.c - broadcast and reduce along a binomial tree (users call it "tree").
 *
 * Role:   builders for small messages: ceil(log2 n) messages deep. Thakur, Rabenseifner and Gropp,
 *         "Optimization of collective communication operations in MPICH", 2005, with slices
 *         following each other.
 * Thread: pure functions.
 */
#include "collectives/algorithms.h"

/* The largest subtree is served first, as it has the longest way to go. */
static gyre_status broadcast_build(const struct gy_key *key, struct gy_builder *b) {
  int v = gy_rooted_rank(key);
  gy_b_layout(b, GY_SPLIT, 1);
  unsigned arrived =
      v == 0 ? GY_NODEP : gy_b_recv(b, gy_rooted_peer(key, gy_parent_of(v)), gy_out(0));
  for (int k = gy_child_count(v, key->nranks) - 1; k >= 0; k--) {
    unsigned send = gy_b_send(b, gy_rooted_peer(key, v + (1 << k)), v == 0 ? gy_in(0) : gy_out(0));
    gy_b_after(b, send, arrived);
  }
  if (v == 0) gy_b_copy(b, gy_out(0), gy_in(0));
  return GYRE_OK;
}

/* The root sends every slice once per child; the first slice then goes down the rest of the
 * longest path. */
static double broadcast_cost(const struct gy_key *key, size_t bytes, const struct gy_cost *c) {
  double depth = gy_log2_ceil(key->nranks), slice = gy_cost_slice(c, bytes);
  return gy_cost_messages(c, depth) + gy_cost_move(c, depth * slice) +
         gy_cost_move(c, depth * ((double)bytes - slice));
}

const struct gy_algo gy_broadcast_tree = {
    .name = "tree", .coll = GY_BROADCAST, .build = broadcast_build, .cost_us = broadcast_cost};

/* Children are added nearest first, so that every sum covers a contiguous range, in order. Off
 * the root there is no OUT: the sum stands in one scratch slot, whose place is free again once
 * the SEND of the slice a window ago is done. */
static gyre_status reduce_build(const struct gy_key *key, struct gy_builder *b) {
  int v = gy_rooted_rank(key), children = gy_child_count(v, key->nranks);
  gy_b_layout(b, GY_SPLIT, 1);
  unsigned summed = GY_NODEP, first = GY_NODEP;
  struct gy_ref sum = gy_in(0), place = v == 0 ? gy_out(0) : gy_tmp(0, 0);
  for (int k = 0; k < children; k++) {
    bool last = v == 0 && k == children - 1;
    unsigned rr =
        gy_b_recv_reduce(b, gy_rooted_peer(key, v + (1 << k)), last ? gy_finish(place) : place, sum);
    gy_b_after(b, rr, summed);
    if (k == 0) first = rr;
    summed = rr;
    sum = place;
  }
  if (v > 0) {
    unsigned send = gy_b_send(b, gy_rooted_peer(key, gy_parent_of(v)), sum);
    gy_b_after(b, send, summed);
    if (children > 0) gy_b_after_window(b, first, send);
  }
  return GYRE_OK;
}

static double reduce_cost(const struct gy_key *key, size_t bytes, const struct gy_cost *c) {
  double depth = gy_log2_ceil(key->nranks);
  return broadcast_cost(key, bytes, c) + gy_cost_reduce(c, depth * (double)bytes);
}

const struct gy_algo gy_reduce_tree = {
    .name = "tree", .coll = GY_REDUCE, .build = reduce_build, .cost_us = reduce_cost};

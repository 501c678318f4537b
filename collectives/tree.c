/*
 * tree.c - all-reduce up and down a binary tree.
 *
 * Role:   builder for many ranks and middle sizes: about 2 log2 n messages deep whatever the size,
 *         and every slice follows the last through the tree. The pipelined binary tree is folklore
 *         of the field; Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth
 *         broadcast, reduction and scan", 2009, describe it and what it leaves on the table.
 * Thread: pure functions.
 */
#include "collectives/algorithms.h"

/* Ranks form a heap: the children of r are 2r + 1 and 2r + 2. */
static gyre_status build(const struct gy_key *key, struct gy_builder *b) {
  int first = 2 * key->rank + 1, parent = (key->rank - 1) / 2;
  int children = key->nranks <= first ? 0 : key->nranks == first + 1 ? 1 : 2;
  bool root = key->rank == 0;
  gy_b_layout(b, GY_SPLIT, 1);

  unsigned summed = GY_NODEP;
  struct gy_ref sum = gy_in(0);
  for (int k = 0; k < children; k++) {
    bool last = root && k == children - 1;
    unsigned rr = gy_b_recv_reduce(b, first + k, last ? gy_finish(gy_out(0)) : gy_out(0), sum);
    gy_b_after(b, rr, summed);
    summed = rr;
    sum = gy_out(0);
  }
  if (!root) {
    unsigned send = gy_b_send(b, parent, sum);
    gy_b_after(b, send, summed);
    summed = gy_b_recv(b, parent, gy_out(0)); /* overwrites what that SEND reads */
    gy_b_after(b, summed, send);
  }
  for (int k = 0; k < children; k++) {
    unsigned send = gy_b_send(b, first + k, gy_out(0));
    gy_b_after(b, send, summed);
  }
  return GYRE_OK;
}

/* A slice takes two messages per level (both children share the parent's link), up and down; the
 * others follow at the pace of the busiest rank, which moves three slices each way for each. */
static double cost(const struct gy_key *key, size_t bytes, const struct gy_cost *c) {
  double depth = gy_log2_ceil(key->nranks + 1) - 1, slice = gy_cost_slice(c, bytes);
  double arity = key->nranks > 2 ? 2 : 1, rest = (double)bytes - slice;
  double level = gy_cost_messages(c, 1) + gy_cost_move(c, arity * slice);
  return 2 * depth * level + depth * gy_cost_reduce(c, arity * slice) +
         gy_cost_move(c, (arity + 1) * rest) + gy_cost_reduce(c, arity * rest);
}

const struct gy_algo gy_all_reduce_tree = {
    .name = "tree", .coll = GY_ALL_REDUCE, .build = build, .cost_us = cost};
const struct gy_algo gy_all_reduce_weighted_tree = {
    .name = "tree", .coll = GY_ALL_REDUCE_WEIGHTED, .build = build, .cost_us = cost};

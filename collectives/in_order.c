/*
 * in_order.c - reduce to any root along a binary tree that keeps the order of ranks.
 *
 * Role:   builder for operators that are not commutative: whatever the root, lower ranks' operands
 *         stand left. A range of ranks is headed by one of them; what lies below it and what lies
 *         above it are ranges again, headed by the rank in their middle. The in-order binary tree is
 *         folklore of the field; Hoefler and Moor, "Energy, memory, and runtime tradeoffs for
 *         implementing collective communication operations", 2014, discuss it among others.
 * Thread: pure functions.
 */
#include "collectives/algorithms.h"

struct range { /* the ranks lo .. hi - 1, which give their sum to head, and head to parent */
  int lo, hi, head, parent;
};

static struct range below(struct range r) {
  return (struct range){r.lo, r.head, r.lo + (r.head - r.lo) / 2, r.head};
}

static struct range above(struct range r) {
  int lo = r.head + 1;
  return (struct range){lo, r.hi, lo + (r.hi - lo) / 2, r.head};
}

static struct range headed_by(const struct gy_key *key) {
  struct range r = {0, key->nranks, key->root, -1};
  while (r.head != key->rank) r = key->rank < r.head ? below(r) : above(r);
  return r;
}

/* Off the root there is no OUT: the sum stands in one scratch slot, whose place is free again once
 * the SEND of the slice a window ago is done. */
static gyre_status build(const struct gy_key *key, struct gy_builder *b) {
  struct range r = headed_by(key), down = below(r), up = above(r);
  bool root = r.parent < 0, has_up = up.lo < up.hi;
  struct gy_ref sum = gy_in(0), place = root ? gy_out(0) : gy_tmp(0, 0);
  unsigned summed = GY_NODEP, first = GY_NODEP;
  gy_b_layout(b, GY_SPLIT, 1);
  if (down.lo < down.hi) {
    bool last = root && !has_up;
    first = summed = gy_b_recv_reduce(b, down.head, gy_swap(last ? gy_finish(place) : place), sum);
    sum = place;
  }
  if (has_up) {
    unsigned rr = gy_b_recv_reduce(b, up.head, root ? gy_finish(place) : place, sum);
    gy_b_after(b, rr, summed);
    if (first == GY_NODEP) first = rr;
    summed = rr;
    sum = place;
  }
  if (!root) {
    unsigned send = gy_b_send(b, r.parent, sum);
    gy_b_after(b, send, summed);
    if (first != GY_NODEP) gy_b_after_window(b, first, send);
  }
  return GYRE_OK;
}

/* A slice takes a message from each side per level; the others follow at the pace of a rank in the
 * middle. */
static double cost(const struct gy_key *key, size_t bytes, const struct gy_cost *c) {
  double depth = gy_log2_ceil(key->nranks), slice = gy_cost_slice(c, bytes);
  double arity = key->nranks > 2 ? 2 : 1, rest = (double)bytes - slice;
  double level = gy_cost_messages(c, 1) + gy_cost_move(c, arity * slice);
  return depth * level + depth * gy_cost_reduce(c, arity * slice) +
         gy_cost_move(c, (arity + 1) * rest) + gy_cost_reduce(c, arity * rest);
}

const struct gy_algo gy_reduce_in_order = {
    .name = "in_order", .coll = GY_REDUCE, .build = build, .cost_us = cost, .ordered = true};

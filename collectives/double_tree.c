/*
 * double_tree.c - all-reduce and broadcast along two complementary binary trees.
 *
 * Role:   builders for many ranks and middle to large sizes: each tree carries one half of the data,
 *         and a rank that has children in one tree has none in the other, so all ranks move about
 *         as much, where in a single tree its leaves, half of all ranks, send on nothing. Sanders,
 *         Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
 *         2009.
 * Thread: pure functions.
 *
 * Rank 0 (of a broadcast: the root) stands above both trees, which span the others. A tree is one
 * of positions 1 to p in order: the left subtree of a position lies before it, the right one behind,
 * and every odd position is a leaf. In the first tree a rank's position is its number; in the second
 * one it is mirrored (p even) or moved on by one (p odd), so that even ranks get odd positions.
 *
 * Both trees may use one link. All messages have one phase, so a link carries slice after slice, and
 * of each the first tree's before the second's; a message then only waits for earlier ones in this
 * order, and nothing can wait in a circle.
 */
#include "collectives/algorithms.h"

#define TREES 2

struct place { /* of a rank in one tree; ranks are counted from the root, and -1 is none */
  int parent, child[2];
};

static int low_bit(int x) { return x & -x; }

static int high_bit(int x) {
  int bit = 1;
  while (bit <= x / 2) bit *= 2;
  return bit;
}

/* The first position of those behind `at`, as far as they are in its subtree; 0: there are none. */
static int right_of(int at, int p) {
  int size = low_bit(at) - 1;
  if (size > p - at) size = p - at;
  return size > 0 ? at + high_bit(size) : 0;
}

static int parent_of(int at, int p) {
  int bit = low_bit(at);
  bool is_left = at + bit <= p && low_bit(at + bit) == 2 * bit;
  return is_left ? at + bit : at - bit; /* 0: the top of the tree */
}

/* From a rank to its position, and back. */
static int position(int tree, int rank, int p) {
  if (tree == 0) return rank;
  return p % 2 == 0 ? p + 1 - rank : rank == 1 ? p : rank - 1;
}
static int rank_at(int tree, int position, int p) {
  if (tree == 0) return position;
  return p % 2 == 0 ? p + 1 - position : position == p ? 1 : position + 1;
}

static struct place place_of(int tree, int rank, int n) {
  int p = n - 1;
  if (rank == 0) return (struct place){-1, {rank_at(tree, high_bit(p), p), -1}};
  int at = position(tree, rank, p), up = parent_of(at, p), right = right_of(at, p);
  struct place place = {up == 0 ? 0 : rank_at(tree, up, p), {-1, -1}};
  if (at % 2 == 0) place.child[0] = rank_at(tree, at - low_bit(at) / 2, p);
  if (right != 0) place.child[1] = rank_at(tree, right, p);
  return place;
}

/* ---------------------------------------------------------------------------- all-reduce --- */

/* Up one tree and down again, as in tree.c. */
static void reduce_half(const struct gy_key *key, struct gy_builder *b, unsigned tree) {
  struct place place = place_of((int)tree, key->rank, key->nranks);
  unsigned summed = GY_NODEP;
  struct gy_ref sum = gy_in(tree), out = gy_out(tree);
  for (int k = 0; k < 2; k++) {
    if (place.child[k] < 0) continue;
    unsigned rr = gy_b_recv_reduce(b, place.child[k], key->rank == 0 ? gy_finish(out) : out, sum);
    gy_b_after(b, rr, summed);
    gy_b_phase(b, rr, 0);
    summed = rr;
    sum = out;
  }
  if (place.parent >= 0) {
    unsigned send = gy_b_send(b, place.parent, sum);
    gy_b_after(b, send, summed);
    gy_b_phase(b, send, 0);
    summed = gy_b_recv(b, place.parent, out); /* overwrites what that SEND reads */
    gy_b_after(b, summed, send);
    gy_b_phase(b, summed, 0);
  }
  for (int k = 0; k < 2; k++) {
    if (place.child[k] < 0) continue;
    unsigned send = gy_b_send(b, place.child[k], out);
    gy_b_after(b, send, summed);
    gy_b_phase(b, send, 0);
  }
}

static gyre_status all_reduce_build(const struct gy_key *key, struct gy_builder *b) {
  gy_b_layout(b, GY_SPLIT, TREES);
  for (unsigned tree = 0; tree < TREES; tree++) reduce_half(key, b, tree);
  return GYRE_OK;
}

/* Levels below the root. */
static double depth(const struct gy_key *key) { return gy_log2_ceil(key->nranks); }

/* A slice takes two messages per level, up and down, in both trees at once; the others follow at the
 * pace at which a rank moves all its bytes: of one half up and twice down, of the other up. */
static double all_reduce_cost(const struct gy_key *key, size_t bytes, const struct gy_cost *c) {
  double slice = gy_cost_slice(c, bytes / TREES), rest = (double)bytes - TREES * slice;
  double level = gy_cost_messages(c, 2) + gy_cost_move_spread(c, TREES * slice);
  return 2 * depth(key) * level + depth(key) * gy_cost_reduce(c, TREES * slice) +
         gy_cost_move_spread(c, 2 * rest) + gy_cost_reduce(c, rest);
}

const struct gy_algo gy_all_reduce_double_tree = {.name = "double_tree",
                                                  .coll = GY_ALL_REDUCE,
                                                  .build = all_reduce_build,
                                                  .cost_us = all_reduce_cost};
const struct gy_algo gy_all_reduce_weighted_double_tree = {.name = "double_tree",
                                                           .coll = GY_ALL_REDUCE_WEIGHTED,
                                                           .build = all_reduce_build,
                                                           .cost_us = all_reduce_cost};

/* ----------------------------------------------------------------------------- broadcast --- */

static void broadcast_half(const struct gy_key *key, struct gy_builder *b, unsigned tree) {
  struct place place = place_of((int)tree, gy_rooted_rank(key), key->nranks);
  unsigned arrived = GY_NODEP;
  if (place.parent >= 0) {
    arrived = gy_b_recv(b, gy_rooted_peer(key, place.parent), gy_out(tree));
    gy_b_phase(b, arrived, 0);
  }
  for (int k = 0; k < 2; k++) {
    if (place.child[k] < 0) continue;
    unsigned send = gy_b_send(b, gy_rooted_peer(key, place.child[k]),
                              place.parent < 0 ? gy_in(tree) : gy_out(tree));
    gy_b_after(b, send, arrived);
    gy_b_phase(b, send, 0);
  }
  if (place.parent < 0) gy_b_copy(b, gy_out(tree), gy_in(tree));
}

static gyre_status broadcast_build(const struct gy_key *key, struct gy_builder *b) {
  gy_b_layout(b, GY_SPLIT, TREES);
  for (unsigned tree = 0; tree < TREES; tree++) broadcast_half(key, b, tree);
  return GYRE_OK;
}

static double broadcast_cost(const struct gy_key *key, size_t bytes, const struct gy_cost *c) {
  double slice = gy_cost_slice(c, bytes / TREES), rest = (double)bytes - TREES * slice;
  return depth(key) * (gy_cost_messages(c, 2) + gy_cost_move_spread(c, TREES * slice)) +
         gy_cost_move_spread(c, rest);
}

const struct gy_algo gy_broadcast_double_tree = {
    .name = "double_tree", .coll = GY_BROADCAST, .build = broadcast_build, .cost_us = broadcast_cost};

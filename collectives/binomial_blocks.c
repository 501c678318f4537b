/*
 * binomial_blocks.c - gather and scatter along a binomial tree (users call it "tree").
 *
 * Role:   builders for small blocks: ceil(log2 n) messages deep. Thakur, Rabenseifner and Gropp,
 *         "Optimization of collective communication operations in MPICH", 2005.
 * Thread: pure functions.
 *
 * Ranks are counted from the root, so that a subtree is a range of ranks. Each block of a subtree is
 * a message of its own that goes to or comes from its final place on the root: no rank has to be
 * rotated, whatever the root. Inner ranks pass each block on through a scratch slot of its own,
 * whose place is free again once the SEND of the slice a window ago is done.
 */
#include "collectives/algorithms.h"

/* The end of the range of ranks below the k-th child of v. */
static int subtree_end(int v, int k, int n) {
  int end = v + (2 << k);
  return end < n ? end : n;
}

static unsigned slot_of(int v, int u) { return (unsigned)(u - v - 1); }

/* Own block first, then the others with ranks rising: the parent's receives go in the same order. */
static gyre_status gather_build(const struct gy_key *key, struct gy_builder *b) {
  int n = key->nranks, v = gy_rooted_rank(key), parent = gy_rooted_peer(key, gy_parent_of(v));
  gy_b_blocks(b);
  if (v > 0) gy_b_send(b, parent, gy_in(0));
  for (int k = 0; k < gy_child_count(v, n); k++) {
    int child = gy_rooted_peer(key, v + (1 << k));
    for (int u = v + (1 << k); u < subtree_end(v, k, n); u++) {
      unsigned owner = (unsigned)gy_rooted_peer(key, u);
      if (v == 0) {
        gy_b_recv(b, child, gy_out(owner));
        continue;
      }
      unsigned recv = gy_b_recv(b, child, gy_tmp(slot_of(v, u), owner));
      unsigned send = gy_b_send(b, parent, gy_tmp(slot_of(v, u), owner));
      gy_b_after(b, send, recv);
      gy_b_after_window(b, recv, send);
    }
  }
  if (v == 0) gy_b_copy(b, gy_out((unsigned)key->rank), gy_in(0));
  return GYRE_OK;
}

/* The mirror image: ranks falling, so that what has the longest way to go leaves first, and own
 * block last. */
static gyre_status scatter_build(const struct gy_key *key, struct gy_builder *b) {
  int n = key->nranks, v = gy_rooted_rank(key), parent = gy_rooted_peer(key, gy_parent_of(v));
  gy_b_blocks(b);
  for (int k = gy_child_count(v, n) - 1; k >= 0; k--) {
    int child = gy_rooted_peer(key, v + (1 << k));
    for (int u = subtree_end(v, k, n) - 1; u >= v + (1 << k); u--) {
      unsigned owner = (unsigned)gy_rooted_peer(key, u);
      if (v == 0) {
        gy_b_send(b, child, gy_in(owner));
        continue;
      }
      unsigned recv = gy_b_recv(b, parent, gy_tmp(slot_of(v, u), owner));
      unsigned send = gy_b_send(b, child, gy_tmp(slot_of(v, u), owner));
      gy_b_after(b, send, recv);
      gy_b_after_window(b, recv, send);
    }
  }
  struct gy_ref own = gy_out_as(0, (unsigned)key->rank);
  if (v > 0) gy_b_recv(b, parent, own);
  else gy_b_copy(b, own, gy_in((unsigned)key->rank));
  return GYRE_OK;
}

/* Messages of one level follow each other closely, so a level costs one, but each block has a header
 * and a completion. The root moves all blocks but its own; those that are passed on by the rank with
 * the largest subtree have been moved before. */
static double cost(const struct gy_key *key, size_t bytes, const struct gy_cost *c) {
  double others = key->nranks - 1, block = (double)bytes / key->nranks;
  int depth = gy_log2_ceil(key->nranks);
  double passed_on = depth > 0 ? (1 << (depth - 1)) - 1 : 0;
  return gy_cost_messages(c, depth) + (others - depth) * c->step_us * c->contention / 8 +
         gy_cost_move_spread(c, others * block) + gy_cost_move(c, passed_on * block);
}

const struct gy_algo gy_gather_tree = {
    .name = "tree", .coll = GY_GATHER, .build = gather_build, .cost_us = cost};
const struct gy_algo gy_scatter_tree = {
    .name = "tree", .coll = GY_SCATTER, .build = scatter_build, .cost_us = cost};

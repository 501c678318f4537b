/*
 * algorithms.h - what the builder files of collectives/ export and share.
 *
 * Role:   one declaration for each algorithm of the table, and the few sums that every cost
 *         estimate needs.
 * Thread: constants and pure functions.
 */
#ifndef GY_ALGORITHMS_H
#define GY_ALGORITHMS_H

#include "schedule.h"

extern const struct gy_algo gy_all_reduce_ring, gy_all_reduce_tree, gy_all_reduce_recursive_doubling;
extern const struct gy_algo gy_reduce_scatter_ring, gy_reduce_scatter_direct;
extern const struct gy_algo gy_all_gather_ring, gy_all_gather_direct, gy_all_gather_bruck;
extern const struct gy_algo gy_broadcast_tree, gy_broadcast_ring;
extern const struct gy_algo gy_reduce_tree, gy_reduce_ring, gy_reduce_in_order;
extern const struct gy_algo gy_barrier_dissemination;
extern const struct gy_algo gy_gather_tree, gy_gather_direct;
extern const struct gy_algo gy_scatter_tree, gy_scatter_direct;
extern const struct gy_algo gy_all_to_all_bruck, gy_all_to_all_direct;
extern const struct gy_algo gy_all_reduce_double_tree, gy_broadcast_double_tree;
extern const struct gy_algo gy_all_reduce_weighted_ring, gy_all_reduce_weighted_tree,
    gy_all_reduce_weighted_recursive_doubling, gy_all_reduce_weighted_double_tree;
extern const struct gy_algo gy_scan_chain, gy_scan_recursive_doubling;
extern const struct gy_algo gy_exclusive_scan_chain, gy_exclusive_scan_recursive_doubling;
extern const struct gy_algo gy_all_gather_v_ring, gy_all_gather_v_direct;
extern const struct gy_algo gy_reduce_scatter_v_ring, gy_reduce_scatter_v_direct;
extern const struct gy_algo gy_all_to_all_v_direct, gy_gather_v_direct, gy_scatter_v_direct;

/* The rank `steps` places after `rank` on the ring of all ranks; steps may be negative, down to
 * -nranks. */
static inline int gy_ring_rank(const struct gy_key *key, int steps) {
  return (key->rank + steps + key->nranks) % key->nranks;
}

/* Rooted programs are built for root 0: a rank's number counted from the root, and back. */
static inline int gy_rooted_rank(const struct gy_key *key) {
  return (key->rank - key->root + key->nranks) % key->nranks;
}
static inline int gy_rooted_peer(const struct gy_key *key, int rooted) {
  return (rooted + key->root) % key->nranks;
}

/* A binomial tree over ranks that are counted from the root: the children of v are v + 2^k for every
 * 2^k below v's lowest set bit (all, for the root), so the subtree of v + 2^k is the range of 2^k
 * ranks that starts there, as far as there are so many. */
static inline int gy_child_count(int v, int n) {
  int k = 0;
  while ((v & (1 << k)) == 0 && v + (1 << k) < n) k++;
  return k;
}
static inline int gy_parent_of(int v) { return v & (v - 1); }

/* Smallest k with 2^k >= n. */
static inline int gy_log2_ceil(int n) {
  int k = 0;
  while ((1 << k) < n) k++;
  return k;
}

/* --- the alpha, beta and gamma of the cost model; see select.c for the constants --- */

/* `messages` one after another, each waiting for the last. */
static inline double gy_cost_messages(const struct gy_cost *c, double messages) {
  return messages * (c->latency_us + c->step_us * c->contention);
}
/* `bytes` through one rank's link, one after another. */
static inline double gy_cost_move(const struct gy_cost *c, double bytes) {
  return bytes * c->us_per_byte * c->contention;
}
/* The same to or from ranks all over: more sockets at once, and links that others load too. */
static inline double gy_cost_move_spread(const struct gy_cost *c, double bytes) {
  return 1.25 * gy_cost_move(c, bytes);
}
static inline double gy_cost_reduce(const struct gy_cost *c, double bytes) {
  return bytes * c->reduce_us_per_byte * c->contention;
}
/* Length of the piece by which a pipeline of `bytes` advances: a slice or less. */
static inline double gy_cost_slice(const struct gy_cost *c, size_t bytes) {
  return (double)(bytes < c->slice_bytes ? bytes : c->slice_bytes);
}

#endif

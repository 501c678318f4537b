/*
 * direct.c - reduce-scatter, all-gather, gather and scatter with blocks that go straight from their
 *            source to where they belong.
 *
 * Role:   builders for small blocks and few ranks: one message deep. The reduce-scatter is the
 *         pairwise exchange of Thakur, Rabenseifner and Gropp, "Optimization of collective
 *         communication operations in MPICH", 2005, with all its steps at once; the all-gather does
 *         the same without sums.
 * Thread: pure functions.
 *
 * Sends go down the ring from this rank on, so that not everybody starts with rank 0.
 */
#include "collectives/algorithms.h"

/* Block r is summed on rank r alone: to its own part those of r - 1, r - 2, ..., 0 are put on the
 * left, then those of r + 1, ... on the right, so that the order of ranks is kept. In place, OUT is
 * block r of IN, which no SEND reads. */
static gyre_status reduce_scatter_build(const struct gy_key *key, struct gy_builder *b) {
  int n = key->nranks;
  unsigned r = (unsigned)key->rank, summed = GY_NODEP;
  gy_b_blocks(b);
  for (int d = 1; d < n; d++) {
    int to = gy_ring_rank(key, -d);
    gy_b_send(b, to, gy_in((unsigned)to));
  }
  for (int d = 1; d < n; d++) {
    int from = d <= key->rank ? key->rank - d : d;
    struct gy_ref sum = gy_out_as(0, r), dst = from < key->rank ? gy_swap(sum) : sum;
    unsigned rr =
        gy_b_recv_reduce(b, from, d == n - 1 ? gy_finish(dst) : dst, d == 1 ? gy_in(r) : sum);
    gy_b_after(b, rr, summed);
    summed = rr;
  }
  return GYRE_OK;
}

/* All messages are under way at once, but each costs this rank its step. */
static double spread_cost(const struct gy_key *key, size_t bytes, const struct gy_cost *c) {
  double others = key->nranks - 1, block = (double)bytes / key->nranks;
  return gy_cost_messages(c, 1) + (others - 1) * c->step_us * c->contention +
         gy_cost_move_spread(c, others * block);
}

static double reduce_scatter_cost(const struct gy_key *key, size_t bytes, const struct gy_cost *c) {
  double others = key->nranks - 1, block = (double)bytes / key->nranks;
  return spread_cost(key, bytes, c) + gy_cost_reduce(c, others * block);
}

const struct gy_algo gy_reduce_scatter_direct = {.name = "direct",
                                                 .coll = GY_REDUCE_SCATTER,
                                                 .build = reduce_scatter_build,
                                                 .cost_us = reduce_scatter_cost,
                                                 .ordered = true};
const struct gy_algo gy_reduce_scatter_v_direct = {.name = "direct",
                                                   .coll = GY_REDUCE_SCATTER_V,
                                                   .build = reduce_scatter_build,
                                                   .cost_us = reduce_scatter_cost,
                                                   .ordered = true};

static gyre_status all_gather_build(const struct gy_key *key, struct gy_builder *b) {
  int n = key->nranks;
  gy_b_blocks(b);
  for (int d = 1; d < n; d++) gy_b_send(b, gy_ring_rank(key, -d), gy_in(0));
  for (int d = 1; d < n; d++) {
    int from = gy_ring_rank(key, d);
    gy_b_recv(b, from, gy_out((unsigned)from));
  }
  gy_b_copy(b, gy_out((unsigned)key->rank), gy_in(0));
  return GYRE_OK;
}

const struct gy_algo gy_all_gather_direct = {
    .name = "direct", .coll = GY_ALL_GATHER, .build = all_gather_build, .cost_us = spread_cost};
const struct gy_algo gy_all_gather_v_direct = {
    .name = "direct", .coll = GY_ALL_GATHER_V, .build = all_gather_build, .cost_us = spread_cost};

/* --- to and from one root --- */

static gyre_status gather_build(const struct gy_key *key, struct gy_builder *b) {
  gy_b_blocks(b);
  if (key->rank != key->root) {
    gy_b_send(b, key->root, gy_in(0));
    return GYRE_OK;
  }
  for (int d = 1; d < key->nranks; d++) {
    int from = gy_ring_rank(key, d);
    gy_b_recv(b, from, gy_out((unsigned)from));
  }
  gy_b_copy(b, gy_out((unsigned)key->rank), gy_in(0));
  return GYRE_OK;
}

static gyre_status scatter_build(const struct gy_key *key, struct gy_builder *b) {
  struct gy_ref own = gy_out_as(0, (unsigned)key->rank);
  gy_b_blocks(b);
  if (key->rank != key->root) {
    gy_b_recv(b, key->root, own);
    return GYRE_OK;
  }
  for (int d = 1; d < key->nranks; d++) {
    int to = gy_ring_rank(key, d);
    gy_b_send(b, to, gy_in((unsigned)to));
  }
  gy_b_copy(b, own, gy_in((unsigned)key->rank));
  return GYRE_OK;
}

const struct gy_algo gy_gather_direct = {
    .name = "direct", .coll = GY_GATHER, .build = gather_build, .cost_us = spread_cost};
const struct gy_algo gy_scatter_direct = {
    .name = "direct", .coll = GY_SCATTER, .build = scatter_build, .cost_us = spread_cost};
const struct gy_algo gy_gather_v_direct = {
    .name = "direct", .coll = GY_GATHER_V, .build = gather_build, .cost_us = spread_cost};
const struct gy_algo gy_scatter_v_direct = {
    .name = "direct", .coll = GY_SCATTER_V, .build = scatter_build, .cost_us = spread_cost};

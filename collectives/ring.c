/*
 * ring.c - all-reduce, reduce-scatter and all-gather around a ring.
 *
 * Role:   builders for large messages: every rank talks to its two neighbours only, and each byte
 *         crosses each link the least number of times. Patarasuk and Yuan, "Bandwidth optimal
 *         all-reduce algorithms for clusters of workstations", 2009.
 * Thread: pure functions.
 */
#include "collectives/algorithms.h"

static unsigned ring_chunk(const struct gy_key *key, int steps) {
  return (unsigned)gy_ring_rank(key, steps);
}

/* Reduce-scatter: in step s this rank sends what it has of chunk r - s and adds its own to chunk
 * r - s - 1, so that after n - 1 steps chunk r + 1 is complete here. All-gather: complete chunks
 * go round once more. No scratch: sums stand in OUT, whose places are overwritten only after the
 * SEND that reads them is done. */
static gyre_status all_reduce_build(const struct gy_key *key, struct gy_builder *b) {
  int n = key->nranks, next = gy_ring_rank(key, 1), prev = gy_ring_rank(key, -1);
  gy_b_layout(b, GY_SPLIT, (unsigned)n);
  unsigned arrived = GY_NODEP; /* the last receive: it filled the chunk that goes on next */
  for (int s = 0; s < n - 1; s++) {
    unsigned out = ring_chunk(key, -s), in = ring_chunk(key, -s - 1);
    unsigned send = gy_b_send(b, next, s == 0 ? gy_in(out) : gy_out(out));
    gy_b_after(b, send, arrived);
    arrived = gy_b_recv_reduce(b, prev, s == n - 2 ? gy_finish(gy_out(in)) : gy_out(in), gy_in(in));
  }
  for (int s = 0; s < n - 1; s++) {
    unsigned out = ring_chunk(key, 1 - s), in = ring_chunk(key, -s);
    unsigned send = gy_b_send(b, next, gy_out(out));
    gy_b_after(b, send, arrived);
    arrived = gy_b_recv(b, prev, gy_out(in));
    gy_b_after(b, arrived, 2 * (unsigned)s); /* the SEND of step s of the reduce-scatter */
  }
  return GYRE_OK;
}

static double all_reduce_cost(const struct gy_key *key, size_t bytes, const struct gy_cost *c) {
  double n = key->nranks, chunk = (double)bytes / n;
  return gy_cost_messages(c, 2 * (n - 1)) + gy_cost_move(c, 2 * (n - 1) * chunk) +
         gy_cost_reduce(c, (n - 1) * chunk);
}

const struct gy_algo gy_all_reduce_ring = {
    .name = "ring", .coll = GY_ALL_REDUCE, .build = all_reduce_build, .cost_us = all_reduce_cost};
/* A program has fewer than 2^16 instructions. */
const struct gy_algo gy_all_reduce_weighted_ring = {.name = "ring",
                                                    .coll = GY_ALL_REDUCE_WEIGHTED,
                                                    .max_ranks = 8192,
                                                    .build = all_reduce_build,
                                                    .cost_us = all_reduce_cost};

/* As above, but block r must be complete on rank r, so the dance starts one block earlier; and
 * as IN may not be written, sums on their way stand in two scratch slots in turn. All steps
 * share one phase, so the link carries all steps of slice 0, then all of slice 1: with all of
 * step 0 first, a block longer than the window would fill every rank's slot while the sends that
 * empty it queue behind those that fill it. For the same reason it is enough that the first
 * receive of a slice waits until the last send of the slice a window ago is done. */
static gyre_status reduce_scatter_build(const struct gy_key *key, struct gy_builder *b) {
  int n = key->nranks, next = gy_ring_rank(key, 1), prev = gy_ring_rank(key, -1);
  unsigned first = GY_NODEP, arrived = GY_NODEP, send = GY_NODEP;
  gy_b_blocks(b);
  for (int s = 0; s < n - 1; s++) {
    unsigned out = ring_chunk(key, -s - 1), in = ring_chunk(key, -s - 2), slot = (unsigned)s % 2;
    unsigned emptied =
        s < 2 ? GY_NODEP : send; /* the SEND of step s - 1 read the slot that step s fills */
    send = gy_b_send(b, next, s == 0 ? gy_in(out) : gy_tmp(1 - slot, out));
    gy_b_after(b, send, arrived);
    gy_b_phase(b, send, 0);
    bool last = s == n - 2;
    arrived =
        gy_b_recv_reduce(b, prev, last ? gy_finish(gy_out_as(0, in)) : gy_tmp(slot, in), gy_in(in));
    if (!last) gy_b_after(b, arrived, emptied);
    if (s == 0) first = arrived;
    gy_b_phase(b, arrived, 0);
  }
  if (n > 2) gy_b_after_window(b, first, send);
  return GYRE_OK;
}

static double reduce_scatter_cost(const struct gy_key *key, size_t bytes, const struct gy_cost *c) {
  double n = key->nranks, block = (double)bytes / n, slices = block / (double)c->slice_bytes;
  return gy_cost_messages(c, (n - 1) * (slices < 1 ? 1 : slices)) +
         gy_cost_move(c, (n - 1) * block) + gy_cost_reduce(c, (n - 1) * block);
}

const struct gy_algo gy_reduce_scatter_ring = {.name = "ring",
                                               .coll = GY_REDUCE_SCATTER,
                                               .build = reduce_scatter_build,
                                               .cost_us = reduce_scatter_cost};

/* The same where blocks differ in length: their slices cannot take turns, so a scratch slot holds a
 * whole block, and is filled anew when the SEND that reads it is over. */
static gyre_status reduce_scatter_v_build(const struct gy_key *key, struct gy_builder *b) {
  int n = key->nranks, next = gy_ring_rank(key, 1), prev = gy_ring_rank(key, -1);
  unsigned arrived = GY_NODEP, send = GY_NODEP;
  gy_b_blocks(b);
  gy_b_tmp_whole(b);
  for (int s = 0; s < n - 1; s++) {
    unsigned out = ring_chunk(key, -s - 1), in = ring_chunk(key, -s - 2), slot = (unsigned)s % 2;
    unsigned emptied = s < 2 ? GY_NODEP : send; /* as above */
    send = gy_b_send(b, next, s == 0 ? gy_in(out) : gy_tmp(1 - slot, out));
    gy_b_after(b, send, arrived);
    bool last = s == n - 2;
    arrived =
        gy_b_recv_reduce(b, prev, last ? gy_finish(gy_out_as(0, in)) : gy_tmp(slot, in), gy_in(in));
    if (!last) gy_b_after_whole(b, arrived, emptied);
  }
  return GYRE_OK;
}

/* Estimated for equal blocks, as are all whose blocks may differ. */
static double reduce_scatter_v_cost(const struct gy_key *key, size_t bytes, const struct gy_cost *c) {
  double n = key->nranks, block = (double)bytes / n;
  return gy_cost_messages(c, n - 1) + gy_cost_move(c, (n - 1) * block) +
         gy_cost_reduce(c, (n - 1) * block);
}

const struct gy_algo gy_reduce_scatter_v_ring = {.name = "ring",
                                                 .coll = GY_REDUCE_SCATTER_V,
                                                 .build = reduce_scatter_v_build,
                                                 .cost_us = reduce_scatter_v_cost};

static gyre_status all_gather_build(const struct gy_key *key, struct gy_builder *b) {
  int n = key->nranks, next = gy_ring_rank(key, 1), prev = gy_ring_rank(key, -1);
  gy_b_blocks(b);
  unsigned arrived = GY_NODEP;
  for (int s = 0; s < n - 1; s++) {
    unsigned send = gy_b_send(b, next, s == 0 ? gy_in(0) : gy_out(ring_chunk(key, -s)));
    gy_b_after(b, send, arrived);
    arrived = gy_b_recv(b, prev, gy_out(ring_chunk(key, -s - 1)));
  }
  gy_b_copy(b, gy_out((unsigned)key->rank), gy_in(0));
  return GYRE_OK;
}

static double all_gather_cost(const struct gy_key *key, size_t bytes, const struct gy_cost *c) {
  double n = key->nranks;
  return gy_cost_messages(c, n - 1) + gy_cost_move(c, (n - 1) * (double)bytes / n);
}

const struct gy_algo gy_all_gather_ring = {
    .name = "ring", .coll = GY_ALL_GATHER, .build = all_gather_build, .cost_us = all_gather_cost};
const struct gy_algo gy_all_gather_v_ring = {
    .name = "ring", .coll = GY_ALL_GATHER_V, .build = all_gather_build, .cost_us = all_gather_cost};

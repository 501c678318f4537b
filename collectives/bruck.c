/*
 * bruck.c - all-gather in ceil(log2 n) rounds, for any number of ranks.
 *
 * Role:   builder for small blocks and many ranks. Bruck, Ho, Kipnis, Upfal and Weathersby,
 *         "Efficient algorithms for all-to-all communications in multiport message-passing
 *         systems", 1997.
 * Thread: pure functions.
 *
 * Before round k this rank has the 2^k blocks r, r + 1, ...; it gives them to r - 2^k and gets the
 * next 2^k from r + 2^k. Each block is a message of its own that lands at its final place, so the
 * rotation that ends the algorithm in the paper is not needed.
 */
#include "collectives/algorithms.h"

#include <stdlib.h>
#include "status.h"

static gyre_status build(const struct gy_key *key, struct gy_builder *b) {
  int n = key->nranks;
  unsigned *arrived =
      calloc((size_t)n, sizeof *arrived); /* by distance from this rank: the RECV of that block */
  if (arrived == NULL) return gy_fail(GYRE_ERR_NOMEM, "no memory for the blocks of %d ranks", n);
  gy_b_layout(b, GY_BLOCK, (unsigned)n);
  arrived[0] = GY_NODEP;
  for (int have = 1; have < n; have *= 2) {
    int moving = n - have < have ? n - have : have;
    for (int d = 0; d < moving; d++) {
      unsigned block = (unsigned)gy_ring_rank(key, d);
      unsigned send = gy_b_send(b, gy_ring_rank(key, -have), d == 0 ? gy_in(0) : gy_out(block));
      gy_b_after(b, send, arrived[d]);
    }
    for (int d = have; d < have + moving; d++)
      arrived[d] = gy_b_recv(b, gy_ring_rank(key, have), gy_out((unsigned)gy_ring_rank(key, d)));
  }
  gy_b_copy(b, gy_out((unsigned)key->rank), gy_in(0));
  free(arrived);
  return GYRE_OK;
}

/* Messages of one round leave together, so a round costs one; each block still has a header and
 * a completion. */
static double cost(const struct gy_key *key, size_t bytes, const struct gy_cost *c) {
  double others = key->nranks - 1, rounds = gy_log2_ceil(key->nranks);
  return gy_cost_messages(c, rounds) + (others - rounds) * c->step_us * c->contention / 8 +
         gy_cost_move_spread(c, others * (double)bytes / key->nranks);
}

const struct gy_algo gy_all_gather_bruck = {
    .name = "bruck", .coll = GY_ALL_GATHER, .build = build, .cost_us = cost};

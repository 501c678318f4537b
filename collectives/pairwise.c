/*
 * pairwise.c - all-to-all with every rank exchanging blocks with every other (users call it
 *              "direct").
 *
 * Role:   builder for large blocks: every block travels once. The pairwise exchange of Thakur,
 *         Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH",
 *         2005, with all its steps at once.
 * Thread: pure functions.
 *
 * Peers are taken in ring order from this rank on, so that not everybody starts with rank 0. In
 * place, a block may come in only where the one that goes out has left, and if both ranks of a pair
 * waited for that, neither would ever receive: so the lower rank lets it in at once, into scratch.
 */
#include "collectives/algorithms.h"

static void receive_in_place(const struct gy_key *key, struct gy_builder *b, int from, unsigned sent) {
  struct gy_ref out = gy_out((unsigned)from);
  if (key->rank > from) {
    gy_b_after(b, gy_b_recv(b, from, out), sent);
    return;
  }
  unsigned range = gy_chunk_range(key, GY_OUT, (unsigned)from);
  struct gy_ref slot = gy_tmp((unsigned)(from - key->rank - 1), range);
  unsigned recv = gy_b_recv(b, from, slot), copy = gy_b_copy(b, out, slot);
  gy_b_after(b, copy, recv);
  gy_b_after(b, copy, sent);
  gy_b_after_window(b, recv, copy);
}

static gyre_status build(const struct gy_key *key, struct gy_builder *b) {
  int n = key->nranks;
  unsigned own = (unsigned)key->rank, first_send = 0;
  gy_b_blocks(b);
  for (int d = 1; d < n; d++) {
    int to = gy_ring_rank(key, -d);
    unsigned send = gy_b_send(b, to, gy_in((unsigned)to));
    if (d == 1) first_send = send;
  }
  for (int d = 1; d < n; d++) {
    int from = gy_ring_rank(key, d);
    unsigned sent = first_send + (unsigned)(n - d - 1); /* to that rank */
    if (key->in_place) receive_in_place(key, b, from, sent);
    else gy_b_recv(b, from, gy_out((unsigned)from));
  }
  gy_b_copy(b, gy_out(own), gy_in(own));
  return GYRE_OK;
}

/* All messages are under way at once, but each costs this rank its step. */
static double cost(const struct gy_key *key, size_t bytes, const struct gy_cost *c) {
  double others = key->nranks - 1, block = (double)bytes / key->nranks;
  return gy_cost_messages(c, 1) + (others - 1) * c->step_us * c->contention +
         gy_cost_move_spread(c, others * block);
}

const struct gy_algo gy_all_to_all_direct = {
    .name = "direct", .coll = GY_ALL_TO_ALL, .build = build, .cost_us = cost};
const struct gy_algo gy_all_to_all_v_direct = {
    .name = "direct", .coll = GY_ALL_TO_ALL_V, .build = build, .cost_us = cost};

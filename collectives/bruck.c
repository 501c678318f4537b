/*
 * bruck.c - all-gather and all-to-all in ceil(log2 n) rounds, for any number of ranks.
 *
 * Role:   builders for small blocks and many ranks. Bruck, Ho, Kipnis, Upfal and Weathersby,
 *         "Efficient algorithms for all-to-all communications in multiport message-passing
 *         systems", 1997.
 * Thread: pure functions.
 *
 * Each block is a message of its own that lands at its final place, so the rotations that begin and
 * end the algorithms in the paper are not needed.
 */
#include "collectives/algorithms.h"

#include <stdlib.h>
#include "status.h"

/* Before round k this rank has the 2^k blocks r, r + 1, ...; it gives them to r - 2^k and gets the
 * next 2^k from r + 2^k. */
static gyre_status all_gather_build(const struct gy_key *key, struct gy_builder *b) {
  int n = key->nranks;
  unsigned *arrived =
      calloc((size_t)n, sizeof *arrived); /* by distance from this rank: the RECV of that block */
  if (arrived == NULL) return gy_fail(GYRE_ERR_NOMEM, "no memory for the blocks of %d ranks", n);
  gy_b_blocks(b);
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
static double all_gather_cost(const struct gy_key *key, size_t bytes, const struct gy_cost *c) {
  double others = key->nranks - 1, rounds = gy_log2_ceil(key->nranks);
  return gy_cost_messages(c, rounds) + (others - rounds) * c->step_us * c->contention / 8 +
         gy_cost_move_spread(c, others * (double)bytes / key->nranks);
}

const struct gy_algo gy_all_gather_bruck = {
    .name = "bruck", .coll = GY_ALL_GATHER, .build = all_gather_build, .cost_us = all_gather_cost};

/* A block that has d ranks to go takes a hop of 2^k in round k for each bit of d; so it has the
 * number d on each rank that it passes, and ends on this one coming from r - d. */
struct journey {
  unsigned arrived, sent, first_sent; /* the last RECV and SEND of this number, and the first SEND */
};

static int count_bits(int x) {
  int n = 0;
  for (; x != 0; x &= x - 1) n++;
  return n;
}

/* Where a block stands on this rank with so many hops still to go. Between hops it alternates
 * between two places, as a RECV must not wait for the SEND of its own round: all ranks would wait
 * for each other. It ends in OUT; in place, OUT may still have to be sent when it comes, so then in
 * scratch. */
static struct gy_ref place(const struct gy_key *key, int d, int hops_left) {
  unsigned number = (unsigned)d - 1, from = (unsigned)gy_ring_rank(key, -d);
  if (hops_left % 2 != 0) return gy_tmp(number, from);
  return key->in_place ? gy_tmp((unsigned)key->nranks - 1 + number, from) : gy_out(from);
}

static void send_block(const struct gy_key *key, struct gy_builder *b, struct journey *j, int d,
                       int hop) {
  bool first = (d & (hop - 1)) == 0;
  struct gy_ref from =
      first ? gy_in((unsigned)gy_ring_rank(key, d)) : place(key, d, count_bits(d & ~(hop - 1)));
  j->sent = gy_b_send(b, gy_ring_rank(key, hop), from);
  if (first) j->first_sent = j->sent;
  else gy_b_after(b, j->sent, j->arrived);
}

static void receive_block(const struct gy_key *key, struct gy_builder *b, struct journey *j, int d,
                          int hop, unsigned sent_before) {
  int hops_left = count_bits(d & ~(2 * hop - 1));
  j->arrived = gy_b_recv(b, gy_ring_rank(key, -hop), place(key, d, hops_left));
  if (count_bits(d & (hop - 1)) >= 2)
    gy_b_after(b, j->arrived, sent_before); /* it left this place */
}

static void copy_to_out(const struct gy_key *key, struct gy_builder *b, const struct journey *j) {
  for (int d = 1; d < key->nranks; d++) {
    unsigned copy = gy_b_copy(b, gy_out((unsigned)gy_ring_rank(key, -d)), place(key, d, 0));
    gy_b_after(b, copy, j[d].arrived);
    gy_b_after(b, copy, j[key->nranks - d].first_sent); /* of what stands in that place of IN */
  }
}

static gyre_status all_to_all_build(const struct gy_key *key, struct gy_builder *b) {
  int n = key->nranks;
  unsigned own = (unsigned)key->rank;
  struct journey *j = calloc((size_t)n, sizeof *j);
  unsigned *sent_before = calloc((size_t)n, sizeof *sent_before);
  gyre_status status = GYRE_OK;
  if (j == NULL || sent_before == NULL)
    status = gy_fail(GYRE_ERR_NOMEM, "no memory for the blocks of %d ranks", n);
  if (status != GYRE_OK) goto free_journeys;
  gy_b_blocks(b);
  gy_b_tmp_whole(b);
  for (int hop = 1; hop < n; hop *= 2) {
    for (int d = hop; d < n; d++) {
      if ((d & hop) == 0) continue;
      sent_before[d] = j[d].sent;
      send_block(key, b, &j[d], d, hop);
    }
    for (int d = hop; d < n; d++)
      if ((d & hop) != 0) receive_block(key, b, &j[d], d, hop, sent_before[d]);
  }
  if (key->in_place) copy_to_out(key, b, j);
  gy_b_copy(b, gy_out(own), gy_in(own));
free_journeys:
  free(sent_before);
  free(j);
  return status;
}

/* A block moves once for each bit of its number. */
static double all_to_all_cost(const struct gy_key *key, size_t bytes, const struct gy_cost *c) {
  double rounds = gy_log2_ceil(key->nranks), moves = 0;
  for (int d = 1; d < key->nranks; d++) moves += count_bits(d);
  return gy_cost_messages(c, rounds) + (moves - rounds) * c->step_us * c->contention / 8 +
         gy_cost_move_spread(c, moves * (double)bytes / key->nranks);
}

const struct gy_algo gy_all_to_all_bruck = {.name = "bruck",
                                            .coll = GY_ALL_TO_ALL,
                                            .max_ranks = 4096, /* instructions have 16-bit numbers */
                                            .build = all_to_all_build,
                                            .cost_us = all_to_all_cost};

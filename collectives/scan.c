/*
 * scan.c - inclusive and exclusive prefix reductions over the ranks.
 *
 * Role:   builders: "chain" for large messages, one rank after the other, slice by slice;
 *         "recursive_doubling" for small ones, ceil(log2 n) messages deep. Hillis and Steele, "Data
 *         parallel algorithms", 1986; Sanders and Traeff, "Parallel prefix (scan) algorithms for
 *         MPI", 2006, compare the two.
 * Thread: pure functions.
 *
 * Every partial result covers a contiguous range of ranks, and what comes from lower ranks is the
 * left operand: right for operators that do not commute. In an exclusive scan rank 0 has nothing to
 * combine and gets the operator's identity.
 */
#include "collectives/algorithms.h"

/* --------------------------------------------------------------------------------- chain --- */

/* OUT = what the lower ranks have, combined with IN; that goes on to the next rank. */
static gyre_status chain_build(const struct gy_key *key, struct gy_builder *b) {
  bool first = key->rank == 0, last = key->rank == key->nranks - 1;
  gy_b_layout(b, GY_SPLIT, 1);
  unsigned summed = GY_NODEP;
  if (first) gy_b_copy(b, gy_out(0), gy_in(0));
  else summed = gy_b_recv_reduce(b, key->rank - 1, gy_swap(gy_out(0)), gy_in(0));
  if (last) return GYRE_OK;
  unsigned send = gy_b_send(b, key->rank + 1, first ? gy_in(0) : gy_out(0));
  gy_b_after(b, send, summed);
  return GYRE_OK;
}

static double chain_cost(const struct gy_key *key, size_t bytes, const struct gy_cost *c) {
  double hops = key->nranks - 1, slice = gy_cost_slice(c, bytes);
  double way = hops * slice + (double)bytes - slice;
  return gy_cost_messages(c, hops) + gy_cost_move(c, way) + gy_cost_reduce(c, way);
}

const struct gy_algo gy_scan_chain = {
    .name = "chain", .coll = GY_SCAN, .build = chain_build, .cost_us = chain_cost, .ordered = true};

/* What comes in is this rank's result as it is; what goes on is combined in a scratch slot, whose
 * place is free again once the SEND of the slice a window ago is done. In place, IN is saved there
 * before it is overwritten. */
static void exclusive_chain_middle(const struct gy_key *key, struct gy_builder *b) {
  unsigned save = gy_b_copy(b, gy_tmp(0, 0), gy_in(0));
  unsigned recv = gy_b_recv(b, key->rank - 1, gy_out(0));
  unsigned sum = gy_b_reduce(b, gy_swap(gy_tmp(0, 0)), gy_out(0));
  unsigned send = gy_b_send(b, key->rank + 1, gy_tmp(0, 0));
  gy_b_after(b, key->in_place ? recv : sum, save);
  gy_b_after(b, sum, recv);
  gy_b_after(b, send, sum);
  gy_b_after_window(b, save, send);
}

static gyre_status exclusive_chain_build(const struct gy_key *key, struct gy_builder *b) {
  gy_b_layout(b, GY_SPLIT, 1);
  if (key->rank == 0) {
    unsigned send = gy_b_send(b, 1, gy_in(0)), none = gy_b_identity(b, gy_out(0));
    if (key->in_place) gy_b_after(b, none, send);
  } else if (key->rank < key->nranks - 1) {
    exclusive_chain_middle(key, b);
  } else {
    gy_b_recv(b, key->rank - 1, gy_out(0));
  }
  return GYRE_OK;
}

/* The copy that saves IN costs about as much as the reduction. */
static double exclusive_chain_cost(const struct gy_key *key, size_t bytes, const struct gy_cost *c) {
  double slice = gy_cost_slice(c, bytes), way = (key->nranks - 1) * slice + (double)bytes - slice;
  return chain_cost(key, bytes, c) + gy_cost_reduce(c, way);
}

const struct gy_algo gy_exclusive_scan_chain = {.name = "chain",
                                                .coll = GY_EXCLUSIVE_SCAN,
                                                .build = exclusive_chain_build,
                                                .cost_us = exclusive_chain_cost,
                                                .ordered = true};

/* -------------------------------------------------------------------- recursive doubling --- */

/* The partial result of this rank on its way: where it stands, which instruction made it, and the
 * SEND that reads the one before it, if there is such. A RECV_REDUCE must not write what the SEND of
 * the same step reads, nor wait for that SEND, so partial results alternate between OUT and
 * scratch. Out of place they end in OUT; in place the first must not overwrite IN and goes to
 * scratch, and the last one may need a copy. */
struct partial {
  struct gy_ref at;
  unsigned made, sent;
  int received, receives; /* so many messages have come, of so many */
};

static struct gy_ref next_place(const struct gy_key *key, const struct partial *p) {
  bool tmp = key->in_place ? p->received % 2 == 0 : (p->receives - 1 - p->received) % 2 != 0;
  return tmp ? gy_tmp(0, 0) : gy_out(0);
}

/* To the rank `distance` above, from the one `distance` below, as far as there are such ranks among
 * those from `lowest` on. `plain`: what comes replaces the partial result. */
static void exchange(const struct gy_key *key, struct gy_builder *b, struct partial *p,
                     int distance, int lowest, bool plain) {
  struct gy_ref from = p->at;
  unsigned made = p->made, read_before = p->sent, send;
  bool receive = key->rank - distance >= lowest;
  if (receive) {
    struct gy_ref place = next_place(key, p);
    int peer = key->rank - distance;
    p->made = plain ? gy_b_recv(b, peer, place) : gy_b_recv_reduce(b, peer, gy_swap(place), from);
    gy_b_after(b, p->made, made);
    gy_b_after(b, p->made, read_before);
    p->at = place;
    p->received++;
  }
  if (key->rank + distance < key->nranks) {
    send = gy_b_send(b, key->rank + distance, from);
    gy_b_after(b, send, made);
  } else {
    send = GY_NODEP;
  }
  if (receive) p->sent = send;
}

/* Distances 1, 2, 4, ... among the ranks from `lowest` on. */
static void double_up(const struct gy_key *key, struct gy_builder *b, struct partial *p, int lowest) {
  for (int distance = 1; distance < key->nranks - lowest; distance *= 2)
    exchange(key, b, p, distance, lowest, false);
  if (p->at.buf == GY_OUT) return;
  unsigned copy = gy_b_copy(b, gy_out(0), p->at);
  if (p->received == 0) return;
  gy_b_after(b, copy, p->made);
  gy_b_after(b, copy, p->sent);
}

/* Messages that rank `rank` receives in double_up. */
static int receives(int rank, int lowest) { return gy_log2_ceil(rank - lowest + 1); }

static gyre_status doubling_build(const struct gy_key *key, struct gy_builder *b) {
  struct partial p = {gy_in(0), GY_NODEP, GY_NODEP, 0, receives(key->rank, 0)};
  gy_b_layout(b, GY_SPLIT, 1);
  gy_b_tmp_whole(b);
  double_up(key, b, &p, 0);
  return GYRE_OK;
}

static double doubling_cost(const struct gy_key *key, size_t bytes, const struct gy_cost *c) {
  double steps = gy_log2_ceil(key->nranks);
  return gy_cost_messages(c, steps) + gy_cost_move_spread(c, steps * (double)bytes) +
         gy_cost_reduce(c, steps * (double)bytes);
}

const struct gy_algo gy_scan_recursive_doubling = {.name = "recursive_doubling",
                                                   .coll = GY_SCAN,
                                                   .build = doubling_build,
                                                   .cost_us = doubling_cost,
                                                   .ordered = true};

/* Every rank passes its input to the next; what came is what the ranks from 1 on scan. */
static gyre_status exclusive_doubling_build(const struct gy_key *key, struct gy_builder *b) {
  struct partial p = {gy_in(0), GY_NODEP, GY_NODEP, 0, receives(key->rank, 1) + 1};
  gy_b_layout(b, GY_SPLIT, 1);
  gy_b_tmp_whole(b);
  if (key->rank > 0) {
    exchange(key, b, &p, 1, 0, true);
    double_up(key, b, &p, 1);
    return GYRE_OK;
  }
  unsigned send = gy_b_send(b, 1, gy_in(0)), none = gy_b_identity(b, gy_out(0));
  if (key->in_place) gy_b_after(b, none, send);
  return GYRE_OK;
}

static double exclusive_doubling_cost(const struct gy_key *key, size_t bytes,
                                      const struct gy_cost *c) {
  double sums = gy_log2_ceil(key->nranks - 1), steps = sums + 1;
  return gy_cost_messages(c, steps) + gy_cost_move_spread(c, steps * (double)bytes) +
         gy_cost_reduce(c, sums * (double)bytes);
}

const struct gy_algo gy_exclusive_scan_recursive_doubling = {.name = "recursive_doubling",
                                                             .coll = GY_EXCLUSIVE_SCAN,
                                                             .build = exclusive_doubling_build,
                                                             .cost_us = exclusive_doubling_cost,
                                                             .ordered = true};

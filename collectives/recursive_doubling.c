/*
 * recursive_doubling.c - all-reduce by exchanging with partners at doubling distances.
 *
 * Role:   builder for small messages: ceil(log2 n) exchanges of the whole vector. Thakur,
 *         Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH",
 *         2005.
 * Thread: pure functions.
 *
 * Ranks that exceed the largest power of two, p, are folded: of the first 2 (n - p) ranks each even
 * one gives its vector to its odd neighbour, sits out, and gets the result. Every sum covers a
 * contiguous range of ranks with the lower ranks' operand left, so all ranks compute the same bits.
 */
#include "collectives/algorithms.h"

struct fold {
  int surplus; /* n - p: so many pairs fold */
  int steps;   /* log2 p */
  bool folded; /* this rank is in one of these pairs */
};

static struct fold fold_of(const struct gy_key *key) {
  struct fold f = {.steps = 0};
  while (2 << f.steps <= key->nranks) f.steps++;
  f.surplus = key->nranks - (1 << f.steps);
  f.folded = key->rank < 2 * f.surplus;
  return f;
}

/* Active ranks are numbered 0..p-1 in rank order: the odd ones of the folded pairs, then the
 * rest. */
static int active_number(const struct fold *f, int rank) {
  return f->folded ? rank / 2 : rank - f->surplus;
}
static int active_rank(const struct fold *f, int number) {
  return number < f->surplus ? 2 * number + 1 : number + f->surplus;
}

static void build_passive(const struct gy_key *key, struct gy_builder *b) {
  unsigned send = gy_b_send(b, key->rank + 1, gy_in(0));
  unsigned recv = gy_b_recv(b, key->rank + 1, gy_out(0));
  gy_b_after(b, recv, send);
}

/* Where the sum of exchange `step` stands. A RECV_REDUCE must not write what the SEND of the
 * same step reads: waiting for that SEND would be a deadlock on links without buffering. So sums
 * alternate between OUT and scratch, ending in OUT; but where the first SEND reads OUT itself
 * (in place, no fold), the first sum must go to scratch. */
static struct gy_ref place(const struct fold *f, int step, bool starts_in_tmp) {
  bool tmp = starts_in_tmp ? step % 2 == 0 : (f->steps - 1 - step) % 2 != 0;
  return tmp ? gy_tmp(0, 0) : gy_out(0);
}

static gyre_status build(const struct gy_key *key, struct gy_builder *b) {
  struct fold f = fold_of(key);
  gy_b_layout(b, GY_SPLIT, 1);
  gy_b_tmp_whole(b);
  if (f.folded && key->rank % 2 == 0) {
    build_passive(key, b);
    return GYRE_OK;
  }
  bool starts_in_tmp = key->in_place && !f.folded;
  struct gy_ref sum = gy_in(0);
  unsigned summed = GY_NODEP, sent = GY_NODEP;
  if (f.folded) {
    struct gy_ref dst = place(&f, -1, false);
    summed = gy_b_recv_reduce(b, key->rank - 1, gy_swap(dst), sum);
    sum = dst;
  }
  for (int step = 0; step < f.steps; step++) {
    int mine = active_number(&f, key->rank), theirs = mine ^ (1 << step),
        peer = active_rank(&f, theirs);
    unsigned send = gy_b_send(b, peer, sum);
    gy_b_after(b, send, summed);
    struct gy_ref dst = place(&f, step, starts_in_tmp), marked = theirs < mine ? gy_swap(dst) : dst;
    unsigned rr = gy_b_recv_reduce(b, peer, step == f.steps - 1 ? gy_finish(marked) : marked, sum);
    gy_b_after(b, rr, summed);
    gy_b_after(b, rr, sent); /* it reads the place that is written here */
    summed = rr;
    sent = send;
    sum = dst;
  }
  if (sum.buf == GY_TMP) {
    unsigned copy = gy_b_copy(b, gy_out(0), sum);
    gy_b_after(b, copy, summed);
    gy_b_after(b, copy, sent);
    summed = copy;
  }
  if (f.folded) {
    unsigned send = gy_b_send(b, key->rank - 1, gy_out(0));
    gy_b_after(b, send, summed);
  }
  return GYRE_OK;
}

static double cost(const struct gy_key *key, size_t bytes, const struct gy_cost *c) {
  struct fold f = fold_of(key);
  double extra = f.surplus > 0 ? 1 : 0, sums = f.steps + extra, hops = f.steps + 2 * extra;
  return gy_cost_messages(c, hops) + gy_cost_move(c, hops * (double)bytes) +
         gy_cost_reduce(c, sums * (double)bytes);
}

const struct gy_algo gy_all_reduce_recursive_doubling = {.name = "recursive_doubling",
                                                         .coll = GY_ALL_REDUCE,
                                                         .build = build,
                                                         .cost_us = cost,
                                                         .ordered = true};
const struct gy_algo gy_all_reduce_weighted_recursive_doubling = {.name = "recursive_doubling",
                                                                  .coll = GY_ALL_REDUCE_WEIGHTED,
                                                                  .build = build,
                                                                  .cost_us = cost,
                                                                  .ordered = true};

/* checked.c - see checked.h. Elements are int64: sums are exact, in whatever order. */
#include "checked.h"

#include <stdio.h>
#include <stdlib.h>

enum what {
  ALL_REDUCE_SUM,
  ALL_REDUCE_MAX,
  BROADCAST,
  REDUCE,
  REDUCE_SCATTER,
  ALL_GATHER,
  ALL_TO_ALL,
  SCAN,
  GATHER,
  SCATTER,
  NEIGHBOURS,
  WHATS
};

static const char *const names[] = {"all_reduce(sum)", "all_reduce(max)", "broadcast",  "reduce",
                                    "reduce_scatter",  "all_gather",      "all_to_all", "scan",
                                    "gather",          "scatter",         "send/recv"};

struct round { /* on one rank */
  gyre_comm *comm;
  enum what what;
  int64_t number;
  size_t count;
  int me, n, root;
  int64_t *in, *out;
};

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a * UINT64_C(0x9e3779b97f4a7c15) + b;
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return x ^ x >> 31;
}

/* What rank `rank` contributes at `i`, and the sum of the contributions of ranks 0 to n - 1. */
static int64_t contribution(const struct round *r, int rank, size_t i) {
  return (int64_t)(rank + 1) * (int64_t)(i % 97 + 1) + r->number;
}

static int64_t sum_of_first(const struct round *r, int n, size_t i) {
  return (int64_t)n * (n + 1) / 2 * (int64_t)(i % 97 + 1) + n * r->number;
}

static int64_t expected(const struct round *r, size_t i) {
  size_t block = r->count ? i / r->count : 0, within = i - block * r->count;
  size_t mine = (size_t)r->me * r->count;
  switch (r->what) {
    case ALL_REDUCE_SUM:
    case REDUCE: return sum_of_first(r, r->n, i);
    case ALL_REDUCE_MAX: return contribution(r, r->n - 1, i);
    case BROADCAST: return contribution(r, r->root, i);
    case REDUCE_SCATTER: return sum_of_first(r, r->n, mine + i);
    case ALL_GATHER:
    case GATHER: return contribution(r, (int)block, within);
    case ALL_TO_ALL: return contribution(r, (int)block, mine + within);
    case SCAN: return sum_of_first(r, r->me + 1, i);
    case SCATTER: return contribution(r, r->root, mine + i);
    default: return contribution(r, (r->me + r->n - 1) % r->n, i);
  }
}

static size_t elements_out(const struct round *r) {
  if (r->what == ALL_GATHER || r->what == ALL_TO_ALL) return r->count * (size_t)r->n;
  if (r->what == GATHER) return r->me == r->root ? r->count * (size_t)r->n : 0;
  return r->what == REDUCE && r->me != r->root ? 0 : r->count;
}

static gyre_status to_neighbours(const struct round *r) {
  gyre_request *req[2] = {NULL, NULL};
  gyre_status st[2];
  st[0] = gyre_send_async(r->comm, r->in, r->count, GYRE_I64, (r->me + 1) % r->n, &req[0]);
  st[1] = gyre_recv_async(r->comm, r->out, r->count, GYRE_I64, (r->me + r->n - 1) % r->n, &req[1]);
  for (int i = 0; i < 2; i++)
    if (!st[i]) st[i] = gyre_wait(req[i], -1);
  return st[0] ? st[0] : st[1];
}

static gyre_status run(const struct round *r) {
  gyre_comm *c = r->comm;
  const int64_t *in = r->in;
  int64_t *out = r->out;
  size_t n = r->count;
  switch (r->what) {
    case ALL_REDUCE_SUM: return gyre_all_reduce(c, in, out, n, GYRE_I64, GYRE_SUM);
    case ALL_REDUCE_MAX: return gyre_all_reduce(c, in, out, n, GYRE_I64, GYRE_MAX);
    case BROADCAST: return gyre_broadcast(c, in, out, n, GYRE_I64, r->root);
    case REDUCE: return gyre_reduce(c, in, out, n, GYRE_I64, GYRE_SUM, r->root);
    case REDUCE_SCATTER: return gyre_reduce_scatter(c, in, out, n, GYRE_I64, GYRE_SUM);
    case ALL_GATHER: return gyre_all_gather(c, in, out, n, GYRE_I64);
    case ALL_TO_ALL: return gyre_all_to_all(c, in, out, n, GYRE_I64);
    case SCAN: return gyre_scan(c, in, out, n, GYRE_I64, GYRE_SUM);
    case GATHER: return gyre_gather(c, in, out, n, GYRE_I64, r->root);
    case SCATTER: return gyre_scatter(c, in, out, n, GYRE_I64, r->root);
    default: return to_neighbours(r);
  }
}

static void check(const struct round *r) {
  for (size_t i = 0; i < elements_out(r); i++) {
    if (r->out[i] == expected(r, i)) continue;
    fprintf(stderr,
            "rank %d of %d: round %lld, %s of %zu elements, root %d, is wrong: element %zu is %lld "
            "and not %lld\n",
            r->me, r->n, (long long)r->number, names[r->what], r->count, r->root, i,
            (long long)r->out[i], (long long)expected(r, i));
    _Exit(WRONG_RESULT);
  }
}

gyre_status checked_round(gyre_comm *comm, unsigned seed, unsigned round, size_t max_count) {
  static const size_t odd[] = {0, 1, 7, 61, 1009};
  uint64_t drawn = mix(seed, round);
  int n = gyre_comm_size(comm);
  struct round r = {.comm = comm,
                    .what = (enum what)(drawn % WHATS),
                    .number = round,
                    .me = gyre_comm_rank(comm),
                    .n = n,
                    .root = (int)((drawn >> 8) % (unsigned)n)};
  r.count = drawn >> 16 & 1 ? odd[(drawn >> 17) % 5] : (size_t)(drawn >> 20) % (max_count + 1);
  size_t all = r.count * (size_t)n + 1;
  r.in = malloc(all * sizeof *r.in);
  r.out = malloc(all * sizeof *r.out);
  if (!r.in || !r.out) _Exit(8);
  for (size_t i = 0; i < all; i++) {
    r.in[i] = contribution(&r, r.me, i);
    r.out[i] = -1;
  }
  gyre_status st = run(&r);
  if (!st) check(&r);
  free(r.in);
  free(r.out);
  return st;
}

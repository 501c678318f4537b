/*
 * test_large_long.c - every collective and algorithm with more than 2^31 elements. What is read is
 * untouched zero pages but for some marked elements on both sides of 2^31 and at the ends; a count,
 * length or offset that is cut to 32 bits leaves them elsewhere. Needs 12 GiB of memory. Uneven
 * blocks are in test_exchange_long.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#include "ranks.h"
#include "reduce.h"
#include "schedule.h"

#define COUNT (((size_t)1 << 31) + 3000017)
#define ROOT 1

static const size_t marks[] = {0, 4097, ((size_t)1 << 31) - 1, (size_t)1 << 31, COUNT - 1};
#define MARKS (sizeof marks / sizeof *marks)

struct large {
  enum gy_coll coll;
  size_t in_blocks, out_blocks; /* of COUNT elements; 0: this rank has none */
  signed char *in, *out;
};

static signed char *sparse(size_t bytes) {
  void *at =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return NULL;
  madvise(at, bytes, MADV_HUGEPAGE); /* a thousandth of the page faults, where they are offered */
  return at;
}

/* What `rank` has at a mark of one of its blocks: so small that every sum is exact in 8 bits, floats too. */
static int value(int rank, size_t block, size_t mark) {
  return 1 + rank * 3 + (int)block * 4 + (int)mark;
}

static int expected(const struct rank_env *env, enum gy_coll coll, size_t block, size_t mark) {
  int rank = env->rank, sum = 0;
  size_t own = (size_t)rank, reduced = 0;
  int last = env->nranks;
  switch (coll) {
    case GY_ALL_GATHER:
    case GY_ALL_GATHER_V:
    case GY_GATHER:
    case GY_GATHER_V: return value((int)block, 0, mark);
    case GY_ALL_TO_ALL:
    case GY_ALL_TO_ALL_V: return value((int)block, own, mark);
    case GY_SCATTER:
    case GY_SCATTER_V: return value(ROOT, own, mark);
    case GY_BROADCAST: return value(ROOT, 0, mark);
    case GY_SCAN: last = rank + 1; break;
    case GY_EXCLUSIVE_SCAN: last = rank; break;
    case GY_REDUCE_SCATTER:
    case GY_REDUCE_SCATTER_V: reduced = own; break;
    default: break;
  }
  for (int r = 0; r < last; r++) sum += value(r, reduced, mark);
  return sum;
}

/* As an element: weights need a floating-point type. */
static signed char element(enum gy_coll coll, int v) {
  return (signed char)(coll == GY_ALL_REDUCE_WEIGHTED ? gy_f32_to_e4m3((float)v) : v);
}

static gyre_status call(const struct rank_env *env, const struct large *l) {
  static const size_t counts[] = {COUNT, COUNT}, displs[] = {0, COUNT};
  gyre_comm *c = env->comm;
  double total;
  switch (l->coll) {
    case GY_ALL_REDUCE: return gyre_all_reduce(c, l->in, l->out, COUNT, GYRE_I8, GYRE_SUM);
    case GY_REDUCE_SCATTER: return gyre_reduce_scatter(c, l->in, l->out, COUNT, GYRE_I8, GYRE_SUM);
    case GY_ALL_GATHER: return gyre_all_gather(c, l->in, l->out, COUNT, GYRE_I8);
    case GY_BROADCAST: return gyre_broadcast(c, l->in, l->out, COUNT, GYRE_I8, ROOT);
    case GY_REDUCE: return gyre_reduce(c, l->in, l->out, COUNT, GYRE_I8, GYRE_SUM, ROOT);
    case GY_GATHER: return gyre_gather(c, l->in, l->out, COUNT, GYRE_I8, ROOT);
    case GY_SCATTER: return gyre_scatter(c, l->in, l->out, COUNT, GYRE_I8, ROOT);
    case GY_ALL_TO_ALL: return gyre_all_to_all(c, l->in, l->out, COUNT, GYRE_I8);
    case GY_SCAN: return gyre_scan(c, l->in, l->out, COUNT, GYRE_I8, GYRE_SUM);
    case GY_EXCLUSIVE_SCAN: return gyre_exclusive_scan(c, l->in, l->out, COUNT, GYRE_I8, GYRE_SUM);
    case GY_ALL_GATHER_V: return gyre_all_gather_v(c, l->in, l->out, counts, displs, GYRE_I8);
    case GY_REDUCE_SCATTER_V:
      return gyre_reduce_scatter_v(c, l->in, l->out, counts, displs, GYRE_I8, GYRE_SUM);
    case GY_ALL_TO_ALL_V:
      return gyre_all_to_all_v(c, l->in, counts, displs, l->out, counts, displs, GYRE_I8);
    case GY_GATHER_V: return gyre_gather_v(c, l->in, COUNT, l->out, counts, displs, GYRE_I8, ROOT);
    case GY_SCATTER_V:
      return gyre_scatter_v(c, l->in, counts, displs, l->out, COUNT, GYRE_I8, ROOT);
    case GY_ALL_REDUCE_WEIGHTED:
      return gyre_all_reduce_weighted(c, l->in, l->out, COUNT, GYRE_F8_E4M3, GYRE_SUM, 1, &total);
    default: return GYRE_ERR_UNSUPPORTED;
  }
}

/* The marks, and that nothing has slipped to their sides. */
static int check(const struct rank_env *env, const struct large *l) {
  for (size_t b = 0; b < l->out_blocks; b++) {
    const signed char *block = l->out + b * COUNT;
    for (size_t m = 0; m < MARKS; m++) {
      int want = element(l->coll, expected(env, l->coll, b, m));
      if (block[marks[m]] != want)
        return RANK_FAIL(env, "%s: block %zu, element %zu is %d, not %d", gy_coll_name(l->coll), b,
                         marks[m], block[marks[m]], want);
    }
    if (block[1] || block[COUNT - 2] || block[((size_t)1 << 31) + 1] || block[3000016])
      return RANK_FAIL(env, "%s: block %zu has more than it should", gy_coll_name(l->coll), b);
  }
  return 0;
}

static int run(const struct rank_env *env, enum gy_coll coll) {
  bool root = !gy_coll_traits(coll)->rooted || env->rank == ROOT;
  unsigned layout = gy_coll_traits(coll)->layout;
  size_t n = layout == GY_BLOCK || layout == GY_VARY ? (size_t)env->nranks : 1;
  struct large l = {.coll = coll};
  l.in_blocks = gy_coll_share(coll, GY_IN, root) == GY_ALL ? n : 1;
  l.out_blocks = gy_coll_share(coll, GY_OUT, root) == GY_ALL ? n : 1;
  if (gy_coll_share(coll, GY_OUT, root) == GY_NOTHING) l.out_blocks = 0;
  l.in = sparse(l.in_blocks * COUNT);
  l.out = sparse((l.out_blocks + 1) * COUNT);
  if (!l.in || !l.out) return RANK_FAIL(env, "no address space");
  for (size_t b = 0; b < l.in_blocks; b++)
    for (size_t m = 0; m < MARKS; m++)
      l.in[b * COUNT + marks[m]] = element(coll, value(env->rank, b, m));
  int failed = call(env, &l) ? RANK_FAIL(env, "%s: %s", gy_coll_name(coll), gyre_last_error())
                             : check(env, &l);
  munmap(l.in, l.in_blocks * COUNT);
  munmap(l.out, (l.out_blocks + 1) * COUNT);
  return failed;
}

static int every_algorithm(struct rank_env *env) {
  size_t n_algo;
  const struct gy_algo *const *algos = gy_algorithms(&n_algo);
  struct rank_env own = *env;
  int failed = 0;
  for (size_t a = 0; a < n_algo && !failed; a++) {
    enum gy_coll coll = (enum gy_coll)algos[a]->coll;
    char text[64];
    gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
    if (coll == GY_BARRIER) continue;
    snprintf(text, sizeof text, "%s=%s", gy_coll_name(coll), algos[a]->name);
    config.algo = text;
    config.rendezvous = env->rendezvous;
    if (gyre_comm_create(env->ctx, env->rank, env->nranks, &config, &own.comm))
      return RANK_FAIL(env, "%s: %s", text, gyre_last_error());
    failed = run(&own, coll);
    if (env->rank == 0) fprintf(stderr, "%s: %s\n", text, failed ? "FAILED" : "ok");
    gyre_comm_destroy(own.comm);
  }
  return failed;
}

static int message(struct rank_env *env) {
  signed char *buffer = sparse(COUNT);
  gyre_status st;
  if (!buffer) return RANK_FAIL(env, "no address space");
  if (env->rank == 0) {
    for (size_t m = 0; m < MARKS; m++) buffer[marks[m]] = (signed char)value(0, 0, m);
    st = gyre_send(env->comm, buffer, COUNT, GYRE_I8, 1);
  } else {
    st = gyre_recv(env->comm, buffer, COUNT, GYRE_I8, 0);
  }
  if (st) return RANK_FAIL(env, "%s", gyre_last_error());
  for (size_t m = 0; m < MARKS; m++)
    if (buffer[marks[m]] != value(0, 0, m)) return RANK_FAIL(env, "element %zu is wrong", marks[m]);
  munmap(buffer, COUNT);
  return 0;
}

static const struct ranks_options patient = {.timeout_s = 1500};

static void collectives_take_more_than_2_to_the_31(void **state) {
  (void)state;
  assert_int_equal(ranks_run(2, every_algorithm, &patient), 0);
}

static void messages_take_more_than_2_to_the_31(void **state) {
  (void)state;
  assert_int_equal(ranks_run(2, message, &patient), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(collectives_take_more_than_2_to_the_31),
      cmocka_unit_test(messages_take_more_than_2_to_the_31),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

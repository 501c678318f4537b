/*
 * test_verify.c - the verifier passes every algorithm, and says what is wrong with each kind of
 * broken program.
 *
 * A broken program is made from a right one by the drafts of mutant.h, on one rank or on all.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "mutant.h"
#include "verify.h"

static void verify_all(int nranks, int root, struct gy_verify_options options) {
  size_t n;
  const struct gy_algo *const *all = gy_algorithms(&n);
  for (size_t i = 0; i < n; i++)
    if (gy_verify_algo(all[i], nranks, root, &options) != GYRE_OK)
      fail_msg("%s", gyre_last_error());
}

static void every_algorithm_is_right(void **state) {
  (void)state;
  static const int sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
    for (uint32_t slices = 1; slices <= 3; slices++)
      for (uint32_t window = 1; window <= 2; window++)
        verify_all(sizes[i], sizes[i] / 2, (struct gy_verify_options){slices, window, 2, 1});
}

static void every_root_is_right(void **state) {
  (void)state;
  for (int root = 0; root < 7; root++) verify_all(7, root, (struct gy_verify_options){2, 1, 1, 2});
}

static void large_communicators_are_right(void **state) {
  (void)state;
  verify_all(33, 32, (struct gy_verify_options){2, 1, 0, 3});
  verify_all(64, 1, (struct gy_verify_options){1, 1, 0, 3});
}

/* Whether an algorithm keeps the order of ranks, at 3 to 8 ranks and for every root. */
static bool keeps_order(const struct gy_algo *algo) {
  struct gy_algo claims = *algo;
  claims.ordered = true;
  for (int nranks = 3; nranks <= 8; nranks++)
    for (int root = 0; root < (algo->coll == GY_REDUCE ? nranks : 1); root++)
      if (gy_verify_algo(&claims, nranks, root, &(struct gy_verify_options){2, 1, 0, 1}) != GYRE_OK) {
        assert_non_null(strstr(gyre_last_error(), "not combined in rank order"));
        return false;
      }
  return true;
}

static void order_is_kept_where_an_algorithm_says_so(void **state) {
  (void)state;
  size_t n;
  const struct gy_algo *const *all = gy_algorithms(&n);
  for (size_t i = 0; i < n; i++) {
    unsigned coll = all[i]->coll;
    if (gy_coll_traits(coll)->reduces && keeps_order(all[i]) != all[i]->ordered)
      fail_msg("%s by %s: the table says %d", gy_coll_name(coll), all[i]->name, all[i]->ordered);
  }
}

static void options_outside_are_refused(void **state) {
  (void)state;
  const struct gy_algo *ring = gy_algo_find(GY_ALL_REDUCE, "ring");
  assert_int_equal(gy_verify_algo(ring, 2, 0, &(struct gy_verify_options){0, 1, 0, 1}), GYRE_ERR_ARG);
  assert_int_equal(gy_verify_algo(ring, 2, 0, &(struct gy_verify_options){5, 1, 0, 1}), GYRE_ERR_ARG);
  assert_int_equal(gy_verify_algo(ring, 2, 0, &(struct gy_verify_options){1, 0, 0, 1}), GYRE_ERR_ARG);
}

/* --------------------------------------------------------------------- broken programs --- */

typedef void (*edit_fn)(struct draft *d);

#define EVERY_RANK (-1)

/* Builds one algorithm for nranks, lets `edit` break the programs of `rank`, and returns the
 * verifier's judgement. */
static gyre_status judge(enum gy_coll coll, const char *name, int nranks, bool in_place, int rank,
                         edit_fn edit, struct gy_verify_options options) {
  struct mutant m = {.nranks = nranks};
  const struct gy_algo *algo = gy_algo_find(coll, name);
  for (int r = 0; r < nranks; r++) {
    struct draft d;
    struct gy_program *p = NULL;
    m.keys[r] =
        (struct gy_key){.coll = (uint8_t)coll, .in_place = in_place, .nranks = nranks, .rank = r};
    assert_int_equal(gy_program_build(algo, &m.keys[r], &p), GYRE_OK);
    draft_load(&d, p, &m.keys[r]);
    gy_program_free(p);
    if (rank == EVERY_RANK || rank == r) edit(&d);
    if (draft_build(&d, &m.programs[r]) != GYRE_OK) fail_msg("%s", gyre_last_error());
  }
  gyre_status status = gy_verify((const struct gy_program *const *)m.programs, m.keys, &options);
  mutant_free(&m);
  return status;
}

static const struct gy_verify_options usual = {3, 1, 2, 1};

static void expect_caught(enum gy_coll coll, const char *name, int nranks, bool in_place, int rank,
                          edit_fn edit, const char *part) {
  assert_int_equal(judge(coll, name, nranks, in_place, rank, edit, usual), GYRE_ERR_INTERNAL);
  if (strstr(gyre_last_error(), part) == NULL)
    fail_msg("\"%s\" is not in \"%s\"", part, gyre_last_error());
}

static unsigned find(const struct draft *d, enum gy_insn_op op, unsigned nth) {
  for (unsigned i = 0; i < d->n_insn; i++)
    if (d->insn[i].op == op && nth-- == 0) return i;
  fail_msg("the program has no such instruction");
  return 0;
}

static void edit_nothing(struct draft *d) { (void)d; }

static void a_draft_that_is_not_edited_is_right(void **state) {
  (void)state;
  assert_int_equal(judge(GY_ALL_REDUCE, "ring", 4, false, EVERY_RANK, edit_nothing, usual), GYRE_OK);
  assert_int_equal(judge(GY_REDUCE_SCATTER, "ring", 5, true, EVERY_RANK, edit_nothing, usual),
                   GYRE_OK);
}

static void free_first_recv(struct draft *d) { draft_remove_dep(d, find(d, GY_RECV, 1), 0); }

static void ring_receive_over_an_unfinished_send(void **state) {
  (void)state;
  expect_caught(GY_ALL_REDUCE, "ring", 3, false, 1, free_first_recv, "nothing orders the two");
}

static void free_recv(struct draft *d) { draft_remove_dep(d, find(d, GY_RECV, 0), 0); }

/* The parent's answer comes long after it got this rank's sum, so only late local completion
 * shows this one. */
static void tree_write_after_read(void **state) {
  (void)state;
  expect_caught(GY_ALL_REDUCE, "tree", 3, true, 1, free_recv, "nothing orders the two");
  expect_caught(GY_ALL_REDUCE, "tree", 7, false, 1, free_recv, "nothing orders the two");
}

static void swap_blocks(struct draft *d) {
  struct gy_insn *a = &d->insn[find(d, GY_SEND, 0)], *b = &d->insn[find(d, GY_SEND, 1)];
  struct gy_ref ref = a->src;
  a->src = a->dst = b->src;
  b->src = b->dst = ref;
}

static void swap_link_order(struct draft *d) {
  struct gy_insn *a = &d->insn[find(d, GY_SEND, 1)], *b = &d->insn[find(d, GY_SEND, 2)];
  uint16_t phase = a->phase;
  a->phase = b->phase;
  b->phase = phase;
}

static void swapped_sends(void **state) {
  (void)state;
  expect_caught(GY_REDUCE_SCATTER, "direct", 4, false, 2, swap_blocks, "contributions, not the 4");
  expect_caught(GY_ALL_REDUCE, "ring", 4, false, 2, swap_link_order,
                "FINISH with 3 of 4 contributions");
}

static void redirect_send(struct draft *d) {
  struct gy_insn *x = &d->insn[find(d, GY_SEND, 0)];
  x->peer = (uint16_t)((x->peer + 1) % d->key.nranks);
}

static void a_redirected_peer(void **state) {
  (void)state;
  expect_caught(GY_ALL_REDUCE, "ring", 4, false, 0, redirect_send,
                "rank 0 sends only 15 messages here, not 18");
}

static void wrong_source_chunk(struct draft *d) {
  struct gy_insn *x = &d->insn[find(d, GY_RECV_REDUCE, 0)];
  x->src.chunk = (uint16_t)((x->src.chunk + 1) % d->n_chunk);
}

static void a_wrong_chunk(void **state) {
  (void)state;
  expect_caught(GY_REDUCE_SCATTER, "direct", 4, false, 3, wrong_source_chunk, "rank 3 OUT[0]");
}

static void repeat_contribution(struct draft *d) { /* drops the sum so far */
  struct gy_insn *x = &d->insn[find(d, GY_RECV_REDUCE, 1)];
  x->src = gy_in((unsigned)d->key.rank);
}

static void a_contribution_that_is_lost(void **state) {
  (void)state;
  expect_caught(GY_REDUCE_SCATTER, "direct", 3, false, 0, repeat_contribution,
                "FINISH with 2 of 3 contributions");
}

static void add_own_again(struct draft *d) {
  struct gy_insn *x = &d->insn[find(d, GY_COPY, 0)];
  struct gy_insn extra = *x;
  extra.op = GY_LOCAL_REDUCE;
  extra.dep[0] = (uint16_t)(d->n_insn - 1);
  d->insn[d->n_insn++] = extra;
}

static void a_contribution_that_is_doubled(void **state) {
  (void)state;
  expect_caught(GY_ALL_GATHER, "direct", 2, false, 1, add_own_again, "2 contributions, not the 1");
}

static void never_finish(struct draft *d) { d->insn[find(d, GY_RECV_REDUCE, 1)].dst.flags = 0; }

static void a_finish_that_is_missing(void **state) {
  (void)state;
  expect_caught(GY_ALL_REDUCE, "tree", 3, false, 0, never_finish,
                "FINISH was applied 0 times, not 1");
}

static void finish_early(struct draft *d) {
  d->insn[find(d, GY_RECV_REDUCE, 0)].dst.flags |= GY_REF_FINISH;
}

static void a_finish_that_is_early(void **state) {
  (void)state;
  expect_caught(GY_ALL_REDUCE, "ring", 4, false, 0, finish_early, "FINISH with 2 of 4 contributions");
}

static void forget_first_weight(struct draft *d) {
  struct gy_insn *x = &d->insn[find(d, GY_RECV_REDUCE, 2)];
  x->src.buf = GY_IN;
}

static void a_total_without_a_weight(void **state) {
  (void)state;
  expect_caught(GY_ALL_REDUCE_WEIGHTED, "tree", 3, false, 0, forget_first_weight,
                "FINISH with 2 of 3 weights");
}

static void combine_in_any_order(struct draft *d) {
  draft_remove_dep(d, find(d, GY_RECV_REDUCE, 1), 0);
}

static void unordered_reductions_into_one_place(void **state) {
  (void)state;
  expect_caught(GY_ALL_REDUCE, "tree", 3, false, 0, combine_in_any_order, "nothing orders the two");
}

static void no_swap(struct draft *d) {
  d->insn[find(d, GY_RECV_REDUCE, 0)].dst.flags &= (uint8_t)~GY_REF_SWAP;
}

static void operands_in_another_order_on_one_rank(void **state) {
  (void)state;
  expect_caught(GY_ALL_REDUCE, "recursive_doubling", 2, false, 1, no_swap,
                "combined in another order than on rank 0");
}

static void wait_for_own_send(struct draft *d) {
  struct gy_insn *x = &d->insn[find(d, GY_RECV_REDUCE, 0)];
  x->dep[0] = (uint16_t)find(d, GY_SEND, 0);
}

static void an_exchange_that_waits_for_its_own_send(void **state) {
  (void)state;
  expect_caught(GY_ALL_REDUCE, "recursive_doubling", 2, false, EVERY_RANK, wait_for_own_send,
                "deadlock");
}

static void chunk_by_chunk(struct draft *d) {
  for (unsigned i = 0; i < d->n_insn; i++) d->insn[i].phase = (uint16_t)i;
}

/* Right as long as a block fits the window, and stuck beyond. */
static void reduce_scatter_that_fills_its_window(void **state) {
  (void)state;
  expect_caught(GY_REDUCE_SCATTER, "ring", 3, false, EVERY_RANK, chunk_by_chunk, "deadlock");
  struct gy_verify_options wide = {3, 3, 2, 1};
  assert_int_equal(judge(GY_REDUCE_SCATTER, "ring", 3, false, EVERY_RANK, chunk_by_chunk, wide),
                   GYRE_OK);
}

static void no_window_dep(struct draft *d) { draft_remove_dep(d, find(d, GY_RECV_REDUCE, 0), 0); }

static void scratch_that_is_reused_too_early(void **state) {
  (void)state;
  expect_caught(GY_REDUCE, "ring", 3, false, 1, no_window_dep, "nothing orders the two");
  struct gy_verify_options wide = {3, 3, 2, 1};
  assert_int_equal(judge(GY_REDUCE, "ring", 3, false, 1, no_window_dep, wide), GYRE_OK);
}

static void send_at_once(struct draft *d) { draft_remove_dep(d, find(d, GY_SEND, 1), 0); }

static void send_scratch(struct draft *d) {
  struct gy_insn *x = &d->insn[find(d, GY_SEND, 1)];
  x->src = x->dst = gy_tmp(0, 0);
}

static void a_send_of_what_is_not_there_yet(void **state) {
  (void)state;
  expect_caught(GY_ALL_GATHER, "ring", 4, false, 2, send_at_once,
                "reads what is written by insn 1 slice 0, and nothing");
  expect_caught(GY_ALL_GATHER, "ring", 4, false, 2, send_scratch,
                "reads TMP[0], which nothing has written");
}

static void hear_in_any_order(struct draft *d) { draft_remove_dep(d, find(d, GY_RECV, 1), 0); }

static void a_barrier_whose_rounds_overtake(void **state) {
  (void)state;
  expect_caught(GY_BARRIER, "dissemination", 8, false, 0, hear_in_any_order,
                "nothing orders the two");
  expect_caught(GY_BARRIER, "dissemination", 8, false, 0, send_at_once,
                "may leave the barrier before");
}

static void no_copy(struct draft *d) { draft_remove(d, find(d, GY_COPY, 0)); }

static void a_result_that_nobody_writes(void **state) {
  (void)state;
  expect_caught(GY_BROADCAST, "tree", 3, false, 0, no_copy,
                "rank 0 OUT[0] slice 0: nothing was written there");
  assert_int_equal(judge(GY_BROADCAST, "tree", 3, true, 0, no_copy, usual), GYRE_OK);
}

/* The failure says which case it was. */
static void failures_name_the_case(void **state) {
  (void)state;
  assert_int_equal(judge(GY_ALL_REDUCE, "ring", 3, false, 1, free_first_recv, usual),
                   GYRE_ERR_INTERNAL);
  assert_non_null(strstr(gyre_last_error(), "rank 1 insn 7 slice 0: "));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_algorithm_is_right),
      cmocka_unit_test(every_root_is_right),
      cmocka_unit_test(large_communicators_are_right),
      cmocka_unit_test(order_is_kept_where_an_algorithm_says_so),
      cmocka_unit_test(options_outside_are_refused),
      cmocka_unit_test(a_draft_that_is_not_edited_is_right),
      cmocka_unit_test(ring_receive_over_an_unfinished_send),
      cmocka_unit_test(tree_write_after_read),
      cmocka_unit_test(swapped_sends),
      cmocka_unit_test(a_redirected_peer),
      cmocka_unit_test(a_wrong_chunk),
      cmocka_unit_test(a_contribution_that_is_lost),
      cmocka_unit_test(a_contribution_that_is_doubled),
      cmocka_unit_test(a_finish_that_is_missing),
      cmocka_unit_test(a_finish_that_is_early),
      cmocka_unit_test(a_total_without_a_weight),
      cmocka_unit_test(unordered_reductions_into_one_place),
      cmocka_unit_test(operands_in_another_order_on_one_rank),
      cmocka_unit_test(an_exchange_that_waits_for_its_own_send),
      cmocka_unit_test(reduce_scatter_that_fills_its_window),
      cmocka_unit_test(scratch_that_is_reused_too_early),
      cmocka_unit_test(a_send_of_what_is_not_there_yet),
      cmocka_unit_test(a_barrier_whose_rounds_overtake),
      cmocka_unit_test(a_result_that_nobody_writes),
      cmocka_unit_test(failures_name_the_case),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

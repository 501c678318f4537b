/* test_builder.c - form errors are refused with a text that names them; queues are in link
 * order; limits hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "schedule.h"

static struct gy_builder *start(enum gy_coll coll, int rank) {
  struct gy_key key = {.coll = (uint8_t)coll, .nranks = 4, .rank = rank};
  struct gy_builder *b = gy_builder_create(&key);
  assert_non_null(b);
  gy_b_layout(b, (enum gy_layout)gy_coll_traits(coll)->layout, 4);
  return b;
}

static void expect_refused(struct gy_builder *b, const char *part) {
  struct gy_program *untouched = (struct gy_program *)(void *)b, *p = untouched;
  assert_int_equal(gy_b_finish(b, &p), GYRE_ERR_ARG);
  assert_ptr_equal(p, untouched);
  if (strstr(gyre_last_error(), part) == NULL)
    fail_msg("\"%s\" is not in \"%s\"", part, gyre_last_error());
  gy_builder_free(b);
}

static struct gy_program *expect_built(struct gy_builder *b) {
  struct gy_program *p = NULL;
  if (gy_b_finish(b, &p) != GYRE_OK) fail_msg("%s", gyre_last_error());
  gy_builder_free(b);
  return p;
}

static void peers_outside_are_refused(void **state) {
  (void)state;
  static const int peers[] = {-1, 4, 1 << 20, 0};
  for (size_t i = 0; i < sizeof peers / sizeof peers[0]; i++) {
    struct gy_builder *b = start(GY_ALL_REDUCE, 0);
    gy_b_send(b, peers[i], gy_in(0));
    expect_refused(b, "insn 0: peer");
  }
}

static void chunks_outside_are_refused(void **state) {
  (void)state;
  struct gy_builder *b = start(GY_ALL_REDUCE, 0);
  gy_b_send(b, 1, gy_in(4));
  expect_refused(b, "chunk 4, of 4");
  b = start(GY_ALL_REDUCE, 0);
  gy_b_recv(b, 1, gy_tmp(0, 9));
  expect_refused(b, "chunk 9, of 4");
  b = start(GY_ALL_REDUCE, 0);
  gy_b_recv(b, 1, gy_out_as(1, 2));
  expect_refused(b, "OUT[1] with the length of chunk 2");
  b = start(GY_ALL_REDUCE, 0);
  gy_b_recv(b, 1, gy_tmp(1u << 20, 0));
  expect_refused(b, "scratch slot");
}

static void buffers_a_rank_has_not_are_refused(void **state) {
  (void)state;
  struct gy_builder *b = start(GY_BROADCAST, 1);
  gy_b_send(b, 0, gy_in(0));
  expect_refused(b, "IN has 0 chunks");
  b = start(GY_REDUCE, 1);
  gy_b_recv(b, 0, gy_out(0));
  expect_refused(b, "OUT has 0 chunks");
  b = start(GY_REDUCE_SCATTER, 1);
  gy_b_recv(b, 0, gy_out(1));
  expect_refused(b, "OUT has 1 chunks");
  b = start(GY_ALL_GATHER, 1);
  gy_b_send(b, 0, gy_in(1));
  expect_refused(b, "IN has 1 chunks");
}

static void writing_the_input_is_refused(void **state) {
  (void)state;
  struct gy_builder *b = start(GY_ALL_REDUCE, 0);
  gy_b_recv(b, 1, gy_in(0));
  expect_refused(b, "insn 0 writes IN");
}

static void lengths_that_differ_are_refused(void **state) {
  (void)state;
  struct gy_builder *b = start(GY_ALL_REDUCE, 0);
  gy_b_copy(b, gy_out(1), gy_in(2));
  expect_refused(b, "source over chunk 2, destination over chunk 1");
}

static void dependencies_by_slices_need_equal_ranges(void **state) {
  (void)state;
  struct gy_builder *b = start(GY_ALL_REDUCE, 0);
  unsigned recv = gy_b_recv(b, 1, gy_out(0)), send = gy_b_send(b, 1, gy_in(1));
  gy_b_after(b, send, recv);
  expect_refused(b, "insn 1 over chunk 1 depends by slices on insn 0 over chunk 0");
  b = start(GY_ALL_REDUCE, 0);
  recv = gy_b_recv(b, 1, gy_out(0));
  send = gy_b_send(b, 1, gy_in(1));
  gy_b_after_whole(b, send, recv);
  gy_program_free(expect_built(b));
}

static void a_third_dependency_is_refused(void **state) {
  (void)state;
  struct gy_builder *b = start(GY_ALL_REDUCE, 0);
  unsigned send = 0;
  for (unsigned i = 0; i < 4; i++) send = gy_b_send(b, 1, gy_in(0));
  for (unsigned i = 0; i < 3; i++) gy_b_after(b, send, i);
  expect_refused(b, "more than two dependencies");
}

static void dependencies_point_back_or_by_window(void **state) {
  (void)state;
  struct gy_builder *b = start(GY_ALL_REDUCE, 0);
  unsigned recv = gy_b_recv(b, 1, gy_tmp(0, 0)), send = gy_b_send(b, 1, gy_tmp(0, 0));
  gy_b_after(b, recv, send);
  expect_refused(b, "insn 0 depends on 1, which is not earlier");
  b = start(GY_ALL_REDUCE, 0);
  recv = gy_b_recv(b, 1, gy_tmp(0, 0));
  send = gy_b_send(b, 1, gy_tmp(0, 0));
  gy_b_after_window(b, recv, send);
  gy_b_after(b, send, recv);
  gy_program_free(expect_built(b));
  b = start(GY_ALL_REDUCE, 0);
  recv = gy_b_recv(b, 1, gy_tmp(0, 0));
  gy_b_after_window(b, recv, recv);
  expect_refused(b, "not earlier");
  b = start(GY_ALL_REDUCE, 0);
  gy_b_after(b, gy_b_recv(b, 1, gy_out(0)), 7);
  expect_refused(b, "a dependency of insn 0 on 7, of 1");
  b = start(GY_ALL_REDUCE, 0);
  gy_b_tmp_whole(b);
  recv = gy_b_recv(b, 1, gy_tmp(0, 0));
  send = gy_b_send(b, 1, gy_tmp(0, 0));
  gy_b_after_window(b, recv, send);
  expect_refused(b, "window dependency in a program with whole scratch slots");
}

static void flags_where_they_mean_nothing_are_refused(void **state) {
  (void)state;
  struct gy_builder *b = start(GY_ALL_REDUCE, 0);
  gy_b_recv(b, 1, gy_finish(gy_out(0)));
  expect_refused(b, "FINISH where no reduction ends");
  b = start(GY_ALL_GATHER, 0);
  gy_b_copy(b, gy_finish(gy_out(0)), gy_in(0));
  expect_refused(b, "FINISH where no reduction ends");
  b = start(GY_ALL_REDUCE, 0);
  gy_b_copy(b, gy_swap(gy_out(0)), gy_in(0));
  expect_refused(b, "SWAP");
  b = start(GY_ALL_REDUCE, 0);
  gy_b_reduce(b, gy_out(0), gy_swap(gy_in(0)));
  expect_refused(b, "a flag on the source");
}

static void layouts_that_do_not_fit_are_refused(void **state) {
  (void)state;
  struct gy_builder *b = start(GY_ALL_REDUCE, 0);
  gy_b_layout(b, GY_BLOCK, 4);
  expect_refused(b, "a layout of 4 blocks");
  b = start(GY_ALL_GATHER, 0);
  gy_b_layout(b, GY_BLOCK, 3);
  expect_refused(b, "a layout of 3 blocks");
  b = start(GY_ALL_REDUCE, 0);
  gy_b_layout(b, GY_SPLIT, 0);
  expect_refused(b, "0 chunks");
}

static void the_first_failure_is_kept(void **state) {
  (void)state;
  struct gy_builder *b = start(GY_ALL_REDUCE, 0);
  unsigned recv = gy_b_recv(b, 1, gy_out(0));
  gy_b_phase(b, recv, 1u << 16);
  gy_b_send(b, 99, gy_in(99));
  gy_b_after(b, 5, 6);
  expect_refused(b, "phase 65536 of insn 0");
}

static void a_program_holds_65535_instructions(void **state) {
  (void)state;
  struct gy_builder *b = start(GY_ALL_REDUCE, 0);
  for (unsigned i = 0; i < GY_NODEP; i++) assert_int_equal(gy_b_send(b, 1, gy_in(0)), i);
  struct gy_program *p = expect_built(b);
  assert_int_equal(p->n_insn, GY_NODEP);
  gy_program_free(p);
  b = start(GY_ALL_REDUCE, 0);
  for (unsigned i = 0; i <= GY_NODEP; i++) gy_b_send(b, 1, gy_in(0));
  expect_refused(b, "more than 65535 instructions");
}

static void queues_are_in_link_order(void **state) {
  (void)state;
  struct gy_builder *b = start(GY_ALL_REDUCE, 0);
  unsigned first = gy_b_send(b, 2, gy_in(0)), copy = gy_b_copy(b, gy_out(0), gy_in(0));
  unsigned recv = gy_b_recv(b, 2, gy_out(1)), second = gy_b_send(b, 2, gy_in(1)),
           other = gy_b_send(b, 1, gy_in(0));
  gy_b_phase(b, first, 9);
  struct gy_program *p = expect_built(b);
  assert_int_equal(p->n_queue, 3);
  assert_int_equal(p->n_local, 1);
  assert_int_equal(p->queue[0].peer, 1);
  assert_int_equal(p->order[p->queue[0].first], other);
  assert_int_equal(p->queue[1].peer, 2);
  assert_int_equal(p->queue[1].recv, 0);
  assert_int_equal(p->queue[1].count, 2);
  assert_int_equal(p->order[p->queue[1].first], second);
  assert_int_equal(p->order[p->queue[1].first + 1], first);
  assert_int_equal(p->queue[2].recv, 1);
  assert_int_equal(p->order[p->queue[2].first], recv);
  assert_int_equal(p->order[p->n_insn - p->n_local], copy);
  gy_program_free(p);
}

static void scratch_slots_are_counted(void **state) {
  (void)state;
  struct gy_builder *b = start(GY_ALL_REDUCE, 0);
  gy_b_recv(b, 1, gy_tmp(2, 1));
  gy_b_tmp_whole(b);
  struct gy_program *p = expect_built(b);
  assert_int_equal(p->n_tmp, 3);
  assert_int_equal(p->tmp_whole, 1);
  gy_program_free(p);
}

static void an_empty_program_is_legal(void **state) {
  (void)state;
  struct gy_program *p = expect_built(start(GY_BARRIER, 0));
  assert_int_equal(p->n_insn, 0);
  assert_int_equal(p->n_queue, 0);
  gy_program_free(p);
}

static void keys_that_do_not_fit_are_refused(void **state) {
  (void)state;
  const struct gy_algo *ring = gy_algo_find(GY_ALL_REDUCE, "ring");
  static const struct gy_key keys[] = {
      {.coll = GY_BROADCAST, .nranks = 4},
      {.coll = GY_ALL_REDUCE, .nranks = 0},
      {.coll = GY_ALL_REDUCE, .nranks = 4, .rank = 4},
      {.coll = GY_ALL_REDUCE, .nranks = 4, .rank = -1},
      {.coll = GY_ALL_REDUCE, .nranks = 4, .root = 4},
  };
  struct gy_program *p = NULL;
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
    assert_int_equal(gy_program_build(ring, &keys[i], &p), GYRE_ERR_ARG);
    assert_null(p);
  }
}

static void the_table_has_every_collective_and_no_name_twice(void **state) {
  (void)state;
  size_t n;
  const struct gy_algo *const *all = gy_algorithms(&n);
  for (unsigned coll = 0; coll < GY_COLL_COUNT; coll++) {
    unsigned found = 0;
    for (size_t i = 0; i < n; i++) found += all[i]->coll == coll;
    assert_true(found > 0);
    assert_int_equal(gy_coll_find(gy_coll_name(coll)), coll);
  }
  for (size_t i = 0; i < n; i++)
    assert_ptr_equal(gy_algo_find((enum gy_coll)all[i]->coll, all[i]->name), all[i]);
  assert_null(gy_algo_find(GY_BARRIER, "ring"));
  assert_null(gy_coll_name(GY_COLL_COUNT));
  assert_int_equal(gy_coll_find("all_reduc"), -1);
}

/* The longest programs still fit the 16-bit indices. */
static void the_largest_communicator_has_programs(void **state) {
  (void)state;
  size_t n;
  const struct gy_algo *const *all = gy_algorithms(&n);
  for (size_t i = 0; i < n; i++) {
    int nranks = all[i]->max_ranks ? all[i]->max_ranks : 16384;
    struct gy_key key = {
        .coll = all[i]->coll, .in_place = 1, .nranks = nranks, .rank = nranks - 1, .root = 1};
    struct gy_program *p = NULL;
    if (gy_program_build(all[i], &key, &p) != GYRE_OK)
      fail_msg("%s: %s", all[i]->name, gyre_last_error());
    gy_program_free(p);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(peers_outside_are_refused),
      cmocka_unit_test(chunks_outside_are_refused),
      cmocka_unit_test(buffers_a_rank_has_not_are_refused),
      cmocka_unit_test(writing_the_input_is_refused),
      cmocka_unit_test(lengths_that_differ_are_refused),
      cmocka_unit_test(dependencies_by_slices_need_equal_ranges),
      cmocka_unit_test(a_third_dependency_is_refused),
      cmocka_unit_test(dependencies_point_back_or_by_window),
      cmocka_unit_test(flags_where_they_mean_nothing_are_refused),
      cmocka_unit_test(layouts_that_do_not_fit_are_refused),
      cmocka_unit_test(the_first_failure_is_kept),
      cmocka_unit_test(a_program_holds_65535_instructions),
      cmocka_unit_test(queues_are_in_link_order),
      cmocka_unit_test(scratch_slots_are_counted),
      cmocka_unit_test(an_empty_program_is_legal),
      cmocka_unit_test(keys_that_do_not_fit_are_refused),
      cmocka_unit_test(the_table_has_every_collective_and_no_name_twice),
      cmocka_unit_test(the_largest_communicator_has_programs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_select.c - the choice of algorithm: the model's switch points, overrides and their
 * errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "select.h"

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)

static const char *choose(const char *override, enum gy_coll coll, int nranks, int cores,
                          size_t bytes) {
  struct gy_cost cost;
  struct gy_key key = {.coll = (uint8_t)coll, .nranks = nranks};
  const struct gy_algo *algo = NULL;
  gy_cost_default(&cost, nranks, cores, 256 * KIB);
  if (gy_select(override, &cost, &key, bytes, &algo) != GYRE_OK) fail_msg("%s", gyre_last_error());
  assert_int_equal(algo->coll, coll);
  return algo->name;
}

static void small_all_reduces_double_and_large_ones_go_round(void **state) {
  (void)state;
  assert_string_equal(choose("", GY_ALL_REDUCE, 2, 2, 8), "recursive_doubling");
  assert_string_equal(choose("", GY_ALL_REDUCE, 2, 2, 128 * KIB), "recursive_doubling");
  assert_string_equal(choose("", GY_ALL_REDUCE, 2, 2, 512 * KIB), "ring");
  assert_string_equal(choose("", GY_ALL_REDUCE, 4, 2, 32 * KIB), "recursive_doubling");
  assert_string_equal(choose("", GY_ALL_REDUCE, 4, 2, 256 * KIB), "ring");
  for (int nranks = 2; nranks <= 64; nranks *= 2)
    assert_string_equal(choose("", GY_ALL_REDUCE, nranks, 2, 0), "recursive_doubling");
  for (int nranks = 2; nranks <= 64; nranks++) {
    assert_string_not_equal(choose("", GY_ALL_REDUCE, nranks, 2, 0), "ring");
    assert_string_equal(choose("", GY_ALL_REDUCE, nranks, 2, 256 * MIB), "ring");
  }
}

/* Once the ring is chosen it stays chosen as messages grow. */
static void the_choice_changes_once_with_size(void **state) {
  (void)state;
  for (int nranks = 2; nranks <= 32; nranks++) {
    unsigned changes = 0;
    const char *last = choose("", GY_ALL_REDUCE, nranks, 4, 8);
    for (size_t bytes = 8; bytes <= 256 * MIB; bytes *= 2) {
      const char *name = choose("", GY_ALL_REDUCE, nranks, 4, bytes);
      changes += strcmp(name, last) != 0;
      last = name;
    }
    assert_true(changes <= 2);
  }
}

static void the_other_collectives_have_a_small_and_a_large_form(void **state) {
  (void)state;
  assert_string_equal(choose("", GY_BROADCAST, 8, 8, 8), "tree");
  assert_string_equal(choose("", GY_BROADCAST, 8, 8, 64 * MIB), "ring");
  assert_string_equal(choose("", GY_REDUCE, 8, 8, 8), "tree");
  assert_string_equal(choose("", GY_REDUCE, 8, 8, 64 * MIB), "ring");
  assert_string_equal(choose("", GY_REDUCE_SCATTER, 8, 8, 64), "direct");
  assert_string_equal(choose("", GY_ALL_GATHER, 64, 64, 64), "bruck");
  assert_string_equal(choose("", GY_REDUCE_SCATTER, 8, 8, 64 * MIB), "ring");
  assert_string_equal(choose("", GY_ALL_GATHER, 64, 64, 64 * MIB), "ring");
  assert_string_equal(choose("", GY_BARRIER, 8, 8, 0), "dissemination");
}

static void every_estimate_is_positive_and_grows_with_size(void **state) {
  (void)state;
  size_t n;
  const struct gy_algo *const *all = gy_algorithms(&n);
  for (size_t i = 0; i < n; i++)
    for (int nranks = 2; nranks <= 64; nranks++) {
      struct gy_cost cost;
      struct gy_key key = {.coll = all[i]->coll, .nranks = nranks};
      double last = 0;
      gy_cost_default(&cost, nranks, 2, 256 * KIB);
      for (size_t bytes = 0; bytes <= 64 * MIB; bytes = bytes == 0 ? 1 : bytes * 4) {
        double us = all[i]->cost_us(&key, bytes, &cost);
        assert_true(us > 0 && us < 1e9);
        assert_true(us >= last);
        last = us;
      }
    }
}

static void the_choice_does_not_depend_on_rank_root_or_place(void **state) {
  (void)state;
  struct gy_cost cost;
  gy_cost_default(&cost, 5, 2, 256 * KIB);
  for (unsigned coll = 0; coll < GY_COLL_COUNT; coll++)
    for (size_t bytes = 1; bytes <= 64 * MIB; bytes *= 4) {
      const struct gy_algo *first = NULL, *algo = NULL;
      for (int rank = 0; rank < 5; rank++) {
        struct gy_key key = {
            .coll = (uint8_t)coll, .in_place = rank & 1, .nranks = 5, .rank = rank, .root = 4 - rank};
        assert_int_equal(gy_select("", &cost, &key, bytes, &algo), GYRE_OK);
        if (rank == 0) first = algo;
        assert_ptr_equal(algo, first);
      }
    }
}

static void one_name_holds_for_all_that_have_it(void **state) {
  (void)state;
  assert_string_equal(choose("ring", GY_ALL_REDUCE, 2, 2, 8), "ring");
  assert_string_equal(choose("ring", GY_BROADCAST, 8, 8, 8), "ring");
  assert_string_equal(choose("tree", GY_ALL_REDUCE, 2, 2, 64 * MIB), "tree");
  assert_string_equal(choose("ring", GY_BARRIER, 2, 2, 0), "dissemination");
}

static void a_list_holds_for_what_it_names(void **state) {
  (void)state;
  const char *list = "all_reduce=tree,broadcast=ring";
  assert_string_equal(choose(list, GY_ALL_REDUCE, 2, 2, 8), "tree");
  assert_string_equal(choose(list, GY_BROADCAST, 8, 8, 8), "ring");
  assert_string_equal(choose(list, GY_REDUCE, 8, 8, 8), "tree");
  assert_string_equal(choose(list, GY_REDUCE, 8, 8, 64 * MIB), "ring");
}

static void an_order_of_ranks_narrows_the_choice(void **state) {
  (void)state;
  static const enum gy_coll colls[] = {GY_ALL_REDUCE, GY_REDUCE_SCATTER, GY_REDUCE};
  struct gy_cost cost;
  const struct gy_algo *algo = NULL;
  gy_cost_default(&cost, 5, 2, 256 * KIB);
  for (size_t c = 0; c < 3; c++) {
    struct gy_key key = {.coll = (uint8_t)colls[c], .ordered = 1, .nranks = 5};
    for (size_t bytes = 1; bytes <= 256 * MIB; bytes *= 4) {
      for (key.nranks = 2; key.nranks <= 64; key.nranks++) {
        assert_int_equal(gy_select("", &cost, &key, bytes, &algo), GYRE_OK);
        assert_true(algo->ordered);
      }
    }
    key.nranks = 5;
    assert_int_equal(gy_select("ring", &cost, &key, 8, &algo), GYRE_ERR_ARG);
    assert_non_null(strstr(gyre_last_error(), "by ring does not keep the order of ranks"));
    assert_non_null(strstr(gyre_last_error(), algo->name)); /* one that does */
    assert_int_equal(gy_select(algo->name, &cost, &key, 8, &algo), GYRE_OK);
    key.nranks = 1; /* nothing is combined */
    assert_int_equal(gy_select("ring", &cost, &key, 8, &algo), GYRE_OK);
    assert_string_equal(algo->name, "ring");
  }
}

static void expect_bad(const char *text, const char *part) {
  struct gy_cost cost;
  struct gy_key key = {.coll = GY_ALL_REDUCE, .nranks = 2};
  const struct gy_algo *algo = NULL;
  gy_cost_default(&cost, 2, 2, 256 * KIB);
  assert_int_equal(gy_select_check(text), GYRE_ERR_ARG);
  if (strstr(gyre_last_error(), part) == NULL)
    fail_msg("\"%s\" is not in \"%s\"", part, gyre_last_error());
  assert_int_equal(gy_select(text, &cost, &key, 8, &algo), GYRE_ERR_ARG);
  assert_null(algo);
}

static void bad_overrides_list_what_there_is(void **state) {
  (void)state;
  expect_bad("rings", "ring, tree, recursive_doubling, direct, bruck, dissemination");
  expect_bad("ring,tree", "a list such as");
  expect_bad("ring,", "a list such as");
  expect_bad("all_reduce=bruck", "it has ring, tree, recursive_doubling");
  expect_bad("all_reduce=", "it has ring, tree, recursive_doubling");
  expect_bad("allreduce=ring",
             "there are all_reduce, reduce_scatter, all_gather, broadcast, reduce, barrier");
  expect_bad("=ring", "no collective has that name");
  expect_bad("broadcast=tree,ring", "no collective has that name");
  expect_bad("all_reduce=ring,all_reduce=tree", "named twice");
  expect_bad("all_reduce=ring_and_a_name_that_is_far_longer_than_any", "has no algorithm");
  assert_int_equal(gy_select_check(""), GYRE_OK);
  assert_int_equal(gy_select_check("bruck"), GYRE_OK);
  assert_int_equal(gy_select_check("all_reduce=ring,barrier=dissemination"), GYRE_OK);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(small_all_reduces_double_and_large_ones_go_round),
      cmocka_unit_test(the_choice_changes_once_with_size),
      cmocka_unit_test(the_other_collectives_have_a_small_and_a_large_form),
      cmocka_unit_test(every_estimate_is_positive_and_grows_with_size),
      cmocka_unit_test(the_choice_does_not_depend_on_rank_root_or_place),
      cmocka_unit_test(one_name_holds_for_all_that_have_it),
      cmocka_unit_test(a_list_holds_for_what_it_names),
      cmocka_unit_test(an_order_of_ranks_narrows_the_choice),
      cmocka_unit_test(bad_overrides_list_what_there_is),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

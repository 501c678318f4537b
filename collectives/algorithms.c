/*
 * algorithms.c - the table of all algorithms.
 *
 * Role:   names to algorithms and back, and the way from a key to a finished program.
 * Thread: constants and pure functions.
 */
#include "collectives/algorithms.h"

#include <string.h>
#include "status.h"
#include "weights.h"

/* The index travels on the wire: append only. */
static const struct gy_algo *const algorithms[] = {
    &gy_all_reduce_ring,
    &gy_all_reduce_tree,
    &gy_all_reduce_recursive_doubling,
    &gy_reduce_scatter_ring,
    &gy_reduce_scatter_direct,
    &gy_all_gather_ring,
    &gy_all_gather_direct,
    &gy_all_gather_bruck,
    &gy_broadcast_tree,
    &gy_broadcast_ring,
    &gy_reduce_tree,
    &gy_reduce_ring,
    &gy_barrier_dissemination,
    &gy_gather_tree,
    &gy_gather_direct,
    &gy_scatter_tree,
    &gy_scatter_direct,
    &gy_all_to_all_bruck,
    &gy_all_to_all_direct,
    &gy_scan_chain,
    &gy_scan_recursive_doubling,
    &gy_exclusive_scan_chain,
    &gy_exclusive_scan_recursive_doubling,
    &gy_all_gather_v_ring,
    &gy_all_gather_v_direct,
    &gy_reduce_scatter_v_ring,
    &gy_reduce_scatter_v_direct,
    &gy_all_to_all_v_direct,
    &gy_gather_v_direct,
    &gy_scatter_v_direct,
    &gy_reduce_in_order,
    &gy_all_reduce_double_tree,
    &gy_broadcast_double_tree,
    &gy_all_reduce_weighted_ring,
    &gy_all_reduce_weighted_tree,
    &gy_all_reduce_weighted_recursive_doubling,
    &gy_all_reduce_weighted_double_tree,
};

const struct gy_algo *const *gy_algorithms(size_t *n) {
  *n = sizeof algorithms / sizeof algorithms[0];
  return algorithms;
}

const struct gy_algo *gy_algo_find(enum gy_coll coll, const char *name) {
  for (size_t i = 0; i < sizeof algorithms / sizeof algorithms[0]; i++)
    if (algorithms[i]->coll == coll && strcmp(algorithms[i]->name, name) == 0) return algorithms[i];
  return NULL;
}

/* A communicator of one rank runs the same program for every algorithm: its input is the result. */
static void build_alone(const struct gy_key *key, struct gy_builder *b) {
  const struct gy_coll_traits *traits = gy_coll_traits(key->coll);
  if (traits->layout != GY_SPLIT) gy_b_blocks(b);
  if (key->coll == GY_EXCLUSIVE_SCAN) gy_b_identity(b, gy_out(0));
  else if (traits->has_data)
    gy_b_copy(b, gy_coll_finishes(key->coll) ? gy_finish(gy_out(0)) : gy_out(0), gy_in(0));
}

static gyre_status check_key(const struct gy_algo *algo, const struct gy_key *key) {
  if (key->coll != algo->coll)
    return gy_fail(GYRE_ERR_ARG, "algorithm %s of %s for a key of collective %u", algo->name,
                   gy_coll_name(algo->coll), key->coll);
  if (key->nranks < 1 || key->rank < 0 || key->rank >= key->nranks || key->root < 0 ||
      key->root >= key->nranks)
    return gy_fail(GYRE_ERR_ARG, "a program for rank %d, root %d of %d ranks", key->rank, key->root,
                   key->nranks);
  if (algo->max_ranks != 0 && key->nranks > algo->max_ranks)
    return gy_fail(GYRE_ERR_ARG, "%s by %s takes at most %d ranks, not %d",
                   gy_coll_name(algo->coll), algo->name, algo->max_ranks, key->nranks);
  return GYRE_OK;
}

/* Of a weighted collective: as its builder made it, without weights. */
static gyre_status build_plain(const struct gy_algo *algo, const struct gy_key *key,
                               struct gy_program **out) {
  struct gy_key plain = *key;
  gyre_status status = GYRE_OK;
  if (gy_coll_traits(key->coll)->weighted) plain.coll = GY_ALL_REDUCE;
  struct gy_builder *b = gy_builder_create(&plain);
  if (b == NULL) return gy_fail(GYRE_ERR_NOMEM, "no memory to build a program of %s", algo->name);
  if (key->nranks == 1) build_alone(&plain, b);
  else status = algo->build(&plain, b);
  if (status == GYRE_OK) status = gy_b_finish(b, out);
  gy_builder_free(b);
  return status;
}

gyre_status gy_program_build(const struct gy_algo *algo, const struct gy_key *key,
                             struct gy_program **out) {
  gyre_status status = check_key(algo, key);
  if (status != GYRE_OK) return status;
  if (!gy_coll_traits(key->coll)->weighted) return build_plain(algo, key, out);
  struct gy_program *plain;
  status = build_plain(algo, key, &plain);
  if (status != GYRE_OK) return status;
  status = gy_weights_add(key, plain, out);
  gy_program_free(plain);
  return status;
}

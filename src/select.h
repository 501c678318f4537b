/*
 * select.h - which algorithm runs a call.
 *
 * Role:   a pure function of the call and of what all ranks agreed on; never of pointers, memory
 *         kind, in-place, load or local measurement, so that every rank chooses alike.
 * Thread: any.
 */
#ifndef GY_SELECT_H
#define GY_SELECT_H

#include "schedule.h"

/* Defaults for `slice_bytes` on a host with `cores` cores, `ranks_here` ranks of the communicator
 * on it. */
void gy_cost_default(struct gy_cost *out, int nranks, int cores, size_t slice_bytes);
/* The algorithm for `bytes` (count * element size; the whole of the larger buffer). `override` is
 * the agreed text of GYRE_ALGO: "" for the cost model, one name for all collectives that have it,
 * or "all_reduce=ring,broadcast=tree". A name that this collective does not have falls back to the
 * cost model only in the one-name form. key->root and ->rank are ignored. With key->ordered only algorithms
 * that keep the order of ranks are taken, and naming another is ARG. Errors: ARG, listing the
 * algorithms there are. */
gyre_status gy_select(const char *override, const struct gy_cost *cost, const struct gy_key *key,
                      size_t bytes, const struct gy_algo **out);
/* Checks such a text; ARG with the rule and the names. */
gyre_status gy_select_check(const char *override);

#endif

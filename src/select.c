/*
 * select.c - which algorithm runs a call.
 *
 * Role:   the constants of the cost model, and the choice: of the algorithms that the collective
 *         has, the one whose estimate is least; or the one that configuration names.
 * Thread: pure functions.
 *
 * The model: a message costs latency + step; a byte costs its way over a link, and its reduction.
 * What the CPU does is multiplied by the number of ranks that share a core. Each algorithm's own
 * sum stands beside its builder. All ranks must compute the same bits, so this file and the
 * estimates are to be compiled without contraction of floating-point expressions
 * (-ffp-contract=off).
 */
#include "select.h"

#include <string.h>
#include "fpenv.h"
#include "status.h"

/* Measured over loopback TCP: an exchange of 8 bytes takes about 9 us. The cost of a reduced
 * byte is set so that two ranks exchange whole vectors up to 128 KiB, and four up to 64 KiB,
 * before the ring is quicker. */
#define LATENCY_US 5.0
#define STEP_US 4.0
#define MOVE_US_PER_BYTE 0.40e-3
#define REDUCE_US_PER_BYTE 0.13e-3

void gy_cost_default(struct gy_cost *out, int nranks, int cores, size_t slice_bytes) {
  struct gy_fpenv callers = gy_fpenv_enter();
  *out = (struct gy_cost){
      .latency_us = LATENCY_US,
      .us_per_byte = MOVE_US_PER_BYTE,
      .reduce_us_per_byte = REDUCE_US_PER_BYTE,
      .step_us = STEP_US,
      .contention = cores > 0 && nranks > cores ? (double)nranks / cores : 1.0,
      .slice_bytes = slice_bytes,
  };
  gy_fpenv_leave(callers);
}

/* ------------------------------------------------------------------------- override text --- */

struct item { /* "all_reduce=ring", or "ring" with coll "" */
  char coll[32], algo[32];
};

/* The next item of a comma-separated list; false at its end. *text is moved on. A word that does
 * not fit is cut, and then is no known name. */
static bool next_item(const char **text, struct item *item) {
  if (**text == '\0') return false;
  const char *end = *text + strcspn(*text, ","), *equals = memchr(*text, '=', (size_t)(end - *text));
  const char *algo = equals == NULL ? *text : equals + 1;
  gy_format(item->coll, sizeof item->coll, "%.*s", equals == NULL ? 0 : (int)(equals - *text), *text);
  gy_format(item->algo, sizeof item->algo, "%.*s", (int)(end - algo), algo);
  *text = *end == ',' ? end + 1 : end;
  return true;
}

/* ", "-separated names of one collective's algorithms, or of all (coll < 0), each once; `ordered`:
 * of those that keep the order of ranks. Returns out. */
static const char *list_names(int coll, bool ordered, char *out, size_t capacity) {
  size_t n, used = 0;
  const struct gy_algo *const *all = gy_algorithms(&n);
  out[0] = '\0';
  for (size_t i = 0; i < n; i++) {
    if ((coll >= 0 && all[i]->coll != coll) || (ordered && !all[i]->ordered)) continue;
    bool known = false;
    for (size_t j = 0; j < i && coll < 0; j++) known |= strcmp(all[i]->name, all[j]->name) == 0;
    if (!known)
      used += gy_format(out + used, capacity - used, "%s%s", used == 0 ? "" : ", ", all[i]->name);
  }
  return out;
}

static bool is_any_algo(const char *name) {
  for (unsigned coll = 0; coll < GY_COLL_COUNT; coll++)
    if (gy_algo_find((enum gy_coll)coll, name) != NULL) return true;
  return false;
}

static gyre_status check_pair(const struct item *item, unsigned *seen) {
  char names[256] = "";
  int coll = gy_coll_find(item->coll);
  if (coll < 0) {
    size_t used = 0;
    for (unsigned c = 0; c < GY_COLL_COUNT; c++)
      used +=
          gy_format(names + used, sizeof names - used, "%s%s", c == 0 ? "" : ", ", gy_coll_name(c));
    return gy_fail(GYRE_ERR_ARG,
                   "algorithm choice \"%s=%s\": no collective has that name; there are %s",
                   item->coll, item->algo, names);
  }
  if (gy_algo_find((enum gy_coll)coll, item->algo) == NULL)
    return gy_fail(GYRE_ERR_ARG,
                   "algorithm choice \"%s=%s\": %s has no algorithm \"%s\"; it has %s", item->coll,
                   item->algo, item->coll, item->algo, list_names(coll, false, names, sizeof names));
  if (*seen >> coll & 1u)
    return gy_fail(GYRE_ERR_ARG, "algorithm choice: %s is named twice", item->coll);
  *seen |= 1u << coll;
  return GYRE_OK;
}

gyre_status gy_select_check(const char *override) {
  const char *text = override;
  struct item item;
  unsigned seen = 0;
  char names[256];
  if (strchr(override, '=') == NULL) {
    if (override[0] == '\0') return GYRE_OK;
    next_item(&text, &item);
    if (*text == '\0' && strchr(override, ',') == NULL && is_any_algo(item.algo)) return GYRE_OK;
    return gy_fail(
        GYRE_ERR_ARG, "algorithm choice \"%s\": expected one of %s, or a list such as \"all_reduce=ring,broadcast=tree\"",
        override, list_names(-1, false, names, sizeof names));
  }
  while (next_item(&text, &item)) {
    gyre_status status = check_pair(&item, &seen);
    if (status != GYRE_OK) return status;
  }
  return GYRE_OK;
}

/* --------------------------------------------------------------------------------- choice --- */

/* What a checked override says of this collective; NULL: nothing. */
static const struct gy_algo *named(const char *override, enum gy_coll coll) {
  struct item item;
  while (next_item(&override, &item))
    if (item.coll[0] == '\0' || gy_coll_find(item.coll) == (int)coll)
      return gy_algo_find(coll, item.algo);
  return NULL;
}

/* One rank has nothing to combine. */
static bool keeps_order(const struct gy_algo *algo, int nranks) {
  return algo->ordered || nranks == 1;
}

static bool fits(const struct gy_algo *algo, const struct gy_key *key) {
  return algo->coll == key->coll && (algo->max_ranks == 0 || key->nranks <= algo->max_ranks) &&
         (!key->ordered || keeps_order(algo, key->nranks));
}

/* The least estimate; the earlier in the table if two are equal. */
static const struct gy_algo *cheapest(const struct gy_cost *cost, const struct gy_key *key,
                                      size_t bytes) {
  size_t n;
  const struct gy_algo *const *all = gy_algorithms(&n), *best = NULL;
  struct gy_fpenv callers = gy_fpenv_enter();
  double best_us = 0;
  for (size_t i = 0; i < n; i++) {
    if (!fits(all[i], key)) continue;
    double us = all[i]->cost_us(key, bytes, cost);
    if (best == NULL || us < best_us) {
      best = all[i];
      best_us = us;
    }
  }
  gy_fpenv_leave(callers);
  return best;
}

gyre_status gy_select(const char *override, const struct gy_cost *cost, const struct gy_key *key,
                      size_t bytes, const struct gy_algo **out) {
  gyre_status status = gy_select_check(override);
  if (status != GYRE_OK) return status;
  if (key->coll >= GY_COLL_COUNT)
    return gy_fail(GYRE_ERR_ARG, "no collective has number %u", key->coll);
  struct gy_key any_rank = {.coll = key->coll, .ordered = key->ordered, .nranks = key->nranks};
  const struct gy_algo *algo = named(override, (enum gy_coll)key->coll);
  char names[256];
  if (algo != NULL && key->ordered && !keeps_order(algo, key->nranks))
    return gy_fail(GYRE_ERR_ARG,
                   "%s by %s does not keep the order of ranks, which an operator that is not "
                   "commutative needs; leave the choice to the cost model, or name one of %s",
                   gy_coll_name(key->coll), algo->name,
                   list_names(key->coll, true, names, sizeof names));
  if (algo != NULL && !fits(algo, key))
    return gy_fail(GYRE_ERR_ARG, "%s by %s takes at most %d ranks, not %d", gy_coll_name(key->coll),
                   algo->name, algo->max_ranks, key->nranks);
  if (algo == NULL) algo = cheapest(cost, &any_rank, bytes);
  if (algo == NULL)
    return gy_fail(GYRE_ERR_UNSUPPORTED, "no algorithm of %s takes %d ranks",
                   gy_coll_name(key->coll), key->nranks);
  *out = algo;
  return GYRE_OK;
}

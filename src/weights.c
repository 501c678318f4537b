/* weights.c - see weights.h. */
#include "weights.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "reduce.h"
#include "status.h"

/* -------------------------------------------------------------------------------- programs --- */

struct trio { /* what stands for an instruction of the plain program; without FINISH last == main */
  unsigned weight, main, last;
};

static unsigned append(struct gy_builder *b, const struct gy_insn *x, struct gy_ref dst,
                       struct gy_ref src) {
  unsigned index;
  switch (x->op) {
    case GY_SEND: index = gy_b_send(b, x->peer, src); break;
    case GY_RECV: index = gy_b_recv(b, x->peer, dst); break;
    case GY_RECV_REDUCE: index = gy_b_recv_reduce(b, x->peer, dst, src); break;
    case GY_COPY: return gy_b_copy(b, dst, src);
    default: return gy_b_reduce(b, dst, src);
  }
  gy_b_phase(b, index, x->phase);
  return index;
}

static struct trio append_trio(struct gy_builder *b, const struct gy_insn *x, unsigned n_chunk) {
  struct gy_ref sum = x->dst, place = x->dst;
  struct trio t;
  sum.flags &= (uint8_t)~GY_REF_FINISH;
  place.flags = 0;
  t.weight = append(b, x, gy_weight_of(x->dst, n_chunk), gy_weight_of(x->src, n_chunk));
  t.last = t.main = append(b, x, sum, x->src);
  if (x->dst.flags & GY_REF_FINISH) t.last = gy_b_copy(b, gy_finish(place), place);
  return t;
}

static void depend(struct gy_builder *b, unsigned insn, unsigned on, enum gy_lag lag) {
  switch (lag) {
    case GY_LAG_NONE: gy_b_after(b, insn, on); break;
    case GY_LAG_WINDOW: gy_b_after_window(b, insn, on); break;
    default: gy_b_after_whole(b, insn, on);
  }
}

static void append_deps(struct gy_builder *b, const struct gy_program *plain,
                        const struct trio *trios) {
  for (unsigned i = 0; i < plain->n_insn; i++) {
    const struct gy_insn *x = &plain->insn[i];
    const struct trio *t = &trios[i];
    for (unsigned k = 0; k < 2; k++) {
      if (x->dep[k] == GY_NODEP) continue;
      depend(b, t->weight, trios[x->dep[k]].weight, (enum gy_lag)x->dep_lag[k]);
      depend(b, t->main, trios[x->dep[k]].last, (enum gy_lag)x->dep_lag[k]);
    }
    if (t->last == t->main) continue;
    gy_b_after(b, t->last, t->main);
    bool local = x->op == GY_COPY || x->op == GY_LOCAL_REDUCE;
    if (local) gy_b_after_whole(b, t->last, t->weight); /* else the link keeps that order */
  }
}

gyre_status gy_weights_add(const struct gy_key *key, const struct gy_program *plain,
                           struct gy_program **out) {
  struct gy_builder *b = gy_builder_create(key);
  struct trio *trios = calloc(plain->n_insn + 1u, sizeof *trios);
  gyre_status st = GYRE_OK;
  if (!b || !trios) {
    st = gy_fail(GYRE_ERR_NOMEM, "no memory for the weights of a program");
    goto free_both;
  }
  gy_b_layout(b, (enum gy_layout)plain->layout, plain->n_chunk);
  if (plain->tmp_whole) gy_b_tmp_whole(b);
  for (unsigned i = 0; i < plain->n_insn; i++)
    trios[i] = append_trio(b, &plain->insn[i], plain->n_chunk);
  append_deps(b, plain, trios);
  st = gy_b_finish(b, out);

free_both:
  free(trios);
  gy_builder_free(b);
  return st;
}

/* ---------------------------------------------------------------------------- contributions --- */

gyre_status gy_weight_check(const char *function, gyre_dtype type, gyre_op op, double weight) {
  bool in_f32 = type != GYRE_F64; /* then the weight is rounded to it */
  if (op != GYRE_SUM && op != GYRE_AVG)
    return gy_fail(GYRE_ERR_ARG, "gyre_%s: operator %d; it takes GYRE_SUM and GYRE_AVG", function,
                   (int)op);
  if (!gyre_op_accepts(GYRE_SUM, type) || gyre_op_accepts(GYRE_BAND, type))
    return gy_fail(GYRE_ERR_ARG, "gyre_%s: weights are for floating-point types, not for %s",
                   function, gyre_dtype_name(type));
  if (!isfinite(weight) || weight < 0)
    return gy_fail(GYRE_ERR_ARG, "gyre_%s: weight %g: must be 0 or positive, and finite", function,
                   weight);
  if (weight != 0 && in_f32 && (weight < (double)FLT_MIN || weight > (double)FLT_MAX))
    return gy_fail(GYRE_ERR_ARG,
                   "gyre_%s: weight %g: %s is multiplied in f32, so it must be 0 or from %g to %g",
                   function, weight, gyre_dtype_name(type), (double)FLT_MIN, (double)FLT_MAX);
  return GYRE_OK;
}

static void fill_minus_zero(char *dst, size_t count, size_t esize) {
  uint64_t sign = UINT64_C(0x80) << (esize - 1) * 8; /* little-endian */
  for (size_t i = 0; i < count; i++) memcpy(dst + i * esize, &sign, esize);
}

void gy_weight_apply(void *dst, const void *src, size_t count, gyre_dtype type, double weight) {
  if (weight != 0) gy_multiply(dst, src, count, type, weight);
  else fill_minus_zero(dst, count, gyre_dtype_size(type));
}

void gy_weight_finish(void *data, size_t count, gyre_dtype type, gyre_op op, double total) {
  if (count == 0) return; /* there may be no scratch */
  if (total == 0) memset(data, 0, count * gyre_dtype_size(type));
  else if (op == GYRE_AVG) gy_divide(data, count, type, total);
}

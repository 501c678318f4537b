/*
 * operator.h - how the elements of a call are combined: built-in kernels and created operators.
 *
 * Role:   a communicator's table of created operators, and the reducer that a run hands to its
 *         transfers.
 * Thread: the table: any. gy_reduce: the driving thread, locked; there users' functions run.
 * Owner:  the table belongs to the communicator. An operator has a reference from the table, until
 *         it is freed, and one from each operation that uses it.
 */
#ifndef GY_OPERATOR_H
#define GY_OPERATOR_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include "reduce.h"

struct gy_operator;

struct gy_reducer {
  gy_reduce_fn kernel; /* NULL: that of `created` */
  uint32_t divisor;    /* what a step that completes the reduction divides by; 0 or 1: nothing */
  gyre_dtype type;
  gyre_op op;
  const struct gy_operator *created;
};

/* `created`: what gy_operators_take gave for `op`. */
struct gy_reducer gy_reducer_of(gyre_dtype type, gyre_op op, const struct gy_operator *created,
                                int nranks);
/* Calls the function of a created operator, with operands aligned for their type. */
void gy_reduce_created(const struct gy_reducer *r, void *dst, const void *left, const void *right,
                       size_t count);
/* dst[i] = left[i] (op) right[i]; `completes`: this step completes the reduction. */
static inline void gy_reduce(const struct gy_reducer *r, void *dst, const void *left,
                             const void *right, size_t count, bool completes) {
  if (r->kernel) r->kernel(dst, left, right, count, completes ? r->divisor : 0);
  else gy_reduce_created(r, dst, left, right, count);
}

/* Whether contributions must be changed before anything is combined: those of a premultiplied sum,
 * and those of a logical operator where a result may be a `single` one. */
bool gy_operator_prepares(gyre_op op, const struct gy_operator *created, bool single);
void gy_reducer_prepare(const struct gy_reducer *r, void *dst, const void *src, size_t count);
/* What no contribution gives. A created function has no identity: dst stays as it is. */
void gy_reducer_identity(const struct gy_reducer *r, void *dst, size_t count);

/* A created operator's number tells its kind, so that ranks that mix kinds up get MISMATCH. Numbers
 * of a kind are given in turn, for a freed one to stay unknown for long. */
enum gy_operator_kind { GY_OP_COMMUTATIVE, GY_OP_ORDERED, GY_OP_PREMUL_SUM, GY_OP_KINDS };
#define GY_OPS_OF_A_KIND 64

struct gy_operators { /* zeroed, then gy_operators_init */
  pthread_mutex_t lock;
  struct gy_operator *created[GY_OP_KINDS][GY_OPS_OF_A_KIND];
  unsigned next[GY_OP_KINDS];
};

struct gy_operator_spec {
  enum gy_operator_kind kind;
  gyre_op_fn fn; /* NULL: GY_OP_PREMUL_SUM */
  void *user;
  double factor;
};

void gy_operators_init(struct gy_operators *all);
void gy_operators_end(struct gy_operators *all);
/* STATE if there are GY_OPS_OF_A_KIND of that kind. */
gyre_status gy_operators_add(struct gy_operators *all, const struct gy_operator_spec *spec,
                             gyre_op *out);
gyre_status gy_operators_remove(struct gy_operators *all, gyre_op op); /* ARG if there is none */
/* Checks the operator of a call of gyre_`function`: ARG if there is none of that number, or it does not
 * take the type. *out: a reference to a created one, NULL for a built-in one. */
gyre_status gy_operators_take(struct gy_operators *all, const char *function, gyre_op op,
                              gyre_dtype type, struct gy_operator **out);
void gy_operator_unref(struct gy_operator *o); /* NULL is allowed */

/* Combines in rank order only. */
bool gy_operator_ordered(const struct gy_operator *o); /* false for NULL */
/* STATE if this thread is inside a created operator's function, where Gyre may not be called. */
gyre_status gy_operator_guard(void);

#endif

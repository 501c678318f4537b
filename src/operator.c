/*
 * operator.c - see operator.h. Also the public functions on operators as such.
 */
#include "operator.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "status.h"

#define FIRST_OF(kind) (GYRE_OP_CREATED_FIRST + (int)(kind)*GY_OPS_OF_A_KIND)

struct gy_operator {
  atomic_uint refs;
  enum gy_operator_kind kind;
  gyre_op_fn fn; /* NULL: a premultiplied sum */
  void *user;
  double factor;
};

static _Thread_local unsigned inside; /* calls of users' functions on this thread */

/* ------------------------------------------------------------------------- what op takes type --- */

static bool is_float(gyre_dtype type) {
  return gyre_op_accepts(GYRE_SUM, type) && !gyre_op_accepts(GYRE_BAND, type);
}

static int kind_of(gyre_op op) { /* -1: not created */
  int place = (int)op - GYRE_OP_CREATED_FIRST;
  return place < 0 || op > GYRE_OP_CREATED_LAST ? -1 : place / GY_OPS_OF_A_KIND;
}

int gyre_op_accepts(gyre_op op, gyre_dtype type) {
  int kind = kind_of(op);
  if ((unsigned)type >= GYRE_DTYPE_COUNT) return 0;
  if (kind >= 0) return kind == GY_OP_PREMUL_SUM ? is_float(type) : 1;
  return (unsigned)op < GYRE_OP_COUNT && gy_reduce_reference(type, op) != NULL;
}

const char *gyre_op_name(gyre_op op) {
  static const char *const names[GYRE_OP_COUNT] = {
      [GYRE_SUM] = "sum",       [GYRE_PROD] = "prod", [GYRE_MIN] = "min",
      [GYRE_MAX] = "max",       [GYRE_AVG] = "avg",   [GYRE_BAND] = "band",
      [GYRE_BOR] = "bor",       [GYRE_BXOR] = "bxor", [GYRE_LAND] = "land",
      [GYRE_LOR] = "lor",       [GYRE_LXOR] = "lxor", [GYRE_MINLOC] = "minloc",
      [GYRE_MAXLOC] = "maxloc",
  };
  static const char *const kinds[GY_OP_KINDS] = {
      [GY_OP_COMMUTATIVE] = "user", [GY_OP_ORDERED] = "user_ordered", [GY_OP_PREMUL_SUM] = "premul_sum"};
  int kind = kind_of(op);
  if (kind >= 0) return kinds[kind];
  return (unsigned)op < GYRE_OP_COUNT ? names[op] : NULL;
}

static gyre_status refuse_type(const char *function, gyre_op op, gyre_dtype type) {
  const char *takes = op <= GYRE_AVG      ? "floating-point types and integers"
                      : op < GYRE_MINLOC  ? "integers"
                      : op <= GYRE_MAXLOC ? "pairs of value and index"
                                          : "floating-point types";
  return gy_fail(GYRE_ERR_ARG, "gyre_%s: operator %s does not take %s; it takes %s", function,
                 gyre_op_name(op), gyre_dtype_name(type), takes);
}

/* ---------------------------------------------------------------------------------- the table --- */

void gy_operators_init(struct gy_operators *all) { pthread_mutex_init(&all->lock, NULL); }

void gy_operators_end(struct gy_operators *all) {
  for (int kind = 0; kind < GY_OP_KINDS; kind++)
    for (int i = 0; i < GY_OPS_OF_A_KIND; i++) gy_operator_unref(all->created[kind][i]);
  pthread_mutex_destroy(&all->lock);
}

void gy_operator_unref(struct gy_operator *o) {
  if (o && atomic_fetch_sub(&o->refs, 1) == 1) free(o);
}

static struct gy_operator **slot_of(struct gy_operators *all, gyre_op op) {
  int kind = kind_of(op);
  return kind < 0 ? NULL : &all->created[kind][(int)op - FIRST_OF(kind)];
}

gyre_status gy_operators_take(struct gy_operators *all, const char *function, gyre_op op,
                              gyre_dtype type, struct gy_operator **out) {
  struct gy_operator **slot = slot_of(all, op), *found = NULL;
  if (!slot && !gyre_op_name(op))
    return gy_fail(GYRE_ERR_ARG, "gyre_%s: %d is no operator", function, (int)op);
  if (!gyre_op_accepts(op, type)) return refuse_type(function, op, type);
  if (slot) {
    pthread_mutex_lock(&all->lock);
    found = *slot;
    if (found) atomic_fetch_add(&found->refs, 1);
    pthread_mutex_unlock(&all->lock);
    if (!found)
      return gy_fail(GYRE_ERR_ARG,
                     "gyre_%s: operator %d is not of this communicator, or it was freed", function,
                     (int)op);
  }
  *out = found;
  return GYRE_OK;
}

gyre_status gy_operators_add(struct gy_operators *all, const struct gy_operator_spec *spec,
                             gyre_op *out) {
  struct gy_operator *o = malloc(sizeof *o);
  if (!o) return gy_fail(GYRE_ERR_NOMEM, "out of memory for an operator");
  *o = (struct gy_operator){
      .kind = spec->kind, .fn = spec->fn, .user = spec->user, .factor = spec->factor};
  atomic_init(&o->refs, 1);
  pthread_mutex_lock(&all->lock);
  unsigned tries = 0, *next = &all->next[spec->kind], place = 0;
  for (; tries < GY_OPS_OF_A_KIND; tries++) {
    place = (*next)++ % GY_OPS_OF_A_KIND;
    if (!all->created[spec->kind][place]) break;
  }
  bool full = tries == GY_OPS_OF_A_KIND;
  if (!full) all->created[spec->kind][place] = o;
  pthread_mutex_unlock(&all->lock);
  if (full) {
    free(o);
    return gy_fail(GYRE_ERR_STATE,
                   "this communicator has %d operators of that kind; free one with gyre_op_free",
                   GY_OPS_OF_A_KIND);
  }
  *out = (gyre_op)(FIRST_OF(spec->kind) + (int)place);
  return GYRE_OK;
}

gyre_status gy_operators_remove(struct gy_operators *all, gyre_op op) {
  struct gy_operator **slot = slot_of(all, op), *found = NULL;
  pthread_mutex_lock(&all->lock);
  if (slot) {
    found = *slot;
    *slot = NULL;
  }
  pthread_mutex_unlock(&all->lock);
  gy_operator_unref(found);
  if (found) return GYRE_OK;
  return gy_fail(GYRE_ERR_ARG, "gyre_op_free: operator %d was not created, or it was freed", (int)op);
}

bool gy_operator_ordered(const struct gy_operator *o) { return o && o->kind == GY_OP_ORDERED; }

/* ---------------------------------------------------------------------------------- reducing --- */

struct gy_reducer gy_reducer_of(gyre_dtype type, gyre_op op, const struct gy_operator *created,
                                int nranks) {
  struct gy_reducer r = {.type = type, .op = created ? GYRE_SUM : op, .created = created};
  if (created && created->fn) return r;
  r.kernel = gy_reduce_kernel(type, r.op);
  if (op == GYRE_AVG) r.divisor = (uint32_t)nranks;
  return r;
}

static bool is_logical(gyre_op op) { return op >= GYRE_LAND && op <= GYRE_LXOR; }

bool gy_operator_prepares(gyre_op op, const struct gy_operator *created, bool single) {
  return created ? !created->fn : single && is_logical(op);
}

void gy_reducer_prepare(const struct gy_reducer *r, void *dst, const void *src, size_t count) {
  if (r->created) gy_multiply(dst, src, count, r->type, r->created->factor);
  else gy_reduce_kernel(r->type, GYRE_LAND)(dst, src, src, count, 0); /* 1 or 0 */
}

void gy_reducer_identity(const struct gy_reducer *r, void *dst, size_t count) {
  if (r->kernel) gy_reduce_identity(dst, count, r->type, r->op);
}

static void call(const struct gy_reducer *r, void *dst, const void *left, const void *right,
                 size_t count) {
  inside++;
  r->created->fn(dst, left, right, count, r->type, r->created->user);
  inside--;
}

#define BOUNCE 1024 /* bytes of each operand at a time */

static void call_by_copies(const struct gy_reducer *r, char *dst, const char *left,
                           const char *right, size_t bytes) {
  _Alignas(16) char a[BOUNCE], b[BOUNCE];
  size_t esize = gyre_dtype_size(r->type);
  for (size_t at = 0, part; at < bytes; at += part) {
    part = bytes - at < BOUNCE ? bytes - at : BOUNCE;
    memcpy(a, left + at, part);
    memcpy(b, right + at, part);
    call(r, a, a, b, part / esize);
    memcpy(dst + at, a, part);
  }
}

void gy_reduce_created(const struct gy_reducer *r, void *dst, const void *left, const void *right,
                       size_t count) {
  size_t esize = gyre_dtype_size(r->type), alignment = esize < 8 ? esize : 8;
  uintptr_t bits = (uintptr_t)dst | (uintptr_t)left | (uintptr_t)right;
  if (count == 0) return;
  if (bits % alignment == 0) call(r, dst, left, right, count);
  else call_by_copies(r, dst, left, right, count * esize);
}

gyre_status gy_operator_guard(void) {
  if (!inside) return GYRE_OK;
  return gy_fail(GYRE_ERR_STATE, "Gyre may not be called from inside an operator's function");
}

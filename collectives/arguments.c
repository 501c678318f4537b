/*
 * arguments.c - see arguments.h.
 */
#include "arguments.h"

struct extent { /* what of a buffer the call touches on this rank; bytes 0: nothing */
  const char *at;
  size_t bytes;
};

static bool overlap(struct extent a, struct extent b) {
  return a.bytes && b.bytes && (uintptr_t)a.at < (uintptr_t)b.at + b.bytes &&
         (uintptr_t)b.at < (uintptr_t)a.at + a.bytes;
}

/* The root of a broadcast or a scatter may say with `out` NULL that it wants no copy of its own. */
static bool may_leave_out_away(const gyre_comm *comm, const struct gy_call *call) {
  return (call->coll == GY_BROADCAST || call->coll == GY_SCATTER) && call->root == comm->core.rank;
}

static size_t bytes_of(const gyre_comm *comm, const struct gy_call *call, enum gy_buf buf,
                       size_t block) {
  bool blocks = gy_coll_traits(call->coll)->layout == GY_BLOCK;
  switch (gy_coll_share(call->coll, buf, comm->core.rank == call->root)) {
    case GY_NOTHING: return 0;
    case GY_OWN_BLOCK: return block;
    default: return blocks ? block * (size_t)comm->core.nranks : block;
  }
}

static gyre_status check_buffers(const gyre_comm *comm, const struct gy_call *call, size_t block) {
  const char *name = gy_coll_name(call->coll);
  struct extent in = {call->in, bytes_of(comm, call, GY_IN, block)};
  struct extent out = {call->out, bytes_of(comm, call, GY_OUT, block)};
  if (!call->out && may_leave_out_away(comm, call)) out.bytes = 0;
  if (in.bytes && !in.at)
    return gy_fail(GYRE_ERR_ARG, "gyre_%s: in is NULL with count %zu", name, call->count);
  if (out.bytes && !out.at)
    return gy_fail(GYRE_ERR_ARG, "gyre_%s: out is NULL with count %zu", name, call->count);
  if (overlap(in, out) && !gy_call_in_place(call, comm->core.rank)) {
    return gy_fail(GYRE_ERR_ARG,
                   "gyre_%s: in and out overlap in part; they must be disjoint or in place", name);
  }
  return GYRE_OK;
}

gyre_status gy_check_call(const gyre_comm *comm, const struct gy_call *call) {
  const struct gy_coll_traits *traits = gy_coll_traits(call->coll);
  const char *name = traits->name;
  if (!comm) return gy_fail(GYRE_ERR_ARG, "gyre_%s: the communicator is NULL", name);
  if (gy_birth_check(&comm->ctx->birth, name)) return GYRE_ERR_STATE;
  size_t esize = gyre_dtype_size(call->dtype), block;
  if (!esize) return gy_fail(GYRE_ERR_ARG, "gyre_%s: %d is no type", name, (int)call->dtype);
  if (!gyre_op_name(call->op))
    return gy_fail(GYRE_ERR_ARG, "gyre_%s: %d is no operator", name, (int)call->op);
  if (gy_coll_is_scan(call->coll) && call->op == GYRE_AVG)
    return gy_fail(GYRE_ERR_ARG, "gyre_%s: there is no average of a scan; use GYRE_SUM", name);
  if (call->root < 0 || call->root >= comm->core.nranks) {
    return gy_fail(GYRE_ERR_ARG, "gyre_%s: root %d: must be from 0 to %d", name, call->root,
                   comm->core.nranks - 1);
  }
  size_t blocks = traits->layout == GY_BLOCK ? (size_t)comm->core.nranks : 1;
  size_t limit = PTRDIFF_MAX / blocks;
  if (__builtin_mul_overflow(call->count, esize, &block) || block > limit) {
    return gy_fail(GYRE_ERR_ARG,
                   "gyre_%s: count %zu of %zu bytes on %d ranks is more than the address space",
                   name, call->count, esize, comm->core.nranks);
  }
  return check_buffers(comm, call, block);
}

void gy_settle_call(const gyre_comm *comm, struct gy_call *call) {
  bool root = comm->core.rank == call->root;
  size_t before = call->count * gyre_dtype_size(call->dtype) * (size_t)comm->core.rank;
  if (!call->out && call->in && may_leave_out_away(comm, call))
    call->out = (char *)(uintptr_t)call->in + (call->coll == GY_SCATTER ? before : 0);
  if (gy_coll_share(call->coll, GY_IN, root) == GY_NOTHING) call->in = NULL;
  if (gy_coll_share(call->coll, GY_OUT, root) == GY_NOTHING) call->out = NULL;
}

/*
 * api.c - the public collectives: argument checks, then one post to the engine.
 *
 * Thread: any. An error found here consumes no place in the communicator's order.
 */
#include <string.h>

#include "../src/comm.h"

static const char *const names[GY_COLL_COUNT] = {
    [GY_ALL_REDUCE] = "gyre_all_reduce", [GY_REDUCE_SCATTER] = "gyre_reduce_scatter",
    [GY_ALL_GATHER] = "gyre_all_gather", [GY_BROADCAST] = "gyre_broadcast",
    [GY_REDUCE] = "gyre_reduce",         [GY_BARRIER] = "gyre_barrier",
};

struct extent { /* what of a buffer the call touches on this rank; bytes 0: nothing */
  const char *at;
  size_t bytes;
};

static bool overlap(struct extent a, struct extent b) {
  return a.bytes && b.bytes && (uintptr_t)a.at < (uintptr_t)b.at + b.bytes &&
         (uintptr_t)b.at < (uintptr_t)a.at + a.bytes;
}

/* in == out, or for the block-wise collectives this rank's block of the larger buffer. */
static bool whole_overlap(const struct gy_call *call, size_t block, int rank) {
  const char *in = call->in, *out = call->out;
  if (call->coll == GY_REDUCE_SCATTER) return out == in + block * (size_t)rank;
  if (call->coll == GY_ALL_GATHER) return in == out + block * (size_t)rank;
  return in == out;
}

static gyre_status check_buffers(const gyre_comm *comm, const struct gy_call *call, size_t block) {
  const char *name = names[call->coll];
  size_t n = (size_t)comm->core.nranks;
  bool root = comm->core.rank == call->root;
  struct extent in = {call->in, call->coll == GY_REDUCE_SCATTER ? block * n : block};
  struct extent out = {call->out, call->coll == GY_ALL_GATHER ? block * n : block};
  if (call->coll == GY_BROADCAST && !root) in.bytes = 0;
  if (call->coll == GY_REDUCE && !root) out.bytes = 0;
  if (call->coll == GY_BROADCAST && root && !call->out) out.bytes = 0;
  if (in.bytes && !in.at)
    return gy_fail(GYRE_ERR_ARG, "%s: in is NULL with count %zu", name, call->count);
  if (out.bytes && !out.at)
    return gy_fail(GYRE_ERR_ARG, "%s: out is NULL with count %zu", name, call->count);
  if (overlap(in, out) && !whole_overlap(call, block, comm->core.rank)) {
    return gy_fail(GYRE_ERR_ARG,
                   "%s: in and out overlap in part; they must be disjoint or in place", name);
  }
  return GYRE_OK;
}

static gyre_status check(const gyre_comm *comm, const struct gy_call *call) {
  const char *name = names[call->coll];
  if (!comm) return gy_fail(GYRE_ERR_ARG, "%s: the communicator is NULL", name);
  size_t esize = gyre_dtype_size(call->dtype), blocks = 1, block;
  if (!esize) return gy_fail(GYRE_ERR_ARG, "%s: %d is no type", name, (int)call->dtype);
  if (!gyre_op_name(call->op))
    return gy_fail(GYRE_ERR_ARG, "%s: %d is no operator", name, (int)call->op);
  if (call->root < 0 || call->root >= comm->core.nranks) {
    return gy_fail(GYRE_ERR_ARG, "%s: root %d: must be from 0 to %d", name, call->root,
                   comm->core.nranks - 1);
  }
  if (call->coll == GY_REDUCE_SCATTER || call->coll == GY_ALL_GATHER)
    blocks = (size_t)comm->core.nranks;
  size_t limit = PTRDIFF_MAX / blocks;
  if (__builtin_mul_overflow(call->count, esize, &block) || block > limit) {
    return gy_fail(GYRE_ERR_ARG,
                   "%s: count %zu of %zu bytes on %d ranks is more than the address space", name,
                   call->count, esize, comm->core.nranks);
  }
  return check_buffers(comm, call, block);
}

/* The engine reads the root's OUT as a copy of IN, and never touches what a rank has no part in. */
static void settle_buffers(const gyre_comm *comm, struct gy_call *call) {
  bool root = comm->core.rank == call->root;
  if (call->coll == GY_BROADCAST && !root) call->in = NULL;
  if (call->coll == GY_BROADCAST && root && !call->out) call->out = (void *)(uintptr_t)call->in;
  if (call->coll == GY_REDUCE && !root) call->out = NULL;
}

static gyre_status post(gyre_comm *comm, struct gy_call call, bool will_wait, gyre_request **req) {
  gyre_status st = req ? check(comm, &call)
                       : gy_fail(GYRE_ERR_ARG, "%s_async: the request is NULL", names[call.coll]);
  if (st) return st;
  settle_buffers(comm, &call);
  return gy_engine_post(comm->engine, &call, will_wait, req);
}

static gyre_status run(gyre_comm *comm, struct gy_call call) {
  gyre_request *req;
  if (gy_loop_in_callback()) {
    return gy_fail(GYRE_ERR_STATE, "%s: not from a callback; use %s_async there", names[call.coll],
                   names[call.coll]);
  }
  gyre_status st = post(comm, call, true, &req);
  return st ? st : gyre_wait(req, -1);
}

gyre_status gyre_all_reduce(gyre_comm *comm, const void *in, void *out, size_t count,
                            gyre_dtype type, gyre_op op) {
  return run(comm, (struct gy_call){GY_ALL_REDUCE, type, op, 0, in, out, count});
}

gyre_status gyre_all_reduce_async(gyre_comm *comm, const void *in, void *out, size_t count,
                                  gyre_dtype type, gyre_op op, gyre_request **req) {
  return post(comm, (struct gy_call){GY_ALL_REDUCE, type, op, 0, in, out, count}, false, req);
}

gyre_status gyre_reduce_scatter(gyre_comm *comm, const void *in, void *out, size_t count,
                                gyre_dtype type, gyre_op op) {
  return run(comm, (struct gy_call){GY_REDUCE_SCATTER, type, op, 0, in, out, count});
}

gyre_status gyre_reduce_scatter_async(gyre_comm *comm, const void *in, void *out, size_t count,
                                      gyre_dtype type, gyre_op op, gyre_request **req) {
  return post(comm, (struct gy_call){GY_REDUCE_SCATTER, type, op, 0, in, out, count}, false, req);
}

gyre_status gyre_all_gather(gyre_comm *comm, const void *in, void *out, size_t count,
                            gyre_dtype type) {
  return run(comm, (struct gy_call){GY_ALL_GATHER, type, GYRE_SUM, 0, in, out, count});
}

gyre_status gyre_all_gather_async(gyre_comm *comm, const void *in, void *out, size_t count,
                                  gyre_dtype type, gyre_request **req) {
  return post(comm, (struct gy_call){GY_ALL_GATHER, type, GYRE_SUM, 0, in, out, count}, false, req);
}

gyre_status gyre_broadcast(gyre_comm *comm, const void *in, void *out, size_t count,
                           gyre_dtype type, int root) {
  return run(comm, (struct gy_call){GY_BROADCAST, type, GYRE_SUM, root, in, out, count});
}

gyre_status gyre_broadcast_async(gyre_comm *comm, const void *in, void *out, size_t count,
                                 gyre_dtype type, int root, gyre_request **req) {
  return post(comm, (struct gy_call){GY_BROADCAST, type, GYRE_SUM, root, in, out, count}, false, req);
}

gyre_status gyre_reduce(gyre_comm *comm, const void *in, void *out, size_t count, gyre_dtype type,
                        gyre_op op, int root) {
  return run(comm, (struct gy_call){GY_REDUCE, type, op, root, in, out, count});
}

gyre_status gyre_reduce_async(gyre_comm *comm, const void *in, void *out, size_t count,
                              gyre_dtype type, gyre_op op, int root, gyre_request **req) {
  return post(comm, (struct gy_call){GY_REDUCE, type, op, root, in, out, count}, false, req);
}

gyre_status gyre_barrier(gyre_comm *comm) {
  return run(comm, (struct gy_call){GY_BARRIER, GYRE_U8, GYRE_SUM, 0, NULL, NULL, 0});
}

gyre_status gyre_barrier_async(gyre_comm *comm, gyre_request **req) {
  return post(comm, (struct gy_call){GY_BARRIER, GYRE_U8, GYRE_SUM, 0, NULL, NULL, 0}, false, req);
}

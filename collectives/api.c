/*
 * api.c - the public collectives: argument checks, then one post to the engine.
 *
 * Thread: any. An error found here consumes no place in the communicator's order.
 */
#include "arguments.h"

static gyre_status post(gyre_comm *comm, struct gy_call call, bool will_wait, gyre_request **req) {
  const struct gy_coll_traits *traits = gy_coll_traits(call.coll);
  gyre_status st = gy_operator_guard();
  if (!st && !req) st = gy_fail(GYRE_ERR_ARG, "gyre_%s_async: the request is NULL", traits->name);
  if (!st) st = gy_check_call(comm, &call);
  if (!st && traits->reduces)
    st = gy_operators_take(&comm->operators, traits->name, call.op, call.dtype, &call.created);
  if (st) return st;
  gy_settle_call(comm, &call);
  st = gy_engine_post(comm->engine, &call, will_wait, req);
  if (st) gy_operator_unref(call.created);
  return st;
}

static gyre_status run(gyre_comm *comm, struct gy_call call) {
  gyre_request *req;
  if (gy_loop_in_callback()) {
    const char *name = gy_coll_name(call.coll);
    return gy_fail(GYRE_ERR_STATE, "gyre_%s: not from a callback; use gyre_%s_async there", name,
                   name);
  }
  gyre_status st = post(comm, call, true, &req);
  return st ? st : gyre_wait(req, -1);
}

gyre_status gyre_all_reduce(gyre_comm *comm, const void *in, void *out, size_t count,
                            gyre_dtype type, gyre_op op) {
  return run(
      comm,
      (struct gy_call){
          .coll = GY_ALL_REDUCE, .dtype = type, .op = op, .in = in, .out = out, .count = count});
}

gyre_status gyre_all_reduce_async(gyre_comm *comm, const void *in, void *out, size_t count,
                                  gyre_dtype type, gyre_op op, gyre_request **req) {
  return post(
      comm,
      (struct gy_call){
          .coll = GY_ALL_REDUCE, .dtype = type, .op = op, .in = in, .out = out, .count = count},
      false, req);
}

gyre_status gyre_all_reduce_weighted(gyre_comm *comm, const void *in, void *out, size_t count,
                                     gyre_dtype type, gyre_op op, double weight, double *total) {
  return run(comm, (struct gy_call){.coll = GY_ALL_REDUCE_WEIGHTED,
                                    .dtype = type,
                                    .op = op,
                                    .in = in,
                                    .out = out,
                                    .count = count,
                                    .weight = weight,
                                    .total = total});
}

gyre_status gyre_all_reduce_weighted_async(gyre_comm *comm, const void *in, void *out, size_t count,
                                           gyre_dtype type, gyre_op op, double weight,
                                           double *total, gyre_request **req) {
  return post(comm,
              (struct gy_call){.coll = GY_ALL_REDUCE_WEIGHTED,
                               .dtype = type,
                               .op = op,
                               .in = in,
                               .out = out,
                               .count = count,
                               .weight = weight,
                               .total = total},
              false, req);
}

gyre_status gyre_reduce_scatter(gyre_comm *comm, const void *in, void *out, size_t count,
                                gyre_dtype type, gyre_op op) {
  return run(
      comm,
      (struct gy_call){
          .coll = GY_REDUCE_SCATTER, .dtype = type, .op = op, .in = in, .out = out, .count = count});
}

gyre_status gyre_reduce_scatter_async(gyre_comm *comm, const void *in, void *out, size_t count,
                                      gyre_dtype type, gyre_op op, gyre_request **req) {
  return post(
      comm,
      (struct gy_call){
          .coll = GY_REDUCE_SCATTER, .dtype = type, .op = op, .in = in, .out = out, .count = count},
      false, req);
}

gyre_status gyre_all_gather(gyre_comm *comm, const void *in, void *out, size_t count,
                            gyre_dtype type) {
  return run(comm, (struct gy_call){
                       .coll = GY_ALL_GATHER, .dtype = type, .in = in, .out = out, .count = count});
}

gyre_status gyre_all_gather_async(gyre_comm *comm, const void *in, void *out, size_t count,
                                  gyre_dtype type, gyre_request **req) {
  return post(
      comm,
      (struct gy_call){.coll = GY_ALL_GATHER, .dtype = type, .in = in, .out = out, .count = count},
      false, req);
}

gyre_status gyre_broadcast(gyre_comm *comm, const void *in, void *out, size_t count,
                           gyre_dtype type, int root) {
  return run(
      comm,
      (struct gy_call){
          .coll = GY_BROADCAST, .dtype = type, .root = root, .in = in, .out = out, .count = count});
}

gyre_status gyre_broadcast_async(gyre_comm *comm, const void *in, void *out, size_t count,
                                 gyre_dtype type, int root, gyre_request **req) {
  return post(
      comm,
      (struct gy_call){
          .coll = GY_BROADCAST, .dtype = type, .root = root, .in = in, .out = out, .count = count},
      false, req);
}

gyre_status gyre_reduce(gyre_comm *comm, const void *in, void *out, size_t count, gyre_dtype type,
                        gyre_op op, int root) {
  return run(comm, (struct gy_call){.coll = GY_REDUCE,
                                    .dtype = type,
                                    .op = op,
                                    .root = root,
                                    .in = in,
                                    .out = out,
                                    .count = count});
}

gyre_status gyre_reduce_async(gyre_comm *comm, const void *in, void *out, size_t count,
                              gyre_dtype type, gyre_op op, int root, gyre_request **req) {
  return post(
      comm,
      (struct gy_call){
          .coll = GY_REDUCE, .dtype = type, .op = op, .root = root, .in = in, .out = out, .count = count},
      false, req);
}

gyre_status gyre_gather(gyre_comm *comm, const void *in, void *out, size_t count, gyre_dtype type,
                        int root) {
  return run(
      comm,
      (struct gy_call){
          .coll = GY_GATHER, .dtype = type, .root = root, .in = in, .out = out, .count = count});
}

gyre_status gyre_gather_async(gyre_comm *comm, const void *in, void *out, size_t count,
                              gyre_dtype type, int root, gyre_request **req) {
  return post(
      comm,
      (struct gy_call){
          .coll = GY_GATHER, .dtype = type, .root = root, .in = in, .out = out, .count = count},
      false, req);
}

gyre_status gyre_scatter(gyre_comm *comm, const void *in, void *out, size_t count, gyre_dtype type,
                         int root) {
  return run(
      comm,
      (struct gy_call){
          .coll = GY_SCATTER, .dtype = type, .root = root, .in = in, .out = out, .count = count});
}

gyre_status gyre_scatter_async(gyre_comm *comm, const void *in, void *out, size_t count,
                               gyre_dtype type, int root, gyre_request **req) {
  return post(
      comm,
      (struct gy_call){
          .coll = GY_SCATTER, .dtype = type, .root = root, .in = in, .out = out, .count = count},
      false, req);
}

gyre_status gyre_all_to_all(gyre_comm *comm, const void *in, void *out, size_t count,
                            gyre_dtype type) {
  return run(comm, (struct gy_call){
                       .coll = GY_ALL_TO_ALL, .dtype = type, .in = in, .out = out, .count = count});
}

gyre_status gyre_all_to_all_async(gyre_comm *comm, const void *in, void *out, size_t count,
                                  gyre_dtype type, gyre_request **req) {
  return post(
      comm,
      (struct gy_call){.coll = GY_ALL_TO_ALL, .dtype = type, .in = in, .out = out, .count = count},
      false, req);
}

gyre_status gyre_scan(gyre_comm *comm, const void *in, void *out, size_t count, gyre_dtype type,
                      gyre_op op) {
  return run(comm,
             (struct gy_call){
                 .coll = GY_SCAN, .dtype = type, .op = op, .in = in, .out = out, .count = count});
}

gyre_status gyre_scan_async(gyre_comm *comm, const void *in, void *out, size_t count,
                            gyre_dtype type, gyre_op op, gyre_request **req) {
  return post(comm,
              (struct gy_call){
                  .coll = GY_SCAN, .dtype = type, .op = op, .in = in, .out = out, .count = count},
              false, req);
}

gyre_status gyre_exclusive_scan(gyre_comm *comm, const void *in, void *out, size_t count,
                                gyre_dtype type, gyre_op op) {
  return run(
      comm,
      (struct gy_call){
          .coll = GY_EXCLUSIVE_SCAN, .dtype = type, .op = op, .in = in, .out = out, .count = count});
}

gyre_status gyre_exclusive_scan_async(gyre_comm *comm, const void *in, void *out, size_t count,
                                      gyre_dtype type, gyre_op op, gyre_request **req) {
  return post(
      comm,
      (struct gy_call){
          .coll = GY_EXCLUSIVE_SCAN, .dtype = type, .op = op, .in = in, .out = out, .count = count},
      false, req);
}

gyre_status gyre_all_gather_v(gyre_comm *comm, const void *in, void *out, const size_t *counts,
                              const size_t *displs, gyre_dtype type) {
  return run(comm, (struct gy_call){.coll = GY_ALL_GATHER_V,
                                    .dtype = type,
                                    .in = in,
                                    .out = out,
                                    .counts = {NULL, counts},
                                    .displs = {NULL, displs}});
}

gyre_status gyre_all_gather_v_async(gyre_comm *comm, const void *in, void *out, const size_t *counts,
                                    const size_t *displs, gyre_dtype type, gyre_request **req) {
  return post(comm,
              (struct gy_call){.coll = GY_ALL_GATHER_V,
                               .dtype = type,
                               .in = in,
                               .out = out,
                               .counts = {NULL, counts},
                               .displs = {NULL, displs}},
              false, req);
}

gyre_status gyre_reduce_scatter_v(gyre_comm *comm, const void *in, void *out, const size_t *counts,
                                  const size_t *displs, gyre_dtype type, gyre_op op) {
  return run(comm, (struct gy_call){.coll = GY_REDUCE_SCATTER_V,
                                    .dtype = type,
                                    .op = op,
                                    .in = in,
                                    .out = out,
                                    .counts = {counts, NULL},
                                    .displs = {displs, NULL}});
}

gyre_status gyre_reduce_scatter_v_async(gyre_comm *comm, const void *in, void *out,
                                        const size_t *counts, const size_t *displs, gyre_dtype type,
                                        gyre_op op, gyre_request **req) {
  return post(comm,
              (struct gy_call){.coll = GY_REDUCE_SCATTER_V,
                               .dtype = type,
                               .op = op,
                               .in = in,
                               .out = out,
                               .counts = {counts, NULL},
                               .displs = {displs, NULL}},
              false, req);
}

gyre_status gyre_all_to_all_v(gyre_comm *comm, const void *in, const size_t *in_counts,
                              const size_t *in_displs, void *out, const size_t *out_counts,
                              const size_t *out_displs, gyre_dtype type) {
  return run(comm, (struct gy_call){.coll = GY_ALL_TO_ALL_V,
                                    .dtype = type,
                                    .in = in,
                                    .out = out,
                                    .counts = {in_counts, out_counts},
                                    .displs = {in_displs, out_displs}});
}

gyre_status gyre_all_to_all_v_async(gyre_comm *comm, const void *in, const size_t *in_counts,
                                    const size_t *in_displs, void *out, const size_t *out_counts,
                                    const size_t *out_displs, gyre_dtype type, gyre_request **req) {
  return post(comm,
              (struct gy_call){.coll = GY_ALL_TO_ALL_V,
                               .dtype = type,
                               .in = in,
                               .out = out,
                               .counts = {in_counts, out_counts},
                               .displs = {in_displs, out_displs}},
              false, req);
}

/* Elsewhere they are ignored. */
static const size_t *on_root(const gyre_comm *comm, int root, const size_t *array) {
  return comm && comm->core.rank == root ? array : NULL;
}

gyre_status gyre_gather_v(gyre_comm *comm, const void *in, size_t count, void *out,
                          const size_t *counts, const size_t *displs, gyre_dtype type, int root) {
  return run(comm, (struct gy_call){.coll = GY_GATHER_V,
                                    .dtype = type,
                                    .root = root,
                                    .in = in,
                                    .out = out,
                                    .count = count,
                                    .counts = {NULL, on_root(comm, root, counts)},
                                    .displs = {NULL, on_root(comm, root, displs)}});
}

gyre_status gyre_gather_v_async(gyre_comm *comm, const void *in, size_t count, void *out,
                                const size_t *counts, const size_t *displs, gyre_dtype type,
                                int root, gyre_request **req) {
  return post(comm,
              (struct gy_call){.coll = GY_GATHER_V,
                               .dtype = type,
                               .root = root,
                               .in = in,
                               .out = out,
                               .count = count,
                               .counts = {NULL, on_root(comm, root, counts)},
                               .displs = {NULL, on_root(comm, root, displs)}},
              false, req);
}

gyre_status gyre_scatter_v(gyre_comm *comm, const void *in, const size_t *counts,
                           const size_t *displs, void *out, size_t count, gyre_dtype type, int root) {
  return run(comm, (struct gy_call){.coll = GY_SCATTER_V,
                                    .dtype = type,
                                    .root = root,
                                    .in = in,
                                    .out = out,
                                    .count = count,
                                    .counts = {on_root(comm, root, counts), NULL},
                                    .displs = {on_root(comm, root, displs), NULL}});
}

gyre_status gyre_scatter_v_async(gyre_comm *comm, const void *in, const size_t *counts,
                                 const size_t *displs, void *out, size_t count, gyre_dtype type,
                                 int root, gyre_request **req) {
  return post(comm,
              (struct gy_call){.coll = GY_SCATTER_V,
                               .dtype = type,
                               .root = root,
                               .in = in,
                               .out = out,
                               .count = count,
                               .counts = {on_root(comm, root, counts), NULL},
                               .displs = {on_root(comm, root, displs), NULL}},
              false, req);
}

gyre_status gyre_barrier(gyre_comm *comm) {
  return run(comm, (struct gy_call){.coll = GY_BARRIER, .dtype = GYRE_U8});
}

gyre_status gyre_barrier_async(gyre_comm *comm, gyre_request **req) {
  return post(comm, (struct gy_call){.coll = GY_BARRIER, .dtype = GYRE_U8}, false, req);
}

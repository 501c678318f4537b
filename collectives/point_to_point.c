/*
 * point_to_point.c - the public sends and receives: argument checks, then one post to the engine.
 *
 * Thread: any. An error found here takes no number.
 */
#include "../src/comm.h"
#include "../src/message.h"

static const char *name_of(const struct gy_call *call) {
  return call->receives ? "gyre_recv" : "gyre_send";
}

static gyre_status check(const gyre_comm *comm, const struct gy_call *call) {
  const char *name = name_of(call);
  size_t esize = gyre_dtype_size(call->dtype), bytes;
  if (!comm) return gy_fail(GYRE_ERR_ARG, "%s: the communicator is NULL", name);
  if (gy_birth_check(&comm->ctx->birth, name)) return GYRE_ERR_STATE;
  if (!esize) return gy_fail(GYRE_ERR_ARG, "%s: %d is no type", name, (int)call->dtype);
  if (call->root < 0 || call->root >= comm->core.nranks) {
    return gy_fail(GYRE_ERR_ARG, "%s: %s rank %d: must be from 0 to %d", name,
                   call->receives ? "from" : "to", call->root, comm->core.nranks - 1);
  }
  if (__builtin_mul_overflow(call->count, esize, &bytes) || bytes > PTRDIFF_MAX) {
    return gy_fail(GYRE_ERR_ARG, "%s: count %zu of %zu bytes is more than the address space", name,
                   call->count, esize);
  }
  if (bytes && !(call->receives ? call->out : call->in))
    return gy_fail(GYRE_ERR_ARG, "%s: the buffer is NULL with count %zu", name, call->count);
  return GYRE_OK;
}

static gyre_status post(gyre_comm *comm, struct gy_call call, bool will_wait, gyre_request **req) {
  gyre_status st = gy_operator_guard();
  if (!st && !req) st = gy_fail(GYRE_ERR_ARG, "%s_async: the request is NULL", name_of(&call));
  if (!st) st = check(comm, &call);
  return st ? st : gy_engine_post(comm->engine, &call, will_wait, req);
}

static gyre_status run(gyre_comm *comm, struct gy_call call) {
  gyre_request *req;
  if (gy_loop_in_callback()) {
    return gy_fail(GYRE_ERR_STATE, "%s: not from a callback; use %s_async there", name_of(&call),
                   name_of(&call));
  }
  gyre_status st = post(comm, call, true, &req);
  return st ? st : gyre_wait(req, -1);
}

static struct gy_call send_of(const void *buffer, size_t count, gyre_dtype type, int to) {
  return (struct gy_call){
      .coll = (enum gy_coll)GY_MESSAGE, .dtype = type, .root = to, .in = buffer, .count = count};
}

static struct gy_call recv_of(void *buffer, size_t count, gyre_dtype type, int from) {
  return (struct gy_call){.coll = (enum gy_coll)GY_MESSAGE,
                          .receives = true,
                          .dtype = type,
                          .root = from,
                          .out = buffer,
                          .count = count};
}

gyre_status gyre_send(gyre_comm *comm, const void *buffer, size_t count, gyre_dtype type, int to) {
  return run(comm, send_of(buffer, count, type, to));
}

gyre_status gyre_send_async(gyre_comm *comm, const void *buffer, size_t count, gyre_dtype type,
                            int to, gyre_request **req) {
  return post(comm, send_of(buffer, count, type, to), false, req);
}

gyre_status gyre_recv(gyre_comm *comm, void *buffer, size_t count, gyre_dtype type, int from) {
  return run(comm, recv_of(buffer, count, type, from));
}

gyre_status gyre_recv_async(gyre_comm *comm, void *buffer, size_t count, gyre_dtype type, int from,
                            gyre_request **req) {
  return post(comm, recv_of(buffer, count, type, from), false, req);
}

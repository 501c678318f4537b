/* request.c - see request.h. Also the public functions on requests. */
#include "request.h"

#include "operator.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "fork.h"

#define POOL_KEEP 256 /* unused requests kept for the next post */

struct gy_request_pool {
  struct gy_birth birth;
  pthread_mutex_t lock;
  struct gy_loop *loop; /* NULL once the context is gone */
  gyre_request *unused;
  size_t n_unused, n_out;
};

gyre_status gy_request_pool_create(struct gy_loop *loop, struct gy_request_pool **out) {
  struct gy_request_pool *pool = calloc(1, sizeof *pool);
  if (!pool) return gy_fail(GYRE_ERR_NOMEM, "out of memory for the request pool");
  pthread_mutex_init(&pool->lock, NULL);
  pool->loop = loop;
  pool->birth = gy_birth_now();
  *out = pool;
  return GYRE_OK;
}

static void pool_free(struct gy_request_pool *pool) {
  while (pool->unused) {
    gyre_request *next = pool->unused->next;
    free(pool->unused);
    pool->unused = next;
  }
  pthread_mutex_destroy(&pool->lock);
  free(pool);
}

void gy_request_pool_release(struct gy_request_pool *pool) {
  pthread_mutex_lock(&pool->lock);
  pool->loop = NULL;
  bool last = pool->n_out == 0;
  pthread_mutex_unlock(&pool->lock);
  if (last) pool_free(pool);
}

gyre_request *gy_request_create(struct gy_request_pool *pool) {
  pthread_mutex_lock(&pool->lock);
  gyre_request *req = pool->unused;
  if (req) {
    pool->unused = req->next;
    pool->n_unused--;
  } else {
    req = malloc(sizeof *req);
  }
  if (req) pool->n_out++;
  pthread_mutex_unlock(&pool->lock);
  if (!req) {
    gy_fail(GYRE_ERR_NOMEM, "out of memory for a request");
    return NULL;
  }
  atomic_init(&req->done, 0);
  atomic_init(&req->refs, 2);
  atomic_init(&req->has_callback, false);
  req->status = GYRE_IN_PROGRESS;
  req->text[0] = 0;
  req->pool = pool;
  req->armed = false;
  req->completed = NULL;
  return req;
}

void gy_request_unref(gyre_request *req) {
  if (atomic_fetch_sub(&req->refs, 1) != 1) return;
  struct gy_request_pool *pool = req->pool;
  pthread_mutex_lock(&pool->lock);
  pool->n_out--;
  bool orphaned = !pool->loop && pool->n_out == 0;
  bool keep = pool->loop && pool->n_unused < POOL_KEEP;
  if (keep) {
    req->next = pool->unused;
    pool->unused = req;
    pool->n_unused++;
  }
  pthread_mutex_unlock(&pool->lock);
  if (!keep) free(req);
  if (orphaned) pool_free(pool);
}

static void run_callback(struct gy_command *c) {
  gyre_request *req = (gyre_request *)(void *)((char *)c - offsetof(gyre_request, call));
  req->callback(req, req->status, req->user);
  gy_request_unref(req);
}

static void defer_callback(gyre_request *req) {
  req->call.run = run_callback;
  gy_loop_defer(req->pool->loop, &req->call);
}

void gy_request_complete(gyre_request *req, gyre_status status, const char *text) {
  req->status = status;
  if (status < 0)
    gy_format(req->text, sizeof req->text, "%s", text ? text : gyre_status_name(status));
  if (req->completed) req->completed(req, req->owner);
  if (req->armed) defer_callback(req);
  gy_loop_complete(req->pool->loop, &req->done);
  gy_request_unref(req);
}

/* (locked) The other half of gyre_request_on_complete. */
static void arm_callback(struct gy_command *c) {
  gyre_request *req = (gyre_request *)(void *)((char *)c - offsetof(gyre_request, arm));
  if (atomic_load(&req->done)) {
    defer_callback(req);
  } else {
    req->armed = true;
  }
}

gyre_status gyre_request_on_complete(gyre_request *req, gyre_callback fn, void *user) {
  if (gy_operator_guard()) return GYRE_ERR_STATE;
  if (!req || !fn)
    return gy_fail(GYRE_ERR_ARG, "gyre_request_on_complete: the request or the callback is NULL");
  if (gy_birth_check(&req->pool->birth, "gyre_request_on_complete")) return GYRE_ERR_STATE;
  struct gy_loop *loop = req->pool->loop;
  if (!loop)
    return gy_fail(GYRE_ERR_STATE, "gyre_request_on_complete: the request's context is destroyed");
  if (atomic_exchange(&req->has_callback, true)) {
    return gy_fail(GYRE_ERR_STATE, "gyre_request_on_complete: this request has a callback already");
  }
  req->callback = fn;
  req->user = user;
  req->arm.run = arm_callback;
  atomic_fetch_add(&req->refs, 1); /* the callback's */
  gy_loop_post(loop, &req->arm, false);
  return GYRE_OK;
}

static gyre_status outcome(const gyre_request *req) {
  return req->status < 0 ? gy_fail_text(req->status, req->text) : req->status;
}

gyre_status gyre_test(gyre_request *req) {
  if (gy_operator_guard()) return GYRE_ERR_STATE;
  if (!req) return GYRE_OK;
  if (gy_birth_check(&req->pool->birth, "gyre_test")) return GYRE_ERR_STATE;
  if (!atomic_load_explicit(&req->done, memory_order_acquire)) {
    if (!gy_loop_in_callback()) gy_loop_progress(req->pool->loop);
    if (!atomic_load_explicit(&req->done, memory_order_acquire)) return GYRE_IN_PROGRESS;
  }
  return outcome(req);
}

gyre_status gyre_wait(gyre_request *req, int timeout_ms) {
  if (gy_operator_guard()) return GYRE_ERR_STATE;
  if (!req) return GYRE_OK;
  if (gy_birth_check(&req->pool->birth, "gyre_wait")) return GYRE_ERR_STATE;
  if (gy_loop_in_callback()) {
    return gy_fail(GYRE_ERR_STATE, "gyre_wait: not from a callback; use gyre_test there");
  }
  if (!atomic_load_explicit(&req->done, memory_order_acquire) &&
      gy_loop_wait(req->pool->loop, &req->done, timeout_ms) == GYRE_IN_PROGRESS) {
    return GYRE_IN_PROGRESS;
  }
  gyre_status st = outcome(req);
  gy_request_unref(req);
  return st;
}

void gyre_request_free(gyre_request *req) {
  if (!req || gy_birth_check(&req->pool->birth, "gyre_request_free")) return;
  gy_request_unref(req);
}

/*
 * request.h - one operation in flight, as its caller sees it.
 *
 * Role:   the handle behind gyre_request: done or not, with which status, and whose callback. Two
 *         references: the caller's and the library's; requests outlive their communicator and even
 *         their context.
 * Thread: create, wait, test, free: any. complete: the driving thread, locked.
 * Owner:  a pool per context, so that posting allocates nothing once warm.
 */
#ifndef GY_REQUEST_H
#define GY_REQUEST_H

#include "loop.h"
#include "status.h"

struct gy_request_pool;

struct gyre_request {
  atomic_int done;
  atomic_int refs;
  gyre_status status; /* valid once done */
  char text[512];     /* of a failure */
  struct gy_request_pool *pool;
  gyre_request *next; /* in the pool */
  atomic_bool has_callback;
  bool armed; /* (locked) the callback is to be deferred at completion */
  gyre_callback callback;
  void *user;
  struct gy_command arm, call;
  /* (locked) Runs once before the callback, at completion; for the owner of the operation. */
  void (*completed)(gyre_request *req, void *owner);
  void *owner;
};

gyre_status gy_request_pool_create(struct gy_loop *loop, struct gy_request_pool **out);
/* The context is going: requests that are still held work on without a loop. */
void gy_request_pool_release(struct gy_request_pool *pool);

/* With two references; NULL and gyre_last_error() if out of memory. */
gyre_request *gy_request_create(struct gy_request_pool *pool);
void gy_request_unref(gyre_request *req);
/* (locked) Drops the library's reference. `text` is copied if status is an error. */
void gy_request_complete(gyre_request *req, gyre_status status, const char *text);

#endif

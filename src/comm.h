/*
 * comm.h - a communicator: bootstrap, then engine and fault detection side by side.
 *
 * Thread: created, posted to and destroyed from any thread; its inside is locked (loop.h).
 * Owner:  the user; a communicator that is being created is the context's until its request
 *         completes.
 */
#ifndef GY_COMM_H
#define GY_COMM_H

#include "bootstrap.h"
#include "context.h"
#include "engine.h"
#include "fault.h"
#include <pthread.h>

struct gyre_comm {
  gyre_comm *next; /* in the context's list */
  gyre_context *ctx;
  struct gy_source source;
  struct gy_command start, end;
  struct gy_settings settings; /* the context's, then the configuration struct */
  struct gy_comm_core core;
  struct gy_bootstrap *bootstrap; /* while being created */
  gyre_unique_id id;
  gyre_oob oob;
  uint32_t flags;
  bool has_id, has_oob;
  gyre_comm **out; /* of gyre_comm_create */
  gyre_request *creating;
  struct gy_roster *roster;
  struct gy_engine *engine;
  struct gy_fault *fault;
  const struct gy_tl_ops **peer_ops;
  bool applied;  /* the verdict has been applied to the engine */
  char why[256]; /* of gyre_comm_abort */
  struct gy_command abort;
  atomic_bool aborting;
  pthread_mutex_t verdict_lock;
  gyre_error verdict; /* a copy for gyre_comm_status */
  atomic_int ended;   /* destroy may free */
};

/* Destroys what is left, creations in progress included. */
void gy_comm_destroy_all(gyre_context *ctx);

#endif

/*
 * context.h - what a process has once: settings, loop, listening port, request pool.
 *
 * Thread: created and destroyed by the user's thread; the list of communicators is locked (loop.h).
 * Owner:  the user.
 */
#ifndef GY_CONTEXT_H
#define GY_CONTEXT_H

#include "fork.h"
#include "loop.h"
#include "net.h"
#include "request.h"

struct gyre_context {
  struct gy_birth birth;
  struct gy_settings settings; /* defaults, environment, then the configuration struct */
  struct gy_loop *loop;
  struct gy_net *net;
  struct gy_request_pool *requests;
  struct gy_dump_signal *dump_signal; /* NULL: none */
  struct gy_query *query;             /* NULL: nobody may ask */
  gyre_comm *comms;                   /* those that exist, being created ones included */
  int cores;                          /* processors this process may run on */
  bool unattended;                    /* without a progress thread */
  bool ending;                        /* (locked) gyre_context_destroy has been called */
};

#endif

/*
 * work.h - a piece of work that may block (a name look-up, a file on a network), on a thread of its
 * own.
 *
 * Role:   as uv_queue_work, but the thread ends with the work. libuv's pool lives as long as the
 *         process and is joined when the process exits, which crashes in a forked child, where its
 *         threads do not exist; and where no thread can be had, it aborts the process.
 * Thread: started on the driving thread, where `after` runs, too, from the loop.
 * Owner:  the struct is its user's, who keeps it until `after` has begun.
 */
#ifndef GY_WORK_H
#define GY_WORK_H

#include <pthread.h>
#include <stdbool.h>
#include <uv.h>

struct gy_work {
  void *data; /* the user's */
  void (*run)(struct gy_work *w);
  void (*after)(struct gy_work *w);
  uv_async_t done;
  pthread_t thread;
  bool threaded; /* else there was no thread to be had, and it was done on the spot */
};

/* Never fails. It cannot be taken back: `after` runs when the work is over. */
void gy_work_start(uv_loop_t *loop, struct gy_work *w, void (*run)(struct gy_work *w),
                   void (*after)(struct gy_work *w));

#endif

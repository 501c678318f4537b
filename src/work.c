/* work.c - see work.h. */
#include "work.h"

#include <signal.h>

static void on_closed(uv_handle_t *handle) {
  struct gy_work *w = handle->data;
  w->after(w);
}

static void on_done(uv_async_t *async) {
  struct gy_work *w = async->data;
  if (w->threaded) pthread_join(w->thread, NULL); /* it has nothing left to do */
  uv_close((uv_handle_t *)async, on_closed);
}

static void *work_main(void *arg) {
  struct gy_work *w = arg;
  w->run(w);
  uv_async_send(&w->done);
  return NULL;
}

void gy_work_start(uv_loop_t *loop, struct gy_work *w, void (*run)(struct gy_work *w),
                   void (*after)(struct gy_work *w)) {
  sigset_t all, old;
  w->run = run;
  w->after = after;
  uv_async_init(loop, &w->done, on_done); /* fails only for the first of a loop, which is libuv's */
  w->done.data = w;
  w->threaded = true; /* before the thread can be over */
  sigfillset(&all);   /* the application's signals are for its own threads */
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int rc = pthread_create(&w->thread, NULL, work_main, w);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (rc == 0) return;
  w->threaded = false;
  work_main(w);
}

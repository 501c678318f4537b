/*
 * loop.h - who runs the loop: one driver at a time.
 *
 * Role:   a context has one libuv loop, one lock around everything that runs on it (libuv's
 *         callbacks, transports, the engine) and one driver slot. A thread that waits becomes the
 *         driver and makes passes itself, so the packet that ends its wait wakes it directly; the
 *         background thread drives what waiters leave behind.
 * Thread: gy_loop_post, gy_loop_wait, gy_loop_progress: any thread. Everything marked (locked): the
 *         driving thread, with the lock held, that is, from a command, a source, a libuv callback.
 * Owner:  the context.
 *
 * tests/model/loop.pml is a Promela model of the hand-over; keep the two in step.
 */
#ifndef GY_LOOP_H
#define GY_LOOP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <uv.h>
#include "settings.h"

struct gy_loop;

struct gy_command { /* a piece of work for the driving thread; storage is the poster's until it has run */
  struct gy_command *next;
  void (*run)(struct gy_command *c);
};

struct gy_source { /* what makes progress in a pass: one for each communicator */
  struct gy_source *next;
  unsigned (*pass)(struct gy_source *s,
                   bool spin);      /* events handled; spin: the driver is busy-polling */
  bool (*arm)(struct gy_source *s); /* false: do not sleep, there is more to do */
};

gyre_status gy_loop_create(const struct gy_settings *settings, bool background, struct gy_loop **out);
/* Joins the background thread, then runs the loop until no handle is left, and frees it. */
void gy_loop_destroy(struct gy_loop *l);
uv_loop_t *gy_loop_uv(struct gy_loop *l);

/* Runs the command soon on the driving thread; at once on this one, if nobody drives. Never blocks.
 * `will_wait`: the caller calls gy_loop_wait next, so the background thread need not be woken. */
void gy_loop_post(struct gy_loop *l, struct gy_command *c, bool will_wait);
/* The two halves of gy_loop_post, for a poster that orders its commands under a lock of its own:
 * push inside, kick outside. */
void gy_loop_push(struct gy_loop *l, struct gy_command *c);
void gy_loop_kick(struct gy_loop *l, bool will_wait);
/* Until *done is not 0, or timeout_ms is over (-1: no limit; 0: one pass): returns GYRE_OK or
 * GYRE_IN_PROGRESS. */
gyre_status gy_loop_wait(struct gy_loop *l, const atomic_int *done, int timeout_ms);
/* Runs fn on the driving thread, locked, and returns when it has. Not from a callback. */
void gy_loop_call(struct gy_loop *l, void (*fn)(void *arg), void *arg);
/* uv_poll_init, that fails where libuv would abort. */
gyre_status gy_loop_watch(uv_loop_t *uv, uv_poll_t *poll, int fd);
/* One pass without blocking, unless another thread drives. Callbacks run here. */
void gy_loop_progress(struct gy_loop *l);
/* For other event loops; see gyre_context_fd. -1 and gyre_last_error() on failure. */
int gy_loop_fd(struct gy_loop *l);

/* (locked, or from a deferred command) Sets *done and wakes whoever waits for it. */
void gy_loop_complete(struct gy_loop *l, atomic_int *done);
/* (locked) Runs the command after the lock has been released, on a driver; one at a time, in
 * order. */
void gy_loop_defer(struct gy_loop *l, struct gy_command *c);
/* (locked) */
void gy_loop_add(struct gy_loop *l, struct gy_source *s);
void gy_loop_remove(struct gy_loop *l, struct gy_source *s);
/* (locked) Counts operations in flight: while there are any, somebody drives. */
void gy_loop_busy(struct gy_loop *l, int delta);
/* (locked) The ranks of this host exceed its cores: spinning gives way. */
void gy_loop_yield(struct gy_loop *l, bool on);
/* (locked) A spinning driver gives libuv its turn in the next pass already. */
void gy_loop_turn(struct gy_loop *l);
/* (locked) gy_loop_uv's time in milliseconds, taken when the pass began; and when the pass before
 * it began, so that a timer can tell that it was this process that slept. */
uint64_t gy_loop_now(const struct gy_loop *l);
uint64_t gy_loop_last_pass(const struct gy_loop *l);
/* Whether this thread is inside a deferred command (a user's callback). */
bool gy_loop_in_callback(void);

#endif

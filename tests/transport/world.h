/*
 * world.h - a few ranks in one thread that speak through one transport: each with a net, a core and
 * links of its own, on one loop.
 *
 * Stands where the engine stands: it posts transfers through the function table and takes note of
 * what is reported. Every report is checked at once: in order, once, never from inside a post.
 *
 * Thread: one. Owner: the test; world_close ends everything.
 */
#ifndef TEST_WORLD_H
#define TEST_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "transport/transport.h"

#define WORLD_MAX_RANKS 3
#define WORLD_MAX_ENDS 16
#define WORLD_LIMIT_MS 300000 /* a round that takes longer has failed */

struct world;

struct end { /* one rank's end of a link, and what it was told */
  struct world *world;
  struct gy_link *link;        /* NULL once closed */
  uint32_t posted[2], done[2]; /* sends, receives */
  unsigned downs, mismatches, unclaimed;
  gyre_status why;
  int sys_errno;
  char text[512];
  struct gy_descriptor call; /* of its transfers */
  struct gy_descriptor mine, theirs;
};

struct transfer {
  struct gy_xfer x; /* first */
  struct gy_reducer reducer;
  bool recv, done;
};

struct rank {
  struct gy_settings settings;
  struct gy_net *net;
  struct gy_comm_core core;
  struct gy_tl *tl; /* NULL: this rank's links are made by hand */
};

struct world {
  const struct gy_tl_ops *ops;
  bool spin; /* never sleeps */
  uv_loop_t loop;
  uv_timer_t limit;
  bool late, posting;
  int closed;
  struct gy_roster roster;
  struct gy_member member[WORLD_MAX_RANKS];
  struct rank rank[WORLD_MAX_RANKS];
  struct gy_descriptor call; /* what links start with */
  struct end end[WORLD_MAX_ENDS];
  unsigned n_end, told; /* told: how often a link was reported down or mismatched */
  unsigned turns;       /* of the loop */
};

void world_open(struct world *w, const struct gy_tl_ops *ops, int nranks, uint32_t window);
/* A round: transports with an epoch of their own, on nets that stay. */
void world_open_transports(struct world *w);
void world_open_transport(struct world *w,
                          int rank); /* of this rank alone; the other end is made by hand */
void world_close_transports(struct world *w);
void world_close(struct world *w);
/* One pass of every rank, and a turn of the loop: asleep if nobody has anything to do. */
void world_step(struct world *w);
#define WORLD_UNTIL(w, condition) \
  do {                            \
    while (!(condition)) {        \
      assert_false((w)->late);    \
      world_step(w);              \
    }                             \
  } while (0)
/* Steps for so long; for what must not happen. */
void world_idle(struct world *w, uint64_t ms);

struct end *end_open(struct world *w, int rank, int peer, uint16_t lane);
void end_close(struct end *e, bool graceful);

void post_send(struct end *e, struct transfer *t, const void *from, size_t bytes);
void post_recv(struct end *e, struct transfer *t, void *to, size_t bytes);
/* to = operand (op) incoming, or the other way round with `swap`. */
struct reduction {
  gyre_dtype type;
  gyre_op op;
  bool swap;
  uint32_t finish;
};
void post_reduce(struct end *e, struct transfer *t, const struct reduction *r, void *to,
                 const void *operand, size_t bytes);

/* The bytes of message `index` of a sender: the same wherever they are computed. */
void pattern_fill(void *to, size_t bytes, unsigned sender, unsigned index);
void pattern_check(const void *at, size_t bytes, unsigned sender, unsigned index);

uint64_t test_random(uint64_t *state, uint64_t below);
unsigned count_fds(void);
size_t resident_kib(void);

#endif

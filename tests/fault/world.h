/*
 * world.h - ranks as processes that are killed, stopped and disagree, and what each of them says
 * about it.
 *
 * Role:   the test is the parent. It forks ranks, tells them when to go on, does them harm, and
 *         collects their reports. Every wait has an end; whatever happens, no process outlives its
 *         world.
 * Thread: the parent has one; a rank may start more.
 */
#ifndef FAULT_WORLD_H
#define FAULT_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <cmocka.h>

#include "gyre/gyre.h"

#define WORLD_MAX 64
#define WATCHDOG_MS \
  40000 /* for what must happen some time; generous, because the machine may be busy */

struct self { /* a rank, inside its process */
  int rank, nranks;
  const void *arg;
  const char *rendezvous;
  gyre_context *ctx;
  gyre_comm *comm;
  int say_fd, hear_fd;
};

enum kind { READY = 1, RETURNED, NOTE };

struct report { /* small enough for a pipe to take it whole */
  int rank, kind;
  gyre_status status;
  gyre_error verdict;
  int64_t at_ns;
  uint64_t value;
  char text[512]; /* gyre_last_error() */
};

struct world {
  int nranks;
  int hear_fd; /* reports of all ranks */
  struct {
    pid_t pid;
    int say_fd;
    bool killed; /* by world_signal */
  } rank[WORLD_MAX];
  char dir[32], rendezvous[64];
};

/* The rank's process ends with what it returns. `comm` and `ctx`, if set by then, are destroyed
 * after it. */
typedef int (*body_fn)(struct self *self);

/* ---- in the parent ---- */
void world_start(struct world *w, int nranks, body_fn body, const void *arg);
/* The next report, or false when the time is over. */
bool world_hear(struct world *w, struct report *out, int64_t timeout_ms);
/* One report of this kind from every rank but `without` (-1: from all), into out[rank]; fails the
 * test if one is missing. */
void world_collect(struct world *w, enum kind kind, int without, struct report *out);
/* Lets a rank go on from self_hear. */
void world_tell(struct world *w, int rank, char what);
void world_tell_all(struct world *w, char what);
void world_signal(struct world *w, int rank, int signal);
/* Waits for the ranks and cleans up. Fails the test if a rank but `killed` (-1: none) and those
 * that world_signal killed did not exit with 0, or left a file. */
void world_end(struct world *w, int killed);
/* cmocka teardown: ends what a failed test has left. */
int world_teardown(void **state);

/* ---- in a rank ---- */
/* Context and communicator; a failure ends the process with a message. config may be NULL. */
void self_create(struct self *self, const gyre_comm_config *config);
void self_say(struct self *self, enum kind kind, gyre_status status, uint64_t value);
char self_hear(struct self *self);

/* ---- anywhere ---- */
int64_t now_ns(void);
void sleep_ms(int ms);
/* A sanitizer is at work: it keeps freed memory, and everything takes much longer. */
bool sanitized(void);
/* A time that the library promises, or has to set its deadline by, in a build that may be slowed
 * down by a sanitizer. */
int patience(int ms);
/* What is measured against a promised time: ten times as much, as the machine may have other things to do, unless
 * BOUNDS=strict, which the long tests set. */
int at_most(int ms);
/* The rounds of this run: $ROUNDS if set, else what the quick suite can afford. */
int rounds(int quick);
/* Whether `text` has "rank N" as a whole word. */
bool names_rank(const char *text, int rank);

#endif

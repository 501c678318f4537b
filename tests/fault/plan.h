/*
 * plan.h - the faults of the campaign: what is done to whom and when, drawn from a seed, and what
 * must come of it.
 */
#ifndef FAULT_PLAN_H
#define FAULT_PLAN_H

#include "world.h"

enum act {
  NOTHING,
  /* by the driver */
  KILL,
  STOP,    /* for hold_ms, or until all have reported */
  CABLE,   /* cut behind the switch, for hold_ms or for good */
  APART,   /* the victim and the other one do not hear each other */
  SIGNALS, /* a stream of them, for hold_ms */
  /* by the victim */
  RULE, /* what GYRE_FAULT says */
  EXIT,
  LEAVE, /* destroys its communicator */
  ABORT,
  PAUSE, /* makes no call for hold_ms, or until all have reported */
  ABSENT,
  LATE,  /* comes hold_ms after the others */
  LIMIT, /* opens no more than so many descriptors */
  CHILD  /* forks a child that sleeps, and is killed then */
};

enum stage { AMID, IDLE, MEETING, SHRINKING };

struct harm {
  enum act act;
  int victim, other; /* -1: nobody else is concerned */
  int delay_ms;      /* from when all are ready, or from the harm before */
  int hold_ms;       /* 0: for good */
  unsigned round;    /* in which the victim acts by itself */
  int limit;
  char rule[100];
};

struct plan {
  unsigned seed;
  const struct fault_kind *kind;
  int nranks, n_harm;
  enum stage stage;
  struct harm harm[2];
  size_t max_count;
  int pace_ms;       /* between rounds */
  bool leaves_early; /* ranks are gone as soon as they have reported */
  bool hosts;        /* each rank has one of its own */
  gyre_comm_config config;
};

struct fault_kind {
  const char *name, *what;
  const char *bound; /* in words */
  bool harmless;     /* results must be right, and nothing fail */
  bool needs_hosts;
  void (*draw)(struct plan *plan, unsigned *state);
  int (*bound_ms)(const struct plan *plan); /* NULL for a harmless one */
};

extern const struct fault_kind kinds[];
extern const int n_kinds;

struct plan plan_draw(const struct fault_kind *kind, unsigned seed);
/* One line. */
const char *plan_text(const struct plan *plan, char *out, size_t capacity);
/* The ranks that a verdict may name, as bits. */
uint32_t plan_culprits(const struct plan *plan);
/* Whether the status is one that this plan may lead to. */
bool plan_allows(const struct plan *plan, gyre_status status);
/* The harm that the rank does to itself or that is done to it; NULL. */
const struct harm *plan_harm_of(const struct plan *plan, int rank);
/* Whether the rank is there to tell the story. */
bool plan_survives(const struct plan *plan, int rank);

#endif

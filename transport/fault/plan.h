/*
 * plan.h - what faults are asked for: the text of GYRE_FAULT, read.
 *
 * Text: rules separated by semicolons, each kind:key=value,key=value. docs/faults.md has the kinds
 *       and keys for users.
 * Thread: any; plain data.
 */
#ifndef GY_FAULT_PLAN_H
#define GY_FAULT_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "gyre/gyre.h"

#define GY_FAULT_RULES 8

enum gy_fault_kind {
  GY_FAULT_DELAY,   /* amount: microseconds at most, drawn for each slice */
  GY_FAULT_REORDER, /* links are served in a drawn order, and now and then not at all */
  GY_FAULT_SHORT,   /* amount: bytes of a read or write at most, drawn for each */
  GY_FAULT_CUT,     /* amount: bytes sent before the link is cut */
  GY_FAULT_FLIP,    /* amount: the byte sent, from 0, of which a bit is flipped */
  GY_FAULT_KILL,    /* amount: the slice sent, from 1, before which the process is killed */
  GY_FAULT_STOP     /* the same, stopped */
};

struct gy_fault_rule {
  enum gy_fault_kind kind;
  uint64_t amount;
  int rank, peer; /* -1: any */
  uint64_t op;    /* 0: any */
  uint64_t seed;
  uint8_t bit; /* FLIP */
};

struct gy_fault_plan {
  unsigned n;
  struct gy_fault_rule rule[GY_FAULT_RULES];
};

/* ARG with the rule that was broken. `out` may be NULL, to check only. */
gyre_status gy_fault_plan_read(const char *text, struct gy_fault_plan *out);
/* Whether any rule is for this rank. */
bool gy_fault_plan_concerns(const struct gy_fault_plan *plan, int rank);

#endif

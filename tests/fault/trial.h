/*
 * trial.h - one fault of the campaign, from the start of its ranks to the judgement.
 *
 * Role:   the parent does what the plan says, collects what each rank says, and judges; no rank's
 *         own opinion counts. Fails the cmocka test it runs in if anything is not as it must be.
 */
#ifndef FAULT_TRIAL_H
#define FAULT_TRIAL_H

#include "plan.h"

struct outcome {
  int64_t took_ms; /* from the fault to the last rank's verdict; -1: there is none to come */
  int64_t bound_ms;
};

/* A verdict later than its bound, within at_most(bound), is told by `out` alone. */
void trial_run(const struct plan *plan, struct outcome *out);

#endif

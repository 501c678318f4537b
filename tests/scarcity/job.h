/*
 * job.h - a small job, each rank a thread with a context of its own, of which one runs short of
 * something.
 *
 * What holds, whatever fails: nothing hangs, and nothing is left behind. A call of that rank that fails
 * before it has a part in anything fails with a text and has lost nothing: made again, it goes. A
 * creation that fails, fails on every rank, or leaves the others a communicator that has failed; a
 * communicator that fails, fails with one verdict on every rank. What returns OK is right.
 */
#ifndef SCARCITY_JOB_H
#define SCARCITY_JOB_H

#include "inject.h"

/* Runs one; false and a text of what did not hold. */
bool job_run(enum scarce what, int victim, unsigned k, enum extent extent);
/* How many calls may fail in a job of which none does. */
unsigned job_count(enum scarce what, int victim);
/* The milliseconds that the last one took. */
long job_ms(void);

#endif

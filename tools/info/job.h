/*
 * job.h - what several ranks say, put together: who lags, and where.
 *
 * Role:   sorts views by communicator and rank, and follows whom each rank waits for to the rank that
 *         all wait for in the end.
 * Thread: one. Owner: the caller, until job_free.
 */
#ifndef INFO_JOB_H
#define INFO_JOB_H

#include <stdio.h>

#include "document.h"

#define LATE_NS \
  INT64_C(1000000000) /* a wait that is shorter says nothing: ranks are not asked at one moment */

struct job;

struct job *job_new(void); /* NULL: out of memory */
void job_free(struct job *job);
/* Takes the document, in any case. False, and the reason in `why`, if it fits none of the others. */
bool job_add(struct job *job, struct document *d, char *why, size_t capacity);
/* Whether all is well: no communicator has failed, the ranks have called the same things, and nobody has kept another
 * waiting for a second by what he has not called. */
bool job_report(const struct job *job, FILE *out);

#endif

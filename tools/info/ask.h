/*
 * ask.h - gets documents: out of files, and from processes that live (src/query.h).
 *
 * Thread: one.
 */
#ifndef INFO_ASK_H
#define INFO_ASK_H

#include "job.h"

/* Adds what each argument, the id of a process or else the path of a file, has to say. What cannot be read or
 * asked goes to standard error, and the others are still asked; returns how many those are. */
int ask_all(struct job *job, char *const *arguments, int n);

#endif

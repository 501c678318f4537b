/*
 * leave.h - how a rank that a test has forked ends. A sanitizer looks for leaks on exit, which takes as long as most of
 * these tests: of each world one rank does, rank 0 of the first, rank 1 of the second and so on.
 */
#ifndef TEST_LEAVE_H
#define TEST_LEAVE_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

_Noreturn static inline void rank_leave(int rank, int nranks, unsigned world, int status) {
  fflush(NULL);
  if (nranks > 0 && rank != (int)(world % (unsigned)nranks)) _exit(status);
  exit(status);
}

#endif

/*
 * ranks.h - runs a test body on several ranks, each in a process of its own, with a time-out.
 */
#ifndef TEST_RANKS_H
#define TEST_RANKS_H

#include <stdbool.h>
#include <stdio.h>

#include "gyre/gyre.h"

struct rank_env { /* what a body gets */
  gyre_context *ctx;
  gyre_comm *comm;
  int rank, nranks;
  const char *rendezvous; /* for further communicators */
  void *arg;
};

/* 0: the rank is content. Anything it prints goes to standard error. */
typedef int (*rank_body)(struct rank_env *env);

struct ranks_options {
  const gyre_comm_config *config; /* NULL: defaults; the rendezvous is set here */
  unsigned timeout_s;             /* 0: 240 */
  void *arg;
};

/* How many ranks failed: a body that did not return 0, a creation that failed, a crash, a
 * time-out. */
int ranks_run(int nranks, rank_body body, const struct ranks_options *options);

/* Whether a test that goes through `n` values of something is to take this one, for the combination
 * of all else that is numbered `others`: one for each, or with TEST_ALL=1, as the long tests have
 * it, every one. */
bool ranks_take(size_t value, size_t n, size_t others);

/* for (int n = 1; n <= 8; n = ranks_next(n)): all rank counts; under a sanitizer, where a rank takes several times
 * as long, 1, 2, 3 and 5 (address) or 1, 2 and 4 (thread), as the optimised build has all; with TEST_WHOLE=1 all
 * again. */
int ranks_next(int nranks);

#define RANK_FAIL(env, ...)                                                                      \
  (fprintf(stderr, "rank %d of %d: ", (env)->rank, (env)->nranks), fprintf(stderr, __VA_ARGS__), \
   fputc('\n', stderr), 1)

#endif

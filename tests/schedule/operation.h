/*
 * operation.h - one collective over all ranks of a world: its data, the posts, and the oracle.
 */
#ifndef TEST_OPERATION_H
#define TEST_OPERATION_H

#include "inprocess.h"

struct operation {
  enum gy_coll coll;
  gyre_op op; /* over i32 (weighted: whole numbers in f32), so that every order gives the same result */
  int root, nranks;
  size_t count;      /* GY_VARY: blocks have from none to about so many */
  uint64_t in_place; /* bit r: rank r passes in == out */
  /* made by operation_init */
  int32_t **in, **out, **memory;
  double *total;                           /* by rank, of a weighted one */
  struct operation_blocks {                /* of a rank, GY_VARY */
    size_t *count[2], *start[2], total[2]; /* of IN and OUT: by rank */
  } * blocks;
};

/* A scan of averages becomes one of sums; of weighted ones there are only sums and averages. */
void operation_init(struct operation *o);
void operation_free(struct operation *o);
/* Posts rank r's call. */
gyre_status operation_post(const struct operation *o, struct world *w, int rank, gyre_request **req);
/* NULL, or the first wrong element. Also: an input out of place must not have been written. */
const char *operation_check(const struct operation *o);
/* All of it: posts on every rank, runs the world, checks. NULL if right. */
const char *operation_run(const struct operation *o, struct world *w);

#endif

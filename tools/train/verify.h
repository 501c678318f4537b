/*
 * verify.h - the proof behind --verify.
 *
 * Role: on rank 0 a second trainer, alone and without Gyre, takes every step with the whole batch.
 * At the end its weights must agree with those of the N ranks to rounding, and theirs with each
 * other in every bit. Thread: the trainer's only one.
 *
 * One thing is not left to chance. A training is smooth but for the corner of ReLU: among millions
 * of inputs, one in a few runs comes so close to 0 that the last bit of a sum decides on which side
 * it falls, and then one sample's gradient differs by far more than rounding. Both sides are right
 * there, so the trainer alone takes the side that the ranks took. It finds it by repeating their
 * forward passes, shard by shard, as an equal shape gives equal rounding.
 */
#ifndef TRAIN_VERIFY_H
#define TRAIN_VERIFY_H

#include "trainer.h"

#define VERIFY_TOLERANCE 1e-5

struct verify {
  bool active; /* on rank 0 of a --verify run */
  struct trainer alone;
  struct pass replay; /* of the ranks' forward passes */
};

struct verify_result {
  double distance; /* ||w - w'|| / ||w||, w' being the weights of the trainer alone */
  int odd_rank;    /* the first rank whose weights differ in a bit from rank 0's; -1: none */
};

/* False: out of memory. Later calls on other ranks, or without --verify, do nothing. */
bool verify_create(struct verify *v, int rank, const struct train_options *o,
                   const struct idx_data *train);
/* Before the ranks' own step `t`, whose weights the repeated forward passes need. */
void verify_step(struct verify *v, const struct trainer *t, const struct idx_data *train,
                 const struct batch *batch);
/* A collective: the result of rank 0, on every rank. */
gyre_status verify_finish(struct verify *v, const struct trainer *t, struct verify_result *out);
bool verify_passed(const struct verify_result *r);
void verify_destroy(struct verify *v);

#endif

/*
 * trainer.h - one rank's part of a data-parallel training: the step and the test.
 *
 * Role: joins model, buckets and optimizer; this is where computation and communication overlap.
 * Thread: the only one that uses it. Owner of its model and buffers; borrows the communicator and
 * the data.
 */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include "buckets.h"
#include "idx.h"
#include "model.h"
#include "optimizer.h"
#include "options.h"

/* One step's global batch, equal on every rank. */
struct batch {
  const uint32_t *samples; /* numbers of training samples */
  size_t count;            /* > 0 */
  float lr;
};

struct trainer {
  gyre_comm *comm; /* NULL: alone, with the whole batch */
  int rank, world;
  struct model model;
  struct pass pass;
  struct optimizer optimizer;
  struct buckets gradients; /* one element per parameter, and last the loss */
  uint8_t *labels;          /* of the samples in `pass` */
};

/* Allocates everything a training on `train` needs; false: out of memory. */
bool trainer_create(struct trainer *t, gyre_comm *comm, const struct train_options *o,
                    const struct idx_data *train);
/* Gives every rank the same initial weights: rank 0's. */
gyre_status trainer_start(struct trainer *t, uint64_t seed);
/* One step on this rank's part of the batch. *loss is the mean over the whole batch, on every rank.
 * */
gyre_status trainer_step(struct trainer *t, const struct idx_data *train, const struct batch *batch,
                         float *loss);
/* The two halves of a step, for who has something to do in between: up to the activations of this
 * rank's part, and all the rest. */
void trainer_forward(struct trainer *t, const struct idx_data *train, const struct batch *batch);
gyre_status trainer_finish(struct trainer *t, const struct batch *batch, float *loss);
/* How many images of `test` all ranks together classify right; each takes its part. */
gyre_status trainer_test(struct trainer *t, const struct idx_data *test, size_t *correct);
/* With operations in flight, abort the communicator first. A trainer of zeros is allowed. */
void trainer_destroy(struct trainer *t);

#endif

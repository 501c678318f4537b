/*
 * optimizer.h - stochastic gradient descent with momentum.
 *
 * Role: applies a range of averaged gradients to the same range of the parameters, so that a
 * trainer can update what has arrived while it waits for the rest. Thread: the trainer's only one.
 */
#ifndef TRAIN_OPTIMIZER_H
#define TRAIN_OPTIMIZER_H

#include <stdbool.h>
#include <stddef.h>

struct optimizer {
  float lr; /* may change from step to step */
  float momentum;
  float *velocity; /* one per parameter; owned */
};

bool optimizer_create(struct optimizer *o, size_t n_params, float momentum);
/* v = momentum * v + grad; params -= lr * v, for the elements [first, first + count). */
void optimizer_apply(struct optimizer *o, float *params, const float *grad, size_t first,
                     size_t count);
void optimizer_destroy(struct optimizer *o);

#endif

/*
 * optimizer.c - see optimizer.h.
 */
#include "optimizer.h"

#include <stdlib.h>

bool optimizer_create(struct optimizer *o, size_t n_params, float momentum) {
  o->lr = 0.0f;
  o->momentum = momentum;
  o->velocity = calloc(n_params, sizeof *o->velocity);
  return o->velocity != NULL;
}

void optimizer_apply(struct optimizer *o, float *params, const float *grad, size_t first,
                     size_t count) {
  for (size_t i = first; i < first + count; i++) {
    o->velocity[i] = o->momentum * o->velocity[i] + grad[i];
    params[i] -= o->lr * o->velocity[i];
  }
}

void optimizer_destroy(struct optimizer *o) {
  free(o->velocity);
  o->velocity = NULL;
}

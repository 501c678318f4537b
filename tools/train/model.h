/*
 * model.h - a multilayer perceptron: ReLU between layers, softmax cross-entropy at the end.
 *
 * Role: forward pass, loss, and the backward pass piece by piece. Knows nothing of Gyre. Thread:
 * the trainer's only one.
 *
 * All parameters lie in one flat array, and so do the gradients, in the order in which the backward
 * pass finishes them: last layer first. Within a layer come its neurons, one row each: the weights
 * of its inputs, then its bias. So whatever is finished is always one prefix of the array, and that
 * is all a trainer needs to know to send gradients away while the rest is still being computed.
 *
 * The bias is an ordinary weight of an input that is always 1: every row of activations ends in a
 * 1.
 */
#ifndef TRAIN_MODEL_H
#define TRAIN_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MODEL_MAX_LAYERS 9

struct layer {
  size_t in, out;
  size_t offset; /* of row 0 in the flat array; a row has in + 1 elements */
};

struct model {
  size_t n_layers;
  struct layer layer[MODEL_MAX_LAYERS]; /* in the order of the forward pass */
  size_t n_params;
  float *params; /* owned; zero until model_init */
};

/* The buffers of one forward and backward pass over up to `capacity` samples. */
struct pass {
  size_t capacity;
  float *act[MODEL_MAX_LAYERS + 1]; /* act[l]: input of layer l, rows of in + 1, ending in 1 */
  float *delta[MODEL_MAX_LAYERS];   /* delta[l]: loss by output of layer l, rows of out */
};

/* sizes[0] inputs, ..., sizes[n_sizes - 1] classes; 2 <= n_sizes <= MODEL_MAX_LAYERS + 1. */
bool model_create(struct model *m, size_t n_sizes, const size_t sizes[]);
/* Weights uniform in +-sqrt(6 / inputs), which keeps the variance through ReLU; biases 0. */
void model_init(struct model *m, uint64_t seed);
void model_destroy(struct model *m);

bool pass_create(struct pass *p, const struct model *m, size_t capacity);
void pass_destroy(struct pass *p);

/* In all of these n is the number of samples, 0 <= n <= capacity. */

/* Pixels 0..255 of sample i, as floats in [0, 1], become row i of the input. */
void model_input(const struct model *m, struct pass *p, size_t i, const uint8_t *pixels);
void model_forward(const struct model *m, struct pass *p, size_t n);
/* Returns the sum of the samples' losses times `scale`, and sets the last layer's delta, with the
 * same scale. With scale = 1 / (samples of ALL ranks) the ranks' results add up to the mean,
 * whatever part each of them had. */
double model_loss(const struct model *m, struct pass *p, size_t n, const uint8_t *labels,
                  float scale);
/* Gradient of rows [row, row + rows) of layer l, into its place in the flat array `grad`. Needs
 * delta[l]. */
void model_gradient(const struct model *m, const struct pass *p, size_t n, size_t l, size_t row,
                    size_t rows, float *grad);
/* delta[l - 1] from delta[l]; l > 0. */
void model_backward(const struct model *m, struct pass *p, size_t n, size_t l);
/* At 0, the corner of ReLU, the slopes 0 and 1 are equally right, and where an input comes within
 * rounding of 0 it is chance which one a pass takes. Makes rows [first, first + n) of `p` take the
 * side that rows [0, n) of `other`, a pass over the same samples, took. Between forward and loss.
 * */
void model_settle_ties(const struct model *m, struct pass *p, size_t first,
                       const struct pass *other, size_t n);
/* After model_forward: how many samples have their largest output at the label. */
size_t model_correct(const struct model *m, const struct pass *p, size_t n, const uint8_t *labels);

#endif

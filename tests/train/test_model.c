/*
 * test_model.c - the network and its optimizer: gradients against finite differences, in any strips
 * and any division of the batch; the loss falls.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"
#include "optimizer.h"
#include "random.h"

#define INPUTS 12
#define SAMPLES 9
#define CLASSES 10

struct fixture {
  struct model model;
  struct pass pass;
  uint8_t pixels[SAMPLES][INPUTS];
  uint8_t labels[SAMPLES];
  float *grad;
};

static int set_up(void **state) {
  struct fixture *f = calloc(1, sizeof *f);
  assert_non_null(f);
  const size_t sizes[] = {INPUTS, 11, 7, CLASSES};
  assert_true(model_create(&f->model, 4, sizes));
  model_init(&f->model, 3);
  assert_true(pass_create(&f->pass, &f->model, SAMPLES));
  f->grad = calloc(f->model.n_params, sizeof *f->grad);
  assert_non_null(f->grad);
  struct random_state r = {5};
  for (size_t i = 0; i < SAMPLES; i++) {
    f->labels[i] = (uint8_t)random_below(&r, CLASSES);
    for (size_t k = 0; k < INPUTS; k++) f->pixels[i][k] = (uint8_t)random_below(&r, 256);
  }
  *state = f;
  return 0;
}

static int tear_down(void **state) {
  struct fixture *f = *state;
  free(f->grad);
  pass_destroy(&f->pass);
  model_destroy(&f->model);
  free(f);
  return 0;
}

/* Loss of samples [first, first + n), each weighing 1 / SAMPLES. */
static double loss_of(struct fixture *f, size_t first, size_t n) {
  for (size_t i = 0; i < n; i++) model_input(&f->model, &f->pass, i, f->pixels[first + i]);
  model_forward(&f->model, &f->pass, n);
  return model_loss(&f->model, &f->pass, n, f->labels + first, 1.0f / SAMPLES);
}

static void gradient_of(struct fixture *f, size_t first, size_t n, size_t strip, float *grad) {
  struct model *m = &f->model;
  (void)loss_of(f, first, n);
  for (size_t l = m->n_layers; l-- > 0;) {
    for (size_t row = 0; row < m->layer[l].out; row += strip) {
      size_t left = m->layer[l].out - row;
      model_gradient(m, &f->pass, n, l, row, left < strip ? left : strip, grad);
    }
    if (l > 0) model_backward(m, &f->pass, n, l);
  }
}

/* The same network once more, in double and by plain loops. */
static double loss_in_double(const struct fixture *f, const double *params) {
  const struct model *m = &f->model;
  double loss = 0.0;
  for (size_t i = 0; i < SAMPLES; i++) {
    double x[32], y[32];
    for (size_t k = 0; k < INPUTS; k++) x[k] = f->pixels[i][k] / 255.0;
    for (size_t l = 0; l < m->n_layers; l++) {
      const struct layer *a = &m->layer[l];
      for (size_t o = 0; o < a->out; o++) {
        const double *w = params + a->offset + o * (a->in + 1);
        y[o] = w[a->in];
        for (size_t k = 0; k < a->in; k++) y[o] += w[k] * x[k];
        if (l + 1 < m->n_layers && y[o] < 0.0) y[o] = 0.0;
      }
      memcpy(x, y, a->out * sizeof *x);
    }
    double sum = 0.0;
    for (size_t k = 0; k < CLASSES; k++) sum += exp(x[k]);
    loss += log(sum) - x[f->labels[i]];
  }
  return loss / SAMPLES;
}

static double *params_in_double(const struct fixture *f) {
  double *p = calloc(f->model.n_params, sizeof *p);
  assert_non_null(p);
  for (size_t i = 0; i < f->model.n_params; i++) p[i] = (double)f->model.params[i];
  return p;
}

static void loss_equals_a_plain_computation(void **state) {
  struct fixture *f = *state;
  double *p = params_in_double(f);
  assert_true(fabs(loss_of(f, 0, SAMPLES) - loss_in_double(f, p)) < 1e-5);
  free(p);
}

static void gradients_equal_finite_differences(void **state) {
  struct fixture *f = *state;
  const double step = 1e-6;
  double *p = params_in_double(f);
  size_t nonzero = 0;
  gradient_of(f, 0, SAMPLES, 3, f->grad);
  for (size_t i = 0; i < f->model.n_params; i++) {
    double kept = p[i];
    p[i] = kept + step;
    double above = loss_in_double(f, p);
    p[i] = kept - step;
    double below = loss_in_double(f, p);
    p[i] = kept;
    double slope = (above - below) / (2.0 * step);
    if (fabs(slope - (double)f->grad[i]) > 1e-5)
      print_error("parameter %zu: %g, finite difference %g\n", i, (double)f->grad[i], slope);
    assert_true(fabs(slope - (double)f->grad[i]) <= 1e-5);
    nonzero += fabs(slope) > 1e-3;
  }
  assert_true(nonzero > f->model.n_params / 4); /* else the comparison says little */
  free(p);
}

static void gradients_of_parts_add_up(void **state) {
  struct fixture *f = *state;
  size_t n = f->model.n_params;
  float *sum = calloc(n, sizeof *sum), *part = calloc(n, sizeof *part);
  assert_non_null(sum);
  assert_non_null(part);
  gradient_of(f, 0, SAMPLES, 100, f->grad);
  const size_t cuts[] = {0, 4, 4, 5, SAMPLES}; /* four ranks: 4, 0, 1 and 4 samples */
  for (int rank = 0; rank < 4; rank++) {
    for (size_t i = 0; i < n; i++) part[i] = 1e9f; /* what is not written shows */
    gradient_of(f, cuts[rank], cuts[rank + 1] - cuts[rank], 100, part);
    for (size_t i = 0; i < n; i++) sum[i] += part[i];
  }
  for (size_t i = 0; i < n; i++) assert_true(fabsf(sum[i] - f->grad[i]) < 1e-6f);
  free(sum);
  free(part);
}

/* What a trainer may send after each strip is a growing prefix: nothing in it changes later. */
static void strips_finish_a_prefix_in_order(void **state) {
  struct fixture *f = *state;
  struct model *m = &f->model;
  size_t end = 0;
  float *before = calloc(m->n_params, sizeof *before);
  assert_non_null(before);
  (void)loss_of(f, 0, SAMPLES);
  for (size_t l = m->n_layers; l-- > 0;) {
    const struct layer *y = &m->layer[l];
    for (size_t row = 0; row < y->out; row++) {
      memcpy(before, f->grad, end * sizeof *before);
      for (size_t i = end; i < m->n_params; i++) f->grad[i] = NAN;
      model_gradient(m, &f->pass, SAMPLES, l, row, 1, f->grad);
      assert_memory_equal(before, f->grad, end * sizeof *before);
      assert_int_equal(y->offset + row * (y->in + 1), end);
      end += y->in + 1;
      assert_true(isfinite(f->grad[end - 1]));
      assert_true(end == m->n_params || isnan(f->grad[end]));
    }
    if (l > 0) model_backward(m, &f->pass, SAMPLES, l);
  }
  assert_int_equal(end, m->n_params);
  free(before);
}

static void training_learns_a_toy_problem(void **state) {
  struct fixture *f = *state;
  struct optimizer o;
  assert_true(optimizer_create(&o, f->model.n_params, 0.9f));
  o.lr = 0.05f;
  double first = loss_of(f, 0, SAMPLES);
  for (int step = 0; step < 300; step++) {
    gradient_of(f, 0, SAMPLES, 100, f->grad);
    /* in two ranges, as buckets do */
    optimizer_apply(&o, f->model.params, f->grad, 0, 100);
    optimizer_apply(&o, f->model.params, f->grad, 100, f->model.n_params - 100);
  }
  double last = loss_of(f, 0, SAMPLES);
  assert_true(last < 0.05 * first);
  assert_int_equal(model_correct(&f->model, &f->pass, SAMPLES, f->labels), SAMPLES);
  optimizer_destroy(&o);
}

static void momentum_accumulates(void **state) {
  (void)state;
  struct optimizer o;
  float params[3] = {1.0f, 1.0f, 1.0f};
  const float grad[3] = {1.0f, 2.0f, 4.0f};
  assert_true(optimizer_create(&o, 3, 0.75f));
  o.lr = 0.25f;
  optimizer_apply(&o, params, grad, 1, 1); /* v = 2 */
  optimizer_apply(&o, params, grad, 1, 1); /* v = 3.5 */
  assert_true(params[0] == 1.0f && params[2] == 1.0f);
  assert_true(params[1] == 1.0f - 0.25f * 2.0f - 0.25f * 3.5f);
  optimizer_destroy(&o);
}

/* Only where two passes stand on different sides of 0, and barely so, does one follow the other. */
static void ties_are_settled_and_nothing_else(void **state) {
  struct fixture *f = *state;
  struct pass other;
  assert_true(pass_create(&other, &f->model, 2));
  const size_t width = f->model.layer[1].in + 1;
  const float theirs[] = {1e-7f, 0.0f, 0.5f, 0.0f, 0.25f, 3e-7f};
  const float mine[] = {0.0f, 1e-7f, 0.0f, 0.5f, 0.2500001f, 2e-7f};
  const float settled[] = {1e-7f, 0.0f, 0.0f, 0.5f, 0.2500001f, 2e-7f};
  for (size_t i = 0; i < 6; i++) {
    other.act[1][width + i] = theirs[i];
    f->pass.act[1][4 * width + i] = mine[i];
  }
  model_settle_ties(&f->model, &f->pass, 3, &other, 2); /* rows 3 and 4 from rows 0 and 1 */
  for (size_t i = 0; i < 6; i++) assert_true(f->pass.act[1][4 * width + i] == settled[i]);
  assert_true(f->pass.act[1][4 * width + width - 1] == 1.0f); /* the bias's input */
  pass_destroy(&other);
}

static void extreme_outputs_keep_the_loss_finite(void **state) {
  struct fixture *f = *state;
  for (size_t i = 0; i < f->model.n_params; i++) f->model.params[i] *= 1e6f;
  assert_true(isfinite(loss_of(f, 0, SAMPLES)));
}

int main(void) {
#define MODEL_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      MODEL_TEST(loss_equals_a_plain_computation),
      MODEL_TEST(gradients_equal_finite_differences),
      MODEL_TEST(gradients_of_parts_add_up),
      MODEL_TEST(strips_finish_a_prefix_in_order),
      MODEL_TEST(training_learns_a_toy_problem),
      cmocka_unit_test(momentum_accumulates),
      MODEL_TEST(ties_are_settled_and_nothing_else),
      MODEL_TEST(extreme_outputs_keep_the_loss_finite),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

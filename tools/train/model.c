/*
 * model.c - see model.h.
 */
#include "model.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

/* Far above the rounding of an activation, far below what matters to a result. */
#define TIE 1e-5f

bool model_create(struct model *m, size_t n_sizes, const size_t sizes[]) {
  memset(m, 0, sizeof *m);
  m->n_layers = n_sizes - 1;
  for (size_t l = m->n_layers; l-- > 0;) {
    m->layer[l] = (struct layer){.in = sizes[l], .out = sizes[l + 1], .offset = m->n_params};
    m->n_params += sizes[l + 1] * (sizes[l] + 1);
  }
  m->params = calloc(m->n_params, sizeof *m->params);
  return m->params != NULL;
}

void model_init(struct model *m, uint64_t seed) {
  struct random_state r = {seed};
  for (size_t l = 0; l < m->n_layers; l++) {
    const struct layer *y = &m->layer[l];
    float limit = sqrtf(6.0f / (float)y->in);
    for (size_t row = 0; row < y->out; row++) {
      float *w = m->params + y->offset + row * (y->in + 1);
      for (size_t i = 0; i < y->in; i++) w[i] = random_symmetric(&r, limit);
      w[y->in] = 0.0f;
    }
  }
}

void model_destroy(struct model *m) {
  free(m->params);
  m->params = NULL;
}

bool pass_create(struct pass *p, const struct model *m, size_t capacity) {
  memset(p, 0, sizeof *p);
  p->capacity = capacity;
  for (size_t l = 0; l <= m->n_layers; l++) {
    size_t width = l < m->n_layers ? m->layer[l].in : m->layer[l - 1].out;
    p->act[l] = calloc(capacity, (width + 1) * sizeof(float));
    if (!p->act[l]) goto destroy_pass;
    for (size_t i = 0; i < capacity; i++) p->act[l][i * (width + 1) + width] = 1.0f;
    if (l == 0) continue;
    p->delta[l - 1] = calloc(capacity, width * sizeof(float));
    if (!p->delta[l - 1]) goto destroy_pass;
  }
  return true;

destroy_pass:
  pass_destroy(p);
  return false;
}

void pass_destroy(struct pass *p) {
  for (size_t l = 0; l <= MODEL_MAX_LAYERS; l++) free(p->act[l]);
  for (size_t l = 0; l < MODEL_MAX_LAYERS; l++) free(p->delta[l]);
  memset(p, 0, sizeof *p);
}

void model_input(const struct model *m, struct pass *p, size_t i, const uint8_t *pixels) {
  size_t width = m->layer[0].in;
  float *row = p->act[0] + i * (width + 1);
  for (size_t k = 0; k < width; k++) row[k] = (float)pixels[k] * (1.0f / 255.0f);
}

void model_forward(const struct model *m, struct pass *p, size_t n) {
  if (n == 0) return;
  for (size_t l = 0; l < m->n_layers; l++) {
    const struct layer *y = &m->layer[l];
    float *out = p->act[l + 1];
    /* out = act x weights^T, bias included by the 1 that ends each row of act */
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)n, (int)y->out, (int)(y->in + 1),
                1.0f, p->act[l], (int)(y->in + 1), m->params + y->offset, (int)(y->in + 1), 0.0f,
                out, (int)(y->out + 1));
    if (l + 1 == m->n_layers) break;
    for (size_t i = 0; i < n; i++)
      for (size_t k = 0; k < y->out; k++)
        if (out[i * (y->out + 1) + k] < 0.0f) out[i * (y->out + 1) + k] = 0.0f;
  }
}

double model_loss(const struct model *m, struct pass *p, size_t n, const uint8_t *labels,
                  float scale) {
  size_t last = m->n_layers - 1, classes = m->layer[last].out;
  double loss = 0.0;
  for (size_t i = 0; i < n; i++) {
    const float *z = p->act[m->n_layers] + i * (classes + 1);
    float *d = p->delta[last] + i * classes;
    float top = z[0], sum = 0.0f;
    for (size_t k = 1; k < classes; k++) top = z[k] > top ? z[k] : top;
    for (size_t k = 0; k < classes; k++)
      sum += d[k] = expf(z[k] - top); /* <= 1, so nothing overflows */
    loss += (double)(logf(sum) + top - z[labels[i]]);
    for (size_t k = 0; k < classes; k++) d[k] *= scale / sum;
    d[labels[i]] -= scale;
  }
  return loss * (double)scale;
}

void model_gradient(const struct model *m, const struct pass *p, size_t n, size_t l, size_t row,
                    size_t rows, float *grad) {
  const struct layer *y = &m->layer[l];
  float *to = grad + y->offset + row * (y->in + 1);
  if (n == 0) {
    memset(to, 0, rows * (y->in + 1) * sizeof *to);
    return;
  }
  /* to = delta^T x act, these columns of delta only */
  cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)rows, (int)(y->in + 1), (int)n, 1.0f,
              p->delta[l] + row, (int)y->out, p->act[l], (int)(y->in + 1), 0.0f, to,
              (int)(y->in + 1));
}

void model_backward(const struct model *m, struct pass *p, size_t n, size_t l) {
  const struct layer *y = &m->layer[l];
  if (n == 0) return;
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)n, (int)y->in, (int)y->out, 1.0f,
              p->delta[l], (int)y->out, m->params + y->offset, (int)(y->in + 1), 0.0f,
              p->delta[l - 1], (int)y->in);
  for (size_t i = 0; i < n; i++)
    for (size_t k = 0; k < y->in; k++)
      if (p->act[l][i * (y->in + 1) + k] <= 0.0f) p->delta[l - 1][i * y->in + k] = 0.0f;
}

void model_settle_ties(const struct model *m, struct pass *p, size_t first,
                       const struct pass *other, size_t n) {
  for (size_t l = 1; l < m->n_layers; l++) {
    size_t width = m->layer[l].in + 1;
    float *mine = p->act[l] + first * width;
    for (size_t i = 0; i < n * width; i++) {
      float theirs = other->act[l][i];
      if ((mine[i] > 0.0f) != (theirs > 0.0f) && fabsf(mine[i] - theirs) < TIE) mine[i] = theirs;
    }
  }
}

size_t model_correct(const struct model *m, const struct pass *p, size_t n, const uint8_t *labels) {
  size_t classes = m->layer[m->n_layers - 1].out, correct = 0;
  for (size_t i = 0; i < n; i++) {
    const float *z = p->act[m->n_layers] + i * (classes + 1);
    size_t best = 0;
    for (size_t k = 1; k < classes; k++) best = z[k] > z[best] ? k : best;
    correct += best == labels[i];
  }
  return correct;
}

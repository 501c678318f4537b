/*
 * verify.c - see verify.h.
 */
#include "verify.h"

#include <math.h>
#include <string.h>

#include "fingerprint.h"
#include "shards.h"

bool verify_create(struct verify *v, int rank, const struct train_options *o,
                   const struct idx_data *train) {
  memset(v, 0, sizeof *v);
  v->active = o->verify && rank == 0;
  if (!v->active) return true;
  if (!trainer_create(&v->alone, NULL, o, train)) return false;
  (void)trainer_start(&v->alone, o->seed);
  return pass_create(&v->replay, &v->alone.model, v->alone.pass.capacity);
}

static void settle_ties(struct verify *v, const struct trainer *t, const struct idx_data *train,
                        const struct batch *batch) {
  size_t pixels = train->rows * train->cols;
  for (int rank = 0; rank < t->world; rank++) {
    struct shard s = shard_of(batch->count, rank, t->world);
    for (size_t i = 0; i < s.count; i++)
      model_input(&t->model, &v->replay, i, train->images + batch->samples[s.first + i] * pixels);
    model_forward(&t->model, &v->replay, s.count);
    model_settle_ties(&t->model, &v->alone.pass, s.first, &v->replay, s.count);
  }
}

void verify_step(struct verify *v, const struct trainer *t, const struct idx_data *train,
                 const struct batch *batch) {
  float loss;
  if (!v->active) return;
  trainer_forward(&v->alone, train, batch);
  settle_ties(v, t, train, batch);
  (void)trainer_finish(&v->alone, batch, &loss); /* alone, nothing can fail */
}

static double relative_distance(const float *w, const float *other, size_t n) {
  double difference = 0.0, norm = 0.0;
  for (size_t i = 0; i < n; i++) {
    double d = (double)w[i] - (double)other[i];
    difference += d * d;
    norm += (double)w[i] * (double)w[i];
  }
  return sqrt(difference / norm);
}

gyre_status verify_finish(struct verify *v, const struct trainer *t, struct verify_result *out) {
  const struct model *m = &t->model;
  struct verify_result r = {.distance = 0.0};
  uint64_t mine = fingerprint_add(FINGERPRINT_INIT, m->params, m->n_params * sizeof *m->params);
  gyre_status s = fingerprint_compare(t->comm, mine, &r.odd_rank);
  if (s != GYRE_OK) return s;
  if (v->active) r.distance = relative_distance(m->params, v->alone.model.params, m->n_params);
  /* Every rank must end with the same exit status. */
  s = gyre_broadcast(t->comm, &r.distance, &r.distance, 1, GYRE_F64, 0);
  if (s == GYRE_OK) *out = r;
  return s;
}

bool verify_passed(const struct verify_result *r) {
  return r->odd_rank < 0 && r->distance < VERIFY_TOLERANCE; /* false for NaN */
}

void verify_destroy(struct verify *v) {
  pass_destroy(&v->replay);
  trainer_destroy(&v->alone);
}

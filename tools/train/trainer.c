/*
 * trainer.c - see trainer.h.
 */
#include "trainer.h"

#include <stdlib.h>
#include <string.h>

#include "shards.h"

/* The test runs in blocks of at least this many samples, however small the batch. */
#define TEST_BLOCK 256
/* Gradients of a wide layer are computed in strips of about this many elements, so that the first
 * bucket leaves long before the last row is done. */
#define STRIP_ELEMENTS 32768

bool trainer_create(struct trainer *t, gyre_comm *comm, const struct train_options *o,
                    const struct idx_data *train) {
  memset(t, 0, sizeof *t);
  t->comm = comm;
  t->rank = comm ? gyre_comm_rank(comm) : 0;
  t->world = comm ? gyre_comm_size(comm) : 1;

  size_t sizes[OPTIONS_MAX_HIDDEN + 2] = {train->rows * train->cols};
  memcpy(sizes + 1, o->hidden, o->n_hidden * sizeof sizes[0]);
  sizes[o->n_hidden + 1] = IDX_CLASSES;
  size_t largest_part = shard_of(o->batch, 0, t->world).count;
  size_t capacity = largest_part > TEST_BLOCK ? largest_part : TEST_BLOCK;
  t->labels = malloc(capacity);
  if (!t->labels || !model_create(&t->model, o->n_hidden + 2, sizes) ||
      !pass_create(&t->pass, &t->model, capacity) ||
      !optimizer_create(&t->optimizer, t->model.n_params, o->momentum))
    goto destroy_trainer;
  size_t count = t->model.n_params + 1;
  size_t bucket_bytes = o->bucket_kb ? o->bucket_kb << 10 : buckets_default_bytes(count);
  if (buckets_create(&t->gradients, comm, count, bucket_bytes)) return true;

destroy_trainer:
  trainer_destroy(t);
  return false;
}

gyre_status trainer_start(struct trainer *t, uint64_t seed) {
  struct model *m = &t->model;
  if (t->rank == 0) model_init(m, seed);
  if (!t->comm) return GYRE_OK;
  return gyre_broadcast(t->comm, m->params, m->params, m->n_params, GYRE_F32, 0);
}

/* The backward pass. Each strip of gradients is handed to the buckets as soon as it exists, and
 * what they complete is on its way to the other ranks while the next strip is computed. */
static gyre_status backward(struct trainer *t, size_t n) {
  struct model *m = &t->model;
  for (size_t l = m->n_layers; l-- > 0;) {
    const struct layer *y = &m->layer[l];
    size_t strip = STRIP_ELEMENTS / (y->in + 1) + 1;
    for (size_t row = 0; row < y->out; row += strip) {
      size_t rows = y->out - row < strip ? y->out - row : strip;
      model_gradient(m, &t->pass, n, l, row, rows, t->gradients.data);
      gyre_status s = buckets_ready(&t->gradients, y->offset + (row + rows) * (y->in + 1));
      if (s != GYRE_OK) return s;
    }
    if (l > 0) model_backward(m, &t->pass, n, l);
  }
  return GYRE_OK;
}

/* Takes the buckets in the order in which they were sent; while one updates its weights the next
 * ones are still arriving. */
static gyre_status update(struct trainer *t) {
  for (size_t i = 0; i < t->gradients.total; i++) {
    size_t first, count;
    gyre_status s = buckets_wait(&t->gradients, i, &first, &count);
    if (s != GYRE_OK) return s;
    if (i + 1 == t->gradients.total) count--; /* the loss is no gradient */
    optimizer_apply(&t->optimizer, t->model.params, t->gradients.data, first, count);
  }
  return GYRE_OK;
}

void trainer_forward(struct trainer *t, const struct idx_data *train, const struct batch *batch) {
  size_t pixels = train->rows * train->cols;
  struct shard mine = shard_of(batch->count, t->rank, t->world);
  for (size_t i = 0; i < mine.count; i++) {
    size_t sample = batch->samples[mine.first + i];
    model_input(&t->model, &t->pass, i, train->images + sample * pixels);
    t->labels[i] = train->labels[sample];
  }
  model_forward(&t->model, &t->pass, mine.count);
}

gyre_status trainer_finish(struct trainer *t, const struct batch *batch, float *loss) {
  size_t n = shard_of(batch->count, t->rank, t->world).count, n_params = t->model.n_params;
  /* Scaled by the samples of all ranks, the sum over ranks is the mean of the batch, however
   * unevenly it is divided. GYRE_AVG would weigh a rank with few samples like one with many. */
  float scale = 1.0f / (float)batch->count;
  t->gradients.data[n_params] = (float)model_loss(&t->model, &t->pass, n, t->labels, scale);

  t->optimizer.lr = batch->lr;
  gyre_status s = backward(t, n);
  if (s == GYRE_OK)
    s = buckets_ready(&t->gradients, n_params + 1); /* the loss travels in the last bucket */
  if (s == GYRE_OK) s = update(t);
  if (s == GYRE_OK) *loss = t->gradients.data[n_params];
  return s;
}

gyre_status trainer_step(struct trainer *t, const struct idx_data *train, const struct batch *batch,
                         float *loss) {
  trainer_forward(t, train, batch);
  return trainer_finish(t, batch, loss);
}

gyre_status trainer_test(struct trainer *t, const struct idx_data *test, size_t *correct) {
  size_t pixels = test->rows * test->cols;
  struct shard mine = shard_of(test->count, t->rank, t->world);
  int64_t right = 0;
  /* After a failure the rest is for nothing: the all-reduce then says which. */
  gyre_error record = GYRE_ERROR_INIT;
  for (size_t done = 0, n; done < mine.count && (!t->comm || !gyre_comm_status(t->comm, &record));
       done += n) {
    n = mine.count - done < t->pass.capacity ? mine.count - done : t->pass.capacity;
    size_t first = mine.first + done;
    for (size_t i = 0; i < n; i++)
      model_input(&t->model, &t->pass, i, test->images + (first + i) * pixels);
    model_forward(&t->model, &t->pass, n);
    right += (int64_t)model_correct(&t->model, &t->pass, n, test->labels + first);
  }
  gyre_status s = GYRE_OK;
  if (t->comm) s = gyre_all_reduce(t->comm, &right, &right, 1, GYRE_I64, GYRE_SUM);
  if (s == GYRE_OK) *correct = (size_t)right;
  return s;
}

void trainer_destroy(struct trainer *t) {
  buckets_destroy(&t->gradients);
  optimizer_destroy(&t->optimizer);
  pass_destroy(&t->pass);
  model_destroy(&t->model);
  free(t->labels);
  memset(t, 0, sizeof *t);
}

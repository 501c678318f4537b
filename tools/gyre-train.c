/*
 * gyre-train.c - data-parallel training of a small network: Gyre's example of itself.
 *
 * It sees include/gyre/gyre.h and nothing else of Gyre, as any user's program does; therefore its
 * names carry no gy_ prefix. Read main first, then trainer.c, where computation and communication
 * overlap, and buckets.c, where gradients become collectives. docs/training.md draws the timeline.
 *
 * Thread: one. How it ends: whatever goes wrong on one rank must end all of them, so a rank that
 * cannot go on says why and aborts the communicator with the same words (give_up). The other ranks
 * notice at their next collective, or while they load, and print the record (gyre_failed).
 */
#include <cblas.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gyre/gyre.h"
#include "train/fingerprint.h"
#include "train/idx.h"
#include "train/json_log.h"
#include "train/options.h"
#include "train/progress_bar.h"
#include "train/shards.h"
#include "train/stopwatch.h"
#include "train/trainer.h"
#include "train/verify.h"

struct job {
  struct train_options options;
  gyre_comm *comm;
  int rank, world;
  struct idx_data train, test;
  struct sampler sampler;
  struct trainer trainer;
  struct verify verify;
  struct json_log json;
  struct progress_bar bar;
  size_t steps, last_step; /* taken so far, and where the training ends */
  double seconds;          /* spent in them */
  double accuracy;         /* after the last epoch */
};

/* ------------------------------------------------------------------------------ failures --- */

static bool give_up(struct job *j, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* This rank cannot go on: says why here and to every other rank. Always false. */
static bool give_up(struct job *j, const char *format, ...) {
  char why[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(why, sizeof why, format, args);
  va_end(args);
  progress_bar_clear(&j->bar);
  fflush(stdout);
  fprintf(stderr, "gyre-train: rank %d: %s\n", j->rank, why);
  (void)gyre_comm_abort(j->comm, why);
  return false;
}

/* A Gyre call failed. If that ended the communicator, the line is its record, the same on every
 * rank: which rank is to blame, and why. Always false. */
static bool gyre_failed(struct job *j, const char *during, gyre_status s) {
  gyre_error record = GYRE_ERROR_INIT;
  if (gyre_comm_status(j->comm, &record) == GYRE_OK) /* this call alone was wrong */
    return give_up(j, "%s failed: %s: %s", during, gyre_status_name(s), gyre_last_error());
  progress_bar_clear(&j->bar);
  fflush(stdout);
  fprintf(stderr, "gyre-train: ");
  if (record.culprit_rank >= 0) fprintf(stderr, "rank %d: ", record.culprit_rank);
  fprintf(stderr, "%s: %s\n", gyre_status_name(record.status), record.text);
  return false;
}

/* -------------------------------------------------------------------------------- set-up --- */

/* Everything that must be equal on all ranks for the training to make sense. */
static uint64_t fingerprint_of(const struct job *j) {
  const struct train_options *o = &j->options;
  const struct idx_data *sets[] = {&j->train, &j->test};
  char text[256];
  int n = snprintf(text, sizeof text, "%zu %zu %zu %zu %llu %a %a %d", o->epochs, o->steps,
                   o->batch, o->bucket_kb, (unsigned long long)o->seed, (double)o->lr,
                   (double)o->momentum, o->verify);
  uint64_t f = fingerprint_add(FINGERPRINT_INIT, text, (size_t)n);
  f = fingerprint_add(f, o->hidden, o->n_hidden * sizeof o->hidden[0]);
  for (int i = 0; i < 2; i++) {
    f = fingerprint_add(f, &sets[i]->count, sizeof sets[i]->count);
    f = fingerprint_add(f, sets[i]->images, sets[i]->count * sets[i]->rows * sets[i]->cols);
    f = fingerprint_add(f, sets[i]->labels, sets[i]->count);
  }
  return f;
}

/* Whether the others are still there. */
static bool is_usable(void *user) {
  const struct job *j = user;
  gyre_error record = GYRE_ERROR_INIT;
  return gyre_comm_status(j->comm, &record) == GYRE_OK;
}

static bool load_data(struct job *j) {
  char why[IDX_WHY_SIZE];
  if (!idx_load(j->options.data, "train", is_usable, j, &j->train, why) ||
      !idx_load(j->options.data, "t10k", is_usable, j, &j->test, why))
    return why[0] ? give_up(j, "%s", why) : gyre_failed(j, "loading", GYRE_ERR_ABORTED);
  if (j->train.rows != j->test.rows || j->train.cols != j->test.cols)
    return give_up(j, "%s: training images are %zux%zu but test images %zux%zu", j->options.data,
                   j->train.rows, j->train.cols, j->test.rows, j->test.cols);

  int odd;
  gyre_status s = fingerprint_compare(j->comm, fingerprint_of(j), &odd);
  if (s != GYRE_OK) return gyre_failed(j, "comparing data and options", s);
  if (odd >= 0)
    return give_up(j, "rank %d was started with other options or other data than rank 0", odd);
  return true;
}

static bool announce(struct job *j) {
  const struct train_options *o = &j->options;
  const struct buckets *b = &j->trainer.gradients;
  if (j->rank != 0) return true;
  if (o->json && !json_log_open(&j->json, o->json))
    return give_up(j, "--json %s: %s", o->json, strerror(errno));
  json_log_write(
      &j->json,
      "{\"event\": \"start\", \"ranks\": %d, \"train_samples\": %zu, \"test_samples\": %zu, "
      "\"parameters\": %zu, \"batch\": %zu, \"bucket_bytes\": %zu, \"buckets\": %zu, "
      "\"lr\": %g, \"momentum\": %g, \"seed\": %llu}",
      j->world, j->train.count, j->test.count, j->trainer.model.n_params, o->batch,
      b->each * sizeof(float), b->total, (double)o->lr, (double)o->momentum,
      (unsigned long long)o->seed);
  if (!o->quiet)
    printf("%d rank%s, %zu training and %zu test images, %zu parameters, batch %zu,"
           " %zu bucket%s of %zu KiB\n",
           j->world, j->world == 1 ? "" : "s", j->train.count, j->test.count,
           j->trainer.model.n_params, o->batch, b->total, b->total == 1 ? "" : "s",
           b->each * sizeof(float) >> 10);
  return true;
}

static size_t steps_per_epoch(const struct job *j) {
  return (j->train.count + j->options.batch - 1) / j->options.batch;
}

static bool set_up(struct job *j) {
  const struct train_options *o = &j->options;
  progress_bar_init(&j->bar, o->quiet || j->rank != 0);
  if (!load_data(j)) return false;
  if (!sampler_create(&j->sampler, j->train.count) ||
      !trainer_create(&j->trainer, j->comm, o, &j->train) ||
      !verify_create(&j->verify, j->rank, o, &j->train))
    return give_up(j, "out of memory");
  j->last_step = o->epochs ? o->epochs * steps_per_epoch(j) : o->steps;
  if (o->steps > 0 && o->steps < j->last_step) j->last_step = o->steps;
  gyre_status s = trainer_start(&j->trainer, o->seed);
  if (s != GYRE_OK) return gyre_failed(j, "broadcast of the initial weights", s);
  return announce(j);
}

/* ------------------------------------------------------------------------------ training --- */

static bool train_step(struct job *j, size_t epoch, const struct batch *batch) {
  struct trainer *t = &j->trainer;
  verify_step(&j->verify, t, &j->train, batch);
  double begin = stopwatch_now();
  float loss;
  gyre_status s = trainer_step(t, &j->train, batch, &loss);
  if (s != GYRE_OK) return gyre_failed(j, "all-reduce of gradients", s);
  double seconds = stopwatch_now() - begin;
  j->seconds += seconds;
  j->steps++;
  if (!isfinite(loss)) /* on every rank at once, as the loss is everyone's */
    return give_up(j, "the loss is not finite at step %zu: try a smaller --lr", j->steps);
  json_log_write(
      &j->json,
      "{\"event\": \"step\", \"epoch\": %zu, \"step\": %zu, \"samples\": %zu, \"loss\": %.6g, "
      "\"seconds\": %.6f, \"waited_total\": %.6f}",
      epoch, j->steps, batch->count, (double)loss, seconds, t->gradients.waited);
  progress_bar_step(&j->bar, batch->count, loss, t->gradients.waited);
  return true;
}

static bool test_accuracy(struct job *j, size_t epoch) {
  size_t correct;
  gyre_status s = trainer_test(&j->trainer, &j->test, &correct);
  if (s != GYRE_OK) return gyre_failed(j, "all-reduce of the test result", s);
  j->accuracy = (double)correct / (double)j->test.count;
  progress_bar_clear(&j->bar);
  json_log_write(&j->json,
                 "{\"event\": \"epoch\", \"epoch\": %zu, \"steps\": %zu, \"correct\": %zu, "
                 "\"accuracy\": %.6f}",
                 epoch, j->steps, correct, j->accuracy);
  if (j->rank == 0 && !j->options.quiet)
    printf("epoch %zu: test accuracy %.4f after %zu steps\n", epoch, j->accuracy, j->steps);
  return true;
}

static bool train_epoch(struct job *j, size_t epoch) {
  const struct train_options *o = &j->options;
  size_t total = j->train.count;
  sampler_shuffle(&j->sampler, o->seed, epoch);
  progress_bar_epoch(&j->bar, epoch, steps_per_epoch(j), j->trainer.gradients.waited);
  for (size_t at = 0; at < total && j->steps < j->last_step; at += o->batch) {
    /* The learning rate falls to 0 in a straight line, so that the last steps settle. */
    double left = 1.0 - (double)j->steps / (double)j->last_step;
    struct batch batch = {.samples = j->sampler.order + at,
                          .count = total - at < o->batch ? total - at : o->batch,
                          .lr = (float)((double)o->lr * left)};
    if (!train_step(j, epoch, &batch)) return false;
  }
  return test_accuracy(j, epoch);
}

/* -------------------------------------------------------------------------------- result --- */

static bool report_verify(struct job *j) {
  struct verify_result r;
  if (!j->options.verify) return true;
  gyre_status s = verify_finish(&j->verify, &j->trainer, &r);
  if (s != GYRE_OK) return gyre_failed(j, "comparing weights", s);
  bool passed = verify_passed(&r);
  json_log_write(
      &j->json,
      "{\"event\": \"verify\", \"steps\": %zu, \"ranks\": %d, \"relative_distance\": %.6g, "
      "\"bit_equal\": %s, \"passed\": %s}",
      j->steps, j->world, isfinite(r.distance) ? r.distance : -1.0,
      r.odd_rank < 0 ? "true" : "false", passed ? "true" : "false");
  if (j->rank == 0) {
    printf(
        "verify: after %zu steps, %d rank%s against one: ||w - w'|| / ||w|| = %.3g (limit %.0e)\n",
        j->steps, j->world, j->world == 1 ? "" : "s", r.distance, VERIFY_TOLERANCE);
    if (r.odd_rank < 0) printf("verify: weights are bit-equal on all ranks\n");
    else printf("verify: weights of rank %d differ from those of rank 0\n", r.odd_rank);
    fflush(stdout);
    if (!passed) fprintf(stderr, "gyre-train: verification failed\n");
  }
  return passed;
}

static bool report_result(struct job *j) {
  if (j->rank != 0) return true;
  double waited = j->trainer.gradients.waited;
  double share = j->seconds > 0.0 ? waited / j->seconds : 0.0;
  json_log_write(&j->json,
                 "{\"event\": \"end\", \"steps\": %zu, \"accuracy\": %.6f, \"seconds\": %.6f, "
                 "\"waited_seconds\": %.6f, \"waited_share\": %.6f}",
                 j->steps, j->accuracy, j->seconds, waited, share);
  printf("test accuracy %.4f, training time %.2f s, of which rank 0 waited %.1f %%"
         " (for sums on their way, and for slower ranks)\n",
         j->accuracy, j->seconds, 100.0 * share);
  if (!json_log_close(&j->json))
    return give_up(j, "--json %s: %s", j->options.json, strerror(errno));
  if (fflush(stdout) != 0) return give_up(j, "standard output: %s", strerror(errno));
  return true;
}

static bool run(struct job *j) {
  if (!set_up(j)) return false;
  for (size_t epoch = 1; j->steps < j->last_step; epoch++)
    if (!train_epoch(j, epoch)) return false;
  bool verified = report_verify(j);
  return report_result(j) && verified;
}

static void clean_up(struct job *j) {
  (void)json_log_close(&j->json);
  verify_destroy(&j->verify);
  trainer_destroy(&j->trainer);
  sampler_destroy(&j->sampler);
  idx_destroy(&j->test);
  idx_destroy(&j->train);
}

int main(int argc, char *argv[]) {
  struct job job = {0};
  switch (options_parse(argc, argv, &job.options)) {
    case OPTIONS_HELP: options_help(stdout); return EXIT_SUCCESS;
    case OPTIONS_VERSION: printf("gyre-train %s\n", gyre_version_string()); return EXIT_SUCCESS;
    case OPTIONS_BAD: return 2;
    case OPTIONS_RUN: break;
  }
  /* Ranks often share the cores of a machine: more threads would only get in each other's way. */
  openblas_set_num_threads(job.options.threads);

  int exit_status = EXIT_FAILURE;
  gyre_context *ctx;
  if (gyre_context_create(&ctx) != GYRE_OK) {
    fprintf(stderr, "gyre-train: %s\n", gyre_last_error());
    return EXIT_FAILURE;
  }
  /* The communicator comes before the data: from here on a rank that fails can tell the others. */
  if (gyre_comm_create_from_env(ctx, NULL, &job.comm) != GYRE_OK) {
    fprintf(stderr, "gyre-train: %s\n", gyre_last_error());
    goto destroy_context;
  }
  job.rank = gyre_comm_rank(job.comm);
  job.world = gyre_comm_size(job.comm);
  if (run(&job)) exit_status = EXIT_SUCCESS;
  clean_up(&job);
  gyre_comm_destroy(job.comm);

destroy_context:
  gyre_context_destroy(ctx);
  return exit_status;
}

/*
 * progress_bar.h - how far the training is: a bar on a terminal, a few plain lines elsewhere.
 *
 * Role: all output while training. Thread: the trainer's only one; rank 0 only.
 */
#ifndef TRAIN_PROGRESS_BAR_H
#define TRAIN_PROGRESS_BAR_H

#include <stdbool.h>
#include <stddef.h>

struct progress_bar {
  bool quiet, terminal;
  size_t epoch, step, steps;      /* of this epoch */
  double shown_at;                /* time of the last output */
  size_t samples, loss_count;     /* since the last output */
  double loss_sum, waited_before; /* since the last output; buckets' `waited` then */
};

void progress_bar_init(struct progress_bar *p, bool quiet);
void progress_bar_epoch(struct progress_bar *p, size_t epoch, size_t steps, double waited);
/* After each step; `waited` is the seconds spent waiting for communication so far. */
void progress_bar_step(struct progress_bar *p, size_t samples, float loss, double waited);
/* Clears the bar: before other output. */
void progress_bar_clear(struct progress_bar *p);

#endif

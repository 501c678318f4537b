/*
 * progress_bar.c - see progress_bar.h.
 */
#include "progress_bar.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "stopwatch.h"

#define BAR_WIDTH 20
#define BAR_SECONDS 0.1   /* between two drawings of the bar */
#define LINES_PER_EPOCH 5 /* where there is no terminal */

void progress_bar_init(struct progress_bar *p, bool quiet) {
  memset(p, 0, sizeof *p);
  p->quiet = quiet;
  p->terminal = isatty(STDOUT_FILENO) == 1;
}

static void start_interval(struct progress_bar *p, double now, double waited) {
  p->shown_at = now;
  p->samples = p->loss_count = 0;
  p->loss_sum = 0.0;
  p->waited_before = waited;
}

void progress_bar_epoch(struct progress_bar *p, size_t epoch, size_t steps, double waited) {
  p->epoch = epoch;
  p->step = 0;
  p->steps = steps;
  start_interval(p, stopwatch_now(), waited);
}

static bool is_due(const struct progress_bar *p, double now) {
  if (p->quiet) return false;
  if (p->terminal) return now - p->shown_at >= BAR_SECONDS || p->step == p->steps;
  return p->step * LINES_PER_EPOCH / p->steps != (p->step - 1) * LINES_PER_EPOCH / p->steps;
}

void progress_bar_step(struct progress_bar *p, size_t samples, float loss, double waited) {
  double now = stopwatch_now();
  p->step++;
  p->samples += samples;
  p->loss_sum += (double)loss;
  p->loss_count++;
  if (!is_due(p, now)) return;
  double seconds = now > p->shown_at ? now - p->shown_at : 1e-9;
  if (p->terminal) {
    char bar[BAR_WIDTH + 1];
    size_t full = p->step * BAR_WIDTH / p->steps;
    memset(bar, '.', BAR_WIDTH);
    memset(bar, '#', full);
    bar[BAR_WIDTH] = '\0';
    printf("\r\033[K[%s] ", bar);
  }
  printf("epoch %zu %3zu %%  loss %.4f  %.0f samples/s  waiting %.0f %%", p->epoch,
         p->step * 100 / p->steps, p->loss_sum / (double)p->loss_count,
         (double)p->samples / seconds, 100.0 * (waited - p->waited_before) / seconds);
  if (!p->terminal) putchar('\n');
  fflush(stdout);
  start_interval(p, now, waited);
}

void progress_bar_clear(struct progress_bar *p) {
  if (p->terminal && !p->quiet) fputs("\r\033[K", stdout);
}

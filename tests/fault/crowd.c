/* crowd.c - see crowd.h. */
#include "crowd.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void must(gyre_status st, const char *what) {
  if (st) fail_msg("%s: %s: %s", what, gyre_status_name(st), gyre_last_error());
}

void crowd_open(struct crowd *c, int nranks, int n_ctx) {
  *c = (struct crowd){.nranks = nranks, .n_ctx = n_ctx};
  for (int i = 0; i < n_ctx; i++) must(gyre_context_create(&c->ctx[i]), "context");
}

void crowd_meet(struct crowd *c, const gyre_comm_config *config) {
  gyre_comm_config mine = GYRE_COMM_CONFIG_INIT;
  gyre_unique_id id;
  gyre_request *req[WORLD_MAX];
  if (config) mine = *config;
  must(gyre_unique_id_create(c->ctx[0], &id), "unique id");
  mine.id = &id;
  for (int r = 0; r < c->nranks; r++) {
    must(gyre_comm_create_async(c->ctx[r % c->n_ctx], r, c->nranks, &mine, &c->comm[r], &req[r]),
         "creation");
  }
  for (int r = 0; r < c->nranks; r++) must(gyre_wait(req[r], WATCHDOG_MS), "creation");
}

void crowd_all_reduce(struct crowd *c) {
  gyre_request *req[WORLD_MAX];
  int64_t mine[WORLD_MAX], sum[WORLD_MAX], expected = 0;
  for (int r = 0; r < c->nranks; r++) {
    mine[r] = 1 + r * r;
    expected += mine[r];
    must(gyre_all_reduce_async(c->comm[r], &mine[r], &sum[r], 1, GYRE_I64, GYRE_SUM, &req[r]),
         "all_reduce");
  }
  for (int r = 0; r < c->nranks; r++) must(gyre_wait(req[r], WATCHDOG_MS), "all_reduce");
  for (int r = 0; r < c->nranks; r++) assert_true(sum[r] == expected);
}

void crowd_part(struct crowd *c) {
  for (int r = 0; r < c->nranks; r++) {
    gyre_comm_destroy(c->comm[r]);
    c->comm[r] = NULL;
  }
}

void crowd_close(struct crowd *c) {
  for (int i = 0; i < c->n_ctx; i++) gyre_context_destroy(c->ctx[i]);
}

/* --------------------------------------------------------------------------------- holdings --- */

static int entries(const char *path) {
  int n = 0;
  DIR *dir = opendir(path);
  if (!dir) return -1;
  while (readdir(dir)) n++;
  closedir(dir);
  return n - 3; /* ".", ".." and, for descriptors, this directory's own */
}

struct holdings holdings_now(void) {
  struct holdings h = {entries("/proc/self/fd"), entries("/proc/self/task") + 1, 0};
  char line[256];
  FILE *f = fopen("/proc/self/status", "r");
  while (f && fgets(line, sizeof line, f)) sscanf(line, "VmRSS: %ld", &h.rss_kib);
  if (f) fclose(f);
  return h;
}

void holdings_settle(const struct holdings *before) {
  struct holdings h = holdings_now();
  for (int ms = 0;
       ms < 10000 && (h.descriptors > before->descriptors || h.threads > before->threads); ms += 10) {
    sleep_ms(10);
    h = holdings_now();
  }
  if (h.descriptors > before->descriptors || h.threads > before->threads) {
    fail_msg("descriptors %d -> %d, threads %d -> %d", before->descriptors, h.descriptors,
             before->threads, h.threads);
  }
}

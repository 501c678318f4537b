/* session.c - set-up, agreement between ranks and buffers of one run. See session.h. */
#include "session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "size.h"

gyre_status perf_agree(struct perf_session *s, uint64_t *value) {
  return gyre_broadcast(s->comm, value, value, 1, GYRE_U64, 0);
}

gyre_status perf_all_ready(struct perf_session *s, bool here) {
  uint8_t mine = here;
  uint8_t *ready = calloc((size_t)s->nranks, 1);
  if (ready == NULL) return GYRE_ERR_NOMEM;
  gyre_status st = gyre_all_gather(s->comm, &mine, ready, 1, GYRE_U8);
  for (int r = 0; st == GYRE_OK && r < s->nranks; r++)
    if (!ready[r]) {
      st = GYRE_ERR_STATE;
      if (here)
        snprintf(s->why, sizeof(s->why), "rank %d cannot go on; its own output says why", r);
    }
  free(ready);
  return st;
}

/* ---------------------------------------------------------------------------------- buffers --- */

/* Page aligned, as benchmarks usually have them, and never of size 0. */
static bool map_buffer(struct perf_session *s, struct perf_buffer *b, size_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  b->bytes = (bytes / page + 1) * page;
  void *base = mmap(NULL, b->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base != MAP_FAILED) {
    b->base = base;
    return true;
  }
  char size[32];
  perf_format_size(b->bytes, size, sizeof(size));
  snprintf(s->why, sizeof(s->why), "cannot allocate a buffer of %s: %s; lower -e", size,
           strerror(errno));
  return false;
}

/* Where blocks vary, this rank's is at most half as long again as the average. */
static size_t part_bytes(const struct perf_session *s) {
  size_t block = s->options->max_bytes / (size_t)s->nranks;
  return s->options->coll->varies ? block + block / 2 : block;
}

static size_t in_bytes(const struct perf_session *s) {
  return perf_in_is_part(s->options->coll) ? part_bytes(s) : s->options->max_bytes;
}

static size_t out_bytes(const struct perf_session *s) {
  return perf_out_is_part(s->options->coll) ? part_bytes(s) : s->options->max_bytes;
}

static gyre_status open_buffers(struct perf_session *s) {
  if (!s->options->coll->has_data) return GYRE_OK;
  uint64_t need = (uint64_t)in_bytes(s) + (uint64_t)out_bytes(s);
  if (!perf_hosts_fits(&s->hosts, need, s->why, sizeof(s->why)))
    return GYRE_ERR_NOMEM; /* the same on every rank */
  bool ok = map_buffer(s, &s->in, in_bytes(s)) && map_buffer(s, &s->out, out_bytes(s));
  return perf_all_ready(s, ok);
}

struct perf_call perf_call_of(const struct perf_session *s, const struct perf_shape *shape,
                              bool in_place) {
  const struct perf_collective *coll = s->options->coll;
  size_t block = perf_block_start(coll, shape->count, s->nranks, s->rank, s->rank) *
                 gyre_dtype_size(shape->type);
  for (int r = 0; r < s->nranks; r++)
    s->counts[r] = perf_block_count(coll, shape->count, s->nranks, s->rank, r);
  struct perf_call call = {.comm = s->comm,
                           .in = s->in.base,
                           .out = s->out.base,
                           .count = shape->count,
                           .rank = s->rank,
                           .counts = s->counts,
                           .type = shape->type,
                           .op = shape->op,
                           .root = s->options->root};
  if (!in_place) return call;
  if (perf_out_is_part(coll)) call.out = s->in.base + block;
  else call.in = s->out.base + (perf_in_is_part(coll) ? block : 0);
  return call;
}

/* --------------------------------------------------------------------------- open and close --- */

static gyre_status open_raw(struct perf_session *s) {
  if (!s->options->raw) return GYRE_OK;
  gyre_status st = perf_raw_open(&s->raw, s->comm, &s->hosts);
  if (s->raw.why[0] != '\0') snprintf(s->why, sizeof(s->why), "%s", s->raw.why);
  return st;
}

gyre_status perf_session_open(struct perf_session *s, const struct perf_options *options,
                              gyre_comm *comm) {
  memset(s, 0, sizeof(*s));
  s->options = options;
  s->comm = comm;
  s->rank = gyre_comm_rank(comm);
  s->nranks = gyre_comm_size(comm);
  s->counts = calloc((size_t)s->nranks, sizeof(*s->counts));
  gyre_status st = s->counts == NULL ? GYRE_ERR_NOMEM : perf_hosts_learn(&s->hosts, comm);
  if (st == GYRE_OK) st = open_buffers(s);
  if (st == GYRE_OK) st = open_raw(s);
  for (int kind = 0; kind < PERF_KINDS; kind++) {
    s->times[kind] = calloc((size_t)s->nranks, sizeof(struct perf_times));
    if (st == GYRE_OK && s->times[kind] == NULL) st = GYRE_ERR_NOMEM;
  }
  if (st != GYRE_OK) return st;
  bool ok = s->rank != 0 || perf_output_open(&s->output, options, s->nranks, s->why, sizeof(s->why));
  return perf_all_ready(s, ok);
}

bool perf_session_close(struct perf_session *s) {
  bool ok = s->rank != 0 || perf_output_close(&s->output, s->why, sizeof(s->why));
  for (int kind = 0; kind < PERF_KINDS; kind++) free(s->times[kind]);
  perf_raw_close(&s->raw);
  if (s->in.base != NULL) munmap(s->in.base, s->in.bytes);
  if (s->out.base != NULL) munmap(s->out.base, s->out.bytes);
  perf_hosts_free(&s->hosts);
  free(s->counts);
  return ok;
}

/*
 * buckets.c - see buckets.h.
 */
#include "buckets.h"

#include <stdlib.h>
#include <string.h>

#include "stopwatch.h"

#define MIN_BUCKET_BYTES ((size_t)32 << 10)
#define MAX_BUCKET_BYTES ((size_t)4 << 20)

size_t buckets_default_bytes(size_t count) {
  size_t bytes = count * sizeof(float) / 4 / 1024 * 1024;
  if (bytes < MIN_BUCKET_BYTES) return MIN_BUCKET_BYTES;
  return bytes < MAX_BUCKET_BYTES ? bytes : MAX_BUCKET_BYTES;
}

bool buckets_create(struct buckets *b, gyre_comm *comm, size_t count, size_t bucket_bytes) {
  memset(b, 0, sizeof *b);
  b->comm = comm;
  b->count = count;
  b->each = bucket_bytes / sizeof(float);
  b->total = (count + b->each - 1) / b->each;
  b->data = calloc(count, sizeof *b->data);
  b->request = calloc(b->total, sizeof(gyre_request *));
  if (b->data && b->request) return true;
  buckets_destroy(b);
  return false;
}

static size_t bucket_end(const struct buckets *b, size_t i) {
  return i + 1 < b->total ? (i + 1) * b->each : b->count;
}

gyre_status buckets_ready(struct buckets *b, size_t end) {
  while (b->posted < b->total && bucket_end(b, b->posted) <= end) {
    size_t i = b->posted, first = i * b->each;
    if (b->comm) {
      gyre_status s =
          gyre_all_reduce_async(b->comm, b->data + first, b->data + first, bucket_end(b, i) - first,
                                GYRE_F32, GYRE_SUM, &b->request[i]);
      if (s != GYRE_OK) return s;
    }
    b->posted++;
  }
  return GYRE_OK;
}

gyre_status buckets_wait(struct buckets *b, size_t i, size_t *first, size_t *count) {
  double begin = stopwatch_now();
  gyre_status s = b->comm ? gyre_wait(b->request[i], -1) : GYRE_OK;
  b->waited += b->comm ? stopwatch_now() - begin : 0.0;
  b->request[i] = NULL; /* gyre_wait has freed it, whatever the result */
  if (s != GYRE_OK) return s;
  *first = i * b->each;
  *count = bucket_end(b, i) - *first;
  if (i + 1 == b->total) b->posted = 0;
  return GYRE_OK;
}

void buckets_destroy(struct buckets *b) {
  /* The array may not be freed while Gyre can still write to it. */
  for (size_t i = 0; b->request && i < b->total; i++)
    if (b->request[i]) (void)gyre_wait(b->request[i], -1);
  free(b->request);
  free(b->data);
  memset(b, 0, sizeof *b);
}

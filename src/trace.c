/* trace.c - see trace.h. */
#include "trace.h"

#include <stdlib.h>
#include <time.h>

#include "status.h"

struct gy_trace {
  uint32_t n;
  struct gy_trace_entry entry[]; /* number i is in entry[i % n] */
};

gyre_status gy_trace_create(uint32_t n, struct gy_trace **out) {
  struct gy_trace *t = calloc(1, sizeof *t + n * sizeof *t->entry);
  if (!t) return gy_fail(GYRE_ERR_NOMEM, "out of memory for a record of %u operations", n);
  t->n = n;
  *out = t;
  return GYRE_OK;
}

void gy_trace_free(struct gy_trace *t) { free(t); }

static int64_t read_clock(clockid_t id) {
  struct timespec t;
  clock_gettime(id, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t gy_trace_now(void) { return read_clock(CLOCK_MONOTONIC); }

/* Most operations start where they are posted, within a microsecond: a clock of a few milliseconds'
 * resolution shows those that do not, and costs a quarter. */
static int64_t started(int64_t posted_ns) {
  int64_t t = read_clock(CLOCK_MONOTONIC_COARSE);
  return t > posted_ns ? t : posted_ns;
}

void gy_trace_start(struct gy_trace *t, uint64_t number, const struct gy_descriptor *call,
                    bool receives, int64_t posted_ns) {
  if (!t->n) return;
  t->entry[number % t->n] = (struct gy_trace_entry){.number = number,
                                                    .call = *call,
                                                    .receives = receives,
                                                    .posted_ns = posted_ns,
                                                    .started_ns = started(posted_ns),
                                                    .status = GYRE_IN_PROGRESS};
}

void gy_trace_finish(struct gy_trace *t, uint64_t number, gyre_status status, uint64_t bytes_in,
                     uint64_t bytes_out) {
  struct gy_trace_entry *e = t->n ? &t->entry[number % t->n] : NULL;
  if (!e || e->number != number) return;
  e->finished_ns = gy_trace_now();
  e->status = status;
  e->bytes_in = bytes_in;
  e->bytes_out = bytes_out;
}

const struct gy_trace_entry *gy_trace_find(const struct gy_trace *t, uint64_t number) {
  const struct gy_trace_entry *e = t->n && number ? &t->entry[number % t->n] : NULL;
  return e && e->number == number ? e : NULL;
}

uint32_t gy_trace_room(const struct gy_trace *t) { return t->n; }

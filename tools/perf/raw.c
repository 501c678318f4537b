/* raw.c - an all-reduce over bare sockets. See raw.h. */
#include "raw.h"

#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define STALL_NS UINT64_C(30000000000) /* longest time without a byte */
#define PASSES_PER_CLOCK 4096u

/* ------------------------------------------------------------------------------- one socket --- */

struct stall { /* counts passes that moved nothing */
  unsigned passes;
  uint64_t since_ns;
};

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* After a pass that moved nothing: gives way if need be, and looks at the clock now and then. */
static bool idle(struct perf_raw *raw, struct stall *stall, int peer) {
  if (raw->yields) sched_yield();
  if (++stall->passes % PASSES_PER_CLOCK != 0) return true;
  uint64_t now = now_ns();
  if (stall->since_ns == 0) stall->since_ns = now;
  if (now - stall->since_ns > STALL_NS)
    return perf_raw_fail(raw, peer, "nothing has arrived for 30 s", 0);
  return true;
}

/* Bytes moved, 0 for none now, negative after a failure. */
static ssize_t push(struct perf_raw *raw, int peer, const char *from, size_t bytes) {
  ssize_t n = send(raw->fd[peer], from, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n >= 0) return n;
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return 0;
  perf_raw_fail(raw, peer, "send failed", errno);
  return -1;
}

static ssize_t pull(struct perf_raw *raw, int peer, char *to, size_t bytes) {
  ssize_t n = recv(raw->fd[peer], to, bytes, MSG_DONTWAIT);
  if (n > 0) return n;
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return 0;
  perf_raw_fail(raw, peer, n == 0 ? "it closed the connection" : "recv failed", n == 0 ? 0 : errno);
  return -1;
}

static void add(float *restrict out, const float *restrict a, const float *restrict b, size_t count) {
  for (size_t i = 0; i < count; i++) out[i] = a[i] + b[i];
}

/* --------------------------------------------------------------------------- small messages --- */

/* Sends `bytes` to the peer and receives as many from it, at once. */
static bool exchange(struct perf_raw *raw, int peer, const char *from, char *to, size_t bytes) {
  size_t sent = 0, got = 0;
  struct stall stall = {0};
  while (sent < bytes || got < bytes) {
    ssize_t s = sent < bytes ? push(raw, peer, from + sent, bytes - sent) : 0;
    ssize_t r = s >= 0 && got < bytes ? pull(raw, peer, to + got, bytes - got) : 0;
    if (s < 0 || r < 0) return false;
    sent += (size_t)s;
    got += (size_t)r;
    if (s > 0 || r > 0) stall = (struct stall){0};
    else if (!idle(raw, &stall, peer)) return false;
  }
  return true;
}

/* Recursive doubling; with two ranks it is a single exchange. */
static bool doubling(struct perf_raw *raw, const float *in, float *out, size_t count) {
  const float *mine = in;
  for (int bit = 1; bit < raw->nranks; bit <<= 1) {
    if (!exchange(raw, raw->rank ^ bit, (const char *)mine, raw->stage, count * sizeof(float)))
      return false;
    const float *theirs = (const float *)(const void *)raw->stage;
    for (size_t i = 0; i < count; i++) /* mine and out may be the same */
      out[i] = mine[i] + theirs[i];
    mine = out;
  }
  return true;
}

/* ------------------------------------------------------------------------------------- ring --- */

/* In step k of 2(n - 1) a rank sends chunk (rank - k) and receives chunk (rank - 1 - k). So what it
 * sends is its own chunk followed by all that it has received but the last chunk: two cursors over
 * byte streams are the whole state, and a slice leaves as soon as it has been added. */
struct ring {
  struct perf_raw *raw;
  const float *in;
  float *out;
  size_t count;
  int steps, next, prev;
  struct { /* position in a stream */
    int step;
    size_t offset;     /* bytes into the step's chunk */
    uint64_t position; /* bytes since the start */
  } send, recv;
  uint64_t first; /* bytes of the own chunk */
  size_t partial; /* bytes of a broken element in the stage */
};

static size_t chunk_begin(const struct ring *ring, int chunk) {
  size_t n = (size_t)ring->raw->nranks, c = (size_t)chunk;
  size_t rest = ring->count % n;
  return ring->count / n * c + (c < rest ? c : rest);
}

static int chunk_at(const struct ring *ring, int first, int step) {
  int n = ring->raw->nranks;
  return (((first - step) % n) + n) % n;
}

static size_t chunk_bytes(const struct ring *ring, int chunk) {
  return (chunk_begin(ring, chunk + 1) - chunk_begin(ring, chunk)) * sizeof(float);
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Sends the rest of a slice if all of it is there. */
static ssize_t ring_send(struct ring *ring) {
  int chunk = chunk_at(ring, ring->raw->rank, ring->send.step);
  size_t bytes = chunk_bytes(ring, chunk);
  while (ring->send.offset == bytes && ++ring->send.step < ring->steps) {
    ring->send.offset = 0;
    chunk = chunk_at(ring, ring->raw->rank, ring->send.step);
    bytes = chunk_bytes(ring, chunk);
  }
  if (ring->send.step >= ring->steps) return 0;
  size_t in_slice = ring->send.offset % PERF_RAW_SLICE;
  size_t want = least(PERF_RAW_SLICE - in_slice, bytes - ring->send.offset);
  if (ring->send.position + want > ring->first + ring->recv.position) return 0;
  const float *from = (ring->send.step == 0 ? ring->in : ring->out) + chunk_begin(ring, chunk);
  ssize_t n = push(ring->raw, ring->next, (const char *)from + ring->send.offset, want);
  if (n > 0) {
    ring->send.offset += (size_t)n;
    ring->send.position += (uint64_t)n;
  }
  return n;
}

/* Receives into the stage and adds whole elements; the stage keeps a broken one. */
static ssize_t ring_add(struct ring *ring, size_t begin, size_t left) {
  char *stage = ring->raw->stage;
  size_t want = least(left - ring->partial, PERF_RAW_SLICE);
  ssize_t n = pull(ring->raw, ring->prev, stage + ring->partial, want);
  if (n <= 0) return n;
  size_t have = ring->partial + (size_t)n;
  size_t whole = have / sizeof(float), at = begin + ring->recv.offset / sizeof(float);
  add(ring->out + at, ring->in + at, (const float *)(const void *)stage, whole);
  ring->partial = have % sizeof(float);
  memmove(stage, stage + whole * sizeof(float), ring->partial);
  ring->recv.offset += whole * sizeof(float);
  ring->recv.position += whole * sizeof(float);
  return n;
}

static ssize_t ring_receive(struct ring *ring) {
  int before = ring->raw->rank - 1;
  int chunk = chunk_at(ring, before, ring->recv.step);
  size_t bytes = chunk_bytes(ring, chunk);
  while (ring->recv.offset == bytes && ++ring->recv.step < ring->steps) {
    ring->recv.offset = 0;
    chunk = chunk_at(ring, before, ring->recv.step);
    bytes = chunk_bytes(ring, chunk);
  }
  if (ring->recv.step >= ring->steps) return 0;
  size_t begin = chunk_begin(ring, chunk), left = bytes - ring->recv.offset;
  if (ring->recv.step < ring->raw->nranks - 1) return ring_add(ring, begin, left);
  char *to = (char *)(ring->out + begin) + ring->recv.offset;
  ssize_t n = pull(ring->raw, ring->prev, to, least(left, PERF_RAW_SLICE));
  if (n > 0) {
    ring->recv.offset += (size_t)n;
    ring->recv.position += (uint64_t)n;
  }
  return n;
}

static bool ring_run(struct perf_raw *raw, const float *in, float *out, size_t count) {
  int n = raw->nranks;
  struct ring ring = {.raw = raw, .in = in, .out = out, .count = count};
  ring.steps = 2 * (n - 1);
  ring.next = (raw->rank + 1) % n;
  ring.prev = (raw->rank + n - 1) % n;
  ring.first = chunk_bytes(&ring, raw->rank);
  struct stall stall = {0};
  while (ring.send.step < ring.steps || ring.recv.step < ring.steps) {
    ssize_t r = ring_receive(&ring);
    ssize_t s = r >= 0 ? ring_send(&ring) : 0;
    if (r < 0 || s < 0) return false;
    if (r > 0 || s > 0) stall = (struct stall){0};
    else if (!idle(raw, &stall, ring.prev)) return false;
  }
  return true;
}

bool perf_raw_all_reduce(struct perf_raw *raw, const float *in, float *out, size_t count) {
  bool doubles = (raw->nranks & (raw->nranks - 1)) == 0;
  if (doubles && count * sizeof(float) < PERF_RAW_SMALL) return doubling(raw, in, out, count);
  return ring_run(raw, in, out, count);
}

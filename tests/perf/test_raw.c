/* test_raw.c - the sum over bare sockets, ranks as threads joined by socket pairs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "raw.h"

#define MAX_RANKS 6
#define ODD_COUNT 20001

struct member {
  struct perf_raw raw;
  float *in, *out;
  size_t count;
  bool ok;
};

static struct member members[MAX_RANKS];

static void *all_reduce_in_thread(void *user) {
  struct member *m = user;
  m->ok = perf_raw_all_reduce(&m->raw, m->in, m->out, m->count);
  return NULL;
}

static float contribution(int rank, size_t i) { return (float)((i * 7 + (size_t)rank * 13) % 101); }

static void join_ranks(int n) {
  for (int r = 0; r < n; r++) {
    struct perf_raw *raw = &members[r].raw;
    *raw = (struct perf_raw){.rank = r, .nranks = n, .yields = true};
    raw->fd = malloc((size_t)n * sizeof(int));
    raw->stage = malloc(PERF_RAW_SLICE + sizeof(float));
    assert_non_null(raw->fd);
    assert_non_null(raw->stage);
    for (int peer = 0; peer < n; peer++) raw->fd[peer] = -1;
  }
  for (int a = 0; a < n; a++)
    for (int b = a + 1; b < n; b++) {
      int pair[2];
      assert_true(perf_raw_needs(a, b, n) == perf_raw_needs(b, a, n));
      if (!perf_raw_needs(a, b, n)) continue;
      assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
      members[a].raw.fd[b] = pair[0];
      members[b].raw.fd[a] = pair[1];
    }
}

static void run_ranks(int n, size_t count) {
  pthread_t thread[MAX_RANKS];
  for (int r = 0; r < n; r++) {
    struct member *m = &members[r];
    m->count = count;
    m->in = malloc((count + 1) * sizeof(float));
    m->out = malloc((count + 1) * sizeof(float));
    assert_non_null(m->in);
    assert_non_null(m->out);
    for (size_t i = 0; i < count; i++) m->in[i] = contribution(r, i);
    memset(m->out, 0xa5, (count + 1) * sizeof(float));
    assert_int_equal(pthread_create(&thread[r], NULL, all_reduce_in_thread, m), 0);
  }
  for (int r = 0; r < n; r++) pthread_join(thread[r], NULL);
}

static void check_ranks(int n, size_t count) {
  for (int r = 0; r < n; r++) {
    struct member *m = &members[r];
    assert_true(m->ok);
    for (size_t i = 0; i < count; i++) {
      float want = 0.0f;
      for (int from = 0; from < n; from++) want += contribution(from, i);
      if (m->out[i] != want || m->in[i] != contribution(r, i))
        fail_msg("rank %d of %d, count %zu: element %zu is wrong", r, n, count, i);
    }
    free(m->in);
    free(m->out);
  }
}

static void sums_are_right(void **state) {
  (void)state;
  static const size_t counts[] = {1, 2, 7, 4097, 16383, 16384, 16385, 100003, 300000};
  for (int n = 2; n <= MAX_RANKS; n++) {
    join_ranks(n);
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
      run_ranks(n, counts[i]); /* one after the other on the same sockets: no byte is left over */
      check_ranks(n, counts[i]);
    }
    for (int r = 0; r < n; r++) perf_raw_close(&members[r].raw);
  }
}

/* Plays rank 1 of 2 by hand, in pieces that break elements: its half as it is, then the other half
 * as a sum. */
static void *send_in_pieces(void *user) {
  const struct member *m = user;
  static float stream[ODD_COUNT];
  size_t half = (ODD_COUNT + 1) / 2;
  for (size_t i = half; i < ODD_COUNT; i++) stream[i - half] = contribution(1, i);
  for (size_t i = 0; i < half; i++)
    stream[ODD_COUNT - half + i] = contribution(0, i) + contribution(1, i);
  const char *bytes = (const char *)stream;
  for (size_t sent = 0; sent < sizeof(stream);) {
    char sink[4096];
    size_t piece = 1 + sent % 7 < sizeof(stream) - sent ? 1 + sent % 7 : sizeof(stream) - sent;
    ssize_t n = send(m->raw.fd[0], bytes + sent, piece, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN) return NULL; /* rank 0 has given up */
    sent += n > 0 ? (size_t)n : 0;
    if (recv(m->raw.fd[0], sink, sizeof(sink), MSG_DONTWAIT) <= 0 && n <= 0) sched_yield();
  }
  return NULL;
}

static void broken_elements_are_joined(void **state) {
  (void)state;
  static float in[ODD_COUNT], out[ODD_COUNT];
  pthread_t thread;
  join_ranks(2);
  for (size_t i = 0; i < ODD_COUNT; i++) in[i] = contribution(0, i);
  assert_int_equal(pthread_create(&thread, NULL, send_in_pieces, &members[1]), 0);
  bool ok = perf_raw_all_reduce(&members[0].raw, in, out, ODD_COUNT);
  shutdown(members[0].raw.fd[1], SHUT_RDWR);
  pthread_join(thread, NULL);
  assert_true(ok);
  for (size_t i = 0; i < ODD_COUNT; i++)
    assert_true(out[i] == contribution(0, i) + contribution(1, i));
  for (int r = 0; r < 2; r++) perf_raw_close(&members[r].raw);
}

static void a_closed_connection_is_named(void **state) {
  (void)state;
  join_ranks(2);
  perf_raw_close(&members[1].raw);
  float in[2] = {1, 2}, out[2];
  assert_false(perf_raw_all_reduce(&members[0].raw, in, out, 2));
  assert_non_null(strstr(members[0].raw.why, "rank 1"));
  perf_raw_close(&members[0].raw);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sums_are_right),
      cmocka_unit_test(broken_elements_are_joined),
      cmocka_unit_test(a_closed_connection_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

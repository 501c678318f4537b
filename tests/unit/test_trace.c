/* test_trace.c - the flight recorder: its ring, what it says in JSON, the counters, the file on
 * failure. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "json.h"
#include "path.h"
#include "trace.h"

/* -------------------------------------------------------------------------------- the ring --- */

static void the_last_n_operations_are_kept(void **state) {
  (void)state;
  struct gy_trace *t;
  assert_int_equal(gy_trace_create(3, &t), GYRE_OK);
  assert_int_equal(gy_trace_room(t), 3);
  for (uint64_t s = 1; s <= 5; s++) {
    struct gy_descriptor call = {.seq = s, .count = 10 * s};
    gy_trace_start(t, s, &call, false, gy_trace_now());
    if (s == 4) gy_trace_finish(t, s, GYRE_OK, 7, 8);
  }
  for (uint64_t s = 0; s <= 7; s++) {
    const struct gy_trace_entry *e = gy_trace_find(t, s);
    if (s < 3 || s > 5) {
      assert_null(e);
      continue;
    }
    assert_non_null(e);
    assert_int_equal(e->call.count, 10 * s);
    assert_int_equal(e->status, s == 4 ? GYRE_OK : GYRE_IN_PROGRESS);
    assert_int_equal(e->bytes_in, s == 4 ? 7 : 0);
    assert_int_equal(e->bytes_out, s == 4 ? 8 : 0);
    assert_true(e->posted_ns > 0 && e->started_ns >= e->posted_ns);
    assert_true(s == 4 ? e->finished_ns >= e->started_ns : e->finished_ns == 0);
  }
  gy_trace_finish(t, 2, GYRE_ERR_TIMEOUT, 1, 1); /* overwritten by 5 */
  assert_int_equal(gy_trace_find(t, 5)->status, GYRE_IN_PROGRESS);
  gy_trace_free(t);
}

static void no_room_records_nothing(void **state) {
  (void)state;
  struct gy_trace *t;
  struct gy_descriptor call = {.seq = 1};
  assert_int_equal(gy_trace_create(0, &t), GYRE_OK);
  gy_trace_start(t, 1, &call, false, 1);
  gy_trace_finish(t, 1, GYRE_OK, 0, 0);
  assert_null(gy_trace_find(t, 1));
  gy_trace_free(t);
}

/* ---------------------------------------------------------------------------- JSON, paths --- */

static void json_escapes_and_grows(void **state) {
  (void)state;
  struct gy_json j = {0};
  gy_json_text(&j, "a\"b\\c\n\x01\xff\xc3\xa9");
  assert_string_equal(j.data, "\"a\\\"b\\\\c\\u000a\\u0001\\ufffd\xc3\xa9\"");
  size_t before = j.len;
  gy_json_text(&j, NULL);
  assert_string_equal(j.data + before, "null");
  for (int i = 0; i < 5000; i++) gy_json_put(&j, ", %d", i);
  assert_false(j.failed);
  assert_int_equal(strlen(j.data), j.len);
  assert_string_equal(j.data + j.len - 6, ", 4999");
  gy_json_free(&j);
}

static void paths_have_pid_and_rank(void **state) {
  (void)state;
  char out[64], expected[64];
  snprintf(expected, sizeof expected, "/d/%ld.7%%", (long)getpid());
  assert_int_equal(gy_path_expand("X", "/d/%p.%r%%", 7, out, sizeof out), GYRE_OK);
  assert_string_equal(out, expected);
  assert_int_equal(gy_path_expand("X", "/d/%q", 7, out, sizeof out), GYRE_ERR_ARG);
  assert_non_null(strstr(gyre_last_error(), "X=/d/%q"));
  assert_int_equal(gy_path_expand("X", "/d/%", 7, out, sizeof out), GYRE_ERR_ARG);
  assert_int_equal(gy_path_expand("X", "12345", 7, out, 5), GYRE_ERR_ARG);
  assert_int_equal(gy_path_expand("X", "1234", 7, out, 5), GYRE_OK);
}

/* --------------------------------------------------------------------------- communicators --- */

#define RANKS 2

struct pair { /* two ranks in this process, each with a context of its own */
  gyre_context *ctx[RANKS];
  gyre_comm *comm[RANKS];
  char dir[64];
};

static void pair_open(struct pair *p) {
  gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
  gyre_request *req[RANKS];
  gyre_unique_id id;
  for (int r = 0; r < RANKS; r++) assert_int_equal(gyre_context_create(&p->ctx[r]), GYRE_OK);
  assert_int_equal(gyre_unique_id_create(p->ctx[0], &id), GYRE_OK);
  config.id = &id;
  for (int r = 0; r < RANKS; r++) {
    assert_int_equal(gyre_comm_create_async(p->ctx[r], r, RANKS, &config, &p->comm[r], &req[r]),
                     GYRE_OK);
  }
  for (int r = 0; r < RANKS; r++) assert_int_equal(gyre_wait(req[r], -1), GYRE_OK);
}

static void pair_close(struct pair *p) {
  for (int r = 0; r < RANKS; r++) gyre_comm_destroy(p->comm[r]);
  for (int r = 0; r < RANKS; r++) gyre_context_destroy(p->ctx[r]);
}

static int make_dir(void **state) {
  static struct pair p;
  memset(&p, 0, sizeof p);
  snprintf(p.dir, sizeof p.dir, "/tmp/gyre-test-XXXXXX");
  *state = &p;
  return mkdtemp(p.dir) ? 0 : -1;
}

static int remove_dir(void **state) {
  struct pair *p = *state;
  unsetenv("GYRE_TRACE_FILE");
  unsetenv("GYRE_TRACE_OPS");
  return rmdir(p->dir);
}

/* Reads and removes a file. */
static char *take_file(const char *dir, const char *name) {
  char path[128];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE *f = fopen(path, "r");
  if (!f) fail_msg("%s is not there", path);
  char *text = calloc(1, 1 << 20);
  size_t n = fread(text, 1, (1 << 20) - 1, f);
  assert_true(n > 0);
  fclose(f);
  remove(path);
  return text;
}

static void has(const char *text, const char *part) {
  if (!strstr(text, part)) fail_msg("no %s in:\n%s", part, text);
}

static int count(const char *text, const char *part) {
  int n = 0;
  for (const char *c = text; (c = strstr(c, part)); c++) n++;
  return n;
}

static void both(struct pair *p, const float *in, float out[RANKS][100], size_t n) {
  gyre_request *req[RANKS];
  for (int r = 0; r < RANKS; r++) {
    assert_int_equal(gyre_all_reduce_async(p->comm[r], in, out[r], n, GYRE_F32, GYRE_SUM, &req[r]),
                     GYRE_OK);
  }
  for (int r = 0; r < RANKS; r++) assert_int_equal(gyre_wait(req[r], -1), GYRE_OK);
}

static void operations_are_recorded_and_counted(void **state) {
  struct pair *p = *state;
  float in[100] = {1}, out[RANKS][100];
  char path[128];
  gyre_request *req;
  setenv("GYRE_TRACE_OPS", "3", 1);
  pair_open(p);
  for (int i = 0; i < 4; i++) both(p, in, out, 100);
  assert_int_equal(gyre_all_reduce_async(p->comm[0], in, out[0], 7, GYRE_F32, GYRE_MAX, &req),
                   GYRE_OK);
  usleep(100000); /* rank 0 waits */
  snprintf(path, sizeof path, "%s/%%r.json", p->dir);
  assert_int_equal(gyre_comm_dump(p->comm[0], path), GYRE_OK);
  char *text = take_file(p->dir, "0.json");
  has(text, "\"reason\": \"call\"");
  has(text, "\"rank\": 0, \"size\": 2, \"state\": \"usable\"");
  has(text, "\"posted\": 5, \"completed\": 4, \"failed\": 0, \"started\": 5, "
            "\"first_unfinished\": 5");
  assert_int_equal(count(text, "{\"seq\": "), 3);
  has(text, "{\"seq\": 3, \"what\": \"all_reduce(f32 x 100, sum, ");
  has(text, "\"count\": 100, \"bytes\": 400, \"op\": \"sum\"");
  has(text, "\"status\": \"OK\", \"moved_in\": 400, \"moved_out\": 400, \"waiting\": null");
  has(text, "{\"seq\": 5, \"what\": \"all_reduce(f32 x 7, max, ");
  has(text, "\"finished_ns\": null, \"finished\": null, \"status\": \"IN_PROGRESS\"");
  has(text, "\"waiting\": {\"rank\": 1, ");
  free(text);

  assert_int_equal(gyre_all_reduce(p->comm[1], in, out[1], 7, GYRE_F32, GYRE_MAX), GYRE_OK);
  assert_int_equal(gyre_wait(req, -1), GYRE_OK);
  gyre_counters c = GYRE_COUNTERS_INIT;
  gyre_peer_counters peer = GYRE_PEER_COUNTERS_INIT;
  assert_int_equal(gyre_comm_counters(p->comm[0], &c), GYRE_OK);
  assert_int_equal(c.size, sizeof c);
  assert_int_equal(c.operations_posted, 5);
  assert_int_equal(c.operations_completed, 5);
  assert_int_equal(c.operations_failed, 0);
  assert_int_equal(c.bytes_sent, 4 * 400 + 28);
  assert_int_equal(c.bytes_received, 4 * 400 + 28);
  assert_int_equal(gyre_comm_peer_counters(p->comm[0], 1, &peer), GYRE_OK);
  assert_int_equal(peer.bytes_sent, c.bytes_sent);
  assert_int_equal(peer.bytes_received, c.bytes_received);
  assert_in_range(peer.wait_ns, 50000000, UINT64_C(60000000000)); /* of the 100 ms that it waited */
  assert_int_equal(gyre_comm_peer_counters(p->comm[0], 0, &peer), GYRE_OK);
  assert_int_equal(peer.bytes_sent + peer.bytes_received + peer.wait_ns, 0);
  pair_close(p);
}

static void arguments_are_checked(void **state) {
  struct pair *p = *state;
  gyre_counters c = GYRE_COUNTERS_INIT;
  gyre_peer_counters peer = GYRE_PEER_COUNTERS_INIT;
  pair_open(p);
  assert_int_equal(gyre_comm_counters(NULL, &c), GYRE_ERR_ARG);
  assert_int_equal(gyre_comm_counters(p->comm[0], NULL), GYRE_ERR_ARG);
  assert_int_equal(gyre_comm_peer_counters(p->comm[0], RANKS, &peer), GYRE_ERR_ARG);
  assert_int_equal(gyre_comm_peer_counters(p->comm[0], -1, &peer), GYRE_ERR_ARG);
  c.size = sizeof c.size;
  assert_int_equal(gyre_comm_counters(p->comm[0], &c), GYRE_ERR_ARG);
  assert_int_equal(c.size, sizeof c.size);
  assert_int_equal(gyre_comm_dump(p->comm[0], NULL), GYRE_ERR_ARG);
  assert_int_equal(gyre_comm_dump(p->comm[0], "/tmp/%x"), GYRE_ERR_ARG);
  assert_int_equal(gyre_comm_dump(p->comm[0], "/dev/null"), GYRE_ERR_ARG);
  assert_int_equal(gyre_comm_dump(p->comm[0], "/nowhere/at/all"), GYRE_ERR_SYS);
  assert_non_null(strstr(gyre_last_error(), "/nowhere/at/all"));
  struct { /* a program that knows a longer struct */
    gyre_counters known;
    uint64_t more;
  } later = {.known = {.size = sizeof later}, .more = 77};
  assert_int_equal(gyre_comm_counters(p->comm[0], &later.known), GYRE_OK);
  assert_int_equal(later.known.size, sizeof c);
  assert_int_equal(later.more, 77);
  pair_close(p);
}

/* Of rank 1's first operation. */
static void wait_for_start(struct pair *p) {
  char path[128];
  bool started = false;
  snprintf(path, sizeof path, "%s/now", p->dir);
  for (int i = 0; i < 10000 && !started; i++) {
    assert_int_equal(gyre_comm_dump(p->comm[1], path), GYRE_OK);
    char *text = take_file(p->dir, "now");
    started = strstr(text, "\"started\": 1,");
    free(text);
    if (!started) usleep(1000);
  }
  assert_true(started);
}

static void a_failure_writes_the_file(void **state) {
  struct pair *p = *state;
  float in[7] = {1}, out[7];
  char setting[128];
  gyre_request *req;
  snprintf(setting, sizeof setting, "%s/%%p-%%r.json", p->dir);
  setenv("GYRE_TRACE_FILE", setting, 1);
  pair_open(p);
  assert_int_equal(gyre_all_reduce_async(p->comm[1], in, out, 7, GYRE_F32, GYRE_SUM, &req), GYRE_OK);
  wait_for_start(p);
  assert_int_equal(gyre_comm_abort(p->comm[0], "for \"fun\""), GYRE_OK);
  assert_int_equal(gyre_wait(req, -1), GYRE_ERR_ABORTED);
  pair_close(p);
  for (int r = 0; r < RANKS; r++) {
    char name[64];
    snprintf(name, sizeof name, "%ld-%d.json", (long)getpid(), r);
    char *text = take_file(p->dir, name);
    has(text, "\"reason\": \"failure\"");
    has(text, "\"state\": \"failed\"");
    has(text, "\"verdict\": {\"status\": \"ABORTED\", \"culprit\": 0, \"reporter\": 0");
    has(text, "for \\\"fun\\\"");
    if (r == 1) has(text, "\"status\": \"IN_PROGRESS\"");
    free(text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_last_n_operations_are_kept),
      cmocka_unit_test(no_room_records_nothing),
      cmocka_unit_test(json_escapes_and_grows),
      cmocka_unit_test(paths_have_pid_and_rank),
      cmocka_unit_test_setup_teardown(operations_are_recorded_and_counted, make_dir, remove_dir),
      cmocka_unit_test_setup_teardown(arguments_are_checked, make_dir, remove_dir),
      cmocka_unit_test_setup_teardown(a_failure_writes_the_file, make_dir, remove_dir),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

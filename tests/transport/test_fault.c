/*
 * test_fault.c - the fault transport around TCP and around shared memory: what every transport must do, under faults that do
 * no harm; each harmful kind; and texts that are refused. CONFORMANCE_WHOLE in the environment runs
 * the suite at its full length, under more of them.
 */
#include "conformance.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "log.h"
#include "transport/fault/fault.h"
#include "transport/fault/plan.h"
#include "transport/tcp/link.h"

static const size_t borders[] = {GY_FRAME_SMALL, STAGING_BYTES};
static struct conformance faulty = {&gy_fault_tcp_ops, borders, 2, 20, true, NULL, true};
const struct conformance *conformance = &faulty;

static const struct CMUnitTest suite[] = {CONFORMANCE_TESTS};

/* Every second case with checksums; under the next fault it is the other half. Under a sanitizer, which takes the
 * longer the shorter the reads, each fault meets every third case and each case every third fault. */
static void over(const struct gy_tl_ops *ops, const char *fault, size_t number) {
  bool all = !conformance_is_sanitized();
  faulty.ops = ops;
  faulty.fault = fault;
  for (size_t i = 0; i < sizeof suite / sizeof *suite; i++) {
    if (!all && i % 3 != number % 3) continue;
    faulty.checksum = (i + number + number / 3) % 2 == 0;
    suite[i].test_func(NULL);
  }
}

static void under(const char *fault, size_t number) {
  over(&gy_fault_tcp_ops, fault, number);
  over(&gy_fault_shm_ops, fault, number);
}

#define UNDER(name, number, text)  \
  static void name(void **state) { \
    (void)state;                   \
    under(text, number);           \
  }

UNDER(delays, 0, "delay:us=300,seed=1")
UNDER(reordered_polls, 1, "reorder:seed=2")
UNDER(short_reads_and_writes, 2, "short:bytes=3000,seed=3")
UNDER(shorter_reads_and_writes, 3, "short:bytes=601,seed=4")
UNDER(all_together, 4, "delay:us=200,seed=5;reorder;short:bytes=5000")
UNDER(nothing_for_this_rank, 5, "short:bytes=1,rank=7")

static void tiny_reads_and_writes(void **state) {
  faulty.fault = "short:bytes=7,seed=4";
  faulty.checksum = true;
  conformance_windows(state);
  conformance_lanes(state);
  conformance_other_call(state);
}

/* What the quick suite has no time for. */
static void more_counts_and_seeds(void **state) {
  static const char *const texts[] = {"short:bytes=1",
                                      "short:bytes=7",
                                      "short:bytes=41",
                                      "short:bytes=65536",
                                      "delay:us=2000,seed=6",
                                      "reorder:seed=7",
                                      "reorder:seed=8",
                                      "delay:us=500,seed=77;reorder;short:bytes=900",
                                      "delay:us=50,seed=9;reorder;short:bytes=33"};
  (void)state;
  if (!getenv("CONFORMANCE_WHOLE")) skip();
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    print_message("%s\n", texts[i]);
    under(texts[i], i);
  }
}

/* ------------------------------------------------------------------------------------- harm --- */

static struct world world;

static struct world *two_ranks_over(const struct gy_tl_ops *ops, const char *fault, bool checksum) {
  world_open(&world, ops, 2, 8);
  world.roster.agreed.checksum = checksum;
  for (int r = 0; r < 2; r++)
    assert_int_equal(gy_settings_set(&world.rank[r].settings, "GYRE_FAULT", fault), GYRE_OK);
  world_open_transports(&world);
  return &world;
}

static struct world *two_ranks(const char *fault, bool checksum) {
  return two_ranks_over(&gy_fault_tcp_ops, fault, checksum);
}

/* Frames of 128 bytes: 40 of header, 64 of payload. Frames before the harm arrive, none after. */
static void send_until_broken(struct world *w, unsigned whole) {
  struct end *a = end_open(w, 0, 1, 0), *b = end_open(w, 1, 0, 0);
  uint8_t out[64], in[64];
  for (unsigned k = 0; k <= whole; k++) {
    struct transfer send, recv;
    pattern_fill(out, sizeof out, 0, k);
    post_recv(b, &recv, in, sizeof in);
    post_send(a, &send, out, sizeof out);
    WORLD_UNTIL(w, (recv.done && send.done) || b->downs);
    assert_int_equal(recv.done, k < whole);
    if (recv.done) pattern_check(in, sizeof in, 0, k);
  }
}

static void a_cut_link_is_down_on_both_ends(void **state) {
  (void)state;
  struct world *w = two_ranks("cut:bytes=300,rank=0", true);
  send_until_broken(w, 2);
  assert_int_equal(w->end[1].why, GYRE_ERR_PEER_LOST);
  struct transfer recv;
  uint8_t in;
  post_recv(&w->end[0], &recv, &in, 1);
  WORLD_UNTIL(w, w->end[0].downs);
  world_close(w);
}

static void a_flipped_bit_is_found_by_checksums(void **state) {
  (void)state;
  static const char *const texts[] = {"flip:byte=0,rank=0",  "flip:byte=39,bit=7,rank=0",
                                      "flip:byte=70,bit=3",  "flip:byte=103",
                                      "flip:byte=104,bit=2", "flip:byte=127"};
  for (unsigned i = 0; i < 6; i++) {
    struct world *w = two_ranks(texts[i], true);
    send_until_broken(w, i < 4 ? 0 : 1); /* from 104 on is padding: then the next frame's first byte */
    assert_int_equal(w->end[1].why, GYRE_ERR_PROTO);
    assert_non_null(strstr(w->end[1].text, "a bit was flipped on the way from rank 0"));
    world_close(w);
  }
}

/* There the bytes of payloads are counted, and a cut leaves elements of 16 bytes whole. */
static void the_same_in_shared_memory(void **state) {
  (void)state;
  static const char *const cuts[] = {"cut:bytes=128,rank=0", "cut:bytes=143,rank=0",
                                     "cut:bytes=190,rank=0"};
  static const char *const flips[] = {"flip:byte=0,rank=0", "flip:byte=63,bit=7,rank=0",
                                      "flip:byte=64,bit=3"};
  struct transfer recv;
  uint8_t in;
  for (unsigned i = 0; i < 3; i++) {
    struct world *w = two_ranks_over(&gy_fault_shm_ops, cuts[i], i % 2);
    send_until_broken(w, 2);
    assert_int_equal(w->end[1].why, GYRE_ERR_PEER_LOST);
    post_recv(&w->end[0], &recv, &in, 1);
    WORLD_UNTIL(w, w->end[0].downs);
    world_close(w);
    w = two_ranks_over(&gy_fault_shm_ops, flips[i], true);
    send_until_broken(w, i < 2 ? 0 : 1);
    assert_int_equal(w->end[1].why, GYRE_ERR_PROTO);
    assert_non_null(strstr(w->end[1].text, "a bit was flipped on the way from rank 0"));
    world_close(w);
  }
}

static void a_flipped_bit_is_delivered_without(void **state) {
  (void)state;
  struct world *w = two_ranks("flip:byte=33,bit=4,rank=0", false);
  struct end *a = end_open(w, 0, 1, 0), *b = end_open(w, 1, 0, 0);
  struct transfer send, recv;
  uint8_t out[64] = {0}, in[64];
  post_recv(b, &recv, in, sizeof in);
  post_send(a, &send, out, sizeof out);
  WORLD_UNTIL(w, recv.done);
  assert_int_equal(in[1], 16);
  assert_int_equal(out[1], 0); /* the user's buffer is left alone */
  world_close(w);
}

static void killed_or_stopped_at_a_slice(void **state) {
  (void)state;
  for (int stop = 0; stop < 2; stop++) {
    pid_t pid = fork();
    if (pid == 0) {
      struct world *w = two_ranks(stop ? "stop:slice=3,rank=0" : "kill:slice=3,rank=0", false);
      struct end *a = end_open(w, 0, 1, 0);
      struct transfer t[3];
      uint8_t byte = 0;
      for (int k = 0; k < 2; k++) post_send(a, &t[k], &byte, 1);
      post_send(a, &t[2], &byte, 1);
      _exit(8);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    if (stop) {
      assert_true(WIFSTOPPED(status));
      kill(pid, SIGKILL);
      assert_int_equal(waitpid(pid, &status, 0), pid);
    }
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  }
}

/* ------------------------------------------------------------------------------------- texts --- */

static void texts_are_read(void **state) {
  (void)state;
  struct gy_fault_plan p;
  assert_int_equal(gy_fault_plan_read("", &p), GYRE_OK);
  assert_int_equal(p.n, 0);
  assert_int_equal(
      gy_fault_plan_read("kill:slice=12,rank=3,op=5;flip:byte=7,bit=6,peer=1,seed=9;reorder;", &p),
      GYRE_OK);
  assert_int_equal(p.n, 3);
  assert_int_equal(p.rule[0].kind, GY_FAULT_KILL);
  assert_int_equal(p.rule[0].amount, 12);
  assert_int_equal(p.rule[0].rank, 3);
  assert_int_equal(p.rule[0].op, 5);
  assert_int_equal(p.rule[0].peer, -1);
  assert_int_equal(p.rule[1].bit, 6);
  assert_int_equal(p.rule[1].peer, 1);
  assert_int_equal(p.rule[1].seed, 9);
  assert_true(gy_fault_plan_concerns(&p, 0)); /* by the second rule */
  assert_int_equal(gy_fault_plan_read("kill:slice=12,rank=3", &p), GYRE_OK);
  assert_true(gy_fault_plan_concerns(&p, 3));
  assert_false(gy_fault_plan_concerns(&p, 2));
}

static void wrong_texts_are_refused(void **state) {
  (void)state;
  static const char *const wrong[] = {
      "x",
      "kill",
      "kill:",
      "kill:slice",
      "kill:slice=",
      "kill:slice=0",
      "kill:slice=-1",
      "kill:slice=1x",
      "kill:slice=1,",
      "kill:bytes=1",
      "kill:slice=1,bit=2",
      "kill:slice=1;;reorder",
      "flip:byte=1,bit=8",
      "delay:us=10000001",
      "short:bytes=0",
      "cut:rank=1",
      "reorder:us=1",
      "reorder:rank=16384",
      "reorder:op=0",
      "reorder;reorder;reorder;reorder;reorder;reorder;reorder;reorder;reorder"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    struct gy_fault_plan p = {.n = 77};
    if (gy_fault_plan_read(wrong[i], &p) != GYRE_ERR_ARG) fail_msg("%s was taken", wrong[i]);
    assert_int_equal(p.n, 77);
    assert_non_null(strstr(gyre_last_error(), "the form is kind:key=value"));
  }
}

int main(void) {
  gy_log_open(GY_LOG_ERROR, ""); /* that faults are injected is a warning */
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(texts_are_read),
      cmocka_unit_test(wrong_texts_are_refused),
      cmocka_unit_test(delays),
      cmocka_unit_test(reordered_polls),
      cmocka_unit_test(short_reads_and_writes),
      cmocka_unit_test(shorter_reads_and_writes),
      cmocka_unit_test(tiny_reads_and_writes),
      cmocka_unit_test(all_together),
      cmocka_unit_test(more_counts_and_seeds),
      cmocka_unit_test(nothing_for_this_rank),
      cmocka_unit_test(a_cut_link_is_down_on_both_ends),
      cmocka_unit_test(a_flipped_bit_is_found_by_checksums),
      cmocka_unit_test(the_same_in_shared_memory),
      cmocka_unit_test(a_flipped_bit_is_delivered_without),
      cmocka_unit_test(killed_or_stopped_at_a_slice),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_job.c - documents of several ranks put together: who lags is named, and no document, however
 * odd, does more than be refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job.h"

#define SECOND INT64_C(1000000000)
#define NOW (100 * SECOND)
#define ID "00112233445566778899aabbccddeeff"

static char why[512], report[1 << 16];

/* -------------------------------------------------------------------------------- documents --- */

struct says { /* of one rank of `size` */
  int rank, size;
  int done; /* operations that are over */
  int in;   /* whom it waits for in the next one; NOBODY: in it, but for nobody; OUT: not in it */
  int for_s;
  const char *last; /* what the last recorded one is; NULL: all_reduce(f32 x 7, sum, ring) */
  const char *messages, *verdict, *now;
};
enum { NOBODY = -1, OUT = -2 };

static void put(char *out, const char *fmt, ...) {
  size_t n = strlen(out);
  va_list args;
  va_start(args, fmt);
  vsnprintf(out + n, (1 << 16) - n, fmt, args);
  va_end(args);
}

static const char *document(const struct says *s) {
  static char out[1 << 16];
  int started = s->done + (s->in != OUT);
  *out = 0;
  put(out,
      "{\"gyre\": \"0.1.0\", \"format\": 1, \"reason\": \"query\", \"host\": \"h\", \"pid\": %d, "
      "\"now_ns\": %lld, \"now\": \"%s\", \"later\": {}, \"communicators\": [{\"rank\": %d, "
      "\"size\": %d, \"state\": \"usable\", \"id\": \"" ID "\", \"posted\": %d, \"completed\": %d, "
      "\"started\": %d, \"first_unfinished\": %d, \"verdict\": %s, \"members\": [",
      100 + s->rank, (long long)NOW, s->now ? s->now : "2025-01-01T00:00:00.000000Z", s->rank,
      s->size, started, s->done, started, s->done + 1, s->verdict ? s->verdict : "null");
  for (int r = 0; r < s->size; r++)
    put(out, "%s{\"rank\": %d, \"host\": \"host%d\", \"pid\": %d}", r ? ", " : "", r, r, 100 + r);
  put(out, "], \"operations\": [");
  for (int i = 1; i <= started; i++) {
    bool last = i == started;
    long long since = (long long)(NOW - s->for_s * SECOND);
    put(out, "%s{\"seq\": %d, \"what\": \"%s\", \"started_ns\": %lld, \"started\": \"T%d\"",
        i > 1 ? ", " : "", i, last && s->last ? s->last : "all_reduce(f32 x 7, sum, ring)", since,
        1000 - s->for_s);
    if (i <= s->done) {
      put(out, ", \"finished_ns\": %lld, \"status\": \"OK\", \"waiting\": null}", since);
      continue;
    }
    put(out, ", \"finished_ns\": null, \"status\": \"IN_PROGRESS\", \"moved_in\": %d, \"waiting\": ",
        10 * s->rank);
    if (s->in >= 0) put(out, "{\"rank\": %d, \"link\": \"\"}}", s->in);
    else put(out, "null}");
  }
  put(out, "], \"messages\": [%s]}]}", s->messages ? s->messages : "");
  return out;
}

#define MESSAGE(from, to, kind, peer, status)                                                    \
  "{\"number\": 5, \"what\": \"message 5 from rank " from " to rank " to "\", \"kind\": \"" kind \
  "\", \"peer\": " peer                                                                          \
  ", \"started_ns\": 90000000000, \"started\": \"T900\", \"status\": \"" status "\"}"

static bool add_text(struct job *job, const char *name, const char *json, size_t len) {
  struct document *d = document_read(name, json, len, why, sizeof why);
  return d && job_add(job, d, why, sizeof why);
}

static bool add(struct job *job, struct says s) {
  char name[16];
  snprintf(name, sizeof name, "%d.json", s.rank);
  const char *json = document(&s);
  return add_text(job, name, json, strlen(json));
}

static bool is_well(struct job *job) {
  FILE *f = fmemopen(report, sizeof report, "w");
  bool well = job_report(job, f);
  fclose(f);
  job_free(job);
  return well;
}

static void says(const char *part) {
  if (!strstr(report, part)) fail_msg("no \"%s\" in:\n%s", part, report);
}

static void does_not_say(const char *part) {
  if (strstr(report, part)) fail_msg("\"%s\" in:\n%s", part, report);
}

/* -------------------------------------------------------------------------------- who lags --- */

static void who_has_not_called_is_named(void **state) {
  (void)state;
  struct job *job = job_new();
  static const int awaits[] = {1, 2, OUT, 2};
  for (int r = 0; r < 4; r++)
    assert_true(
        add(job, (struct says){.rank = r, .size = 4, .done = 16, .in = awaits[r], .for_s = 3 + r}));
  assert_false(is_well(job));
  says("Communicator " ID ", 4 ranks\n  seen     all\n");
  says("behind   rank 2 (host2, pid 102): between operations: 16 all_reduce(f32 x 7, sum, ring) "
       "ended 5.0 s ago\n");
  says("at       ranks 0 1 3: in operation 17 all_reduce(f32 x 7, sum, ring), for 6.0 s; moved 0 "
       "to 30 bytes\n");
  says("cause    rank 2 (host2, pid 102) has not called operation 17 all_reduce(f32 x 7, sum, "
       "ring); it keeps "
       "waiting: ranks 0 1 3, since T994\n");
  does_not_say("differ");
}

static void an_earlier_operation_is_followed_to_its_cause(void **state) {
  (void)state;
  struct job *job = job_new();
  /* 0 waits in 9 for 1, which waits in 8 for 3, which has done 7 only; 2 is as far as 0 */
  assert_true(add(job, (struct says){.rank = 0, .size = 4, .done = 8, .in = 1, .for_s = 4}));
  assert_true(add(job, (struct says){.rank = 1, .size = 4, .done = 7, .in = 3, .for_s = 5}));
  assert_true(add(job, (struct says){.rank = 2, .size = 4, .done = 8, .in = 0, .for_s = 4}));
  assert_true(add(job, (struct says){.rank = 3, .size = 4, .done = 7, .in = OUT, .for_s = 9}));
  assert_false(is_well(job));
  says("behind   rank 3 (host3, pid 103): between operations: 7 ");
  says("behind   rank 1 (host1, pid 101): in operation 8 ");
  says("at       ranks 0 2: in operation 9 ");
  says("cause    rank 3 (host3, pid 103) has not called operation 8 ");
  says("it keeps waiting: ranks 0-2, since T995");
}

static void who_is_missing_may_be_the_cause(void **state) {
  (void)state;
  struct job *job = job_new();
  assert_true(add(job, (struct says){.rank = 0, .size = 3, .done = 1, .in = 2, .for_s = 2}));
  assert_true(add(job, (struct says){.rank = 1, .size = 3, .done = 1, .in = 0, .for_s = 2}));
  assert_false(is_well(job));
  says("  seen     ranks 0 1\n  missing  rank 2 (host2, pid 102)\n");
  says("cause    rank 2 (host2, pid 102) is not seen here and is waited for in operation 2 ");
}

static void a_short_wait_says_nothing(void **state) {
  (void)state;
  struct job *job = job_new();
  assert_true(add(job, (struct says){.rank = 0, .size = 2, .done = 1, .in = 1, .for_s = 0}));
  assert_true(add(job, (struct says){.rank = 1, .size = 2, .done = 1, .in = OUT, .for_s = 0}));
  assert_true(is_well(job));
  says("behind   rank 1 ");
  does_not_say("cause");
  says("  well     ");
}

static void ranks_that_move_are_no_cause(void **state) {
  (void)state;
  struct job *job = job_new();
  for (int r = 0; r < 3; r++) /* round in a ring */
    assert_true(
        add(job, (struct says){.rank = r, .size = 3, .done = 0, .in = (r + 2) % 3, .for_s = 8}));
  assert_true(is_well(job));
  says("waiting  rank 0 (host0, pid 100) and the others are in operation 1 ");
  says("ask again");
}

static void messages_are_followed_too(void **state) {
  (void)state;
  struct job *job = job_new();
  assert_true(add(job, (struct says){.rank = 0, .size = 3, .done = 3, .in = 1, .for_s = 4}));
  assert_true(add(job, (struct says){.rank = 1,
                                     .size = 3,
                                     .done = 3,
                                     .in = OUT,
                                     .messages = MESSAGE("2", "1", "recv", "2", "IN_PROGRESS")}));
  assert_true(add(job, (struct says){.rank = 2,
                                     .size = 3,
                                     .done = 3,
                                     .in = OUT,
                                     .messages = MESSAGE("1", "2", "recv", "1", "OK")}));
  assert_false(is_well(job));
  says("message  rank 1 receives message 5 from rank 2 to rank 1, for 10.0 s\n");
  says("cause    rank 2 (host2, pid 102) has not sent message 5 from rank 2 to rank 1; it keeps "
       "waiting: ranks 0 1, "
       "since T900\n");

  job = job_new(); /* each waits for the other's message */
  assert_true(add(job, (struct says){.rank = 0,
                                     .size = 2,
                                     .in = OUT,
                                     .messages = MESSAGE("1", "0", "recv", "1", "IN_PROGRESS")}));
  assert_true(add(job, (struct says){.rank = 1,
                                     .size = 2,
                                     .in = OUT,
                                     .messages = MESSAGE("0", "1", "recv", "0", "IN_PROGRESS")}));
  assert_false(is_well(job));
  says("rank 0 (host0, pid 100) and the others wait for each other");

  job = job_new(); /* it is on its way */
  assert_true(add(job, (struct says){.rank = 0,
                                     .size = 2,
                                     .in = OUT,
                                     .messages = MESSAGE("1", "0", "recv", "1", "IN_PROGRESS")}));
  assert_true(add(
      job, (struct says){
               .rank = 1, .size = 2, .in = OUT, .messages = MESSAGE("1", "0", "send", "0", "OK")}));
  assert_true(is_well(job));
  says("waiting  rank 1 (host1, pid 101) is past message 5 ");
}

static void disagreement_and_failure_are_told(void **state) {
  (void)state;
  struct job *job = job_new();
  for (int r = 0; r < 3; r++)
    assert_true(add(
        job, (struct says){
                 .rank = r, .size = 3, .done = 4, .in = NOBODY, .last = r == 1 ? "barrier()" : NULL}));
  assert_false(is_well(job));
  says("differ   operation 5 of ranks 0 2 is all_reduce(f32 x 7, sum, ring)\n");
  says("differ   operation 5 of rank 1 (host1, pid 101) is barrier()\n");

  static const char lost[] =
      "{\"status\": \"PEER_LOST\", \"culprit\": 2, \"text\": \"rank 2\\u001b[2J\"}";
  job = job_new();
  for (int r = 0; r < 2; r++)
    assert_true(add(job, (struct says){.rank = r, .size = 3, .done = 4, .in = OUT, .verdict = lost}));
  assert_false(is_well(job));
  says("failed   ranks 0 1: PEER_LOST: rank 2?[2J\n"); /* no terminal is told what to do */
}

/* ------------------------------------------------------------------------------ odd documents --- */

static void of_two_views_of_a_rank_the_later_counts(void **state) {
  (void)state;
  for (int order = 0; order < 2; order++) {
    struct job *job = job_new();
    for (int i = 0; i < 2; i++) {
      bool late = i == order;
      assert_true(
          add(job, (struct says){.rank = 0,
                                 .size = 1,
                                 .done = late ? 9 : 5,
                                 .in = OUT,
                                 .now = late ? "2025-01-01T00:00:09Z" : "2025-01-01T00:00:05Z"}));
    }
    assert_true(is_well(job));
    says("Rank 0 of 00112233 is in 0.json and 0.json");
    says("between operations: 9 ");
  }
}

static void a_document_that_does_not_fit_is_refused(void **state) {
  (void)state;
  struct job *job = job_new();
  assert_true(add(job, (struct says){.rank = 0, .size = 2, .in = OUT}));
  assert_false(add(job, (struct says){.rank = 1, .size = 3, .in = OUT}));
  assert_non_null(strstr(why, "1.json: communicator " ID " has 3 ranks, and 2 in another"));
  assert_true(is_well(job));
}

static void what_is_no_document_is_refused(void **state) {
  (void)state;
  static const struct {
    const char *json, *why;
  } cases[] = {
      {"", "x: line 1: "},
      {"nonsense", "x: line 1: "},
      {"[]", "no record of Gyre's"},
      {"{\"communicators\": []}", "no record of Gyre's"},
      {"{\"gyre\": \"9.0\", \"format\": 2, \"communicators\": []}", "it has form 2"},
      {"{\"gyre\": \"0.1\", \"format\": 1, \"communicators\": [{}]}", "no rank or no size"},
      {"{\"gyre\": \"0.1\", \"format\": 1, \"communicators\": [7, null]}", "no rank or no size"},
      {"{\"gyre\": \"0.1\", \"format\": 1, \"communicators\": [{\"rank\": 4, \"size\": 4}]}",
       "no rank or no size"},
      {"{\"gyre\": \"0.1\", \"format\": 1, \"communicators\": [{\"rank\": 0, \"size\": "
       "2000000000}]}",
       "no size"},
      {"{\"gyre\": \"0.1\", \"gyre\": \"0.1\", \"format\": 1, \"communicators\": []}", "duplicate"},
      {"{\"gyre\": \"\xff\", \"format\": 1, \"communicators\": []}", "unable to decode"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_null(document_read("x", cases[i].json, strlen(cases[i].json), why, sizeof why));
    if (!strstr(why, cases[i].why)) fail_msg("case %zu: %s", i, why);
  }
  char *deep = malloc(1 << 20);
  memset(deep, '[', 1 << 20);
  assert_null(document_read("x", deep, 1 << 20, why, sizeof why));
  free(deep);
}

/* Every beginning of a document is refused, and one whose values are of other kinds does no harm. */
static void what_is_cut_or_twisted_does_no_harm(void **state) {
  (void)state;
  struct says s = {.rank = 1,
                   .size = 3,
                   .done = 2,
                   .in = 0,
                   .for_s = 5,
                   .messages = MESSAGE("1", "2", "send", "2", "IN_PROGRESS")};
  char *json = strdup(document(&s));
  size_t len = strlen(json);
  for (size_t n = 0; n < len; n += 7) assert_null(document_read("x", json, n, why, sizeof why));
  static const char other[] = "9-\"[{n";
  for (size_t i = 0; i < len; i++) { /* mostly refused; what is not is reported on */
    char kept = json[i];
    json[i] = other[i % (sizeof other - 1)];
    struct job *job = job_new();
    add_text(job, "x", json, len);
    is_well(job);
    json[i] = kept;
  }
  free(json);
  static const char twisted[] = "{\"gyre\": \"1\", \"format\": 1, \"pid\": \"x\", \"now_ns\": [], "
                                "\"communicators\": [{\"rank\": 0, \"size\": 1, "
                                "\"id\": \"a\", \"posted\": {}, \"started\": 9223372036854775807, "
                                "\"first_unfinished\": -3, \"members\": 7, "
                                "\"operations\": [5, {\"seq\": \"x\", \"status\": \"IN_PROGRESS\", "
                                "\"waiting\": {\"rank\": 0}}, null], "
                                "\"messages\": {\"a\": 1}}, {\"rank\": 0, \"size\": 4}]}";
  struct job *job = job_new();
  assert_true(add_text(job, "x", twisted, sizeof twisted - 1));
  is_well(job);
  says("A communicator is being created: rank 0 of 4");
}

static void nothing_is_well(void **state) {
  (void)state;
  assert_true(is_well(job_new()));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(who_has_not_called_is_named),
      cmocka_unit_test(an_earlier_operation_is_followed_to_its_cause),
      cmocka_unit_test(who_is_missing_may_be_the_cause),
      cmocka_unit_test(a_short_wait_says_nothing),
      cmocka_unit_test(ranks_that_move_are_no_cause),
      cmocka_unit_test(messages_are_followed_too),
      cmocka_unit_test(disagreement_and_failure_are_told),
      cmocka_unit_test(of_two_views_of_a_rank_the_later_counts),
      cmocka_unit_test(a_document_that_does_not_fit_is_refused),
      cmocka_unit_test(what_is_no_document_is_refused),
      cmocka_unit_test(what_is_cut_or_twisted_does_no_harm),
      cmocka_unit_test(nothing_is_well),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

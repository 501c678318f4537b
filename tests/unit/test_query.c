/* test_query.c - a process is asked what it is doing: who gets an answer, and that nobody who asks
 * disturbs anything or leaves anything behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gyre/gyre.h"

#define MANY 300 /* operations and messages: their answer is longer than what a socket takes */
#define STUCK 6  /* more than are served at a time */
#define PATIENCE_MS 60000

static int ask_process(int pid, int number) { /* a descriptor, -1 */
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  int len = snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "gyre/%d/%d", pid, number);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(fd, (struct sockaddr *)&at,
              (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len)) == 0)
    return fd;
  close(fd);
  return -1;
}

static int ask(int number) { return ask_process((int)getpid(), number); }

/* The whole answer; NULL if none comes. */
static char *answer(int fd) {
  size_t size = 1 << 20, n = 0;
  char *text = calloc(1, size);
  for (;;) {
    struct pollfd p = {fd, POLLIN, 0};
    ssize_t got = poll(&p, 1, PATIENCE_MS) == 1 ? recv(fd, text + n, size - 1 - n, 0) : -1;
    if (got <= 0) {
      close(fd);
      if (got == 0 && n > 0) return text;
      free(text);
      return NULL;
    }
    n += (size_t)got;
  }
}

static void answers(int number, const char *part) {
  int fd = ask(number);
  assert_true(fd >= 0);
  char *text = answer(fd);
  assert_non_null(text);
  if (!strstr(text, part)) fail_msg("no %s in:\n%s", part, text);
  assert_string_equal(text + strlen(text) - 3, "]}\n");
  free(text);
}

static int descriptors(void) {
  int n = 0;
  DIR *d = opendir("/proc/self/fd");
  while (readdir(d)) n++;
  closedir(d);
  return n;
}

static void alone(gyre_context **ctx, gyre_comm **comm) {
  assert_int_equal(gyre_context_create(ctx), GYRE_OK);
  assert_int_equal(gyre_comm_create(*ctx, 0, 1, NULL, comm), GYRE_OK);
}

/* ------------------------------------------------------------------------------------ tests --- */

static void every_context_answers(void **state) {
  (void)state;
  gyre_context *ctx[2];
  gyre_comm *comm[2], *more;
  for (int i = 0; i < 2; i++) alone(&ctx[i], &comm[i]);
  assert_int_equal(gyre_barrier(comm[1]), GYRE_OK);
  answers(0, "\"reason\": \"query\"");
  answers(0, "\"posted\": 0");
  answers(1, "\"posted\": 1");
  assert_int_equal(gyre_comm_create(ctx[0], 0, 1, NULL, &more), GYRE_OK);
  int fd = ask(0);
  char *text = answer(fd), *one = text ? strstr(text, "\"size\": 1") : NULL;
  assert_true(one && strstr(one + 1, "\"size\": 1")); /* both communicators */
  free(text);
  gyre_context_destroy(ctx[0]);
  assert_int_equal(ask(0), -1);
  answers(1, "\"posted\": 1");
  gyre_context_destroy(ctx[1]);
  assert_int_equal(ask(1), -1);
}

static void nobody_may_ask_if_so_set(void **state) {
  (void)state;
  gyre_context *ctx;
  setenv("GYRE_TRACE_QUERY", "0", 1);
  assert_int_equal(gyre_context_create(&ctx), GYRE_OK);
  assert_int_equal(ask(0), -1);
  gyre_context_destroy(ctx);
  unsetenv("GYRE_TRACE_QUERY");
}

static void who_does_not_read_is_in_nobodys_way(void **state) {
  (void)state;
  gyre_context *ctx;
  gyre_comm *comm, *more;
  char from = 1, to = 0;
  int before = descriptors(), fd[STUCK];
  setenv("GYRE_TRACE_OPS", "400", 1);
  alone(&ctx, &comm);
  assert_int_equal(gyre_comm_create(ctx, 0, 1, NULL, &more), GYRE_OK);
  for (int i = 0; i < MANY; i++) {
    gyre_request *req;
    assert_int_equal(gyre_barrier(comm), GYRE_OK);
    assert_int_equal(gyre_barrier(more), GYRE_OK);
    assert_int_equal(gyre_send_async(comm, &from, 1, GYRE_U8, 0, &req), GYRE_OK);
    assert_int_equal(gyre_recv(comm, &to, 1, GYRE_U8, 0), GYRE_OK);
    assert_int_equal(gyre_wait(req, -1), GYRE_OK);
  }
  for (int i = 0; i < STUCK; i++) {
    fd[i] = ask(0);
    assert_true(fd[i] >= 0);
  }
  for (int i = 0; i < 50; i++) {
    assert_int_equal(gyre_barrier(comm), GYRE_OK);
    usleep(2000);
  }
  for (int i = 1; i < STUCK; i++) close(fd[i]);
  answers(0, "\"what\": \"message 300 from rank 0 to rank 0 (u8 x 1)\", \"kind\": \"recv\", "
             "\"peer\": 0, \"type\": \"u8\", \"count\": 1, \"bytes\": 1, \"posted_ns\"");
  gyre_context_destroy(ctx);
  char *part = answer(fd[0]); /* of the answer, as it was left with the rest */
  assert_true(part && strcmp(part + strlen(part) - 3, "]}\n") != 0);
  free(part);
  assert_int_equal(descriptors(), before);
  unsetenv("GYRE_TRACE_OPS");
}

/* Needs root, to become somebody else. */
static void nobody_else_gets_an_answer(void **state) {
  (void)state;
  gyre_context *ctx;
  char c;
  int status = -1;
  if (geteuid() != 0) skip();
  assert_int_equal(gyre_context_create(&ctx), GYRE_OK);
  int parent = (int)getpid();
  pid_t child = fork();
  if (child == 0) {
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(2);
    int fd = ask_process(parent, 0);
    _exit(fd < 0 ? 3 : recv(fd, &c, 1, 0) > 0); /* the end, or a reset */
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
  gyre_context_destroy(ctx);
}

static void a_child_does_not_keep_it_open(void **state) {
  (void)state;
  gyre_context *ctx;
  int pipes[2];
  char c;
  assert_int_equal(pipe(pipes), 0);
  assert_int_equal(gyre_context_create(&ctx), GYRE_OK);
  pid_t child = fork();
  if (child == 0) {
    close(pipes[1]);
    _exit(read(pipes[0], &c, 1) < 0);
  }
  close(pipes[0]);
  answers(0, "\"communicators\": []");
  gyre_context_destroy(ctx);
  assert_int_equal(ask(0), -1);
  close(pipes[1]);
  assert_int_equal(waitpid(child, NULL, 0), child);
}

static void nothing_piles_up(void **state) {
  (void)state;
  gyre_context *ctx;
  int before = 0;
  for (int i = 0; i < 10; i++) {
    assert_int_equal(gyre_context_create(&ctx), GYRE_OK);
    answers(0, "\"reason\": \"query\"");
    gyre_context_destroy(ctx);
    if (i == 0) before = descriptors();
  }
  assert_int_equal(descriptors(), before);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_context_answers),
      cmocka_unit_test(nobody_may_ask_if_so_set),
      cmocka_unit_test(who_does_not_read_is_in_nobodys_way),
      cmocka_unit_test(nobody_else_gets_an_answer),
      cmocka_unit_test(a_child_does_not_keep_it_open),
      cmocka_unit_test(nothing_piles_up),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

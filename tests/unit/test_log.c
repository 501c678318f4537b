/* test_log.c - levels, whole lines, file names, and a log whose reader is gone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <regex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log.h"

static char folder[64];

static int make_folder(void **state) {
  (void)state;
  strcpy(folder, "/tmp/gyre-test-log-XXXXXX");
  return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
  (void)state;
  gy_log_open(GY_LOG_WARN, "");
  char command[128];
  snprintf(command, sizeof command, "rm -r %s", folder);
  return system(command);
}

static const char *path_of(const char *name, char out[128]) {
  snprintf(out, 128, "%s/%s", folder, name);
  return out;
}

/* The whole file, which the caller frees. */
static char *contents(const char *path) {
  FILE *f = fopen(path, "r");
  assert_non_null(f);
  char *text = calloc(1, 1 << 20);
  assert_non_null(text);
  size_t n = fread(text, 1, (1 << 20) - 1, f);
  text[n] = 0;
  fclose(f);
  return text;
}

static void lines_have_the_documented_form(void **state) {
  (void)state;
  char path[128];
  assert_int_equal(gy_log_open(GY_LOG_INFO, path_of("form", path)), GYRE_OK);
  errno = EBUSY;
  gy_log(GY_LOG_WARN, "rank %d\nis here", 3);
  assert_int_equal(errno, EBUSY);
  char *text = contents(path), pattern[128];
  regex_t re;
  snprintf(pattern, sizeof pattern,
           "^gyre [0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3} pid %ld WARN rank 3 is here\n$",
           (long)getpid());
  assert_int_equal(regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB), 0);
  assert_int_equal(regexec(&re, text, 0, NULL, 0), 0);
  regfree(&re);
  free(text);
}

static void only_what_the_level_asks_for_is_written(void **state) {
  (void)state;
  char path[128];
  static const char *const names[] = {"OFF", "ERROR", "WARN", "INFO", "DEBUG"};
  for (int level = GY_LOG_OFF; level <= GY_LOG_DEBUG; level++) {
    char file[32];
    snprintf(file, sizeof file, "level%d", level);
    assert_int_equal(gy_log_open((enum gy_level)level, path_of(file, path)), GYRE_OK);
    int evaluated = 0;
    for (int l = GY_LOG_ERROR; l <= GY_LOG_DEBUG; l++)
      gy_log((enum gy_level)l, "%s message %d", names[l], evaluated++);
    assert_int_equal(evaluated, level); /* arguments of a suppressed line are not evaluated */
    char *text = contents(path);
    for (int l = GY_LOG_ERROR; l <= GY_LOG_DEBUG; l++) {
      char wanted[32];
      snprintf(wanted, sizeof wanted, " %s %s message", names[l], names[l]);
      assert_int_equal(strstr(text, wanted) != NULL, l <= level);
    }
    free(text);
  }
}

static void a_long_line_is_cut_and_still_ends(void **state) {
  (void)state;
  char path[128], *big = malloc(100001);
  assert_non_null(big);
  memset(big, 'x', 100000);
  big[100000] = 0;
  gy_log_open(GY_LOG_INFO, path_of("long", path));
  gy_log(GY_LOG_INFO, "%s", big);
  gy_log(GY_LOG_INFO, "next");
  char *text = contents(path), *end = strchr(text, '\n');
  assert_non_null(end);
  assert_true(end - text > 2048 && end - text < 4096);
  assert_non_null(strstr(end, "INFO next\n"));
  free(text);
  free(big);
}

static void a_file_name_takes_process_and_rank(void **state) {
  (void)state;
  char path[128], expected[128], name[64];
  setenv("GYRE_RANK", "5", 1);
  assert_int_equal(gy_log_open(GY_LOG_INFO, path_of("r%r-p%p-%%", path)), GYRE_OK);
  gy_log(GY_LOG_INFO, "hello");
  snprintf(name, sizeof name, "r5-p%ld-%%", (long)getpid());
  char *text = contents(path_of(name, expected));
  assert_non_null(strstr(text, "hello"));
  free(text);
  unsetenv("GYRE_RANK");
  assert_int_equal(gy_log_open(GY_LOG_INFO, path_of("bad%x", path)), GYRE_ERR_ARG);
  assert_non_null(strstr(gyre_last_error(), "bad%x"));
  assert_int_equal(gy_log_open(GY_LOG_INFO, path_of("bad%", path)), GYRE_ERR_ARG);
}

static void a_file_that_cannot_be_opened_is_an_error_and_the_old_one_stays(void **state) {
  (void)state;
  char path[128], bad[128];
  assert_int_equal(gy_log_open(GY_LOG_INFO, path_of("old", path)), GYRE_OK);
  assert_int_equal(gy_log_open(GY_LOG_DEBUG, path_of("none/x", bad)), GYRE_ERR_ARG);
  assert_non_null(strstr(gyre_last_error(), "/none/x"));
  assert_non_null(strstr(gyre_last_error(), strerror(ENOENT)));
  gy_log(GY_LOG_INFO, "still here");
  gy_log(GY_LOG_DEBUG, "not this");
  char *text = contents(path);
  assert_non_null(strstr(text, "still here"));
  assert_null(strstr(text, "not this"));
  free(text);
}

static void a_fifo_without_reader_never_blocks(void **state) {
  (void)state;
  char path[128];
  assert_int_equal(mkfifo(path_of("fifo", path), 0600), 0);
  assert_int_equal(gy_log_open(GY_LOG_INFO, path), GYRE_ERR_ARG);
}

static void a_reader_that_is_gone_raises_no_signal(void **state) {
  (void)state;
  char path[128];
  assert_int_equal(mkfifo(path_of("gone", path), 0600), 0);
  int reader = open(path, O_RDONLY | O_NONBLOCK);
  assert_true(reader >= 0);
  assert_int_equal(gy_log_open(GY_LOG_INFO, path), GYRE_OK);
  close(reader);
  assert_ptr_equal(signal(SIGPIPE, SIG_DFL), SIG_DFL); /* the default would end this process */
  gy_log(GY_LOG_INFO, "to nobody");
  sigset_t pending, mask;
  sigpending(&pending);
  assert_int_equal(sigismember(&pending, SIGPIPE), 0);
  pthread_sigmask(SIG_BLOCK, NULL, &mask);
  assert_int_equal(sigismember(&mask, SIGPIPE), 0);
}

#define THREADS 4
#define LINES 200

static void *write_many(void *arg) {
  char *tag = arg;
  for (int i = 0; i < LINES; i++)
    gy_log(GY_LOG_INFO, "%c%c%c%c%c%c%c%c %d", *tag, *tag, *tag, *tag, *tag, *tag, *tag, *tag, i);
  return NULL;
}

static void lines_of_threads_do_not_mix_while_the_file_changes(void **state) {
  (void)state;
  char path[2][128], tags[THREADS];
  path_of("mix0", path[0]);
  path_of("mix1", path[1]);
  gy_log_open(GY_LOG_INFO, path[0]);
  pthread_t t[THREADS];
  for (int i = 0; i < THREADS; i++) {
    tags[i] = (char)('a' + i);
    assert_int_equal(pthread_create(&t[i], NULL, write_many, &tags[i]), 0);
  }
  for (int i = 0; i < 20; i++) assert_int_equal(gy_log_open(GY_LOG_INFO, path[i % 2]), GYRE_OK);
  for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
  int seen[THREADS] = {0};
  for (int f = 0; f < 2; f++) {
    char *text = contents(path[f]), *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
      char word[16] = "", rest[16] = "";
      assert_int_equal(sscanf(line, "gyre %*s pid %*d INFO %15s %*d%15s", word, rest), 1);
      int tag = word[0] - 'a';
      assert_in_range(tag, 0, THREADS - 1);
      assert_int_equal(strspn(word, (char[]){word[0], 0}), 8);
      seen[tag]++;
    }
    free(text);
  }
  for (int i = 0; i < THREADS; i++) assert_int_equal(seen[i], LINES);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lines_have_the_documented_form),
      cmocka_unit_test(only_what_the_level_asks_for_is_written),
      cmocka_unit_test(a_long_line_is_cut_and_still_ends),
      cmocka_unit_test(a_file_name_takes_process_and_rank),
      cmocka_unit_test(a_file_that_cannot_be_opened_is_an_error_and_the_old_one_stays),
      cmocka_unit_test(a_fifo_without_reader_never_blocks),
      cmocka_unit_test(a_reader_that_is_gone_raises_no_signal),
      cmocka_unit_test(lines_of_threads_do_not_mix_while_the_file_changes),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

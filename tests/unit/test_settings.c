/* test_settings.c - the table, its rules, the environment, the secret's file and the warnings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "log.h"
#include "settings.h"
#include "status.h"

extern char **environ;
static char folder[64];

static const char *path_of(const char *name, char out[128]) {
  snprintf(out, 128, "%s/%s", folder, name);
  return out;
}

static int make_folder(void **state) {
  (void)state;
  strcpy(folder, "/tmp/gyre-test-settings-XXXXXX");
  return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
  (void)state;
  char command[128];
  snprintf(command, sizeof command, "rm -r %s", folder);
  return system(command);
}

/* Every test starts without any GYRE_* variable. */
static int clean_environment(void **state) {
  (void)state;
  for (char **e = environ; *e;) {
    char name[128];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(*e, "="), *e);
    if (strncmp(name, "GYRE_", 5) == 0 && unsetenv(name) == 0) e = environ;
    else e++;
  }
  return 0;
}

static const char *write_file(const char *name, const void *data, size_t len, mode_t mode,
                              char path[128]) {
  int fd = open(path_of(name, path), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, data, len), len);
  assert_int_equal(fchmod(fd, mode), 0);
  close(fd);
  return path;
}

static void assert_refused(const char *name, const char *value, const char *text) {
  struct gy_settings s, before;
  char whole[600] = "";
  size_t n, len = 0;
  const struct gy_setting *t = gy_settings_table(&n);
  gy_settings_defaults(&s);
  before = s;
  assert_int_equal(gy_settings_set(&s, name, value), GYRE_ERR_ARG);
  if (text) len = (size_t)snprintf(whole, sizeof whole, "%s", text);
  for (size_t i = 0; i < n; i++) /* the user knows it by the member that holds it */
    if (strcmp(t[i].name, name) == 0 && t[i].member)
      snprintf(whole + len, sizeof whole - len, " (given as %s)", t[i].member);
  if (text) assert_string_equal(gyre_last_error(), whole);
  else assert_non_null(strstr(gyre_last_error(), whole));
  assert_non_null(strstr(gyre_last_error(), name));
  assert_memory_equal(&s, &before, sizeof s);
}

static void assert_taken(const char *name, const char *value) {
  struct gy_settings s;
  char text[600];
  size_t n, i = 0;
  const struct gy_setting *t = gy_settings_table(&n);
  while (i < n && strcmp(t[i].name, name) != 0) i++;
  assert_in_range(i, 0, n - 1);
  gy_settings_defaults(&s);
  assert_false(gy_settings_given(&s, name));
  assert_int_equal(gy_settings_set(&s, name, value), GYRE_OK);
  assert_true(gy_settings_given(&s, name));
  assert_int_equal(s.given, UINT64_C(1) << i);
  gy_settings_text(&s, i, text, sizeof text);
  assert_string_equal(text, value);
}

/* ------------------------------------------------------------------------------- the table --- */

static void the_table_covers_the_struct_once(void **state) {
  (void)state;
  size_t n;
  const struct gy_setting *t = gy_settings_table(&n);
  unsigned char covered[sizeof(struct gy_settings)] = {0};
  for (size_t i = 0; i < n; i++) {
    assert_true(strncmp(t[i].name, "GYRE_", 5) == 0);
    assert_true(strlen(t[i].doc) > 10);
    assert_int_equal(t[i].doc[strlen(t[i].doc) - 1], '.');
    if (t[i].kind == GY_KIND_SECRET_FILE)
      continue; /* fills the secret, which has a name of its own */
    for (size_t b = 0; b < t[i].bytes; b++) assert_int_equal(covered[t[i].offset + b]++, 0);
  }
  size_t missing = 0;
  for (size_t b = 0; b < offsetof(struct gy_settings, given); b++) missing += !covered[b];
  assert_true(missing < _Alignof(int64_t) * 4); /* padding at most */
}

static void the_defaults_are_those_documented(void **state) {
  (void)state;
  struct gy_settings s;
  assert_int_equal(gy_settings_load(&s), GYRE_OK);
  assert_int_equal(s.given, 0);
  assert_int_equal(s.rank, -1);
  assert_int_equal(s.world_size, -1);
  assert_int_equal(s.local_rank, -1);
  assert_int_equal(s.slice_bytes, 0);
  assert_int_equal(s.window, 0);
  assert_int_equal(s.insecure, 0);
  assert_int_equal(s.checksum, 0);
  assert_int_equal(s.connect_timeout_ms, 60000);
  assert_int_equal(s.op_timeout_ms, 300000);
  assert_int_equal(s.stall_ms, 1000);
  assert_int_equal(s.linger_ms, 1000);
  assert_int_equal(s.verdict_ms, 500);
  assert_int_equal(s.heartbeat_ms, 1000);
  assert_int_equal(s.peer_timeout_ms, 15000);
  assert_int_equal(s.spin_us, -1);
  assert_string_equal(s.progress, "caller");
  assert_string_equal(s.cpu, "auto");
  assert_string_equal(s.tcp_congestion, "auto");
  assert_string_equal(s.log, "warn");
  const char *empty[] = {s.rendezvous, s.iface, s.port,     s.advertise, s.secret,
                         s.transports, s.algo,  s.log_file, s.fault};
  for (size_t i = 0; i < sizeof empty / sizeof empty[0]; i++) assert_string_equal(empty[i], "");
  assert_int_equal(gy_settings_spin_us(&s), 50);
  s.spin_us = 0;
  assert_int_equal(gy_settings_spin_us(&s), 0);
}

static void every_default_is_one_that_may_be_given(void **state) {
  (void)state;
  struct gy_settings s;
  size_t n;
  const struct gy_setting *t = gy_settings_table(&n);
  gy_settings_defaults(&s);
  for (size_t i = 0; i < n; i++) {
    char text[600];
    gy_settings_text(&s, i, text, sizeof text);
    if (*text) assert_int_equal(gy_settings_set(&s, t[i].name, text), GYRE_OK);
  }
}

/* ------------------------------------------------------------------------------- the rules --- */

static void numbers_are_whole_and_within_their_range(void **state) {
  (void)state;
  size_t n;
  const struct gy_setting *t = gy_settings_table(&n);
  for (size_t i = 0; i < n; i++) {
    if (t[i].kind != GY_KIND_UINT && t[i].kind != GY_KIND_INT && t[i].kind != GY_KIND_BOOL)
      continue;
    char value[32];
    snprintf(value, sizeof value, "%lld", (long long)t[i].min);
    assert_taken(t[i].name, value);
    snprintf(value, sizeof value, "%lld", (long long)t[i].max);
    assert_taken(t[i].name, value);
    snprintf(value, sizeof value, "%lld", (long long)t[i].min - 1);
    assert_refused(t[i].name, value, NULL);
    snprintf(value, sizeof value, "%lld", (long long)t[i].max + 1);
    assert_refused(t[i].name, value, NULL);
    static const char *const bad[] = {"",
                                      " ",
                                      " 1",
                                      "1 ",
                                      "+1",
                                      "0x9",
                                      "1e3",
                                      "1.0",
                                      "010",
                                      "-",
                                      "--1",
                                      "1\n",
                                      "abc",
                                      "٣",
                                      "-0",
                                      "99999999999999999999",
                                      "1000000000000000000000001"};
    for (size_t b = 0; b < sizeof bad / sizeof bad[0]; b++) assert_refused(t[i].name, bad[b], NULL);
  }
  assert_refused("GYRE_WINDOW", "0x9", "GYRE_WINDOW=0x9: must be a whole number from 1 to 64");
  assert_refused("GYRE_SPIN_US", "-2", "GYRE_SPIN_US=-2: must be a whole number from -1 to 1000000");
  assert_refused("GYRE_INSECURE", "yes", "GYRE_INSECURE=yes: must be 0 or 1");
}

static void a_slice_is_a_multiple_of_64(void **state) {
  (void)state;
  assert_taken("GYRE_SLICE_BYTES", "4096");
  assert_taken("GYRE_SLICE_BYTES", "192");
  assert_refused(
      "GYRE_SLICE_BYTES", "65",
      "GYRE_SLICE_BYTES=65: must be a whole number from 64 to 16777216, a multiple of 64");
}

static void a_choice_is_one_of_its_words(void **state) {
  (void)state;
  assert_taken("GYRE_PROGRESS", "thread");
  assert_taken("GYRE_CPU", "neon");
  assert_taken("GYRE_LOG", "off");
  assert_refused("GYRE_PROGRESS", "threads", "GYRE_PROGRESS=threads: must be one of caller|thread");
  assert_refused("GYRE_CPU", "avx", NULL);
  assert_refused("GYRE_CPU", "auto|scalar", NULL);
  assert_refused("GYRE_CPU", "AVX2", NULL);
  assert_refused("GYRE_CPU", "", NULL);
  assert_refused("GYRE_LOG", "verbose", NULL);
}

static void transports_are_known_names(void **state) {
  (void)state;
  assert_taken("GYRE_TRANSPORTS", "tcp");
  assert_taken("GYRE_TRANSPORTS", "");
  assert_taken("GYRE_TRANSPORTS", "shm,tcp");
  assert_refused("GYRE_TRANSPORTS", "rdma",
                 "GYRE_TRANSPORTS=rdma: must be a comma-separated list out of: tcp|shm");
  static const char *const bad[] = {"tcp,", ",tcp", "tcp,tcp", "tcp tcp",
                                    "tc",   "TCP",  ",",       "tcp|shm"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
    assert_refused("GYRE_TRANSPORTS", bad[i], NULL);
}

static void a_port_is_one_or_a_range(void **state) {
  (void)state;
  static const char *const good[] = {"",          "1",         "65535",      "7000",
                                     "7000-7000", "7000-7010", "10000-65535"};
  for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) assert_taken("GYRE_PORT", good[i]);
  static const char *const bad[] = {
      "0",    "65536",   "7010-7000",      "7000-", "-7000",
      "-",    "7000--1", "7000-7010-7020", "7 000", "7000:10",
      "http", "0-10",    "1-65536",        "07",    "100000000000000000000"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) assert_refused("GYRE_PORT", bad[i], NULL);
  assert_refused("GYRE_PORT", "9-8",
                 "GYRE_PORT=9-8: must be a port or a range first-last, from 1 to 65535");
}

static void a_text_that_is_too_long_is_refused_not_cut(void **state) {
  (void)state;
  size_t n;
  const struct gy_setting *t = gy_settings_table(&n);
  char value[1024];
  for (size_t i = 0; i < n; i++) {
    if (t[i].kind != GY_KIND_TEXT) continue;
    memset(value, 'x', sizeof value);
    value[t[i].bytes - 1] = 0;
    assert_taken(t[i].name, value);
    value[t[i].bytes - 1] = 'x';
    value[t[i].bytes] = 0;
    assert_refused(t[i].name, value, NULL);
  }
  assert_refused("GYRE_TCP_CONGESTION", "0123456789abcdef",
                 "GYRE_TCP_CONGESTION=0123456789abcdef: must be at most 15 bytes");
}

static void a_name_that_is_none_is_refused(void **state) {
  (void)state;
  struct gy_settings s;
  gy_settings_defaults(&s);
  assert_int_equal(gy_settings_set(&s, "GYRE_NONE", "1"), GYRE_ERR_ARG);
  assert_non_null(strstr(gyre_last_error(), "GYRE_NONE"));
  assert_false(gy_settings_given(&s, "GYRE_NONE"));
}

/* ------------------------------------------------------------------------- the environment --- */

static void the_environment_is_read(void **state) {
  (void)state;
  struct gy_settings s;
  setenv("GYRE_RANK", "3", 1);
  setenv("GYRE_WORLD_SIZE", "8", 1);
  setenv("GYRE_RENDEZVOUS", "tcp://10.0.0.1:7000", 1);
  setenv("GYRE_ALGO", "all_reduce=ring", 1);
  setenv("GYRE_SECRET", "s3cret", 1);
  assert_int_equal(gy_settings_load(&s), GYRE_OK);
  assert_int_equal(s.rank, 3);
  assert_int_equal(s.world_size, 8);
  assert_string_equal(s.rendezvous, "tcp://10.0.0.1:7000");
  assert_string_equal(s.algo, "all_reduce=ring");
  assert_string_equal(s.secret, "s3cret");
  assert_true(gy_settings_given(&s, "GYRE_RANK"));
  assert_true(gy_settings_given(&s, "GYRE_SECRET"));
  assert_false(gy_settings_given(&s, "GYRE_SECRET_FILE"));
  assert_false(gy_settings_given(&s, "GYRE_LOCAL_RANK"));
}

static void a_bad_variable_fails_the_load_and_leaves_the_result_alone(void **state) {
  (void)state;
  struct gy_settings s, before;
  memset(&s, 0x5a, sizeof s);
  before = s;
  setenv("GYRE_WINDOW", "65", 1);
  assert_int_equal(gy_settings_load(&s), GYRE_ERR_ARG);
  assert_string_equal(gyre_last_error(), "GYRE_WINDOW=65: must be a whole number from 1 to 64");
  assert_memory_equal(&s, &before, sizeof s);
  clean_environment(NULL);
  setenv("GYRE_LOG", "loud", 1);
  assert_int_equal(gy_settings_load(&s), GYRE_ERR_ARG);
  assert_non_null(strstr(gyre_last_error(), "GYRE_LOG=loud"));
  clean_environment(NULL);
  setenv("GYRE_LOG_FILE", "/nonexistent/log", 1);
  assert_int_equal(gy_settings_load(&s), GYRE_ERR_ARG);
  assert_non_null(strstr(gyre_last_error(), "/nonexistent/log"));
  assert_memory_equal(&s, &before, sizeof s);
}

/* ------------------------------------------------------------------------------ the secret --- */

static void a_secret_is_never_shown(void **state) {
  (void)state;
  struct gy_settings s;
  char text[64], longer[400];
  size_t n;
  const struct gy_setting *t = gy_settings_table(&n);
  gy_settings_defaults(&s);
  assert_int_equal(gy_settings_set(&s, "GYRE_SECRET", "open sesame"), GYRE_OK);
  for (size_t i = 0; i < n; i++) {
    gy_settings_text(&s, i, text, sizeof text);
    assert_null(strstr(text, "sesame"));
    if (strcmp(t[i].name, "GYRE_SECRET") == 0) assert_string_equal(text, "(set)");
    if (strcmp(t[i].name, "GYRE_SECRET_FILE") == 0) assert_string_equal(text, "");
  }
  memset(longer, 's', sizeof longer);
  longer[sizeof longer - 1] = 0;
  assert_refused("GYRE_SECRET", longer, "GYRE_SECRET=(hidden): must be 1 to 255 bytes");
  assert_refused("GYRE_SECRET", "", "GYRE_SECRET=(hidden): must be 1 to 255 bytes");
}

static void a_secret_may_come_from_a_file(void **state) {
  (void)state;
  struct gy_settings s;
  char path[128], big[256];
  setenv("GYRE_SECRET_FILE", write_file("s1", "from file\n", 10, 0600, path), 1);
  assert_int_equal(gy_settings_load(&s), GYRE_OK);
  assert_string_equal(s.secret, "from file");
  assert_true(gy_settings_given(&s, "GYRE_SECRET_FILE"));
  assert_false(gy_settings_given(&s, "GYRE_SECRET"));
  write_file("s1", "no newline", 10, 0600, path);
  assert_int_equal(gy_settings_load(&s), GYRE_OK);
  assert_string_equal(s.secret, "no newline");
  write_file("s1", "two\n\n", 5, 0600, path);
  assert_int_equal(gy_settings_load(&s), GYRE_OK);
  assert_string_equal(s.secret, "two\n");
  memset(big, 'b', sizeof big);
  big[255] = '\n';
  write_file("s1", big, 256, 0600, path);
  assert_int_equal(gy_settings_load(&s), GYRE_OK);
  assert_int_equal(strlen(s.secret), 255);
  /* a configuration's own secret goes before it */
  assert_int_equal(gy_settings_set(&s, "GYRE_SECRET", "mine"), GYRE_OK);
  assert_string_equal(s.secret, "mine");
  assert_false(gy_settings_given(&s, "GYRE_SECRET_FILE"));
}

static void a_bad_secret_file_is_refused(void **state) {
  (void)state;
  char path[128], big[300], expected[512];
  memset(big, 'b', sizeof big);
  assert_refused("GYRE_SECRET_FILE", write_file("b1", "", 0, 0600, path), NULL);
  assert_refused("GYRE_SECRET_FILE", write_file("b2", "\n", 1, 0600, path), NULL);
  assert_refused("GYRE_SECRET_FILE", write_file("b3", "a\0b", 3, 0600, path), NULL);
  assert_refused("GYRE_SECRET_FILE", write_file("b4", big, 256, 0600, path), NULL);
  assert_refused("GYRE_SECRET_FILE", write_file("b5", big, 300, 0600, path), NULL);
  assert_null(strstr(gyre_last_error(), "bbbb"));
  assert_refused("GYRE_SECRET_FILE", folder, NULL);
  assert_int_equal(mkfifo(path_of("fifo", path), 0600), 0);
  snprintf(expected, sizeof expected, "GYRE_SECRET_FILE=%s: must be a regular file", path);
  assert_refused("GYRE_SECRET_FILE", path, expected);
  path_of("missing", path);
  snprintf(expected, sizeof expected, "GYRE_SECRET_FILE=%s: cannot open: %s (errno %d)", path,
           strerror(ENOENT), ENOENT);
  assert_refused("GYRE_SECRET_FILE", path, expected);
}

static void both_secrets_are_refused(void **state) {
  (void)state;
  struct gy_settings s;
  char path[128];
  setenv("GYRE_SECRET_FILE", write_file("s2", "x", 1, 0600, path), 1);
  setenv("GYRE_SECRET", "y", 1);
  assert_int_equal(gy_settings_load(&s), GYRE_ERR_ARG);
  assert_non_null(strstr(gyre_last_error(), "GYRE_SECRET and GYRE_SECRET_FILE"));
}

/* ---------------------------------------------------------------------------- the warnings --- */

/* What a fresh process says on standard error when it loads the settings; the caller frees it. */
static char *warnings_of_a_process(int times) {
  int ends[2], status;
  char *text = calloc(1, 8192);
  assert_non_null(text);
  assert_int_equal(pipe(ends), 0);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    struct gy_settings s;
    gyre_status st = GYRE_OK;
    dup2(ends[1], STDERR_FILENO);
    while (times-- > 0 && st == GYRE_OK) st = gy_settings_load(&s);
    _exit(st == GYRE_OK ? 0 : 1);
  }
  close(ends[1]);
  size_t n = 0;
  for (ssize_t got; (got = read(ends[0], text + n, 8191 - n)) > 0;) n += (size_t)got;
  close(ends[0]);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  return text;
}

static size_t count_of(const char *text, const char *what) {
  size_t n = 0;
  for (const char *c = text; (c = strstr(c, what)); c++) n++;
  return n;
}

/* The warnings are once per process, so this program must not have given one before: these tests
 * run first. */
static void unknown_variables_warn_once_with_the_nearest_name(void **state) {
  (void)state;
  setenv("GYRE_OP_TIMEOUT", "5", 1);
  setenv("GYRE_RENDEVOUS", "x", 1);
  setenv("GYRE_WINDWO", "4", 1);
  setenv("GYRES_OTHER", "1", 1);
  setenv("GYRE_WINDOW", "4", 1);
  char *text = warnings_of_a_process(3);
  assert_int_equal(count_of(text, "\n"), 3);
  assert_int_equal(count_of(text, "WARN GYRE_OP_TIMEOUT is no setting"), 1);
  assert_non_null(strstr(text, "did you mean GYRE_OP_TIMEOUT_MS?"));
  assert_non_null(strstr(text, "did you mean GYRE_RENDEZVOUS?"));
  assert_non_null(strstr(text, "did you mean GYRE_WINDOW?"));
  free(text);
  setenv("GYRE_LOG", "off", 1);
  text = warnings_of_a_process(1);
  assert_string_equal(text, "");
  free(text);
  unsetenv("GYRES_OTHER");
}

static void a_warning_goes_to_the_log_file_that_was_asked_for(void **state) {
  (void)state;
  char path[128];
  setenv("GYRE_WINDWO", "4", 1);
  setenv("GYRE_LOG_FILE", path_of("warnings", path), 1);
  char *text = warnings_of_a_process(1);
  assert_string_equal(text, "");
  free(text);
  FILE *f = fopen(path, "r");
  assert_non_null(f);
  char line[512];
  assert_non_null(fgets(line, sizeof line, f));
  assert_non_null(strstr(line, "GYRE_WINDWO"));
  assert_null(fgets(line, sizeof line, f));
  fclose(f);
}

static void a_secret_others_can_read_warns(void **state) {
  (void)state;
  char path[128];
  static const struct {
    mode_t mode;
    int warns;
  } modes[] = {{0600, 0}, {0400, 0}, {0700, 0}, {0644, 1}, {0640, 1}, {0604, 1}, {0620, 1}};
  for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
    setenv("GYRE_SECRET_FILE", write_file("mode", "x", 1, modes[i].mode, path), 1);
    char *text = warnings_of_a_process(2);
    assert_int_equal(count_of(text, "other users"), modes[i].warns);
    if (modes[i].warns) assert_non_null(strstr(text, path));
    free(text);
    unlink(path);
  }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup(name, clean_environment)
  const struct CMUnitTest tests[] = {
      TEST(unknown_variables_warn_once_with_the_nearest_name),
      TEST(a_warning_goes_to_the_log_file_that_was_asked_for),
      TEST(a_secret_others_can_read_warns),
      TEST(the_table_covers_the_struct_once),
      TEST(the_defaults_are_those_documented),
      TEST(every_default_is_one_that_may_be_given),
      TEST(numbers_are_whole_and_within_their_range),
      TEST(a_slice_is_a_multiple_of_64),
      TEST(a_choice_is_one_of_its_words),
      TEST(transports_are_known_names),
      TEST(a_port_is_one_or_a_range),
      TEST(a_text_that_is_too_long_is_refused_not_cut),
      TEST(a_name_that_is_none_is_refused),
      TEST(the_environment_is_read),
      TEST(a_bad_variable_fails_the_load_and_leaves_the_result_alone),
      TEST(a_secret_is_never_shown),
      TEST(a_secret_may_come_from_a_file),
      TEST(a_bad_secret_file_is_refused),
      TEST(both_secrets_are_refused),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

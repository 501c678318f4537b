/* test_launch.c - what gyre_comm_create_from_env makes of whole, half and wrong environments. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include "gyre/gyre.h"

static const char *const variables[] = {
    "GYRE_RANK", "GYRE_WORLD_SIZE", "GYRE_LOCAL_RANK", "GYRE_RENDEZVOUS",
    "RANK",      "WORLD_SIZE",      "MASTER_ADDR",     "MASTER_PORT"};

struct launch_case {
  const char *set;     /* "NAME=VALUE ..." */
  const char *says[3]; /* of the ARG that results; none: a communicator of one rank */
};

static const struct launch_case cases[] = {
    {"", {0}},
    {"GYRE_RANK=0 GYRE_WORLD_SIZE=1", {0}},
    {"GYRE_RANK=0 GYRE_WORLD_SIZE=1 GYRE_RENDEZVOUS=tcp://127.0.0.1:7000", {0}},
    {"GYRE_RANK=0 GYRE_WORLD_SIZE=1 RANK=5", {0}},
    {"RANK=0 WORLD_SIZE=1", {0}},
    {"RANK=0 WORLD_SIZE=1 MASTER_ADDR=localhost MASTER_PORT=29500 GYRE_LOCAL_RANK=0", {0}},
    {"GYRE_RANK= GYRE_WORLD_SIZE=2", {"GYRE_RANK"}},
    /* half an environment: what is there and what is missing */
    {"GYRE_RENDEZVOUS=tcp://127.0.0.1:7000",
     {"GYRE_RENDEZVOUS is set but GYRE_RANK and GYRE_WORLD_SIZE are not", "unset it"}},
    {"GYRE_RANK=0", {"GYRE_RANK is set but GYRE_WORLD_SIZE and GYRE_RENDEZVOUS are not"}},
    {"GYRE_WORLD_SIZE=1", {"GYRE_WORLD_SIZE is set but GYRE_RANK and GYRE_RENDEZVOUS are not"}},
    {"GYRE_RANK=1 GYRE_WORLD_SIZE=2",
     {"GYRE_RANK and GYRE_WORLD_SIZE are set but GYRE_RENDEZVOUS is not", "unset them"}},
    {"GYRE_LOCAL_RANK=0", {"GYRE_LOCAL_RANK is set but GYRE_RANK, GYRE_WORLD_SIZE"}},
    {"RANK=0", {"RANK is set but WORLD_SIZE, MASTER_ADDR and MASTER_PORT are not: torchrun"}},
    {"WORLD_SIZE=2", {"WORLD_SIZE is set but RANK, MASTER_ADDR and MASTER_PORT are not"}},
    {"MASTER_ADDR=localhost", {"MASTER_ADDR is set but RANK, WORLD_SIZE and MASTER_PORT are not"}},
    {"MASTER_ADDR=localhost MASTER_PORT=29500",
     {"MASTER_ADDR and MASTER_PORT are set but RANK and WORLD_SIZE are not"}},
    {"RANK=0 WORLD_SIZE=2", {"RANK and WORLD_SIZE are set but MASTER_ADDR and MASTER_PORT are not"}},
    {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost",
     {"RANK, WORLD_SIZE and MASTER_ADDR are set but MASTER_PORT is not"}},
    {"RANK=0 WORLD_SIZE=2 MASTER_PORT=29500",
     {"RANK, WORLD_SIZE and MASTER_PORT are set but MASTER_ADDR is not"}},
    {"RANK=0 GYRE_RENDEZVOUS=tcp://127.0.0.1:7000", {"RANK is set but WORLD_SIZE"}},
    /* wrong values */
    {"GYRE_RANK=2 GYRE_WORLD_SIZE=2 GYRE_RENDEZVOUS=tcp://127.0.0.1:7000",
     {"GYRE_RANK=2", "less than GYRE_WORLD_SIZE=2"}},
    {"RANK=2 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=1", {"RANK=2: ", "from 0 to 1"}},
    {"RANK=x WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=1", {"RANK=x: "}},
    {"RANK=0 WORLD_SIZE=0 MASTER_ADDR=localhost MASTER_PORT=1", {"WORLD_SIZE=0: "}},
    {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=65535",
     {"MASTER_PORT=65535: ", "from 1 to 65534, as", "the port after it"}},
};

static void clear_environment(void) {
  for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) unsetenv(variables[i]);
}

static void set_environment(const char *list) {
  char copy[256], *rest = copy;
  clear_environment();
  strncpy(copy, list, sizeof copy - 1);
  copy[sizeof copy - 1] = 0;
  for (char *word; (word = strsep(&rest, " ")) != NULL;) {
    char *value = strchr(word, '=');
    if (!value) continue;
    *value = 0;
    setenv(word, value + 1, 1);
  }
}

static void run_case(const struct launch_case *c) {
  gyre_context *ctx = NULL;
  gyre_comm *comm = NULL;
  set_environment(c->set);
  gyre_status st = gyre_context_create(&ctx);
  if (st == GYRE_OK) st = gyre_comm_create_from_env(ctx, NULL, &comm);
  if (st != (c->says[0] ? GYRE_ERR_ARG : GYRE_OK))
    fail_msg("%s: %s: %s", c->set, gyre_status_name(st), gyre_last_error());
  for (size_t i = 0; i < 3 && c->says[i]; i++)
    if (!strstr(gyre_last_error(), c->says[i]))
      fail_msg("%s: no \"%s\" in: %s", c->set, c->says[i], gyre_last_error());
  assert_int_equal(gyre_comm_size(comm), c->says[0] ? -1 : 1);
  gyre_comm_destroy(comm);
  gyre_context_destroy(ctx);
  clear_environment();
}

static void test_environments(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) run_case(&cases[i]);
}

/* A program that gives the place itself needs no GYRE_RENDEZVOUS: it is not called missing. */
static void test_place_of_the_program(void **state) {
  (void)state;
  gyre_comm_config config = GYRE_COMM_CONFIG_INIT;
  gyre_context *ctx = NULL;
  gyre_comm *comm = NULL;
  config.rendezvous = "tcp://127.0.0.1:7000";
  set_environment("GYRE_RANK=0");
  assert_int_equal(gyre_context_create(&ctx), GYRE_OK);
  assert_int_equal(gyre_comm_create_from_env(ctx, &config, &comm), GYRE_ERR_ARG);
  assert_non_null(strstr(gyre_last_error(), "GYRE_RANK is set but GYRE_WORLD_SIZE is not"));
  gyre_context_destroy(ctx);
  clear_environment();
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_environments),
                                     cmocka_unit_test(test_place_of_the_program)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

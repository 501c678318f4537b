/* test_address.c - parsing and printing addresses, choosing what to listen on, ordering what to
 * dial, naming the host. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "address.h"
#include "status.h"

static struct gy_address at(const char *host, uint16_t port) {
  struct gy_address a;
  if (!gy_address_numeric(host, port, &a)) fail_msg("%s is not numeric", host);
  return a;
}

static void check_text(const char *host, const char *expected) {
  char text[GY_ADDRESS_TEXT];
  struct gy_address a = at(host, 7000);
  assert_ptr_equal(gy_address_text(&a, text), text);
  assert_string_equal(text, expected);
  assert_int_equal(gy_address_port(&a), 7000);
}

static void test_text(void **state) {
  (void)state;
  check_text("10.0.0.1", "10.0.0.1:7000");
  check_text("::1", "[::1]:7000");
  check_text("fe80::1%lo", "[fe80::1%lo]:7000");
  check_text("2001:DB8:0:0::1", "[2001:db8::1]:7000");
  check_text("::ffff:10.0.0.1", "10.0.0.1:7000"); /* the same peer, one name */
}

static void test_numeric(void **state) {
  (void)state;
  static const char *const names[] = {"",
                                      "localhost",
                                      "10.0.0",
                                      "10.0.0.256",
                                      "1",
                                      "node1",
                                      ":",
                                      "::1::",
                                      "10.0.0.1:7",
                                      "[::1]",
                                      "fe80::1%nosuchinterface"};
  struct gy_address a = at("10.9.8.7", 6), before = a;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (gy_address_numeric(names[i], 1, &a)) fail_msg("%s was taken for a number", names[i]);
  assert_memory_equal(&a, &before, sizeof a); /* written on success only */
}

static void test_classes(void **state) {
  (void)state;
  struct gy_address a;
  a = at("127.0.0.1", 0), assert_true(gy_address_is_loopback(&a) && !gy_address_is_link_local(&a));
  a = at("127.255.3.4", 0), assert_true(gy_address_is_loopback(&a));
  a = at("::1", 0), assert_true(gy_address_is_loopback(&a));
  a = at("128.0.0.1", 0), assert_false(gy_address_is_loopback(&a));
  a = at("::2", 0), assert_false(gy_address_is_loopback(&a));
  a = at("0.0.0.0", 0), assert_false(gy_address_is_loopback(&a));
  a = at("169.254.1.1", 0), assert_true(gy_address_is_link_local(&a));
  a = at("169.253.1.1", 0), assert_false(gy_address_is_link_local(&a));
  a = at("fe80::1%lo", 0), assert_true(gy_address_is_link_local(&a) && !gy_address_is_loopback(&a));
  a = at("fd00::1", 0), assert_false(gy_address_is_link_local(&a));
}

static void test_split(void **state) {
  (void)state;
  static const struct {
    const char *text, *host;
    unsigned port;
  } good[] = {{"node1:7000", "node1", 7000},
              {"10.0.0.1:1", "10.0.0.1", 1},
              {"[::1]:65535", "::1", 65535},
              {"[fe80::1%eth0]:80", "fe80::1%eth0", 80},
              {"[node]:5", "node", 5}};
  static const struct {
    const char *text, *says;
  } bad[] = {{"", "host:port"},
             {"node1", "host:port"},
             {":7000", "host:port"},
             {"[]:7000", "host:port"},
             {"[::1]7000", "host:port"},
             {"[::1", "host:port"},
             {"::1:7000", "brackets"},
             {"node1:", "1 to 65535"},
             {"node1:0", "1 to 65535"},
             {"node1:65536", "1 to 65535"},
             {"node1:7x", "1 to 65535"},
             {"node1:-1", "1 to 65535"},
             {"node1: 7", "1 to 65535"},
             {"node1:99999999999999999999", "1 to 65535"},
             {"a-host-name-that-is-too-long:7000", "longer than 15"}};
  char host[16] = "untouched";
  uint16_t port = 9;
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    assert_int_equal(gy_address_split(bad[i].text, host, sizeof host, &port), GYRE_ERR_ARG);
    if (strstr(gyre_last_error(), bad[i].says) == NULL)
      fail_msg("\"%s\": %s", bad[i].text, gyre_last_error());
    assert_non_null(strstr(gyre_last_error(), bad[i].text));
  }
  assert_string_equal(host, "untouched");
  assert_int_equal(port, 9);
  for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
    assert_int_equal(gy_address_split(good[i].text, host, sizeof host, &port), GYRE_OK);
    assert_string_equal(host, good[i].host);
    assert_int_equal(port, good[i].port);
  }
}

/* ------------------------------------------------------------------------------- choosing --- */

static struct gy_settings with_iface(const char *iface) {
  struct gy_settings s = {.insecure = 0};
  gy_format(s.iface, sizeof s.iface, "%s", iface);
  return s;
}

static void test_choose_without_secret(void **state) {
  (void)state;
  struct gy_settings s = with_iface("");
  struct gy_address out[GY_ADDRESS_MAX], v4 = at("127.0.0.1", 0);
  size_t n = 0;
  assert_int_equal(gy_address_choose(&s, false, out, &n), GYRE_OK);
  assert_true(n >= 1);
  for (size_t i = 0; i < n; i++)
    assert_true(gy_address_is_loopback(&out[i]) && gy_address_port(&out[i]) == 0);
  assert_memory_equal(&out[0], &v4, gy_address_len(&v4));
}

static void test_choose_all(void **state) {
  (void)state;
  for (int insecure = 0; insecure < 2; insecure++) {
    struct gy_settings s = with_iface("");
    struct gy_address out[GY_ADDRESS_MAX];
    size_t n = 0;
    bool local = false, loop = false;
    s.insecure = insecure;
    assert_int_equal(gy_address_choose(&s, !insecure, out, &n), GYRE_OK);
    for (size_t i = 0; i < n; i++) { /* global, then link-local, then loopback, which is always there */
      bool is_loop = gy_address_is_loopback(&out[i]), is_local = gy_address_is_link_local(&out[i]);
      assert_false(loop && !is_loop);
      assert_false(local && !is_local && !is_loop);
      loop = loop || is_loop;
      local = local || is_local;
    }
    assert_true(loop);
  }
}

static void test_choose_by_name_and_subnet(void **state) {
  (void)state;
  static const char *const good[] = {"lo",  "127.0.0.0/8", "127.0.0.1", "127.128.0.0/9",
                                     "::1", "::1/128",     "0.0.0.0/0"};
  static const bool matches[] = {true, true, true, false, true, true, true};
  for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
    struct gy_settings s = with_iface(good[i]);
    struct gy_address out[GY_ADDRESS_MAX];
    size_t n = 77;
    gyre_status st = gy_address_choose(&s, false, out, &n);
    if (i == 4 || i == 5) { /* this host may be without IPv6 */
      struct gy_settings lo = with_iface("lo");
      struct gy_address all[GY_ADDRESS_MAX];
      size_t m = 0;
      assert_int_equal(gy_address_choose(&lo, false, all, &m), GYRE_OK);
      if (m < 2) continue;
    }
    assert_int_equal(st, matches[i] ? GYRE_OK : GYRE_ERR_ARG);
    if (!matches[i]) assert_int_equal(n, 77);
  }
}

static void test_choose_nothing_lists_what_there_is(void **state) {
  (void)state;
  static const char *const none[] = {"nosuch0", "203.0.113.0/24"};
  static const char *const bad[] = {"127.0.0.0/33", "127.0.0.0/", "127.0.0.0/x", "::1/129", "node/8"};
  struct gy_address out[GY_ADDRESS_MAX];
  size_t n = 77;
  for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
    struct gy_settings s = with_iface(none[i]);
    assert_int_equal(gy_address_choose(&s, true, out, &n), GYRE_ERR_ARG);
    assert_non_null(strstr(gyre_last_error(), none[i]));
    assert_non_null(strstr(gyre_last_error(), "lo 127.0.0.1/8 up"));
    assert_int_equal(gy_address_choose(&s, false, out, &n), GYRE_ERR_ARG);
    assert_non_null(strstr(gyre_last_error(), "GYRE_SECRET"));
  }
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    struct gy_settings s = with_iface(bad[i]);
    assert_int_equal(gy_address_choose(&s, true, out, &n), GYRE_ERR_ARG);
    assert_non_null(strstr(gyre_last_error(), bad[i]));
  }
  assert_int_equal(n, 77);
}

static void test_list(void **state) {
  (void)state;
  char text[4096], little[10];
  size_t n = gy_address_list(text, sizeof text);
  assert_int_equal(n, strlen(text));
  assert_non_null(strstr(text, "lo 127.0.0.1/8 up"));
  assert_true(gy_address_list(little, sizeof little) < sizeof little);
  assert_int_equal(gy_address_list(little, 0), 0);
}

/* -------------------------------------------------------------------------------- ordering --- */

static void test_order(void **state) {
  (void)state;
  const struct gy_settings s = with_iface("");
  struct gy_address from[] = {at("169.254.7.7", 1), at("203.0.113.9", 2), at("127.0.0.1", 3),
                              at("2001:db8::9", 4)};
  struct gy_address out[GY_ADDRESS_MAX];
  assert_int_equal(gy_address_order(&s, from, 4, true, out), 4);
  assert_int_equal(gy_address_port(&out[0]), 3);
  assert_int_equal(gy_address_port(&out[1]), 2);
  assert_int_equal(gy_address_port(&out[2]), 4);
  assert_int_equal(gy_address_port(&out[3]), 1);
  assert_int_equal(gy_address_order(&s, from, 4, false, out), 3);
  assert_int_equal(gy_address_port(&out[0]), 2);
  assert_int_equal(gy_address_port(&out[1]), 4);
  assert_int_equal(gy_address_port(&out[2]), 1);
  assert_int_equal(gy_address_order(&s, &from[2], 1, false, out), 0);
  struct gy_address many[20];
  for (size_t i = 0; i < 20; i++) many[i] = at("203.0.113.9", (uint16_t)(100 + i));
  assert_int_equal(gy_address_order(&s, many, 20, false, out), GY_ADDRESS_MAX);
}

/* A neighbour comes before strangers; an address that we have ourselves cannot be another host's,
 * and comes last. */
static void test_order_near_first(void **state) {
  (void)state;
  struct gy_settings s = with_iface("");
  struct gy_address mine[GY_ADDRESS_MAX], out[GY_ADDRESS_MAX], from[3];
  char list[4096], host[GY_ADDRESS_TEXT + 8];
  size_t n = 0;
  assert_int_equal(gy_address_choose(&s, true, mine, &n), GYRE_OK);
  if (n == 0 || gy_address_is_loopback(&mine[0]) || gy_address_is_link_local(&mine[0])) skip();
  from[0] = mine[0];
  from[1] = at("203.0.113.9", 0);
  from[2] = mine[0];
  if (mine[0].sa.any.sa_family == AF_INET6) from[2].sa.v6.sin6_addr.s6_addr[15] ^= 1;
  else from[2].sa.v4.sin_addr.s_addr ^= htonl(1);
  for (uint16_t i = 0; i < 3; i++) gy_address_set_port(&from[i], i);
  assert_int_equal(gy_address_order(&s, from, 2, false, out), 2);
  assert_int_equal(gy_address_port(&out[0]), 1);
  assert_int_equal(gy_address_port(&out[1]), 0);

  gy_address_text(&mine[0], host); /* a subnet of one address has no neighbours */
  bool v6 = host[0] == '[';
  host[strlen(host) - strlen(v6 ? "]:0" : ":0")] = '\0';
  strcat(host, v6 ? "/128" : "/32");
  gy_address_list(list, sizeof list);
  if (strstr(list, v6 ? host + 1 : host) != NULL) skip();
  assert_int_equal(gy_address_order(&s, from, 3, false, out), 3);
  assert_int_equal(gy_address_port(&out[0]), 2);
  assert_int_equal(gy_address_port(&out[1]), 1);
  assert_int_equal(gy_address_port(&out[2]), 0);
  /* By another interface than the chosen one nobody is near. */
  s = with_iface("lo");
  assert_int_equal(gy_address_order(&s, from, 3, false, out), 3);
  assert_int_equal(gy_address_port(&out[0]), 1);
  assert_int_equal(gy_address_port(&out[1]), 2);
  assert_int_equal(gy_address_port(&out[2]), 0);
}

/* -------------------------------------------------------------------------------- the host --- */

/* The host's id as another process sees it, perhaps in a network namespace of its own; false if it
 * may not make one. */
static bool id_of_child(bool own_namespace, uint8_t out[16]) {
  int fd[2], status = 0;
  assert_int_equal(pipe(fd), 0);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    /* A fresh program image would compute it anew; here it is the first call in this process
     * tree. */
    uint8_t id[16];
    if (own_namespace && unshare(CLONE_NEWNET) != 0) _exit(2);
    gy_host_id(id);
    _exit(write(fd[1], id, sizeof id) == sizeof id ? 0 : 1);
  }
  close(fd[1]);
  ssize_t got = read(fd[0], out, 16);
  close(fd[0]);
  assert_int_equal(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 2) return false;
  assert_int_equal(got, 16);
  return true;
}

static void test_host_id(void **state) {
  (void)state;
  uint8_t mine[16], again[16], child[16], elsewhere[16], zero[16] = {0};
  assert_true(id_of_child(false, child)); /* before this process knows its own */
  bool separated = id_of_child(true, elsewhere);
  gy_host_id(mine);
  gy_host_id(again);
  assert_memory_not_equal(mine, zero, 16);
  assert_memory_equal(mine, again, 16);
  assert_memory_equal(mine, child, 16);
  if (separated) assert_memory_not_equal(mine, elsewhere, 16);
}

static void test_host_name(void **state) {
  (void)state;
  char name[64], little[3];
  gy_host_name(name, sizeof name);
  assert_true(strlen(name) > 0);
  memset(little, 'x', sizeof little);
  gy_host_name(little, sizeof little);
  assert_true(strlen(little) < sizeof little);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_host_id), /* first: it forks before the id is known */
      cmocka_unit_test(test_text),
      cmocka_unit_test(test_numeric),
      cmocka_unit_test(test_classes),
      cmocka_unit_test(test_split),
      cmocka_unit_test(test_choose_without_secret),
      cmocka_unit_test(test_choose_all),
      cmocka_unit_test(test_choose_by_name_and_subnet),
      cmocka_unit_test(test_choose_nothing_lists_what_there_is),
      cmocka_unit_test(test_list),
      cmocka_unit_test(test_order),
      cmocka_unit_test(test_order_near_first),
      cmocka_unit_test(test_host_name),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

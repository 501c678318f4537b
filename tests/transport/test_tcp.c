/*
 * test_tcp.c - the TCP transport: what every transport must do. Bytes on the wire are
 * test_tcp_wire.c's. CONFORMANCE_ROUNDS in the environment sets the rounds of opening and closing.
 */
#include "conformance.h"

#include <stdlib.h>

#include "transport/tcp/link.h"

static const size_t borders[] = {GY_FRAME_SMALL, STAGING_BYTES, 1u << 20};
static struct conformance tcp = {&gy_tcp_ops, borders, 3, 2000, false, NULL, false};
const struct conformance *conformance = &tcp;

int main(void) {
  const char *rounds = getenv("CONFORMANCE_ROUNDS");
  if (rounds) tcp.rounds = (unsigned)strtoul(rounds, NULL, 10);
  const struct CMUnitTest tests[] = {CONFORMANCE_TESTS};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

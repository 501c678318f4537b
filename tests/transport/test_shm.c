/*
 * test_shm.c - the shared-memory transport: what every transport must do. CONFORMANCE_ROUNDS in the environment sets
 * the rounds of opening and closing.
 */
#include "conformance.h"

#include <stdlib.h>

#include "transport/shm/link.h"

static const size_t borders[] = {SHM_TINY, SHM_PIECE, SHM_PIECE *SHM_CELLS};
static struct conformance shm = {&gy_shm_ops, borders, 3, 2000, false, NULL, false};
const struct conformance *conformance = &shm;

int main(void) {
  const char *rounds = getenv("CONFORMANCE_ROUNDS");
  if (rounds) shm.rounds = (unsigned)strtoul(rounds, NULL, 10);
  const struct CMUnitTest tests[] = {CONFORMANCE_TESTS};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

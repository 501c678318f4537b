/*
 * conformance.h - what every transport must do, tested through its function table alone.
 *
 * A transport's test program states its table and its internal borders and runs CONFORMANCE_TESTS
 * beside its own tests. Each test runs twice: with a driver that spins, and with one that sleeps
 * whenever arm() allows it, so a lost wake-up is a failure.
 */
#ifndef TEST_CONFORMANCE_H
#define TEST_CONFORMANCE_H

#include "world.h"

struct conformance {
  const struct gy_tl_ops *ops;
  const size_t *borders; /* sizes at which the transport changes its way; they and their neighbours are tried */
  size_t n_borders;
  unsigned rounds;   /* of opening and closing */
  bool checksum;     /* frames carry checksums */
  const char *fault; /* of every rank; NULL: none */
  bool brief; /* less data; as under a sanitizer, unless CONFORMANCE_WHOLE is in the environment */
};

extern const struct conformance *conformance; /* of the program */

void conformance_sizes(void **state);
void conformance_reductions(void **state);
void conformance_random_traffic(void **state);
void conformance_lanes(void **state);
void conformance_posts_before_the_peer_is_there(void **state);
void conformance_windows(void **state);
void conformance_back_pressure(void **state);
void conformance_idle_links_sleep(void **state);
void conformance_graceful_close_loses_nothing(void **state);
void conformance_close_with_posted_work(void **state);
void conformance_peer_leaves(void **state);
void conformance_peer_leaves_meanwhile(void **state);
void conformance_other_call(void **state);
void conformance_describe(void **state);
void conformance_open_and_close(void **state);

/* Whether the suite is cut short, and whether that is for a sanitizer. */
bool conformance_is_brief(void);
bool conformance_is_sanitized(void);

#define CONFORMANCE_TESTS                                                                 \
  cmocka_unit_test(conformance_sizes), cmocka_unit_test(conformance_reductions),          \
      cmocka_unit_test(conformance_random_traffic), cmocka_unit_test(conformance_lanes),  \
      cmocka_unit_test(conformance_posts_before_the_peer_is_there),                       \
      cmocka_unit_test(conformance_windows), cmocka_unit_test(conformance_back_pressure), \
      cmocka_unit_test(conformance_idle_links_sleep),                                     \
      cmocka_unit_test(conformance_graceful_close_loses_nothing),                         \
      cmocka_unit_test(conformance_close_with_posted_work),                               \
      cmocka_unit_test(conformance_peer_leaves),                                          \
      cmocka_unit_test(conformance_peer_leaves_meanwhile),                                \
      cmocka_unit_test(conformance_other_call), cmocka_unit_test(conformance_describe),   \
      cmocka_unit_test(conformance_open_and_close)

#endif

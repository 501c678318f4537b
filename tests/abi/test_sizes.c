/*
 * test_sizes.c - the layout of the public structs and the values of the public enums, as programs
 * were compiled with them.
 *
 * A struct with a `size` member may grow at its end (then its size here changes, and CHANGELOG says
 * so under ABI); no member ever moves and no value ever changes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "gyre/gyre.h"

#define AT(type, member, offset) assert_int_equal(offsetof(type, member), offset)

_Static_assert(sizeof(void *) == 8, "the offsets below are those of 64-bit systems");
_Static_assert(sizeof(gyre_status) == 4 && sizeof(gyre_dtype) == 4 && sizeof(gyre_op) == 4,
               "enums are ints");

static void error_layout(void **state) {
  (void)state;
  AT(gyre_error, size, 0);
  AT(gyre_error, status, 8);
  AT(gyre_error, culprit_rank, 12);
  AT(gyre_error, reporter_rank, 16);
  AT(gyre_error, op_seq, 24);
  AT(gyre_error, sys_errno, 32);
  AT(gyre_error, text, 36);
  assert_int_equal(sizeof(gyre_error), 552);
}

static void context_config_layout(void **state) {
  (void)state;
  AT(gyre_context_config, size, 0);
  AT(gyre_context_config, iface, 8);
  AT(gyre_context_config, advertise, 16);
  AT(gyre_context_config, port, 24);
  AT(gyre_context_config, secret, 32);
  AT(gyre_context_config, spin_us, 40);
  AT(gyre_context_config, flags, 44);
  assert_int_equal(sizeof(gyre_context_config), 48);
}

static void comm_config_layout(void **state) {
  (void)state;
  AT(gyre_comm_config, size, 0);
  AT(gyre_comm_config, rendezvous, 8);
  AT(gyre_comm_config, id, 16);
  AT(gyre_comm_config, oob, 24);
  AT(gyre_comm_config, transports, 32);
  AT(gyre_comm_config, algo, 40);
  AT(gyre_comm_config, slice_bytes, 48);
  AT(gyre_comm_config, window, 52);
  AT(gyre_comm_config, connect_timeout_ms, 56);
  AT(gyre_comm_config, op_timeout_ms, 60);
  AT(gyre_comm_config, flags, 64);
  AT(gyre_comm_config, heartbeat_ms, 68);
  AT(gyre_comm_config, peer_timeout_ms, 72);
  AT(gyre_comm_config, fault, 80);
  assert_int_equal(sizeof(gyre_comm_config), 88);
}

static void other_layouts(void **state) {
  (void)state;
  assert_int_equal(sizeof(gyre_unique_id), 128);
  AT(gyre_oob, user, 0);
  AT(gyre_oob, put, 8);
  AT(gyre_oob, get, 16);
  assert_int_equal(sizeof(gyre_oob), 24);
}

static void counters_layout(void **state) {
  (void)state;
  AT(gyre_counters, size, 0);
  AT(gyre_counters, operations_posted, 8);
  AT(gyre_counters, operations_completed, 16);
  AT(gyre_counters, operations_failed, 24);
  AT(gyre_counters, bytes_sent, 32);
  AT(gyre_counters, bytes_received, 40);
  assert_int_equal(sizeof(gyre_counters), 48);
  AT(gyre_peer_counters, size, 0);
  AT(gyre_peer_counters, bytes_sent, 8);
  AT(gyre_peer_counters, bytes_received, 16);
  AT(gyre_peer_counters, wait_ns, 24);
  assert_int_equal(sizeof(gyre_peer_counters), 32);
}

static void values(void **state) {
  (void)state;
  const int statuses[] = {
      GYRE_OK,          GYRE_ERR_ARG,      GYRE_ERR_NOMEM,       GYRE_ERR_SYS,
      GYRE_ERR_CUDA,    GYRE_ERR_VERBS,    GYRE_ERR_PROTO,       GYRE_ERR_VERSION,
      GYRE_ERR_AUTH,    GYRE_ERR_MISMATCH, GYRE_ERR_TIMEOUT,     GYRE_ERR_PEER_LOST,
      GYRE_ERR_ABORTED, GYRE_ERR_STATE,    GYRE_ERR_UNSUPPORTED, GYRE_ERR_INTERNAL};
  for (int i = 0; i < (int)(sizeof statuses / sizeof *statuses); i++)
    assert_int_equal(statuses[i], -i);
  assert_int_equal(GYRE_IN_PROGRESS, 1);

  const int types[] = {GYRE_F32,     GYRE_F64,     GYRE_F16,     GYRE_BF16,    GYRE_I8,
                       GYRE_U8,      GYRE_I16,     GYRE_U16,     GYRE_I32,     GYRE_U32,
                       GYRE_I64,     GYRE_U64,     GYRE_F32_I32, GYRE_F64_I64, GYRE_I32_I32,
                       GYRE_I64_I64, GYRE_F8_E4M3, GYRE_F8_E5M2};
  assert_int_equal(sizeof types / sizeof *types, GYRE_DTYPE_COUNT);
  for (int i = 0; i < GYRE_DTYPE_COUNT; i++) assert_int_equal(types[i], i);
  const int ops[] = {GYRE_SUM,  GYRE_PROD, GYRE_MIN, GYRE_MAX,  GYRE_AVG,    GYRE_BAND,  GYRE_BOR,
                     GYRE_BXOR, GYRE_LAND, GYRE_LOR, GYRE_LXOR, GYRE_MINLOC, GYRE_MAXLOC};
  assert_int_equal(sizeof ops / sizeof *ops, GYRE_OP_COUNT);
  for (int i = 0; i < GYRE_OP_COUNT; i++) assert_int_equal(ops[i], i);
  assert_int_equal(GYRE_F_NO_PROGRESS_THREAD, 1);
  assert_int_equal(GYRE_F_EAGER_LINKS, 2);
  assert_int_equal(GYRE_F_CHECKSUM, 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(error_layout),       cmocka_unit_test(context_config_layout),
      cmocka_unit_test(comm_config_layout), cmocka_unit_test(other_layouts),
      cmocka_unit_test(counters_layout),    cmocka_unit_test(values),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

#!/usr/bin/env bash
# test_rest_long.sh BUILD_DIR SOURCE_DIR - the other fault tests with more rounds than the quick suite can afford.
set -u
. "$2/tests/fault/rounds.sh"
rounds 10 "$1/tests/fault/test_stop"
rounds 20 "$1/tests/fault/test_mismatch"
rounds 20 "$1/tests/fault/test_abort"
rounds 20 "$1/tests/fault/test_scan"
rounds 500 "$1/tests/fault/test_lifetime"
exit "$failed"

#!/usr/bin/env bash
# test_rest_long.sh BUILD_DIR SOURCE_DIR - the other fault tests with more rounds than the quick suite can afford.
set -u
failed=0
run() { # ROUNDS COMMAND...
  local rounds=$1
  shift
  if ROUNDS=$rounds "$@"; then echo "ok: $rounds rounds of $*"; else echo "FAILED: $rounds rounds of $*"; failed=1; fi
}
run 10 "$1/tests/fault/test_stop"
run 20 "$1/tests/fault/test_mismatch"
run 20 "$1/tests/fault/test_abort"
run 20 "$1/tests/fault/test_scan"
run 500 "$1/tests/fault/test_lifetime"
exit "$failed"

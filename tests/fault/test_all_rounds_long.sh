#!/usr/bin/env bash
# test_all_rounds_long.sh BUILD_DIR SOURCE_DIR - the fault tests with all their rounds.
set -u
failed=0
run() { # ROUNDS COMMAND...
  local rounds=$1
  shift
  if ROUNDS=$rounds "$@"; then echo "ok: $rounds rounds of ${1##*/}"; else echo "FAILED: $rounds rounds of $*"; failed=1; fi
}
run 200 "$1/tests/fault/test_kill"
run 200 bash "$2/tests/fault/test_kill_perf.sh" "$1" "$2"
run 200 "$1/tests/fault/test_leave"
run 1000 "$1/tests/fault/test_many"
run 10 "$1/tests/fault/test_stop"
run 20 "$1/tests/fault/test_mismatch"
run 20 "$1/tests/fault/test_abort"
run 20 "$1/tests/fault/test_scan"
run 500 "$1/tests/fault/test_lifetime"
exit "$failed"

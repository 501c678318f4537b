#!/usr/bin/env bash
# test_kill_long.sh BUILD_DIR SOURCE_DIR - a rank is killed two hundred times, in a program of its own and in gyre-perf.
set -u
failed=0
run() { # ROUNDS COMMAND...
  local rounds=$1
  shift
  if ROUNDS=$rounds "$@"; then echo "ok: $rounds rounds of $*"; else echo "FAILED: $rounds rounds of $*"; failed=1; fi
}
run 200 "$1/tests/fault/test_kill"
run 200 bash "$2/tests/fault/test_kill_perf.sh" "$1" "$2"
exit "$failed"

#!/usr/bin/env bash
# test_leave_long.sh BUILD_DIR SOURCE_DIR - a rank broadcasts 64 MiB and leaves, two hundred times.
set -u
failed=0
run() { # ROUNDS COMMAND...
  local rounds=$1
  shift
  if ROUNDS=$rounds "$@"; then echo "ok: $rounds rounds of $*"; else echo "FAILED: $rounds rounds of $*"; failed=1; fi
}
run 200 "$1/tests/fault/test_leave"
exit "$failed"

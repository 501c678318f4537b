#!/usr/bin/env bash
# test_many_long.sh BUILD_DIR SOURCE_DIR - a thousand communicators come and go.
set -u
failed=0
run() { # ROUNDS COMMAND...
  local rounds=$1
  shift
  if ROUNDS=$rounds "$@"; then echo "ok: $rounds rounds of $*"; else echo "FAILED: $rounds rounds of $*"; failed=1; fi
}
run 1000 "$1/tests/fault/test_many"
exit "$failed"

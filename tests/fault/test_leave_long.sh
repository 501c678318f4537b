#!/usr/bin/env bash
# test_leave_long.sh BUILD_DIR SOURCE_DIR - a rank broadcasts 64 MiB and leaves, two hundred times.
set -u
. "$2/tests/fault/rounds.sh"
rounds 200 "$1/tests/fault/test_leave"
exit "$failed"

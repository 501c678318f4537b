#!/usr/bin/env bash
# test_kill_long.sh BUILD_DIR SOURCE_DIR - a rank is killed two hundred times, in a program of its own and in gyre-perf.
set -u
. "$2/tests/fault/rounds.sh"
rounds 200 "$1/tests/fault/test_kill"
rounds 200 bash "$2/tests/fault/test_kill_perf.sh" "$1" "$2"
exit "$failed"

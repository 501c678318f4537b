#!/usr/bin/env bash
# test_many_long.sh BUILD_DIR SOURCE_DIR - a thousand communicators come and go.
set -u
. "$2/tests/fault/rounds.sh"
rounds 1000 "$1/tests/fault/test_many"
exit "$failed"

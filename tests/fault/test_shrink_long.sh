#!/usr/bin/env bash
# test_shrink_long.sh BUILD_DIR SOURCE_DIR - two hundred seeds of ranks that die and of the survivors' agreement.
set -u
. "$2/tests/fault/rounds.sh"
rounds 200 "$1/tests/fault/test_shrink"
exit "$failed"

#!/usr/bin/env bash
# test_combinations_long.sh BUILD_DIR SOURCE_DIR - every combination of which the quick suite samples some.
set -u
failed=0
for test in collectives operators; do
  TEST_ALL=1 "$1/tests/multi/test_$test" || failed=1
done
exit "$failed"

#!/usr/bin/env bash
# test_shrink_long.sh BUILD_DIR - two hundred seeds of test_shrink.
set -u
ROUNDS=${ROUNDS:-200} "$1/tests/fault/test_shrink"

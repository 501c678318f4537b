#!/usr/bin/env bash
# test_scarcity_long.sh BUILD_DIR - each call fails in turn, and each limit of descriptors is tried.
set -uo pipefail
STRIDE=1 "$1/tests/scarcity/test_limit" && STRIDE=${STRIDE:-2} "$1/tests/scarcity/test_scarcity"

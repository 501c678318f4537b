#!/usr/bin/env bash
# test_shm.sh BUILD_DIR SOURCE_DIR - collectives, messages and communicators over shared memory.
set -u
export GYRE_TRANSPORTS=shm
for program in collectives point_to_point groups; do
  "$1/tests/multi/test_$program" || { echo "FAILED: $program over shared memory"; exit 1; }
done

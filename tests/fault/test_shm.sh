#!/usr/bin/env bash
# test_shm.sh BUILD_DIR SOURCE_DIR - ranks that are killed or leave, and the fault campaign, over shared memory.
set -u
export GYRE_TRANSPORTS=shm
for program in kill leave; do
  "$1/tests/fault/test_$program" || { echo "FAILED: $program over shared memory"; exit 1; }
done
"$1/tests/fault/test_campaign" --transport shm --count 46

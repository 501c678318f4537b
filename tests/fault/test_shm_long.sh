#!/usr/bin/env bash
# test_shm_long.sh BUILD_DIR SOURCE_DIR - the same with as many rounds and faults as over TCP, and all else
# that works on ranks.
set -u
. "$2/tests/fault/rounds.sh"
export GYRE_TRANSPORTS=shm
rounds 200 "$1/tests/fault/test_kill"
rounds 200 "$1/tests/fault/test_leave"
rounds 200 "$1/tests/fault/test_shrink"
rounds 20 "$1/tests/fault/test_mismatch"
rounds 200 "$1/tests/fault/test_many"
for program in api api_rules exchange groups operators point_to_point weighted; do
  "$1/tests/multi/test_$program" || failed=1
done
"$1/tests/fault/test_campaign" --transport shm --count 1150 --jobs 6 || failed=1
exit "$failed"

#!/usr/bin/env bash
# test_rehearsal.sh BUILD_DIR SOURCE_DIR - faults by GYRE_FAULT in a job of three ranks: harmless ones leave the results right, of
# the others every rank that is left tells the same story.
set -u
export PATH=$1/tools:$PATH
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
export TMPDIR=$dir
unset GYRE_SECRET GYRE_SECRET_FILE GYRE_RANK GYRE_WORLD_SIZE RANK WORLD_SIZE GYRE_ALGO GYRE_TRANSPORTS
failed=0

# job FAULT [SETTING...] -- ARGS...: gyre-perf on three ranks
job() {
  local settings=(--env "GYRE_FAULT=$1")
  fault=$1
  shift
  while [[ $1 != -- ]]; do settings+=(--env "$1"); shift; done
  shift
  gyre-run -n 3 --timeout 120 "${settings[@]}" -- gyre-perf "$@" >"$dir/out" 2>"$dir/err"
  status=$?
  sed -nE 's/^\[([0-9])\] gyre-perf: /\1 /p' "$dir/err" >"$dir/said"
}
bad() { echo "FAILED: $fault: $*"; cat "$dir/out" "$dir/err"; failed=1; }

is_right() {
  ((status == 0)) || bad "status $status"
  [[ $(awk '$2 ~ /^[0-9]+$/ {n++; bad += $10 + $15} END {print n + 0, bad + 0}' "$dir/out") == "$1 0" ]] || bad "not $1 rows with 0 wrong"
}

# tell RANKS TEXT: these ranks, and no others, end with the same text, which matches
tell() {
  ((status != 0)) || bad "status 0"
  [[ $(cut -d' ' -f1 "$dir/said" | sort | tr -d '\n') == "$1" ]] || bad "ranks $1 and no others should tell"
  [[ $(cut -d' ' -f2- "$dir/said" | sort -u | wc -l) == 1 ]] || bad "the ranks differ"
  grep -qE "$2" "$dir/said" || bad "nobody says \"$2\""
}
in_time() { ! grep -q "still running" "$dir/err" || bad "a rank did not end by itself"; }

for text in delay:us=300 reorder:seed=3 short:bytes=700 "delay:us=100,seed=9;reorder;short:bytes=3000"; do
  job "$text" -- all_reduce -b 4 -e 256K -f 256 -n 3 -w 0 --check
  is_right 3
  job "$text" GYRE_CHECKSUM=1 -- all_gather -b 12 -e 192K -f 128 -n 3 -w 0 --check
  is_right 3
done

for byte in 1000 4444 30003 90001; do
  job "flip:byte=$byte,bit=$((byte % 8)),rank=1" GYRE_CHECKSUM=1 -- all_reduce -b 64K -e 64K -n 200
  tell 012 "^[0-9] PROTO: the link to rank 1 .*a bit was flipped on the way from rank 1 \(.*\) to rank [02] \(.*\): message [0-9]+, instruction [0-9]+ slice [0-9]+ of operation [0-9]+: checksum of the (header|payload) is "
  in_time
  job "cut:bytes=$byte,rank=1" -- all_reduce -b 64K -e 64K -n 200
  tell 012 "^[0-9] PEER_LOST: .*rank [012] .*in operation [0-9]+, "
  in_time
done

for slice in 1 2 9 40; do
  job "kill:slice=$slice,rank=2" -- all_reduce -b 64K -e 64K -n 200
  tell 01 "^[0-9] PEER_LOST: rank 2 .*it died or was killed"
  in_time
done
job stop:slice=9,rank=2 GYRE_OP_TIMEOUT_MS=2000 -- all_reduce -b 64K -e 64K -n 200
tell 01 "^[0-9] TIMEOUT: rank 2 .*does not answer.*moved nothing for 2000 ms, the operation time-out"

exit "$failed"

#!/usr/bin/env bash
# test_kill_perf.sh BUILD_DIR SOURCE_DIR - one rank of `gyre-run -n 4 -- gyre-perf all_reduce` is killed while all measure: the last
# line of every other rank names it, and nothing is left behind.
set -u
run=$1/tools/gyre-run
perf=$1/tools/gyre-perf
rounds=${ROUNDS:-4}
limit=20000000 # microseconds for all to end; the promise is kept to where nothing else takes the machine's time
[ "${BOUNDS-}" != strict ] || limit=2000000
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
export TMPDIR=$dir/tmp
unset GYRE_SECRET GYRE_SECRET_FILE
mkdir "$TMPDIR"
failed=0
bad() { echo "FAILED: round $round: $*"; failed=1; }

# Sets pid_of[RANK]: the processes below the launcher, by their GYRE_RANK.
find_ranks() {
  local pid rank
  pid_of=()
  for pid in $(pgrep -P "$launcher"); do
    rank=$(tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | sed -n 's/^GYRE_RANK=//p')
    [ -z "$rank" ] || pid_of[rank]=$pid
  done
}

for ((round = 0; round < rounds; round++)); do
  victim=$((round % 4))
  case $((round / 4 % 3)) in
    0) size=8 ;;
    1) size=64K ;;
    2) size=4M ;;
  esac
  "$run" -n 4 -- "$perf" all_reduce -b "$size" -e "$size" --time 60 >"$dir/out" 2>"$dir/err" &
  launcher=$!
  for ((i = 0; i < 1000; i++)); do # the table's head comes when all ranks have met and begin to measure
    if grep -q 'algbw' "$dir/out"; then break; fi
    sleep 0.02
  done
  ((i < 1000)) || bad "the ranks never measured: $(cat "$dir/err")"
  for ((i = 0; i < 50; i++)); do # a process list read while others come and go may lack some
    find_ranks
    if ((${#pid_of[@]} == 4)); then break; fi
    sleep 0.02
  done
  ((${#pid_of[@]} == 4)) || { bad "only ranks ${!pid_of[*]} are there: $(cat "$dir/err")"; kill "$launcher"; exit 1; }
  sleep "0.$((RANDOM % 5))$((RANDOM % 10))"
  began=${EPOCHREALTIME/./}
  kill -9 "${pid_of[victim]}"
  for ((i = 0; i < 1000; i++)); do
    kill -0 "$launcher" 2>/dev/null || break
    sleep 0.02
  done
  took=$((${EPOCHREALTIME/./} - began))
  ((i < 1000)) || { bad "the launcher hangs"; kill "$launcher"; }
  ((took < limit)) || bad "the ranks took $took us to end"
  wait "$launcher"
  status=$?
  ((status != 0)) || bad "gyre-run succeeded"
  for r in 0 1 2 3; do
    ((r == victim)) && continue
    last=$(grep -a "^\[$r\]" "$dir/err" | tail -n 1)
    grep -qE "rank $victim([^0-9]|\$)" <<<"${last#"[$r]"}" || bad "rank $victim was killed, the last line of rank $r is: $last"
  done
  for pid in "${pid_of[@]}"; do [ ! -d "/proc/$pid" ] || bad "process $pid is left"; done
  [ -z "$(ls -A "$TMPDIR")" ] || bad "files are left: $(ls -A "$TMPDIR")"
  ((failed == 0)) || { cat "$dir/err"; exit 1; }
done
echo "$rounds rounds"

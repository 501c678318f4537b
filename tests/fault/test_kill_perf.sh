#!/usr/bin/env bash
# test_kill_perf.sh BUILD_DIR SOURCE_DIR - one rank of `gyre-run -n 4 -- gyre-perf all_reduce` is killed while all measure: the last
# line of every other rank names it, and nothing is left behind.
set -u
run=$1/tools/gyre-run
perf=$1/tools/gyre-perf
rounds=${ROUNDS:-4}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
export TMPDIR=$dir/tmp
unset GYRE_SECRET GYRE_SECRET_FILE
mkdir "$TMPDIR"
failed=0
bad() { echo "FAILED: round $round: $*"; failed=1; }

# The process of a rank: gyre-perf with its GYRE_RANK, below the launcher $launcher.
rank_pid() {
  local pid
  for pid in $(pgrep -P "$launcher"); do
    tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx "GYRE_RANK=$1" && echo "$pid" && return
  done
}
ranks_of() { for r in 0 1 2 3; do rank_pid "$r"; done; }
# All four ranks hold connections to others, that is, they have met and work.
measuring() {
  local pids r pid
  pids=$(ranks_of)
  [ "$(wc -w <<<"$pids")" = 4 ] || return 1
  for pid in $pids; do
    [ "$(ls -l "/proc/$pid/fd" 2>/dev/null | grep -c socket:)" -ge 4 ] || return 1
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
  for ((i = 0; i < 1000; i++)); do
    if measuring; then break; fi
    sleep 0.02
  done
  ((i < 1000)) || bad "the ranks never measured: $(cat "$dir/err")"
  pids=$(ranks_of)
  sleep "0.$((RANDOM % 5))$((RANDOM % 10))"
  kill -9 "$(rank_pid "$victim")"
  for ((i = 0; i < 1000; i++)); do
    kill -0 "$launcher" 2>/dev/null || break
    sleep 0.02
  done
  ((i < 1000)) || { bad "the launcher hangs"; kill "$launcher"; }
  wait "$launcher"
  status=$?
  ((status != 0)) || bad "gyre-run succeeded"
  for r in 0 1 2 3; do
    ((r == victim)) && continue
    last=$(grep -a "^\[$r\]" "$dir/err" | tail -n 1)
    grep -qE "rank $victim([^0-9]|\$)" <<<"${last#"[$r]"}" || bad "rank $victim was killed, the last line of rank $r is: $last"
  done
  for pid in $pids; do [ ! -d "/proc/$pid" ] || bad "process $pid is left"; done
  [ -z "$(ls -A "$TMPDIR")" ] || bad "files are left: $(ls -A "$TMPDIR")"
  ((failed == 0)) || { cat "$dir/err"; exit 1; }
done
echo "$rounds rounds"

#!/bin/bash
# test_gyre_run.sh BUILD_DIR SOURCE_DIR - the launcher: statuses, output, environment, nobody left.
set -u
run=${GYRE_RUN:-$1/tools/gyre-run}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
export TMPDIR=$dir
unset GYRE_SECRET GYRE_SECRET_FILE
failed=0

bad() { echo "FAILED: $test: $*"; failed=1; }
status_is() { [ "$status" = "$1" ] || { bad "status $status, not $1"; cat "$dir/err"; }; }
says() { grep -qF -- "$1" "$dir/err" || { bad "standard error has no \"$1\":"; cat "$dir/err"; }; }
prints() { [ "$(cat "$dir/out")" = "$1" ] || { bad "standard output is not \"$1\":"; head -c 2000 "$dir/out"; }; }
is() { [ "$1" = "$2" ] || bad "$3: \"$1\", not \"$2\""; }

# launch ARGS...: output in $dir/out and $dir/err, status in $status
launch() { "$run" "$@" >"$dir/out" 2>"$dir/err"; status=$?; }

# Waits up to 20 s for a condition, so that a slow machine only makes the test slower.
eventually() {
  local i
  for ((i = 0; i < 400; i++)); do
    if "$@"; then return 0; fi
    sleep 0.05
  done
  bad "never became true: $*"
  return 1
}
has_lines() { [ -f "$2" ] && [ "$(wc -l <"$2")" -ge "$1" ]; }
is_dead() { [ ! -d "/proc/$1" ] || grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null; }
# Every process whose id a rank has noted is not only dead but reaped.
nobody_left() {
  local pid
  for pid in $(cat "$dir/pids"); do [ ! -d "/proc/$pid" ] || bad "process $pid is still there"; done
  rm -f "$dir/pids"
}

test="usage errors"
for arguments in "" "-n 0 -- true" "-n 1025 -- true" "-n 2x -- true" "-n -1 -- true" "-n 2" "-n 2 --" "-- true" \
  "-n 2 --timeout 0 -- true" "-n 2 --timeout x -- true" "-n 2 --timeout -- true" "-n 2 --env A -- true" \
  "-n 2 --env =A -- true" "-n 2 --nonsense -- true"; do
  launch $arguments
  [ "$status" = 2 ] || bad "status $status for: $arguments"
  [ -s "$dir/err" ] || bad "no message for: $arguments"
  [ ! -s "$dir/out" ] || bad "output for: $arguments"
done
launch --help
status_is 0
grep -q '^usage: gyre-run -n N' "$dir/out" || bad "no usage text"
launch --version
status_is 0
"$run" --help >/dev/full 2>"$dir/err"
[ $? != 0 ] || bad "success although the help could not be written"

test="-np, as other launchers have it"
launch -np 2 -- sh -c 'echo "$GYRE_WORLD_SIZE"'
status_is 0
is "$(sort "$dir/out")" "$(printf '[0] 2\n[1] 2')" "two ranks"
launch -np
status_is 2

test="environment"
launch -n 3 --env A=1 --env 'B=x y=z' -- sh -c 'echo "$GYRE_RANK $GYRE_LOCAL_RANK $GYRE_WORLD_SIZE $A $B"'
status_is 0
is "$(sort "$dir/out")" "$(printf '[%d] %d %d 3 1 x y=z\n' 0 0 0 1 1 1 2 2 2)" "variables"
launch -n 2 --no-prefix -- sh -c 'echo "$GYRE_RENDEZVOUS"; ls -d "$(dirname "${GYRE_RENDEZVOUS#file://}")"'
is "$(sort -u "$dir/out" | wc -l)" 2 "one rendezvous, in a folder that exists"
is "$(grep -c "^file://$dir/" "$dir/out")" 2 "rendezvous"
is "$(ls -d "$dir"/gyre-run-* 2>/dev/null)" "" "folder left behind"
launch -n 1 -- sh -c 'd=$(dirname "${GYRE_RENDEZVOUS#file://}"); mkdir "$d/sub"; touch "$d/sub/x"'
is "$(ls -d "$dir"/gyre-run-* 2>/dev/null)" "" "folder with files left behind"
launch -n 2 --no-prefix --env GYRE_RENDEZVOUS=tcp://127.0.0.1:9 -- sh -c 'echo "$GYRE_RENDEZVOUS"'
is "$(sort -u "$dir/out")" tcp://127.0.0.1:9 "rendezvous given"
launch -n 3 --no-prefix -- sh -c 'echo "$GYRE_SECRET"'
secret=$(sort -u "$dir/out")
[[ $secret =~ ^[0-9a-f]{64}$ ]] || bad "secret is not one random one: $secret"
launch -n 1 --no-prefix -- sh -c 'echo "$GYRE_SECRET"'
[ "$(cat "$dir/out")" != "$secret" ] || bad "the secret is the same in the next run"
GYRE_SECRET=mine launch -n 1 --no-prefix -- sh -c 'echo "$GYRE_SECRET"'
prints mine
GYRE_SECRET_FILE=/x launch -n 1 --no-prefix -- sh -c 'echo "${GYRE_SECRET-none}"'
prints none
launch -n 1 --no-prefix --env GYRE_SECRET=e -- sh -c 'echo "$GYRE_SECRET"'
prints e

test="what a rank inherits"
echo text | "$run" -n 1 -- cat >"$dir/out"
prints ""
list_descriptors='cd /proc/$$/fd && echo *'
of_us=$(bash -c "$list_descriptors")
launch -n 1 --no-prefix -- bash -c "$list_descriptors"
prints "$of_us"
of_us=$(grep -E '^Sig(Blk|Ign)' /proc/self/status; ulimit -n)
launch -n 1 --no-prefix -- sh -c 'grep -E "^Sig(Blk|Ign)" /proc/self/status; ulimit -n'
prints "$of_us"

test="output"
launch -n 1 -- sh -c 'echo a; echo; printf b'
prints "$(printf '[0] a\n[0] \n[0] b')"
is "$(tail -c 1 "$dir/out" | od -An -c | tr -d ' ')" '\n' "a last line without line feed gets one"
launch -n 1 -- sh -c 'echo e >&2'
is "$(cat "$dir/err")" "[0] e" "standard error"
launch -n 1 --no-prefix -- printf 'no line feed'
is "$(wc -c <"$dir/out")" 12 "bytes without prefix"
# What two streams of four ranks write in small pieces comes out in whole lines, also in one file.
"$run" -n 4 -- bash -c '
  line=$(printf "%0500d" 0)$GYRE_RANK
  for ((i = 0; i < 150; i++)); do printf %s "${line:0:100}"; printf "%s\n" "${line:100}"; done &
  for ((i = 0; i < 150; i++)); do echo "E$line" >&2; done
  wait' >"$dir/out" 2>&1
is "$(grep -cE '^\[([0-3])\] 0{500}\1$' "$dir/out") $(grep -cE '^\[([0-3])\] E0{500}\1$' "$dir/out") $(wc -l <"$dir/out")" \
  "600 600 1200" "whole lines"
launch -n 2 -- sh -c 'head -c 200000 /dev/zero | tr "\0" $GYRE_RANK; echo'
is "$(awk '{ print length($0) }' "$dir/out" | sort -u) $(wc -l <"$dir/out")" "200004 2" "a long line"
launch -n 2 -- sh -c 'head -c 1000000 /dev/zero | tr "\0" x'
is "$(sed 's/^\[[01]\] //' "$dir/out" | tr -d '\n' | wc -c)" 2000000 "very long lines lose nothing"
head -c 700000 /dev/urandom >"$dir/random"
launch -n 1 --no-prefix -- cat "$dir/random"
cmp "$dir/random" "$dir/out" || bad "binary output is changed"
printf '\n\n\0\n\377\n\n' >"$dir/random"
launch -n 1 --no-prefix -- cat "$dir/random"
cmp "$dir/random" "$dir/out" || bad "binary output is changed"
seq 100000 >"$dir/many"
"$run" -n 1 --no-prefix -- cat "$dir/many" | { sleep 1; cat >"$dir/out"; }
cmp "$dir/many" "$dir/out" || bad "a slow reader loses output"
"$run" -n 2 -- yes 2>"$dir/err" | head -n 1 >"$dir/out"
is "${PIPESTATUS[0]}" 141 "status when the reader has gone"
"$run" -n 1 -- echo x >/dev/full 2>"$dir/err"
status=$?
status_is 125
says "cannot write standard output"
"$run" -n 1 -- sh -c 'exit 3' >&- 2>&- <&-
is $? 3 "status with closed descriptors"

test="statuses"
launch -n 4 -- true
status_is 0
is "$(cat "$dir/err")" "" "standard error"
launch -n 3 -- sh -c 'if [ $GYRE_RANK = 1 ]; then echo last words >&2; exit 7; fi'
status_is 7
is "$(cut -d';' -f1 "$dir/err")" "$(printf '[1] last words\ngyre-run: rank 1 exited with status 7')" "failure line"
launch -n 2 -- sh -c 'if [ $GYRE_RANK = 1 ]; then kill -9 $$; fi'
status_is 137
says "rank 1 was ended by signal 9 (Killed)"
launch -n 1 -- sh -c 'kill -SEGV $$'
status_is 139
launch -n 3 -- /nonexistent/program
status_is 127
is "$(cat "$dir/err")" "gyre-run: cannot run /nonexistent/program: No such file or directory" "exec failure"
launch -n 1 -- "$dir"
status_is 127
says "Permission denied"
for limit in 40 41 42 43 44; do # whatever call it is that finds no descriptor left
  (ulimit -n $limit
   "$run" -n 50 -- sh -c "echo \$\$ >>$dir/pids; exec sleep 60" >"$dir/out" 2>"$dir/err")
  status=$?
  status_is 125
  says "cannot start rank"
  says "Too many open files"
  [ -s "$dir/pids" ] && nobody_left
done

test="the first that failed decides"
launch -n 2 -- sh -c 'if [ $GYRE_RANK = 1 ]; then exit 4; fi; while [ ! -s '"$dir"'/err ]; do sleep 0.05; done; exit 5'
status_is 4
is "$(grep -c 'rank [01] ' "$dir/err")" 1 "one line about a failure"
launch -n 3 --keep-going -- sh -c 'if [ $GYRE_RANK = 1 ]; then exit 3; fi
  while [ ! -s '"$dir"'/err ]; do sleep 0.05; done; sleep 0.2; echo done; exit $((GYRE_RANK * 2))'
status_is 3
is "$(sort "$dir/out")" "$(printf '[0] done\n[2] done')" "the others went on"

test="the others end by themselves, by SIGTERM, by SIGKILL"
launch -n 4 -- bash -c '
  echo $$ >>'"$dir"'/pids
  case $GYRE_RANK in
    0) until [ "$(wc -l <'"$dir"'/pids)" -ge 5 ]; do sleep 0.05; done; exit 9 ;;
    1) while [ ! -s '"$dir"'/err ]; do sleep 0.05; done; echo by myself ;;
    2) trap "echo by SIGTERM; exit 0" TERM; while :; do sleep 0.1; done ;;
    3) trap "" TERM; sleep 100 & echo $! >>'"$dir"'/pids; while :; do sleep 0.1; done ;;
  esac'
status_is 9
is "$(sort "$dir/out")" "$(printf '[1] by myself\n[2] by SIGTERM')" "output"
says "gyre-run: still running: rank 2, 3; ending with SIGTERM"
says "gyre-run: still running: rank 3; ending with SIGKILL"
nobody_left

test="what a rank leaves behind is ended"
launch -n 2 -- sh -c 'sleep 100 & echo $! >>'"$dir"'/pids; (sleep 100 & echo $! >>'"$dir"'/pids) ; exit 0'
status_is 0
is "$(wc -l <"$dir/pids")" 4 "processes"
nobody_left

test="time limit"
launch -n 3 --timeout 0.3 -- sh -c 'echo $$ >>'"$dir"'/pids; [ $GYRE_RANK = 1 ] || exec sleep 100'
status_is 124
says "time limit of 0.3 s"
says "rank 0, 2"
nobody_left
launch -n 1 --timeout 100 -- true
status_is 0
# The reader does not read: the limit holds all the same.
mkfifo "$dir/fifo"
sleep 100 <"$dir/fifo" &
reader=$!
"$run" -n 1 --timeout 0.3 -- yes >"$dir/fifo" 2>"$dir/err"
status=$?
status_is 124
kill $reader

test="signals"
for signal in INT TERM HUP; do
  rm -f "$dir/pids" "$dir/got"
  env --default-signal "$run" -n 2 -- bash -c '
    trap "echo $GYRE_RANK >>'"$dir"'/got; exit 0" '$signal'
    echo $$ >>'"$dir"'/pids
    while :; do sleep 0.05; done' >"$dir/out" 2>"$dir/err" &
  launcher=$!
  eventually has_lines 2 "$dir/pids"
  kill -$signal $launcher
  wait $launcher
  is $? $((128 + $(kill -l $signal))) "status after SIG$signal"
  is "$(sort "$dir/got")" "$(printf '0\n1')" "ranks that got SIG$signal"
  nobody_left
done
env --default-signal "$run" -n 2 -- bash -c 'trap "" INT TERM; echo $$ >>'"$dir"'/pids; while :; do sleep 0.05; done' \
  >"$dir/out" 2>"$dir/err" &
launcher=$!
eventually has_lines 2 "$dir/pids"
for i in 1 2 3; do
  kill -INT $launcher
  sleep 0.2
done
wait $launcher
is $? 130 "status after three times SIGINT"
nobody_left

test="the launcher is killed"
"$run" -n 3 -- sh -c 'echo $$ >>'"$dir"'/pids; exec sleep 100' >"$dir/out" 2>"$dir/err" &
launcher=$!
eventually has_lines 3 "$dir/pids"
kill -KILL $launcher
wait $launcher 2>/dev/null
for pid in $(cat "$dir/pids"); do eventually is_dead "$pid"; done

test="many ranks"
launch -n 100 -- sh -c 'echo $GYRE_RANK'
status_is 0
is "$(sed 's/^\[\([0-9]*\)\] \1$/ok/' "$dir/out" | grep -c '^ok$')" 100 "lines"

[ $failed = 0 ] && echo "all passed"
exit $failed

#!/bin/bash
# test_perf.sh BUILD_DIR SOURCE_DIR - gyre-perf: command line, rows, files, verified data, refusals, a dead rank.
set -u
perf=${GYRE_PERF:-$1/tools/gyre-perf}
run=${GYRE_RUN:-$1/tools/gyre-run}
dir=$(mktemp -d) || exit 1
trap 'kill -9 $ranks 2>/dev/null; rm -rf "$dir"' EXIT
export TMPDIR=$dir
unset GYRE_SECRET GYRE_SECRET_FILE GYRE_RANK GYRE_WORLD_SIZE RANK WORLD_SIZE GYRE_ALGO GYRE_TRANSPORTS
failed=0 ranks=

bad() { echo "FAILED: $test: $*"; failed=1; }
status_is() { [ "$status" = "$1" ] || { bad "status $status, not $1"; cat "$dir/err"; }; }
says() { grep -qF -- "$1" "$dir/err" || { bad "standard error has no \"$1\":"; cat "$dir/err"; }; }
shows() { grep -qE -- "$1" "$dir/out" || { bad "standard output has no \"$1\":"; cat "$dir/out"; }; }
is() { [ "$1" = "$2" ] || bad "$3: \"$1\", not \"$2\""; }

alone() { "$perf" "$@" >"$dir/out" 2>"$dir/err"; status=$?; }
# on N ARGS...: on N ranks; rank prefixes are off
on() { local n=$1; shift; "$run" -n "$n" --timeout 120 --no-prefix -- "$perf" "$@" >"$dir/out" 2>"$dir/err"; status=$?; }
# json FIELD: its values in the order of the lines
json() { sed -E "s/.*\"$1\":(\"([^\"]*)\"|([^,}]*)).*/\2\3/" "$dir/json" | tr '\n' ' '; }

test="usage errors"
alone; status_is 2; says "no collective given"
alone all_reduce -d f32 -o band; status_is 2; says "-o band does not take -d f32"
alone allreduce; status_is 2; says "there are all_reduce"
alone all_reduce -f 1; status_is 2; says "-f 1: must be a whole number from 2"
alone all_reduce --raw -d f64; status_is 2; says "--raw compares all_reduce"
alone all_reduce --raw; status_is 2; says "--raw needs at least 2 ranks"
alone broadcast -r 1; status_is 2; says "-r 1: the job has ranks 0 to 0"
on 2 reduce -r 2; status_is 2; says "-r 2: the job has ranks 0 to 1"
is "$(grep -c 'the job has' "$dir/err")" 1 "the message comes once"
alone all_reduce --algo nonsense; status_is 2; says "all_reduce has no algorithm \"nonsense\"; it has ring"
alone all_reduce --algo bruck; status_is 2; says "all_reduce has no algorithm \"bruck\""
alone all_reduce --algo broadcast=bruck; status_is 2; says "broadcast has no algorithm \"bruck\""
on 2 all_reduce --transport pigeon; status_is 2; says "pigeon"
alone all_gather -b 8 -e 8 -n 1 --algo bruck; status_is 0; shows "algorithm bruck"

test="help"
alone --help; status_is 0; shows "Usage: gyre-perf COLLECTIVE"
alone --version; status_is 0; shows "^gyre-perf [0-9]+\.[0-9]+\.[0-9]+$"

test="JSON"
on 3 all_gather -b 0 -e 200 -f 4 -n 3 -d f64 --check --json "$dir/json" --csv "$dir/csv"
status_is 0
is "$(json bytes)" "0 0 24 24 96 96 " bytes
is "$(json count)" "0 0 1 1 4 4 " count
is "$(json in_place)" "false true false true false true " in_place
is "$(json iters)" "3 3 3 3 3 3 " iters
is "$(json wrong)" "0 0 0 0 0 0 " wrong
is "$(json ranks)" "3 3 3 3 3 3 " ranks
fields="collective ranks bytes count dtype op algo transport in_place iters p50_us p90_us p99_us min_us max_us algbw busbw wrong"
is "$(head -1 "$dir/json" | grep -oE '"[a-z0-9_]+":' | tr -d '":' | tr '\n' ' ')" "$fields " "fields of JSON"
is "$(head -1 "$dir/csv")" "${fields// /,}" "fields of CSV"
is "$(wc -l <"$dir/csv")" 7 "lines of CSV"
is "$(awk -F, '{ print NF }' "$dir/csv" | sort -u)" 18 "fields of CSV"

test="order of the percentiles"
on 2 all_reduce -b 8 -e 8 -n 100 --json "$dir/json"
status_is 0
for field in min_us p50_us p90_us p99_us max_us; do json $field; done | awk '{
  n = NF / 5
  for (i = 1; i <= NF - n; i++) if ($i <= 0 || $i > $(i + n)) exit 1
}' || { bad "the figures do not grow from min to max:"; cat "$dir/json"; }
is "$(json wrong)" "null null " "wrong without --check"

test="names of algorithm and transport"
on 2 all_reduce -b 8 -e 8 -n 1 --algo ring --transport tcp --json "$dir/json"; status_is 0
is "$(json algo)$(json transport)" "ring ring tcp tcp " "asked by option"
GYRE_ALGO=all_gather=ring,all_reduce=tree on 2 all_reduce -b 8 -e 8 -n 1 --json "$dir/json"; status_is 0
is "$(json algo)" "tree tree " "asked by environment"
on 2 all_reduce -b 8 -e 8 -n 1 --json "$dir/json" --csv "$dir/csv"; status_is 0
[[ $(json algo) =~ ^(ring|tree|recursive_doubling|double_tree)\ ([a-z_]+)\ $ && ${BASH_REMATCH[1]} == "${BASH_REMATCH[2]}" ]] ||
  bad "not the algorithm that ran: $(json algo)"
grep -q ",\"${BASH_REMATCH[1]}\"," "$dir/csv" || bad "another algorithm in the CSV"
is "$(json transport)" "auto auto " "no transport asked for"
GYRE_TRACE_OPS=0 on 2 all_reduce -b 8 -e 8 -n 1 --json "$dir/json"; status_is 0
is "$(json algo)" "auto auto " "without a recorder"

test="a congestion control that the kernel does not have"
GYRE_TCP_CONGESTION=pigeon on 2 all_reduce -b 8 -e 8 -n 1; status_is 1; says "GYRE_TCP_CONGESTION=pigeon: must be auto or a name that this kernel offers"

test="every collective, type and operator"
most=200K sizes=3
[ -z "${TEST_SANITIZE-}" ] || most=100 sizes=2
for collective in all_reduce reduce_scatter all_gather broadcast reduce scan exclusive_scan gather scatter all_to_all \
  all_gather_v reduce_scatter_v all_to_all_v gather_v scatter_v send_recv; do
  case $collective in
    all_reduce | reduce_scatter | reduce_scatter_v | reduce) kinds=$((6 * 5 + 8 * 11 + 4 * 2)) ;; # floats, integers, pairs
    scan | exclusive_scan) kinds=$((6 * 4 + 8 * 10 + 4 * 2)) ;; # no averages
    *) kinds=18 ;;
  esac
  # 0, 1 and, unless that takes too long, 4097 elements, on every rank where the buffer holds a block of each
  on 3 $collective -b 0 -e $most -f 4097 -n 1 -w 0 -d all -o all --check --json "$dir/json"
  status_is 0
  is "$(json wrong | tr -s ' ' '\n' | sort -u | tr -d '\n')" 0 "$collective: wrong elements"
  is "$(grep -cvE '^#' "$dir/out")" $((kinds * sizes)) "$collective: rows"
done

test="root"
for collective in broadcast reduce; do
  on 3 $collective -b 28 -e 28 -n 2 -r 2 --check; status_is 0; shows "root 2"
done
for collective in gather scatter gather_v scatter_v; do
  on 3 $collective -b 252 -e 252 -n 2 -r 2 --check; status_is 0; shows "root 2"
done

test="barrier"
on 3 barrier -n 20 --check --json "$dir/json"
status_is 0
is "$(json bytes)$(json dtype)$(json op)$(json in_place)" "0 none none false " "the one row"

test="each rank"
on 3 all_reduce -b 64 -e 64 -n 5 --per-rank --json "$dir/json"
status_is 0
is "$(grep -cE '^#   rank [012] ' "$dir/out")" 3 "lines of ranks"
shows "slowest: rank [012],"
grep -qE '"rank_p50_us":\[[0-9.]+,[0-9.]+,[0-9.]+\]' "$dir/json" || bad "JSON has no figures of the ranks"

test="bare sockets"
for n in 2 3 4; do
  on $n all_reduce -b 4 -e 1M -f 512 -n 7 -w 1 --raw --check --json "$dir/json" --csv "$dir/csv"
  status_is 0
  shows "bare sockets.*congestion control [a-z]"
  is "$(grep -cE '"raw_p50_us":[0-9.]+,"ratio":[0-9.]+' "$dir/json")" 6 "$n ranks: lines with a ratio"
  is "$(awk -F, '{ print NF }' "$dir/csv" | sort -u)" 20 "fields of CSV"
done
on 2 all_reduce -b 0 -e 0 -n 2 --raw; status_is 0

test="memory"
on 2 all_reduce -b 8 -e 4000000G -n 1
status_is 1; says "on each of 2 ranks"; says "are available there"

test="files that cannot be written"
on 2 all_reduce -b 8 -e 8 -n 1 --json "$dir/none/json"; status_is 1; says "cannot write $dir/none/json"
alone all_reduce -b 8 -e 8 -n 1 --csv /dev/full; status_is 1; says "cannot write /dev/full"
"$perf" all_reduce -b 8 -e 8 -n 1 >/dev/full 2>"$dir/err"; status=$?; status_is 1; says "standard output"

test="a killed rank is named in the last line of every other"
export GYRE_RENDEZVOUS=file://$dir/meet GYRE_WORLD_SIZE=3
for rank in 0 1 2; do
  GYRE_RANK=$rank "$perf" all_reduce -b 32K -e 32K -d all -o all --time 0.3 >"$dir/out.$rank" 2>"$dir/err.$rank" &
  ranks="$ranks $!"
done
for ((i = 0; i < 400; i++)); do grep -qsv '^#' "$dir/out.0" && break; sleep 0.05; done
read -r first second third <<<"$ranks"
kill -9 "$third"
for pid in $first $second; do wait "$pid"; is $? 1 "status of another rank"; done
wait "$third" 2>/dev/null
ranks=
for rank in 0 1; do
  tail -1 "$dir/err.$rank" | grep -q 'rank 2' || { bad "rank $rank says last:"; tail -3 "$dir/err.$rank"; }
done

exit $failed

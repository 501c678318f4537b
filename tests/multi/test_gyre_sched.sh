#!/bin/bash
# test_gyre_sched.sh BUILD_DIR SOURCE_DIR - gyre-sched: its three commands, and statuses on a wrong command line.
set -u
sched=${GYRE_SCHED:-$1/tools/gyre-sched}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
failed=0

bad() { echo "FAILED: $*"; failed=1; }
launch() { "$sched" "$@" >"$dir/out" 2>"$dir/err"; status=$?; }
status_is() { [ "$status" = "$1" ] || { bad "status $status, not $1"; cat "$dir/err"; }; }
prints() { grep -qE -- "$1" "$dir/out" || { bad "standard output has no $1:"; cat "$dir/out"; }; }
says() { grep -qF -- "$1" "$dir/err" || { bad "standard error has no \"$1\":"; cat "$dir/err"; }; }
# refuses TEXT ARGS...: wrong usage, named, and nothing on standard output
refuses() {
  local text=$1; shift
  launch "$@"
  status_is 2
  says "$text"
  [ ! -s "$dir/out" ] || { bad "\"$*\" prints:"; cat "$dir/out"; }
}

launch --help; status_is 0; prints '^Usage: gyre-sched print'
launch --version; status_is 0; prints '^gyre-sched [0-9]+\.[0-9]+\.[0-9]+$'
launch print broadcast tree -n 7 --root 6 -r 3; status_is 0; prints 'SEND to 5  OUT\[0\]'
launch print barrier dissemination -n 3 -r all; status_is 0; prints 'RECV from 2'
launch verify --ranks 2-5 -v all_gather bruck; status_is 0; prints '2-5 ranks: ok$'

refuses "expected print, verify or cost"
refuses "expected print, verify or cost" draw
refuses "unrecognized option '--colour'" verify --colour
refuses "print needs a collective" print all_reduce ring
refuses "algorithm \"bruck\": all_reduce has ring tree" print all_reduce bruck -n 4
refuses "--root: all_reduce has no root" print all_reduce ring -n 4 --root 0
refuses "--root belongs to print" verify broadcast --root 1
refuses "from 1 to 16384" print all_reduce ring -n 0
refuses "-r 4: must be from 0 to 3" print all_reduce ring -n 4 -r 4
refuses "--root 4: must be from 0 to 3" print reduce tree -n 4 --root 4
refuses "collective \"all_to_none\": expected one of all_reduce" verify all_to_none
refuses "from 5 to" verify --ranks 5-3
refuses "cost needs one collective" cost all_reduce ring -n 2
refuses "-b is larger than -e" cost all_reduce -n 4 -b 100 -e 10

# cost_sizes ARGS...: the sizes for which it shows a line
cost_sizes() { launch cost all_reduce -n 4 "$@"; status_is 0; awk 'NR > 1 { printf "%s ", $1 }' "$dir/out"; }
is() { [ "$1" = "$2" ] || bad "$3: \"$1\", not \"$2\""; }
is "$(cost_sizes -b 0 -e 0)" "0 " "sizes from 0 to 0"
is "$(cost_sizes -b 0 -e 20)" "0 1 4 16 " "sizes from 0 to 20"
is "$(cost_sizes -b 3 -e 12 -f 2)" "3 6 12 " "sizes from 3 to 12"

exit $failed

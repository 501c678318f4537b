# rounds.sh - sourced by the long tests: `rounds N COMMAND...` runs a fault test with so many rounds; `failed` is 1 once one has failed.
failed=0
export BOUNDS=strict
rounds() {
  local n=$1
  shift
  if ROUNDS=$n "$@"; then echo "ok: $n rounds of $*"; else echo "FAILED: $n rounds of $*"; failed=1; fi
}

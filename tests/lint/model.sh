#!/usr/bin/env bash
# Checks the Promela models with spin, each exhaustively: assertions and invalid end states, then every `ltl` property.
set -euo pipefail
cd "$(dirname "$0")/../.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

search() { # MODEL WHAT PAN-OPTION...
  local model=$1 what=$2
  shift 2
  if ! (cd "$work" && ./pan -m2000000 "$@") >"$work/out" 2>&1 || ! grep -q 'errors: 0' "$work/out" ||
    grep -qE 'max search depth too small|Search not completed|out of memory' "$work/out"; then
    cat "$work/out"
    echo "$model: $what: FAILED"
    return 1
  fi
  echo "$model: $what: $(grep -m1 'states, stored' "$work/out" | sed 's/^ *//'), errors: 0"
}

failures=0
for model in tests/model/*.pml; do
  path=$PWD/$model
  (cd "$work" && spin -a "$path" && gcc -O2 -w -DNOCLAIM -o pan pan.c)
  search "$model" "assertions and end states" || failures=$((failures + 1))
  for property in $(sed -nE 's/^[[:space:]]*ltl[[:space:]]+([A-Za-z_0-9]+).*/\1/p' "$model"); do
    (cd "$work" && gcc -O2 -w -o pan pan.c)
    search "$model" "$property" -a -f -N "$property" || failures=$((failures + 1))
  done
done
((failures == 0))

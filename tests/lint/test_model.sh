#!/usr/bin/env bash
# Checks the Promela models with spin, exhaustively; mutants, which test the models themselves, with TEST_WHOLE=1 only.
# The head of a model names what is searched, as definitions:
#   variant: DEFINITION...      assertions and invalid end states; must hold
#   live: DEFINITION...         its `ltl` property under weak fairness; must hold
#   mutant: and live-mutant:    the same searches, which must find an error; two spaces or more, then what is mutated
set -euo pipefail
cd "$(dirname "$0")/../.."
command -v spin >/dev/null || { echo "there is no spin here (Debian: spin)"; exit 77; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

search() { # MODEL KIND DEFINITION...
  local model=$1 kind=$2 options=(-m1000000) claim=(-DNOCLAIM) verdict
  shift 2
  if [[ $kind == live* ]]; then options+=(-a -f) claim=(); fi
  cd "$(mktemp -d -p "$work")"
  spin -a "${@/#/-D}" "$model" >log && gcc -w "${claim[@]}" -o pan pan.c && ./pan "${options[@]}" >log 2>&1 || true
  if grep -qE 'max search depth too small|out of memory' log; then
    verdict=unfinished
  elif grep -q 'errors: 0' log; then
    verdict=holds
  elif grep -qE 'pan:1: (assertion violated|invalid end state|acceptance cycle)' log; then
    verdict='finds an error'
  else
    verdict='does not run'
  fi
  echo "$(basename "$model"): $kind: $*: $verdict, $(grep -oE '[0-9]+ states, stored' log || echo no states)"
  case $kind/$verdict in
    *mutant/finds* | variant/holds | live/holds) ;;
    *) cat log; echo "$(basename "$model"): $kind: $*: FAILED"; return 1 ;;
  esac
}
export -f search
export work

# MODEL KIND DEFINITION..., one a line
kinds='variant|live'
[[ ${TEST_WHOLE-} != 1 ]] || kinds+='|mutant|live-mutant'
searches() {
  for model in tests/model/*.pml; do
    sed -nE "s/^ \\* ($kinds): ([A-Z_0-9=]+( [A-Z_0-9=]+)*)(  .*)?\$/\\1 \\2/p" "$model" |
      sed "s|^|$PWD/$model |"
  done
}

searches >"$work/searches"
[[ -s $work/searches ]] || { echo "no searches in tests/model"; exit 1; }
xargs -P "$(nproc)" -L 1 bash -c 'search "$@"' search <"$work/searches"

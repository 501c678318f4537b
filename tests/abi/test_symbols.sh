#!/usr/bin/env bash
# libgyre.so exports exactly the functions that the public headers declare with GYRE_API, and libgyre.a defines them all
# without a global name outside gyre_ and gy_.
set -euo pipefail
build=$1 source=$2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Declarations may span lines; the name is what stands before the first parenthesis.
sed -E '/^#/d' "$source"/include/gyre/*.h | tr '\n' ' ' | grep -oE 'GYRE_API [^;(]*\(' |
  sed -E 's/.*[ *]([a-z_0-9]+)\($/\1/' | sort >"$work/declared"
nm -D --defined-only "$build/libgyre.so" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort >"$work/exported"

(($(wc -l <"$work/declared") > 10)) || { echo "found only $(wc -l <"$work/declared") declarations"; exit 1; }
if ! diff "$work/declared" "$work/exported" >"$work/difference"; then
  sed -nE 's/^< (.*)/\1: declared in a header, not defined in libgyre.so/p;s/^> (.*)/\1: exported by libgyre.so, in no header/p' \
    "$work/difference"
  exit 1
fi

nm --defined-only --extern-only "$build/libgyre.a" 2>/dev/null | awk 'NF == 3 { print $3 }' |
  grep -vE '^(gyre_|gy_|__|DW\.ref\.)' | sort -u >"$work/stray" || true
if [[ -s $work/stray ]]; then
  sed 's/$/: a global name in libgyre.a without gyre_ or gy_/' "$work/stray"
  exit 1
fi
comm -23 "$work/declared" <(nm --defined-only --extern-only "$build/libgyre.a" 2>/dev/null |
  awk 'NF == 3 { print $3 }' | sort -u) >"$work/missing"
if [[ -s $work/missing ]]; then
  sed 's/$/: not defined in libgyre.a/' "$work/missing"
  exit 1
fi
echo "$(wc -l <"$work/declared") functions declared and exported"

#!/usr/bin/env bash
# The README's example compiles without a warning, links with the shared library and runs as one rank; and every file that
# the pages link to is there.
set -euo pipefail
build=$1 source=$2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for variable in $(compgen -e GYRE_ || true); do unset "$variable"; done
for variable in RANK WORLD_SIZE MASTER_ADDR MASTER_PORT; do unset "$variable"; done

awk '/^```c$/ { inside = 1; next } /^```/ { exit } inside' "$source/README.md" >"$work/example.c"
[[ -s $work/example.c ]] || { echo "README.md has no example"; exit 1; }
cc=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
sanitize=$(sed -n 's/^GYRE_SANITIZE:[A-Z]*=//p' "$build/CMakeCache.txt")
"$cc" -std=c11 -Wall -Wextra -Wconversion -Wshadow -Werror "-I$source/include" ${sanitize:+"-fsanitize=$sanitize"} \
  -o "$work/example" "$work/example.c" "$build/libgyre.so" "-Wl,-rpath,$build"
printed=$("$work/example")
[[ $printed == "rank 0 of 1: sum 1" ]] || { echo "the example printed: $printed"; exit 1; }

bad=0
for page in "$source"/README.md "$source"/CHANGELOG.md "$source"/docs/*.md "$source"/docs/adr/*.md; do
  while read -r link; do
    case $link in *://* | '#'* | '') continue ;; esac
    [[ -e $(dirname "$page")/${link%%#*} ]] || { echo "${page#"$source/"}: links to $link, which is not there"; bad=1; }
  done < <(grep -oE '\]\([^)]+\)' "$page" | sed -E 's/^\]\((.*)\)$/\1/')
done
((bad == 0))

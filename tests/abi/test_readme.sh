#!/usr/bin/env bash
# The README's example is examples/sum.c, and its commands do what the README says: installed into a folder of one's own, the
# example compiles without a warning, and runs alone and as four ranks; every file that the pages link to is there.
set -euo pipefail
build=$1 source=$2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for variable in $(compgen -e GYRE_ || true); do unset "$variable"; done
for variable in RANK WORLD_SIZE MASTER_ADDR MASTER_PORT; do unset "$variable"; done

awk '/^```c$/ { inside = 1; next } /^```/ { exit } inside' "$source/README.md" >"$work/example.c"
[[ -s $work/example.c ]] || { echo "README.md has no example"; exit 1; }
diff -u "$source/examples/sum.c" "$work/example.c" || { echo "README.md and examples/sum.c differ"; exit 1; }

# The README's own lines, each with the compiler and the folders of this build.
readme_line() { # WORD
  grep -m 1 -e "^    $1" "$source/README.md" | sed 's/^ *//' || { echo "README.md has no line: $1" >&2; exit 1; }
}
cc=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
sanitize=$(sed -n 's/^GYRE_SANITIZE:[A-Z]*=//p' "$build/CMakeCache.txt")
cc() { "$cc" -std=c11 -Wall -Wextra -Wconversion -Wshadow -Werror ${sanitize:+"-fsanitize=$sanitize"} "$@"; }
export HOME=$work
ln -s "$source/examples" "$work/examples"
mkdir -p "$work/build"
ln -s "$build" "$work/build/release"
cd "$work"
eval "$(readme_line 'cmake --install build/release --prefix')" >"$work/install.log"
while read -r line; do eval "$line"; done < <(grep '^    export ' "$source/README.md")
eval "$(readme_line 'cc -o sum')"
printed=$(./sum)
[[ $printed == "rank 0 of 1: sum 1" ]] || { echo "the example printed: $printed"; exit 1; }
printed=$(eval "$(readme_line 'gyre-run -n 4')" | sort)
[[ $printed == "$(printf '[%d] rank %d of 4: sum 4\n' 0 0 1 1 2 2 3 3)" ]] || { echo "four ranks printed: $printed"; exit 1; }

bad=0
for page in "$source"/README.md "$source"/CHANGELOG.md "$source"/docs/*.md "$source"/docs/adr/*.md; do
  while read -r link; do
    case $link in *://* | '#'* | '') continue ;; esac
    [[ -e $(dirname "$page")/${link%%#*} ]] || { echo "${page#"$source/"}: links to $link, which is not there"; bad=1; }
  done < <(grep -oE '\]\([^)]+\)' "$page" | sed -E 's/^\]\((.*)\)$/\1/')
done
((bad == 0))

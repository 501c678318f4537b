#!/usr/bin/env bash
# Every public header compiles alone, without a warning, as C99 to C17 and as C++11 to C++20, with each compiler there is;
# the C++ program links with the library.
set -euo pipefail
build=$1 source=$2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
strict=(-Wall -Wextra -Wpedantic -pedantic-errors -Werror "-I$source/include")
sanitize=$(sed -n 's/^GYRE_SANITIZE:[A-Z]*=//p' "$build/CMakeCache.txt")

compiled=0
try() { # COMPILER LANGUAGE STANDARD FILE
  command -v "$1" >/dev/null || return 0
  "$1" -x "$2" "-std=$3" "${strict[@]}" -c -o "$work/out.o" "$4" || { echo "$1 -std=$3 ${4#"$source/"}: FAILED"; exit 1; }
  compiled=$((compiled + 1))
}

for header in "$source"/include/gyre/*.h; do
  echo "#include <gyre/${header##*/}>" >"$work/alone.c"
  echo "int only_to_be_a_translation_unit; " >>"$work/alone.c"
  for standard in c99 c11 c17; do
    for compiler in gcc clang; do try $compiler c $standard "$work/alone.c"; done
  done
  for standard in c++11 c++20; do
    for compiler in g++ clang++; do try $compiler c++ $standard "$work/alone.c"; done
  done
done
for compiler in gcc clang; do try $compiler c c99 "$source/tests/abi/test_header_c99.c"; done
for compiler in g++ clang++; do
  try $compiler c++ c++11 "$source/tests/abi/header_cxx.cc"
  try $compiler c++ c++20 "$source/tests/abi/header_cxx.cc"
done
((compiled > 0)) || { echo "no compiler found"; exit 1; }

cc=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
case ${cc##*/} in *clang*) cxx=clang++ ;; *) cxx=g++ ;; esac
"$cxx" -std=c++11 "${strict[@]}" ${sanitize:+"-fsanitize=$sanitize"} -o "$work/program" "$source/tests/abi/header_cxx.cc" \
  "$build/libgyre.so" -Wl,-rpath,"$build"
"$work/program"
echo "$compiled compilations without a warning; the C++ program runs"

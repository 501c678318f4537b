#!/usr/bin/env bash
# Installs into a temporary prefix and builds tests/abi/consumer/ against it: by the CMake package and by pkg-config, each
# with the shared and the static library. Every program is run.
set -euo pipefail
build=$1 source=$2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix

# The programs need the same sanitizer as the library, and must be left to themselves by the caller's settings.
flags=() sanitize=$(sed -n 's/^GYRE_SANITIZE:[A-Z]*=//p' "$build/CMakeCache.txt")
[[ -z $sanitize ]] || flags=("-fsanitize=$sanitize")
cc=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
for variable in $(compgen -e GYRE_ || true); do unset "$variable"; done

cmake --install "$build" --prefix "$prefix" >"$work/install.log"
version=$(sed -nE 's/^#define GYRE_VERSION_(MAJOR|MINOR|PATCH) ([0-9]+)/\2/p' "$source/include/gyre/gyre.h" | paste -sd.)

run() { # PROGRAM WHAT
  local printed
  printed=$("$1") || { echo "$2: the program failed"; exit 1; }
  [[ $printed == "$version" ]] || { echo "$2: printed '$printed' instead of '$version'"; exit 1; }
  echo "$2: ok"
}

# Exactly one of the two programs needs the shared library, or the other would not test what it says.
needs_shared() { readelf -d "$1" | grep -q 'NEEDED.*libgyre\.so'; }

cmake -S "$source/tests/abi/consumer" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" \
  -DCMAKE_C_FLAGS="${flags[*]-}" >"$work/cmake.log"
cmake --build "$work/cmake" >>"$work/cmake.log" || { cat "$work/cmake.log"; exit 1; }
needs_shared "$work/cmake/consumer-shared" || { echo "CMake: consumer-shared does not need libgyre.so"; exit 1; }
! needs_shared "$work/cmake/consumer-static" || { echo "CMake: consumer-static needs libgyre.so"; exit 1; }
run "$work/cmake/consumer-shared" "CMake package, shared"
run "$work/cmake/consumer-static" "CMake package, static"

pc=$(dirname "$(find "$prefix" -name gyre.pc)")
export PKG_CONFIG_PATH=$pc${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
libdir=$(dirname "$pc")
[[ $(pkg-config --modversion gyre) == "$version" ]] || { echo "gyre.pc has another version"; exit 1; }

program=$source/tests/abi/consumer/consumer.c
read -ra shared < <(pkg-config --cflags --libs gyre)
"$cc" -Wall -Werror "${flags[@]}" -o "$work/pc-shared" "$program" "${shared[@]}" -Wl,-rpath,"$libdir"
needs_shared "$work/pc-shared" || { echo "pkg-config: the shared program does not need libgyre.so"; exit 1; }
run "$work/pc-shared" "pkg-config, shared"

# What a static program links: the archive in place of -lgyre, then the libraries that --static adds.
read -ra static < <(pkg-config --static --cflags --libs gyre)
for i in "${!static[@]}"; do [[ ${static[i]} != -lgyre ]] || static[i]=-l:libgyre.a; done
"$cc" -Wall -Werror "${flags[@]}" -o "$work/pc-static" "$program" "${static[@]}"
! needs_shared "$work/pc-static" || { echo "pkg-config: the static program needs libgyre.so"; exit 1; }
run "$work/pc-static" "pkg-config, static"

# A program without any shared library, where the archives are there for it. Sanitizers exclude it.
if [[ -z $sanitize ]] && pkg-config --exists libuv-static && [[ -n $(find "$(pkg-config --variable=libdir libcrypto)" -name libcrypto.a) ]]; then
  read -ra static < <(pkg-config --static --cflags --libs gyre)
  # The C library warns of its name look-ups in every such program.
  "$cc" -Wall -static -o "$work/pc-all-static" "$program" "${static[@]}" 2>"$work/static.log" ||
    { cat "$work/static.log"; exit 1; }
  ! readelf -d "$work/pc-all-static" | grep -q NEEDED || { echo "pkg-config: -static needs shared libraries"; exit 1; }
  run "$work/pc-all-static" "pkg-config, -static"
fi

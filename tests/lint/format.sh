#!/usr/bin/env bash
# Holds every C file to .clang-format. With --fix it formats them instead.
set -euo pipefail
cd "$(dirname "$0")/../.."

mapfile -t files < <(find include src transport collectives tools tests examples -name '*.[ch]' | sort)
if [[ ${1-} == --fix ]]; then
  clang-format -i "${files[@]}"
  exit
fi

bad=0
for file in "${files[@]}"; do
  clang-format "$file" | cmp -s - "$file" && continue
  bad=$((bad + 1))
  echo "$file: not formatted:"
  diff -u --label "$file" --label formatted "$file" <(clang-format "$file") | sed -n '3,12p'
done
if ((bad > 0)); then
  echo "$bad of ${#files[@]} files differ from .clang-format; tests/lint/format.sh --fix formats them"
  exit 1
fi
echo "${#files[@]} files are formatted"

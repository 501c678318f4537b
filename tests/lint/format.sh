#!/usr/bin/env bash
# Holds every C file to .clang-format. With --fix it formats them instead.
set -euo pipefail
cd "$(dirname "$0")/../.."

mapfile -t files < <(find include src transport collectives tools tests examples -name '*.[ch]' | sort)
if [[ ${1-} == --fix ]]; then
  clang-format -i "${files[@]}"
  exit
fi

if said=$(printf '%s\0' "${files[@]}" | xargs -0 -n 20 -P "$(nproc)" clang-format --dry-run -Werror 2>&1); then
  echo "${#files[@]} files are formatted"
  exit
fi
bad=$(sed -n 's/^\([^:]*\):[0-9]*:.*should be clang-formatted.*/\1/p' <<<"$said" | sort -u)
[[ $bad ]] || echo "$said"
for file in $bad; do
  echo "$file: not formatted:"
  diff -u --label "$file" --label formatted "$file" <(clang-format "$file") | sed -n '3,12p' || true
done
echo "$(wc -w <<<"$bad") of ${#files[@]} files differ from .clang-format; tests/lint/format.sh --fix formats them"
exit 1

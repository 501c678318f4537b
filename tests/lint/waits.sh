#!/usr/bin/env bash
# Forbids waits that nothing can end: poll without a time-out, untimed condition variables, flags spun on.
set -euo pipefail
cd "${1:-$(dirname "$0")/../..}"

mapfile -t files < <(find include src transport collectives tools tests -name '*.[ch]' | sort)
((${#files[@]} > 0)) || { echo "no C files here"; exit 1; }

# All lines as FILE:LINE:CODE, without comments and string literals.
code=$(awk '
  FNR == 1 { inside = 0 }
  { text = $0; out = ""; gsub(/"([^"\\]|\\.)*"/, "\"\"", text)
    while (text != "") {
      at = index(text, inside ? "*/" : "/*")
      if (!inside) out = out (at ? substr(text, 1, at - 1) " " : text)
      if (!at) break
      text = substr(text, at + 2); inside = !inside
    }
    sub(/\/\/.*/, "", out); print FILENAME ":" FNR ":" out }' "${files[@]}")

forbidden=(
  '\bp?poll *\([^;]*, *-1 *\)'                 'poll without a time-out'
  '\bppoll *\([^;]*, *NULL *, *[^,;]*\)'       'ppoll without a time-out'
  '\bepoll_p?wait *\([^;]*, *-1 *[,)]'         'epoll without a time-out'
  '\bselect *\([^;]*, *NULL *\)'               'select without a time-out'
  '\buv_cond_wait *\('                         'use uv_cond_timedwait'
  '\bpthread_cond_wait *\('                    'use pthread_cond_timedwait'
  '\bcnd_wait *\('                             'use cnd_timedwait'
  '\b(uv_)?sem_wait *\('                       'use sem_timedwait'
  '(?<!\})(?<!\} )\bwhile *\( *!? *(atomic_load(_explicit)? *\([^;]*\)|[*\w.>\[\]-]+) *\) *(;|\{ *\})'  'a flag spun on without a deadline'
)

bad=0
for ((i = 0; i < ${#forbidden[@]}; i += 2)); do
  found=$(grep -P -- "${forbidden[i]}" <<<"$code") || continue
  bad=$((bad + $(wc -l <<<"$found")))
  sed "s/\$/   <- ${forbidden[i + 1]}/" <<<"$found"
done

((bad == 0)) || { echo "$bad waits without an end"; exit 1; }
echo "${#files[@]} files wait with an end"

#!/usr/bin/env bash
# Holds #include to the direction of the layers: a file includes only its own layer and those below.
set -euo pipefail
cd "${1:-$(dirname "$0")/../..}"

# A file takes the first line that matches it; a header and its source are in one layer. Files that are planned but not
# there yet do no harm; a file that matches nothing is an error. The schedule is pure data and knows neither sockets nor
# transports, so it lies beneath them.
layers='
types       include/gyre/*.h
util        src/status.* src/log.* src/path.* src/json.* src/fork.* src/settings.* src/half.* src/fpenv.* src/reduce*.* src/operator.* src/crc32c.* src/random.* src/memory.* src/list.*
schedule    src/coll.* src/message.* src/schedule.* src/builder.* src/program.* src/geometry.* src/verify*.* src/weights.* src/print.* src/select.* src/cost.*
wire        src/wire.* src/work.* src/loop.* src/address.* src/auth.* src/net*.* src/linger.* src/watch.* src/rendezvous.* src/dial.* src/handshake.* src/channel.* src/bootstrap*.* src/roster.* src/topo.*
transport   transport/*
engine      src/engine.* src/trace.* src/request.* src/cache.* src/run.*
api         collectives/api.c collectives/arguments.* collectives/point_to_point.c
collectives collectives/*
api         src/context.* src/comm*.* src/launch.* src/fault.* src/heartbeat.* src/group.* src/derive.* src/shrink.* src/control.* src/stats.* src/dump*.* src/query.* src/module.*
tools       tools/*
'
order=(types util schedule wire transport engine collectives api tools) # bottom to top

declare -A height layer_of
for i in "${!order[@]}"; do height[${order[i]}]=$i; done

layer() { # FILE: sets $found to its layer, or to nothing
  found=${layer_of[$1]-}
  [[ -z $found ]] || return 0
  local name patterns pattern
  while read -r name patterns; do
    set -f
    for pattern in $patterns; do
      # shellcheck disable=SC2053  # a pattern is meant
      if [[ $1 == $pattern ]]; then found=$name layer_of[$1]=$name; set +f; return 0; fi
    done
    set +f
  done <<<"$layers"
}

bad=0
mapfile -t files < <(find include src transport collectives tools -name '*.[ch]' | sort)
((${#files[@]} > 0)) || { echo "no C files here"; exit 1; }

for file in "${files[@]}"; do
  layer "$file"
  if [[ -z $found ]]; then
    echo "$file: in no layer; add it to the table in tests/lint/layers.sh"
    bad=$((bad + 1))
  fi
done

while IFS=: read -r file line directive; do
  header=${directive#*[\"<]} header=${header%%[\">]*}
  for directory in "${file%/*}/" include/ src/ ""; do
    [[ -f $directory$header ]] && break
  done
  target=$directory$header
  [[ -f $target ]] || continue # of another library
  while [[ $target =~ ^(.*/)?[^/]+/\.\./(.*)$ ]]; do target=${BASH_REMATCH[1]}${BASH_REMATCH[2]}; done
  layer "$file" && from=$found
  layer "$target"
  if [[ -n $from && -n $found ]] && ((height[$found] > height[$from])); then
    echo "$file:$line: $from includes $target, which is above it ($found)"
    bad=$((bad + 1))
  fi
done < <(grep -HnE '^[[:space:]]*#[[:space:]]*include' "${files[@]}")

((bad == 0)) || { echo "$bad violations of the layer order, bottom to top: ${order[*]}"; exit 1; }
echo "${#files[@]} files keep to the layer order"

# Sourced by the tests in this folder: hosts made of network namespaces, and jobs over them.
#
# Three hosts, 1 to 3, hang on one switch, which also routes. Host N has
#   eth0  192.168.77.N/24                management
#   eth1  10.99.0.N/24, fd99::N/64       data
#   eth2  10.99.(100+N).1/24             a network of its own, from which the other hosts are reached through the router
#   cbr0  172.17.0.1/16                  a bridge of containers with the same address on every host, up and running
# and link-local addresses on each. eth2 is down unless a test wants it. The namespaces carry the process id in their names, so
# several of these tests may run at once; nothing outside them is touched.

lab=gyre$$
hosts=3
dir=$(mktemp -d) || exit 1
perf=$1/tools/gyre-perf
export TMPDIR=$dir
for name in $(compgen -e | grep -E '^GYRE_'); do unset "$name"; done
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT
failed=0 test=
declare -A env_of pid_of status_of

# What most jobs are given.
secret=GYRE_SECRET=between-hosts
uneven="1 2 1 3" # two ranks on host 1, and not next to each other
v4=GYRE_RENDEZVOUS=tcp://10.99.0.1:7000

bad() { echo "FAILED: $test: $*"; failed=1; }
skip() { echo "skipped: $*"; exit 77; }
title() { test=$1; printf '%4d s  %s\n' "$SECONDS" "$1"; }
now_ms() { local t=${EPOCHREALTIME/[.,]/}; echo $((t / 1000)); }

remove_namespaces() { # LAB
  local name
  for name in $(ip netns list 2>/dev/null | awk -v lab="$1" 'index($1, lab "-") == 1 { print $1 }'); do
    ip netns pids "$name" | xargs -r kill -9 2>/dev/null # all of them were started in here
    ip netns delete "$name"
  done
}

lab_down() {
  remove_namespaces "$lab"
  rm -rf "$dir"
}

# What earlier runs left that were killed before they could clear up.
sweep() {
  local other
  for other in $(ip netns list | grep -oE '^gyre[0-9]+-' | sort -u); do
    other=${other%-}
    [ -d "/proc/${other#gyre}" ] || remove_namespaces "$other"
  done
}

# enter HOST: sets `into`, which runs a command there, under the host's own name and its own /etc/hosts. HOST is a number or
# "switch".
enter() {
  into=(ip netns exec "$lab-$1" unshare --uts bash -c '
    echo "host$1" >/proc/sys/kernel/hostname
    [ ! -e "$2" ] || mount --bind "$2" /etc/hosts
    shift 2
    exec "$@"' - "$1" "$dir/hosts.$1")
}

at() { # HOST COMMAND...
  local into
  enter "$1"
  shift
  "${into[@]}" "$@"
}

# Without duplicate address detection, so that addresses are there at once; they survive a link that goes down.
make_namespace() {
  ip netns add "$lab-$1" || return
  ip netns exec "$lab-$1" bash -c '
    cd /proc/sys/net/ipv6/conf || exit 0
    for scope in all default; do
      echo 0 >$scope/accept_dad
      echo 1 >$scope/keep_addr_on_down
      echo 0 >$scope/accept_ra
    done'
  ip -n "$lab-$1" link set lo up
}

# cable HOST INTERFACE BRIDGE ADDRESS...
cable() {
  local host=$1 interface=$2 bridge=$3 address
  shift 3
  ip -n "$lab-$host" link add "$interface" type veth peer name "$interface-$host" netns "$lab-switch" || return
  [ "$bridge" = - ] || ip -n "$lab-switch" link set "$interface-$host" master "$bridge"
  ip -n "$lab-switch" link set "$interface-$host" up
  for address; do ip -n "$lab-$host" address add "$address" dev "$interface"; done
  ip -n "$lab-$host" link set "$interface" up
}

lab_up() {
  local host bridge
  trap lab_down EXIT
  trap 'exit 1' INT TERM HUP
  [ "$EUID" = 0 ] || skip "network namespaces need root"
  command -v ip >/dev/null || skip "there is no ip (Debian: iproute2)"
  command -v ss >/dev/null || skip "there is no ss (Debian: iproute2)"
  [ -x "$perf" ] || skip "there is no $perf"
  sweep
  make_namespace switch 2>"$dir/why" || skip "cannot make a network namespace: $(cat "$dir/why")"
  at switch true 2>"$dir/why" || skip "cannot enter a network namespace: $(cat "$dir/why")"
  for bridge in management data; do
    ip -n "$lab-switch" link add "$bridge" type bridge forward_delay 0 2>"$dir/why" ||
      skip "cannot make a bridge: $(cat "$dir/why")"
    ip -n "$lab-switch" link set "$bridge" up
  done
  at switch bash -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
  for ((host = 1; host <= hosts; host++)); do
    make_namespace "$host" || return
    cable "$host" eth0 management "192.168.77.$host/24"
    cable "$host" eth1 data "10.99.0.$host/24" "fd99::$host/64"
    cable "$host" eth2 - "10.99.$((100 + host)).1/24"
    ip -n "$lab-switch" address add "10.99.$((100 + host)).254/24" dev "eth2-$host"
    ip -n "$lab-$host" link set eth2 down
    ip -n "$lab-$host" link add cbr0 type bridge forward_delay 0
    ip -n "$lab-$host" link add box0 type veth peer name box0-peer
    ip -n "$lab-$host" link set box0 master cbr0
    ip -n "$lab-$host" address add 172.17.0.1/16 dev cbr0
    for name in box0 box0-peer cbr0; do ip -n "$lab-$host" link set "$name" up; done
    # As Debian's installer does: a host's own name means a loopback address there, its network address elsewhere.
    for name in 1 2 3; do
      if [ "$name" = "$host" ]; then echo "127.0.1.1 host$name"; else echo "10.99.0.$name host$name"; fi
    done >"$dir/hosts.$host"
    echo "127.0.0.1 localhost" >>"$dir/hosts.$host"
  done
}

links() { # up|down INTERFACE...: on every host
  local state=$1 host name
  shift
  for ((host = 1; host <= hosts; host++)); do
    for name; do ip -n "$lab-$host" link set "$name" "$state"; done
  done
}

# From now on the hosts have no network in common but that of the bridge.
reach_through_router() {
  local host
  links up eth2
  for ((host = 1; host <= hosts; host++)); do
    ip -n "$lab-$host" route replace 10.99.96.0/19 via "10.99.$((100 + host)).254"
  done
  links down eth0 eth1
}

reach_directly() {
  links up eth0 eth1
  links down eth2
}

# ------------------------------------------------------------------------------------------------------------------- jobs ---

small=(all_reduce -b 4 -e 256K -f 16 -n 2 -w 1 --check)

# begin RANK HOST WORLD [VAR=VALUE...] -- COMMAND...: in the background; env_of[RANK] holds more variables, of this rank alone.
begin() {
  local rank=$1 world=$3 vars=() into
  enter "$2"
  shift 3
  while [ "$1" != -- ]; do vars+=("$1"); shift; done
  shift
  # A simple command, so that its process is the one that the shell knows.
  "${into[@]}" env GYRE_RANK="$rank" GYRE_WORLD_SIZE="$world" "${vars[@]}" ${env_of[$rank]-} \
    timeout -k 2 "${limit:-90}" "$@" >"$dir/out.$rank" 2>"$dir/err.$rank" </dev/null &
  pid_of[$rank]=$!
}

# job "HOST..." [VAR=VALUE...] [-- COMMAND...]: rank r runs on the r-th host ("-": it does not come). Waits for all of them.
job() {
  start_job "$@"
  end_job
}

start_job() {
  local places=($1) vars=() rank
  shift
  while [ $# -gt 0 ] && [ "$1" != -- ]; do vars+=("$1"); shift; done
  if [ $# -gt 0 ]; then shift; else set -- "$perf" "${small[@]}"; fi
  pid_of=() status_of=() world=${#places[@]}
  rm -f "$dir"/out.* "$dir"/err.*
  began=$(now_ms)
  for ((rank = 0; rank < world; rank++)); do
    [ "${places[rank]}" = - ] || begin "$rank" "${places[rank]}" "$world" "${vars[@]}" -- "$@"
  done
}

end_job() {
  local rank
  for rank in "${!pid_of[@]}"; do
    wait "${pid_of[$rank]}"
    status_of[$rank]=$?
  done
  took=$(($(now_ms) - began))
  env_of=()
}

show() { # RANK
  echo "  --- rank $1, status ${status_of[$1]-?}:"
  tail -n 8 "$dir/out.$1" "$dir/err.$1" 2>/dev/null | sed 's/^/  /'
}

# all_well [ROWS]: every rank that ran ended well and warned of nothing, and rank 0 shows the rows.
all_well() {
  local rank
  for rank in "${!pid_of[@]}"; do
    if [ "${status_of[$rank]}" != 0 ]; then bad "rank $rank failed"; show "$rank"
    elif [ -s "$dir/err.$rank" ]; then bad "rank $rank complains"; show "$rank"; fi
  done
  [ "$(grep -cE '^ +[0-9]+ .* f32 ' "$dir/out.0")" = "${1:-5}" ] || { bad "rank 0 does not show ${1:-5} rows"; show 0; }
}

# all_fail TEXT...: every rank that ran ended with a failure (and none was ended by the time limit) that has all the texts.
all_fail() {
  local rank
  for rank in "${!pid_of[@]}"; do rank_fails "$rank" "$@"; done
}

rank_fails() { # RANK TEXT...
  local rank=$1 text
  shift
  case ${status_of[$rank]} in
    0 | 124 | 137) bad "rank $rank: status ${status_of[$rank]}"; show "$rank"; return ;;
  esac
  for text; do
    grep -qE -- "$text" "$dir/err.$rank" || { bad "rank $rank does not say \"$text\""; show "$rank"; }
  done
}

# At most so long; generous where it must hold on a busy machine, too.
within() { [ "$took" -le "$1" ] || bad "took $took ms, more than $1"; }

# Waits up to 20 s for a condition.
eventually() {
  local i
  for ((i = 0; i < 200; i++)); do
    if "$@"; then return 0; fi
    sleep 0.1
  done
  bad "never became true: $*"
  return 1
}

# bytes HOST INTERFACE: sent and received so far
bytes() { at "$1" bash -c 'echo $(($(</sys/class/net/$0/statistics/tx_bytes) + $(</sys/class/net/$0/statistics/rx_bytes)))' "$2"; }

# listening HOST: "address port" of each listening socket, sorted
listening() { at "$1" ss -Hltn | awk '{ print $4 }' | sed -E 's/^(.*):([0-9]+)$/\1 \2/' | sort; }

# goes_over INTERFACE JOB...: of the job's 4 MiB all-reduces, at least 8 MiB go into and out of host 2 there, next to nothing
# elsewhere.
goes_over() {
  local wanted=$1 name moved
  local -A before
  shift
  for name in eth0 eth1; do before[$name]=$(bytes 2 $name); done
  job "$@" -- "$perf" all_reduce -b 4M -e 4M -n 2 -w 1 --check
  all_well 1
  for name in eth0 eth1; do
    moved=$(($(bytes 2 $name) - before[$name]))
    if [ $name = "$wanted" ]; then
      [ $moved -gt 8388608 ] || bad "only $moved bytes went over $name"
    else
      [ $moved -lt 131072 ] || bad "$moved bytes went over $name"
    fi
  done
}

#!/bin/bash
# test_hosts.sh BUILD_DIR SOURCE_DIR - what crosses hosts: rendezvous, secrets, interfaces, ports, lost links, missing ranks.
set -u
source "$(dirname "$0")/lib.sh" || exit 1
lab_up

secret=GYRE_SECRET=between-hosts
uneven="1 2 1 3" # two ranks on host 1, and not next to each other
v4=GYRE_RENDEZVOUS=tcp://10.99.0.1:7000

title "rendezvous by IPv4"
job "$uneven" $secret $v4
all_well

title "rendezvous by IPv6"
job "2 1 3 1" $secret "GYRE_RENDEZVOUS=tcp://[fd99::2]:7000"
all_well

title "rendezvous by name"
# On host 1 the name means 127.0.1.1, where nobody else can come.
job "$uneven" $secret GYRE_RENDEZVOUS=tcp://host1:7000
all_well

title "rendezvous by a file"
job "$uneven" $secret "GYRE_RENDEZVOUS=file://$dir/meet"
all_well
[ ! -e "$dir/meet" ] || bad "the file is left"

title "the secret in a file"
echo between-hosts >"$dir/secret"
chmod 600 "$dir/secret"
job "$uneven" "GYRE_SECRET_FILE=$dir/secret" $v4
all_well

title "one secret from the environment, the others from the file"
env_of=([0]=$secret [1]="GYRE_SECRET_FILE=$dir/secret" [2]="GYRE_SECRET_FILE=$dir/secret")
job "2 1 3" GYRE_RENDEZVOUS=tcp://10.99.0.2:7000
all_well

title "torchrun's variables"
# The agent itself owns MASTER_PORT, so the port after it is used; here the agent is played by nobody at all.
for address in 10.99.0.1 fd99::1 host1; do
  for rank in 0 1 2 3; do env_of[$rank]="RANK=$rank LOCAL_RANK=0"; done
  job "$uneven" $secret WORLD_SIZE=4 MASTER_ADDR=$address MASTER_PORT=29500 -- \
    env -u GYRE_RANK -u GYRE_WORLD_SIZE "$perf" "${small[@]}"
  all_well
done

# ----------------------------------------------------------------------------------------------------------------- secrets ---

title "no secret"
job "$uneven" $v4
all_fail "set GYRE_SECRET or GYRE_SECRET_FILE on every rank"
within 15000

title "no secret, torchrun's variables"
# Rank 0 cannot know at once: its host's name means loopback there, which needs no secret.
for rank in 0 1 2; do env_of[$rank]="RANK=$rank"; done
job "1 2 3" GYRE_CONNECT_TIMEOUT_MS=3000 WORLD_SIZE=3 MASTER_ADDR=host1 MASTER_PORT=29500 -- \
  env -u GYRE_RANK -u GYRE_WORLD_SIZE "$perf" "${small[@]}"
all_fail "set GYRE_SECRET or GYRE_SECRET_FILE on every rank"

title "no secret, rendezvous by a file"
job "1 2 3" GYRE_CONNECT_TIMEOUT_MS=3000 "GYRE_RENDEZVOUS=file://$dir/meet"
all_fail "set GYRE_SECRET or GYRE_SECRET_FILE on every rank"

title "no secret, and asked to do without"
job "$uneven" GYRE_INSECURE=1 $v4
all_well
job "$uneven" GYRE_INSECURE=1 "GYRE_RENDEZVOUS=file://$dir/meet"
all_well

title "a secret on some ranks only"
env_of=([0]=$secret [1]=$secret)
job "$uneven" $v4 GYRE_CONNECT_TIMEOUT_MS=3000
all_fail
rank_fails 0 "ranks 2-3 of 4 did not come"
rank_fails 1 "ranks 2-3 of 4 did not come"
rank_fails 2 "set GYRE_SECRET or GYRE_SECRET_FILE on every rank"
rank_fails 3 "set GYRE_SECRET or GYRE_SECRET_FILE on every rank"

title "different secrets"
env_of=([0]=$secret [1]=$secret [2]=$secret [3]=GYRE_SECRET=other)
job "$uneven" $v4 GYRE_CONNECT_TIMEOUT_MS=3000
all_fail "secret"
rank_fails 3 "the secrets of rank 3 and rank 0 differ"
rank_fails 0 "rank 3 of 4 did not come" "10.99.0.3:[0-9]+ .*secret differs"
rank_fails 1 "rank 3 of 4 did not come" "10.99.0.3:[0-9]+ .*secret differs"

# -------------------------------------------------------------------------------------------------------------- interfaces ---

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

title "the interface, by name"
goes_over eth1 "1 2 3" $secret GYRE_IFACE=eth1 $v4
goes_over eth0 "1 2 3" $secret GYRE_IFACE=eth0 GYRE_RENDEZVOUS=tcp://192.168.77.1:7000

title "the interface, by network"
goes_over eth0 "1 2 3" $secret GYRE_IFACE=192.168.77.0/24 GYRE_RENDEZVOUS=tcp://192.168.77.1:7000
goes_over eth1 "1 2 3" $secret GYRE_IFACE=fd99::/64 "GYRE_RENDEZVOUS=file://$dir/meet"

title "the interface, without an address but the link-local one"
for host in 1 2 3; do ip -n "$lab-$host" address flush dev eth1 scope global; done
goes_over eth1 "1 2 3" $secret GYRE_IFACE=eth1 "GYRE_RENDEZVOUS=file://$dir/meet"
for host in 1 2 3; do
  ip -n "$lab-$host" address add 10.99.0.$host/24 dev eth1
  ip -n "$lab-$host" address add fd99::$host/64 dev eth1
done

title "meeting on the management network, data on the other"
# Reverse path filtering, which is strict on many systems, drops what comes in on one interface from the other's network.
for host in 1 2 3; do at $host bash -c 'echo 1 | tee /proc/sys/net/ipv4/conf/{all,eth0,eth1}/rp_filter >/dev/null'; done
goes_over eth1 "1 2 3" $secret GYRE_IFACE=eth1 GYRE_RENDEZVOUS=tcp://192.168.77.1:7000
for host in 1 2 3; do at $host bash -c 'echo 0 | tee /proc/sys/net/ipv4/conf/{all,eth0,eth1}/rp_filter >/dev/null'; done

title "the interface chosen on one host only"
env_of=([1]=GYRE_IFACE=eth1)
goes_over eth1 "1 2 3" $secret GYRE_RENDEZVOUS=tcp://192.168.77.1:7000

title "connections leave from the chosen address"
# As where a host is known by an address of its own to which all its links lead: the kernel would take that of the link.
for host in 1 2 3; do
  ip -n "$lab-$host" address add 10.77.0.$host/32 dev lo
  for peer in 1 2 3; do
    [ $peer = $host ] || ip -n "$lab-$host" route add 10.77.0.$peer/32 via 10.99.0.$peer
  done
done
job "1 2 3" $secret GYRE_IFACE=10.77.0.0/24 GYRE_LOG=debug "GYRE_RENDEZVOUS=file://$dir/meet"
for rank in 0 1 2; do
  [ "${status_of[$rank]}" = 0 ] || { bad "rank $rank failed"; show $rank; }
  [ "$(grep -cE 'lane 0 to rank [0-9]: 10\.77\.0\.[0-9]:[0-9]+ -> 10\.77\.0\.' "$dir/err.$rank")" = 2 ] ||
    { bad "rank $rank is not connected by 10.77.0.0/24 alone"; show $rank; }
done

title "an interface that matches nothing"
job "1 2" $secret $v4 GYRE_IFACE=eth7 GYRE_CONNECT_TIMEOUT_MS=3000
all_fail "GYRE_IFACE=eth7" "eth0 192.168.77.[12]/24 up" "eth1 10.99.0.[12]/24 up" "fd99::[12]/64 up" "cbr0 172.17.0.1/16"
within 15000
job "1 2" $secret $v4 GYRE_IFACE=10.98.0.0/16 GYRE_CONNECT_TIMEOUT_MS=3000
all_fail "GYRE_IFACE=10.98.0.0/16" "eth1 10.99.0.[12]/24 up"
job "1 2" $secret $v4 GYRE_IFACE=eth2 GYRE_CONNECT_TIMEOUT_MS=3000
all_fail "no address that is up matches GYRE_IFACE=eth2" "eth2 10.99.10[12].1/24 down"

# ------------------------------------------------------------------------------------------- addresses that mean many hosts ---

title "a bridge with one address on all hosts, and one port"
# Whoever dials 172.17.0.1 finds a process of its own host, with the very port of the peer.
job "1 2 3" $secret GYRE_PORT=7100 "GYRE_RENDEZVOUS=file://$dir/meet"
all_well

title "the same, where the hosts reach each other through a router"
# Now the bridge's is the only network that the hosts seem to share.
reach_through_router
job "1 2 3" $secret GYRE_PORT=7100 "GYRE_RENDEZVOUS=file://$dir/meet" GYRE_LOG=debug
for rank in 0 1 2; do
  [ "${status_of[$rank]}" = 0 ] || { bad "rank $rank failed"; show $rank; }
  ! grep -E '172\.17\.0\.1|127\.0\.0\.1|::1\]' "$dir/err.$rank" || bad "rank $rank was dialled from its own host"
done
reach_directly

title "a stranger behind one of a rank's addresses"
# Host 2 shares no network with host 1, which reaches it through the router. But on a bridge it has the address that host 3 has
# on host 1's network: whoever dials that from host 1 meets the wrong rank, which has even the right port.
reach_through_router
for host in 1 3; do ip -n "$lab-$host" link set eth1 up; done
ip -n "$lab-2" address add 10.99.0.3/24 dev cbr0
job "1 2 3" $secret GYRE_PORT=7100 "GYRE_RENDEZVOUS=file://$dir/meet"
all_well
ip -n "$lab-2" address delete 10.99.0.3/24 dev cbr0
reach_directly

# ------------------------------------------------------------------------------------------------------------------- ports ---

listeners_are() { # HOST LINES: as `listening` prints them, link-local ones left out
  local is
  is=$(listening "$1" | grep -v '^\[fe80:' | tr '\n' ';')
  [ "$is" = "$2" ] || { last_listeners=$is; return 1; }
}

listeners_include() { listening "$1" | grep -qxF "$2"; }

title "ports from a range, on the chosen addresses only"
start_job "1 1 2 -" $secret GYRE_IFACE=eth1 GYRE_PORT=7200-7203 GYRE_RENDEZVOUS=tcp://10.99.0.1:7000
eventually listeners_are 1 '10.99.0.1 7000;10.99.0.1 7200;10.99.0.1 7201;[fd99::1] 7200;[fd99::1] 7201;' || echo "$last_listeners"
eventually listeners_are 2 '10.99.0.2 7200;[fd99::2] 7200;' || echo "$last_listeners"
! listening 1 | grep '^\[fe80:' | grep -vE '%eth1 720[01]$' || bad "a link-local listener elsewhere"
begin 3 3 4 $secret GYRE_PORT=7300 GYRE_RENDEZVOUS=tcp://10.99.0.1:7000 -- "$perf" "${small[@]}"
end_job
all_well

title "one port for the rendezvous and all else"
env_of=([0]=GYRE_PORT=7000)
start_job "1 2 -" $secret GYRE_IFACE=10.99.0.0/24 $v4
eventually listeners_are 1 '10.99.0.1 7000;' || echo "$last_listeners"
begin 2 3 3 $secret $v4 -- "$perf" "${small[@]}"
end_job
all_well

title "without a choice, still no wildcard"
start_job "1 -" $secret GYRE_RENDEZVOUS=tcp://10.99.0.1:7000
eventually listeners_include 1 "10.99.0.1 7000"
! listening 1 | grep -E '^(\*|0\.0\.0\.0|\[::\]) ' || bad "listens on a wildcard address"
begin 1 2 2 $secret $v4 -- "$perf" "${small[@]}"
end_job
all_well

title "a port that is taken"
job "1 1 2" $secret GYRE_PORT=7400 "GYRE_RENDEZVOUS=file://$dir/meet" GYRE_CONNECT_TIMEOUT_MS=3000
all_fail
grep -qE "no port from 7400 to 7400 is free.*give each process of this host a port of its own, or a range, by GYRE_PORT" \
  "$dir/err.0" "$dir/err.1" || { bad "the taken port is not explained"; show 0; show 1; }
rank_fails 2

title "the rendezvous port is taken"
start_job "1 -" $secret $v4
eventually listeners_include 1 "10.99.0.1 7000"
first=${pid_of[0]}
begin 0 1 2 $secret $v4 -- "$perf" "${small[@]}"
end_job
all_fail "two processes say they are rank 0"
kill "$first" 2>"$dir/kill" || true
wait "$first"

title "a rendezvous that rank 0's host does not have"
job "2 1" $secret $v4 GYRE_CONNECT_TIMEOUT_MS=3000
rank_fails 0 "10.99.0.1 is no address of this machine, which has: .*eth1 10.99.0.2/24"
rank_fails 1 "10.99.0.1:7000"

# --------------------------------------------------------------------------------------------------------------- advertise ---

title "the advertised address, one of several"
for rank in 0 1 2; do env_of[$rank]=GYRE_ADVERTISE=192.168.77.$((rank + 1)); done
goes_over eth0 "1 2 3" $secret "GYRE_RENDEZVOUS=file://$dir/meet"
for rank in 0 1 2; do env_of[$rank]="GYRE_ADVERTISE=[fd99::$((rank + 1))]:7500"; done
goes_over eth1 "1 2 3" $secret GYRE_PORT=7500 "GYRE_RENDEZVOUS=file://$dir/meet"

title "an advertised address that is a name"
job "1" $secret GYRE_ADVERTISE=host1 GYRE_RENDEZVOUS=tcp://10.99.0.1:7000
all_fail "GYRE_ADVERTISE=host1 must be a numeric address"
job "1 2" $secret GYRE_ADVERTISE=host1 GYRE_RENDEZVOUS=tcp://10.99.0.1:7000 GYRE_CONNECT_TIMEOUT_MS=3000
all_fail "GYRE_ADVERTISE=host1 must be a numeric address"

# translate: the hosts' networks cannot be reached any more, only ports of the router's address 10.99.100.254 that it passes on,
# as a machine does with the published ports of its containers.
translate() {
  at switch nft -f - <<'TEXT'
table ip hosts {
  chain published {
    type nat hook prerouting priority dstnat; policy accept;
    ip daddr 10.99.100.254 tcp dport vmap { 7000: goto to1, 7101: goto to1, 7111: goto to1, 7102: goto to2, 7103: goto to3 }
  }
  chain to1 {
    dnat to 10.99.101.1
  }
  chain to2 {
    ip protocol tcp dnat to 10.99.102.1:7100
  }
  chain to3 {
    ip protocol tcp dnat to 10.99.103.1:7100
  }
  chain closed {
    type filter hook forward priority filter; policy drop;
    ct state established accept
    ct status dnat accept
  }
}
TEXT
}

if ! command -v nft >/dev/null; then
  echo "no nft (Debian: nftables): nothing is tried behind translated addresses"
else
  title "behind translated addresses and ports"
  ip -n "$lab-switch" address add 10.99.100.254/32 dev lo
  reach_through_router
  translate || bad "nft refuses the rules"
  # Rank 0 listens wherever its host can. The two ranks of one host meet within it: the router does not lead back.
  behind=GYRE_ADVERTISE=10.99.100.254 meet=GYRE_RENDEZVOUS=tcp://10.99.100.254:7000
  env_of=([0]="GYRE_RENDEZVOUS=tcp://0.0.0.0:7000 GYRE_PORT=7101 $behind:7101" [1]="$meet GYRE_PORT=7100 $behind:7102"
    [2]="GYRE_RENDEZVOUS=tcp://127.0.0.1:7000 GYRE_PORT=7111 $behind" [3]="$meet GYRE_PORT=7100 $behind:7103")
  job "1 2 1 3" $secret
  all_well

  title "the same, but a port is not published"
  env_of=([0]="GYRE_RENDEZVOUS=tcp://0.0.0.0:7000 GYRE_PORT=7101 $behind:7101" [1]="$meet GYRE_PORT=7100 $behind:7109")
  job "1 2" $secret GYRE_CONNECT_TIMEOUT_MS=3000
  all_fail "rank 1" "10.99.100.254:7109"

  at switch nft delete table ip hosts
  reach_directly
fi

# -------------------------------------------------------------------------------------------------------------- lost links ---

has_moved() { [ "$(bytes "$1" eth1)" -gt $((before + 33554432)) ]; }

# lose HOST VERDICT-MS COMMAND...: cuts the host off amid a job's operations. Every rank ends within the deadline of an operation
# and 3 s, to which a busy machine may add as much. Where rank 0 remains, a longer wait for its verdict keeps such a machine from
# making it look dead.
lose() {
  local host=$1 verdict=$2 before
  shift 2
  before=$(bytes "$host" eth1)
  start_job "1 2 1 3" $secret $v4 GYRE_IFACE=eth1 GYRE_OP_TIMEOUT_MS=2000 GYRE_VERDICT_MS=$verdict \
    -- "$perf" all_reduce -b 1M -e 1M --time 80
  eventually has_moved "$host"
  "$@"
  began=$(now_ms)
  end_job
  echo "        $took ms"
  within 10000
}

# Each side can only blame the other; but rank 2 may give up its own host's rank 0 while that still asks the others.
loss_of_host_1() {
  rank_fails 0 "(TIMEOUT|PEER_LOST): rank [013] "
  rank_fails 1 "(TIMEOUT|PEER_LOST): rank [02] "
  rank_fails 2 "(TIMEOUT|PEER_LOST): rank [013] "
  rank_fails 3 "(TIMEOUT|PEER_LOST): rank [02] "
}

title "a host's link goes down"
lose 3 2000 ip -n "$lab-3" link set eth1 down
rank_fails 0 "(TIMEOUT|PEER_LOST): rank 3 "
rank_fails 1 "(TIMEOUT|PEER_LOST): rank 3 "
rank_fails 2 "(TIMEOUT|PEER_LOST): rank 3 "
rank_fails 3 "(TIMEOUT|PEER_LOST): rank [012] "
ip -n "$lab-3" link set eth1 up

title "the link of rank 0's host goes down"
lose 1 500 ip -n "$lab-1" link set eth1 down
loss_of_host_1
ip -n "$lab-1" link set eth1 up

title "a cable is cut behind the switch, which nobody notices"
lose 2 2000 ip -n "$lab-switch" link set eth1-2 nomaster
rank_fails 0 "(TIMEOUT|PEER_LOST): rank 1 "
rank_fails 1 "(TIMEOUT|PEER_LOST): rank [023] "
rank_fails 2 "(TIMEOUT|PEER_LOST): rank 1 "
rank_fails 3 "(TIMEOUT|PEER_LOST): rank 1 "
ip -n "$lab-switch" link set eth1-2 master data

title "the same for rank 0's host"
lose 1 500 ip -n "$lab-switch" link set eth1-1 nomaster
loss_of_host_1
ip -n "$lab-switch" link set eth1-1 master data

# ----------------------------------------------------------------------------------------------------------- missing ranks ---

title "a rank of another host does not come"
job "1 2 1 -" $secret $v4 GYRE_CONNECT_TIMEOUT_MS=3000
all_fail "rank 3 of 4 did not come to tcp://10.99.0.1:7000"
job "1 - 2 - 1" $secret "GYRE_RENDEZVOUS=file://$dir/meet" GYRE_CONNECT_TIMEOUT_MS=3000
all_fail "ranks 1, 3 of 5 did not come"

title "rank 0 does not come"
job "- 2 3" $secret $v4 GYRE_CONNECT_TIMEOUT_MS=3000
all_fail "rank 0 at tcp://10.99.0.1:7000" "10.99.0.1:7000 \([0-9]+ tries\): Connection refused"
job "- 2 3" $secret GYRE_RENDEZVOUS=tcp://10.99.0.77:7000 GYRE_CONNECT_TIMEOUT_MS=5000
all_fail "rank 0 at tcp://10.99.0.77:7000"

[ "$failed" = 0 ] && echo "all well after $SECONDS s"
exit "$failed"

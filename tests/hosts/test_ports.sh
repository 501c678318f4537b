#!/bin/bash
# test_ports.sh BUILD_DIR SOURCE_DIR - ports, and addresses that are told in place of the bound ones.
set -u
source "$(dirname "$0")/lib.sh" || exit 1
lab_up

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

# --------------------------------------------------------------------------------------------------------- advertise ---

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

[ "$failed" = 0 ] && echo "all well after $SECONDS s"
exit "$failed"

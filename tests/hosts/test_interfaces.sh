#!/bin/bash
# test_interfaces.sh BUILD_DIR SOURCE_DIR - which interfaces and addresses are used, and those that mean many hosts.
set -u
source "$(dirname "$0")/lib.sh" || exit 1
lab_up

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

# ------------------------------------------------------------------------------------ addresses that mean many hosts ---

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

[ "$failed" = 0 ] && echo "all well after $SECONDS s"
exit "$failed"

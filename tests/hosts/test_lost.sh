#!/bin/bash
# test_lost.sh BUILD_DIR SOURCE_DIR - a host whose link goes down, or whose cable is cut, amid operations.
set -u
source "$(dirname "$0")/lib.sh" || exit 1
lab_up

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

[ "$failed" = 0 ] && echo "all well after $SECONDS s"
exit "$failed"

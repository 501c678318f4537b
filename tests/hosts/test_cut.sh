#!/bin/bash
# test_cut.sh BUILD_DIR SOURCE_DIR - cables that are cut behind the switch, which closes nothing: between operations, amid them, at
# the host of rank 0, for a moment and for too long.
set -u
source "$(dirname "$0")/lib.sh" || exit 1
idle=$1/tests/fault/test_silence
lab_up
[ -x "$idle" ] || skip "there is no $idle"

settings="GYRE_SECRET=between-hosts GYRE_RENDEZVOUS=tcp://10.99.0.1:7000 GYRE_IFACE=eth1 GYRE_HEARTBEAT_MS=500
  GYRE_PEER_TIMEOUT_MS=4000"
# Ranks 0 and 3 on host 1; the neighbours of ranks 1 and 2 in the ring are on two hosts, so that they can tell who is cut off.
uneven="1 2 3 1"

cut() { ip -n "$lab-switch" link set "eth1-$1" nomaster; }
mend() { ip -n "$lab-switch" link set "eth1-$1" master data; }

all_idle() {
  local rank
  for rank in "${!pid_of[@]}"; do grep -qs idle "$dir/out.$rank" || return 1; done
}

has_moved() { [ "$(bytes 2 eth1)" -gt $((before + 33554432)) ]; }

begin_idle() {
  start_job "$uneven" $settings -- "$idle" idle
  eventually all_idle
  sleep 1.5 # what the kernel probes is idle for that long, too
}

begin_busy() { # SECONDS
  before=$(bytes 2 eth1)
  start_job "$uneven" $settings -- "$perf" all_reduce -b 1M -e 1M --time "$1"
  eventually has_moved
}

silent="was not heard of at .*, longer than the peer time-out of 4000 ms"
cut_off="is cut off with its host: rank [0-9] there heard nothing .* longer than the peer time-out of 4000 ms"

# blame RANK TEXT RANK...: these ranks name the first one, with this text
blame() {
  local culprit=$1 text=$2 rank
  shift 2
  for rank; do rank_fails "$rank" "PEER_LOST: rank $culprit .*$text"; done
}

# cut_for_good HOST: until all ranks have ended, which takes the peer time-out, a heartbeat, a second of lingering, and what a busy
# machine adds.
cut_for_good() {
  cut "$1"
  began=$(now_ms)
  end_job
  echo "        $took ms"
  within 12000
  mend "$1"
}

title "a cable is cut while nothing is in flight"
begin_idle
cut_for_good 3
blame 2 "$silent" 0 1 3
blame 2 "$cut_off" 2

title "the same at rank 0's host"
begin_idle
cut_for_good 1
blame 0 "$silent" 1 2
blame 0 "$cut_off" 0 3

title "a cable is cut amid operations"
begin_busy 80
cut_for_good 2
blame 1 "(longer than the peer time-out of 4000 ms)" 0 1 2 3

title "the same at rank 0's host"
begin_busy 80
cut_for_good 1
blame 0 "(longer than the peer time-out of 4000 ms)" 0 1 2 3

title "a link that is gone for a moment is missed by nobody"
begin_busy 6
cut 3
sleep 1
mend 3
end_job
all_well 1

title "a link that comes back too late: all ranks give the same culprit"
begin_busy 80
cut 3
sleep 7
mend 3
began=$(now_ms)
end_job
blame 2 "(longer than the peer time-out of 4000 ms)" 0 1 2 3

[ "$failed" = 0 ] && echo "all well after $SECONDS s"
exit "$failed"

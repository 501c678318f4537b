#!/bin/bash
# test_hosts.sh BUILD_DIR SOURCE_DIR - what crosses hosts: rendezvous, secrets, interfaces, ports, lost links, missing ranks.
set -u
source "$(dirname "$0")/lib.sh"
lab_up

secret=GYRE_SECRET=between-hosts
uneven="1 2 1 3" # two ranks on host 1, and not next to each other
v4=GYRE_RENDEZVOUS=tcp://10.99.0.1:7000

test="rendezvous by IPv4"
job "$uneven" $secret $v4
all_well

test="rendezvous by IPv6"
job "2 1 3 1" $secret "GYRE_RENDEZVOUS=tcp://[fd99::2]:7000"
all_well

test="rendezvous by name"
# On host 1 the name means 127.0.1.1, where nobody else can come.
job "$uneven" $secret GYRE_RENDEZVOUS=tcp://host1:7000
all_well

test="rendezvous by a file"
job "$uneven" $secret "GYRE_RENDEZVOUS=file://$dir/meet"
all_well
[ ! -e "$dir/meet" ] || bad "the file is left"

test="the secret in a file"
echo between-hosts >"$dir/secret"
chmod 600 "$dir/secret"
job "$uneven" "GYRE_SECRET_FILE=$dir/secret" $v4
all_well

test="one secret from the environment, the others from the file"
env_of[0]=$secret
job "2 1 3" "GYRE_SECRET_FILE=$dir/secret" GYRE_RENDEZVOUS=tcp://10.99.0.2:7000
all_well

test="torchrun's variables"
# The agent itself owns MASTER_PORT, so the port after it is used; here the agent is played by nobody at all.
for address in 10.99.0.1 fd99::1 host1; do
  for rank in 0 1 2 3; do env_of[$rank]="RANK=$rank LOCAL_RANK=0"; done
  job "$uneven" $secret WORLD_SIZE=4 MASTER_ADDR=$address MASTER_PORT=29500 -- \
    env -u GYRE_RANK -u GYRE_WORLD_SIZE "$perf" "${small[@]}"
  all_well
done

# ----------------------------------------------------------------------------------------------------------------- secrets ---

test="no secret"
job "$uneven" $v4
all_fail AUTH "set GYRE_SECRET"
within 15000

test="no secret, torchrun's variables"
for rank in 0 1 2; do env_of[$rank]="RANK=$rank"; done
job "1 2 3" WORLD_SIZE=3 MASTER_ADDR=host1 MASTER_PORT=29500 -- env -u GYRE_RANK -u GYRE_WORLD_SIZE "$perf" "${small[@]}"
all_fail "set GYRE_SECRET"
within 15000

test="no secret, rendezvous by a file"
job "1 2 3" GYRE_CONNECT_TIMEOUT_MS=2000 "GYRE_RENDEZVOUS=file://$dir/meet"
all_fail "set GYRE_SECRET"

test="no secret, and asked to do without"
job "$uneven" GYRE_INSECURE=1 $v4
all_well
job "$uneven" GYRE_INSECURE=1 "GYRE_RENDEZVOUS=file://$dir/meet"
all_well

test="a secret on some ranks only"
env_of[2]=GYRE_SECRET= env_of[3]=GYRE_SECRET=
job "$uneven" $secret $v4 GYRE_CONNECT_TIMEOUT_MS=5000
all_fail secret
rank_fails 3 AUTH "set GYRE_SECRET"

test="different secrets"
env_of[3]=GYRE_SECRET=other
job "$uneven" $secret $v4 GYRE_CONNECT_TIMEOUT_MS=5000
all_fail secret
rank_fails 3 AUTH

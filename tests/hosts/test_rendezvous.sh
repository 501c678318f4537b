#!/bin/bash
# test_rendezvous.sh BUILD_DIR SOURCE_DIR - how ranks of several hosts meet, with and without a secret, and what is said of those that do not come.
set -u
source "$(dirname "$0")/lib.sh" || exit 1
lab_up

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

# ----------------------------------------------------------------------------------------------------------- secrets ---

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

# ----------------------------------------------------------------------------------------------------- missing ranks ---

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

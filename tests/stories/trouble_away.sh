#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A training machine's cable is pulled for longer than a lease, and the scheduler gives its
# agent a grace: the job pauses, says whom it waits for, and goes on with right sums.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_ns_cluster 3 1 --agent-grace 30
job_waits() { tally jobs 2>/dev/null | grep -Eq "(^| )$1 .*$2"; }

for r in 0 1 2; do start_rank away $r 3 a$r declare:w:500000 "train:w:$TMP/enough"; done
for r in 0 1; do start_rank calm $r 2 a$r declare:w:500000 "train:w:$TMP/enough"; done
train_more away.0 5 20
train_more calm.0 5 20

in_ns sw ip link set p-gpu2 down
wait_line 30 scheduler 'agent a2 up -> away'
wait_until 20 'the job names its agent' job_waits away 'agent a2, [0-9]+ s left'
before=$(rounds_of away.0)
train_more calm.0 20
(( $(rounds_of away.0) == before )) || fail 'a round was done without one of its ranks'

in_ns sw ip link set p-gpu2 up
up=$(date +%s%N)
train_more away.0 1 30
say "the job went on $(( ($(date +%s%N) - up) / 1000000 )) ms after the cable was back"
train_more away.0 20
wait_line 10 scheduler 'agent a2 away -> up'
job_waits away 'agent a2,' && fail 'the job waits for an agent that is there'
touch "$TMP/enough"
for r in 0 1 2; do expect_end 20 away.$r 0; done
for r in 0 1; do expect_end 20 calm.$r 0; done
has_line scheduler 'agent a2 .* dead' && fail 'the agent was taken for dead'

start_short()
{
	start_in sw short "$BIN/tally-scheduler" --listen 10.77.0.1:7480 \
		--state-dir "$TMP/short" --agent-grace 3
}
start_b()
{
	start_in gpu$1 b$1 "$BIN/tally-agent" --scheduler 10.77.0.1:7480 --name b$1 \
		--machine-id gpu$1 --engines 1 --socket "$TMP/b$1.sock"
}
start_short
for i in 0 1; do start_b $i; done
start_in cpu0 s1 "$BIN/tally-server" --scheduler 10.77.0.1:7480 --listen 10.77.0.110:0 \
	--name s1 --machine-id cpu0 --engines 1 --memory 256M --shm-socket "$TMP/s1.shm"
for node in 'agent b0' 'agent b1' 'server s1'; do wait_line 60 short "$node new -> up"; done
for r in 0 1; do start_rank lost $r 2 b$r declare:w:500000 "train:w:$TMP/never"; done
train_more lost.0 5 20

# The scheduler is away for longer than the grace and what a rank adds to it (10 s): who has
# found an agent waits there, and at the next one when that is killed, too.
kill_all short b1
start_b 1
! wait_for 15 ended lost.1 || fail "rank 1 did not wait: $(tail -n 1 "$TMP/lost.1.log")"
kill_all b1
start_b 1
start_short
train_more lost.0 5 30
say 'a scheduler that was away for longer than the grace: its agent was killed twice meanwhile'

# Killed, and not started again: its ranks are named when the grace is over.
kill_now b1 KILL
is_running "$(pid_of lost.0)" || fail 'the grace is not over'
expect_error 50 lost.1 'EAGENT .*not back within 13 s'
expect_error 10 lost.0 'EWORKERLOST rank 1 on machine b1 is gone'
say "killed: $(grep -h ^ERROR "$TMP/lost.0.log")"

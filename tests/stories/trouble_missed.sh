#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A server joins a job that trains, and its connection to the scheduler breaks while it is told of
# the job's tensors: it lets go of the job when it is back, is offered it again later, and serves
# then; nobody else notices.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_scheduler
DIRECT=$SCHEDULER
start_daemon far "$PYTHON" "$ROOT/tests/breaker.py" "$SCHEDULER" "$TMP/far.port" 0.15
wait_until 10 'the far scheduler listens' test -s "$TMP/far.port"
for a in a0 a1; do start_agent $a; done
start_server s0
wait_until 60 'all nodes are registered' nodes_up 3
for r in 0 1; do
	start_rank job $r 2 a$r declare:w:300000 many:x:3000 "train:w:$TMP/enough"
done
train_more job.0 5 30
registered() { (( $(grep -c 'registered, node' "$TMP/s1.log") >= $1 )); }
has_share() { has_line s1 'job 1 has new shares, .* [1-9][0-9.]* % of the tensors'; }

# One that is not back at once is another server, and is told all: then once more.
for (( n = 0; ; n++ )); do
	(( n < 20 )) || fail 's1 was never back in time'
	SCHEDULER=$LOOPBACK:$(< "$TMP/far.port")
	start_server s1
	SCHEDULER=$DIRECT
	wait_line 40 s1 'job 1 up'
	kill_now far USR1
	wait_until 20 's1 is back' registered 2
	wait_for 5 has_line s1 'job 1 refused, .* was cut off while it was told of job 1' && break
	kill_all s1
done
began=$(now_ms)
wait_until 40 'it is offered the job again, and has a share' has_share
say "offered again, and with a share $(( $(now_ms) - began )) ms later"
awk '/has new shares/ && !refused { exit 1 } /was cut off while/ { refused = 1 }' "$TMP/s1.log" ||
	fail 'it had a share of a job of which it did not know all'
train_more job.0 10 20
kill_all s0
train_more job.0 10 20
touch "$TMP/enough"
for r in 0 1; do expect_end 60 job.$r 0; done

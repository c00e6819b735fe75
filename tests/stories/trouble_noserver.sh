#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The last server is lost: a job waits for another one, and says so; a call whose deadline passes
# meanwhile says what is missing, and its round goes on; a job of one machine alone needs none.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_cluster 2 1
start_rank alone 0 2 a0 declare:w:200000 "train:w:$TMP/enough"
start_rank alone 1 2 a0 declare:w:200000 "train:w:$TMP/enough"
for r in 0 1 2; do
	next=(submit:w late:0.01)
	[ $r = 0 ] || next=("until:$TMP/next" submit:w)
	start_rank job $r 3 a$(( (r + 1) / 2 )) declare:w:200000 rounds:w:5 "until:$TMP/lost" \
		submit:w late:10 declare:x:3000 barrier:30 wait:100 "${next[@]}" wait:100 \
		"train:w:$TMP/enough" rounds:x:5
done
train_more alone.0 1 20
for r in 0 1 2; do wait_line 20 job.$r '^done rounds'; done
kill_all s0
wait_until 10 'the job says what it waits for' job_says job 'a server, all are gone'
wait_line 20 scheduler 'job job waits, no server is left'
touch "$TMP/lost"
names_it() { "$BIN/tally" tensors --stuck | grep -Eq ' w +[0-9].* server s0, silent for'; }
wait_until 10 'what its rounds wait for has a name' names_it
for r in 0 1 2; do
	wait_line 30 job.$r 'LATE ETIMEDOUT .*waits for server s0 \(no link to any[;)]'
	wait_line 20 job.$r '^done barrier'
done
say "a deadline that passes: $(grep -h ^LATE "$TMP/job.0.log")"

# Who comes meanwhile waits for as long as it wants to, and is told.
for r in 0 1; do TROUBLE_TIMEOUT=8 start_rank late $r 2 a$r declare:w:10; done
for r in 0 1; do expect_error 40 late.$r "ENOSERVER job 'late' .*no summation server is"; done
say "who comes now: $(grep -h ^ERROR "$TMP/late.0.log")"
job_says job 'a server, all are gone' || fail 'the job is not there any more'
train_more alone.0 20

start_server s1
wait_until 60 'a server is registered' nodes_up 3
wait_line 20 job.0 '^done late:0.01'
tail -n 2 "$TMP/job.0.log" | grep '^LATE .*s0' &&
	fail 'the next round waits for what the last one did'
touch "$TMP/next"
train_more job.0 20
touch "$TMP/enough"
for j in job.0 job.1 job.2 alone.0 alone.1; do expect_end 30 $j 0; done
say 'with a server the job goes on, also with the round that was late, and with what it declared'

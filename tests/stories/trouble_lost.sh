#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Ranks that die or stand still: everybody else of their job hears who, at once and
# in every call; no other job notices; the next job of that name can start.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_cluster 2 1

# A job that runs all along and is not to notice anything.
start_rank calm 0 2 a0 declare:w:200000 "train:w:$TMP/enough"
start_rank calm 1 2 a1 declare:w:200000 "train:w:$TMP/enough"
train_more calm.0 1 20

LOST='EWORKERLOST rank 3 on machine a1 is gone'
# $memory is the server's, as a heartbeat says that came after $asked, by more than it was on
# its way.
has_told()
{
	local row since=$(( $(now_ms) - asked - 300 ))

	row=$("$BIN/tally" nodes --json | grep -A 30 '"name": *"s0"')
	memory=$(sed -n '/"memory_used_bytes"/{s/[^0-9]//gp;q}' <<< "$row")
	(( $(sed -n '/"heartbeat_age_ms"/{s/[^0-9]//gp;q}' <<< "$row") < since ))
}
uses_as_before() { has_told && (( memory == used )); }
uses_more() { has_told && (( memory > used )); }

# ---- killed with work in flight: every kind of call hears it ----
asked=$(now_ms)
wait_until 10 'the server tells of its memory' has_told
used=$memory
start_rank job 0 5 a0 declare:w:300000 barrier:30 submit:w wait:60
start_rank job 1 5 a0 declare:w:300000 barrier:30 barrier:60
start_rank job 2 5 a1 declare:w:300000 barrier:30 declare:late:5
start_rank job 3 5 a1 declare:w:300000 barrier:30 submit:w say:flying pause
start_rank job 4 5 a1 declare:w:300000 barrier:30 "train:w:$TMP/never"
wait_line 20 job.3 '^flying'
for r in 0 1 2 4; do wait_line 10 job.$r '^done barrier:30'; done
wait_until 10 'the server has more memory in use' uses_more
kill_now job.3 KILL
for r in 0 1 2 4; do expect_error 20 job.$r "$LOST"; done
wait_until 10 'the server has as much memory as before' uses_as_before
say 'killed with work in flight: wait, barrier, declare and push_pull all name it'

start_rank job 0 2 a0 declare:w:300000 rounds:w:5
start_rank job 1 2 a1 declare:w:300000 rounds:w:5
for r in 0 1; do expect_end 20 job.$r 0; done
train_more calm.0 20
say 'the next job of that name starts, the other one went on'

# ---- killed, and a child of its (a loader of data) still holds its socket ----
start_rank child 0 2 a0 declare:w:300000 submit:w wait:60
start_rank child 1 2 a1 declare:w:300000 "fork:$TMP/grown" say:forked pause
wait_line 20 child.1 '^forked'
kill_now child.1 KILL
expect_error 10 child.0 'EWORKERLOST rank 1 on machine a1 is gone'
: > "$TMP/grown"
say 'killed while a child lives on: named all the same'

# ---- killed while the others are still joining ----
start_rank join 0 3 a0 declare:w:10
start_rank join 1 3 a1 declare:w:10
wait_until 10 'two ranks have joined' job_says join 'rank 2'
kill_now join.1 KILL
wait_until 20 'its place is free again' job_says join 'ranks 1, 2'
start_rank join 1 3 a0 declare:w:10
start_rank join 2 3 a1 declare:w:10
for r in 0 1 2; do expect_end 20 join.$r 0; done
say 'killed while others join: another one takes its place'

# ---- all at once ----
start_rank many 0 4 a0 declare:w:300000 "train:w:$TMP/never"
start_rank many 1 4 a0 declare:w:300000 "train:w:$TMP/never"
start_rank many 2 4 a1 declare:w:300000 "train:w:$TMP/never"
start_rank many 3 4 a1 declare:w:300000 "train:w:$TMP/never"
train_more many.0 1 20
for r in 0 1 2 3; do ended many.$r || kill -KILL "$(pid_of many.$r)"; done
wait_until 20 'the job is gone' no_job_says many ''
works many a0 a1
say 'all killed at once: the next job of that name starts'

# ---- stands still ----
start_rank still 0 2 a0 declare:w:300000 "train:w:$TMP/done"
start_rank still 1 2 a1 declare:w:300000 "train:w:$TMP/done"
train_more still.0 1 20
kill_now still.1 STOP
wait_line 60 a0 "'still' is stuck, tensor '.*' round [0-9]+ waits for rank 1 \(machine a1\)"
kill_now still.1 CONT
train_more still.0 5
touch "$TMP/done"
for r in 0 1; do expect_end 20 still.$r 0; done
say 'stopped: named; continued: the job goes on'

touch "$TMP/enough"
for r in 0 1; do expect_end 20 calm.$r 0; done
for d in scheduler a0 a1 s0; do is_running "$(pid_of $d)" || fail "$d has ended"; done
say 'nobody else noticed'

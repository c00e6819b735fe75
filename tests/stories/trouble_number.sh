#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A server stands still until it is taken for lost, and comes back as another node, while a
# job that waits for a process has yet to hear of either: its agents mean the old node, on the
# same address.  Other jobs use the new one at once, and the one that waited goes on well.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_cluster 2 2 --agent-grace 300
for job in waits goes; do
	for r in 0 1; do start_rank $job $r 2 a$r declare:w:300000 "train:w:$TMP/enough"; done
done
for job in waits goes; do train_more $job.0 5 20; done

lives='agent a1 \(its processes live\), [0-9]+ s left'
kill_now waits.1 STOP
kill_now a1 KILL
wait "$(pid_of a1)" 2>/dev/null
start_agent a1
wait_until 10 'the job waits' job_says waits "$lives"
train_more goes.0 20

kill_now s0 STOP
wait_until 15 's0 is lost' nodes_up 3
train_more goes.0 20
kill_now s0 CONT
wait_line 15 scheduler "job goes epoch .* the servers' new shares"
train_more goes.0 100 60
job_says waits "$lives" || fail 'the job that waits does no more'
say 'a job that goes on uses the server that is back'

kill_now waits.1 CONT
train_more waits.0 50 60
touch "$TMP/enough"
for job in waits goes; do
	for r in 0 1; do expect_end 20 $job.$r 0; done
done
has_line s0 'link refused' && fail 'links of those who are yet to hear of it are no strangers'
works after a0 a1
say 'so does the one that waited, once it goes on'

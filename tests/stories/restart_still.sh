#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An agent and a server are started again while the scheduler stands still: behind heartbeats of the
# processes before it has yet to see their end, and the new ones wait for that.  A process with the
# name of one that lives is told so, and ends.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

has_passed() { (( $(now_ms) - began >= $1 )); }

start_cluster 3 2 --heartbeat-ms 200
for r in 0 1 2; do start_rank job $r 3 a$r declare:w:200000 "train:w:$TMP/enough"; done
train_more job.0 5

# again DAEMON SIGNAL KIND: started again, behind heartbeats that nobody has read.
again()
{
	began=$(now_ms)
	kill_now scheduler STOP
	wait_until 10 'heartbeats are unread' has_passed 500
	kill_now "$1" "$2"
	"start_$3" "$1"
	wait_until 10 'it has asked' has_passed 900
	kill_now scheduler CONT
	wait_line 20 "$1" 'registered, node'
	train_more job.0 5
}
for i in 1 2; do
	again a1 KILL agent
	again s1 KILL server
done
wait_until 20 'all nodes are there' nodes_up 5
! grep -E 'loses (rank|machine)' "$TMP/scheduler.log" || fail 'somebody was lost'
say 'started again while the scheduler stands still: taken back, each time'

card_of a1x
start_daemon a1x "$BIN/tally-agent" --scheduler "$SCHEDULER" --name a1 --machine-id a1 \
	--engines 1 --socket "$TMP/a1x.sock" ${CARD:+--rail "$CARD"}
expect_end 20 a1x 1
has_line a1x "agent 'a1' is registered already, from machine a1; give this one another --name" ||
	fail 'it does not say why it ends'
train_more job.0 5
touch "$TMP/enough"
for r in 0 1 2; do expect_end 30 job.$r 0; done
works after a0 a1 a2
say 'a second process of the same name ends'

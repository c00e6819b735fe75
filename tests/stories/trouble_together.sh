#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An agent is told to end in the moment in which its processes die: it ends, and leaves
# nothing (under a sanitizer: no memory, either).
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

RANKS=8
start_scheduler --agent-grace 0 --heartbeat-ms 200
all_in() { job_says "$1" "up .*$RANKS/$RANKS"; }
for (( i = 0; i < 10; i++ )); do
	start_agent a0
	wait_until 60 'the agent is registered' nodes_up 1
	for (( r = 0; r < RANKS; r++ )); do
		start_daemon "j$i.$r" env TALLY_JOB="j$i" TALLY_RANK=$r TALLY_WORLD_SIZE=$RANKS \
			TALLY_SOCKET="$TMP/a0.sock" "$BIN/tally" bench -b 4K -e 64M -n 100000
	done
	wait_until 20 'all have attached' all_in "j$i"
	kill_now a0 STOP
	for (( r = 0; r < RANKS; r++ )); do
		kill_now "j$i.$r" KILL
		expect_end 10 "j$i.$r" 137
	done
	kill_now a0 TERM
	kill_now a0 CONT
	expect_end 10 a0 0
	[ -e "$TMP/a0.sock" ] && fail 'the agent left its socket'
	wait_until 10 'it is gone' nodes_up 0
done
say "$i times: the agent ends as its processes do"

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A process is killed at any moment of a round, or an agent, alone or with a server: all others hear
# at once which rank is gone, and each sum that they have by then has the promised bits.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_scheduler --agent-grace 0 --heartbeat-ms 200
start_agent a0 --engines 2
start_agent a1 --engines 3
start_agent a2
for s in s0 s1; do start_server $s; done
start_server s2 --machine-id a0 --engines 2	# on the first agent's machine
wait_until 60 'all nodes are registered' nodes_up 6

# ranks JOB SIZE PAUSE_S: 0 and 1 on a0, 2 and 3 on a1, 4 on a2.
ranks()
{
	local r

	for r in 0 1 2 3 4; do
		start_program last_round_rank.py "$1" $r 5 a$(( r / 2 )) 6 "$2" "$3"
	done
}
# kill_one JOB SIZE PAUSE_S RANK AFTER_MS [DAEMON...]: the process, or these, one of which is its
# agent.
kill_one()
{
	local r d

	ranks "$1" "$2" "$3"
	wait_line 30 "$1.0" '^round 5$'
	pause_ms "$5"
	[ $# -gt 5 ] || kill_now "$1.$4" KILL
	for d in "${@:6}"; do kill_now "$d" KILL; done
	for r in 0 1 2 3 4; do
		(( r == $4 )) && continue
		expect_error 60 "$1.$r" "EWORKERLOST rank $4 on machine a$(( $4 / 2 )) is gone"
	done
}
for i in 0 1 2; do
	kill_one "large$i" 400000 0 4 $(( RANDOM % 100 ))
	kill_one "small$i" 1000 0.001 3 $(( RANDOM % 30 ))
	kill_one "half$i" 100000 0.005 $(( 3 + i % 2 )) $(( RANDOM % 60 ))
done
for i in 0 1; do
	kill_one "agent$i" 100000 0.005 4 $(( RANDOM % 60 )) a2
	start_agent a2
	wait_until 15 'it is back' nodes_up 6
	kill_one "both$i" 400000 0 4 $(( RANDOM % 100 )) s1 a2
	start_agent a2
	start_server s1
	wait_until 15 'both are back' nodes_up 6
done
works after a0 a1 a2

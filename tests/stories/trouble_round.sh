#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A process is killed at any moment of a round, or an agent, alone or with a server: all others
# have the sums of the same rounds, tensor by tensor, with the promised bits, and none has one that
# another lacks.
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
killed=0 apart=0
# go_on LEAST: so many have not been killed yet, or none between two tensors of a step.
go_on() { (( killed < $1 || (apart == 0 && killed < 6 * $1) )); }
# kill_one JOB SIZE PAUSE_S RANK AFTER_MS [DAEMON...]: the process, or these, one of which is its
# agent.
kill_one()
{
	local r d first=

	ranks "$1" "$2" "$3"
	wait_line 30 "$1.0" '^round 5$'
	pause_ms "$5"
	[ $# -gt 5 ] || kill_now "$1.$4" KILL
	for d in "${@:6}"; do kill_now "$d" KILL; done
	for r in 0 1 2 3 4; do
		(( r == $4 )) && continue
		expect_error 60 "$1.$r" "EWORKERLOST rank $4 on machine a$(( $4 / 2 )) is gone"
		[ -n "$first" ] || first=$(grep '^last' "$TMP/$1.$r.log")
		[ "$(grep '^last' "$TMP/$1.$r.log")" = "$first" ] ||
			fail "$1: ranks 0 and $r do not have the same rounds: $(
				grep -h '^last' "$TMP/$1".?.log | paste -sd '|')"
	done
	[ "$(tr ' ' '\n' <<< "${first#last }" | sort -u | wc -l)" = 1 ] || apart=$(( apart + 1 ))
	killed=$(( killed + 1 ))
}
while go_on 14; do
	kill_one "large$killed" 400000 0 4 $(( RANDOM % 100 ))
	kill_one "small$killed" 1000 0.001 3 $(( RANDOM % 30 ))
	kill_one "half$killed" 100000 0.005 $(( 3 + killed % 2 )) $(( RANDOM % 60 ))
done
(( apart )) || fail "$killed processes killed, and none between two tensors of a step"
say "$killed processes killed, $apart times between two tensors of a step"
killed=0 apart=0
while go_on 8; do
	kill_one "agent$killed" 100000 0.005 4 $(( RANDOM % 60 )) a2
	start_agent a2
	wait_until 15 'it is back' nodes_up 6
	kill_one "both$killed" 400000 0 4 $(( RANDOM % 100 )) s1 a2
	start_agent a2
	start_server s1
	wait_until 15 'both are back' nodes_up 6
done
(( apart )) || fail "$killed agents killed, and none between two tensors of a step"
say "$killed agents killed, half of them with a server," \
	"$apart times between two tensors of a step"
works after a0 a1 a2

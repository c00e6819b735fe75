#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A job that asked for it goes on without the ranks that it loses: a process killed, an agent
# killed, in the middle of rounds.  All survivors have the same bits in every round, each
# tensor's result is of one world, whole, and another job notices nothing.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_scheduler --agent-grace 0 --heartbeat-ms 200
start_agent a0 --engines 2
start_agent a1
start_agent a2 --engines 3
for s in s0 s1; do start_server $s; done
start_server s2 --machine-id a0 --engines 2	# on the first agent's machine
wait_until 60 'all nodes are registered' nodes_up 6

# survivors JOB RANK...: their lines are the same, word for word.
survivors()
{
	local job=$1 first=$2 r

	shift
	for r; do
		expect_end 60 "$job.$r" 0
		has_line "$job.$r" '^detached' || fail "$job.$r did not end well"
		grep '^round\|^live' "$TMP/$job.$r.log" > "$TMP/$job.$r.rounds"
		cmp "$TMP/$job.$first.rounds" "$TMP/$job.$r.rounds" ||
			fail "ranks $first and $r of $job do not have the same bits"
	done
}

start_rank calm 0 2 a0 declare:w:200000 "train:w:$TMP/enough"
start_rank calm 1 2 a1 declare:w:200000 "train:w:$TMP/enough"
train_more calm.0 1 20
arenas() { grep -c 'memfd:tally-arena' "/proc/$(pid_of "$1")/maps"; }
has_arenas() { [ "$(arenas "$1")" = "$2" ]; }
calm=$(arenas a0)

# ---- one of two processes of a machine, then a machine's only one, then a machine ----
start_shrink job 0 6 a0 6 60 0.02
start_shrink job 1 6 a0 6 60 0.02
start_shrink job 2 6 a1 6 60 0.02
start_shrink job 3 6 a1 6 60 0.02
start_shrink job 4 6 a2 6 60 0.02
start_shrink job 5 6 a2 6 60 0.02
wait_until 60 'it trains' at_round job.0 5
kill_now job.3 KILL
wait_until 40 'it trains on without rank 3' at_round job.0 15
kill_now job.2 KILL
wait_until 40 'it trains on without machine a1' at_round job.0 25
kill_now a2 KILL
all_lost job
wait_until 40 'it trains on without agent a2' at_round job.0 40
for r in 4 5; do expect_error 10 job.$r EAGENT; done
survivors job 0 1
has_line job.0 '^live 0 1$' || fail 'rank 0 does not know who is left'
has_line job.0 '^round 60 3:' || fail 'the last rounds are not of ranks 0 and 1'
say 'a process, the last one of its machine, an agent: the rest has the same bits throughout'
train_more calm.0 5
start_agent a2 --engines 3
wait_until 15 'agent a2 is back' nodes_up 6

# ---- on one machine alone ----
start_shrink alone 0 3 a0 4 40 0.02
start_shrink alone 1 3 a0 4 40 0.02
start_shrink alone 2 3 a0 4 40 0.02
wait_until 60 'it trains' at_round alone.0 5
kill_now alone.1 KILL
all_lost alone
survivors alone 0 2
has_line alone.0 '^live 0 2$' || fail 'rank 0 does not know who is left'
say 'on one machine: the same'

# ---- together with a server, and with the scheduler ----
start_shrink both 0 4 a0 6 60 0.02
start_shrink both 1 4 a1 6 60 0.02
start_shrink both 2 4 a2 6 60 0.02
start_shrink both 3 4 a2 6 60 0.02
wait_until 60 'it trains' at_round both.0 5
kill_now s0 KILL
kill_now both.1 KILL
wait_until 40 'it trains on' at_round both.0 20
kill_now scheduler KILL
kill_now both.3 KILL
all_lost both
wait "$(pid_of scheduler)" 2>/dev/null
start_daemon scheduler "$BIN/tally-scheduler" --listen "$SCHEDULER" --state-dir "$TMP/state" \
	--agent-grace 0 --heartbeat-ms 200
survivors both 0 2
has_line both.0 '^live 0 2$' || fail 'rank 0 does not know who is left'
say 'together with a server, and while the scheduler is away: the same'

# ---- what a killed process had ----
rings() { grep -c 'memfd:tally-ring' "/proc/$(pid_of "$1")/maps"; }
has_rings() { [ "$(rings "$1")" = "$2" ]; }
# Descriptors, without those that a job has, however many its processes are.
fds() { ls -l "/proc/$(pid_of "$1")/fd" | grep -Evc 'memfd:tally-(result|sum)'; }
has_fds() { [ "$(fds "$1")" = "$2" ]; }
has_settled() { local n; n=$(fds "$1"); pause_ms 500; has_fds "$1" "$n"; }
wait_until 20 'what the jobs before had is gone' has_arenas a0 "$calm"
wait_until 20 'and their rings' has_rings a0 1
wait_until 20 'and their descriptors' has_settled a0
calm_fds=$(fds a0)
for r in 0 1 2; do start_shrink room $r 4 a0 3 100000 0.02; done
start_shrink room 3 4 a1 3 100000 0.02
wait_until 60 'it trains' at_round room.0 5
before=$(arenas a0) at_server=$(arenas s2)
[ "$before" -gt "$calm" ] && [ "$at_server" -gt 0 ] || fail 'no arenas are seen'
each=$(( (before - calm) / 3 ))
are_alike() { each_fds=$(( ($(fds a0) - calm_fds) / 3 ))
	(( each_fds )) && has_fds a0 $(( calm_fds + 3 * each_fds )); }
wait_until 20 'three processes have as many descriptors each' are_alike
has_rings a0 4 || fail "a0 has $(rings a0) rings"
kill_now room.1 KILL
wait_until 20 'the agent has its memory back' has_arenas a0 $(( before - each ))
wait_until 20 'its ring' has_rings a0 3
wait_until 20 'and all its descriptors' has_fds a0 $(( calm_fds + 2 * each_fds ))
wait_until 20 'the server on its machine, too' has_arenas s2 $(( at_server - 2 * each ))
kill_now room.2 KILL		# now rank 0's inputs are summed where they lie
wait_until 20 'and that of the next' has_arenas a0 $(( before - 2 * each ))
wait_until 20 'its ring' has_rings a0 2
wait_until 20 'and its descriptors' has_fds a0 $(( calm_fds + each_fds ))
last=$(grep -c '^round' "$TMP/room.0.log")
wait_until 30 'it trains on' at_round room.0 $(( last + 20 ))
for r in 0 3; do kill_now room.$r KILL; done
wait_until 20 'nothing of the job is left' has_fds a0 "$calm_fds"
say "memory and $each_fds descriptors of a killed process come back while its job goes on"

touch "$TMP/enough"
for r in 0 1; do expect_end 20 calm.$r 0; done
works after a0 a1 a2
say 'nobody else noticed'

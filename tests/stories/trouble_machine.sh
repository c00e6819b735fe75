#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Two machines lose their power at once, one with an agent, a server and ranks, one with a
# server: nothing says goodbye, no connection ends.  Jobs of that machine hear it or go on
# without its ranks, all others notice a long round; the machines come back.  One stands still
# for longer than a lease, with all that is on it.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_ns_cluster 3 2 --agent-grace 5
gpu_server()
{
	start_in gpu2 g2 "$BIN/tally-server" --scheduler "$SCHEDULER" --listen 10.77.0.12:0 \
		--name g2 --machine-id gpu2 --engines 1 --memory 256M --shm-socket "$TMP/g2.shm"
}
gpu_server
wait_until 60 'the server on the third machine is registered' nodes_up 6

# start_job JOB ON_LOSS RANKS: one on each agent.
start_job()
{
	local r

	for (( r = 0; r < $3; r++ )); do
		TROUBLE_ON_LOSS=$2 start_trainer "$1" $r "$3" a$r
	done
	wait_until 30 "$1 trains" has_rounds "$1.0" 10
}

start_job ends error 3
start_job calm error 2
for r in 0 1 2; do start_shrink shrinks $r 3 a$r 3 200 0.05; done
wait_until 30 'shrinks trains' at_round shrinks.0 5

# Pulls the cables first: the last words of those who die reach nobody.
for m in gpu2 cpu1; do in_ns sw ip link set "p-$m" down; done
lost=$(date +%s%N)
kill_all a2 g2 s1 ends.2 shrinks.2
for r in 0 1; do expect_error 40 ends.$r 'EWORKERLOST rank 2 on machine a2 is gone'; done
say "its job ends after $(( ($(date +%s%N) - lost) / 1000000 )) ms:" \
	"$(grep -h ^ERROR "$TMP/ends.1.log")"
wait_line 30 shrinks.0 '^round [0-9]+ 3:'
train_more calm.0 20 30
for s in s1 g2; do
	has_line scheduler "server $s .*-> dead" || fail "server $s is not declared dead"
done

# ---- the machines boot ----
for m in gpu2 cpu1; do in_ns sw ip link set "p-$m" up; done
start_agent_in 2
gpu_server
start_in cpu1 s1 "$BIN/tally-server" --scheduler "$SCHEDULER" --listen 10.77.0.111:0 \
	--name s1 --machine-id cpu1 --engines 1 --memory 256M --shm-socket "$TMP/s1.shm"
wait_until 20 'all nodes are up again' nodes_up 6
used() { tally jobs --json --job calm | grep -Eq '"servers": *3(,|$)'; }
wait_until 30 'the servers are used again' used
all_lost shrinks
stop_training calm
for r in 0 1; do for j in shrinks calm; do expect_end 30 $j.$r 0; done; done
rounds() { grep '^round\|^live' "$TMP/$1.log"; }
cmp <(rounds shrinks.0) <(rounds shrinks.1) || fail 'the survivors have different bits'
has_line shrinks.0 '^live 0 1$' || fail 'rank 0 does not know who is left'
works again a0 a1 a2
say "note: $(sed -n 's/^hash.* longest/another job: the longest round took/p' "$TMP/calm.0.log")"

start_job same error 2
stop_training same
for r in 0 1; do expect_end 60 same.$r 0; done
for x in calm.1 same.0 same.1; do
	[ "$(hash_of $x)" = "$(hash_of calm.0)" ] || fail "$x has other bits than calm.0"
done
say 'and has the bits of an undisturbed run'

# ---- a machine stands still with all that is on it, and goes on ----
start_job sleeps error 3
wait_until 30 'it has the bits of an undisturbed lap' has_rounds sleeps.0 20
missed() { grep -Ec 'agent a2 up -> away|server g2 up -> dead' "$TMP/scheduler.log"; }
slept=$(missed)
for p in a2 g2 sleeps.2; do kill_now $p STOP; done
is_missed() { (( $(missed) > slept )); }
wait_until 10 'its agent or its server is missed' is_missed
for p in sleeps.2 g2 a2; do kill_now $p CONT; done
stop_training sleeps
for r in 0 1 2; do expect_end 30 sleeps.$r 0; done
for r in 1 2; do
	[ "$(hash_of sleeps.$r)" = "$(hash_of sleeps.0)" ] || fail "rank $r has other bits"
done
[[ $(hash_of sleeps.0) != *-* ]] || fail 'a lap has other bits than the undisturbed first one'
say 'a machine that stood still for longer than a lease: its job goes on, with the same bits'

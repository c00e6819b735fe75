#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Daemons that end, by SIGTERM or SIGKILL, with jobs running: every rank hears which
# one it was, at once; what is left serves the next job; a new one starts as if
# nothing had been.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_cluster 2 2 --agent-grace 0 --heartbeat-ms 200

# start_training JOB [AGENT...]: a rank per agent (a0 a1), until killed or told an error.
start_training()
{
	local job=$1 r=0 agent n

	shift
	(( $# )) || set -- a0 a1
	n=$#
	for agent; do
		start_rank "$job" $(( r++ )) "$n" "$agent" declare:w:1000000 "train:w:$TMP/end.$job"
	done
	train_more "$job.0" 1 20
}

# ---- a server is killed in the middle of rounds ----
start_training server
kill_now s1 KILL
wait_until 20 'the server is forgotten' nodes_up 3
train_more server.0 20
works server2 a0 a1
start_server s1
wait_until 20 'the next one of that name and socket is there' nodes_up 4
works server3 a0 a1
train_more server.0 20
touch "$TMP/end.server"
for r in 0 1; do expect_end 20 server.$r 0; done
say 'server killed: the job goes on with the other; the next one is used, too'

# ---- an agent is killed ----
start_training agent a0 a1 a1
start_rank alone 0 1 a0 declare:w:1000 "train:w:$TMP/enough"
train_more alone.0 1 20
kill_now a1 KILL
for r in 1 2; do expect_error 20 agent.$r 'EAGENT '; done
expect_error 20 agent.0 'EWORKERLOST .*machine a1'
train_more alone.0 20
wait_until 20 'the agent is forgotten' nodes_up 3
[ -S "$TMP/a1.sock" ] || fail 'the story needs a stale socket'
start_agent a1
wait_until 20 'the next one of that name and socket is there' nodes_up 4
works agent2 a0 a1
touch "$TMP/enough"
expect_end 20 alone.0 0
say 'agent killed: EAGENT for its own, EWORKERLOST for the others, nothing for the rest'

# ---- SIGTERM with jobs running ----
start_training term
kill_now scheduler TERM
expect_end 20 scheduler 0
train_more term.0 20
start_daemon scheduler "$BIN/tally-scheduler" --listen "$SCHEDULER" --state-dir "$TMP/state" \
	--agent-grace 0 --heartbeat-ms 200
wait_until 60 'all nodes are back' nodes_up 4
train_more term.0 20
say 'SIGTERM of the scheduler: exit 0, jobs train on, also with the next one'

kill_now s0 TERM			# its chunks move when the scheduler has recovered
expect_end 20 s0 0
train_more term.0 20
touch "$TMP/end.term"
for r in 0 1; do expect_end 20 term.$r 0; done
[ -e "$TMP/s0.shm" ] && fail 'the server left its socket'
wait_until 20 'the server is forgotten' nodes_up 3

# While a restarted scheduler recovers it begins no job.
start_training term2
kill_now a1 TERM
expect_end 20 a1 0
expect_error 20 term2.1 'EAGENT '
expect_error 20 term2.0 'EWORKERLOST .*machine a1'
[ -e "$TMP/a1.sock" ] && fail 'the agent left its socket'
say 'SIGTERM of server and agent: exit 0 in time, every rank hears which one'

# ---- all at once, and all again ----
start_agent a1
start_server s0
wait_until 20 'all nodes are there' nodes_up 4
start_training all
for d in scheduler a0 a1 s0 s1; do kill_now $d KILL; done
for r in 0 1; do expect_error 20 all.$r 'EAGENT '; done
start_daemon scheduler "$BIN/tally-scheduler" --listen "$SCHEDULER" --state-dir "$TMP/state" \
	--agent-grace 0 --heartbeat-ms 200
for d in a0 a1; do start_agent $d; done
for d in s0 s1; do start_server $d; done
wait_until 60 'all nodes are there again' nodes_up 4
works again a0 a1
for d in a0 a1 s0 s1 scheduler; do kill_now $d TERM; done
for d in a0 a1 s0 s1 scheduler; do expect_end 20 $d 0; done
left=$(ls "$TMP" | grep -E '\.(sock|shm)$') && fail "left behind: $left"
say 'all killed at once: all start again where they were; at the end nothing is left'

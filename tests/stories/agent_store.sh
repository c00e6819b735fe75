#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An agent that a service manager runs, with a descriptor store: killed, or ended, it is started
# again with all that its processes have of it, and believes them at once, also while others of
# the same user hand back memory without end.  The same bits; what nobody comes for is given up.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_scheduler --agent-grace 8
start_agent a1
start_server s0
start_daemon manager "$PYTHON" "$ROOT/tests/store_manager.py" "$TMP/notify" "$TMP/kept" \
	prlimit --nofile=1024:1024 "$BIN/tally-agent" --scheduler "$SCHEDULER" --name a0 \
	--machine-id a0 --engines 1 --socket "$TMP/a0.sock"
wait_until 60 'all nodes are registered' nodes_up 3

agent_pid() { local p; read -r p _ < "$TMP/kept"; echo "$p"; }
kept() { local n; read -r _ n < "$TMP/kept"; echo "$n"; }
keeps() { [ "$(kept)" "$1" "$2" ]; }
another_agent() { [ "$(agent_pid)" != "$1" ]; }

refused() { grep -c 'uid [0-9]* is to come back later' "$TMP/manager.log"; }
is_flooded() { (( $(refused) > $1 )); }

# again SIGNAL [flood]: the agent ends by it, is started again, and the job goes on; flood: its
# ranks come when others have handed back so much that there is no room for them.
again()
{
	local pid began=$EPOCHREALTIME said later

	pid=$(agent_pid)
	said=$(grep -c 'has kept [0-9]* pieces' "$TMP/manager.log")
	later=$(refused)
	[ -z "${2:-}" ] || kill -STOP "$(pid_of calm.0)" "$(pid_of calm.1)"
	kill -"$1" "$pid"
	wait_until 20 "another agent after SIG$1" another_agent "$pid"
	if [ -n "${2:-}" ]; then
		wait_until 20 'the new agent is flooded' is_flooded "$later"
		kill -CONT "$(pid_of calm.0)" "$(pid_of calm.1)"
	fi
	train_more calm.0 5 30
	(( $(grep -c 'has kept [0-9]* pieces' "$TMP/manager.log") == said + 1 )) ||
		fail 'the agent did not get what was kept'
	say "SIG$1: $(grep -o 'has kept [0-9]* pieces' "$TMP/manager.log" | tail -n 1)," \
		"5 rounds more after $(( (${EPOCHREALTIME/./} - ${began/./}) / 1000 )) ms"
}

# train JOB: two ranks on a0, one on a1.
train()
{
	local r

	for r in 0 1 2; do start_trainer "$1" $r 3 a$(( r / 2 )); done
	wait_until 30 "$1 trains" has_rounds "$1.0" 5
}

# finished JOB
finished()
{
	local r

	stop_training "$1"
	for r in 0 1 2; do expect_end 60 "$1.$r" 0; done
	wait_until 20 'with the job its memory is gone' keeps -eq 0
}

train undisturbed
finished undisturbed
train calm
wait_until 10 'rings, arenas and results are kept' keeps -ge 5
again KILL
again TERM
start_daemon flood env TALLY_SOCKET="$TMP/a0.sock" "$PYTHON" "$ROOT/tests/trouble_back.py" \
	flood "$TMP/dry"
wait_line 20 flood '[1-9][0-9]* are to come later'
again KILL flood
again KILL flood
: > "$TMP/dry"
expect_end 20 flood 0
say 'memory handed back without end keeps nobody from coming back'
finished calm
for r in 0 1 2; do
	[ "$(hash_of calm.$r)" = "$(hash_of undisturbed.$r)" ] || fail "rank $r has other bits"
done

# ---- nobody comes back ----
start_trainer gone 0 1 a0
wait_until 30 'it trains' has_rounds gone.0 5
wait_until 10 'its memory is kept' keeps -ge 3
pid=$(agent_pid)
kill -KILL "$(pid_of gone.0)" "$pid"	# both at once: the agent sees nothing of it
wait_until 20 'another agent' another_agent "$pid"
wait_until 60 'what nobody comes back for is given up' keeps -eq 0
say 'what nobody comes back for is given up'
is_running "$(pid_of manager)" || fail 'the manager has ended'
works after a0 a1

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Connections to the scheduler are reset at any moment, with what is on its way; then the
# scheduler is killed at any moment: jobs come up, declare, meet at barriers and go all the
# same, and who trains does not notice.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

SEED=${SEED:-$(( $(now_ms) % 32768 ))}
RANDOM=$SEED
JOBS=${JOBS:-6}
export TROUBLE_TIMEOUT=40
say "seed $SEED"

start_scheduler --heartbeat-ms 200
DIRECT=$SCHEDULER
start_daemon breaker "$PYTHON" "$ROOT/tests/breaker.py" "$DIRECT" "$TMP/breaker.port"
wait_until 10 'the breaker listens' test -s "$TMP/breaker.port"
SCHEDULER=$LOOPBACK:$(< "$TMP/breaker.port")
for d in a0 a1; do start_agent $d; done
for d in s0 s1; do start_server $d; done
SCHEDULER=$DIRECT
wait_until 60 'all nodes are registered' nodes_up 4

# come JOB: a job of two that comes up, declares twice, meets twice, and goes.
come()
{
	local r

	for r in 0 1; do
		start_rank "$1" $r 2 a$r declare:a:1000 barrier:40 rounds:a:3 declare:b:70000 \
			rounds:b:3 barrier:40 declare:c:10
	done
}
gone() { ended "$1.0" && ended "$1.1"; }
resets() { grep -c '^reset [1-9]' "$TMP/breaker.log"; }

for r in 0 1; do start_rank calm $r 2 a$r declare:w:100000 "train:w:$TMP/enough"; done
train_more calm.0 1 20

# ---- connections ----
for (( n = 0; n < JOBS; n++ )); do
	come reset$n
	until wait_for 0 gone reset$n; do
		kill_now breaker USR1
		# Who has said nothing of a job by its second heartbeat is told it again.
		pause_ms $(( RANDOM % 6 ? 50 + RANDOM % 800 : 3000 ))
	done
	for r in 0 1; do expect_end 20 reset$n.$r 0; done
done
(( $(resets) >= JOBS )) || fail 'nothing was reset'
train_more calm.0 20
# But for who was not back in half a second, as busy as the machine may be.
grep -E -- '-> dead' "$TMP/scheduler.log" | grep -v 'reason connection closed' &&
	fail 'somebody was given up who was there'
say "$JOBS jobs came and went, connections were reset $(resets) times"

# ---- the scheduler ----
for (( n = 0; n < JOBS; n++ )); do
	come kill$n
	pause_ms $(( 100 + RANDOM % 700 ))
	kill_all scheduler
	start_daemon scheduler "$BIN/tally-scheduler" --listen "$DIRECT" --state-dir "$TMP/state"
	pause_ms $(( RANDOM % 200 ))
	kill_now breaker USR1
	for r in 0 1; do expect_end 60 kill$n.$r 0; done
done
train_more calm.0 20
touch "$TMP/enough"
for r in 0 1; do expect_end 20 calm.$r 0; done
works after a0 a1
for d in scheduler a0 a1 s0 s1; do is_running "$(pid_of $d)" || fail "$d has ended"; done
say "$JOBS jobs came and went, and the scheduler was killed in each of them"

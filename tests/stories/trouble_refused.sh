#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A server refuses tensors, and its word is lost with its connection: it says it again when
# it is back, so that all hear why, and the server is used further.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_scheduler
DIRECT=$SCHEDULER
start_daemon far "$PYTHON" "$ROOT/tests/breaker.py" "$SCHEDULER" "$TMP/far.port" 0.15
wait_until 10 'the far scheduler listens' test -s "$TMP/far.port"
for a in a0 a1; do start_agent $a; done
SCHEDULER=$LOOPBACK:$(< "$TMP/far.port")
start_server s0 --memory 128M
SCHEDULER=$DIRECT
wait_until 60 'all nodes are registered' nodes_up 3

lines_of() { grep -Ec -- "$2" "$TMP/$1.log"; }
more_lines() { (( $(lines_of "$1" "$2") > $3 )); }

# lost JOB: false if the server was given up meanwhile, as one that is not back at once is.
lost()
{
	local back dead

	back=$(lines_of s0 'registered, node') dead=$(lines_of scheduler 's0 .*-> dead')
	for r in 0 1; do start_rank "$1" $r 2 a$r declare:w:100000000; done
	wait_until 30 's0 refuses it' more_lines s0 "job [0-9]+ refused.*needs" "$REFUSED"
	kill_now far USR1
	wait_until 20 's0 is back' more_lines s0 'registered, node' "$back"
	[ "$(lines_of scheduler 's0 .*-> dead')" = "$dead" ]
}

for (( n = 0, REFUSED = 0; ; n++ )); do
	(( n < 20 )) || fail 's0 was never back in time'
	lost "big$n" && break
	for r in 0 1; do kill -KILL "$(pid_of "big$n.$r")" 2> /dev/null; done	# may have ended
	wait_until 20 'that job is over' no_job_says "big$n" .
	REFUSED=$(lines_of s0 'job [0-9]+ refused.*needs')
done
for r in 0 1; do expect_error 30 "big$n.$r" 'EQUOTA server s0: .*needs'; done
works after a0 a1
say 'a refusal that was lost is heard, and the server is used further'

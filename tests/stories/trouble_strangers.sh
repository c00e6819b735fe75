#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A crowd of strangers sits on a server's data port and says nothing, more of them
# than it hears out at a time, on an agent's socket or on the scheduler's port: everybody else gets
# through all the same.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

ulimit -Sn 512			# the daemons know how to get more
start_cluster 2 1
start_daemon crowd "$PYTHON" "$ROOT/tests/trouble_strangers.py" \
	"$LOOPBACK:$(cat "$TMP/s0.port")" 1100
wait_line 20 crowd '^crowded'
wait_line 10 s0 '1024 connections say nothing'
works amid a0 a1
is_running "$(pid_of crowd)" || fail 'the crowd has gone'
say 'training starts in the middle of the crowd'

kill_now crowd KILL
works after a0 a1
has_line s0 'reason not a hello' && fail 'those who close without a word are no warning'
for d in scheduler a0 a1 s0; do is_running "$(pid_of $d)" || fail "$d has ended"; done
say 'and after it'

for where in "$TMP/a0.sock" "$SCHEDULER"; do
	start_daemon crowd "$PYTHON" "$ROOT/tests/trouble_strangers.py" "$where" 1100
	wait_line 20 crowd '^crowded'
	works "beside-${where##*[:/]}" a0 a1
	is_running "$(pid_of crowd)" || fail 'the crowd has gone'
	kill_now crowd KILL
done
wait_line 20 a0 '1024 connections say nothing'
wait_line 20 scheduler '1024 connections say nothing'
for d in scheduler a0 a1 s0; do is_running "$(pid_of $d)" || fail "$d has ended"; done
say 'nor is anybody kept from an agent or from the scheduler'

for (( i = 0; i < 250; i++ )); do
	echo 'GET / HTTP/1.0' 2> /dev/null > "/dev/tcp/${SCHEDULER/://}" || :
done
wait_line 20 scheduler 'connection .* closed, .*more like this are left out'
say 'nor is a log filled by those who talk nonsense'

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A crowd of strangers sits on a server's data port and says nothing, more of them
# than it hears out at a time: agents get through all the same.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

ulimit -Sn 512			# the daemons know how to get more
start_cluster 2 1
start_daemon crowd "$PYTHON" "$ROOT/tests/trouble_strangers.py" "$(cat "$TMP/s0.port")" 1100
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

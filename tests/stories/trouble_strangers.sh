#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A crowd of strangers sits on a server's data port and says nothing, more of them
# than it hears out at a time: agents get through all the same.  A crowd of one user sits on
# an agent's socket: other users' ranks come in all the same, and its own hear why they do not.
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

[ "$(id -u)" = 0 ] || { say 'not root: no crowd of another user'; exit 0; }
nobody=(setpriv --reuid 65534 --regid 65534 --clear-groups)
nobodys_rank()
{
	start_daemon rank "${nobody[@]}" env TALLY_JOB=nobodys TALLY_RANK=0 TALLY_WORLD_SIZE=1 \
		TALLY_SOCKET="$TMP/a0.sock" "$PYTHON" "$ROOT/tests/trouble_rank.py" "$@"
}
# Seen where it was not shut out without a word, which a crowd may be.
is_refused() { nobodys_rank; wait_until 20 'it ends' ended rank; has_line rank "$1"; }
chmod 711 "$TMP"
chmod 666 "$TMP/a0.sock"
start_daemon crowd "${nobody[@]}" "$PYTHON" "$ROOT/tests/trouble_strangers.py" \
	"$TMP/a0.sock" 520
wait_line 20 crowd '^crowded'
wait_until 20 'its own ranks hear why they do not come in' is_refused \
	'ERROR EQUOTA user id 65534 has 512 processes at agent a0, and the last 512 places'
works beside a0 a1
is_running "$(pid_of crowd)" || fail 'the crowd has gone'
say 'training starts beside the crowd of another user'

kill_now crowd KILL
wait_until 20 'its user comes in again' eval 'nobodys_rank declare:w:70000 rounds:w:3; \
	wait_until 20 "it ends" ended rank; has_line rank "^done rounds"'

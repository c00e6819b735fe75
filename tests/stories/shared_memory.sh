#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A server and an agent that nobody tells of sockets: both find a place for theirs, and the agent
# the server through shared memory; a second server of that name has a path of its own; where
# there is no place, the server says so.  /run is the story's own.
if [ -z "${OWN_RUN:-}" ] && unshare -m true 2> /dev/null; then
	exec env OWN_RUN=1 unshare -m bash "$0"
fi
. "$(dirname "$0")/../lib.sh"
[ -n "${OWN_RUN:-}" ] || skip 'a /run of its own takes root'
mount -t tmpfs -o mode=755 tmpfs /run || fail 'cannot make a /run'
unset XDG_RUNTIME_DIR RUNTIME_DIRECTORY TALLY_SOCKET
umask 077

start_scheduler
server()	# NAME [COMMAND...]: which starts it
{
	start_daemon "$1" "${@:2}" "${SERVER:-$BIN/tally-server}" --scheduler "$SCHEDULER" \
		--listen 127.0.0.1:0 --name "$1" --engines 1 --memory 64M
}

registered() { for name; do grep -q 'registered, node' "$TMP/$name.log" || return 1; done; }

# ---- somebody who is not root, who may come to no file of ours ----
install -D -m 755 "$BIN/tally-server" /run/programs/tally-server
chmod 755 /run/programs
install -d -m 700 -o 65534 /run/user-65534
nobody=(setpriv --reuid 65534 --regid 65534 --clear-groups)
SERVER=/run/programs/tally-server
server nowhere "${nobody[@]}"
server user "${nobody[@]}" env XDG_RUNTIME_DIR=/run/user-65534
unset SERVER
wait_until 30 'both are registered' registered nowhere user
expect_text "$TMP/nowhere.log" 'warn .*server nowhere has no shared memory with an agent of this '\
'machine, reason no /run/tally and no .XDG_RUNTIME_DIR to write to; give it --shm-socket PATH'
[ -S /run/user-65534/tally/server-user.sock ] || fail 'no socket below XDG_RUNTIME_DIR'
! grep -q ' warn ' "$TMP/user.log" || fail 'the user is warned'
say 'a user has it in XDG_RUNTIME_DIR, or is told that there is none'
kill "$PID_nowhere" "$PID_user"

# ---- root ----
server here
wait_until 30 'the server is registered' registered here
[ "$(stat -c %a /run/tally)" = 755 ] || fail "/run/tally: $(stat -c %a /run/tally)"
[ -S /run/tally/server-here.sock ] || fail "$(ls /run/tally)"
agent() { start_daemon "$1" "$BIN/tally-agent" --scheduler "$SCHEDULER" --name "$@"; }
agent a0
agent a1 --machine-id other --socket "$TMP/a1.sock"
wait_until 30 'the agents are registered' registered a0 a1
start_daemon b0 env TALLY_RANK=0 TALLY_WORLD_SIZE=2 "$BIN/tally" bench -b 64K -e 64K -n 1000000
start_daemon b1 env TALLY_RANK=1 TALLY_WORLD_SIZE=2 TALLY_SOCKET="$TMP/a1.sock" \
	"$BIN/tally" bench -b 64K -e 64K -n 1000000
connected() { ss -x state connected | grep -q " $1 "; }
wait_until 30 'the agent reaches the server through shared memory' \
	connected /run/tally/server-here.sock
say 'an agent reaches the server of its machine through shared memory'

# ---- another cluster's server of that name ----
start_daemon scheduler2 "$BIN/tally-scheduler" --listen "$OWN_LOOPBACK:0" --port-file "$TMP/port2"
wait_until 10 'another scheduler writes its port' has_port "$TMP/port2"
start_daemon here2 "$BIN/tally-server" --scheduler "$OWN_LOOPBACK:$(< "$TMP/port2")" \
	--listen 127.0.0.1:0 --name here --engines 1 --memory 64M
wait_until 30 'it is registered' registered here2
[ -S /run/tally/server-here.1.sock ] || fail "$(ls /run/tally)"
kill -KILL "$PID_here2"
wait_for 10 eval '! is_running $PID_here2'
say 'a second server of that name has a path of its own'

# ---- an agent that comes first ----
kill "$PID_b0" "$PID_b1" "$PID_a0" "$PID_a1" "$PID_here"
gone() { [ -z "$(ls /run/tally/*.sock 2> /dev/null | grep -v 'here.1.sock$')" ]; }
wait_until 30 'they take their sockets along' gone
rm -r /run/tally
agent first
wait_until 30 'the agent has its socket' [ -S /run/tally/agent.sock ]
[ "$(stat -c %a /run/tally)" = 755 ] || fail "/run/tally: $(stat -c %a /run/tally)"
say 'whoever comes first makes the directory'

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What the stories' helpers do when the kernel gives the number of a process of theirs that
# has ended to somebody else's: they take it for ended, and leave that one alone.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

[ "$(id -u)" = 0 ] || skip 'making a namespace of processes needs root'
cat > "$TMP/inner" <<'END'
. "$1/tests/lib.sh"
. "$1/tests/trouble.sh"
start_daemon short sleep 600
kill_now short KILL
wait "$PID" 2> /dev/null
# Two that begin within the same hundredth of a second look alike.
later() { local up; read -r up _ < /proc/uptime; (( ${up/./} > BEGAN[$PID] + 1 )); }
wait_until 20 'the clock goes on' later
echo $(( PID - 1 )) > /proc/sys/kernel/ns_last_pid
sleep 600 &
disown
[ $! = "$PID" ] || fail "the kernel gave the number $!, not $PID"
ended short || fail 'it has ended, and is said to run'
(kill_now short TERM) 2> /dev/null && fail 'somebody else got its signal'
echo "$PID" > "$2"
END
cat > "$TMP/outer" <<'END'
bash "$@" || exit
grep -q '^State:[[:space:]]*[RSD]' "/proc/$(cat "$3")/status"
END
expect_status 0 unshare --fork --pid --mount-proc bash "$TMP/outer" "$TMP/inner" "$ROOT" "$TMP/pid"
say 'another process with the number of one that ended: not signalled, not waited for'

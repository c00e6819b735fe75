#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tally local leaves nothing behind: no process, no socket, no directory, whatever
# ended it; and it says what ended it, by its exit status and in words.
. "$(dirname "$0")/../lib.sh"

# A server that looks for the scheduler where none is; what comes of it in 30 s is the end below.
start_daemon missing env TMPDIR="$TMP" "$BIN/tally" local --agents 1 --servers 1 --no-colocated \
	--server-arg --scheduler --server-arg 127.0.0.1:1 -- true

# --keep-going: every daemon that dies is told of, not the first one alone.
expect_status 0 timeout 60 "$BIN/tally" local --keep-going --servers 1 -- sh -c '
	pkill -KILL -P "$PPID" -x tally-server
	while pgrep -P "$PPID" -x tally-server > /dev/null; do :; done'
[ "$(grep -c '^tally local: tally-server .*; its log ends:$' "$TMP/err")" = 2 ] ||
	{ cat "$TMP/err" >&2; fail 'two servers died, and not both were told of'; }

# A TMPDIR of the story's own: what lies in it is tally local's.
export TMPDIR=$TMP/here
mkdir "$TMPDIR"

# Our processes: those that carry the mark which start_local gives them.
runs_of_ours()
{
	local environ

	for environ in $(grep -lsz "^TALLY_STORY=$RUN$" /proc/[0-9]*/environ); do
		environ=${environ#/proc/}
		is_running "${environ%/environ}" && echo "${environ%/environ}"
	done
}

nothing_left()
{
	[ -z "$(ls -A "$TMPDIR")" ] && [ -z "$(runs_of_ours)" ]
}

expect_nothing_left()
{
	wait_for 20 nothing_left || {
		ls -lR "$TMPDIR" >&2
		for pid in $(runs_of_ours); do
			tr '\0' ' ' < "/proc/$pid/cmdline" >&2
			echo >&2
		done
		fail "$1: something is left"
	}
	say "$1: nothing left"
}

ranks_up() { [ "$(ls "$TMP/up" 2>/dev/null | wc -l)" = "$1" ]; }

cat > "$TMP/rank.sh" <<'RANK'
# Says that it is there, then does what the story wants of this rank.
touch "$UP/$TALLY_RANK"
eval "${DO:-:}"
RANK

# Starts a cluster of two agents with three ranks in a session of its own.
start_local()
{
	rm -rf "$TMP/up"
	mkdir "$TMP/up"
	start_daemon local setsid env TALLY_STORY="$RUN" UP="$TMP/up" DO="$1" \
		"$BIN/tally" local --agents 2 --servers 1 --ranks 3 -- bash "$TMP/rank.sh"
}

expect_end()
{
	wait "$PID"
	local got=$?

	[ "$got" = "$1" ] || fail "$2: exit status $got, not $1"
}

SLEEP='sleep 600 & wait'
STUBBORN='trap "" INT TERM HUP; while :; do sleep 600; done'

# ---- as it should be ----
start_local 'echo "out $TALLY_RANK/$TALLY_WORLD_SIZE at $TALLY_LOCAL_RANK"; test -S "$TALLY_SOCKET"'
expect_end 0 'a job that is fine'
expect_text "$TMP/local.log" '^out 0/3 at 0$'
expect_text "$TMP/local.log" '^\[rank 1\] out 1/3 at 1$'
expect_text "$TMP/local.log" '^\[rank 2\] out 2/3 at 0$'
expect_nothing_left 'after a job that is fine'

# ---- signals, also to ranks that do not listen ----
for case in INT:130 TERM:143 HUP:129; do
	start_local "$SLEEP"
	wait_until 30 'all ranks are up' ranks_up 3
	kill -"${case%:*}" "$PID"
	expect_end "${case#*:}" "SIG${case%:*}"
	expect_nothing_left "after SIG${case%:*}"
done
start_local "$STUBBORN"
wait_until 30 'all ranks are up' ranks_up 3
kill -INT "$PID"
kill -INT "$PID"
expect_end 130 'SIGINT to stubborn ranks'
expect_nothing_left 'after stubborn ranks'

# ---- before the cluster is up ----
start_local "$SLEEP"
has_dir() { [ -n "$(ls -A "$TMPDIR")" ]; }
wait_until 10 'its directory is there' has_dir
kill -TERM "$PID"
wait "$PID"
expect_nothing_left 'after SIGTERM during the start'

# The moment it is there: a mkdtemp that ends with SIGTERM.
cat > "$TMP/mkdtemp.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>

char *mkdtemp(char *path)
{
	char *(*real)(char *) = (char *(*)(char *))dlsym(RTLD_NEXT, "mkdtemp");

	path = real(path);
	raise(SIGTERM);
	return path;
}
END
if [ -z "${SAN:-}" ]; then	# a sanitizer wants to be loaded first
	${CC:-cc} -shared -fPIC -o "$TMP/mkdtemp.so" "$TMP/mkdtemp.c" || fail 'no mkdtemp'
	LD_PRELOAD=$TMP/mkdtemp.so expect_status 143 "$BIN/tally" local -- true
	expect_nothing_left 'after SIGTERM as its directory was made'
fi

# ---- SIGKILL: nobody of ours is left to clean up but the broom ----
start_local "$STUBBORN"
wait_until 30 'all ranks are up' ranks_up 3
kill -KILL "$PID"
wait "$PID" 2>/dev/null
expect_nothing_left 'after SIGKILL'

# ---- processes that have left their group, their session, or all their ancestors ----
# Five sleeps: below a timeout, which leads a group; of a session; two of a shell with job
# control, and one whose shell hears nothing and lost its parent.
ESCAPE='timeout 500 sleep 600 & setsid sleep 600 & (set -m; sleep 600 & exec sleep 600) &
	(setsid sh -c "trap \"\" TERM INT; sleep 600 & wait" &);'
sleeps_up()
{
	[ "$(for p in $(runs_of_ours); do cat "/proc/$p/comm"; done | grep -c '^sleep$')" = "$1" ]
}

start_local "$ESCAPE $SLEEP"
wait_until 30 'all sleep' sleeps_up 18
kill -TERM "$PID"
expect_end 143 'SIGTERM, and some have left'
nothing_left || fail 'something is left the moment it ended'
say 'after SIGTERM, and some have left: nothing left the moment it ended'

start_local "$ESCAPE $SLEEP"
wait_until 30 'all sleep' sleeps_up 18
kill -KILL "$PID"
wait "$PID" 2>/dev/null
expect_nothing_left 'after SIGKILL, and some have left'

mkfifo "$TMP/gate"
exec {GATE}<> "$TMP/gate"
start_local "$ESCAPE read -r < '$TMP/gate'"
wait_until 30 'all sleep' sleeps_up 15
printf '\n\n\n' >&"$GATE"
expect_end 0 'a job that leaves processes behind'
nothing_left || fail 'something is left the moment it ended'
say 'after a job that leaves processes behind: nothing left'

# ---- a rank fails ----
start_local '[ $TALLY_RANK = 1 ] && exit 7; trap "exit 0" TERM; sleep 600 & wait'
expect_end 7 'a failing rank'
expect_text "$TMP/local.log" 'rank 1 exited with status 7'
expect_nothing_left 'after a failing rank'

start_local '[ $TALLY_RANK = 2 ] && kill -SEGV $$; sleep 600 & wait'
expect_end 139 'a rank that crashes'
expect_text "$TMP/local.log" 'rank 2 was killed by signal 11'
expect_nothing_left 'after a rank that crashes'

# ---- a daemon dies: its end is told, and the job's ----
one_of() { for p in $(runs_of_ours); do grep -qz -- "$1" "/proc/$p/cmdline" && echo "$p"; done; }
for case in '^cpu-0$:tally-server cpu-0' '/tally-scheduler$:tally-scheduler'; do
	start_local "$SLEEP"
	wait_until 30 'all ranks are up' ranks_up 3
	kill -KILL "$(one_of "${case%:*}")"
	wait "$PID" && fail "a dead ${case#*:} went unnoticed"
	expect_text "$TMP/local.log" "tally local: ${case#*:} was killed by signal 9"
	expect_text "$TMP/local.log" '^    .*registered'
	expect_nothing_left "after ${case#*:} died"
done

# ---- the output of rank 0 alone is standard output ----
UP=$TMP/up DO='echo "{}"' expect_status 0 "$BIN/tally" local --agents 1 --ranks 2 \
	-- bash "$TMP/rank.sh"
[ "$(cat "$TMP/out")" = '{}' ] || fail 'standard output is not that of rank 0'
expect_text "$TMP/err" '^\[rank 1\] \{\}$'

# ---- the cluster has no join secret, whatever the user's own one has ----
(umask 077; echo sesame > "$TMP/secret")
TALLY_SECRET_FILE=$TMP/secret expect_status 6 "$BIN/tally" local -- bash -c \
	"'$BIN/tally' status && '$BIN/tally' status --secret-file '$TMP/secret'"
expect_text "$TMP/out" '^scheduler +active'
expect_text "$TMP/err" 'secret was given, the scheduler has none'
! grep -q 'Give it' "$TMP/err" || fail 'what was given is asked for'

# ---- the logs stay where they were asked for ----
UP=$TMP/up expect_status 0 "$BIN/tally" local --keep-logs "$TMP/logs" -- bash "$TMP/rank.sh"
for name in scheduler server-0 agent-0; do
	[ -s "$TMP/logs/$name.log" ] || fail "--keep-logs has no $name.log"
done
expect_nothing_left 'at the end'

# ---- a terminal that stops groups in the background which write to it ----
expect_status 0 timeout 60 script -qec \
	"stty tostop; '$BIN/tally' local --agents 2 -- bash -c 'echo rank \$TALLY_RANK'" /dev/null
expect_text "$TMP/out" '^rank 0'
expect_text "$TMP/out" '^\[rank 1\] rank 1'
expect_nothing_left 'after a terminal with tostop'

# ---- who is missing when not all nodes register ----
wait "$PID_missing" && fail 'a missing server went unnoticed'
expect_text "$TMP/missing.log" '^tally local: tally-server cpu-0 did not register within 30 s'
expect_text "$TMP/missing.log" '^    .*127\.0\.0\.1:1'
! grep -q 'agent-0 did not' "$TMP/missing.log" || fail 'who is there is said to be missing'
say 'a server that does not register is named, with its log'

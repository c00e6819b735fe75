# SPDX-License-Identifier: Apache-2.0
# Helpers of the stories in tests/stories: source it first.
#
#	. "$(dirname "$0")/../lib.sh"
#
# A story is a bash script: it exits 0 (passed), 77 (cannot run here, says why) or
# anything else (failed).  It gets a directory $TMP and a name $RUN of its own; when it
# ends, however it ends, every process started with start_daemon, every namespace with all
# that runs in it and $TMP are gone.  Nothing waits by sleeping: use wait_until with a
# condition and a deadline.

set -u -o pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
BIN=${BIN:-${BUILD:-$ROOT/build}/bin}
LIB=${LIB:-${BUILD:-$ROOT/build}/lib}
PYTHON=${PYTHON:-/usr/bin/python3}

unset PYTHONUNBUFFERED	# what a rank prints comes as a line, not in pieces

# Unique to the run, short enough for an interface name (15) with a suffix.
RUN=t$(printf '%06x' $(( ($$ * 32749 + RANDOM) & 0xffffff )))
TMP=$(mktemp -d "${TMPDIR:-/tmp}/tally-story-XXXXXX")

# What nobody ever writes to: reading it with a timeout is a pause without a process.  (One
# for each pause, by substitution, has made a bash wait for ever for a child of a number
# that had come round again.)
mkfifo "$TMP/.pause" && exec {PAUSE_FD}<> "$TMP/.pause"

PIDS=()			# of what start_daemon started, and adopt()
declare -A BEGAN	# by pid, when that was: a later process may have the same number
NAMESPACES=()

say() { printf '  %s\n' "$*"; }

fail()
{
	printf 'FAILED: %s\n' "$*" >&2
	show_logs >&2
	printf 'FAILED: %s\n' "$*" >&2	# a runner may leave out the middle
	exit 1
}

skip()
{
	printf 'cannot run here: %s\n' "$*"
	exit 77
}

# doc_block MARK FILE: the code block behind the line "<!-- MARK -->" of README.md, in FILE.
doc_block()
{
	awk -v mark="<!-- $1 -->" '
		$0 == mark { found = 1; next }
		found && /^```/ { if (inside) exit; inside = 1; next }
		inside { print }
	' "$ROOT/README.md" > "$2"
	[ -s "$2" ] || fail "README.md has no block '$1'"
}

show_logs()
{
	local log

	for log in "$TMP"/*.log; do
		[ -s "$log" ] || continue
		printf -- '--- %s\n' "${log##*/}"
		tail -n 20 "$log"
	done
}

# look_at PID: its $STATE, and $START in ticks since boot; false if there is none.
look_at()
{
	local stat fields

	read -r stat 2>/dev/null < "/proc/$1/stat" || return 1
	read -r -a fields <<< "${stat##*) }"
	STATE=${fields[0]} START=${fields[19]}
}

# is_running PID: it is, and is the process that was adopted, if one of that number was.
# One whose first thread has ended still has its files, until the others have, too.
is_running()
{
	local threads

	look_at "$1" && [ "${BEGAN[$1]:-$START}" = "$START" ] || return 1
	[ "$STATE" = Z ] || return 0
	threads=("/proc/$1/task/"*)
	[ ${#threads[@]} -gt 1 ]
}

# adopt PID...: to be ended with the story.
adopt()
{
	local pid

	for pid; do
		PIDS+=("$pid")
		look_at "$pid" && BEGAN[$pid]=$START || BEGAN[$pid]=ended
	done
}

# signal_all SIGNAL: to all that run.
signal_all()
{
	local pid

	for pid in "${PIDS[@]}"; do is_running "$pid" && kill -"$1" "$pid"; done 2>/dev/null
}

none_running()
{
	local pid

	for pid in "${PIDS[@]}"; do
		is_running "$pid" && return 1
	done
	return 0
}

# at_exit COMMAND...: once, when all daemons have ended, however the story ends.
AT_EXIT=(:)
at_exit() { AT_EXIT=("$@"); }

clean_up()
{
	local status=$? ns pid

	trap - EXIT
	for pid in $(jobs -p); do	# with what was started just as a signal came
		[ -n "${BEGAN[$pid]:-}" ] || adopt "$pid"
	done
	signal_all TERM
	wait_for 3 none_running || signal_all KILL
	wait 2>/dev/null
	for ns in "${NAMESPACES[@]}"; do
		ip netns pids "$ns" | xargs -r kill -KILL
		ip netns del "$ns"
	done 2>/dev/null
	"${AT_EXIT[@]}"
	[ -n "${KEEP:-}" ] && printf 'kept: %s\n' "$TMP" || rm -rf "$TMP"
	exit "$status"
}
trap clean_up EXIT
# Out of a `read -t` (pause_ms) bash 5.2 takes that read's deadline with it, and aborts when it
# passes; a read that has none takes it away.
struck() { read -r < /dev/null; exit "$1"; }
trap 'struck 129' HUP
trap 'struck 130' INT
trap 'struck 143' TERM

pause_ms()
{
	local digits=000$1

	read -r -t "$(( $1 / 1000 )).${digits: -3}" -u "$PAUSE_FD" || :
}

now_ms() { local t=${EPOCHREALTIME/[.,]/}; echo $(( t / 1000 )); }

# wait_for SECONDS COMMAND...: true as soon as COMMAND is, false at the deadline.  While the
# machine stands still (a pause takes a second and more) nobody could have made it true.
wait_for()
{
	local end=$(( ${EPOCHREALTIME/[.,]/} + $1 * 1000000 )) begin took pause=20

	shift
	while :; do			# it is looked at once more when the time is over
		begin=${EPOCHREALTIME/[.,]/}
		"$@" && return 0
		(( begin < end )) || return 1
		begin=${EPOCHREALTIME/[.,]/}
		pause_ms $pause		# a look may start two processes
		(( pause += pause < 50 ? 5 : 0 ))
		took=$(( ${EPOCHREALTIME/[.,]/} - begin ))
		(( took < 1000000 )) || (( end += took ))
	done
}

# wait_until SECONDS WHAT COMMAND...: as wait_for, and the story ends when it is not.  PATIENCE
# times as long, where all is slow.
wait_until()
{
	local seconds=$(( $1 * ${PATIENCE:-1} )) what=$2

	shift 2
	wait_for "$seconds" "$@" || fail "not within $seconds s: $what"
}

# expect_status CODE COMMAND...: runs it, output in $TMP/out and $TMP/err.
expect_status()
{
	local want=$1 got

	shift
	"$@" > "$TMP/out" 2> "$TMP/err" < /dev/null
	got=$?
	[ "$got" = "$want" ] || {
		cat "$TMP/out" "$TMP/err" >&2
		fail "'$*' ended with $got, not $want"
	}
}

# expect_text FILE REGEX: the file has a line that matches (extended, any case).
expect_text()
{
	grep -Eqi -- "$2" "$1" || {
		cat "$1" >&2
		fail "no line of ${1##*/} matches: $2"
	}
}

# start_daemon NAME COMMAND...: in the background, log in $TMP/NAME.log, pid in $PID.
start_daemon()
{
	local name=$1

	shift
	: > "$TMP/$name.log"		# now: what one before wrote is not taken for this one's
	"$@" >> "$TMP/$name.log" 2>&1 < /dev/null {PAUSE_FD}<&- &
	PID=$!
	adopt "$PID"
	printf -v "PID_${name//[^A-Za-z0-9]/_}" '%s' "$PID"
}

has_port() { [ -s "$1" ]; }

LOOPBACK=127.0.0.1
# Of this story alone, for who comes again where it was: a port of 127.0.0.1 that is free for a
# moment others may have been given by then.
OWN_LOOPBACK=127.$(( 64 + ($$ >> 16 & 63) )).$(( $$ >> 8 & 255 )).$(( $$ & 255 ))

# start_scheduler [OPTION...]: on any port of that; $SCHEDULER is where it listens.
start_scheduler()
{
	rm -f "$TMP/port"
	start_daemon scheduler "$BIN/tally-scheduler" --listen "$OWN_LOOPBACK:0" \
		--state-dir "$TMP/state" --port-file "$TMP/port" "$@"
	wait_until 10 'the scheduler writes its port' has_port "$TMP/port"
	SCHEDULER=$OWN_LOOPBACK:$(tr -d '[:space:]' < "$TMP/port")
	export TALLY_SCHEDULER=$SCHEDULER
}

# nodes_are COUNT [SCHEDULER]: so many agents and servers are registered.
nodes_are()
{
	local n

	n=$("$BIN/tally" nodes --json --timeout 2 --scheduler "${2:-$SCHEDULER}" 2>/dev/null |
		grep -c '"node":')
	[ "$n" = "$1" ]
}

# ---- machines of one's own: network namespaces, shaped cards ----

can_make_namespaces()
{
	[ "$(id -u)" = 0 ] && ip netns add "$RUN-try" 2>/dev/null && ip netns del "$RUN-try"
}

# in_ns NAME COMMAND...: NAME as ns_cluster made it: sw, gpu0.., cpu0..
in_ns()
{
	local ns=$1

	shift
	ip netns exec "$RUN-$ns" "$@"
}

ns_add()
{
	NAMESPACES+=("$RUN-$1")		# before: a signal may come with it half made
	ip netns add "$RUN-$1" || fail "cannot make namespace $RUN-$1"
	in_ns "$1" ip link set lo up
}

# Shapes a card: DEVICE in namespace NS sends at most RATE (tc's words: 1gbit).
ns_shape()
{
	in_ns "$1" tc qdisc add dev "$2" root tbf rate "$3" burst 256kb latency 50ms ||
		fail "cannot shape $2 in $RUN-$1"
}

# One machine: a namespace, a card eth0 with an address, a cable to the switch.
ns_machine()
{
	local name=$1 address=$2 rate=$3

	ns_add "$name"
	in_ns sw ip link add "p-$name" type veth peer name eth0 netns "$RUN-$name" ||
		fail "cannot make a cable to $name"
	in_ns sw ip link set "p-$name" master br0 up
	in_ns "$name" ip addr add "$address/24" dev eth0
	in_ns "$name" ip link set eth0 up
	[ -n "$rate" ] || return 0
	ns_shape "$name" eth0 "$rate"		# what it sends
	ns_shape sw "p-$name" "$rate"		# what it receives
}

# The namespace sw with a bridge: a place for the scheduler, at 10.77.0.1, unshaped.
ns_switch()
{
	can_make_namespaces || skip 'making network namespaces needs root'
	ns_add sw
	in_ns sw ip link add br0 type bridge || fail 'cannot make a bridge'
	in_ns sw ip addr add 10.77.0.1/24 dev br0
	in_ns sw ip link set br0 up
}

# ns_cluster N K [RATE]: namespaces gpu0..gpuN-1 at 10.77.0.10.. and cpu0..cpuK-1 at
# 10.77.0.110.., joined by ns_switch.  RATE shapes every card in both directions.
ns_cluster()
{
	local n=$1 k=$2 rate=${3:-} i

	ns_switch
	for (( i = 0; i < n; i++ )); do ns_machine "gpu$i" "10.77.0.$(( 10 + i ))" "$rate"; done
	for (( i = 0; i < k; i++ )); do ns_machine "cpu$i" "10.77.0.$(( 110 + i ))" "$rate"; done
}

# ns_down: all of it, before the story ends.
ns_down()
{
	local ns

	for ns in "${NAMESPACES[@]}"; do ip netns del "$ns"; done
	NAMESPACES=()
}

# SPDX-License-Identifier: Apache-2.0
# Helpers of the trouble stories: source it after lib.sh.
#
# Real daemons on loopback, each agent and server "on a machine of its own" (its
# machine id), and ranks that do what a story tells them (trouble_rank.py).

export PYTHONPATH=$ROOT/client/python TALLY_LIBRARY=$LIB/libtally.so.0
export PYTHONDONTWRITEBYTECODE=1
export TROUBLE_PACE=${TROUBLE_PACE:-0.06}	# s: the shortest round of who trains

# card_of NAME: $CARD is its address where machines have cards (CARDS of them: tests/vm/guest/
# stories.sh), and empty where all is loopback.
declare -A CARD_NUMBER=()
card_of()
{
	CARD=
	[ -n "${CARDS:-}" ] || return 0
	: "${CARD_NUMBER[$1]:=$(( ${#CARD_NUMBER[@]} + 1 ))}"
	CARD=10.66.0.${CARD_NUMBER[$1]}
	(( CARD_NUMBER[$1] <= CARDS )) || fail "no card is left for $1"
}

# start_server NAME [OPTION...]: on any port, which is then in $TMP/NAME.port.
start_server()
{
	local name=$1

	shift
	card_of "$name"
	rm -f "$TMP/$name.port"
	start_daemon "$name" "$BIN/tally-server" --scheduler "$SCHEDULER" \
		--listen "${CARD:-$LOOPBACK}:0" \
		--name "$name" --machine-id "$name" --engines 1 --memory 256M \
		--shm-socket "$TMP/$name.shm" --port-file "$TMP/$name.port" "$@"
}

# start_agent NAME [OPTION...]: its socket is $TMP/NAME.sock.
start_agent()
{
	local name=$1

	shift
	card_of "$name"
	start_daemon "$name" "$BIN/tally-agent" --scheduler "$SCHEDULER" --name "$name" \
		--machine-id "$name" --engines 1 --socket "$TMP/$name.sock" \
		${CARD:+--rail "$CARD"} "$@"
}

# start_cluster AGENTS SERVERS [OPTION...]: scheduler, a0.., s0.., all registered.
start_cluster()
{
	local i agents=$1 servers=$2

	shift 2
	start_scheduler "$@"
	for (( i = 0; i < agents; i++ )); do start_agent "a$i"; done
	for (( i = 0; i < servers; i++ )); do start_server "s$i"; done
	wait_until 60 'all nodes are registered' nodes_up $(( agents + servers ))
}

# start_ns_cluster AGENTS SERVERS [OPTION...]: the scheduler, with those; a0.., s0.. on machines
# of their own (namespaces gpu0.., cpu0..), all registered.  Leaves start_in, start_agent_in N,
# tally, nodes_up.
start_ns_cluster()
{
	local i agents=$1 servers=$2

	shift 2
	ns_cluster "$agents" "$servers"
	SCHEDULER=10.77.0.1:7470
	start_in()
	{
		local ns=$1 name=$2

		shift 2
		start_daemon "$name" ip netns exec "$RUN-$ns" "$@"
	}
	tally() { in_ns sw "$BIN/tally" "$@" --scheduler "$SCHEDULER"; }
	nodes_up() { [ "$(tally nodes --json 2>/dev/null | grep -c '"state": *"up"')" = "$1" ]; }
	start_in sw scheduler "$BIN/tally-scheduler" --listen "$SCHEDULER" \
		--state-dir "$TMP/state" "$@"
	start_agent_in()
	{
		start_in gpu$1 a$1 "$BIN/tally-agent" --scheduler "$SCHEDULER" --name a$1 \
			--machine-id gpu$1 --engines 1 --socket "$TMP/a$1.sock"
	}
	for (( i = 0; i < agents; i++ )); do start_agent_in $i; done
	for (( i = 0; i < servers; i++ )); do
		start_in cpu$i s$i "$BIN/tally-server" --scheduler "$SCHEDULER" \
			--listen 10.77.0.$(( 110 + i )):0 --name s$i --machine-id cpu$i \
			--engines 1 --memory 256M --shm-socket "$TMP/s$i.shm"
	done
	wait_until 60 'all nodes are registered' nodes_up $(( agents + servers ))
}

# runs_on JOB RANK AGENT: on that one's machine, for who has to know the order of sums.
runs_on() { echo "$2 $3" >> "$TMP/$1.machines"; }

# start_program PROGRAM JOB RANK WORLD AGENT ARG...: log $TMP/JOB.RANK.log, rounds
# $TMP/JOB.RANK.count.
start_program()
{
	local program=$1 job=$2 rank=$3 world=$4 agent=$5

	shift 5
	: > "$TMP/$job.$rank.count"
	runs_on "$job" "$rank" "$agent"
	start_daemon "$job.$rank" env TALLY_JOB="$job" TALLY_RANK="$rank" \
		TALLY_WORLD_SIZE="$world" TALLY_SOCKET="$TMP/$agent.sock" \
		TROUBLE_COUNT="$TMP/$job.$rank.count" TROUBLE_MACHINES="$TMP/$job.machines" \
		"$PYTHON" "$ROOT/tests/$program" "$@"
}

# start_rank JOB RANK WORLD AGENT STEP...: does those; start_trainer JOB RANK WORLD AGENT: trains
# until stop_training JOB, which has it do as many rounds more as give all its results, and says
# a hash of these when it has ended (hash_of), however many rounds there were.
start_rank() { start_program trouble_rank.py "$@"; }
start_trainer() { start_program failover_rank.py "$@" "$TMP/$1.stop"; }
stop_training() { train_more "$1.0" 20 60; touch "$TMP/$1.stop"; }

# start_shrink JOB RANK WORLD AGENT TENSORS ROUNDS STEP_S: trains in a job that goes on without
# those it loses; until all_lost JOB the last rounds wait.
start_shrink()
{
	runs_on "$1" "$2" "$4"
	start_daemon "$1.$2" env TALLY_JOB="$1" TALLY_RANK="$2" TALLY_WORLD_SIZE="$3" \
		TALLY_SOCKET="$TMP/$4.sock" TROUBLE_MACHINES="$TMP/$1.machines" \
		"$PYTHON" "$ROOT/tests/shrink_rank.py" "${@:5}" "$TMP/$1.go"
}
all_lost() { touch "$TMP/$1.go"; }
at_round() { has_line "$1" "^round $2 "; }

# nodes_up N: so many are up; the dead are shown for a while.
nodes_up()
{
	local out

	out=$("$BIN/tally" nodes --json --timeout 2 --scheduler "$SCHEDULER" 2>/dev/null) &&
		[ "$(grep -c '"state": *"up"' <<< "$out")" = "$1" ]
}

pid_of() { local v=PID_${1//[^A-Za-z0-9]/_}; echo "${!v}"; }
ended() { ! is_running "$(pid_of "$1")"; }
has_line() { grep -Eq -- "$2" "$TMP/$1.log"; }
rounds_of() { local n; read -r n < "$TMP/$1.count" 2>/dev/null; echo "${n:-0}"; }
hash_of() { sed -n 's/^hash \([0-9a-f-]\+\) .*/\1/p' "$TMP/$1.log" | grep . || echo "none, $1"; }
has_rounds() { (( $(rounds_of "$1") >= $2 )); }

# job_says JOB REGEX: the line of `tally jobs` for it matches; no_job_says: it does not, or
# there is none.
jobs_table() { "$BIN/tally" jobs --timeout 10 --scheduler "$SCHEDULER" 2>/dev/null; }
job_says() { jobs_table | grep -E -- "(^| )$1 .*$2" > /dev/null; }
no_job_says() { local out; out=$(jobs_table) && ! grep -Eq -- "(^| )$1 .*$2" <<< "$out"; }

# wait_line SECONDS NAME REGEX: its log has such a line.
wait_line() { wait_until "$1" "$2 says: $3" has_line "$2" "$3"; }

# say_longest NAME: how long training stood still, if it was a rank 0 that says so, and of no job
# that only looks whether all is well again (works).
say_longest()
{
	local ms

	[ "${1##*.}" = 0 ] && [ "${1%.0}" != "$LOOKS" ] || return 0
	ms=$(sed -n 's/^longest \([0-9]*\) ms$/\1/p' "$TMP/$1.log")
	[ -z "$ms" ] || say "note: ${1%.0}: longest round $ms ms"
}

# expect_end SECONDS NAME STATUS: the process ends in time, with that status.
expect_end()
{
	local got

	wait_until "$1" "$2 ends" ended "$2"
	wait "$(pid_of "$2")" 2>/dev/null
	got=$?
	[ "$got" = "$3" ] || fail "$2 ended with status $got, not $3"
	say_longest "$2"
}

# expect_error SECONDS NAME REGEX: the rank ends with an error that matches.
expect_error()
{
	expect_end "$1" "$2" 1
	has_line "$2" "^ERROR $3" || fail "$2 does not say: $3"
}

LOOKS=
# works NAME [AGENT...]: a fresh job over these agents (a0) trains and ends well.
works()
{
	local job=$1 n r=0 agent

	shift
	(( $# )) || set -- a0
	n=$# LOOKS=$job
	for agent; do
		start_rank "$job" $(( r++ )) "$n" "$agent" declare:w:70000 rounds:w:3
	done
	for (( r = 0; r < n; r++ )); do expect_end 20 "$job.$r" 0; done
}

# train_more NAME N [SECONDS]: N more rounds are done from now on.
train_more()
{
	local now

	now=$(rounds_of "$1")
	wait_until "${3:-30}" "$1 goes on, from round $now" has_rounds "$1" $(( now + $2 ))
}

# kill_now NAME SIGNAL: it runs; if it does not, how it ended is said.
kill_now()
{
	local pid

	pid=$(pid_of "$1")
	! ended "$1" && kill -"$2" "$pid" && return
	wait "$pid" 2>/dev/null
	fail "no $1 to signal: ended with $?, last line: $(tail -n 1 "$TMP/$1.log")"
}

fds_of() { ls "/proc/$(pid_of "$1")/fd" | wc -l; }
rss_of() { sed -n 's/^VmRSS:[[:space:]]*\([0-9]*\).*/\1/p' "/proc/$(pid_of "$1")/status"; }

# kill_all NAME...: at once.
kill_all()
{
	local d

	for d; do kill_now "$d" KILL; done
	for d; do wait "$(pid_of "$d")" 2>/dev/null; done
}

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The soak: real daemons on machines of their own (network namespaces), three jobs that
# train and check every bit, and something that goes wrong about every second.
#
#	tests/soak.sh [SECONDS [SEED]]	(make soak MINUTES=10 SEED=)
#
# Servers are killed, ended, stopped, cut off, drained and started again; agents are killed
# and started again, and their ranks come back; agents and ranks are stopped for less than
# their lease; the scheduler is killed; jobs come, and lose a rank; one job goes on without
# the ranks that it loses, and others come in their place.  Between spells all is healed, and
# all jobs must go on.  At the end no
# bit was wrong, all ranks had each result of the same world, no round is stuck, and nobody has
# kept memory, descriptors or shared memory.  The seed decides what happens and when, but not how
# the processes take turns.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/trouble.sh"

DURATION=${1:-600}
SEED=${2:-$(( $(now_ms) % 32768 ))}
RANDOM=$SEED
SPELL_MS=15000			# of trouble, then everybody is healed and looked at
HEAL_S=60
AGENTS=(a0 a1 a2)
SERVERS=(s0 s1 s2 g0)		# g0: on the machine of a0
KEPT=(s2 a2 scheduler)		# never killed; the scheduler not in the second half
KEPT_KIB=$(( 8 << 10 ))		# they may have so much more at the end than when they were warm,
SCHEDULER_KIB=$(( 2 << 10 ))		# and the scheduler
RSS_KIB=$(( 16 << 10 ))		# others so much more than one had when it was first well
declare -A HOW DUE DID		# of a server: what is wrong with it, and until when
STAY=(three.0 two.0)		# ranks that live through all: KEPT_KIB, too
declare -A FDS			# of daemons: at the start; of ranks: when it was first well
declare -A MEMFDS		# of ranks: then
declare -A RSS SEEN		# the most that one had when warm, or first well; this one was
declare -A LOST			# ranks of the job "less": when another process comes for them

began=$(now_ms)
elapsed() { echo $(( $(now_ms) - began )); }
did() { printf '%8.1f s  %s\n' "$(elapsed)e-3" "$*"; }
# roll N: a number below N in $ROLLED (no subshell: it would have a RANDOM of its own).
roll() { ROLLED=$(( (RANDOM << 15 | RANDOM) % $1 )); }

ns_cluster 3 3
SCHEDULER=10.77.0.1:7470
start_in() { local ns=$1 name=$2; shift 2; start_daemon "$name" ip netns exec "$RUN-$ns" "$@"; }
tally() { in_ns sw timeout 10 "$BIN/tally" "$@" --scheduler "$SCHEDULER"; }
nodes_up() { [ "$(tally nodes --json 2>/dev/null | grep -c '"state": *"up"')" = "$1" ]; }
is_active()
{
	tally status --timeout 1 > "$TMP/status" 2>/dev/null && ! grep -q recovering "$TMP/status"
}
none_drain() { ! tally nodes 2>/dev/null | grep -Eq ' drain(ed|ing) '; }
none_stuck() { tally tensors --stuck --json 2>/dev/null | tr -d ' \n' | grep -Fq '"stuck":[]'; }
no_jobs() { tally jobs --json 2>/dev/null | tr -d ' \n' | grep -Fq '"jobs":[]'; }

is_kept() { [[ " ${KEPT[*]} " = *" $1 "* ]]; }
is_late() { (( $(elapsed) * 2 >= DURATION * 1000 )); }
# After the first third; the scheduler, which is older then only in the second half, after two.
is_warm()
{
	local thirds=1

	[ "$1" != scheduler ] || thirds=2
	(( $(elapsed) * 3 >= DURATION * 1000 * thirds ))
}
ns_of() { case $1 in g*) echo "gpu${1#?}" ;; *) echo "cpu${1#?}" ;; esac; }
scheduler_start()
{
	unset 'SEEN[scheduler]'
	start_in sw scheduler "$BIN/tally-scheduler" --listen "$SCHEDULER" \
		--state-dir "$TMP/state"
}
server_start()
{
	local ns address=10.77.0.$(( 110 + ${1#?} ))

	unset "SEEN[$1]"
	ns=$(ns_of "$1")
	[ "$ns" != "gpu${1#?}" ] || address=10.77.0.$(( 10 + ${1#?} ))
	start_in "$ns" "$1" "$BIN/tally-server" --scheduler "$SCHEDULER" --listen "$address:0" \
		--name "$1" --machine-id "$ns" --engines 1 --memory 256M \
		--shm-socket "$TMP/$1.shm"
}
agent_start()
{
	unset "SEEN[$1]"
	start_in "gpu${1#?}" "$1" "$BIN/tally-agent" --scheduler "$SCHEDULER" --name "$1" \
		--machine-id "gpu${1#?}" --engines 1 --socket "$TMP/$1.sock"
}
# gone NAME: it has ended.
gone()
{
	wait_until 20 "$1 ends" ended "$1"
	wait "$(pid_of "$1")" 2>/dev/null || true
}
job_start()			# NAME AGENT...: a rank on each
{
	local job=$1 r=0 agent

	shift
	for agent; do
		: > "$TMP/$job.$r.count"
		start_daemon "$job.$r" env TALLY_JOB="$job" TALLY_RANK=$r TALLY_WORLD_SIZE=$# \
			TALLY_SOCKET="$TMP/$agent.sock" TROUBLE_COUNT="$TMP/$job.$r.count" \
			PAUSE=0.02 "$PYTHON" "$ROOT/tests/soak_rank.py" "$TMP/$job.stop"
		(( ++r ))
	done
}
# A job of two ranks on each of two machines that goes on without those that it loses.
less_start()			# RANK
{
	# In a round that a lost rank was the only one to have had, the others may be less.
	[ ! -e "$TMP/less.$1.worlds" ] ||
		head -n -1 "$TMP/less.$1.worlds" >> "$TMP/less.worlds"
	: > "$TMP/less.$1.worlds"
	: > "$TMP/less.$1.count"
	start_daemon "less.$1" env TALLY_JOB=less TALLY_RANK="$1" TALLY_WORLD_SIZE=4 \
		TALLY_SOCKET="$TMP/a$(( 1 + $1 / 2 )).sock" \
		TROUBLE_COUNT="$TMP/less.$1.count" WORLDS="$TMP/less.$1.worlds" \
		ON_LOSS=shrink PER_MACHINE=2 \
		PAUSE=0.02 "$PYTHON" "$ROOT/tests/soak_rank.py" "$TMP/less.stop"
}

# ---- what goes wrong, and right again ----

server_hurt()			# NAME HOW
{
	HOW[$1]=$2
	roll 5000
	DUE[$1]=$(( $(now_ms) + 300 + ROLLED ))
	DID[$2]=$(( ${DID[$2]:-0} + 1 ))
	did "server $1: $2"
	case $2 in
	killed) kill_now "$1" KILL; gone "$1" ;;
	ended) kill_now "$1" TERM; gone "$1" ;;
	stopped) kill_now "$1" STOP ;;
	'cut off') in_ns sw ip link set "p-$(ns_of "$1")" down ;;
	drained) tally drain --no-wait "$1" > /dev/null 2>&1 || true ;;
	esac
}

server_heal()
{
	local how=${HOW[$1]:-}

	unset "HOW[$1]"
	case $how in
	stopped) ended "$1" || kill_now "$1" CONT ;;
	'cut off') in_ns sw ip link set "p-$(ns_of "$1")" up ;;
	drained) wait_for 20 tally drain --undo "$1" > /dev/null 2>&1 ;;
	esac
	if ! is_running "$(pid_of "$1")"; then	# its agent may have ended it, too
		[ "$how" = killed ] || [ "$how" = ended ] || expect_end 20 "$1" 137
		server_start "$1"
	fi
	did "server $1: well again"
}

# brief NAME: stopped, but not for long enough to be given up.
brief()
{
	roll 1200
	did "$1 stands still for $(( 100 + ROLLED )) ms"
	DID[brief]=$(( ${DID[brief]:-0} + 1 ))
	kill_now "$1" STOP
	pause_ms $(( 100 + ROLLED ))
	kill_now "$1" CONT
}

scheduler_kill()
{
	did 'scheduler: killed'
	DID[scheduler]=$(( ${DID[scheduler]:-0} + 1 ))
	kill_now scheduler KILL
	gone scheduler
	roll 1500
	pause_ms "$ROLLED"
	scheduler_start
	RECOVERED=$(( $(now_ms) + 6000 ))
	(( $(now_ms) >= BACK )) || BACK=$(( RECOVERED + 3000 ))
}

# Its ranks come back to it, unless they are stopped or somebody kills them, too.
agent_again()			# NAME
{
	local a=$1

	did "agent $a: killed"
	DID[agent]=$(( ${DID[agent]:-0} + 1 ))
	kill_now "$a" KILL
	gone "$a"
	roll 1500
	pause_ms "$ROLLED"
	agent_start "$a"
	BACK=$(( $(now_ms) + 3000 ))
	(( BACK >= RECOVERED + 3000 )) || BACK=$(( RECOVERED + 3000 ))
}

# It needs another rank on its machine to come back, and rank 0 knows how far the job is.
rank_lose()			# RANK
{
	local mate=$(( $1 ^ 1 ))

	[ -z "${LOST[$1]:-}${LOST[$mate]:-}" ] && ! ended "less.$1" || return 1
	roll 4000
	LOST[$1]=$(( $(now_ms) + ROLLED ))
	DID[rank]=$(( ${DID[rank]:-0} + 1 ))
	did "rank less.$1: killed"
	kill_now "less.$1" KILL
	gone "less.$1"
}

# Who comes is lost again if it cannot come in just now: it had a second in its place to wait
# for, or its agent died meanwhile.
ranks_come()			# NOW
{
	local r

	for r in 1 2 3; do
		if [ -z "${LOST[$r]:-}" ] && ended "less.$r" && ! has_line "less.$r" '^in$' &&
		   has_line "less.$r" '^ERROR (EEXIST|EAGENT|ETIMEDOUT|EWORKERLOST|ESCHED)'; then
			did "rank less.$r: $(tail -n 1 "$TMP/less.$r.log")"
			gone "less.$r"
			LOST[$r]=$1
		fi
		[ -n "${LOST[$r]:-}" ] && (( $1 >= LOST[$r] )) || continue
		unset "LOST[$r]"
		did "rank less.$r: another one"
		less_start "$r"
	done
}

# A job comes, and one of its ranks dies: its other rank hears it.
visitor()
{
	did 'a job comes and loses a rank'
	DID[visitor]=$(( ${DID[visitor]:-0} + 1 ))
	job_start visit a1 a2
	if wait_for 20 has_rounds visit.0 3; then
		kill_now visit.1 KILL
		wait_until 30 'its other rank hears it' ended visit.0
		has_line visit.0 '^ERROR EWORKERLOST' || fail "it heard: $(cat "$TMP/visit.0.log")"
	else	# no server, perhaps, or a1 did not listen yet: then it goes as a whole
		has_line visit.0 '^ERROR EAGENT' || kill_now visit.0 KILL
		kill_now visit.1 KILL
	fi
	gone visit.0
	gone visit.1
}

# What no agent has any more a scheduler that recovers cannot know: one dies after the other.
RECOVERED=0			# the scheduler, and
BACK=0				# the agent that died last has its jobs, by then
agents_back() { (( $(now_ms) >= BACK )); }

# trouble: false where what was drawn cannot be just now.
trouble()
{
	local server how=(killed killed ended stopped stopped 'cut off' drained drained)

	roll 26
	case $ROLLED in
	0) ! is_late && scheduler_kill ;;
	1) visitor ;;
	2 | 3) roll 3; brief "a$ROLLED" ;;
	4 | 5) roll 3; brief "three.$ROLLED" ;;
	6 | 7 | 8) roll 2; agents_back && agent_again "a$ROLLED" ;;
	9 | 10 | 11) roll 3; rank_lose $(( 1 + ROLLED )) ;;
	*)
		roll ${#SERVERS[@]}
		server=${SERVERS[ROLLED]}
		[ -z "${HOW[$server]:-}" ] && is_running "$(pid_of "$server")" || return 1
		roll ${#how[@]}
		how=${how[ROLLED]}
		is_kept "$server" && case $how in killed | ended) how=stopped ;; esac
		# With the cable of its machine its agent would be cut off, too.
		[ "$server/$how" != 'g0/cut off' ] && server_hurt "$server" "$how"
		;;
	esac
}

heal_all()
{
	local server

	for server in "${SERVERS[@]}"; do
		[ -z "${HOW[$server]:-}" ] && is_running "$(pid_of "$server")" ||
			server_heal "$server"
	done
}

# ---- what must hold ----

# Who is not killed is compared with itself, when it has had all kinds of trouble; agents with
# the largest of those that were started in their place; servers with the largest of all of
# them, as one on a machine of ranks may have no share until others go.
base_of()			# NAME: in $BASE
{
	BASE=$1
	[[ $1 != [sg]? ]] || is_kept "$1" || BASE=servers
}

look_at_memory()		# NAME
{
	local now

	base_of "$1"
	now=$(rss_of "$1")
	if is_kept "$1"; then
		[ "$1" != scheduler ] || is_late || return
		if [ -z "${RSS[$1]:-}" ] || ! is_warm "$1"; then
			(( now <= ${RSS[$1]:-0} )) || RSS[$1]=$now
			SEEN[$1]=$(( ${SEEN[$1]:-0} + 1 ))
		fi
	elif [ -z "${SEEN[$1]:-}" ]; then
		(( now <= ${RSS[$BASE]:-0} )) || RSS[$BASE]=$now
		SEEN[$1]=1		# unset by who starts it
	fi
	[ -z "${RSS[$BASE]:-}" ] || did "$1 uses $now KiB, at the beginning ${RSS[$BASE]}"
}

is_small() { now=$(rss_of "$1"); (( now <= ${RSS[$BASE]:-$now} + most )); }

memory_is_kept()		# NAME; what it needs just now it soon gives back
{
	local most=$RSS_KIB now

	# With one look before it was warm, a cold one, as in short runs, the others' bound.
	! is_kept "$1" || (( ${SEEN[$1]:-0} < 2 )) || most=$KEPT_KIB
	[ -z "${MEMFDS[$1]:-}" ] || most=$KEPT_KIB
	[ "$1" != scheduler ] || most=$SCHEDULER_KIB
	base_of "$1"
	wait_for 10 is_small "$1" ||
		fail "$1 uses $now KiB of memory, at the beginning ${RSS[$BASE]}"
}

jobs_live()
{
	local rank

	ranks_come "$(now_ms)"
	for rank in three.0 three.1 three.2 two.0 two.1 less.{0,1,2,3}; do
		[ -n "${LOST[${rank#less.}]:-}" ] || is_running "$(pid_of $rank)" ||
			{ [ "${rank%.*}" = less ] && ! has_line $rank '^in$'; } ||
			fail "$rank has ended: $(tail -n 1 "$TMP/$rank.log")"
	done
	for rank in scheduler "${AGENTS[@]}"; do
		is_running "$(pid_of "$rank")" || fail "$rank has ended"
	done
}

# An agent may end a server on its machine when a scheduler has recovered, too.
nodes_back() { heal_all; nodes_up $(( ${#AGENTS[@]} + ${#SERVERS[@]} )); }

well()
{
	local r

	heal_all
	for r in "${!LOST[@]}"; do LOST[$r]=0; done
	wait_until $HEAL_S 'the scheduler has recovered' is_active
	wait_until $HEAL_S 'all nodes are back' nodes_back
	wait_until $HEAL_S 'nobody is drained' none_drain
	jobs_live
	tally tensors --stuck > "$TMP/stuck.log" 2>&1	# for the case that it stays so
	train_more three.0 5 $HEAL_S
	train_more two.0 5 $HEAL_S
	for r in 0 1 2 3; do
		wait_until $HEAL_S "less.$r goes on" goes_on "$r" $(( $(rounds_of "less.$r") + 5 ))
	done
	wait_until $HEAL_S 'no round is stuck' none_stuck
	jobs_live
	wait_until $HEAL_S 'all nodes are back, still' nodes_back
	for r in scheduler "${AGENTS[@]}" "${SERVERS[@]}"; do look_at_memory "$r"; done
	did "well, rounds $(rounds_of three.0), $(rounds_of two.0) and $(rounds_of less.0)"
}
# goes_on RANK ROUND: whoever it is by now.
goes_on() { ranks_come "$(now_ms)"; [ -z "${LOST[$1]:-}" ] && has_rounds "less.$1" "$2"; }

memfds_of() { ls -l "/proc/$(pid_of "$1")/fd" 2>/dev/null | grep -c memfd; }
fds_are() { (( $(fds_of "$1") <= $2 )); }
memfds_are() { (( $(memfds_of "$1") <= $2 )); }

scheduler_start
for a in "${AGENTS[@]}"; do agent_start "$a"; done
for server in "${SERVERS[@]}"; do server_start "$server"; done
wait_until 60 'all nodes are registered' nodes_up 7
for r in scheduler "${AGENTS[@]}" "${SERVERS[@]}"; do FDS[$r]=$(fds_of "$r"); done
echo "soak: $DURATION s, seed $SEED"
job_start three a0 a1 a2
job_start two a0 a1
for r in 0 1 2 3; do less_start $r; done
well
for r in "${STAY[@]}"; do
	FDS[$r]=$(fds_of "$r") MEMFDS[$r]=$(memfds_of "$r") RSS[$r]=$(rss_of "$r")
done

until (( $(elapsed) >= DURATION * 1000 )); do
	spell=$(( $(now_ms) + SPELL_MS ))
	while (( $(now_ms) < spell && $(elapsed) < DURATION * 1000 )); do
		until trouble; do pause_ms 10; done
		roll 650
		pause_ms "$ROLLED"
		for server in "${SERVERS[@]}"; do
			[ -n "${HOW[$server]:-}" ] && (( $(now_ms) >= DUE[$server] )) &&
				server_heal "$server"
		done
		jobs_live
	done
	well
done

for r in scheduler "${AGENTS[@]}" "${SERVERS[@]}" "${STAY[@]}"; do
	memory_is_kept "$r"
done
for r in "${STAY[@]}"; do
	wait_until 10 "$r has no more than ${MEMFDS[$r]} memfds" memfds_are "$r" "${MEMFDS[$r]}"
	wait_until 10 "$r has no more than ${FDS[$r]} descriptors" fds_are "$r" "${FDS[$r]}"
done
touch "$TMP"/{three,two,less}.stop
for rank in three.0 three.1 three.2 two.0 two.1 less.{0,1,2,3}; do expect_end 60 $rank 0; done
cat "$TMP"/less.[0-3].worlds >> "$TMP/less.worlds"
awk '$2 in line && line[$2] != $0 { print line[$2] ", and " $0; n++ } { line[$2] = $0 }
	END { exit n > 0 }' "$TMP/less.worlds" > "$TMP/worlds.log" ||
	fail "ranks had results of different worlds: $(head -n 3 "$TMP/worlds.log")"
(( $(wc -l < "$TMP/less.worlds") > $(rounds_of less.0) )) || fail 'ranks do not tell worlds'
wait_until 30 'no job is left' no_jobs
for r in scheduler "${AGENTS[@]}" "${SERVERS[@]}"; do
	wait_until 30 "$r has given all shared memory back" memfds_are "$r" 0
	wait_until 30 "$r has no more than ${FDS[$r]} descriptors" fds_are "$r" "${FDS[$r]}"
done
for rank in three.0 two.0 less.0; do say "$rank: $(tail -n 1 "$TMP/$rank.log")"; done
for how in killed ended stopped 'cut off' drained agent brief rank scheduler visitor; do
	(( ${DID[$how]:-0} || DURATION < 300 )) || fail "in $DURATION s not once: $how"
done
for how in "${!DID[@]}"; do say "$how: ${DID[$how]} times"; done
all=${DID[*]}
say "$(( ${all// /+} )) troubles in $DURATION s"
say "no wrong bit, no stuck round, nothing kept; seed $SEED"

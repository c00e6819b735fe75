#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# LONG
# Chunks are on their way to another server, or somebody has heard of it and others have not,
# when a server or the scheduler dies; and a barrier of which some have the answer and others
# have not.  The job goes on, with the bits of an undisturbed run.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

# An offer goes with a server's heartbeat, and who is stopped has a lease of 3 s for it.
start_ns_cluster 2 3 --heartbeat-ms 200

# deaf yes|no: what the scheduler sends to agent a1's machine reaches nobody; a1 it can hear.
deaf()
{
	if [ "$1" = yes ]; then
		in_ns sw ip neigh replace 10.77.0.11 lladdr 02:00:00:00:00:99 dev br0 nud permanent
	else
		in_ns sw ip neigh del 10.77.0.11 dev br0
	fi
}
drain() { tally drain --no-wait "$@" > "$TMP/out" 2>&1 || fail "drain $*: $(cat "$TMP/out")"; }
server() { start_in "cpu$1" "s$1" "$BIN/tally-server" --scheduler "$SCHEDULER" \
	--listen "10.77.0.$(( 110 + $1 )):0" --name "s$1" --machine-id "cpu$1" --engines 1 \
	--memory 256M --shm-socket "$TMP/s$1.shm"; }
servers_in()
{
	tally jobs --json --job "$1" 2>/dev/null | sed -n 's/.*"servers": *\([0-9]*\).*/\1/p'
}
servers_of() { [ "$(servers_in "$1")" = "$2" ]; }
others_of() { local n; n=$(servers_in "$1"); [ "${n:-$2}" != "$2" ]; }
epoch_of() { sed -n "s/.* job $1 epoch \([0-9]*\), .*/\1/p" "$TMP/scheduler.log" | tail -n 1; }
moved_on() { local e; e=$(epoch_of "$1"); (( ${e:-0} > $2 )); }
new_scheduler()
{
	start_in sw scheduler "$BIN/tally-scheduler" --listen "$SCHEDULER" \
		--state-dir "$TMP/state" --heartbeat-ms 200
}
kill_scheduler()
{
	kill_now scheduler KILL
	wait_until 20 'the scheduler is gone' ended scheduler
}
is_active()
{
	tally status --timeout 1 2>/dev/null > "$TMP/status" &&
		! grep -q recovering "$TMP/status"
}

# train JOB: a rank on each machine.
train()
{
	local r

	for r in 0 1; do start_trainer "$1" $r 2 a$r; done
	wait_until 30 "$1 trains" has_rounds "$1.0" 5
}
# finished JOB WHAT: with the bits of the undisturbed run.
finished()
{
	local r

	stop_training "$1"
	for r in 0 1; do
		expect_end 90 "$1.$r" 0
		[ "$(hash_of "$1.$r")" = "$(hash_of calm.0)" ] ||
			fail "rank $r of $1 has other bits"
	done
	say "note: $2: $(sed -n 's/^hash.* longest/the longest round took/p' "$TMP/$1.0.log")"
}

train calm
finished calm 'undisturbed'

# ---- a server dies while an epoch is under way: an agent that stands still holds that up ----
deaths_of() { grep -c "server $1 .*-> dead" "$TMP/scheduler.log"; }
died_again() { (( $(deaths_of "$1") > $2 )); }

# An agent of which nothing is heard for 3 s is away, and then no epoch begins: too late.
aways() { grep -c 'agent a1 up -> away' "$TMP/scheduler.log"; }
away_again() { (( $(aways) > $1 )); }
moves_or_away() { moved_on "$1" "$2" || away_again "$3"; }

# once_more TRY JOB COUNT TALLY-DRAIN...: it was too late; that is undone when JOB, which had COUNT
# servers, has heard of it.
once_more()
{
	local job=$2 count=$3

	(( $1 < 5 )) || fail 'a1 was taken for away each time'
	shift 3
	wait_until 30 "$job has heard of it" others_of "$job" "$count"
	if [ "$1" = --undo ]; then drain "$2"; else drain --undo "$1"; fi
	wait_until 30 "$job has $count servers again" servers_of "$job" "$count"
}

# under_way JOB SERVER WHAT TALLY-DRAIN...: that moves chunks, and meanwhile SERVER dies.
under_way()
{
	local job=$1 server=$2 what=$3 before now aways count deaths n

	train "$job"
	for (( n = 1; ; n++ )); do
		before=$(epoch_of "$job") aways=$(aways) count=$(servers_in "$job")
		kill_now a1 STOP
		drain "${@:4}"
		wait_until 20 "$job has an epoch" moves_or_away "$job" "${before:-0}" "$aways"
		! moved_on "$job" "${before:-0}" || break
		kill_now a1 CONT
		once_more $n "$job" "$count" "${@:4}"
	done
	now=$(epoch_of "$job")
	wait_line 10 a0 "'$job' epoch $now"
	deaths=$(deaths_of "$server")
	kill_now "$server" KILL
	wait_until 10 "$server is declared dead" died_again "$server" "$deaths"
	has_line scheduler "job $job epoch $now is settled" && fail "epoch $now is over already"
	kill_now a1 CONT
	finished "$job" "$what, and meanwhile $server dies"
	server "${server#s}"
	wait_line 15 "$server" 'registered, node'
}
repaired() { has_line scheduler "job $1 epoch [0-9]+, a lost server" || fail "$1: no repair"; }

for s in s1 s2; do
	drain s2
	under_way "join-$s" $s 's2 comes in' --undo s2
	repaired "join-$s"
done
for s in s1 s0; do
	under_way "drain-$s" $s 's0 is drained' s0
	[ $s = s0 ] || repaired "drain-$s"	# who has no share in the newest is not missed
	[ $s = s0 ] || drain --undo s0
done

# ---- the scheduler dies, and only servers have heard of the newest epoch ----
drain s2
start_in gpu0 g0 "$BIN/tally-server" --scheduler "$SCHEDULER" --listen 10.77.0.10:0 --name g0 \
	--machine-id gpu0 --engines 1 --memory 256M --shm-socket "$TMP/g0.shm"
wait_line 10 g0 'registered, node'
train servers
for (( n = 1; ; n++ )); do
	before=$(epoch_of servers) deaths=$(deaths_of s1)
	kill_now s1 STOP		# it has no answer: no agent hears of it, for 3 s
	drain --undo s2
	wait_line 10 s2 'job [0-9]+ up'
	wait_until 10 'there is a new epoch' moved_on servers "${before:-0}"
	kill_now scheduler STOP		# what it has not said by now it will not say
	now=$(epoch_of servers)
	died_again s1 "$deaths" || break
	kill_now scheduler CONT
	(( n < 3 )) || fail 's1 was declared dead each time'
	kill_now s1 CONT
	wait_until 30 'all four serve' servers_of servers 4
	drain s2
	wait_until 30 'three serve' servers_of servers 3
done
kill_scheduler
kill_now s1 CONT
has_line a0 "'servers' epoch $now" && fail 'an agent has heard of it'
new_scheduler
wait_until 20 'it has recovered' is_active
wait_until 20 'all four serve' servers_of servers 4
for s in s0 g0 s2; do is_running "$(pid_of $s)" || fail "$s was ended"; done
for s in s0 g0; do has_line $s 'cannot take an entry back' || fail "$s has not heard of it"; done
finished servers 'only servers have heard of an epoch when the scheduler dies'

# ---- an agent has missed an epoch, a tensor and a barrier's end when the scheduler dies ----
# ready NAME MEET DECLARE: two jobs, one before a barrier in which rank 1 is already, the other one
# before it declares.
ready()
{
	local r

	for r in 0 1; do
		[ "$1" = agent ] || TROUBLE_TIMEOUT=40 start_rank "$3" $r 2 a$r \
			"until:$TMP/$3.go" declare:x:3000 rounds:x:3
		start_rank "$2" $r 2 a$r declare:w:1000 rounds:w:1 "until:$TMP/$2.go.$r" \
			say:there barrier:60 rounds:w:3
	done
	for r in 0 1; do
		[ "$1" = agent ] || wait_line 20 "$3.$r" '^attached'
		wait_line 20 "$2.$r" '^done rounds'
	done
	touch "$TMP/$2.go.1"
	wait_line 10 "$2.1" '^there'
}
# has_missed NAME MEET DECLARE TRAIN BEFORE AWAYS: the others have heard of all of it, or a1 is
# away.
has_missed()
{
	local now

	now=$(epoch_of "$4")
	away_again "$6" || { (( ${now:-0} > $5 )) && has_line a0 "'$4' epoch $now" &&
		has_line "$2.0" '^done barrier' &&
		{ [ "$1" = agent ] || has_line "$3.0" '^done declare'; }; }
}
come_through()
{
	local r

	for r in 0 1; do
		expect_end 60 "$2.$r" 0
		[ "$1" = agent ] || expect_end 60 "$3.$r" 0
	done
}

# missed NAME WHAT: that of agent a1.  With NAME "agent" who has heard is another process then;
# a tensor of which only such a one has heard nobody knows any more, so none is declared there.
missed()
{
	local train=train-$1 meet declare before aways count now r n

	train "$train"
	for (( n = 1; ; n++ )); do
		meet=meet-$1-$n declare=declare-$1-$n
		ready "$1" "$meet" "$declare"
		before=$(epoch_of "$train") aways=$(aways) count=$(servers_in "$train")
		deaf yes
		touch "$TMP/$declare.go" "$TMP/$meet.go.0"
		drain s0
		wait_until 20 'it has missed them' has_missed "$1" "$meet" "$declare" "$train" \
			"${before:-0}" "$aways"
		away_again "$aways" || break
		deaf no
		come_through "$1" "$meet" "$declare"
		once_more $n "$train" "$count" s0
	done
	now=$(epoch_of "$train")
	kill_scheduler
	has_line "$meet.1" '^done barrier' && fail 'rank 1 has heard of the end of the barrier'
	[ "$1" = agent ] || ! has_line "$declare.1" '^done declare' ||
		fail 'rank 1 has heard of the tensor'
	has_line a1 "'$train' epoch $now" && fail 'a1 has heard of the epoch'
	if [ "$1" = agent ]; then
		kill_now a0 KILL
		wait "$(pid_of a0)" 2>/dev/null
		start_agent_in 0
	fi
	deaf no
	new_scheduler
	wait_until 20 'it has recovered' is_active
	come_through "$1" "$meet" "$declare"
	finished "$train" "$2"
}

missed scheduler 'an agent has missed an epoch, a tensor and the end of a barrier'
drain --undo s0
missed agent 'the same, and the agent that has heard of them is started again'

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# While a rank comes into a job in the place of a lost one it dies, a survivor dies, or its
# machine is cut off: the others train on, and it, or the next one, comes in later.  And the
# root of a broadcast is lost before it gave its data: the job ends, and says whose it was.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_ns_cluster 2 2
STEPS=500 GROW_FROM=1

# grow NAME RANK AGENT: a rank of the job, or another process in its place.
grow()
{
	runs_on job "$2" "$3"
	start_daemon "$1" env TALLY_JOB=job TALLY_RANK="$2" TALLY_WORLD_SIZE=4 \
		TALLY_SOCKET="$TMP/$3.sock" TROUBLE_MACHINES="$TMP/job.machines" \
		GROW_GATE="$TMP/gate" \
		"$PYTHON" "$ROOT/tests/grow_rank.py" 4 $STEPS 0.02 $GROW_FROM
}
job_says() { tally jobs 2>/dev/null | grep -Eq "(^| )$1 .*$2"; }
step_of() { sed -n 's/^step \([0-9]*\) .*/\1/p' "$TMP/$1.log" | tail -n 1; }
steps_on() { local n; n=$(step_of "$1"); (( ${n:-0} > $2 )); }
goes_on() { wait_until 30 "$1 goes on" steps_on "$1" $(( $(step_of "$1") + 2 )); }
larger() { grep -c 'job job epoch [0-9]*, the world is larger' "$TMP/scheduler.log"; }
larger_again() { (( $(larger) > $1 )); }
losses() { grep -c 'job job loses' "$TMP/scheduler.log"; }
more_lost() { (( $(losses) > $1 )); }
closed() { rm -f "$TMP/gate"; }
opened() { touch "$TMP/gate"; }
# world_is NAME BITS WHO: its last sum was of those ranks.  (A line may be half written.)
world_is()
{
	local last

	last=$(grep '^step [0-9]* [0-9a-f]*:' "$TMP/$1.log" | tail -n 1)
	[[ $last =~ ^step\ [0-9]+\ $2: ]] || fail "the world is not $3: $last"
}

# Somebody waits: the survivors let it in, and a server that stands still holds that up.
coming_in()
{
	local before

	wait_until 20 "tally jobs shows that $1 waits" job_says job "rank $1 waits to come in"
	before=$(larger)
	kill_now s0 STOP
	opened
	wait_until 10 'it comes in' larger_again "$before"
	closed
}

# dies VICTIM WORLD RANK...: meanwhile; these train on, and that is who they are.
dies()
{
	local lost r

	lost=$(losses)
	kill_now "$1" KILL
	wait_until 10 'it is missed' more_lost "$lost"
	kill_now s0 CONT
	opened
	for r in "${@:3}" job.0; do goes_on "$r"; done
	world_is job.0 "$2" "$2, of ${*:3}"
	closed
}

# ---- the only agent that knows the rounds is started again, before any barrier ----
for r in 0 1 2 3; do grow job.$r $r a$(( r / 2 )); done
for r in 0 1 2 3; do wait_line 30 job.$r '^params 1 '; done
for r in 1 2 3; do kill_now job.$r KILL; done
wait_until 10 'three are missed' more_lost 2
grow job.2 2 a1
coming_in 2
kill_now a0 KILL
wait "$(pid_of a0)" 2>/dev/null
start_agent_in 0
wait_line 20 scheduler 'agent a0 away -> up'
kill_now s0 CONT
opened
wait_until 30 'it comes in' has_line job.2 '^step '
wait_until 30 'rank 0 has that sum, too' has_line job.0 '^step 2 '
world_is job.0 5 'ranks 0 and 2'
say 'the agent of the others is started again meanwhile: it comes in at their rounds'
closed
for r in 1 3; do grow job.$r $r a$(( r / 2 )); done
wait_until 20 'both wait' job_says job 'rank 1, 3 wait to come in'
opened
for r in 0 1 2 3; do wait_until 30 "rank $r trains" steps_on job.$r 3; done
lost=$(losses)
kill_now job.3 KILL
wait_until 20 'it is missed' more_lost "$lost"
closed

# ---- who comes in dies ----
grow job.3a 3 a1
coming_in 3
dies job.3a 7 job.0 job.1 job.2
say 'who comes in dies: the survivors train on without it'

# ---- a survivor dies ----
grow job.3b 3 a1
coming_in 3
dies job.1 d job.0 job.2 job.3b
say 'a survivor dies: the others train on with who came in'

# ---- the machine of who comes in is cut off, and nobody else is on it ----
lost=$(losses)
for r in 2 3b; do kill_now job.$r KILL; done
wait_until 10 'both are missed' more_lost $(( lost + 1 ))
opened
goes_on job.0
world_is job.0 1 'rank 0'
closed
grow job.1c 1 a0
grow job.2c 2 a1
wait_until 20 'both wait' job_says job 'rank 1, 2 wait to come in'
before=$(larger)
kill_now s0 STOP
opened
wait_until 10 'they come in' larger_again "$before"
in_ns sw ip link set p-gpu1 down
kill_now s0 CONT
wait_line 20 scheduler 'agent a1 up -> away'
in_ns sw ip link set p-gpu1 up
wait_line 20 scheduler 'agent a1 away -> up'
wait_until 60 'it comes in when it is back' has_line job.2c '^step '
for r in 0 1c 2c; do goes_on job.$r; done
world_is job.0 7 'ranks 0 to 2'
say 'its machine is cut off meanwhile: it comes in when that is back'
for r in 0 1c 2c; do expect_end 120 job.$r 0; done
grep '^step' "$TMP/job.2c.log" > "$TMP/last"
for r in 0 1c; do
	grep '^step' "$TMP/job.$r.log" | tail -n "$(wc -l < "$TMP/last")" | cmp - "$TMP/last" ||
		fail "rank $r has other bits than who came in"
done
say "from then on all have the same bits, in $(wc -l < "$TMP/last") steps"

# ---- the root of a broadcast is lost ----
export TROUBLE_ON_LOSS=shrink
for r in 0 1 2; do
	start_rank root $r 3 a$(( r / 2 )) declare:w:200000 say:ready \
		$( (( r )) || echo "until:$TMP/never" ) broadcast:w:0
done
for r in 0 1 2; do wait_line 20 root.$r '^ready'; done
waits() { tally tensors --stuck 2>/dev/null | grep -q 'w .*rank 0'; }
wait_until 20 'the others wait for the root' waits
kill_now root.0 KILL
for r in 1 2; do expect_error 20 root.$r "ESHUTDOWN .*rank 0"; done
say "$(sed -n 's/^ERROR //p' "$TMP/root.1.log")"

# ---- so it is when it was lost before, and the scheduler dies before it has read that ----
for r in 0 1 2; do
	start_rank late $r 3 a$(( r / 2 )) declare:w:200000 rounds:w:1 say:ready \
		$( (( r )) && echo "until:$TMP/late.go" broadcast:w:0 || echo pause )
done
for r in 0 1 2; do wait_line 20 late.$r '^ready'; done
kill_now late.0 KILL
wait_line 20 scheduler 'job late epoch [0-9]* is settled'
kill_now scheduler STOP
touch "$TMP/late.go"
for r in 1 2; do wait_line 20 late.$r '^done until'; done
pause_ms 300			# they have said so by then, or say it later
ended late.1 && fail 'the scheduler has not read it'
kill_now scheduler KILL
wait "$(pid_of scheduler)" 2>/dev/null
start_in sw scheduler "$BIN/tally-scheduler" --listen "$SCHEDULER" --state-dir "$TMP/state"
for r in 1 2; do expect_error 30 late.$r "ESHUTDOWN .*rank 0"; done
say "$(sed -n 's/^ERROR //p' "$TMP/late.1.log"), after the scheduler was started again"
works after a0 a1

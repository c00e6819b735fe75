#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# LONG
# Agents are killed, or stopped, and started again while their ranks train, alone and with the
# scheduler: a pause, no error, and the bits of the run without.  One that does not come back
# is named in time.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_scheduler --agent-grace 20
for a in a0 a1; do start_agent $a; done
start_server s0
start_server g0 --machine-id a0		# its agent shows it the ranks' memory
wait_until 60 'all nodes are registered' nodes_up 4

# train JOB PLACE: two ranks on each agent; PLACE: in-place, or results apart.
train()
{
	local r

	for r in 0 1 2 3; do
		TROUBLE_PLACE=$2 start_trainer "$1" $r 4 a$(( r / 2 ))
	done
	wait_until 30 "$1 trains" has_rounds "$1.0" 5
}

longest_of() { sed -n 's/.* longest \([0-9]*\) ms/\1/p' "$TMP/$1.log"; }

# finished JOB WHAT: all ranks end well, with the bits of the undisturbed run.
finished()
{
	local r

	stop_training "$1"
	for r in 0 1 2 3; do
		expect_end 120 "$1.$r" 0
		[ "$(hash_of "$1.$r")" = "${reference:=$(hash_of "$1.$r")}" ] ||
			fail "rank $r of $1 has other bits"
	done
	say "note: $2: longest round $(longest_of "$1.0") ms"
}

# again AGENT SIGNAL JOB: it ends, is started with the same arguments, the job goes on.
again()
{
	local before=$(( $(date +%s%N) / 1000000 )) down

	kill_now "$1" "$2"
	wait "$(pid_of "$1")" 2>/dev/null
	down=$(( $(date +%s%N) / 1000000 ))
	start_agent "$1"
	wait_until 10 "$1 takes $3 over" has_line "$1" "'$3' goes on"
	train_more "$3.0" 1 20
	say "$1 $2: ended in $(( down - before )) ms, training again" \
		"$(( $(date +%s%N) / 1000000 - down )) ms after the start"
}

train calm apart
finished calm 'undisturbed'

for place in apart in-place; do
	train "kill-$place" $place
	for a in a0 a1 a0 a0; do again $a KILL "kill-$place"; done
	finished "kill-$place" "killed four times, results $place"
done

train term in-place
for a in a1 a0; do again $a TERM term; done
finished term 'stopped and started'

train both in-place
kill_now a0 KILL
kill_now a1 KILL
for a in a0 a1; do wait "$(pid_of $a)" 2>/dev/null; start_agent $a; done
train_more both.0 1 20
finished both 'both at once'

# ---- while a server is out of the job, which then comes into it again ----
servers_are() { "$BIN/tally" jobs --json --job "$1" | grep -Eq "\"servers\": *$2(,|\$)"; }
train drained in-place
expect_status 0 "$BIN/tally" drain s0
again a1 KILL drained
expect_status 0 "$BIN/tally" drain --undo s0
wait_until 30 's0 is used again' servers_are drained 2
finished drained 'killed while a server was drained'

# ---- together with the scheduler, which has to recover first ----
start_again()
{
	case $1 in
	scheduler) start_daemon scheduler "$BIN/tally-scheduler" --listen "$SCHEDULER" \
			--state-dir "$TMP/state" --agent-grace 20 ;;
	*) start_agent "$1" ;;
	esac
}
train scheduler-first in-place
kill_all a1 scheduler
start_again scheduler
start_again a1
wait_line 10 a1 'agents that it did not know register when it has'
train_more scheduler-first.0 1 30
finished scheduler-first 'killed with the scheduler, which came first'

train agent-first in-place
kill_all scheduler a1
start_again a1
wait_line 10 a1 "no connection to scheduler $SCHEDULER, reason .*trying again"
start_again scheduler
train_more agent-first.0 1 30
finished agent-first 'killed with the scheduler, which came last'

# The agent is back when the scheduler dies, and one of its ranks is not.
lives='agent a1 \(its processes live\), [0-9]+ s left'
train between apart
kill_now between.3 STOP
kill_all a1
start_again a1
wait_until 60 'a1 is registered' nodes_up 4
wait_until 10 'its ranks are waited for' job_says between "$lives"
kill_all scheduler
start_again scheduler
wait_until 40 'they are waited for again' job_says between "$lives"
kill_now between.3 CONT
train_more between.0 1 30
finished between 'the scheduler killed while its ranks come back'

# ---- every call, in one job over both machines and in one on a machine of its own ----
calls()
{
	local job=$1 r=0 a

	shift
	for a; do
		start_program restart_rank.py "$job" $(( r++ )) $# "$a" "$TMP/$job.stop"
	done
	wait_until 30 "$job trains" has_rounds "$job.0" 3
}

calls narrow a0 a0
calls wide a0 a0 a1 a1
for a in a0 a1 a0; do again $a KILL wide; done
for job in wide narrow; do stop_training $job; done
for r in 0 1 2 3; do expect_end 120 wide.$r 0; done
for r in 0 1; do expect_end 120 narrow.$r 0; done
say 'every kind of call: right sums, no error'

# ---- a job that would go on without them does not have to ----
export TROUBLE_ON_LOSS=shrink
train shrink apart
for a in a1 a0; do again $a KILL shrink; done
finished shrink 'a job that may shrink'
unset TROUBLE_ON_LOSS

# ---- for good ----
train lost apart
before=$(date +%s)
kill_now a1 KILL
for r in 2 3; do expect_error 50 lost.$r 'EAGENT .*not back within 30 s'; done
for r in 0 1; do expect_error 10 lost.$r 'EWORKERLOST rank 2 and 1 more on machine a1'; done
took=$(( $(date +%s) - before ))
(( took >= 29 && took <= 60 )) || fail "the ranks heard after $took s of a grace of 20 s"
say "gone for good: named after $took s"

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# LONG
# Without the scheduler: who needs it says so and keeps trying, who trains trains on;
# a new one on the same state takes everything back; one that stood still goes on.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

# start_scheduler_at ADDRESS [OPTION...]: as start_scheduler, on a port known before.
start_scheduler_at()
{
	start_daemon scheduler "$BIN/tally-scheduler" --listen "$1" \
		--state-dir "${state:-$TMP/state}" "${@:2}"
}
answers() { "$BIN/tally" status --timeout 1 --scheduler "$SCHEDULER" > "$TMP/status" 2>&1; }
is_active() { answers && ! grep -q recovering "$TMP/status"; }
epoch()
{
	"$BIN/tally" status --json --timeout 10 --scheduler "$SCHEDULER" |
		sed -n 's/.*"epoch": *\([0-9]*\).*/\1/p' | head -1
}
# tuning JOB: what its chunks, segments and windows were made.
tuning()
{
	"$BIN/tally" jobs --json --timeout 10 --job "$1" --scheduler "$SCHEDULER" |
		sed -n 's/.*"\(chunk\|segment\|window\)_bytes": *\([1-9][0-9]*\).*/\1 \2/p' | xargs
}

# ---- none there ----
start_scheduler
kill_now scheduler KILL
wait_until 20 'the scheduler is gone' ended scheduler
start_agent a0
start_agent a1
start_server s0
for d in a0 a1 s0; do
	wait_line 10 $d "no connection to scheduler $SCHEDULER, reason .*listens there.*again"
done
TROUBLE_TIMEOUT=5 start_rank none 0 1 a0
expect_error 40 none.0 "ESCHED agent a0: no connection to scheduler $SCHEDULER: .*nobody lis"
start_rank early 0 2 a0 declare:w:1000 rounds:w:2
start_rank early 1 2 a1 declare:w:1000 rounds:w:2
for d in a0 a1 s0; do is_running "$(pid_of $d)" || fail "$d gave up"; done
start_scheduler_at "$SCHEDULER"
wait_until 60 'all nodes have found it' nodes_up 3
for r in 0 1; do expect_end 30 early.$r 0; done
say 'none there: daemons keep trying and say so, attach says ESCHED, who waits gets in'

# ---- killed while jobs train ----
start_rank job 0 2 a0 declare:w:100000 "train:w:$TMP/enough" declare:x:3000 barrier:30 rounds:x:3
start_rank job 1 2 a1 declare:w:100000 "train:w:$TMP/enough" declare:x:3000 barrier:30 rounds:x:3
TROUBLE_TIMEOUT=5 start_rank ask 0 1 a0 "until:$TMP/ask" declare:late:10
start_rank meet 0 2 a0 "until:$TMP/meet" say:there barrier:60
start_rank meet 1 2 a1 say:there barrier:60 say:through
start_rank gone 0 2 a0 declare:w:100000 "train:w:$TMP/never"
start_rank gone 1 2 a1 declare:w:100000 "train:w:$TMP/never"
for j in job gone; do train_more $j.0 1 20; done
wait_line 20 ask.0 '^attached'
wait_line 20 meet.1 '^there'
before=$(epoch)
[ -n "$before" ] || fail 'no epoch in the status'
tuned=$(tuning job)
[[ $tuned =~ ^chunk\ [0-9]+\ segment\ [0-9]+\ window\ [0-9]+$ ]] || fail "tuning is $tuned"
kill_now scheduler KILL
wait_until 20 'the scheduler is gone' ended scheduler
train_more job.0 50
touch "$TMP/ask"
expect_error 40 ask.0 "ESCHED agent a0: no connection to scheduler $SCHEDULER: "
touch "$TMP/meet"			# a barrier entered before, and one meanwhile
wait_line 10 meet.0 '^there'
kill_now gone.1 KILL			# who dies meanwhile is told when it is back
train_more job.0 20
start_scheduler_at "$SCHEDULER"
wait_until 15 'it answers' answers
train_more job.0 20
wait_until 20 'it has recovered' is_active
[ "$(tuning job)" = "$tuned" ] || fail "tuning was $tuned, is $(tuning job)"
expect_error 20 gone.0 'EWORKERLOST rank 1 on machine a1 is gone'
train_more job.0 20
for r in 0 1; do expect_end 20 meet.$r 0; done
touch "$TMP/enough"
for r in 0 1; do expect_end 30 job.$r 0; done
after=$(epoch)
(( after >= before )) || fail "the epoch went back from $before to $after"
say 'killed and restarted: jobs train on, declare and meet at barriers, also those begun before'

works after a0 a1
(( $(epoch) > before )) || fail 'a new job has no new epoch'

# ---- a rank has detached, and whoever knows of it is started again ----
start_rank early-bird 0 3 a0 declare:w:1000 rounds:w:3 "until:$TMP/once" alloc:64 say:back \
	"until:$TMP/twice" alloc:64 say:again "until:$TMP/leave"
start_rank early-bird 1 3 a0 declare:w:1000 rounds:w:3
start_rank early-bird 2 3 a1 declare:w:1000 rounds:w:3 "until:$TMP/leave"
expect_end 20 early-bird.1 0
kill_all a0
start_agent a0
touch "$TMP/once"
wait_line 20 early-bird.0 '^back'
kill_all scheduler
start_scheduler_at "$SCHEDULER"
wait_until 20 'it has recovered' is_active
wait_until 10 'rank 1 has left' job_says early-bird ' 2/3 '
kill_all a0 scheduler
start_scheduler_at "$SCHEDULER"
start_agent a0
touch "$TMP/twice"
wait_line 30 early-bird.0 '^again'
wait_until 20 'it is still known that rank 1 has left' job_says early-bird ' 2/3 '
touch "$TMP/leave"
for r in 0 2; do expect_end 20 early-bird.$r 0; done
say 'who has detached is known after agents and schedulers were killed'

# ---- stopped for longer than a lease, alone and with everybody else ----
start_rank stop 0 2 a0 declare:w:100000 "train:w:$TMP/stop"
start_rank stop 1 2 a1 declare:w:100000 "train:w:$TMP/stop"
train_more stop.0 1 20
lost() { grep -c "scheduler $SCHEDULER lost" "$TMP/$1.log"; }
more_lost() { (( $(lost "$1") > $2 )); }
declare -A losses
for d in a0 a1 s0; do losses[$d]=$(lost $d); done
kill_now scheduler STOP
for d in a0 a1 s0; do wait_until 15 "$d misses it" more_lost $d ${losses[$d]}; done
train_more stop.0 20
kill_now scheduler CONT
wait_until 15 'all nodes have found it again' nodes_up 3
train_more stop.0 20
stopped=$(now_ms)
over_a_lease() { (( $(now_ms) > stopped + 3500 )); }
for d in scheduler a0 a1 s0; do kill_now $d STOP; done
wait_until 10 'a lease is over' over_a_lease
for d in s0 scheduler a0 a1; do kill_now $d CONT; done
train_more stop.0 20
touch "$TMP/stop"
for r in 0 1; do expect_end 30 stop.$r 0; done
say 'stopped for longer than a lease: it blames nobody for what it did not hear'

# ---- an agent stands still while it dies, comes back and recovers ----
for r in 0 1; do
	start_rank late $r 2 a$r declare:w:100000 "train:w:$TMP/late" declare:x:3000 rounds:x:3
done
start_rank lone 0 1 a0 declare:w:1000 "train:w:$TMP/late" declare:x:3000 rounds:x:3
for j in late lone; do train_more $j.0 1 20; done
kill_now a0 STOP
kill_now scheduler KILL
wait_until 20 'the scheduler is gone' ended scheduler
start_scheduler_at "$SCHEDULER"
wait_until 20 'it has recovered' is_active
wait_until 20 'the job says whom it waits for' job_says late 'agent a0, [0-9]+ s left'
kill_now a0 CONT
wait_line 15 scheduler 'job late goes on with machine a0, which tells of it late'
wait_until 20 'it waits for nobody' no_job_says late 'agent a0'
for j in late lone; do train_more $j.0 20; done
touch "$TMP/late"
for j in late.0 late.1 lone.0; do expect_end 30 $j 0; done
say 'an agent that stood still through the recovery: its jobs go on when it does'

# ---- a job that fails just when it dies ----
start_rank calm 0 1 a0 declare:w:1000 "train:w:$TMP/calm"
start_rank fail 0 2 a0 declare:grad:1000 "until:$TMP/fail" submit:grad:sum say:there wait:60
start_rank fail 1 2 a0 declare:grad:1000 "until:$TMP/fail" submit:grad:mean say:there wait:60
for r in 0 1; do wait_line 20 fail.$r '^done declare'; done
train_more calm.0 5
kill_now scheduler STOP
touch "$TMP/fail"
for r in 0 1; do wait_line 10 fail.$r '^there'; done
train_more calm.0 20			# by now the agent has seen it, too
kill_now scheduler KILL
wait_until 20 'the scheduler is gone' ended scheduler
start_scheduler_at "$SCHEDULER"
for r in 0 1; do expect_error 20 fail.$r "EMISMATCH .*'grad' round 1"; done
wait_until 20 'it has recovered' is_active
say 'killed before it has read that a job failed: it is told again'

# While it is gone; another machine, too, has to hear why.
for r in 0 1 2; do
	(( r == 1 )) && op=mean || op=sum
	start_rank fail2 $r 3 a$(( r / 2 )) declare:grad:1000 "until:$TMP/fail2" submit:grad:$op \
		say:there wait:60
done
for r in 0 1 2; do wait_line 20 fail2.$r '^done declare'; done
kill_now scheduler KILL
wait_until 20 'the scheduler is gone' ended scheduler
touch "$TMP/fail2"
for r in 0 1 2; do wait_line 10 fail2.$r '^there'; done
train_more calm.0 20
start_scheduler_at "$SCHEDULER"
for r in 0 1 2; do expect_error 30 fail2.$r "EMISMATCH .*'grad' round 1"; done
touch "$TMP/calm"
expect_end 20 calm.0 0
wait_until 20 'it has recovered' is_active
say 'a job that failed while it was gone: every machine hears why'

# ---- it comes back without its state ----
start_rank kept 0 2 a0 declare:w:1000 "train:w:$TMP/kept-enough" say:through
start_rank kept 1 2 a1 declare:w:1000 "train:w:$TMP/kept-enough" say:through
train_more kept.0 5 20
kill_now scheduler KILL
wait_until 20 'the scheduler is gone' ended scheduler
state=$TMP/other-state start_scheduler_at "$SCHEDULER"
wait_line 20 scheduler 'node (a0|a1|s0) is refused, reason .* belongs to another cluster'
wait_line 20 a0 'no connection to scheduler .* reason .*belongs to another cluster'
train_more kept.0 20
train_more kept.1 20
expect_status 0 "$BIN/tally" nodes --scheduler "$SCHEDULER"
expect_text "$TMP/out" '^NODE '
grep -E '^(a0|a1|s0) ' "$TMP/out" && fail 'who trains has joined another cluster'
kill_now scheduler KILL
wait_until 20 'the scheduler is gone' ended scheduler
start_scheduler_at "$SCHEDULER"
wait_until 20 'it has recovered' is_active
train_more kept.0 5
touch "$TMP/kept-enough"
for r in 0 1; do expect_end 20 kept.$r 0; done
say 'back without its state: it gets nobody who trains, and the jobs go on when it has it again'

# ---- it comes back with a secret that nobody knows ----
for r in 0 1; do start_rank secret $r 2 a$r declare:w:1000 "train:w:$TMP/secret-enough"; done
train_more secret.0 5 20
kill_now scheduler KILL
wait_until 20 'the scheduler is gone' ended scheduler
(umask 077; echo sesame > "$TMP/secret")
start_scheduler_at "$SCHEDULER" --secret-file "$TMP/secret"
for d in a0 a1 s0; do
	wait_line 20 $d 'no connection to scheduler .* refuses this node: wrong join secret'
done
train_more secret.0 20
kill_now scheduler KILL
wait_until 20 'the scheduler is gone' ended scheduler
start_scheduler_at "$SCHEDULER"
wait_until 20 'it has recovered' is_active
wait_until 15 'all are back' nodes_up 3
train_more secret.0 5
touch "$TMP/secret-enough"
for r in 0 1; do expect_end 20 secret.$r 0; done
say 'back with a secret that nobody knows: who trains goes on, and asks again'

# ---- a drained server stays drained ----
start_server s1
wait_until 60 'it is registered' nodes_up 4
expect_status 0 "$BIN/tally" drain s1
wait_line 10 s1 'server s1 is to drain'
kill_now scheduler KILL
wait_until 20 'the scheduler is gone' ended scheduler
: > "$TMP/state/state"		# as it may be after the power went
start_scheduler_at "$SCHEDULER"
wait_line 10 scheduler 'state is read from state.copy'
node_is() { "$BIN/tally" nodes --timeout 2 2>/dev/null | grep -Eq "^$1 .* $2( |\$)"; }
wait_until 15 'it is drained, still' node_is s1 drained
wait_until 20 'it has recovered' is_active
wait_until 15 'all are back' node_is s0 up
works drained a0 a1
has_line s1 'job [0-9]+ up' && fail 'a drained server was used'
expect_status 0 "$BIN/tally" drain --undo s1
works undrained a0 a1
wait_line 10 s1 'job [0-9]+ up'
say 'killed and restarted, its state file empty: a drained server stays drained, until undone'

no_jobs()
{
	local out

	out=$("$BIN/tally" jobs --json --scheduler "$SCHEDULER") && ! grep -q '"name":' <<< "$out"
}
wait_until 10 'no job is left' no_jobs
for d in scheduler a0 a1 s0; do is_running "$(pid_of $d)" || fail "$d has ended"; done
say "epochs only grow: $before, $after, $(epoch)"

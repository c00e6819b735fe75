#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Who stands still, and goes on: those who read the logs of all daemons; the scheduler, for longer
# than any lease or grace, which counts against nobody; an agent, for longer than its grace: the
# job that went on without it names it, and another process comes in on it.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

DAEMONS='scheduler a0 a1 a2 s0 s1'

# ---- whoever reads the logs ----
# unread NAME COMMAND...: what the daemon logs that this starts goes into a pipe that is full.
mkdir "$TMP/bin"
BIN=$(realpath "$BIN")
for d in tally-scheduler tally-agent tally-server; do
	printf '#!/bin/sh\nexec "%s" "$@" 2> "$UNREAD"\n' "$BIN/$d" > "$TMP/bin/$d"
	chmod +x "$TMP/bin/$d"
done
ln -s "$BIN/tally" "$TMP/bin/tally"
BIN=$TMP/bin
unread()
{
	local held

	mkfifo "$TMP/$1.pipe"
	exec {held}<> "$TMP/$1.pipe"		# who could read, and does not
	yes | dd of="$TMP/$1.pipe" bs=4096 iflag=fullblock oflag=nonblock 2> /dev/null
	UNREAD=$TMP/$1.pipe "${@:2}"
}
unread scheduler start_scheduler --agent-grace 4
for d in a0 a1 a2; do unread $d start_agent $d; done
for d in s0 s1; do unread $d start_server $d; done
wait_until 60 'all nodes are registered' nodes_up 5
for r in 0 1 2; do start_rank calm $r 3 a$r declare:w:200000 "train:w:$TMP/enough"; done
train_more calm.0 20
works unread a0 a1 a2
for d in $DAEMONS; do
	[ ! -s "$TMP/$d.log" ] || fail "$d does not log into the pipe"
	start_daemon read-$d sh -c 'exec grep -av --line-buffered "^y*$" "$0" >> "$1"' \
		"$TMP/$d.pipe" "$TMP/$d.log"
done
works read a0 a1 a2
for d in $DAEMONS; do wait_line 20 $d 'log lines dropped, count [1-9]'; done
train_more calm.0 5
say "whoever reads the logs: $(cat "$TMP"/*.log | sed -n 's/.*lines dropped, count //p' |
	paste -sd ' ') lines were left out, which their writers say"

# ---- the scheduler ----
# The cluster's, and the job's.
epochs() { "$BIN/tally" jobs --json --job calm | grep -o '"epoch": *[0-9]*' | paste -sd ' '; }
has_passed() { (( $(now_ms) - began >= $1 )); }
before=$(epochs)
kill_now scheduler STOP
began=$(now_ms)
train_more calm.0 20
wait_until 60 'it stands still for 8 s' has_passed 8000
train_more calm.0 5
kill_now scheduler CONT
wait_until 60 'it hears everybody' has_line scheduler 'agent a0 away -> up'
wait_until 60 'all nodes are there' nodes_up 5
train_more calm.0 20
[ -n "$before" ] && [ "$(epochs)" = "$before" ] || fail "$before, and then $(epochs)"
! grep -E -- '-> dead|loses (rank|machine)|goes on without' "$TMP/scheduler.log" ||
	fail 'somebody was lost'
works after a0 a1 a2
say 'the scheduler: nobody is lost, and there is no epoch'

# ---- an agent ----
# grow NAME RANK: a process of the job.
grow()
{
	runs_on job "$2" "a$2"
	start_daemon "$1" env TALLY_JOB=job TALLY_RANK="$2" TALLY_WORLD_SIZE=3 \
		TALLY_SOCKET="$TMP/a$2.sock" TROUBLE_MACHINES="$TMP/job.machines" \
		GROW_GATE="$TMP/gate" GROW_LOST="$TMP/job.go" \
		"$PYTHON" "$ROOT/tests/grow_rank.py" 2 60 0.03 20
}
lines_from() { grep '^step\|^params' "$TMP/$1.log" | awk -v from="$2" '$2 >= from'; }
touch "$TMP/enough"
for r in 0 1 2; do expect_end 20 calm.$r 0; done
for r in 0 1 2; do grow job.$r $r; done
wait_line 30 job.0 '^step 5 '
kill_now a1 STOP
wait_until 60 'it is given up' has_line scheduler 'job job loses machine a1'
all_lost job
wait_line 30 job.0 '^step 20 5:'
kill_now a1 CONT
expect_error 30 job.1 'EWORKERLOST .*rank 1 on machine a1'
wait_line 20 a1 "job .* ends, rank 1 on machine a1 was lost .* and job 'job' goes on without it"
grow job.1b 1
wait_until 20 'tally jobs shows who waits' job_says job 'rank 1 waits to come in'
touch "$TMP/gate"
for r in 0 1b 2; do expect_end 60 job.$r 0; done
from=$(lines_from job.1b 0 | sed -n '1s/^step \([0-9]*\) .*/\1/p')
for r in 0 2; do
	cmp <(lines_from job.$r "$from") <(lines_from job.1b 0) || fail "job.$r has other bits"
done
has_line job.1b '^step [0-9]+ 7:' || fail 'the world is not whole'
say "an agent: $(sed -n 's/^ERROR //p' "$TMP/job.1.log"); another one came in at step $from"

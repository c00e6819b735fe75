#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A machine stands still for longer than its grace, and its job goes on without it.  Another
# agent takes its name, its rank comes in by way of that one, and then the first machine goes on
# where it stood: nobody's links are cut for it, its rank hears that it was given up, and its
# agent ends.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_cluster 2 1 --agent-grace 5
STEPS=150 FROM=20		# for that they wait until all are lost, behind it for the gate
NOT_TO=100			# before the first one has heard

# grow NAME RANK AGENT: a rank of the job, or another process in its place.
grow()
{
	runs_on job "$2" "$3"
	start_daemon "$1" env TALLY_JOB=job TALLY_RANK="$2" TALLY_WORLD_SIZE=2 \
		TALLY_SOCKET="$TMP/$3.sock" TROUBLE_MACHINES="$TMP/job.machines" \
		GROW_GATE="$TMP/gate" GROW_LOST="$TMP/job.go" \
		"$PYTHON" "$ROOT/tests/grow_rank.py" 2 $STEPS 0.03 $FROM
}
says() { grep -Ec -- "$2" "$TMP/$1.log"; }
lines_from() { grep '^step\|^params' "$TMP/$1.log" | awk -v from="$2" '$2 >= from'; }

for r in 0 1; do grow job.$r $r a$r; done
wait_line 30 job.0 '^step 5 '
for d in a1 job.1; do kill_now $d STOP; done
all_lost job
wait_until 30 'it goes on without rank 1' has_line job.0 "^step $FROM 1:"

card_of b1
start_daemon b1 "$BIN/tally-agent" --scheduler "$SCHEDULER" --name a1 --machine-id other \
	--engines 1 --socket "$TMP/b1.sock" ${CARD:+--rail "$CARD"}
wait_until 20 'another a1 is there' nodes_up 3
grow job.1b 1 b1
wait_until 20 'tally jobs shows who waits' job_says job 'rank 1 waits to come in'
echo $NOT_TO > "$TMP/gate"
wait_line 20 job.1b '^step '

# ---- the first one is back ----
for d in a1 job.1; do kill_now $d CONT; done
expect_error 20 job.1 "EWORKERLOST another agent is registered as 'a1', from machine other, "
expect_end 20 a1 1
wait_line 20 a1 'refuses tally-agent: another agent is registered'
: > "$TMP/gate"
for r in 0 1b; do expect_end 60 job.$r 0; done
say "$(sed -n 's/^ERROR //p' "$TMP/job.1.log")"

from=$(lines_from job.1b 0 | sed -n '1s/^step \([0-9]*\) .*/\1/p')
cmp <(lines_from job.0 "$from") <(lines_from job.1b 0) || fail 'their bits differ'
! lines_from job.1b 0 | grep '^step' | grep -qv '^step [0-9]* 3:' || fail 'the world is not whole'
[ "$(says s0 'was started again')" = 1 ] || fail 's0 had more than one new process of a1'
# But for a server that got no CPU for so long.
! grep 'link to server .* lost' "$TMP/b1.log" | grep -qv 'nothing comes from' ||
	fail 'the other a1 lost its links'
[ "$(says s0 'wrong key')" = 0 ] || fail 's0 warns of what is in the normal course'
[ "$(says scheduler 'node a1 is refused')" -le 2 ] || fail 'the scheduler says it again and again'
say "from step $from on both have the same bits, and no link was cut"
works after a0 b1

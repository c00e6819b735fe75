#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Who comes in the place of a lost rank finds rounds that were begun: by the lost one, which is
# nothing to it, and by the survivors, who wait for what it gives.  Its agent is started again
# before it has had a round: it comes in where it did; where nobody of its machine had declared
# the tensor yet, all there are lost again.  Where nobody lets it in before its timeout, or its
# agent has another number of engines than the one that was there, it alone hears so.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

export TROUBLE_ON_LOSS=shrink
start_cluster 2 2
losses() { grep -c "job $1 loses" "$TMP/scheduler.log"; }
lost_of() { (( $(losses "$1") >= $2 )); }
waits_for() { tally_stuck | grep -q "$1 .*$2"; }
tally_stuck() { "$BIN/tally" tensors --stuck --scheduler "$SCHEDULER" 2>/dev/null; }

# four JOB LATER...: ranks 0 to 2 of four, on a0 and a1, behind three rounds of all, and the loss
# of rank 3, which has begun the fourth; then they let in who comes, and go on with LATER.
four()
{
	local job=$1 r

	shift
	for r in 0 1 2; do
		start_rank "$job" $r 4 a$(( r / 2 )) declare:w:300000 rounds:w:3 \
			"until:$TMP/$job.lost" grow:60 "$@"
	done
	start_rank "$job" 3 4 a1 declare:w:300000 rounds:w:3 submit:w say:begun pause
	wait_line 30 "$job.3" '^begun'
	wait_until 30 'its agent has taken what it began' waits_for w 'rank'
	kill_now "$job.3" KILL
	wait_until 10 'rank 3 is missed' lost_of "$job" 1
}
# in_place JOB STEP...: comes as rank 3, and is let in.
in_place()
{
	local job=$1

	shift
	start_rank "$job" 3 4 a1 "$@"
	wait_until 20 'it waits' job_says "$job" 'rank 3 waits to come in'
	touch "$TMP/$job.lost"
}

# ---- the lost one had begun a round: the one in its place begins it anew ----
four begun rounds:w:20
in_place begun declare:w:300000 from:w:3 rounds:w:20
for r in 0 1 2 3; do expect_end 60 begun.$r 0; done
has_line begun.0 '^CAME 1 live 4$' || fail "it has not come in: $(grep CAME "$TMP/begun.0.log")"
say 'what the lost rank had begun is nothing to who comes: 20 rounds of four, bit for bit'

# ---- it asks for another operation there than all others do, who have begun it ----
four other submit:w wait:60
in_place other "until:$TMP/other.go" declare:w:300000 from:w:3 submit:w:mean wait:60
for r in 0 1 2; do wait_line 30 other.$r '^done submit:w'; done
touch "$TMP/other.go"
for r in 0 1 2 3; do expect_error 30 other.$r 'EMISMATCH .*w'; done
say "another operation: $(sed -n 's/^ERROR //p' "$TMP/other.0.log")"

# ---- the survivors have begun the next round before it has declared: they wait for it ----
four behind rounds:w:20
in_place behind "until:$TMP/behind.go" declare:w:300000 from:w:3 rounds:w:20
wait_until 30 'the round waits for rank 3' waits_for w 'rank 3'
has_line behind.0 '^done rounds:w:20' && fail 'it did not wait'
touch "$TMP/behind.go"
for r in 0 1 2 3; do expect_end 60 behind.$r 0; done
say 'the survivors had begun a round: it waited for what the new one gives'

# again: agent a1 is killed and started again.
backs() { grep -c 'agent a1 away -> up' "$TMP/scheduler.log"; }
back_again() { (( $(backs) > $1 )); }
again()
{
	local before

	before=$(backs)
	kill_now a1 KILL
	wait "$(pid_of a1)" 2>/dev/null
	start_agent a1
	wait_until 20 'a1 is back' back_again "$before"
}

# ---- its agent is started again before it has had a round ----
four restarted rounds:w:20
in_place restarted declare:w:300000 from:w:3 say:ready "until:$TMP/restarted.go" rounds:w:20
wait_line 30 restarted.3 '^ready'
wait_until 30 'the round waits for rank 3' waits_for w 'rank 3'
again
touch "$TMP/restarted.go"
for r in 0 1 2 3; do expect_end 60 restarted.$r 0; done
[ "$(losses restarted)" = 1 ] || fail 'somebody was lost again'
say 'its agent was started again before its first round: the same bits, nobody lost'

# ---- the same, of a machine with nobody who had declared the tensor ----
start_rank fresh 0 3 a0 declare:w:300000 rounds:w:3 "until:$TMP/fresh.lost" grow:60 \
	submit:w "until:$TMP/fresh.again" world:0 wait:60 rounds:w:5
for r in 1 2; do start_rank fresh $r 3 a1 declare:w:300000 rounds:w:3 say:begun pause; done
for r in 1 2; do wait_line 30 fresh.$r '^begun'; done
for r in 1 2; do kill_now fresh.$r KILL; done
wait_until 10 'both are missed' lost_of fresh 2
for r in 1 2; do start_rank fresh $r 3 a1 "until:$TMP/fresh.go" declare:w:300000 from:w:3 \
	rounds:w:5; done
wait_until 20 'both wait' job_says fresh 'rank 1, 2 wait to come in'
touch "$TMP/fresh.lost"
wait_line 30 fresh.0 '^CAME 2 live 3'
for r in 1 2; do wait_line 30 fresh.$r '^attached'; done
again
touch "$TMP/fresh.go"
for r in 1 2; do expect_error 60 fresh.$r 'EWORKERLOST'; done
touch "$TMP/fresh.again"
expect_end 60 fresh.0 0
say "of a machine that had not declared it: $(sed -n 's/^ERROR //p' "$TMP/fresh.1.log")"

# ---- nobody lets it in; then its agent is another one, with more engines ----
start_rank shut 0 2 a0 declare:w:300000 rounds:w:3 "until:$TMP/shut.go" world:0 rounds:w:5
start_rank shut 1 2 a1 declare:w:300000 rounds:w:3 say:begun pause
wait_line 30 shut.1 '^begun'
kill_now shut.1 KILL
wait_until 10 'it is missed' lost_of shut 1
TROUBLE_TIMEOUT=$(( 5 * ${PATIENCE:-1} )) start_rank shut 1 2 a1 pause
expect_error 40 shut.1 'ETIMEDOUT .*[^_]grow'
say "nobody lets it in: $(sed -n 's/^ERROR //p' "$TMP/shut.1.log")"
kill_now a1 KILL
wait "$(pid_of a1)" 2>/dev/null
start_agent a1 --engines 2
wait_line 20 a1 'registered, node'
start_rank shut 1 2 a1 pause
expect_error 40 shut.1 'EINVAL .*engines'
say "another number of engines: $(sed -n 's/^ERROR //p' "$TMP/shut.1.log")"
touch "$TMP/shut.go"
expect_end 30 shut.0 0
unset TROUBLE_ON_LOSS
works after a0 a1

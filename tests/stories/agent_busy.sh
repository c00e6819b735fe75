#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An agent is killed and started again while a rank computes for longer than the scheduler's
# grace: it hears of it when it calls libtally next, and no call of anybody fails.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

begin_scheduler() { start_daemon scheduler "$BIN/tally-scheduler" --listen "$SCHEDULER" \
	--state-dir "$TMP/state" --agent-grace 10; }
start_again() { kill_all a1; start_agent a1; }
lives='agent a1 \(its processes live\), [0-9]+ s left'

start_cluster 2 1 --agent-grace 10
start_rank busy 0 3 a1 declare:w:200000 rounds:w:3 "until:$TMP/enough" rounds:w:3
start_rank busy 1 3 a1 declare:w:200000 rounds:w:3 submit:w wait:300 rounds:w:2
start_rank busy 2 3 a0 declare:w:200000 rounds:w:3 submit:w wait:300 rounds:w:2
start_rank dead 0 3 a1 declare:w:1000 "fork:$TMP/enough" pause
start_rank dead 1 3 a0 declare:w:1000 rounds:w:1
start_rank dead 2 3 a1 declare:w:1000 rounds:w:1
wait_line 20 busy.0 '^done rounds:w:3'
wait_line 20 dead.0 '^done fork'

# Whose process is gone is named when the grace is over, though a child of its lives; to who is
# back on its machine, too.
kill_all a1 dead.0
start_agent a1
for r in 1 2; do
	expect_error 40 dead.$r 'EWORKERLOST rank 0 on machine a1 is gone .the agent.s processes'
done
wait_until 10 'the busy rank is waited for' job_says busy "$lives"
say "the grace is over: $(grep -h ^ERROR "$TMP/dead.1.log")"

start_again
wait_until 10 'it is waited for by a third process' job_says busy "$lives"
kill_all scheduler
begin_scheduler
wait_until 20 'it is waited for by a second scheduler' job_says busy "$lives"
kill_all a1 scheduler
begin_scheduler
start_agent a1
wait_until 20 'it is waited for when both were killed' job_says busy "$lives"
for r in 0 1 2; do is_running "$(pid_of busy.$r)" || fail "rank $r has ended"; done
touch "$TMP/enough"
for r in 0 1 2; do expect_end 30 busy.$r 0; done
say 'a rank that computed meanwhile: right sums, no error'

# Another rank beside it detaches, or its process ends, when the agent has come back.
for job in left died; do
	start_rank $job 0 3 a1 declare:w:1000 rounds:w:2 say:busy "until:$TMP/go.$job" barrier:20
	start_rank $job 2 3 a0 declare:w:1000 rounds:w:2 submit:w wait:300
done
start_rank left 1 3 a1 declare:w:1000 rounds:w:2 say:there "until:$TMP/leave" test
start_rank died 1 3 a1 declare:w:1000 rounds:w:2 submit:w say:there wait:300
for job in left died; do
	for r in 0 1; do wait_line 20 $job.$r '^(busy|there)'; done
done
kill_all a1
start_agent a1
for job in left died; do
	wait_until 20 "the busy rank of $job is waited for" job_says $job "$lives"
done
touch "$TMP/leave"
expect_end 10 left.1 0
wait_until 20 'the other one is back' job_says died 'rank 0 of agent a1'
kill_now died.1 KILL
expect_error 20 died.2 'EWORKERLOST rank 1 on machine a1 is gone'
for job in left died; do touch "$TMP/go.$job"; done
expect_error 20 died.0 'EWORKERLOST .*rank 1 on machine a1 is gone'
for r in 0 2; do expect_error 20 left.$r 'ESHUTDOWN .*rank 1 of job .left. has detached'; done
say 'beside a rank that computes another one leaves, or ends: it does not wait, the others hear'

nothing_kept() { [ -z "$(find "$TMP"/a[01].sock.ranks -type f)" ]; }
wait_until 10 'no file is left of ranks that have ended' nothing_kept
for a in a0 a1; do
	kill_now $a TERM
	expect_end 10 $a 0
	[ ! -e "$TMP/$a.sock.ranks" ] || fail "$a has left $a.sock.ranks"
done

# Where no file can be made there is the grace, and a word of it.
: > "$TMP/a2.sock.ranks"
start_agent a2
wait_until 60 'a2 is registered' nodes_up 2
works plain a2
has_line a2 'rank 0 of job [0-9]+ has 10 s to come back .*a2.sock.ranks: Not a directory' ||
	fail "a2 does not say so"
say 'no place for its files: it works, and says what it lacks'

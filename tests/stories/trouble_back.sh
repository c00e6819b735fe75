#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Processes that lie when they hand their memory back to an agent that was started again:
# refused, or their own job ends of it.  The agent stays, a job beside them notices nothing.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_scheduler --agent-grace 40
for a in a0 a1; do start_agent $a; done
start_server s0 --memory 2G		# many jobs at once
start_server g0 --memory 2G --machine-id a0
wait_until 60 'all nodes are registered' nodes_up 4
for r in 0 1; do start_rank calm $r 2 a$r declare:w:200000 "train:w:$TMP/enough"; done
train_more calm.0 20 20

# again: a0 is killed and started again.
again()
{
	rm -f "$TMP/again"
	kill_now a0 KILL
	wait "$(pid_of a0)" 2>/dev/null
	start_agent a0
	wait_until 40 'the calm job goes on' has_line a0 "'calm' goes on"
	: > "$TMP/again"
}

# liar JOB RANK WORLD LIE...
liar()
{
	local job=$1 rank=$2 world=$3

	shift 3
	rm -f "$TMP/again"
	runs_on "$job" "$rank" a0
	start_daemon "$job.$rank" env TALLY_JOB="$job" TALLY_RANK="$rank" \
		TALLY_WORLD_SIZE="$world" TALLY_SOCKET="$TMP/a0.sock" TROUBLE_AGAIN="$TMP/again" \
		TROUBLE_MACHINES="$TMP/$job.machines" "$PYTHON" "$ROOT/tests/trouble_back.py" "$@"
}

again
train_more calm.0 5 20
fds=$(fds_of a0)

# ---- what is refused at once, and the same process is believed when it tells the truth ----
calm=$(sed -n "s/.*job \([0-9]*\) 'calm' goes on.*/\1/p" "$TMP/a0.log" | tail -n 1)
start_rank refused 0 2 a1 declare:w:300000 rounds:w:4
liar refused 1 2 refused "$calm"
wait_line 20 refused.1 '^ready'
again
wait_line 60 refused.1 '^came back'
expect_end 20 refused.1 0
expect_end 20 refused.0 0
is_running "$(pid_of a0)" || fail 'the agent did not survive'
say "$(grep -c ": (1, -" "$TMP/refused.1.log") lies refused, then the truth believed"

if [ "$(id -u)" = 0 ]; then
	chmod 711 "$TMP"
	chmod 666 "$TMP/a0.sock"
	for victim in "$calm 0" "$calm 1"; do
		# shellcheck disable=SC2086
		TALLY_SOCKET="$TMP/a0.sock" setpriv --reuid 65534 --regid 65534 --clear-groups \
			"$PYTHON" "$ROOT/tests/trouble_back.py" thief $victim ||
			fail "a thief came into job $victim"
	done
	train_more calm.0 5
	say 'another user is nobody else'"'"'s rank'

	# Of one user all together: a quarter of the agent's descriptors.
	prlimit --pid "$(pid_of a0)" --nofile=1024:4096
	start_daemon endless env TALLY_SOCKET="$TMP/a0.sock" "$PYTHON" \
		"$ROOT/tests/trouble_back.py" endless
	wait_line 20 endless '[1-9][0-9]* are to come later'
	wait_line 10 a0 'uid 0 is to come back later'
	few=$(fds_of a0)
	(( few < fds + 1024 / 4 + 2 * 100 )) || fail "a0 has $few descriptors, and had $fds"
	start_daemon other env TALLY_JOB=other TALLY_RANK=0 TALLY_WORLD_SIZE=1 \
		TALLY_SOCKET="$TMP/a0.sock" setpriv --reuid 65534 --regid 65534 --clear-groups \
		"$PYTHON" "$ROOT/tests/trouble_rank.py" declare:w:1000 rounds:w:3
	expect_end 20 other 0
	expect_end 30 endless 0
	wait_line 5 endless '^over'
	train_more calm.0 5
	say "memory handed back without end: $(head -n 1 "$TMP/endless.log")"
fi

# ---- what only its own job shows ----
# lies LIE...: rank 0 on a1 waits in round 4 of a job of that name, rank 1 on a0 lies.
lies()
{
	local lie

	for lie; do
		start_rank "$lie" 0 2 a1 declare:w:300000 rounds:w:3 submit:w wait:300
		liar "$lie" 1 2 "$lie"
	done
	for lie; do wait_line 40 "$lie.1" '^ready'; done
	again
	for lie; do
		wait_line 40 "$lie.1" '^struck'
		is_running "$(pid_of a0)" || fail "the agent did not survive: $lie"
	done
	train_more calm.0 5 20
}

end_by_itself='offset backwards unaligned smaller larger slab empty overlap second future next
	past last short noise operation worlds nowhere beyond another idle'
# shellcheck disable=SC2086
lies $end_by_itself
for lie in $end_by_itself; do
	expect_error 20 "$lie.0" 'EPROTO .*(handed back|has had round)'
	kill_now "$lie.1" KILL
done
say 'places and rounds that cannot be: their jobs end, and say so'

end_with_it='faked restless twice often none crowded'
# shellcheck disable=SC2086
lies $end_with_it
for lie in $end_with_it; do
	kill_now "$lie.1" KILL
	expect_error 20 "$lie.0" '(EWORKERLOST rank 1 |EPROTO .*handed back)'
done
say 'what cannot be told from the truth hurts its own job alone'

# Two stories of one rank, told while another one is awaited, which waits for its round: it
# hears the reason, although its ring could be open before the job ends on a far scheduler's word.
start_daemon far "$PYTHON" "$ROOT/tests/breaker.py" "$SCHEDULER" "$TMP/far.port" 0.2
wait_until 10 'the far scheduler listens' test -s "$TMP/far.port"
SCHEDULER=$LOOPBACK:$(< "$TMP/far.port")
start_rank stories 0 3 a1 declare:w:300000 rounds:w:3 submit:w wait:300
start_rank stories 2 3 a0 declare:w:300000 rounds:w:3 "until:$TMP/told" submit:w wait:300
liar stories 1 3 stories
wait_line 20 stories.1 '^ready'
wait_line 20 stories.2 '^done rounds'
again
wait_line 20 stories.1 '^said'
: > "$TMP/told"
for r in 0 2; do expect_error 30 stories.$r 'EPROTO .*handed back'; done
grep "of job 'stories' cut off" "$TMP/a0.log" && fail 'who had told the truth was cut off'
kill_now stories.1 KILL
say 'two stories of one rank: their job ends'

same_fds() { (( $(fds_of a0) <= fds )); }
wait_until 20 "a0 has $fds descriptors again" same_fds
touch "$TMP/enough"
for r in 0 1; do expect_end 20 calm.$r 0; done
works after a0 a1
for d in scheduler a0 a1 s0 g0; do is_running "$(pid_of $d)" || fail "$d has ended"; done
say 'nobody else noticed, nothing leaked'

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A process that attacks its agent through their shared memory loses its own job;
# the agent stays, and serves a job that notices nothing.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_cluster 2 1
start_rank calm 0 2 a0 declare:w:200000 "train:w:$TMP/enough"
start_rank calm 1 2 a1 declare:w:200000 "train:w:$TMP/enough"
train_more calm.0 1 20
fds=$(fds_of a0)

# start_hostile ATTACK: rank 1 of a job of that name on a0, rank 0 on a0, too.
start_hostile()
{
	runs_on "$1" 1 a0
	start_rank "$1" 0 3 a0 declare:w:100000 submit:w wait:30
	start_rank "$1" 2 3 a1 declare:w:100000 submit:w wait:30
	start_daemon "$1.1" env TALLY_JOB="$1" TALLY_RANK=1 TALLY_WORLD_SIZE=3 \
		TALLY_SOCKET="$TMP/a0.sock" "$PYTHON" "$ROOT/tests/trouble_hostile.py" "$1"
	wait_line 20 "$1.1" '^struck'
}

for attack in index slab range length tensor round rop random; do
	start_hostile $attack
	for r in 0 2; do
		expect_error 10 $attack.$r \
			'EWORKERLOST rank 1 on machine a0 is gone .* has broken the rules'
	done
	expect_end 10 $attack.1 0
	[ $attack = random ] || has_line $attack.1 '^told EPROTO rank 1 ' ||
		fail 'the liar does not hear why'
	is_running "$(pid_of a0)" || fail "the agent did not survive: $attack"
	train_more calm.0 5
done
expect_text "$TMP/a0.log" "cut off, reason .*rank 1"
say 'garbage in the ring: the liar is cut off, by name, and its job alone ends'

# Thousands of rounds, and not one result is taken in.
start_rank unheard 0 2 a0 declare:w:1000 rounds:w:5000
start_daemon unheard.1 env TALLY_JOB=unheard TALLY_RANK=1 TALLY_WORLD_SIZE=2 \
	TALLY_SOCKET="$TMP/a0.sock" "$PYTHON" "$ROOT/tests/trouble_hostile.py" unheard
wait_line 120 unheard.1 '^struck'
expect_error 10 unheard.0 'EWORKERLOST rank 1 on machine a0 is gone'
expect_end 10 unheard.1 0
wait_line 20 a0 'cut off, reason rank 1 went on with tensor .w. before it had heard'
train_more calm.0 5
say 'results that nobody takes in: cut off when there is no room for more'

# Never an empty ring: the agent has others to serve, and its links.
start_rank flood 0 2 a1 declare:w:1000 declare:z:0 barrier:60
start_daemon flood.1 env TALLY_JOB=flood TALLY_RANK=1 TALLY_WORLD_SIZE=2 \
	TALLY_SOCKET="$TMP/a0.sock" "$PYTHON" "$ROOT/tests/trouble_hostile.py" flood
wait_line 20 flood.1 '^flooding'
train_more calm.0 5
is_running "$(pid_of flood.1)" || fail 'the flood has ended'
has_line flood.0 '^ERROR' && fail 'the flood is not what was to be shown'
kill_now flood.1 KILL
expect_error 20 flood.0 'EWORKERLOST rank 1 on machine a0 is gone'
say 'a flood of rounds: others have their turn'

# Answers that nobody reads: a process asks no more than it takes, attached or not.
rss_of() { sed -n 's/^VmRSS:[[:space:]]*\([0-9]*\).*/\1/p' "/proc/$(pid_of "$1")/status"; }
rss=$(rss_of a0)
small()
{
	local now

	now=$(rss_of a0)
	(( now <= rss + 6144 )) || fail "a0 had $rss KiB, and has $now KiB: $1"
}
start_daemon strangers env TALLY_SOCKET="$TMP/a0.sock" "$PYTHON" \
	"$ROOT/tests/trouble_hostile.py" strangers
train_more calm.0 5
wait_line 30 strangers '^(cut|WRONG)'
small 'strangers asked'
has_line strangers '^cut' || fail 'strangers that read nothing are not cut'
kill_now strangers KILL
peak_of() { sed -n 's/^VmHWM:[[:space:]]*\([0-9]*\).*/\1/p' "/proc/$(pid_of "$1")/status"; }
peak=$(peak_of scheduler)
start_daemon cli env TALLY_SCHEDULER="$SCHEDULER" "$PYTHON" "$ROOT/tests/trouble_hostile.py" cli
wait_line 30 cli '^(cut|WRONG)'
has_line cli '^cut' || fail 'a CLI that reads nothing is not cut'
now=$(peak_of scheduler)
(( now <= peak + 6144 )) || fail "the scheduler had $peak KiB, and $now KiB as a CLI asked"
kill_now cli KILL
start_daemon restless env TALLY_SOCKET="$TMP/a0.sock" "$PYTHON" \
	"$ROOT/tests/trouble_hostile.py" restless
wait_line 10 scheduler 'restless.* gathering -> down.* \(more like this are left out'
expect_end 20 restless 1
has_line restless '^struck' || fail "restless: $(tail -n 1 "$TMP/restless.log")"
start_rank deaf 0 2 a0 declare:w:100000 barrier:60
start_daemon deaf.1 env TALLY_JOB=deaf TALLY_RANK=1 TALLY_WORLD_SIZE=2 \
	TALLY_SOCKET="$TMP/a0.sock" "$PYTHON" "$ROOT/tests/trouble_hostile.py" deaf
train_more calm.0 5
wait_line 30 deaf.1 '^(cut|WRONG)'
small 'a process asked'
expect_error 10 deaf.0 \
	'EWORKERLOST rank 1 on machine a0 is gone .* asks and does not read the answers'
expect_end 10 deaf.1 0
train_more calm.0 5
say 'answers that nobody reads: they are few, and whoever asks on is cut'

# Who asks and asks has a turn, no more: so have those who wait for an answer.
for i in 0 1 2; do
	start_daemon eager$i env TALLY_SOCKET="$TMP/a0.sock" TALLY_SCHEDULER="$SCHEDULER" \
		"$PYTHON" "$ROOT/tests/trouble_hostile.py" eager
done
for i in 0 1 2; do wait_line 20 eager$i '^eager'; done
train_more calm.0 5
works amid a0 a1
expect_status 0 "$BIN/tally" status
for i in 0 1 2; do kill_now eager$i KILL; done
say "who never waits for answers: $(tail -n 1 "$TMP/eager0.log") bytes, and nobody is kept waiting"

# A node that lives, and reads nothing: cut off when what it is told finds no way for 3 s.
for r in 0 1; do
	start_rank told $r 2 a$r declare:w:1000 many:m:10000 "train:w:$TMP/enough.told"
done
train_more told.0 5 20
start_daemon mute env TALLY_SCHEDULER="$SCHEDULER" "$PYTHON" "$ROOT/tests/trouble_hostile.py" mute
wait_line 30 mute '^registered'
wait_line 20 mute '^cut: '
wait_line 5 scheduler 'server mute up -> away'
train_more told.0 5
touch "$TMP/enough.told"
for r in 0 1; do expect_end 20 told.$r 0; done
say "a node that reads nothing is $(tail -n 1 "$TMP/mute.log")"

# Another version: who speaks it is told both.
start_daemon newer env TALLY_SOCKET="$TMP/a0.sock" TALLY_SCHEDULER="$SCHEDULER" \
	"$PYTHON" "$ROOT/tests/trouble_hostile.py" newer
expect_end 30 newer 1
wait_line 5 newer "^told -[0-9]+ the scheduler speaks version 1, 'new' speaks 9 to 10"
wait_line 5 newer '^told -[0-9]+ this agent speaks version 1, .* 9'
wait_line 5 scheduler "node new is refused, reason the scheduler speaks version 1, .* 9 to 10"
train_more calm.0 5
say "another version: $(grep -h ^told "$TMP/newer.log" | head -n 1)"

# One user's jobs that nobody comes to: there is room for others'.
if [ "$(id -u)" = 0 ]; then
	chmod 711 "$TMP"
	chmod 666 "$TMP/a0.sock"
	start_daemon hog env TALLY_SOCKET="$TMP/a0.sock" setpriv --reuid 65534 --regid 65534 \
		--clear-groups "$PYTHON" "$ROOT/tests/trouble_hostile.py" hog
	wait_line 30 hog '^told -[0-9]+ user id 65534 has [0-9]+ jobs'
	train_more calm.0 5
	works beside a0 a1
	kill_now hog KILL
	say "one user, many jobs: $(grep -h "user id" "$TMP/hog.log" | head -n 1)"
fi

# Sealed memory: nothing to truncate; a punched hole reads as zeros.
if [ "$(id -u)" = 0 ]; then
	start_hostile memory
	for r in 0 2; do
		wait_until 10 "$r ends" ended memory.$r
		has_line memory.$r '^(detached|WRONG|ERROR)' || fail "memory.$r says nothing"
	done
	has_line memory.1 'WRONG' && fail 'shared memory could be resized'
	kill_now memory.1 KILL
	train_more calm.0 5
	say 'memory under attack: it cannot be resized, and holes hurt nobody'
fi

same_fds() { (( $(fds_of a0) <= fds )); }
wait_until 10 "a0 has $fds descriptors again" same_fds
touch "$TMP/enough"
for r in 0 1; do expect_end 20 calm.$r 0; done
works after a0 a1
for d in scheduler a0 a1 s0; do is_running "$(pid_of $d)" || fail "$d has ended"; done
say 'nobody else noticed, nothing leaked'

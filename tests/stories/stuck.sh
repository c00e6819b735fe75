#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Rounds that wait, and for whom: a rank, a server, an agent with all its ranks, each
# stopped, is named by `tally tensors --stuck` and by the job's row, until it goes on.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

# Who stands still is named for as long as its lease runs: often enough to be seen.
start_cluster 2 2 --agent-grace 0 --heartbeat-ms 200
stuck() { "$BIN/tally" tensors --stuck --timeout 10 --scheduler "$SCHEDULER" "$@"; }

# is_stuck REGEX JSON-REGEX NOBODY: a line says so, with JSON in one line, and none names
# whom NOBODY matches (for a moment a machine that is slow may be waited for, too).
is_stuck()
{
	stuck > "$TMP/table" 2>/dev/null && grep -Eq -- "$1" "$TMP/table" &&
		! grep -Eq -- "${3:-^$}" "$TMP/table" &&
		stuck --job $job --json 2>/dev/null | tr -d ' \n' | grep -Eq -- "$2"
}
# json KIND NAME RANKS: a row.
json()
{
	printf '"tensor":"w(.stop)?","round":[0-9]+,"chunk":[0-9]+,"chunks":[1-9][0-9]*,'
	printf '"kind":"%s","name":"%s","machine":"%s",' "$1" "$2" "$2"
	printf '"ranks":\\[%s\\],"seconds":' "$3"
	printf '([1-9]|0\\.[5-9])'
}
none_stuck() { stuck --json 2>/dev/null | tr -d ' \n' | grep -Fq '"stuck":[]'; }

# Machine a0 has rank 0, a1 has 1 and 2; after ten rounds of w there is one of w.stop.
steps=(declare:w:2000000 train:w:"$TMP/go")
# trains JOB: and it is the one that is looked at.
trains()
{
	job=$1
	for r in 0 1 2; do start_rank $job $r 3 a$(( (r + 1) / 2 )) "${steps[@]}"; done
	train_more $job.0 10
}
trains x
wait_until 10 'nothing waits' none_stuck

kill_now x.2 STOP
wait_until 15 'rank 2 is named, and no other' is_stuck ' w(.stop)? +[0-9]+ .* a1 .* rank 2$' \
	"$(json agent a1 2)" 'ranks? (0|1)'
wait_until 20 "the job's row says so" job_says x 'rank 2 \(machine a1\), tensor w(.stop)? round'
say "a stopped rank: $(tail -n 1 "$TMP/table")"
kill_now x.2 CONT
wait_until 10 'nothing waits any more' none_stuck
train_more x.0 10

# Until it is declared dead, 3 s later, and its chunks move.  Who has not looked by then, since
# the machine is busy, stops it once more.
deaths_of() { grep -c "$1 .*-> dead" "$TMP/scheduler.log"; }
named_or_dead() { is_stuck "${@:3}" && named=yes || (( $(deaths_of "$1") > $2 )); }
# is_named NODE WHAT IS_STUCK...: if it is stopped; false: it was declared dead meanwhile.
is_named()
{
	local deaths

	named= deaths=$(deaths_of "$1")
	kill_now "${1#* }" STOP
	wait_until 15 "$2" named_or_dead "$1" "$deaths" "${@:3}"
	[ -n "$named" ]
}
has_both() { "$BIN/tally" jobs --json --job x --timeout 10 | grep -Eq '"servers": *2(,|$)'; }
for (( n = 1; ; n++ )); do
	is_named 'server s1' 'the server is named, and no rank' \
		' w(.stop)? +[0-9]+ .* s1 .* server s1' "$(json server s1 '')" rank && break
	(( n < 5 )) || fail 'the server was never named'
	kill_now s1 CONT
	wait_until 30 'the server is used again' has_both
	train_more x.0 10
done
say "a stopped server: $(tail -n 1 "$TMP/table")"
wait_line 15 scheduler 'job x epoch [0-9]+, a lost server'
wait_until 15 'nothing waits any more' none_stuck
train_more x.0 10
kill_now s1 CONT
train_more x.0 10

# An agent with both its ranks; when it is declared dead, its job ends.
for (( n = 1; ; n++ )); do
	is_named 'agent a1' 'its ranks are named' \
		' w(.stop)? +[0-9]+ .* a1 .* (ranks 1, 2$|agent a1 \(ranks 1, 2\))' \
		"$(json agent a1 1,2)" && break
	(( n < 5 )) || fail 'the agent was never named'
	kill_now a1 CONT
	for r in 0 1 2; do expect_end 20 $job.$r 1; done
	wait_until 30 'all nodes are there again' nodes_up 4
	trains again$n
done
say "a stopped agent: $(tail -n 1 "$TMP/table")"
expect_error 15 $job.0 'EWORKERLOST .*a1'
kill_now a1 CONT
wait_until 10 'the job is over, and so is its waiting' none_stuck
expect_status 2 "$BIN/tally" jobs --stuck --scheduler "$SCHEDULER"
expect_status 4 stuck --job nobody

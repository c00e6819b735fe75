#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Rounds that wait, and for whom: a rank, a server, an agent with all its ranks, each
# stopped, is named by `tally tensors --stuck` and by the job's row, until it goes on.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

# Who stands still is named for as long as its lease runs: often enough to be seen.
start_cluster 2 2 --agent-grace 0 --heartbeat-ms 200
stuck() { "$BIN/tally" tensors --stuck --timeout 2 --scheduler "$SCHEDULER" "$@"; }

# is_stuck REGEX JSON-REGEX NOBODY: a line says so, with JSON in one line, and none names
# whom NOBODY matches (for a moment a machine that is slow may be waited for, too).
is_stuck()
{
	stuck > "$TMP/table" 2>/dev/null && grep -Eq -- "$1" "$TMP/table" &&
		! grep -Eq -- "${3:-^$}" "$TMP/table" &&
		stuck --job x --json 2>/dev/null | tr -d ' \n' | grep -Eq -- "$2"
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
for r in 0 1 2; do start_rank x $r 3 a$(( (r + 1) / 2 )) "${steps[@]}"; done
train_more x.0 10
wait_until 10 'nothing waits' none_stuck

kill_now x.2 STOP
wait_until 15 'rank 2 is named, and no other' is_stuck ' w(.stop)? +[0-9]+ .* a1 .* rank 2$' \
	"$(json agent a1 2)" 'ranks? (0|1)'
wait_until 5 "the job's row says so" job_says x 'rank 2 \(machine a1\), tensor w(.stop)? round'
say "a stopped rank: $(tail -n 1 "$TMP/table")"
kill_now x.2 CONT
wait_until 10 'nothing waits any more' none_stuck
train_more x.0 10

# Until it is declared dead, 3 s later, and its chunks move.
kill_now s1 STOP
wait_until 15 'the server is named, and no rank' is_stuck \
	' w(.stop)? +[0-9]+ .* s1 .* server s1' "$(json server s1 '')" rank
say "a stopped server: $(tail -n 1 "$TMP/table")"
wait_line 15 scheduler 'job x epoch [0-9]+, a lost server'
wait_until 15 'nothing waits any more' none_stuck
train_more x.0 10
kill_now s1 CONT
train_more x.0 10

# An agent with both its ranks; when it is declared dead, its job ends.
kill_now a1 STOP
wait_until 15 'its ranks are named' is_stuck \
	' w(.stop)? +[0-9]+ .* a1 .* (ranks 1, 2$|agent a1 \(ranks 1, 2\))' "$(json agent a1 1,2)"
say "a stopped agent: $(tail -n 1 "$TMP/table")"
expect_error 15 x.0 'EWORKERLOST .*a1'
kill_now a1 CONT
wait_until 10 'the job is over, and so is its waiting' none_stuck
expect_status 2 "$BIN/tally" jobs --stuck --scheduler "$SCHEDULER"
expect_status 4 stuck --job nobody

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tables on terminals of all widths, in pipes and in files; --wide, --watch and Ctrl-C; a
# scheduler that goes away while it is watched; readers that go away.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

unset COLUMNS

# on SIZE COMMAND...: on a terminal; what it draws is in $TMP/out.
on() { expect_status 0 "$PYTHON" "$ROOT/tests/on_terminal.py" "$@"; }

# fits COLUMNS: no line of $TMP/out is wider, counted as a terminal does.
fits()
{
	"$PYTHON" - "$1" "$TMP/out" <<- 'END' || fail "it is wider than $1 columns"
		import sys, unicodedata
		def width(s):
		    return sum(1 + (unicodedata.east_asian_width(c) in "WF") for c in s)
		lines = open(sys.argv[2], encoding="utf-8")
		wide = [l for l in lines if width(l.rstrip("\n")) > int(sys.argv[1])]
		sys.exit("".join(wide) or 0)
	END
}

# a cluster with a job, a round that waits, a long name and a wide one
start_cluster 2 1
start_server "s-mit-einem-namen-von-fünfzig-und-mehr-zeichen-länge-数字"
wait_until 60 'the last server is registered' nodes_up 4
for r in 0 1; do start_rank x $r 2 a$r declare:w:100000 train:w:"$TMP/go"; done
train_more x.0 3
measured() { "$BIN/tally" jobs --json | grep -Eq '"measured_round_time_s": 0\.0*[1-9]'; }
wait_until 20 'the round of the job is measured' measured
"$BIN/tally" jobs > "$TMP/out"
expect_text "$TMP/out" ' PLANNED  +MEASURED '
expect_text "$TMP/out" '^x +up +2/2 .* [0-9.]+ [mu]?s +'
kill_now x.1 STOP
is_stuck() { "$BIN/tally" tensors --stuck --json | grep -q '"tensor":'; }
wait_until 20 'a round waits' is_stuck

# ---- widths ----
for verb in nodes jobs tensors 'tensors --stuck' status; do
	# shellcheck disable=SC2086
	for columns in 20 40 60 80 120 300; do
		on ${columns}x24 "$BIN/tally" $verb
		[ "$verb" = status ] && (( columns < 60 )) && continue	# words as long as an id
		fits $columns
	done
	# shellcheck disable=SC2086
	"$BIN/tally" $verb > "$TMP/piped"
	! grep -q '…' "$TMP/piped" || fail "tally $verb shortens what goes into a file"
	[ "$verb" = status ] && continue
	# shellcheck disable=SC2086
	on 40x24 "$BIN/tally" $verb --wide
	diff <(head -n 1 "$TMP/piped" | tr -s ' ') <(head -n 1 "$TMP/out" | tr -s ' ') ||
		fail "tally $verb --wide lacks columns"
	# shellcheck disable=SC2086
	COLUMNS=30 "$BIN/tally" $verb | head -n 1 | tr -s ' ' |
		diff - <(head -n 1 "$TMP/piped" | tr -s ' ') || fail "COLUMNS counts in a pipe"
done
on 80x24 "$BIN/tally" nodes
expect_text "$TMP/out" '^NODE +.*STATE .*NOTE$'
expect_text "$TMP/out" '^s-mit-einem-namen.*… '
expect_text "$TMP/out" '^\(--wide shows [0-9]+ more columns\)$'
on 80x24 "$BIN/tally" jobs
expect_text "$TMP/out" ' PLANNED  +MEASURED '
COLUMNS=50 on 0x0 "$BIN/tally" nodes
fits 50
on 0x0 "$BIN/tally" nodes
fits 80

# ---- every column is explained ----
for verb in nodes jobs tensors 'tensors --stuck'; do
	# shellcheck disable=SC2086
	"$BIN/tally" $verb | head -n 1 > "$TMP/heads"
	expect_status 0 "$BIN/tally" "${verb%% *}" --help
	for column in $(cat "$TMP/heads"); do expect_text "$TMP/out" "^  $column  "; done
done

# ---- watching ----
for verb in nodes jobs tensors status; do
	on 80x24 --interrupt '(?s)picture.*picture.*picture.*\n' "$BIN/tally" $verb --watch=0.2
	fits 80
done
on 80x24 --interrupt '(?s)"schema".*"schema"' "$BIN/tally" nodes --json --watch=0.2
! grep -q -- '--- picture' "$TMP/out" || fail 'JSON is drawn in place'

timeout 30 "$BIN/tally" jobs --watch=0.1 | head -n 8 > "$TMP/out"
[ "${PIPESTATUS[0]}" = 141 ] || fail 'it goes on although nobody reads'
[ "$(grep -c '^NAME' "$TMP/out")" -ge 2 ] && grep -q '^$' "$TMP/out" ||
	fail "not one after the other: $(cat "$TMP/out")"

for bad in 0 abc -1 ''; do
	expect_status 2 "$BIN/tally" nodes --watch="$bad"
	expect_text "$TMP/err" '--watch: seconds, '
done
expect_status 2 "$BIN/tally" nodes --watch 5
expect_text "$TMP/err" "unexpected argument '5'; seconds follow --watch by '='"

# ---- a reader that goes away, with and without the signal ----
for way in '' 'trap "" PIPE;'; do
	for verb in 'nodes' 'help' 'nodes --help' 'plan --gpu 2 --model 1G'; do
		bash -c "$way $BIN/tally $verb 2> $TMP/err | true"
		[ ! -s "$TMP/err" ] || fail "tally $verb complains: $(cat "$TMP/err")"
	done
	bash -c "$way $BIN/tally-server --help 2> $TMP/err | true"
	[ ! -s "$TMP/err" ] || fail "tally-server --help complains: $(cat "$TMP/err")"
done

# ---- a scheduler that goes away while it is watched, and comes back ----
start_daemon watch "$PYTHON" "$ROOT/tests/on_terminal.py" 80x24 --interrupt \
	'(?s)asked\s+again.*NODE +KIND' "$BIN/tally" nodes --watch=0.2
"$BIN/tally" nodes --watch=0.2 > "$TMP/watched" 2> "$TMP/watched.err" & adopt $!
watcher=$!
wait_until 20 'a table is there' grep -q '^NODE' "$TMP/watched"
wait_until 20 'a table is drawn' has_line watch '^NODE'
kill_now scheduler KILL
wait_until 20 'it says that the scheduler is gone' grep -q 'asked again every 0.2 s' "$TMP/watched"
wait_until 20 'it draws that the scheduler is gone' has_line watch 'asked( again)?'
start_daemon scheduler "$BIN/tally-scheduler" --listen "$SCHEDULER" --state-dir "$TMP/state"
again() { sed '1,/asked again/d' "$TMP/watched" | grep -q '^NODE'; }
wait_until 30 'the table is there again' again
kill -INT "$watcher"
wait "$watcher" || fail "Ctrl-C ends it with $?"
[ ! -s "$TMP/watched.err" ] || fail "$(cat "$TMP/watched.err")"
wait_until 60 'the one on the terminal has seen all of that' ended watch
expect_end 10 watch 0
kill_now x.1 CONT

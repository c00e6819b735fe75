#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# bench/run.py measures a row on a cluster of its own, compares what came out with what
# had to, writes its results, and leaves nothing behind, also when it is interrupted.
. "$(dirname "$0")/../lib.sh"

can_make_namespaces || skip 'making network namespaces needs root'
export BUILD=${BUILD:-$ROOT/build}
mkdir "$TMP/files" "$TMP/scratch"

# Tally's rows alone: no peer has to be installed for them.
TMPDIR=$TMP/scratch "$PYTHON" "$ROOT/bench/run.py" --quick --rounds 1 --out "$TMP/files" \
	-k declare -k 'small (2,0) 4 KiB p50, TCP' > "$TMP/table" 2> "$TMP/table.log" ||
	fail 'bench/run.py failed'
expect_text "$TMP/table" '^declare 10,000, 4 processes .* s .* <= 1'
expect_text "$TMP/table" '^small \(2,0\) 4 KiB p50, TCP .* us .* <= 8'
"$PYTHON" - "$TMP/files/results.json" <<-'END' || fail 'results.json'
	import json, sys
	results = json.load(open(sys.argv[1]))
	assert len(results) == 2, results
	for r in results:
	    assert r["tally"] > 0 and r["peer_value"] > 0 and r["rounds"] == 1, r
	    assert abs(r["ratio"] - r["tally"] / r["peer_value"]) < 1e-9, r
	    assert r["met"] is (r["ratio"] <= float(r["target"].split()[1])), r
END
say "$(sed -n 's/  */ /g; /^declare/p' "$TMP/table")"

nothing_left()
{
	local left

	left=$(ls "$TMP/scratch"; pgrep -af "$TMP/scratch")
	[ -z "$left" ] || fail "left behind: $left"
}
nothing_left

ended() { ! is_running "$1"; }
runs() { pgrep -f "$1" > /dev/null; }

# interrupted SIGNAL TIMES WHEN: a long run gets the signal when something matches WHEN.
interrupted()
{
	local log="$TMP/$1.log" i

	TMPDIR=$TMP/scratch start_daemon "$1" env --default-signal=INT,HUP "$PYTHON" \
		"$ROOT/bench/run.py" --rounds 1000 --out "$TMP/files" -k declare
	wait_until 60 "$3 runs" runs "$3"
	for (( i = 0; i < $2; i++ )); do kill "-$1" "$PID"; done
	wait_until 100 "it ends by $1" ended "$PID"
	wait "$PID"
	[ $? = 130 ] || fail "it ended with another status: $(cat "$log")"
	expect_text "$log" '^interrupted'
	! grep -q Traceback "$log" || fail 'a traceback'
	nothing_left
}
interrupted INT 2 "bench/rank $TMP/scratch"		# twice: in a hurry
interrupted HUP 1 "tally-agent .*$TMP/scratch"		# the cluster is not up

# A machine without tc: one line says what is missing, and it is no failure.
mkdir "$TMP/path"
for dir in ${PATH//:/ }; do ln -s "$dir"/* "$TMP/path"; done 2>/dev/null
rm "$TMP/path/tc"
PATH=$TMP/path expect_status 0 "$PYTHON" "$ROOT/bench/run.py" --out "$TMP/files" -k declare
expect_text "$TMP/out" '^declare .* left out: .*tc is missing: apt-get install iproute2'

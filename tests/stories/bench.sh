#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# bench/run.py measures a row on a cluster of its own, compares what came out with what
# had to, writes its results, and leaves nothing behind.
. "$(dirname "$0")/../lib.sh"

can_make_namespaces || skip 'making network namespaces needs root'
export BUILD=${BUILD:-$ROOT/build}
mkdir "$TMP/out" "$TMP/scratch"

# Tally's rows alone: no peer has to be installed for them.
TMPDIR=$TMP/scratch "$PYTHON" "$ROOT/bench/run.py" --quick --rounds 1 --out "$TMP/out" \
	-k declare -k 'small (2,0) 4 KiB p50, TCP' > "$TMP/table" 2> "$TMP/table.log" ||
	fail 'bench/run.py failed'
expect_text "$TMP/table" '^declare 10,000, 4 processes .* s .* <= 1'
expect_text "$TMP/table" '^small \(2,0\) 4 KiB p50, TCP .* us .* <= 8'
"$PYTHON" - "$TMP/out/results.json" <<-'END' || fail 'results.json'
	import json, sys
	results = json.load(open(sys.argv[1]))
	assert len(results) == 2, results
	for r in results:
	    assert r["tally"] > 0 and r["peer_value"] > 0 and r["rounds"] == 1, r
	    assert abs(r["ratio"] - r["tally"] / r["peer_value"]) < 1e-9, r
	    assert r["met"] is (r["ratio"] <= float(r["target"].split()[1])), r
END
say "$(sed -n 's/  */ /g; /^declare/p' "$TMP/table")"

leftover=$(ls "$TMP/scratch")
[ -z "$leftover" ] || fail "left behind: $leftover"

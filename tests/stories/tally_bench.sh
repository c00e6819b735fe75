#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tally bench --json: the sizes that were asked for, every field of every row, and a whole
# document whatever became of the measurement.
. "$(dirname "$0")/../lib.sh"

local_bench() { "$BIN/tally" local --agents 2 --servers 1 --ranks 2 -- "$BIN/tally" bench "$@"; }

# rows EXPRESSION: of the document d and its rows r, in Python.
rows()
{
	"$PYTHON" - "$TMP/out" "$1" <<- 'END' || fail "not so: $1"
		import json, sys

		d = json.load(open(sys.argv[1]))
		r = d["results"]
		assert d["schema"] == 1 and d["world_size"] == 2 and d["machines"] == 2, d
		for row in r:
		    assert set(row) == {"size_bytes", "count", "dtype", "p50_us", "p99_us",
		                        "algbw_gbit_s", "busbw_gbit_s", "errors"}, row
		    assert 0 < row["p50_us"] <= row["p99_us"], row
		    gbit_s = row["size_bytes"] * 8 / (row["p50_us"] * 1e3)
		    assert abs(row["algbw_gbit_s"] - gbit_s) < 1e-6 * gbit_s, row
		    assert abs(row["busbw_gbit_s"] - gbit_s) < 1e-6 * gbit_s, row   # n is 2
		assert eval(sys.argv[2]), d
	END
}

expect_status 0 local_bench -b 1K -e 10000 -f 2.5 -n 3 -w 1 --dtype float16 --json
rows '[x["size_bytes"] for x in r] == [1024, 2560, 6400]'
rows 'all(x["dtype"] == "float16" and x["count"] * 2 == x["size_bytes"] for x in r)'
rows 'd["iterations"] == 3 and d["op"] == "sum" and d["checked"] and d["complete"]'
rows 'd["errors"] == 0 and all(x["errors"] == 0 for x in r)'
say 'sizes by a factor, checked'

# Odd sizes are cut to whole elements.
expect_status 0 local_bench -b 15 -e 64 -f 2 -n 1 -w 0 --dtype int64 --op mean --view --json
rows '[x["size_bytes"] for x in r] == [8, 16, 32, 64] and d["op"] == "mean"'
rows 'all(x["dtype"] == "int64" and x["errors"] == 0 for x in r)'

expect_status 0 local_bench -b 4K -e 4K -n 1 -w 0 --no-check --json
rows 'len(r) == 1 and not d["checked"] and d["complete"]'
rows 'd["errors"] is None and r[0]["errors"] is None'
say 'not checked: there is no number of errors'

# The ranks' sizes differ, so that each waits for the other before its first row.
start_daemon waiting "$BIN/tally" local --agents 2 --ranks 2 -- bash -c \
	'[ $TALLY_RANK = 0 ] && size=4K || size=8K; exec "$0" bench -b $size -e $size' "$BIN/tally"
wait_until 60 'the header is there before the first row' \
	grep -Eq '^# +\(B\) ' "$TMP/waiting.log"
! grep -Eq '^ +[0-9]+ ' "$TMP/waiting.log" || fail 'there was a row: this has tested nothing'
kill "$PID"
wait "$PID"
say 'the header does not wait for a row'

# Rank 1 goes after the first size: rank 0 has one row, and says that it is not all.
cat > "$TMP/rank.sh" << 'END'
[ "$TALLY_RANK" = 0 ] && end=16K || end=4K
exec "$0" bench -b 4K -e $end -n 1 -w 0 "$@"
END
for json in --json ''; do
	expect_status 1 env TALLY_TIMEOUT_MS=8000 "$BIN/tally" local --agents 2 --ranks 2 -- \
		bash -c "$(cat "$TMP/rank.sh")" "$BIN/tally" $json
	expect_text "$TMP/err" '^tally bench: .*rank 1'
	[ -n "$json" ] || continue
	rows '[x["size_bytes"] for x in r] == [4096] and not d["complete"]'
done
expect_text "$TMP/out" '^# not complete$'
say 'a failure in the middle: a whole document, and exit status 1'

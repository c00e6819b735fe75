#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# More tensors than an answer of the scheduler holds: tally tensors says how many it leaves out.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

# left_out: how many tensors are in $TMP/out, and how many are not, as it says.
left_out()
{
	"$PYTHON" -c '
import json, sys
d = json.load(open(sys.argv[1]))
print(len(d["tensors"]), d["left_out"])' "$TMP/out"
}

start_cluster 1 0
start_rank few 0 1 a0 many:t:100 "until:$TMP/enough"
wait_line 20 few.0 '^done many'
expect_status 0 "$BIN/tally" tensors --json --scheduler "$SCHEDULER"
[ "$(left_out)" = '100 0' ] || fail "100 tensors, and it says: $(left_out)"

start_rank many 0 1 a0 many:t:40000 "until:$TMP/enough"
wait_line 60 many.0 '^done many'
expect_status 0 "$BIN/tally" tensors --json --scheduler "$SCHEDULER" --job many
read -r shown left < <(left_out)
(( left > 0 && shown + left == 40000 )) || fail "40000 tensors, and it says: $(left_out)"
expect_status 0 "$BIN/tally" tensors --scheduler "$SCHEDULER" --job many
expect_text "$TMP/err" "^tally tensors: $left more did not fit into the answer"
(( $(wc -l < "$TMP/out") == shown + 1 )) || fail 'the table has other rows'
say "$shown of 40000 tensors are shown, and $left are said to be left out"
touch "$TMP/enough"
for j in few many; do expect_end 60 $j.0 0; done

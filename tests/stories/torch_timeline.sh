#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# TALLY_TIMELINE while PyTorch trains: a file for each rank that JSON can read, with spans of
# the framework, of copies, of the network and of sums that fit together; what a killed rank
# leaves can be read, too.
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/torch/lib.sh"

check()
{
	expect_status 0 "$PYTHON" "$ROOT/tests/torch/timeline_check.py" "$@"
	say "$(cat "$TMP/out")"
}

TALLY_TIMELINE=$TMP/trace torch_ranks 2 "$ROOT/tests/torch/timeline.py" whole
for rank in 0 1; do check "$TMP/trace.$rank" $rank closed; done

# all ranks on one machine; rank 1 is killed
TALLY_TIMELINE=$TMP/%r.json expect_status 137 "$BIN/tally" local --ranks 2 -- \
	"$PYTHON" "$ROOT/tests/torch/timeline.py" kill
check "$TMP/1.json" 1 open
say 'a killed rank leaves a file that can be read'

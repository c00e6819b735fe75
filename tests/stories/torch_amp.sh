#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The example of mixed precision: its loss falls, and the parameters are the same on all ranks.
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/torch/lib.sh"

"$PYTHON" -c 'import sklearn' 2>/dev/null || skip "$PYTHON has no sklearn (python3-sklearn)"
export PYTHONPATH=$ROOT/client/python
for way in ddp optimizer; do
	expect_status 0 "$BIN/tally" local --agents 2 --servers 1 --ranks 2 -- \
		"$PYTHON" "$ROOT/examples/pytorch/amp.py" --steps 40 --way $way
	expect_text "$TMP/out" 'parameters identical on 2 ranks'
	awk '/^loss before/ { gsub(",", ""); ok = $5 < 0.7 * $3 } END { exit !ok }' "$TMP/out" ||
		fail "the loss did not fall: $(grep '^loss before' "$TMP/out")"
	say "$way: $(grep '^loss before' "$TMP/out")"
done

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The PyTorch examples: losses as Gloo's, parameters the same on all ranks, and the same
# bits with no CPU server and with two.
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/torch/lib.sh"

"$PYTHON" -c 'import sklearn' 2>/dev/null || skip "$PYTHON has no sklearn (python3-sklearn)"
SERVERS=0 torch_ranks 2 "$ROOT/tests/torch/curves.py" "$TMP/bits0"
SERVERS=2 torch_ranks 2 "$ROOT/tests/torch/curves.py" "$TMP/bits2"
[ "$(grep -c . "$TMP/bits0")" = 4 ] || fail 'not all four runs have told their bits'
cmp "$TMP/bits0" "$TMP/bits2" || fail 'servers change the bits'
say 'digits and GPT, hook and optimizer: losses as by Gloo, the same bits with 0 and 2 servers'

export PYTHONPATH=$ROOT/client/python
expect_status 0 "$BIN/tally" local --agents 2 --ranks 2 -- \
	"$PYTHON" "$ROOT/examples/pytorch/digits.py" --steps 60
expect_text "$TMP/out" 'parameters identical on 2 ranks'
awk '/^loss before/ { gsub(",", ""); ok = $5 < 0.5 * $3 } END { exit !ok }' "$TMP/out" ||
	fail "the loss did not fall: $(grep '^loss before' "$TMP/out")"
say "digits.py by itself: $(grep '^loss before' "$TMP/out")"

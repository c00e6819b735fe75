#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The process group backend "tally": on two machines, and under torchrun on one.
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/torch/lib.sh"

version=$("$PYTHON" -c 'from importlib.metadata import version; print(version("torch"))')
[ "$(printf '2.1\n%s\n' "$version" | sort -V | head -1)" = 2.1 ] ||
	skip "the backend needs torch 2.1, and this is $version (make check-torch PYTHON=...)"

torch_ranks 2 "$ROOT/tests/torch/group.py"
say 'two machines: the calls of c10d, groups, DDP, a stuck rank named'

cat > "$TMP/launch" <<'END'
unset TALLY_RANK TALLY_WORLD_SIZE TALLY_LOCAL_RANK TALLY_JOB
exec "$PYTHON" -m torch.distributed.run --standalone --nproc-per-node 2 "$1"
END
export PYTHON
expect_status 0 "$BIN/tally" local --ranks 1 -- bash "$TMP/launch" "$ROOT/tests/torch/group.py"
[ "$(cat "$TMP/out" "$TMP/err" | grep -o 'all well' | wc -l)" = 2 ] ||
	fail 'not both ranks are well'
say 'torchrun: the same'

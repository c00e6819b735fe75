#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# LONG
# PyTorch with tensors on GPUs, over a CUDA and an NCCL of host memory, on two ranks of each of
# two machines: the hook, the optimizer and the calls give what they give in host memory, with
# exact sums bit for bit; what fails is said to whom it concerns.
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/torch/lib.sh"

export GPU_DOUBLE=${BUILD:-$ROOT/build}/tests/gpu
[ -e "$GPU_DOUBLE/libtally-cuda.so.0" ] || fail "$GPU_DOUBLE is not built: make tests-build"
AGENT=--topology=$ROOT/tests/data/gpu/scatter.topo

torch_ranks 4 "$ROOT/tests/torch/gpu.py"
sed -n 's/^rank 0: //p' "$TMP/out" | while read -r story; do say "${story//_/ }"; done
torch_ranks 4 "$ROOT/tests/torch/gpu.py" exact
say 'exact: the bits of host memory'
torch_ranks 4 "$ROOT/tests/torch/on_gpus.py" double
say 'what make check-gpu plays on real ones'

version=$("$PYTHON" -c 'from importlib.metadata import version; print(version("torch"))')
if [ "$(printf '2.1\n%s\n' "$version" | sort -V | head -1)" = 2.1 ]; then
	torch_ranks 2 "$ROOT/tests/torch/group.py" gpu
	say 'the process group'
else
	say "no process group: it needs torch 2.1, and this is $version"
fi

torch_ranks 2 "$ROOT/tests/torch/gpu_lost.py"
grep '^rank 1 ' "$TMP/out" | while read -r line; do say "$line"; done
expect_status 0 "$BIN/tally" local --ranks 2 --agent-arg "$AGENT" -- \
	"$PYTHON" "$ROOT/tests/torch/gpu_lost.py" one
[ "$(cat "$TMP/out" "$TMP/err" | grep -o 'all well' | wc -l)" = 2 ] || fail 'not both are well'
grep '^rank 1 ' "$TMP/out" | while read -r line; do say "one machine: $line"; done

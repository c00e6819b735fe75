#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Gradients on GPUs, over a CUDA and an NCCL of host memory: every strategy of the local
# plan gives the sums that host memory gives, and with --exact their bits.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../e2e/lib.sh"

GPU=${BUILD:-$ROOT/build}/tests/gpu
PLUGIN=$GPU/libtally-cuda.so.0
[ -x "$GPU/rank" ] || fail "$GPU/rank is not built: make tests-build"

# strategy FILE TEXT OPTION... -- the text is what the agents say of it in their logs.
strategy()
{
	local file=$ROOT/tests/data/gpu/$1 text=$2 options="--agents 2 --servers 1 --ranks $3"

	shift 3
	rm -rf "$TMP/logs"
	cluster "$options --agent-arg --topology=$file --keep-logs $TMP/logs" "$GPU/rank" "$@" \
		"$PLUGIN"
	grep -q "$text" "$TMP"/logs/*agent* || {
		grep -h GPUs "$TMP"/logs/* >&2
		fail "$file: the agents did not say '$text'"
	}
}

strategy scatter.topo 'GPUs 4, groups 1, reduce-scatter and all-gather' 8
strategy roots.topo 'GPUs 4, groups 1, reduce and broadcast' 8
strategy assisted.topo 'GPUs 4, groups 2, CPU-assisted aggregation' 8
strategy uneven.topo 'GPUs 4, groups 1, reduce and broadcast' 8
strategy bridge.topo 'GPUs 4, groups 2, CPU-assisted aggregation' 8
strategy uneven.topo 'GPUs 1, groups 1, copies of one GPU' 2
strategy scatter.topo 'GPUs 4, groups 4, CPU-assisted aggregation' 8 --exact

# A driver that cannot pin what is mapped read-only.
DOUBLE_WRITABLE=1 strategy assisted.topo 'GPUs 4, groups 2, CPU-assisted aggregation' 8

# Arena slabs of which the agent has one more than the rank.
strategy assisted.topo 'GPUs 4, groups 2, CPU-assisted aggregation' 8 --short

# Two ranks on one GPU, and all that the agent refuses.
DOUBLE_GPUS=g1,g1,g0,g0 strategy scatter.topo 'GPUs 4, groups 1, ' 8 --apart
if DOUBLE_GPUS=nothing timeout 60 "$BIN/tally" local --agent-arg \
	"--topology=$ROOT/tests/data/gpu/roots.topo" -- "$GPU/rank" "$PLUGIN" 2> "$TMP/err"; then
	fail 'a GPU that the agent does not see was taken'
fi
grep -q 'ENOENT: agent .* sees no GPU nothing, which rank 0 has' "$TMP/err" ||
	fail "no word of it: $(cat "$TMP/err")"

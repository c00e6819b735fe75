#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# make check-gpu: the ranks of tests/stories/gpu_*.sh on real GPUs, with real NCCL, on one
# machine and on two that are played on it. Where GPUs are fewer than ranks, several have
# one; NCCL allows that to processes that seem to be of different hosts.
set -eu
cd "$(dirname "$0")/../.."
BUILD=$(realpath "${BUILD:-build}")

skip() { echo "check-gpu skipped: $1"; exit 0; }
[ -x "$BUILD/tests/gpu/rank-cuda" ] || skip 'libtally-cuda was not built, no CUDA toolkit and NCCL'
[ -e /dev/nvidia0 ] || skip 'no GPU here'

# play AGENTS RANKS OPTION...
play()
{
	local where="--agents $1 --servers 1 --ranks $2"

	shift 2
	echo "$where $*"
	# shellcheck disable=SC2016,SC2086 # the rank's own variable; options are words
	timeout -k 10 300 "$BUILD/bin/tally" local $where -- sh -c \
		'NCCL_HOSTID=$TALLY_RANK exec "$0" "$@"' \
		"$BUILD/tests/gpu/rank-cuda" "$@" "$BUILD/lib/libtally-cuda.so.0"
}

play 1 1
play 1 2
play 2 4
play 2 4 --exact
play 2 4 --lost
echo 'check-gpu passed'

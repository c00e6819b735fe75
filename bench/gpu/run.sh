#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# make bench-gpu: bench/gpu/gpu_bench on this machine, with one GPU and, where there are more,
# with two.  Options are those of gpu_bench; with --json each of the runs prints an object.
#
# Exits 77 where there is no GPU.  GPU_BENCH, GPU_PLUGIN: those of tests/gpu's double.
set -eu
cd "$(dirname "$0")/../.."
BUILD=$(realpath "${BUILD:-build}")
GPU_BENCH=${GPU_BENCH:-$BUILD/bench/gpu/gpu_bench}
GPU_PLUGIN=${GPU_PLUGIN:-$BUILD/lib/libtally-cuda.so.0}

skip() { echo "cannot run here: $1"; exit 77; }

[ -x "$GPU_BENCH" ] || skip 'libtally-cuda was not built, no CUDA toolkit and NCCL were found'
gpus=$("$GPU_BENCH" --gpus 2>&1) || skip "no GPU: $gpus"
for (( ranks = 1; ranks <= 2 && ranks <= gpus; ranks++ )); do
	"$BUILD/bin/tally" local --agents 1 --ranks "$ranks" -- "$GPU_BENCH" \
		--plugin "$GPU_PLUGIN" "$@"
done

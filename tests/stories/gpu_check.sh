#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# LONG
# make check-gpu itself, over the double: on a machine with one GPU, with two, and with none.
. "$(dirname "$0")/../lib.sh"

export BUILD=${BUILD:-$ROOT/build}
export GPU_RANK=$BUILD/tests/gpu/rank GPU_PLUGIN=$BUILD/tests/gpu/libtally-cuda.so.0
export HWLOC_XMLFILE=$ROOT/tests/data/topo/single-switch.xml
GPUS=$("$BIN/tally" doctor | sed -n 's/^ *gpu = \([^ ]*\) .*/\1/p' | head -2 | paste -sd,)

DOUBLE_GPUS='' expect_status 77 "$ROOT/tests/gpu/check.sh"
expect_text "$TMP/out" '^cannot run here: no GPU: no device'
GPU_RANK=$TMP/none expect_status 77 "$ROOT/tests/gpu/check.sh"
expect_text "$TMP/out" '^cannot run here: libtally-cuda was not built'
DOUBLE_GPUS=${GPUS%%,*} expect_status 0 "$ROOT/tests/gpu/check.sh"
expect_text "$TMP/out" '^machines 1, ranks 2, --apart$'
expect_text "$TMP/out" '^note: GPUs 1; not tested: a GPU for each rank'
expect_text "$TMP/out" '^PyTorch: (skipped, .*:|machines 1)'

# as if torch saw the GPUs, where there is one
torch=$PYTHON
if "$PYTHON" -c 'import torch' 2> "$TMP/err"; then
	printf '#!/bin/bash\n[ "$2" = --sees ] || exec %s "$@" double\n' "$PYTHON" > "$TMP/python"
	chmod +x "$TMP/python"
	torch=$TMP/python
fi
DOUBLE_GPUS=$GPUS GPU_DOUBLE=$BUILD/tests/gpu PYTHON=$torch OMP_NUM_THREADS=1 \
	expect_status 0 "$ROOT/tests/gpu/check.sh"
[ "$torch" = "$PYTHON" ] || expect_text "$TMP/out" '^PyTorch: machines 2, ranks 4$'
expect_text "$TMP/out" '^machines 1, ranks 2$'
expect_text "$TMP/out" '^machines 2, ranks 4$'
expect_text "$TMP/out" '^note: GPUs 2; not tested: a group'
! grep -q apart "$TMP/out" || fail 'ranks shared a GPU where there are enough'

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tally doctor --probe measures the links of GPUs, over the double; what it prints is the
# machine that an agent takes by --topology.
. "$(dirname "$0")/../lib.sh"

GPU=${BUILD:-$ROOT/build}/tests/gpu
[ -x "$GPU/rank" ] || fail "$GPU/rank is not built: make tests-build"
export HWLOC_XMLFILE=$ROOT/tests/data/topo/dgx1-one-card.xml

# probe [GPU...]: all others are hidden from CUDA; the machine's lines are in $TMP/lines.
probe()
{
	DOUBLE_GPUS=$(IFS=,; echo "$*") LD_LIBRARY_PATH=$GPU expect_status 0 "$BIN/tally" doctor \
		--probe
	sed -n '/^node = /,/^$/p' "$TMP/out" > "$TMP/lines"
}

probe 0000:03:00.0 0000:04:00.0
for a in 3 4; do
	expect_text "$TMP/out" "^# measured: 0000:0$a:00.0 to host [0-9.]+ GB/s"
	expect_text "$TMP/out" "^# measured: 0000:0$a:00.0 from host [0-9.]+ GB/s"
	expect_text "$TMP/out" "^# measured: 0000:0$a:00.0 to 0000:0$(( 7 - a )):00.0 [0-9.]+ GB/s"
	expect_text "$TMP/lines" "^ *gpu = 0000:0$a:00.0 .*rate="
	! grep -q "gpu = 0000:0$a.* rate=126.03" "$TMP/lines" || fail 'the nominal rate has stayed'
done
[ "$(grep -c '^# measured' "$TMP/out")" = 6 ] || fail "not 6 links: $(grep '^# m' "$TMP/out")"
expect_text "$TMP/out" '^# not measured: memory of node1$'	# which is another machine's
expect_text "$TMP/out" '^# not measured: 0000:08:00.0, which CUDA does not show'
grep -Eq '^nvlink = 0000:03:00.0 0000:04:00.0 ' "$TMP/lines" || fail 'the NVLink has gone'
! grep -Eq '^nvlink = 0000:03:00.0 0000:04:00.0 [248]00gbit' "$TMP/lines" ||
	fail 'the nominal rate of the NVLink has stayed'
expect_text "$TMP/lines" '^ *gpu = 0000:08:00.0 .*rate=126.03'
say "$(grep -m 1 '^# measured' "$TMP/out")"
DOUBLE_APART=1 probe 0000:03:00.0 0000:04:00.0 0000:99:00.0
expect_text "$TMP/out" '^# not measured: 0000:03:00.0: CUDA: copies to GPU 1 go by host memory'
expect_text "$TMP/out" '^# not measured: 0000:99:00.0, which is not among the GPUs that hwloc shows'
HWLOC_XMLFILE=$ROOT/tests/data/topo/pcie-2x4-card-apart.xml probe 0000:03:00.0
expect_text "$TMP/out" '^# not measured: from GPU to GPU below a switch'
probe 0000:03:00.0 0000:04:00.0

DOUBLE_GPUS=0000:03:00.0,0000:04:00.0 timeout 60 "$BIN/tally" local --ranks 2 \
	--agent-arg "--topology=$TMP/lines" -- "$GPU/rank" --rounds 1 "$GPU/libtally-cuda.so.0" \
	> "$TMP/out" 2> "$TMP/err" || fail "no agent takes it: $(cat "$TMP/err")"
say 'an agent takes what was measured'

mkdir "$TMP/broken"		# found before one that may be installed
: > "$TMP/broken/libtally-cuda.so.0"
LD_LIBRARY_PATH=$TMP/broken expect_status 0 "$BIN/tally" doctor --probe
expect_text "$TMP/out" '^# not measured: GPUs: .*libtally-cuda.so.0'
probe
expect_text "$TMP/out" '^# not measured: this process sees no GPU: CUDA: no device'
[ "$(grep 'measured:' "$TMP/out" | grep -vc 'memory of')" = 1 ] ||
	fail "more than the reason: $(cat "$TMP/out")"

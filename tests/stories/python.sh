#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The Python package on four ranks of two machines: the same calls, the same sums.
. "$(dirname "$0")/../lib.sh"

"$PYTHON" -c 'import numpy' 2>/dev/null || skip "$PYTHON has no numpy"
export TALLY_LIBRARY=$LIB/libtally.so.0
expect_status 0 "$BIN/tally" local --agents 2 --servers 1 --ranks 4 -- \
	"$PYTHON" "$ROOT/tests/test_python.py"
expect_text "$TMP/out" 'rank 0 of 4: ok'
say 'four ranks in Python agree'

TALLY_LIBRARY=libc.so.6 PYTHONPATH=$ROOT/client/python \
	expect_status 1 "$PYTHON" -c 'import tally'
expect_text "$TMP/err" 'ImportError: .*libc.so.6 has no tally_attach'
say 'another library is refused by name'

for call in join declare barrier; do
	expect_status 0 "$BIN/tally" local --agents 1 --ranks 2 -- \
		"$PYTHON" "$ROOT/tests/ctrl_c_rank.py" $call "$TMP/heard"
	rm -f "$TMP/heard"
done
expect_text "$TMP/err" 'heard: .*rank 0'
say 'Ctrl-C ends the wait for others'

export TALLY_LOG=info
expect_status 0 "$BIN/tally" local --agents 2 --servers 1 --ranks 2 -- \
	"$PYTHON" "$ROOT/tests/log_rank.py" "$TMP/about"
late="rank 1 \(machine .*\)"
for line in "joining the job for [12] s: rank 1 of job '.*' has not attached" \
	"joining the job is over, after " \
	"declaring tensors for [12] s: tensor 'w' of job '.*': $late has not declared it" \
	"in a barrier for [12] s: barrier 1 of job '.*' waits for $late\$" \
	"in a barrier is over, after [0-9]+ s" \
	"round 1 of tensor w for [12] s: .*waits for $late" \
	"round 1 of tensor w is over, after [0-9]+ s"; do
	expect_text "$TMP/err" "tally: rank 0 of 2, job '.*': $line"
done
expect_status 1 "$BIN/tally" local --ranks 1 -- \
	env TALLY_WORLD_SIZE=2 TALLY_TIMEOUT_MS=1800 "$BIN/tally" bench -b 4K -e 4K
expect_text "$TMP/err" "joining the job for 1 s: rank 1 of job '.*' has not attached"
unset TALLY_LOG
say 'with TALLY_LOG it is told what a rank waits for, in C and Python alike'

for what in late waiting; do
	expect_status 0 "$BIN/tally" local --ranks 2 -- \
		"$PYTHON" "$ROOT/tests/at_exit_rank.py" $what
	[ "$(cat "$TMP/out" "$TMP/err" | grep -c 'ended well')" = 2 ] ||
		fail "$what: not both ranks ended well"
done
say 'a process ends with its session open, whatever else runs then'

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

for what in late waiting; do
	expect_status 0 "$BIN/tally" local --ranks 2 -- \
		"$PYTHON" "$ROOT/tests/at_exit_rank.py" $what
	[ "$(cat "$TMP/out" "$TMP/err" | grep -c 'ended well')" = 2 ] ||
		fail "$what: not both ranks ended well"
done
say 'a process ends with its session open, whatever else runs then'

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/sim_run.sh SIM OPTION...: the simulator with these.  When a seed fails the first one that
# did is played once more, and the end of its transcript shown: it is in the log of who runs the
# tests elsewhere, too, where nobody can repeat it.
set -u
LINES_SHOWN=200
out=$(mktemp)
trap 'rm -f "$out"' EXIT

"$@" 2>&1 | tee "$out"
rc=${PIPESTATUS[0]}
seed=$(sed -n 's/.*sim --seed \([0-9]*\).*/\1/p;T;q' "$out")
if (( rc )) && [ -n "$seed" ]; then
	echo "The end of what happened with seed $seed:"
	timeout 300 "$1" --seed "$seed" --trace 2>&1 | tail -n "$LINES_SHOWN"
fi
exit "$rc"

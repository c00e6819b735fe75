#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# LONG
# TIMEOUT: 1800
# A round in simulated time (bench/round_sim.c) takes at most 3 % longer than the plan says,
# with more machines, with the help of CPU machines, with some cards slower, and with fast cards.
. "$(dirname "$0")/../lib.sh"

cd "$ROOT" || exit 1
sim="${BUILD:-build}/bench/round_sim"
slower='4,2,0.5 4,2,0.25 4,0,1,0.5 4,2,1,0.5 4,4,1,0.5'

within() # CLUSTER...: with a limit of 3 %
{
	"$sim" -l 1.03 "$@" > "$TMP/out" || fail "a round takes too long: $(cat "$TMP/out")"
	cat "$TMP/out"
}

# shellcheck disable=SC2086
{
	echo 'grad float32 16777216' > "$TMP/one"
	within -m "$TMP/one" 2,0 2,2 4,0 4,1 4,2 4,3 4,4 8,0 8,1 8,4 8,8 $slower
	within -m "$TMP/one" 16,0 16,4 16,8 32,2 32,16 64,0 64,4 64,32 512,0
	within -x 0.125 4,2 $slower
	within 2,0 4,2 8,0 8,4 16,0 16,8 16,16 32,0
	for gbit in 10 25 100; do
		within -b $gbit 4,2 8,0 8,4 16,8
	done
}

"$sim" -l 0.5 4,2 > "$TMP/out" && fail 'a round takes half the time that cards need'

sim_once() # NAME
{
	"$sim" 4,2 8,1 | awk '{ print $1, $4, $9, $10 }' > "$TMP/$1"
}
sim_once once
sim_once twice
diff "$TMP/once" "$TMP/twice" || fail 'the same clusters took another time'

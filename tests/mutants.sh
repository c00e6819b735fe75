#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/mutants.sh SIM [SEEDS]: every deliberate protocol bug of common/base/mutate.h
# makes the simulator fail within SEEDS seeds; without any it passes.
set -u
cd "$(dirname "$0")/.."
sim=$1 seeds=${2:-300} passed=0 failed=0

if ! "$sim" --seeds 100 > /dev/null 2>&1; then
	echo 'FAILED: the simulator fails without a mutant'
	failed=1
fi
while read -r n what; do
	if out=$("$sim" --mutant "$n" --seeds "$seeds" --failures 1 2>&1); then
		echo "FAILED: mutant $n is not found in $seeds seeds: $what"
		failed=$(( failed + 1 ))
	else
		passed=$(( passed + 1 ))
		why=$(grep -am1 'FAILED:\|bug:\|ASSERT' <<< "$out")
		seed=$(grep -aom1 'sim --seed [0-9]*' <<< "$out")
		echo "mutant $n, $what: ${seed#sim --}, ${why:-ended by a signal}"
	fi
done < <(sed -n 's/^\tX(\([0-9]*\), *"\([^"]*\)").*/\1 \2/p' common/base/mutate.h)
echo "$passed passed, $failed failed"
exit "$(( failed != 0 ))"

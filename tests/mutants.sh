#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/mutants.sh SIM [SEEDS]: every deliberate protocol bug of common/base/mutate.h
# makes the simulator fail within SEEDS seeds; without any it passes.  As many at a time
# as there are processors.
set -u
cd "$(dirname "$0")/.."
sim=$1 seeds=${2:-4000}

# Its line of the report; fails when the bug is not found.
one_mutant() {
	local n=${1%% *} what=${1#* } out why seed

	out=$("$sim" --mutant "$n" --seeds "$seeds" --failures 1 2>&1)
	case $? in
	0)	echo "FAILED: mutant $n is not found in $seeds seeds: $what"
		return 1 ;;
	2)	echo "FAILED: $sim is built without mutants"
		return 1 ;;
	esac
	why=$(grep -am1 'FAILED:\|bug:\|ASSERT' <<< "$out")
	seed=$(grep -aom1 'sim --seed [0-9]*' <<< "$out")
	echo "mutant $n, $what: ${seed#sim --}, ${why:-ended by a signal}"
}
export -f one_mutant
export sim seeds

if ! "$sim" --seeds 100 > /dev/null 2>&1; then
	echo 'FAILED: the simulator fails without a mutant'
	echo '0 passed, 1 failed'
	exit 1
fi
out=$(sed -n 's/^\tX(\([0-9]*\), *"\([^"]*\)").*/\1 \2/p' common/base/mutate.h |
	tr '\n' '\0' | xargs -0 -P "$(nproc)" -I{} bash -c 'one_mutant "$1"' - {} | sort -k2n)
echo "$out"
failed=$(grep -c '^FAILED' <<< "$out")
echo "$(( $(grep -c . <<< "$out") - failed )) passed, $failed failed"
exit "$(( failed != 0 ))"

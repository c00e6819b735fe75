#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/mutants.sh SIM [SEEDS]: every deliberate protocol bug of common/base/mutate.h
# makes a run of the simulator fail within SEEDS seeds, and the report says which and by
# what; without any it passes.  As many at a time as there are processors.  That a path is
# never taken is no find: the bug would go unseen in each single run.
set -u
cd "$(dirname "$0")/.."
sim=$1 seeds=${2:-4000}

# Its line of the report; fails when the bug is not found.
one_mutant() {
	local n=${1%% *} what=${1#* } out why seed status

	out=$("$sim" --mutant "$n" --seeds "$seeds" --failures 1 2>&1)
	status=$?
	why=$(grep -aom1 'FAILED: .*\|bug at .*\|Sanitizer: .*' <<< "$out")
	seed=$(grep -aom1 'sim --seed [0-9]*' <<< "$out")
	why=${why#FAILED: }
	case $status in
	1) ;;						# a rule of the simulator's own
	134) ;;						# a core's ASSERT
	132 | 135 | 136 | 139) why=${why:-signal $(( status - 128 ))} ;;
	2)	echo "FAILED: $sim is built without mutants"
		return 1 ;;
	0 | 3)	echo "FAILED: mutant $n is not found in $seeds seeds: $what${why:+ ($why)}"
		return 1 ;;
	*)	why= ;;
	esac
	if [ -z "$why" ] || [ -z "$seed" ]; then
		echo "FAILED: mutant $n ended with status $status, which is no find: $what"
		return 1
	fi
	echo "mutant $n, $what: ${seed#sim --}, $why"
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

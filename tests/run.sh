#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests that were built: tests/run.sh [--unit | --threads] [--sim] [--lint] [--fuzz]
# [--stories] [RUNNER OPTION]...; no kind means all of them.  --threads are the unit tests
# with more than one thread.  Everything after the kinds goes to tests/run.py, e.g. -k ring.
set -eu
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build}
FUZZ_SECONDS=${FUZZ_SECONDS:-5}
export BUILD CK_DEFAULT_TIMEOUT=240	# s, of a unit test
export RES_OPTIONS='timeout:1 attempts:1 ndots:0'	# of a DNS that is mute

kinds=()
while [ $# -gt 0 ]; do
	case $1 in
	--unit | --threads | --sim | --lint | --fuzz | --stories) kinds+=("${1#--}") ;;
	*) break ;;
	esac
	shift
done
[ ${#kinds[@]} -gt 0 ] || kinds=(lint unit sim fuzz stories)

shopt -s nullglob
programs=()
for kind in "${kinds[@]}"; do
	case $kind in
	# From the sources: a program left over from a removed test does not count.
	unit) for f in tests/unit/test_*.c; do
			programs+=("$BUILD/tests/$(basename "$f" .c)")
		done
		programs+=(tests/unit/test_*.py) ;;
	threads) for f in tests/unit/test_*.c; do
			f=$BUILD/tests/$(basename "$f" .c)
			! nm -D --undefined-only "$f" | grep -q 'pthread_create\|uv_' ||
				programs+=("$f")
		done ;;
	sim) sources=(tests/sim/*.c)
		[ ${#sources[@]} -eq 0 ] ||
			programs+=("tests/sim_run.sh $BUILD/tests/sim"
				"tests/sim_run.sh $BUILD/tests/sim --fresh --seeds 300")
		programs+=("$BUILD/tests/storm --seeds ${STORM_SEEDS:-5000}") ;;
	lint) programs+=(tests/lint.py tests/cycles.py 'tests/comments.py --openings') ;;
	fuzz) for f in tests/fuzz/fuzz_*.c; do
			target=$BUILD/fuzz/$(basename "$f" .c)
			programs+=("tests/fuzz/run.sh $target $FUZZ_SECONDS")
		done ;;
	stories) programs+=(tests/stories/*.sh) ;;
	esac
done
exec python3 tests/run.py "$@" -- "${programs[@]}"

# SPDX-License-Identifier: Apache-2.0
# For the stories tests/stories/e2e_*.sh, after lib.sh: clusters that play tests/e2e.
#
# E2E_FULL=1 (make e2e-full) makes the matrices as large as they should be on a quiet machine.

E2E=${BUILD:-$ROOT/build}/tests/e2e
E2E_FULL=${E2E_FULL:-}
E2E_SECONDS=${E2E_SECONDS:-300}
# An argument for scenarios with edges: whether these are the edges of the job's chunks.
LOOK="--look=$PYTHON $ROOT/tests/e2e/look.py"
export BIN

[ -x "$E2E" ] || fail "$E2E is not built: make tests-build"

full() { [ -n "$E2E_FULL" ]; }

# cluster "OPTION OF tally local..." COMMAND...: must end well, within E2E_SECONDS;
# standard output in $TMP/out.
cluster()
{
	local options=$1 started took

	shift
	started=$(now_ms)
	# shellcheck disable=SC2086 # options are words
	timeout -k 10 "$E2E_SECONDS" "$BIN/tally" local $options -- "$@" \
		> "$TMP/out" 2> "$TMP/err" < /dev/null || {
		local status=$?

		cat "$TMP/out" "$TMP/err" >&2
		fail "tally local $options -- ${*##*/} ended with $status"
	}
	took=$(( $(now_ms) - started ))
	say "$(printf '%5d ms  %s: %s' "$took" "$options" "$(tail -n 1 "$TMP/out")")"
}

# The hash in the last run's output.
hash_of_run() { sed -n 's/^hash \([0-9a-f]*\) .*/\1/p' "$TMP/out"; }

# SPDX-License-Identifier: Apache-2.0
# Helpers of the PyTorch stories: source it after lib.sh.
#
# PYTHON=/path/to/python runs them with the torch of that interpreter.

"$PYTHON" - torch <<'END' || skip "$PYTHON has no torch (Debian: python3-torch)"
import importlib.util, sys
sys.exit(not all(importlib.util.find_spec(m) for m in sys.argv[1:]))
END

export BIN TALLY_LIBRARY=$LIB/libtally.so.0 RIG_DIR=$TMP PYTHONDONTWRITEBYTECODE=1
export OMP_NUM_THREADS=1

# torch_ranks RANKS PROGRAM [ARG]...: two machines and a CPU server; every rank has to
# say that all is well.  AGENT: an argument for the agents.
torch_ranks()
{
	local ranks=$1

	shift
	export RIG_SERVERS=$(( 2 + ${SERVERS:-1} ))	# each machine has its own
	expect_status 0 "$BIN/tally" local --agents 2 --servers "${SERVERS:-1}" --ranks "$ranks" \
		${AGENT:+--agent-arg "$AGENT"} -- "$PYTHON" "$@"
	[ "$(cat "$TMP/out" "$TMP/err" | grep -o 'all well' | wc -l)" = "$ranks" ] || {
		cat "$TMP/out" "$TMP/err" >&2
		fail "not all of $ranks ranks are well"
	}
}

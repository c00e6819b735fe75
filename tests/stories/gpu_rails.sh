#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The plan that an agent makes is the one that tally doctor prints for the same rails: on a
# machine with cards below every switch, of which a rail names one.
. "$(dirname "$0")/../lib.sh"

GPU=${BUILD:-$ROOT/build}/tests/gpu
PLUGIN=$GPU/libtally-cuda.so.0
[ -x "$GPU/rank" ] || fail "$GPU/rank is not built: make tests-build"

# hwloc takes this machine from there; the card mlx5_0 has the address 127.0.0.1.
sed 's/name="mlx5_0"/name="lo"/' "$ROOT/tests/data/topo/a100-card-per-switch.xml" \
	> "$TMP/machine.xml"
export HWLOC_XMLFILE=$TMP/machine.xml
DOUBLE_GPUS=$("$BIN/tally" doctor | sed -n 's/^ *gpu = \([^ ]*\) .*/\1/p' | paste -sd,)
export DOUBLE_GPUS
[ "$(tr -cd , <<< "$DOUBLE_GPUS" | wc -c)" = 7 ] || fail "not 8 GPUs: $DOUBLE_GPUS"

"$BIN/tally" doctor > "$TMP/out"
expect_text "$TMP/out" '^plan +reduce-scatter and all-gather'
"$BIN/tally" doctor --rail 127.0.0.1 > "$TMP/out"
expect_text "$TMP/out" '^plan +reduce and broadcast'
expect_text "$TMP/out" '^# 8 NICs left out'

timeout 100 "$BIN/tally" local --ranks 8 --keep-logs "$TMP/logs" -- "$GPU/rank" --rounds 1 \
	"$PLUGIN" > "$TMP/out" 2> "$TMP/err" || fail "the ranks: $(cat "$TMP/err")"
grep -q 'GPUs 8, groups 1, reduce and broadcast' "$TMP"/logs/*agent* ||
	fail "the agent has another plan: $(grep -h GPUs "$TMP"/logs/*agent*)"
say 'agent and doctor agree'

# A file of lines means every card in it, whatever the rails are.
"$BIN/tally" doctor --topology "$TMP/machine.xml" | sed '/^$/,$d' > "$TMP/lines"
timeout 100 "$BIN/tally" local --ranks 8 --keep-logs "$TMP/logs2" --agent-arg \
	"--topology=$TMP/lines" -- "$GPU/rank" --rounds 1 "$PLUGIN" > "$TMP/out" 2> "$TMP/err" ||
	fail "the ranks: $(cat "$TMP/err")"
grep -q 'GPUs 8, groups 1, reduce-scatter and all-gather' "$TMP"/logs2/*agent* ||
	fail "the agent has another plan: $(grep -h GPUs "$TMP"/logs2/*agent*)"
say 'a file of lines is taken as it is'

# A rail is an address, and that may be another interface's than the card's own.
if ! can_make_namespaces; then
	say 'skipped: no namespaces for a bridge over a card'
	exit 0
fi
sed 's/name="lo"/name="card0"/' "$TMP/machine.xml" > "$TMP/card0.xml"
export HWLOC_XMLFILE=$TMP/card0.xml
ns_add a
in_ns a ip link add card0 type veth peer name wire
in_ns a ip link add br0 type bridge
in_ns a ip link set card0 master br0
in_ns a ip addr add 10.0.0.1/24 dev br0
in_ns a ip addr add 10.0.1.1/24 dev card0 label card0:x
for rail in 10.0.0.1 10.0.1.1; do
	in_ns a "$BIN/tally" doctor --rail $rail > "$TMP/out" || :
	expect_text "$TMP/out" '^plan +reduce and broadcast'
	expect_text "$TMP/out" '^# 8 NICs left out'
done
say 'the card below a bridge is the one that counts, and one with a label'

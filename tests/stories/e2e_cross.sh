#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Ranks out of step: one a round ahead, nobody in step, one that waits for X before
# it submits Y while another floods Y first, three that flood in a circle.  All of
# it ends, every bit is right, and a server's memory stays within its share of the
# tensors, 16 MiB per agent and what it needs for itself.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../e2e/lib.sh"

# Runs e2e; around it rank 0 forgets what the servers had (to measure their adder at
# start takes more), and writes the most that each of them had since then, in KiB.
cat > "$TMP/rank.sh" <<'RANK'
servers=
if [ "$TALLY_RANK" = 0 ]; then
	for proc in /proc/[0-9]*; do
		[ "$(cat "$proc/comm" 2> /dev/null)" = tally-server ] || continue
		[ "$(sed -n 's/^PPid:[[:space:]]*//p' "$proc/status")" = $PPID ] || continue
		servers+=" $proc"
		echo 5 > "$proc/clear_refs" || exit
	done
fi
"$@" || exit
for proc in $servers; do
	sed -n 's/^VmHWM:[[:space:]]*\([0-9]*\) kB/\1/p' "$proc/status"
done > "$MEMORY.$TALLY_RANK"
RANK

# within AGENTS RANKS SERVERS SHARE_MIB SCENARIO...: on servers of their own
# machines, whose memory is not mixed with an agent's, with SHARE_MIB each.
OWN_MIB=${OWN_MIB:-16}
within()
{
	local agents=$1 ranks=$2 servers=$3 limit=$(( $4 + 16 * $1 + OWN_MIB )) kib

	shift 4
	export MEMORY=$TMP/memory
	cluster "--agents $agents --ranks $ranks --servers $servers --no-colocated" \
		bash "$TMP/rank.sh" "$E2E" "$@"
	[ "$(wc -l < "$MEMORY.0")" = "$servers" ] || fail 'no word of the memory'
	while read -r kib; do
		say "server: $(( kib >> 10 )) MiB, limit $limit"
		(( kib >> 10 <= limit )) || fail "a server had more than $limit MiB"
	done < "$MEMORY.0"
}

more=()
full && more=(--effort 4)

cluster '--agents 2 --ranks 4 --servers 1' "$E2E" "${more[@]}" ahead soak
cluster '--agents 3 --ranks 3 --servers 1' "$E2E" "${more[@]}" cross circle
# One window for everything that is crossed.
within 2 2 1 102 "${more[@]}" cross
within 3 3 1 152 "${more[@]}" circle
if full; then
	within 2 4 2 152 "${more[@]}" cross circle
	within 4 4 1 310 "${more[@]}" cross circle
	for servers in 0 1 2 4; do
		cluster "--agents 4 --ranks 8 --servers $servers" "$E2E" ahead soak cross circle
	done
	for seed in {1..10}; do
		cluster "--agents 3 --ranks 5 --servers $(( seed % 3 ))" \
			"$E2E" --seed "$seed" --chunk $(( 16 << (10 + seed % 9) )) \
			ahead soak cross circle
	done
fi

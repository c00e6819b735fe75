#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Sums equal the reference bit for bit: every dtype, op and kind of memory, sizes
# around a chunk's, over 1 to 8 ranks on 1 to 8 machines with 0 to 4 CPU servers.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../e2e/lib.sh"

# agents ranks servers: every number of each; 2 with 3, 3 with 4 and 3 with 5 are uneven.
cases=("1 1 0" "1 4 0" "2 2 1" "2 3 3" "2 4 0" "3 4 2" "3 5 4" "5 5 1" "6 6 2" "7 7 0" "4 8 4"
	"8 8 3")
full && cases=({1..8}" "{1..8}" "{0..4})

# Every second cluster has chunks of 256 KiB, the others what the cards call for.  The sizes
# of `sums` are at the edges of both, which is looked up in every cluster.
chunk=()
for case in "${cases[@]}"; do
	read -r agents ranks servers <<< "$case"
	[ "$ranks" -ge "$agents" ] || continue
	scenarios=(sums)
	[ "$ranks" -lt 3 ] || scenarios=(order sums)
	cluster "--agents $agents --ranks $ranks --servers $servers" \
		"$E2E" "${chunk[@]}" "$LOOK" "${scenarios[@]}"
	[ ${#chunk[@]} -gt 0 ] && chunk=() || chunk=(--chunk $(( 256 << 10 )))
done

# Servers on CPU machines alone.
cluster '--agents 2 --ranks 3 --servers 2 --no-colocated' "$E2E" "$LOOK" order sums
cluster '--agents 3 --ranks 3 --servers 1 --no-colocated' "$E2E" "$LOOK" order edges

# Chunks of 4 MiB, and sizes around that.
edge=$(( 4 << 20 ))
cluster '--agents 2 --ranks 3 --servers 1' "$E2E" --chunk $edge --edge $edge --effort 3 \
	"$LOOK" order edges

# Large ones: a machine alone sums these past the caches; 64 MiB over three ranks and two.
cluster '--agents 1 --ranks 4' "$E2E" order cold
cluster '--agents 2 --ranks 3 --servers 1' "$E2E" order big
cluster '--agents 2 --ranks 2 --servers 2 --no-colocated' "$E2E" big
cases=()
full && cases=({1,4,8}" "{0,1,4})
for case in "${cases[@]}"; do
	read -r ranks servers <<< "$case"
	cluster "--agents $(( (ranks + 1) / 2 )) --ranks $ranks --servers $servers" "$E2E" big
done

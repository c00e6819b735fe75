#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Sums equal the reference bit for bit: every dtype, op and kind of memory, sizes
# around a chunk's, over 1 to 8 ranks on 1 to 8 machines with 0 to 4 CPU servers.
# TIMEOUT: 900
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../e2e/lib.sh"

# agents ranks servers; 3 agents with 4 ranks are uneven.
cases=("1 1 0" "1 4 0" "2 2 1" "2 4 0" "3 4 2" "4 8 4" "8 8 3")
full && cases=({1,2,3,4,8}" "{1,2,3,4,5,6,7,8}" "{0,1,2,3,4})

for case in "${cases[@]}"; do
	read -r agents ranks servers <<< "$case"
	[ "$ranks" -ge "$agents" ] || continue
	scenarios=(sums)
	[ "$ranks" -lt 3 ] || scenarios=(order sums)
	cluster "--agents $agents --ranks $ranks --servers $servers" "$E2E" "${scenarios[@]}"
done

# Servers on CPU machines alone.
cluster '--agents 2 --ranks 3 --servers 2 --no-colocated' "$E2E" order sums
cluster '--agents 3 --ranks 3 --servers 1 --no-colocated' "$E2E" order edges

# 64 MiB, and sizes around 4 MiB in chunks of 4 MiB.
cluster '--agents 2 --ranks 3 --servers 1' "$E2E" big
cluster '--agents 2 --ranks 2 --servers 1' "$E2E" --chunk $(( 4 << 20 )) edges

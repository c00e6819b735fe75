#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The bits of all results depend on inputs, rank order and grouping alone: a hash
# over them is the same whatever servers, chunks, links, threads and CPU level.
# TIMEOUT: 600
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../e2e/lib.sh"

where='--agents 2 --ranks 4'
scenarios=(sums)
full && scenarios=(sums edges ahead soak)

# same OPTIONS [E2E OPTION...]: the hash is that of the first call.
reference=
same()
{
	local options=$1

	shift
	cluster "$where $options" "$E2E" "$@" "${scenarios[@]}"
	reference=${reference:-$(hash_of_run)}
	[ -n "$reference" ] || fail 'no hash'
	[ "$(hash_of_run)" = "$reference" ] || fail "other bits with: $options $*"
}

each() { printf -- '--agent-arg %s --server-arg %s ' "$1" "$1"; }

same '--servers 1'
same '--servers 3'
same '--servers 1' --chunk $(( 256 << 10 ))
same '--servers 1' --chunk $(( 4 << 20 ))
same "--servers 1 $(each --simd=c)"
same '--servers 1 --agent-arg --no-shm'
same "--servers 2 $(each --engines=2)"
same '--servers 1 --agent-arg --links=1'
if full; then
	same '--servers 0'
	same '--servers 4 --no-colocated' --chunk $(( 64 << 10 ))
	same "--servers 1 $(each --simd=avx2)"
	same "--servers 1 $(each --simd=c) $(each --engines=3) --agent-arg --links=8"
	same "--servers 3 --agent-arg --no-shm $(each --engines=4)" --chunk $(( 4 << 20 ))
	same '--servers 1 --server-arg --simd=c --agent-arg --simd=avx512'
fi

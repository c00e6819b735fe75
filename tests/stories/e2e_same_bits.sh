#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The bits of all results depend on inputs, rank order and grouping alone: a hash
# over them is the same whatever servers, chunks, links, threads and CPU level.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../e2e/lib.sh"

where='--agents 2 --ranks 4'
# The edges of every chunk that is here, in all runs: they have the same tensors.
edges=()
for kib in 16 256 512 4096; do edges+=(--edge $(( kib << 10 ))); done
scenarios=(sums)
full && scenarios=(sums ahead soak)

# same OPTIONS [E2E OPTION...]: the hash is that of the first call.
reference=
same()
{
	local options=$1

	shift
	cluster "$where $options" "$E2E" "${edges[@]}" "$@" "${scenarios[@]}"
	reference=${reference:-$(hash_of_run)}
	[ -n "$reference" ] || fail 'no hash'
	[ "$(hash_of_run)" = "$reference" ] || fail "other bits with: $options $*"
}

each() { printf -- '--agent-arg %s --server-arg %s ' "$1" "$1"; }

# level NAME: the sums of that CPU level; where the CPU lacks it the daemons take a lower one.
compared=() lacked=()
level()
{
	rm -rf "$TMP/logs"
	same "--servers 1 --keep-logs $TMP/logs $(each "--simd=$1")"
	case $(sed -n 's/.*, engines .*, sums \([a-z0-9]*\).*/\1/p' "$TMP"/logs/*.log | sort -u) in
	"$1") compared+=("$1") ;;
	*[!a-z0-9]* | '') fail "not one level of sums in the logs of --simd=$1" ;;
	*) lacked+=("$1") ;;
	esac
}

same '--servers 1'
same '--servers 3'
same '--servers 1' --chunk $(( 16 << 10 )) "$LOOK"
same '--servers 1' --chunk $(( 256 << 10 )) "$LOOK"
same '--servers 1' --chunk $(( 4 << 20 )) "$LOOK"
for simd in c avx2 avx512; do level $simd; done
same '--servers 1 --agent-arg --no-shm'
same "--servers 2 --agent-arg --no-shm $(each --engines=2)" --chunk $(( 16 << 10 ))
same "--servers 2 $(each --engines=2)"
same "--servers 1 --agent-arg --links=1 --agent-arg --no-shm $(each --frames-per-write=1)"
if full; then
	same '--servers 0'
	same '--servers 4 --no-colocated' --chunk $(( 64 << 10 ))
	same "--servers 1 $(each --simd=c) $(each --engines=3) --agent-arg --links=8"
	same "--servers 3 --agent-arg --no-shm $(each --engines=4)" --chunk $(( 4 << 20 ))
	same '--servers 1 --server-arg --simd=c --agent-arg --simd=avx512'
fi
say "note: levels compared: ${compared[*]}${lacked[*]:+; not on this CPU: ${lacked[*]}}"

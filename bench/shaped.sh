#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A round's time on cards of a given speed, next to t_opt: N training machines with a
# server each and K CPU machines as network namespaces, shaped in both directions.
#
#	bench/shaped.sh [-r GBIT] [-s SIZE] [-i ITERATIONS] N,K...
#
# Needs root.  One line per cluster: p50 and p99 of the slowest rank, t_opt at the
# payload rate (1448 of the 1514 bytes that the shaper counts per frame), their ratio, and
# whether that is the 1.10 that is promised.  A missed one is no failure: read the output.

. "$(dirname "$0")/cluster.sh"

PAYLOAD=0.9564
TARGET=1.10
rate=1 size=64M iterations=10
while getopts r:s:i: option; do
	case $option in
	r) rate=$OPTARG ;;
	s) size=$OPTARG ;;
	i) iterations=$OPTARG ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || set -- 4,0 4,2 4,4 2,2
for cluster; do
	[[ $cluster =~ ^[1-9][0-9]*,[0-9]+$ && $cluster != 1,* ]] ||
		{ echo "$0: $cluster: not N,K with an N of 2 or more" >&2; exit 2; }
done

rank()		# rank, world size
{
	in_ns "gpu$1" env TALLY_RANK="$1" TALLY_WORLD_SIZE="$2" TALLY_JOB=shaped \
		TALLY_SOCKET="$TMP/agent-gpu$1.sock" \
		"$BIN/tally" bench -b "$size" -e "$size" -n "$iterations" -w 3 --json
}

report()	# n, k
{
	"$PYTHON" - "$1" "$2" "$rate" "$PAYLOAD" "$TMP/rank0" "$TARGET" <<-'END'
	import json, sys
	n, k = int(sys.argv[1]), int(sys.argv[2])
	gbit, payload = float(sys.argv[3]), float(sys.argv[4])
	r = json.load(open(sys.argv[5]))["results"][0]
	size, p50, p99 = r["size_bytes"], r["p50_us"] / 1e6, r["p99_us"] / 1e6
	card = gbit * payload * 1e9 / 8
	target = float(sys.argv[6])
	optimum = 2 * n * (n - 1) * size / ((n * n + k * n - 2 * k) * card)
	ratio = p50 / optimum
	print(f"({n},{k})  {size} B  p50 {p50:.3f} s  p99 {p99:.3f} s  t_opt {optimum:.3f} s"
	      f"  {ratio:.3f} x t_opt  target {target:.2f} {'met' if ratio <= target else 'MISSED'}"
	      f"  errors {r['errors']}")
	END
}

for cluster; do
	n=${cluster%,*} k=${cluster#*,}
	machines=()
	for (( i = 0; i < n; i++ )); do machines+=("gpu:${rate}gbit"); done
	for (( i = 0; i < k; i++ )); do machines+=("cpu:${rate}gbit"); done
	cluster_up "${machines[@]}" > /dev/null
	ranks=()
	for (( i = n - 1; i > 0; i-- )); do
		rank "$i" "$n" > /dev/null 2> "$TMP/rank$i.log" &
		ranks+=($!)
	done
	rank 0 "$n" > "$TMP/rank0" 2> "$TMP/rank0.log" || fail "rank 0 ended with $?"
	wait "${ranks[@]}"
	report "$n" "$k" || fail 'no result'
	cluster_down
done

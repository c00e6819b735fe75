#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The test bed itself: two machines, verbs between them by Debian's own tools.
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../lib.sh"

machines 2
rdma link | sed 's/^/  /'

timeout 20 rping -s -a 10.66.0.2 -C 3 > "$TMP/rping-server.log" 2>&1 &
wait_until 10 'rping listens' eval 'rdma res show cm_id | grep -q LISTEN'
timeout 20 rping -c -a 10.66.0.2 -I 10.66.0.1 -C 3 -v > "$TMP/rping.log" 2>&1 ||
	fail 'rping between the machines'
expect_text "$TMP/rping.log" 'rdma-ping-2'
wait

for family in '' -6; do	# over IPv6 nothing has been heard of the neighbour yet
	before=$(sent m1r0)
	# This processor's clock is not what it takes it for, so that it has said 0.000, too.
	for (( try = 0; try < 3; try++ )); do
		rate=$(write_bw 65536 200 $family) || exit 1
		say "ib_write_bw${family:+ over IPv6}, 64 KiB: $rate MB/s"
		! awk -v r="$rate" 'BEGIN { exit !(r > 0) }' || break
	done
	awk -v r="$rate" 'BEGIN { exit !(r > 0) }' || fail "ib_write_bw says $rate MB/s"
	(( $(sent m1r0) - before > 200 * 65536 )) || fail 'the bytes went elsewhere'
done

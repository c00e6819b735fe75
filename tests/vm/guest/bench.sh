#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Bytes per second of pushes alone over one link of the transport (`tally doctor --peer`)
# beside ib_write_bw with the same message size and one queue pair, in turn, three times in
# one run; the ratios are printed, not judged.  What must hold: the link is rdma, and every
# payload goes by the card.  Then what each of the ways in which a card is used is worth
# (bench/rdma_ladder.c).
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../lib.sh"

# over_tally SIZE BYTES: MB/s.
over_tally()
{
	start_daemon peer "$BIN/tally" doctor --listen 10.66.0.2:7479 --once
	wait_until 20 'the peer listens' listens 7479
	timeout 100 "$BIN/tally" doctor --peer 10.66.0.2:7479 --rail 10.66.0.1 --size "$1" \
		--bytes "$2" > "$TMP/out" 2>&1 || { cat "$TMP/out"; fail 'tally doctor --peer'; }
	expect_text "$TMP/out" '^link +rdma, rxem1r0 port 1 '
	expect_text "$TMP/out" '^detours +0 '
	wait "$PID" || fail 'the peer ended badly'
	awk '$1 == "there" { print $2 }' "$TMP/out"
}

machines 2
printf '  %8s %17s %17s %8s  %s\n' size 'ib_write_bw' tally ratio each
for row in '65536 400' '524288 60' '4194304 8'; do
	read -r size count <<< "$row"
	for try in 1 2 3; do
		bare=$(write_bw "$size" "$count") || exit 1
		ours=$(over_tally "$size" $(( size * count ))) || exit 1
		awk -v a="$bare" -v b="$ours" 'BEGIN { printf "%.2f %s %s\n", b / a, a, b }'
	done | sort -n | awk -v size="$size" '
		{ each = each " " $1 }
		NR == 2 { r = $1; bare = $2; ours = $3 }
		END { printf "  %8s %12s MB/s %12s MB/s %8s %s\n", size, bare, ours, r, each }
	' || exit 1
done
grep -E '^(link|latency|both)' "$TMP/out" | sed 's/^/  /'
from=rxem1r0:$(gid_index 1 0) to=rxem2r0:$(gid_index 2 0) || fail 'no address'
for row in '65536 200' '524288 30'; do
	read -r size count <<< "$row"
	timeout 90 "$BUILD/bench/rdma_ladder" -s "$size" -n "$count" "$from" "$to" ||
		fail "rdma_ladder -s $size"
done

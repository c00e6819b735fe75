#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Real daemons over RDMA: sums of every type and operation equal the reference bit for
# bit, with 2 agents and 2 servers on four machines; no byte of whole segments is copied on
# its way to the card; queue pairs are as many for all those tensors as for one, and memory
# regions few; 20 steps of charlm write the same words as over TCP; sums over IPv6.
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../lib.sh"

charlm() { job "$BIN/charlm" --steps 20 --batch 2 --sample 60; }

# What the model says, without what depends on the clock.
words() { LC_ALL=C sed '/^step/d; /^trained in/d' "$TMP/rank0.log"; }

rdma_cluster 2 2 1

# objects: of each card, the queue pairs and memory regions of the process that uses it, which
# are those of one protection domain.  (All processes see all cards of this kernel.)
objects()
{
	{ rdma resource show qp; rdma resource show mr; } | awk '
		{ at = 0; for (i = 1; i < NF; i++) if ($i == "pdn") at = i + 1 }
		/ type RC / { sub("/.*", "", $2); pd[$2] = $at; q[$2]++ }
		/ mrn / && $at == pd[$2] { m[$2]++ }
		END { for (c in q) print c, q[c], m[c] }' | sort
}
# moved: of each agent, bytes that its card read where a rank wrote them, and copied ones.
moved()
{
	"$BIN/tally" nodes --json --scheduler "$CLUSTER" |
		sed -n 's/.*; \([0-9]*\) bytes* by NIC, \([0-9]*\) copied.*/\1 \2/p'
}
both_moved() { moved | awk -v n="$1" '$1 < n { exit 1 } END { exit NR != 2 }'; }
start_rounds 262144 rounds:w:50 "until:$TMP/seen"
wait_until 180 'the agents tell what their cards have moved' both_moved 3145728
moved > "$TMP/moved"
awk '$2 >= 4096 { exit 1 }' "$TMP/moved" ||
	fail "whole segments copied: $(paste -sd ' ' "$TMP/moved")"
say "bytes by NIC and copied, of each agent: $(paste -sd ' ' "$TMP/moved")"
objects > "$TMP/one-tensor"
touch "$TMP/seen"
end_job

# Rank 0 looks twice, and the second time all of `sums` is done.
cat > "$TMP/look" <<-'EOF'
	echo >> "$TMP/looks"
	[ "$(wc -l < "$TMP/looks")" = 1 ] || timeout 60 head -n 1 "$TMP/gate"
EOF
export TMP
mkfifo "$TMP/gate" && exec {gate}<> "$TMP/gate" || fail 'no fifo'
sums_done() { [ "$(wc -l < "$TMP/looks")" = 2 ]; } 2>/dev/null
start_job "$BUILD/tests/e2e" --look "sh '$TMP/look'" sums edges
wait_until 90 'all sums are done' sums_done
wait_until 60 'all links use rdma' all_by_rdma
objects > "$TMP/many-tensors"
echo >&"$gate"
end_job
say "$(tail -n 1 "$TMP/rank0.log")"
say "queue pairs and regions of each: $(paste -sd ' ' "$TMP/one-tensor"), and for many" \
	"tensors $(paste -sd ' ' "$TMP/many-tensors")"
awk '$3 > 2 * 8 { exit 1 } NR == FNR { q[$1] = $2; next } $2 != q[$1] { exit 1 }
	END { exit FNR != 4 }' "$TMP/one-tensor" "$TMP/many-tensors" ||
	fail 'other queue pairs for more tensors, or more than 8 regions for a pair'

charlm
words > "$TMP/over-rdma"
notes | sed 's/^/  /'
cluster_stop

rdma_cluster 2 2 1 --no-rdma
charlm
words > "$TMP/over-tcp"
cmp "$TMP/over-rdma" "$TMP/over-tcp" || fail 'charlm says something else over TCP'
! grep 'by rdma' "$TMP"/a?.log || fail 'rdma was used although it was not wanted'
say "charlm over RDMA and TCP: $(grep -a '^loss before' "$TMP/over-tcp")"
cluster_stop

FAMILY=-6
rdma_cluster 2 2 1
start_rounds 300000 rounds:w:10 "until:$TMP/seen6"
wait_until 60 'all links use rdma over IPv6' all_links_by_rdma
touch "$TMP/seen6"
end_job
job "$BIN/tally" bench -b 64K -e 1M -f 16 -n 10
expect_text "$TMP/rank0.log" '^# 0 wrong elements'
grep -q 'is reached by rdma, rxem1r0' "$TMP/a0.log" || fail 'no link by rdma over IPv6'
say "over IPv6: $(notes | head -n 1)"

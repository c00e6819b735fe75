#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A job that asked for it goes on without a rank that it loses while rounds are on their way by
# RDMA, then without a machine: who is left has the same bits, and all links use RDMA.
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../lib.sh"

export PYTHONPATH=$ROOT/client/python TALLY_LIBRARY=$LIB/libtally.so.0 PYTHONDONTWRITEBYTECODE=1
at_round() { grep -q "^round $2 " "$TMP/rank$1.log"; }

# rank NUMBER AGENT
rank()
{
	echo "$1 $2" >> "$TMP/machines"
	start_daemon "rank$1" env TALLY_JOB=shrink TALLY_RANK="$1" TALLY_WORLD_SIZE=4 \
		TALLY_SOCKET="$TMP/$2.sock" TROUBLE_MACHINES="$TMP/machines" \
		"$PYTHON" "$ROOT/tests/shrink_rank.py" 4 30 0.02 "$TMP/go"
}

rdma_cluster 3 2 1
rank 0 a0
rank 1 a1
rank 2 a1
rank 3 a2
wait_until 90 'it trains' at_round 0 3
kill -9 "$PID_rank2"
wait_until 60 'it trains on without rank 2' at_round 0 12
kill -9 "$PID_rank3"
wait_until 60 'it goes on without rank 3' grep -q 'job shrink loses rank 3' "$TMP/scheduler.log"
wait_until 60 'it has trained without machine a2' at_round 0 20
wait_until 60 'all links use rdma' all_links_by_rdma
touch "$TMP/go"
for r in 0 1; do
	wait "$(eval echo "\$PID_rank$r")" || fail "rank $r ended with $?"
	grep '^round\|^live' "$TMP/rank$r.log" > "$TMP/rank$r.rounds"
done
cmp "$TMP/rank0.rounds" "$TMP/rank1.rounds" || fail 'the ranks that are left have other bits'
grep -q '^live 0 1$' "$TMP/rank0.log" || fail 'rank 0 does not know who is left'
say 'a process killed, then the only one of its machine: the others go on by rdma, same bits'

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What breaks, and goes on: one of two cards gone, loss until retries are exhausted while
# TCP still gets through, a killed server, a killed agent, memory that may not be locked.
# Results are checked throughout, bit for bit.
# TIMEOUT: 300
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../lib.sh"

bench() { start_job "$BIN/tally" bench -b 1M -e 1M -w 0 -n "$1"; }
right() { end_job; expect_text "$TMP/rank0.log" '^# 0 wrong elements'; }
has_sent() { (( $(sent "$1") > $2 )); }
says() { grep -Eq -- "$2" "$TMP/$1.log"; }
flows() { wait_until 30 "bytes flow over $1" has_sent "$1" $(( $(sent "$1") + 1500000 )); }

# ---- two cards ----
rdma_cluster 2 1 2
bench 60
flows m1r0
flows m1r1
wait_until 30 'all links use rdma' all_by_rdma
ip link set pm1r1 down
flows m1r0
right
say 'two cards: both carry, one cable is pulled, the job goes on over the other'
wait_until 10 'the loss is told' says a0 'link to server s3 lost, reason'
grep -ho 'lost, reason [a-z_]*' "$TMP"/a0.log | sort | uniq -c | sed 's/^/  /'
ip link set pm1r1 up

# ---- RoCE is lost, TCP is not ----
drop_roce()	# what goes to machine 3 over rail $1
{
	tc qdisc replace dev "pm3r$1" root handle 1: prio &&
		tc filter add dev "pm3r$1" parent 1: protocol ip u32 match ip protocol 17 0xff \
			match ip dport 4791 0xffff action drop
}
bench 60
flows m1r0
for r in 0 1; do drop_roce $r || fail 'tc'; done
wait_until 90 'tcp takes over' says a0 'ended 3 times within 60 s, using tcp for this link'
grep -q 'reason retries' "$TMP"/{a0,a1,s3}.log || fail 'nobody says that retries were in vain'
right
say 'RoCE packets dropped: retries exhausted, then TCP, and every sum is right'
notes | sed 's/^/  /'
for r in 0 1; do tc qdisc del dev pm3r$r root; done
cluster_stop

# ---- killed in the middle ----
rdma_cluster 2 2 1
bench 120
flows m1r0
kill -9 "$PID_s4"
wait_until 30 'its chunks are with the other server' says scheduler 'a lost server.s chunks move'
flows m1r0
rdma_server 4 1
wait_until 30 'the server is back' nodes_up_are 4
right
say 'server killed: its chunks move, the next one of its name is used, every sum is right'
bench 120
flows m1r0
kill -9 "$PID_a1"
wait "${RANK[0]}" && fail 'a job whose agent was killed ended well'
expect_text "$TMP/rank0.log" 'rank 1 on machine a1 is gone'
wait "${RANK[1]}"
rdma_agent 2 1
wait_until 20 'the agent is back' nodes_up_are 4
bench 30
wait_until 30 'all links use rdma again' all_by_rdma
right
say 'agent killed: its job ends, the next one is right again'
cluster_stop

# ---- memory that may not be locked ----
rdma_cluster 1 1 1
start_daemon a1 prlimit --memlock=1048576 setpriv --bounding-set -ipc_lock --inh-caps -all \
	"$BIN/tally-agent" --scheduler "$CLUSTER" --name a1 --machine-id m7 \
	--socket "$TMP/a1.sock" --rail 10.66.0.1
wait_until 20 'three nodes' nodes_up_are 3
bench 3
right
expect_text "$TMP/a1.log" 'RLIMIT_MEMLOCK is 1 MiB; raise it'
say "$(grep -o 'cannot register.*' "$TMP/a1.log" | head -n 1)"

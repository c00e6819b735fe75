#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What breaks, and goes on: one of two cards gone and back, a card without its address for a
# while, loss until retries are exhausted while TCP still gets through, addresses that no card
# has, a server killed, stopped, drained, an agent killed, with and without another one in
# time, memory that may not be locked.
# Results are checked throughout, bit for bit.
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../lib.sh"

# bench ROUNDS BYTES
bench()
{
	job "$BIN/tally" bench -b "$2" -e "$2" -w 0 -n "$1"
	expect_text "$TMP/rank0.log" '^# 0 wrong elements'
}
has_sent() { (( $(sent "$1") > $2 )); }
says() { grep -Eq -- "$2" "$TMP/$1.log"; }
status_says() { "$BIN/tally" status --scheduler "$CLUSTER" | grep -Eq -- "$1"; }
flows() { wait_until 30 "bytes flow over $1" has_sent "$1" $(( $(sent "$1") + 1500000 )); }

# grown DEVICE SINCE: how many bytes it has sent since then.
grown() { echo $(( $(sent "$1") - $2 )); }

# ---- two cards, the second one said to have a quarter of the first one's speed ----
# Of such speeds that all of a round may be under way at once: these cards are equally fast, and
# who waits for room goes where some is first.
RAIL_RATE=(@40gbit @10gbit)
rdma_cluster 2 1 2
before=("$(sent m1r0)" "$(sent m1r1)")
bench 6 4M
share=$(( 100 * $(grown m1r1 "${before[1]}") /
	($(grown m1r0 "${before[0]}") + $(grown m1r1 "${before[1]}")) ))
say "two cards, 4 to 1: the slower one carries $share %"
(( share >= 10 && share <= 35 )) || fail "a card of a fifth of the speed carries $share %"
start_training 1048576
flows m1r0
flows m1r1
wait_until 30 'all links use rdma' all_by_rdma
ip link set pm1r1 down
flows m1r0
end_training
say 'one cable is pulled: the job goes on over the other card'
wait_until 10 'the loss is told' says a0 'link to server s3 lost, reason'
grep -ho 'lost, reason [a-z_]*' "$TMP"/a0.log | sort | uniq -c | sed 's/^/  /'
ip link set pm1r1 up
start_training 1048576
flows m1r1
wait_until 30 'all links use rdma again' all_links_by_rdma
end_training
say 'the cable is back: both carry again'

start_training 1048576
flows m1r1
ip addr del 10.66.1.3/24 dev m3r1 || fail 'ip addr del'
wait_until 60 'the server says why' says s3 'reason device: .*s address is another now'
flows m1r0
ip addr add 10.66.1.3/24 dev m3r1 && ip route replace 10.66.1.0/24 dev m3r1 table 1103 ||
	fail 'ip addr add'
flows m1r1
wait_until 30 'all links use rdma again' all_links_by_rdma
end_training
say 'a card loses its address and gets it back: its links end, and are made again'

# ---- RoCE is lost, TCP is not ----
drop_roce()	# what goes to machine 3 over rail $1
{
	tc qdisc replace dev "pm3r$1" root handle 1: prio &&
		tc filter add dev "pm3r$1" parent 1: protocol ip u32 match ip protocol 17 0xff \
			match ip dport 4791 0xffff action drop
}
start_training 262144
flows m1r0
for r in 0 1; do drop_roce $r || fail 'tc'; done
wait_until 90 'tcp takes over' says a0 'ended 3 times within 60 s, using tcp for this link'
wait_until 10 'the status says why' status_says '^note +a0: .*not: ended too often'
grep -Eq 'reason (retries|nothing comes from)' "$TMP"/{a0,a1,s3}.log ||
	fail 'nobody says that retries were in vain'
end_training
say 'RoCE packets dropped: retries exhausted, then TCP, and every sum is right'
for r in 0 1; do tc qdisc del dev pm3r$r root; done
cluster_stop

# ---- no card where one is wanted ----
RAIL_RATE=()
machines 4
for m in 2 4; do rdma link delete rxem${m}r0 || fail 'rdma link delete'; done
rdma_cluster 2 2 1
start_training 262144
wait_until 60 'the status says why' status_says '^note +a0: rdma on [1-9].*not: not joined'
wait_until 60 'the status says why' status_says '^note +a1: rdma on 0 .*not: no NIC has its'
end_training
says a1 'rail 10.66.0.2: no rdma: no RDMA device has the address' || fail 'a1 does not say why'
says a0 'rdma to server s4 is not possible, using tcp, reason the server has no queue pair' ||
	fail 'a0 does not say why'
cluster_stop
for m in 2 4; do roce "$m" 0; done
say 'addresses without a card: TCP, and every sum is right'

# ---- killed in the middle ----
GRACE=10
rdma_cluster 2 2 1
start_training 262144
flows m1r0
kill -9 "$PID_s4"
wait_until 30 'its chunks are with the other server' says scheduler 'a lost server.s chunks move'
flows m1r0
rdma_server 4 1
wait_until 30 'the server is back' nodes_up_are 4
end_training
say 'server killed: its chunks move, the next one of its name is used, every sum is right'

# ---- stopped for longer than its lease: what is written into its memory then is nobody's ----
moves() { grep -c 'a lost server.s chunks move' "$TMP/scheduler.log"; }
moved_since() { (( $(moves) > $1 )); }
start_training 262144
flows m1r0
before=$(moves)
kill -STOP "$PID_s4"
wait_until 30 'its chunks are with the other server' moved_since "$before"
flows m1r0
kill -CONT "$PID_s4"
wait_until 30 'it is used again' says scheduler "job j$JOBS is told to server s4"
end_training
say 'server stopped and continued: its chunks move, late words count for nothing'

start_training 262144
flows m1r0
for what in '' --undo; do
	"$BIN/tally" drain $what s4 --scheduler "$CLUSTER" > "$TMP/out" || fail "drain $what"
	flows m1r0
done
end_training
say 'server drained, and used again: every sum is right'

start_training 262144
flows m1r0
kill -9 "$PID_a1"
rdma_agent 2 1
wait_until 30 'the agent has the job again' says a1 "'[^ ]*' goes on"
flows m1r0
end_training
wait_until 60 'the agent is back' nodes_up_are 4
say 'agent killed, and started again: its job goes on, every sum is right'

start_training 262144
flows m1r0
# a0 is as old as the cluster: what may have gone by TCP while s4 came back, it still counts.
wait_until 10 'a0 says how much it has sent by TCP' eval 'went=$(detours a0) && [ -n "$went" ]'
kill -9 "$PID_a1"
wait "${RANK[0]}" && fail 'a job whose agent was killed ended well'
expect_text "$TMP/rank0.log" 'rank 1 on machine a1 is gone'
wait "${RANK[1]}"
rdma_agent 2 1
wait_until 60 'the agent is back' nodes_up_are 4
nothing_by_tcp() { all_links_by_rdma && [ "$(detours a0) $(detours a1)" = "$went 0" ]; }
start_training 262144
wait_until 30 'all links use rdma again' nothing_by_tcp
end_training
say 'agent killed, and gone for longer than its grace: its job ends, the next one is right again'
cluster_stop
GRACE=30

# ---- memory that may not be locked ----
rdma_cluster 1 1 1
start_daemon a1 prlimit --memlock=1048576 setpriv --bounding-set -ipc_lock --inh-caps -all \
	"$BIN/tally-agent" --scheduler "$CLUSTER" --name a1 --machine-id m7 \
	--socket "$TMP/a1.sock" --rail 10.66.0.1
wait_until 60 'three nodes' nodes_up_are 3
bench 3 1M
expect_text "$TMP/a1.log" 'RLIMIT_MEMLOCK is 1 MiB; raise it'
say "$(grep -o 'cannot register.*' "$TMP/a1.log" | head -n 1)"

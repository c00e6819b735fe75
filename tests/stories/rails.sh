#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Two machines with two cards each, one three times as fast as the other: a job's bytes
# take both, in proportion; when one cable is pulled, the job goes on over the other.
. "$(dirname "$0")/../lib.sh"

can_make_namespaces || skip 'making network namespaces needs root'
for m in a b; do ns_add "$m"; done
for card in 0 1; do
	in_ns a ip link add "eth$card" type veth peer name "eth$card" netns "$RUN-b"
	in_ns a ip addr add "10.78.$card.1/24" dev "eth$card"
	in_ns b ip addr add "10.78.$card.2/24" dev "eth$card"
	for m in a b; do in_ns "$m" ip link set "eth$card" up; done
done
for m in a b; do
	ns_shape "$m" eth0 20mbit
	ns_shape "$m" eth1 60mbit
done

start_daemon scheduler ip netns exec "$RUN-a" "$BIN/tally-scheduler" \
	--listen 10.78.0.1:7470 --state-dir ''
i=0
for m in a b; do
	i=$((i + 1))
	start_daemon "server-$m" ip netns exec "$RUN-$m" "$BIN/tally-server" --name "$m" \
		--scheduler 10.78.0.1:7470 --shm-socket "$TMP/$m.sock" \
		--listen "10.78.0.$i:7471@20mbit" --listen "10.78.1.$i:7472@60mbit"
	start_daemon "agent-$m" ip netns exec "$RUN-$m" "$BIN/tally-agent" --name "$m" \
		--scheduler 10.78.0.1:7470 --socket "$TMP/agent-$m.sock" \
		--rail "10.78.0.$i@20mbit" --rail "10.78.1.$i@60mbit"
done
all_up()
{
	[ "$(in_ns a "$BIN/tally" nodes --json --scheduler 10.78.0.1:7470 2>/dev/null |
		grep -c '"node":')" = 4 ]
}
wait_until 60 'four nodes are up' all_up

sent() { in_ns a cat "/sys/class/net/eth$1/statistics/tx_bytes"; }

run()	# rank, machine, size, job: 8 iterations
{
	in_ns "$2" env TALLY_RANK="$1" TALLY_WORLD_SIZE=2 TALLY_JOB="$4" \
		TALLY_SOCKET="$TMP/agent-$2.sock" "$BIN/tally" bench -b "$3" -e "$3" -n 8 -w 0
}

both()	# size, job
{
	run 1 b "$1" "$2" > "$TMP/rank1.log" 2>&1 &
	run 0 a "$1" "$2" > "$TMP/rank0.log" 2>&1 || fail 'rank 0 failed'
	wait $! || fail 'rank 1 failed'
	expect_text "$TMP/rank0.log" '^# 0 wrong elements'
}

# What lies under /sys is another namespace's without a mount of its own.
in_ns a test -e /sys/class/net/eth1/statistics/tx_bytes || skip 'no statistics of cards'
before0=$(sent 0) before1=$(sent 1)
both 8M proportion		# long: no second in which the CPUs are busy decides
slow=$(( $(sent 0) - before0 )) fast=$(( $(sent 1) - before1 ))
say "card of 20 Mbit/s sent $slow bytes, card of 60 Mbit/s $fast"
(( fast > 2 * slow && fast < 5 * slow )) || fail 'bytes are not in proportion to the cards'

received() { in_ns b cat /sys/class/net/eth1/statistics/rx_bytes; }
moves() { (( $(received) > $1 + 2000000 )); }

for (( n = 1; ; n++ )); do
	start=$(received)
	both 4M pulled & job=$!
	wait_until 20 'the job sends over the fast card' moves "$start"
	in_ns a ip link set eth1 down
	! is_running "$job" || break
	wait "$job" || fail 'the job has ended badly before'
	(( n < 5 )) || fail 'the job was over each time'
	in_ns a ip link set eth1 up
done
wait "$job" || fail 'the job did not survive the loss of a card'
say 'a cable was pulled and the job went on over the other card'

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Cards that drop what comes in bursts: TCP repeats it, rounds are slow, nobody is given up for
# that, and the bits are those of a quiet network; also when a server dies in the middle.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_ns_cluster 2 2
MACHINES=(gpu0 gpu1 cpu0 cpu1)

# retransmitted: segments that TCP sent again, on all machines together.
retransmitted()
{
	local m

	for m in "${MACHINES[@]}"; do
		in_ns "$m" awk '/^Tcp:/ { if (at) print $at; for (i = 1; i <= NF; i++)
			if ($i == "RetransSegs") at = i }' /proc/net/snmp
	done | awk '{ sum += $1 } END { print sum + 0 }'
}

# drop: a queue of a few packets before each card, both ways.
drop()
{
	local m

	for m in "${MACHINES[@]}"; do
		in_ns "$m" tc qdisc replace dev eth0 root tbf rate 200mbit burst 16kb limit 24kb
		in_ns sw tc qdisc replace dev "p-$m" root tbf rate 200mbit burst 16kb limit 24kb
	done
}

for r in 0 1; do start_trainer calm $r 2 a$r; done
stop_training calm
for r in 0 1; do expect_end 60 calm.$r 0; done
before=$(retransmitted)
drop
for r in 0 1; do start_trainer lossy $r 2 a$r; done
wait_until 60 'it trains' has_rounds lossy.0 10
sent=$(( $(retransmitted) - before ))
(( sent > 50 )) || fail "TCP sent $sent segments again, that is not a lossy network"
kill_all s1
stop_training lossy
for r in 0 1; do expect_end 120 lossy.$r 0; done
for x in calm.1 lossy.0 lossy.1; do
	[ "$(hash_of $x)" = "$(hash_of calm.0)" ] || fail "$x has other bits"
done
[ "$(grep -Ec 'up -> (away|dead)' "$TMP/scheduler.log")" = 1 ] ||
	fail 'somebody was given up who was there'
say "note: $(( $(retransmitted) - before )) segments sent again, a server killed: the same bits," \
	"$(sed -n 's/^hash.* longest/the longest round took/p' "$TMP/lossy.0.log")"

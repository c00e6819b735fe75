#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A server's card drops to a quarter while a job trains: its share goes where it can be
# summed, and comes back when the card does; the bits stay those of an undisturbed run.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_ns_cluster 2 2

# train JOB: two ranks.
train()
{
	local r

	for r in 0 1; do
		start_trainer "$1" $r 2 a$r
	done
	wait_until 30 "$1 trains" has_rounds "$1.0" 10
}

# pace_of SERVER: percent of its share that it gets.
pace_of()
{
	tally nodes --json 2>/dev/null | tr -d ' \n' |
		sed -n "s/.*\"name\":\"$1\",[^}]*\"pace_percent\":\([0-9]*\).*/\1/p"
}
pace_is() { local p; p=$(pace_of "$1"); (( ${p:-0} >= $2 && ${p:-0} <= $3 )); }
settled() { tally jobs --json | tr -d ' \n' | grep -q '"waiting_for":""'; }

# shape NS RATE: both ends of its cable.
shape()
{
	in_ns "$1" tc qdisc replace dev eth0 root tbf rate "$2" burst 256kb latency 50ms
	in_ns sw tc qdisc replace dev "p-$1" root tbf rate "$2" burst 256kb latency 50ms
}

for i in gpu0 gpu1 cpu0 cpu1; do shape $i 400mbit; done
train slow
shape cpu1 100mbit
wait_until 60 'the slow server gets less' pace_is s1 10 60
wait_until 20 'its chunks have moved' settled
halved() { local a b; a=$(pace_of s0) b=$(pace_of s1); (( ${b:-0} && ${a:-0} >= 2 * b )); }
wait_until 60 'the other one gets twice as much' halved
tally status > "$TMP/out"
expect_text "$TMP/out" 'slow +server s1 gets [0-9]+ % of its share'
wait_line 20 scheduler 'job slow server s1 gets [0-9]+ % of its planned share, before 100 %'
say "a card at a quarter: its server gets $(pace_of s1) % of its share"
train_more slow.0 20 60
shape cpu1 400mbit
wait_until 240 'it gets its share again' pace_is s1 65 100
wait_until 20 'its chunks have moved back' settled
say 'the card is itself again, and so is the share'
stop_training slow
for r in 0 1; do expect_end 60 slow.$r 0; done
changes=$(grep -c 'planned share' "$TMP/scheduler.log")
(( changes <= 4 )) || fail "the shares have moved $changes times"

for i in gpu0 gpu1 cpu0 cpu1; do shape $i 10gbit; done
train calm
stop_training calm
for r in 0 1; do expect_end 120 calm.$r 0; done
for x in slow.0 slow.1 calm.1; do
	[ "$(hash_of $x)" = "$(hash_of calm.0)" ] || fail "$x has other bits"
done
say "the bits of an undisturbed run, $(
	sed -n 's/^hash.* longest/the longest round took/p' "$TMP/slow.0.log")"

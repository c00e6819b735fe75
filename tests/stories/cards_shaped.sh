#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A card that tc shapes counts as what it is shaped to, if that is less than what it says: for
# `tally doctor`, and for daemons that are told no rate.
. "$(dirname "$0")/../lib.sh"

command -v tc > /dev/null || skip 'tc is missing: apt-get install iproute2'
can_make_namespaces || skip 'making network namespaces needs root'
ns_switch
ns_machine m 10.77.0.9 ''
tc_m() { in_ns m tc "$@" 2> "$TMP/tc.err"; }

# says RATE: what the card is taken for.
says()
{
	in_ns m "$BIN/tally" doctor --rail 10.77.0.9 > "$TMP/out" 2>&1
	expect_text "$TMP/out" "^(ok|note) +rail +10\\.77\\.0\\.9, NIC's speed $1\$"
}
says '10.0 Gbit/s'
ns_shape m eth0 300mbit
says '0.3 Gbit/s'
in_ns m tc qdisc replace dev eth0 root tbf rate 5gbit burst 2mb latency 50ms
says '5.0 Gbit/s'
in_ns m tc qdisc replace dev eth0 root tbf rate 40gbit burst 20mb latency 50ms
says '10.0 Gbit/s'
in_ns m tc qdisc del dev eth0 root
says '10.0 Gbit/s'
if tc_m qdisc add dev eth0 root handle 1: htb default 2; then
	says '10.0 Gbit/s'		# there is no such class
	tc_m class add dev eth0 parent 1: classid 1:1 htb rate 100mbit
	tc_m class add dev eth0 parent 1: classid 1:2 htb rate 500mbit ceil 2gbit
	says '2.0 Gbit/s'
	tc_m class change dev eth0 parent 1: classid 1:2 htb rate 36gbit
	says '10.0 Gbit/s'
	tc_m class add dev eth0 parent 1:2 classid 1:3 htb rate 36gbit
	says '10.0 Gbit/s'		# it is not for who sends, and so nothing is
	tc_m qdisc del dev eth0 root
	tc_m qdisc add dev eth0 root handle 1: htb default 30
	tc_m class add dev eth0 parent 1: classid 1:1 htb rate 4gbit
	tc_m class add dev eth0 parent 1:1 classid 1:20 htb rate 1gbit ceil 3gbit
	tc_m class add dev eth0 parent 1:20 classid 1:30 htb rate 1gbit ceil 36gbit
	says '3.0 Gbit/s'		# the least of those above it
	tc_m qdisc del dev eth0 root
	tc_m qdisc add dev eth0 root handle 1: htb
	says '10.0 Gbit/s'		# nothing has to go through a class
	tc_m qdisc del dev eth0 root
else
	say "this kernel has no htb: $(head -n 1 "$TMP/tc.err")"
fi
in_ns m tc qdisc add dev lo root tbf rate 70mbit burst 256kb latency 50ms
expect_status 0 ip netns exec "$RUN-m" "$BIN/tally" doctor --rail 127.0.0.1
expect_text "$TMP/out" "^(ok|note) +rail +127\\.0\\.0\\.1, NIC's speed 0\\.1 Gbit/s\$"
in_ns m "$BIN/tally" doctor --rail 10.77.0.9@25gbit > "$TMP/out" 2>&1
expect_text "$TMP/out" "rail +10\\.77\\.0\\.9, NIC's speed 25\\.0 Gbit/s\$"
say 'tbf and htb count, what they leave to the card does not, and who is told knows better'

ns_shape m eth0 300mbit
start_daemon scheduler ip netns exec "$RUN-sw" "$BIN/tally-scheduler" --listen 10.77.0.1:7470 \
	--state-dir ''
start_daemon server ip netns exec "$RUN-m" "$BIN/tally-server" --scheduler 10.77.0.1:7470 \
	--name s --listen 10.77.0.9:7471 --shm-socket none
start_daemon agent ip netns exec "$RUN-m" "$BIN/tally-agent" --scheduler 10.77.0.1:7470 \
	--name a --socket "$TMP/a.sock"
both()
{
	in_ns sw "$BIN/tally" nodes --json --scheduler 10.77.0.1:7470 > "$TMP/nodes" 2>&1 &&
		[ "$(grep -c '"bits_per_s": *300000000' "$TMP/nodes")" = 2 ]
}
wait_until 20 'agent and server have said what their cards are' both
say 'so daemons say it of theirs'

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Trouble between agents and a server is told by its cause, with what to do: in the log, once a
# minute; by tally nodes; and to the ranks that wait, which hear no innocent rank's name.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_ns_cluster 2 1

narrow() { in_ns "$1" tc qdisc replace dev "$2" root tbf rate 1gbit burst 600 limit 1mb; }
wide() { in_ns "$1" tc qdisc del dev "$2" root; }
note_of()
{
	tally nodes --json | tr -d '\n' |
		grep -Eo "\"name\": *\"$1\"[^}]*\"note\": *\"[^\"]*\"" | sed 's/.*"note": *//'
}
notes() { note_of "$1" | grep -Eq -- "$2"; }
no_note() { [ "$(note_of "$1")" = '""' ]; }
lost_lines() { grep -Ec 'warn .*link (to server|from agent)' "$TMP/$1.log"; }

# begin JOB: two ranks that have done rounds, and go on when $TMP/JOB is there.
begin()
{
	local r

	for r in 0 1; do
		start_rank $1 $r 2 a$r declare:w:2000000 rounds:w:3 "until:$TMP/$1" submit:w \
			wait:${2:-9} ${3:-}
	done
	for r in 0 1; do wait_line 40 $1.$r '^done rounds'; done
}
# hears JOB.RANK REGEX: its wait ends by a text that matches, and names no rank.
hears()
{
	expect_error 40 "$1" "ETIMEDOUT .*$2"
	! grep '^ERROR' "$TMP/$1.log" | grep -Eq 'waits for ranks? ' ||
		fail "$1 is told of a rank: $(grep '^ERROR' "$TMP/$1.log")"
}
# quiet NAME PEERS: the log has had a trouble of links with each twice at most: as it began, and
# its cause.
quiet()
{
	(( $(lost_lines "$1") - ${seen[$1]:-0} <= 2 * $2 )) ||
		fail "the log of $1 has it $(lost_lines "$1") times"
	seen[$1]=$(lost_lines "$1")
}
declare -A seen=()

# ---- large packets are lost, on the way to the server ----
begin mtu
narrow sw p-cpu0
touch "$TMP/mtu"
hole='small packets pass to server s0 .*large ones are lost; .*ping -M do -s 1472 10\.77\.0\.110'
for a in a0 a1; do
	wait_line 20 $a "link to server s0 .*reason $hole"
	wait_until 10 "tally nodes says it of $a" notes $a "$hole"
done
for r in 0 1; do hears mtu.$r "$hole"; done
for a in a0 a1; do quiet $a 1; done
wide sw p-cpu0
say "$(sed -n 's/^ERROR //p' "$TMP/mtu.0.log")"

# ---- on the way from one agent: the other one's rank is told of that agent ----
works between a0 a1
begin one 14
narrow gpu1 eth0
touch "$TMP/one"
hears one.1 'small packets pass to server s0 .*large ones are lost'
hears one.0 'waits for machine a1 .*agent a1: small packets pass to server s0'
wide gpu1 eth0
say "$(sed -n 's/^ERROR //p' "$TMP/one.0.log")"

# ---- on the way from the server: it knows, and agents hear it from the scheduler ----
works again a0 a1
begin back 12
narrow cpu0 eth0
touch "$TMP/back"
wait_line 20 s0 'link from agent a[01] .*reason small packets pass to agent a[01] .*large ones are'
wait_until 10 'tally nodes says it of the server' notes s0 'small packets pass to agent a[01]'
for r in 0 1; do hears back.$r 'server s0: small packets pass to agent a[01]'; done
quiet s0 2
wide cpu0 eth0
say "$(sed -n 's/^ERROR //p' "$TMP/back.0.log")"

# ---- a firewall drops what goes to the server's port ----
works more a0 a1
port=$(sed -n 's/.*server s0 listens on [0-9.]*:\([0-9]*\),.*/\1/p' "$TMP/s0.log")
[ -n "$port" ] || fail 'the server does not say its port'
begin wall 15
{
	in_ns sw tc qdisc replace dev p-cpu0 root handle 1: htb &&
		in_ns sw tc class add dev p-cpu0 parent 1: classid 1:3 htb rate 8kbit &&
		in_ns sw tc qdisc add dev p-cpu0 parent 1:3 tbf rate 8kbit burst 10 limit 10 &&
		in_ns sw tc filter add dev p-cpu0 parent 1: protocol ip u32 \
			match ip dport "$port" 0xffff flowid 1:3
} > "$TMP/tc" 2>&1 || fail "no firewall: $(cat "$TMP/tc")"
touch "$TMP/wall"
wall='10\.77\.0\.110:[0-9]+ does not answer at all .*firewall'
for a in a0 a1; do wait_line 30 $a "link to server s0 .*reason $wall"; done
for r in 0 1; do hears wall.$r "$wall"; done
wide sw p-cpu0
say "$(sed -n 's/^ERROR //p' "$TMP/wall.0.log")"

# ---- no route ----
works open a0 a1
begin route 9
for g in gpu0 gpu1; do in_ns $g ip route add prohibit 10.77.0.110; done
in_ns cpu0 ip link set eth0 down
in_ns cpu0 ip link set eth0 up
touch "$TMP/route"
for a in a0 a1; do wait_line 30 $a 'link to server s0 .*reason there is no way to server s0'; done
for r in 0 1; do hears route.$r 'no way to server s0 at 10\.77\.0\.110'; done
for g in gpu0 gpu1; do in_ns $g ip route del prohibit 10.77.0.110; done
say "$(sed -n 's/^ERROR //p' "$TMP/route.0.log")"
works last a0 a1
for a in a0 a1 s0; do wait_until 90 "nothing is noted of $a" no_note $a; done

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Clusters whose daemons are told names, and that have IPv6 addresses only, found by themselves
# or told: sums over their links, addresses as they are shown and can be typed again, links
# measured with a peer.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

# sums: a job of a0 and a1.
sums()
{
	local r

	for r in 0 1; do
		start_daemon "rank$r" env TALLY_JOB=x TALLY_RANK="$r" TALLY_WORLD_SIZE=2 \
			TALLY_SOCKET="$TMP/a$r.sock" "$BIN/tally" bench -b 4K -e 1M -f 16 -n 5
	done
	for r in 0 1; do expect_end 60 "rank$r" 0; done
	expect_text "$TMP/rank0.log" '^# 0 wrong elements'
}

# measure HOST
measure()
{
	local port

	start_daemon peer "$BIN/tally" doctor --listen "$1:0" --once
	wait_line 10 peer '^listens on '
	port=$(sed -n 's/^listens on .*://p' "$TMP/peer.log")
	expect_status 0 "$BIN/tally" doctor --peer "$1:$port" --size 64K --bytes 16M
	expect_text "$TMP/out" '^there +[0-9.]+ MB/s'
	wait "$PID" || fail 'the peer ended badly'
	say "$(sed -n 's/^there  *//p' "$TMP/out") with a peer on $1"
}

# ---- names: who is told one tells the others the number ----
LOOPBACK=localhost OWN_LOOPBACK=localhost
start_scheduler
start_agent a0 --rail localhost
start_agent a1 --rail localhost@10gbit
start_server s0
wait_until 60 'all nodes are registered' nodes_up 3
sums
expect_status 0 "$BIN/tally" nodes --scheduler "$SCHEDULER"
expect_text "$TMP/out" '^s0 .* (127\.0\.0\.1|\[::1\]):[0-9]+ '
expect_status 2 "$BIN/tally-agent" --scheduler "$SCHEDULER" --rail nowhere.invalid \
	--socket "$TMP/x.sock"
expect_text "$TMP/err" '--rail nowhere.invalid: cannot resolve nowhere.invalid: '
expect_status 2 "$BIN/tally-server" --scheduler "$SCHEDULER" --listen nowhere.invalid:0
expect_text "$TMP/err" '--listen nowhere.invalid:0: cannot resolve nowhere.invalid: '
for p in a0 a1 s0 scheduler; do kill_now $p TERM; done
for p in a0 a1 s0 scheduler; do expect_end 10 $p 0; done
measure localhost
say 'a cluster by name'

# ---- IPv6 ----
ip -6 -o addr show dev lo 2>/dev/null | grep -q ' ::1/' || {
	say 'this machine has no IPv6: left out'
	exit 0
}
LOOPBACK='[::1]' OWN_LOOPBACK='[::1]'
start_scheduler
start_agent a0
start_agent a1 --rail '[::1]@10gbit'
start_server s0
start_daemon s1 "$BIN/tally-server" --scheduler "$SCHEDULER" --listen '[::]:0' --name s1 \
	--machine-id s1 --shm-socket "$TMP/s1.shm" --memory 256M
wait_until 60 'all nodes are registered' nodes_up 4
# Who has found such an address by himself says that it may be the wrong one, nobody else does.
for d in a0 s1; do
	expect_text "$TMP/$d.log" 'warn .*address ::1, .* leads to no other machine'
done
for d in a1 s0; do
	! grep -q 'no other machine' "$TMP/$d.log" || fail "$d was told its address"
done

sums
expect_status 0 "$BIN/tally" nodes --scheduler "$SCHEDULER"
for s in s0 s1; do
	at=$(grep "^$s " "$TMP/out" | grep -Eo '\[::1\]:[0-9]+' | head -n 1)
	[[ $at =~ ^\[::1\]:[0-9]+$ ]] || fail "server $s is shown at $at"
	expect_text "$TMP/$s.log" "server $s listens on \\[::1\\]:${at##*:},"
done
expect_status 2 "$BIN/tally-agent" --scheduler "$SCHEDULER" --rail ::1 --socket "$TMP/x.sock"
expect_text "$TMP/err" 'is no address; say .*\[fe80::1\] or '
say 'two agents, two servers over IPv6'

measure '[::1]'

# ---- addresses of one link, whose interface they name: its card is found, too ----
can_make_namespaces || { say 'no namespaces: link-local addresses are left out'; exit 0; }
NAMESPACES=("$RUN")
ip netns add "$RUN"
ip -n "$RUN" link add card type veth peer name other
ip -n "$RUN" address add fe80::7/64 dev card nodad
for i in lo card other; do ip -n "$RUN" link set "$i" up; done
on_link() { start_daemon "$1" ip netns exec "$RUN" "$BIN/tally-$1" "${@:2}"; }
link_nodes_are()
{
	ip netns exec "$RUN" "$BIN/tally" nodes --scheduler '[fe80::7%card]:7470' > "$TMP/nodes" &&
		[ "$(grep -c "$1" "$TMP/nodes")" = "$2" ]
}
on_link scheduler --listen '[fe80::7%card]:7470' --state-dir ''
on_link server --scheduler '[fe80::7%card]:7470' --listen '[fe80::7%card]:0' --shm-socket none
on_link agent --scheduler '[fe80::7%card]:7470' --socket "$TMP/link.sock"
wait_until 20 'both have a card of 10 Gbit/s' link_nodes_are 'fe80::7%card.* 10 Gbit/s ' 2
say 'link-local addresses, and the speed of their card'

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A cluster that has IPv6 addresses only: those that daemons find by themselves and those that
# they are told, sums over its links, addresses as they are shown and can be typed again, and
# a link measured with a peer.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

ip -6 -o addr show dev lo 2>/dev/null | grep -q ' ::1/' || skip 'this machine has no IPv6'
LOOPBACK='[::1]'
start_scheduler
start_agent a0
start_agent a1 --rail '[::1]@10gbit'
start_server s0
start_daemon s1 "$BIN/tally-server" --scheduler "$SCHEDULER" --listen '[::]:0' --name s1 \
	--machine-id s1 --shm-socket "$TMP/s1.shm" --memory 256M
wait_until 15 'all nodes are registered' nodes_up 4

sums()
{
	start_daemon "rank$1" env TALLY_JOB=x TALLY_RANK="$1" TALLY_WORLD_SIZE=2 \
		TALLY_SOCKET="$TMP/a$1.sock" "$BIN/tally" bench -b 4K -e 1M -f 16 -n 5
}
for r in 0 1; do sums $r; done
for r in 0 1; do expect_end 60 rank$r 0; done
expect_text "$TMP/rank0.log" '^# 0 wrong elements'

expect_status 0 "$BIN/tally" nodes --scheduler "$SCHEDULER"
for s in s0 s1; do
	at=$(awk -v s="$s" '$1 == s { print $5 }' "$TMP/out")
	[[ $at =~ ^\[::1\]:[0-9]+$ ]] || fail "server $s is shown at $at"
	expect_text "$TMP/$s.log" "server $s listens on \\[::1\\]:${at##*:},"
done
expect_status 2 "$BIN/tally-agent" --scheduler "$SCHEDULER" --rail ::1 --socket "$TMP/x.sock"
expect_text "$TMP/err" 'is no address; say .*\[fe80::1\]:7000'
say 'two agents, two servers over IPv6'

listens() { ss -Hltn6 "sport = :$1" | grep -q .; }
not_listens() { ! listens "$1"; }
port=${at##*:}
kill_now s1 TERM
wait_until 10 'its port is free' not_listens "$port"
start_daemon peer "$BIN/tally" doctor --listen "[::1]:$port" --once
wait_until 10 'the peer listens' listens "$port"
expect_status 0 "$BIN/tally" doctor --peer "[::1]:$port" --size 64K --bytes 16M
expect_text "$TMP/out" '^there +[0-9.]+ MB/s'
wait "$PID" || fail 'the peer ended badly'
say "$(sed -n 's/^there  *//p' "$TMP/out") with a peer"

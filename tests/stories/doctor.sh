#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tally doctor: what it finds wrong with a machine, and a link measured with a peer.
. "$(dirname "$0")/../lib.sh"

expect_status 0 "$BIN/tally" doctor --rail 127.0.0.1
expect_text "$TMP/out" '^(ok|note) +rail +127\.0\.0\.1'
expect_text "$TMP/out" '^(ok|note) +memlock'
expect_status 1 "$BIN/tally" doctor --rail 192.0.2.77
expect_text "$TMP/out" '^BAD +rail +192\.0\.2\.77 is not an address'
say 'a rail that is not here is bad'

for wrong in '--peer 1 --listen 2' '--size 0' '--size 5M' '--bytes nothing' 'word'; do
	# shellcheck disable=SC2086 # options are words
	expect_status 2 "$BIN/tally" doctor $wrong
done

listens() { ss -Hltn "sport = :$1" | grep -q .; }
free_port() { "$PYTHON" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])'; }

port=$(free_port)
expect_status 1 "$BIN/tally" doctor --peer "127.0.0.1:$port"
expect_text "$TMP/err" 'refused'
start_daemon peer "$BIN/tally" doctor --listen "127.0.0.1:$port" --once
wait_until 10 'the peer listens' listens "$port"
expect_status 0 "$BIN/tally" doctor --peer "127.0.0.1:$port" --size 64K --bytes 16M
for line in link latency there back both; do expect_text "$TMP/out" "^$line "; done
wait "$PID" || fail 'the peer ended badly'
say "$(grep '^link' "$TMP/out"), $(grep '^there' "$TMP/out")"

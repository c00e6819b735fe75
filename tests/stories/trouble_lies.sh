#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A scheduler that says anything, in any order (tests/storm), to a real agent and a real server:
# neither ends by it, and they take the next scheduler.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

over() { ! is_running "$(pid_of "$1")"; }

for seed in 1 32 34; do
	rm -f "$TMP/peer.port"
	start_daemon "peer$seed" "$BUILD/tests/storm" --peer "$TMP/peer.port" --seed "$seed" \
		--messages 6000
	wait_until 10 'it writes its port' has_port "$TMP/peer.port"
	at=127.0.0.1:$(cat "$TMP/peer.port")
	start_daemon "s$seed" "$BUILD/bin/tally-server" --scheduler "$at" --name s --machine-id s \
		--listen 127.0.0.1:0 --memory 64M
	start_daemon "a$seed" "$BUILD/bin/tally-agent" --scheduler "$at" --name a --machine-id a \
		--socket "$TMP/a$seed.sock"
	wait_until 120 'the scheduler has said all' over "peer$seed"
	for d in "s$seed" "a$seed"; do
		is_running "$(pid_of "$d")" || fail "$d has ended, seed $seed"
	done
	has_line "a$seed" 'job .* up' || fail 'no job came up'
	say "seed $seed: agent and server are there"
done

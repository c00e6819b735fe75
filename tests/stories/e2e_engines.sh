#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Agents and servers with unlike numbers of engines in one cluster: who owns what is
# each side's own affair, and every bit is right.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../e2e/lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_scheduler
start_server s0 --engines 1
start_server s1 --engines 3
start_agent a0 --engines 2
start_agent a1 --engines 1
start_agent a2 --engines 3 --no-shm
wait_until 60 'all are registered' nodes_are 5
expect_text "$TMP/s1.log" 'engines 3'
expect_text "$TMP/a0.log" 'engines 2'

for r in 0 1 2 3; do
	start_daemon "rank$r" env TALLY_JOB=x TALLY_RANK=$r TALLY_WORLD_SIZE=4 \
		TALLY_SOCKET="$TMP/a$(( r * 3 / 4 )).sock" "$E2E" ahead soak
done
for r in 0 1 2 3; do expect_end 300 "rank$r" 0; done
say "$(cat "$TMP/rank0.log")"

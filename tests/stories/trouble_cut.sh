#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A training machine's cable is pulled: nobody tells anybody (half-open connections).
# Its job ends on both sides of the cut, by name; other jobs go on; it is used again.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

ns_cluster 3 1
SCHEDULER=10.77.0.1:7470
start_in() { local ns=$1 name=$2; shift 2; start_daemon "$name" ip netns exec "$RUN-$ns" "$@"; }
start_in sw scheduler "$BIN/tally-scheduler" --listen "$SCHEDULER" --state-dir "$TMP/state" \
	--agent-grace 0
tally() { in_ns sw "$BIN/tally" "$@" --scheduler "$SCHEDULER"; }
nodes_up() { [ "$(tally nodes --json 2>/dev/null | grep -c '"state": *"up"')" = "$1" ]; }
for i in 0 1 2; do
	start_in gpu$i a$i "$BIN/tally-agent" --scheduler "$SCHEDULER" --name a$i \
		--machine-id gpu$i --engines 1 --socket "$TMP/a$i.sock"
done
start_in cpu0 s0 "$BIN/tally-server" --scheduler "$SCHEDULER" --listen 10.77.0.110:0 \
	--name s0 --machine-id cpu0 --engines 1 --memory 256M --shm-socket "$TMP/s0.shm"
wait_until 15 'all nodes are registered' nodes_up 4

for r in 0 1 2; do start_rank cut $r 3 a$r declare:w:500000 "train:w:$TMP/never"; done
for r in 0 1; do start_rank calm $r 2 a$r declare:w:500000 "train:w:$TMP/enough"; done
train_more cut.0 5 20
train_more calm.0 5 20
in_ns sw ip link set p-gpu2 down
for r in 0 1; do expect_error 10 cut.$r 'EWORKERLOST rank 2 on machine a2 is gone'; done
has_line scheduler 'agent a2 up -> dead.*lease ran out' || fail 'it was something else'
train_more calm.0 20
is_running "$(pid_of cut.2)" || fail 'the one that was cut off knows already: of whom?'
wait_line 20 a2 'scheduler .* lost'
in_ns sw ip link set p-gpu2 up
wait_until 20 'the machine is back' nodes_up 4
expect_error 20 cut.2 '(EWORKERLOST|ESHUTDOWN|EAGENT) '
say "cut off: $(grep -h ^ERROR "$TMP/cut.0.log"); back: $(grep -h ^ERROR "$TMP/cut.2.log")"
touch "$TMP/enough"
for r in 0 1; do expect_end 20 calm.$r 0; done
works after a0 a1 a2
say 'the machine is used again'

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A training machine's cable is pulled: nobody tells anybody (half-open connections).
# Its job ends on both sides of the cut, by name; other jobs go on; it is used again.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_ns_cluster 3 1 --agent-grace 0 --heartbeat-ms 200

for r in 0 1 2; do start_rank cut $r 3 a$r declare:w:500000 "train:w:$TMP/never"; done
for r in 0 1; do start_rank calm $r 2 a$r declare:w:500000 "train:w:$TMP/enough"; done
train_more cut.0 5 20
train_more calm.0 5 20
in_ns sw ip link set p-gpu2 down
for r in 0 1; do expect_error 40 cut.$r 'EWORKERLOST rank 2 on machine a2 is gone'; done
# Its lease, or the kernel's 3 s for what the scheduler sent just before: whichever is over first.
has_line scheduler 'agent a2 up -> dead.*lease ran out|10\.77\.0\.12:.*: Connection timed out' ||
	fail 'it was something else'
train_more calm.0 20
is_running "$(pid_of cut.2)" || fail 'the one that was cut off knows already: of whom?'
wait_line 20 a2 'no connection to scheduler'
in_ns sw ip link set p-gpu2 up
wait_until 20 'the machine is back' nodes_up 4
expect_error 20 cut.2 'EWORKERLOST rank 2 on machine a2 is gone'
say "cut off: $(grep -h ^ERROR "$TMP/cut.0.log"); back: $(grep -h ^ERROR "$TMP/cut.2.log")"
touch "$TMP/enough"
for r in 0 1; do expect_end 20 calm.$r 0; done
works after a0 a1 a2
say 'the machine is used again'

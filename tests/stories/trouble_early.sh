#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A rank detaches as soon as it has its result, while another machine's slow card still brings
# that machine the same round's: it is waited for, though it takes longer than a round would
# be waited for that lacks the input of who has left.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_ns_cluster 2 0
start_in gpu0 g0 "$BIN/tally-server" --scheduler "$SCHEDULER" --listen 10.77.0.10:0 --name g0 \
	--machine-id gpu0 --engines 1 --memory 256M --shm-socket "$TMP/g0.shm"
wait_until 60 'all nodes are registered' nodes_up 3
ns_shape sw p-gpu1 50mbit
for r in 0 1; do start_rank early $r 2 a$r declare:w:12000000 broadcast:w:0; done
expect_end 60 early.0 0
ended early.1 && fail 'the card is not slow enough to show anything'
expect_end 60 early.1 0
has_line a1 "'early' ends, all ranks detached" || fail 'its agent has ended the job'
say 'a rank that leaves early ends no round that needs nothing more of it'

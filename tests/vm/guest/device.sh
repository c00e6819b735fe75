#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Inputs in the memory of a device: a dma-buf, of which soft RoCE cannot make a region, so the
# CPU reads it, for the server behind the card, and the server on the same machine reads it by
# itself.  An agent that a failed read ends gets it back, and one that was not told to takes none.
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../lib.sh"

has_rounds() { (( $(cat "$TROUBLE_COUNT") >= $1 )); }
export TROUBLE_COUNT=$TMP/count

rdma_cluster 0 2 1
rdma_agent 1 1 --dma-buf
rdma_agent 2 1
wait_until 30 'the agents beside the servers are there' nodes_up_are 4
start_rounds 300000 device:w:0 rounds:w:10
end_job
expect_text "$TMP/a0.log" 'rdma cannot be used for .*, reason rxem.* cannot read the device'
say "device memory: $(grep -o 'reason rxem.*' "$TMP/a0.log" | head -n 1)"

echo 0 > "$TROUBLE_COUNT"
start_rounds 300000 device:w:0 "train:w:$TMP/enough"
wait_until 60 'rounds of device memory' has_rounds 20
kill -BUS "$PID_a0"		# as when the device fails under a read
wait "$PID_a0" 2>/dev/null
rdma_agent 1 1 --dma-buf
wait_until 60 'the agent that came back has it again' has_rounds \
	$(( $(cat "$TROUBLE_COUNT") + 20 ))
touch "$TMP/enough"
end_job
expect_text "$TMP/a0.log" 'goes on here, tensors as the processes have kept them'
say 'and after its agent was ended by SIGBUS'

start_rounds 300000 device:w:1 rounds:w:1
wait "${RANK[@]}" && fail 'an agent took what it was not told to take'
expect_text "$TMP/rank1.log" '^ERROR EAUTH .*--dma-buf'
say 'who was not told to takes none'

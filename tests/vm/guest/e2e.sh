#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Real daemons over RDMA: sums of every type and operation equal the reference bit for
# bit, with 2 agents and 2 servers on four machines; 20 steps of charlm write the same
# words as over TCP.
# TIMEOUT: 200
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../lib.sh"

charlm() { job "$BIN/charlm" --steps 20 --batch 2 --sample 60; }

# What the model says, without what depends on the clock.
words() { LC_ALL=C sed '/^step/d; /^trained in/d' "$TMP/rank0.log"; }

rdma_cluster 2 2 1
start_job "$BUILD/tests/e2e" sums
wait_until 60 'all links use rdma' all_by_rdma
end_job
say "$(tail -n 1 "$TMP/rank0.log")"
charlm
words > "$TMP/over-rdma"
notes | sed 's/^/  /'
cluster_stop

rdma_cluster 2 2 1 --no-rdma
charlm
words > "$TMP/over-tcp"
cmp "$TMP/over-rdma" "$TMP/over-tcp" || fail 'charlm says something else over TCP'
! grep 'by rdma' "$TMP"/a?.log || fail 'rdma was used although it was not wanted'
say "charlm over RDMA and TCP: $(grep -a '^loss before' "$TMP/over-tcp")"

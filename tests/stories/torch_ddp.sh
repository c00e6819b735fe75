#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# DistributedDataParallel with the hook: Gloo's means, every type, rebuilt buckets,
# nothing left on the servers, a stuck rank named.
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/torch/lib.sh"

torch_ranks 2 "$ROOT/tests/torch/ddp.py"
sed -n 's/^rank 0: //p' "$TMP/out" | while read -r story; do say "${story//_/ }"; done

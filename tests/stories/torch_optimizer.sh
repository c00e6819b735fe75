#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# DistributedOptimizer and what a Horovod script calls beside it, on two ranks of each of
# two machines; models that change; nothing left on the servers.
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/torch/lib.sh"

torch_ranks 4 "$ROOT/tests/torch/optimizer.py"
sed -n 's/^rank 0: //p' "$TMP/out" | while read -r story; do say "${story//_/ }"; done

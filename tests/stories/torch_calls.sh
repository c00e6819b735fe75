#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Calls on tensors, arrays and numbers: Horovod's factors, what cannot be taken, and batch norms
# over the batches of all ranks.
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/torch/lib.sh"

torch_ranks 4 "$ROOT/tests/torch/calls.py"
sed -n 's/^rank 0: //p' "$TMP/out" | while read -r story; do say "${story//_/ }"; done

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What scripts for PyTorch do at the wrong time: it works on all ranks, or an error says why.
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/torch/lib.sh"

torch_ranks 2 "$ROOT/tests/torch/misuse.py"
sed -n 's/^rank 0: //p' "$TMP/out" | while read -r story; do say "${story//_/ }"; done

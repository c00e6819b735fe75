#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Gradients that a script changes between backward() and step(): counted, or the same error on
# all ranks; loss scales and clipping.
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/torch/lib.sh"

torch_ranks 4 "$ROOT/tests/torch/changed.py"
sed -n 's/^rank 0: //p' "$TMP/out" | while read -r story; do say "${story//_/ }"; done

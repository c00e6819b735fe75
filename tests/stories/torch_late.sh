#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A rank that comes after another one's deadline, under PyTorch: no sum is wrong, and who gave
# up is told so until all begin anew.
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/torch/lib.sh"

torch_ranks 2 "$ROOT/tests/torch/late.py"
sed -n 's/^rank 0: //p' "$TMP/out" | while read -r story; do say "${story//_/ }"; done

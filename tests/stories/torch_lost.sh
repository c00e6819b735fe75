#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# LONG
# A rank that dies, stands still or leaves a tensor out, under PyTorch: an exception that names
# tensor, rank and machine, in time, and never a hang.
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/torch/lib.sh"

torch_ranks 2 "$ROOT/tests/torch/lost.py"
grep '^rank 1 ' "$TMP/out" | while read -r line; do say "$line"; done

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Scripts of Horovod and of BytePS with another import: what their examples call, on two
# ranks of each of two machines; what is not there says so.
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/torch/lib.sh"

torch_ranks 4 "$ROOT/tests/torch/moved.py"
sed -n 's/^rank 0: //p' "$TMP/out" | while read -r story; do say "${story//_/ }"; done

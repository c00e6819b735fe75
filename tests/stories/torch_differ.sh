#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Ranks with other layers, orders, types, operations or calls are told so, both sides by name,
# before anything is summed; calls with names meet in whatever order ranks make them.
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/torch/lib.sh"

torch_ranks 4 "$ROOT/tests/torch/differ.py"
grep -v 'all well' "$TMP/out" | while read -r story; do say "${story//_/ }"; done

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A real model trains a little on four ranks: the loss falls, the ranks stay the same;
# and what is no text to train on is refused.
. "$(dirname "$0")/../lib.sh"

local_cluster() { "$BIN/tally" local --agents 2 --servers 1 --ranks 4 -- "$BIN/charlm" "$@"; }

expect_status 0 local_cluster --steps 40
expect_text "$TMP/out" 'loss before [0-9.]+, after [0-9.]+'
expect_text "$TMP/out" '^parameters identical on 4 ranks$'
awk '/^loss before/ { gsub(",", ""); ok = $5 < 0.8 * $3 } END { exit !ok }' "$TMP/out" ||
	fail "the loss did not fall: $(grep '^loss before' "$TMP/out")"
say 'forty steps: the loss falls, parameters identical on 4 ranks'

printf 'too short\n' > "$TMP/short"
expect_status 1 local_cluster "$TMP/short"
expect_text "$TMP/err" 'short|4096'
expect_status 1 local_cluster "$TMP/missing"
expect_text "$TMP/err" 'missing'
say 'a text that is too short, or not there, is refused'

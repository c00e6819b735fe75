#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Two jobs at once on the same machines, with the same tensor names and other data,
# share nothing: each gets its own sums, the same as when it is alone.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../e2e/lib.sh"

# One process of each job; rank 0's words in files.
cat > "$TMP/rank.sh" <<'RANK'
TALLY_JOB=a "$E2E" --seed 1 sums soak > "$OUT.a.$TALLY_RANK" &
a=$!
TALLY_JOB=b "$E2E" --seed 2 --chunk 262144 sums soak > "$OUT.b.$TALLY_RANK" || exit
wait $a
RANK

where='--agents 2 --ranks 4 --servers 1'
export E2E OUT=$TMP/two
cluster "$where" bash "$TMP/rank.sh"
for job in a b; do
	[ -s "$OUT.$job.0" ] || fail "job $job said nothing"
done
cluster "$where" "$E2E" --seed 1 sums soak
cmp -s "$TMP/out" "$OUT.a.0" || fail 'job a had other sums beside job b'
cluster "$where" "$E2E" --seed 2 sums soak
cmp -s "$TMP/out" "$OUT.b.0" || fail 'job b had other sums beside job a'

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What follows from the cards and from what waits, and what an option says instead: credit,
# links to a peer, frames of one write, bytes under way, as status, nodes and jobs show them.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

start_scheduler --window 5M
start_server s
start_agent a0 --rail "$LOOPBACK@100gbit"
start_agent a1 --rail "$LOOPBACK@1gbit" --links 3 --frames-per-write 1
wait_until 60 'all nodes are registered' nodes_up 3
for r in 0 1; do start_rank x $r 2 a$r declare:w:2000000 train:w:"$TMP/go"; done
train_more x.0 10

# shown VERB EXPRESSION: of the document d, and its rows by name n, in Python.
shown()
{
	"$BIN/tally" "$1" --json --timeout 10 --scheduler "$SCHEDULER" 2>/dev/null |
		"$PYTHON" -c '
import json, sys
d = json.load(sys.stdin)
n = {row["name"]: row for row in d.get("nodes", d.get("jobs"))}
sys.exit(not eval(sys.argv[1]))' "$2"
}
wait_until 20 'a card of 100 Gbit/s has 5 links' shown nodes \
	'n["a0"]["links_per_peer"] == n["a0"]["links"] == 5 and n["a0"]["frames"] > 0'
wait_until 20 'as many links as asked for' shown nodes \
	'n["a1"]["links_per_peer"] == n["a1"]["links"] == 3 and n["a1"]["frames"] > 0'
shown nodes '0 < n["a1"]["frames"] <= n["a1"]["writes"]' || fail 'more than a frame per write'
shown nodes '(n["a0"]["flight_bytes"], n["a1"]["flight_bytes"]) == (37500000, 375000)' ||
	fail 'bytes under way'
shown jobs 'n["x"]["window_bytes"] == 5 << 20 and n["x"]["chunk_bytes"] == 64 << 10' ||
	fail 'sizes of the job'
shown status 'd["links_per_peer"] == 5 and 0 < d["frames"] and 0 < d["writes"]' || fail 'status'
expect_status 0 "$BIN/tally" status
expect_text "$TMP/out" '^links +5 to a peer, [0-9.e+]+ frames per write$'
expect_text "$TMP/out" '64 KiB +64 KiB +5 MiB'
expect_status 0 "$BIN/tally" nodes
expect_text "$TMP/out" '^a1 .* 3 +3 +[0-9.]+ +366[.0-9]* KiB '
say "$(grep '^links' < <("$BIN/tally" status))"

touch "$TMP/go"
for r in 0 1; do expect_end 20 x.$r 0; done

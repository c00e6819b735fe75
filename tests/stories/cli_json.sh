#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# docs/CLI.md has every field that a verb prints as JSON, with its type, and no other; and
# tally nodes --help has every column of the table.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../trouble.sh"

# documented SECTION...: the fields of $TMP/out are those of these sections' tables.
documented()
{
	"$PYTHON" - "$TMP/out" "$ROOT/docs/CLI.md" "$@" <<- 'END' || fail "docs/CLI.md: $*"
		import json, sys

		def kind(v):
		    if isinstance(v, bool):
		        return "boolean"
		    if isinstance(v, int):
		        return "count"
		    return {float: "number", str: "string", list: "list",
		            dict: "object"}.get(type(v), "null")

		def look(v, path, found):
		    for k, x in v.items():
		        found.setdefault(path + k, set()).add(kind(x))
		        for row in x if isinstance(x, list) else ():
		            if isinstance(row, dict):
		                look(row, path + k + "[].", found)

		printed, said, heading = {}, {}, None
		look(json.load(open(sys.argv[1])), "", printed)
		for line in open(sys.argv[2], encoding="utf-8"):
		    if line.startswith("## "):
		        heading = line[3:].strip()
		    if line.startswith("| `") and heading in sys.argv[3:]:
		        cells = [c.strip() for c in line.strip("|\n").split("|")]
		        said[cells[0].strip("`")] = cells[1]
		        assert len(cells) == 4, line
		assert printed.keys() == said.keys(), printed.keys() ^ said.keys()
		for name, kinds in printed.items():
		    for k in kinds:     # a number may happen to be whole
		        fits = {"count": ("count", "integer", "number")}.get(k, (k,))
		        assert any(f in said[name] for f in fits), (name, k, said[name])
	END
}

ask() { "$BIN/tally" "$@" --json --timeout 5 > "$TMP/out" || fail "tally $*"; }

expect_status 0 "$BIN/tally" plan --gpu 2x25 --gpu 2 --cpu 1 --adder 5 --model 1G --json
documented 'tally plan'
expect_status 0 "$BIN/tally" local --agents 2 --servers 1 --ranks 2 -- \
	"$BIN/tally" bench -b 4K -e 4K -n 2 -w 0 --json
documented 'tally bench'

# A job with a round that waits for a rank, and a second agent a0, so that every list has a row.
start_cluster 2 2
start_daemon double "$BIN/tally-agent" --scheduler "$SCHEDULER" --name a0 --machine-id other \
	--socket "$TMP/double.sock" --engines 1
expect_end 20 double 1
for r in 0 1; do start_rank x $r 2 a$r declare:w:100000 train:w:"$TMP/go"; done
train_more x.0 3
kill_now x.1 STOP
is_stuck() { "$BIN/tally" tensors --stuck --json > "$TMP/out" && grep -q '"tensor":' "$TMP/out"; }
wait_until 20 'a round waits' is_stuck
head='status, nodes, jobs and tensors'
documented "$head" 'tally tensors --stuck'
ask status
documented "$head" 'tally status' 'tally nodes' 'tally jobs'
for verb in nodes jobs tensors; do
	ask $verb
	grep -q '"name":' "$TMP/out" || fail "tally $verb has no row"
	documented "$head" "tally $verb"
done

"$BIN/tally" nodes > "$TMP/table" || fail 'tally nodes'
expect_status 0 "$BIN/tally" nodes --help
for column in $(head -n 1 "$TMP/table") $(grep '^REFUSED' "$TMP/table"); do
	expect_text "$TMP/out" "^  $column  "
done
kill_now x.1 CONT

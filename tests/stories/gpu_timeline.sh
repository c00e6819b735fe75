#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# TALLY_TIMELINE with gradients on GPUs, over a CUDA and an NCCL of host memory: every round is
# shown, whoever waits for it, and who copies chunks shows both copies within it.
. "$(dirname "$0")/../lib.sh"

GPU=${BUILD:-$ROOT/build}/tests/gpu
[ -x "$GPU/rank" ] || fail "$GPU/rank is not built: make tests-build"

# check FILE RANK TENSORS: rank.c's tensors, of which so many have chunks for each rank.
check()
{
	"$PYTHON" - "$@" <<-'END' || fail "$1: $(tail -c 2000 "$1")"
	import collections, json, sys
	path, rank, copied = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
	events = json.load(open(path, encoding="utf-8"))
	tracks = {e["tid"]: e["args"]["name"].rstrip("0123456789 ")
	          for e in events if e["name"] == "thread_name"}
	spans = collections.defaultdict(list)
	for e in events:
	    if e["ph"] == "X":
	        assert e["pid"] == rank and e["dur"] >= 0, e
	        key = tracks[e["tid"]], e["name"], e["args"]["round"]
	        spans[key].append((e["ts"], e["ts"] + e["dur"]))
	rounds = [key[1:] for key in spans if key[0] == "round"]
	names = {"tiny", "bytes", "layer0", "layer1", "mean", "half", "real", "none"}
	assert names <= {n for n, _ in rounds} and all(
	    {(n, r) for r in (1, 2, 3, 4)} <= set(rounds) for n in names), rounds
	seen = set()
	for name, number in rounds:
	    (begin, end), = spans["round", name, number]
	    copies = spans.get(("copy", name, number), [])
	    if name == "twin":
	        continue
	    assert len(copies) in (0, 2), (name, copies)
	    assert all(begin <= a <= b <= end for a, b in copies), (name, begin, end, copies)
	    if copies:
	        seen.add(name)
	        assert copies[0][0] <= copies[1][1] and copies[0][0] <= copies[1][0], copies
	assert len(seen) >= copied and "none" not in seen, seen
	assert [e["args"]["spans"] for e in events if e["name"] == "left_out"] == [0]
	print(f"rank {rank}: copies of {', '.join(sorted(seen))}")
	END
}

for topology in scatter roots; do
	TALLY_TIMELINE=$TMP/$topology.%r expect_status 0 timeout 100 "$BIN/tally" local --agents 2 \
		--servers 1 --ranks 4 --agent-arg "--topology=$ROOT/tests/data/gpu/$topology.topo" \
		-- "$GPU/rank" --rounds 4 "$GPU/libtally-cuda.so.0"
	for rank in 0 1 2 3; do check "$TMP/$topology.$rank" $rank 3; done
done

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# make bench-gpu, over the double: it measures, compares all that comes back, and prints.  What
# it measures there says nothing.
. "$(dirname "$0")/../lib.sh"

export BUILD=${BUILD:-$ROOT/build}
export GPU_BENCH=$BUILD/tests/gpu/gpu_bench GPU_PLUGIN=$BUILD/tests/gpu/libtally-cuda.so.0
[ -x "$GPU_BENCH" ] || fail "$GPU_BENCH is not built: make tests-build"
export HWLOC_XMLFILE=$ROOT/tests/data/topo/single-switch.xml
GPUS=$("$BIN/tally" doctor | sed -n 's/^ *gpu = \([^ ]*\) .*/\1/p' | paste -sd,)

DOUBLE_GPUS='' expect_status 77 "$ROOT/bench/gpu/run.sh"
expect_text "$TMP/out" '^cannot run here: no GPU: no device'
DOUBLE_GPUS=${GPUS%%,*} expect_status 0 "$ROOT/bench/gpu/run.sh" --size 100004 --time-ms 20 \
	--turns 1
expect_text "$TMP/out" '^copies \(1\) 0.0954 MiB .* GB/s +pinned copies, both ways at once '
expect_text "$TMP/out" '^compute \(1\) .* s +the kernel alone .* <= 1.03 +(yes|no)$'
expect_text "$TMP/out" '^beside \(1\) .* GB/s +push_pulls alone '

DOUBLE_GPUS=$GPUS expect_status 0 "$ROOT/bench/gpu/run.sh" --size 300000 --time-ms 20 --turns 2 \
	--json
"$PYTHON" - "$TMP/out" <<'END' || fail "$(cat "$TMP/out")"
import json, sys
text, found = open(sys.argv[1]).read(), []
while text.strip():
    run, end = json.JSONDecoder().raw_decode(text.lstrip())
    text = text.lstrip()[end:]
    found.append(run)
assert [run["ranks"] for run in found] == [1, 2], found
for run in found:
    assert run["wrong"] == 0
    assert [r["name"] for r in run["rows"]] == ["copies", "compute", "beside"], run
    for r in run["rows"]:
        assert r["size"] == 300000 and r["unit"] and r["peer"], r
        assert r["tally"] > 0 and r["peer_value"] > 0, r
        assert abs(r["ratio"] / (r["tally"] / r["peer_value"]) - 1) < 1e-4, r
        word, limit = (r["target"] or ">= nan").split()
        reached = r["ratio"] <= float(limit) if word == "<=" else r["ratio"] >= float(limit)
        assert r["met"] is (reached if r["target"] else None), r
    assert (run["rows"][0]["target"] is not None) == (run["ranks"] == 1), run
    assert run["rows"][1]["target"] == "<= 1.03" and run["rows"][2]["target"] is None, run
END

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An urgent tensor that is given last, when 128 others are under way on slow cards, is done
# before nine tenths of what is left of them; without a priority of its own it is among the last.
. "$(dirname "$0")/../lib.sh"

can_make_namespaces || skip 'making network namespaces needs root'
export BUILD=${BUILD:-$ROOT/build}

"$PYTHON" - "$ROOT" <<'END' || fail 'the order is wrong'
import sys

sys.path.insert(0, sys.argv[1] + "/bench")
import jobs

# Cards so slow that what is seen is the order, however busy this machine is.
cluster = jobs.Cluster(["gpu:30mbit", "gpu:30mbit"])
try:
    job = jobs.tally(cluster)
    try:
        for urgency in (1, 0):
            job.have(f"tensors 129 262144 {urgency}")
            after = [a["after"] / a["left"] for a in job.all("urgent")]
            print("priority" if urgency else "all alike", "part of the others after it:", after)
            assert min(after) >= 0.9 if urgency else max(after) <= 0.1, after
    finally:
        job.close()
finally:
    cluster.close()
END

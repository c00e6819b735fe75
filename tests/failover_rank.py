#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of the failover stories: sums that round, over several tensors, lap by lap of LAP
rounds, with the same inputs in each lap, and says of all results of a lap together one hash:
runs can be compared bit for bit, however long they are.

	failover_rank.py FILE		whole laps until FILE is there: rank 0 sees it, all agree

TROUBLE_COUNT is a file that shows how many rounds are done; with TROUBLE_PLACE=in-place
results lie where the inputs were.  TROUBLE_ON_LOSS is the job's on_loss.  A round begins
TROUBLE_PACE seconds after the one before at the earliest.  At the end a line "hash H rounds N
longest M ms": H is the hash of a lap, and where a lap had another one than that before it, this
one's, too; the longest round.
"""
import hashlib
import os
import sys
import time

import numpy as np

import tally

LAP = 20
SIZES = (1 << 19, 300001, 77)
PACE = float(os.environ["TROUBLE_PACE"])	# seconds


def main():
    session = tally.Session(timeout=30, on_loss=os.environ.get("TROUBLE_ON_LOSS", "error"))
    count = os.open(os.environ["TROUBLE_COUNT"], os.O_WRONLY | os.O_CREAT, 0o644)
    rng = np.random.default_rng(session.rank)
    base = [rng.standard_normal(n, dtype=np.float32) for n in SIZES]
    tensors = [session.declare(f"t{i}", (n,), "float32") for i, n in enumerate(SIZES)]
    inputs = [session.empty((n,), "float32") for n in SIZES]
    in_place = os.environ.get("TROUBLE_PLACE") == "in-place"
    stop, flag = session.declare("stop", (1,), "int32"), np.zeros(1, np.int32)
    hashes, longest, rounds, done = [], 0, 0, 0
    while not done:
        digest = hashlib.sha256()
        for r in range(LAP):
            start = time.monotonic()
            for x, b in zip(inputs, base):
                np.multiply(b, np.float32(1 + r / 7), out=x)
            op = "mean" if r % 2 else "sum"
            tickets = [t.push_pull(x, x if in_place else None, op)
                       for t, x in zip(tensors, inputs)]
            for t in tickets:
                digest.update(t.wait(120))
            longest = max(longest, time.monotonic() - start)
            rounds += 1
            os.pwrite(count, b"%10d\n" % rounds, 0)
            time.sleep(max(0, start + PACE - time.monotonic()))
        lap = digest.hexdigest()[:16]
        if hashes[-1:] != [lap]:
            hashes.append(lap)
        flag[0] = session.rank == 0 and os.path.exists(sys.argv[1])
        done = stop.push_pull(flag).wait(120)[0]
    session.detach()
    print("hash", "-".join(hashes), "rounds", rounds, f"longest {longest * 1000:.0f} ms",
          flush=True)


try:
    main()
except tally.TallyError as e:
    print("ERROR", e.name, e.text, flush=True)
    sys.exit(1)

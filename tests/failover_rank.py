#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of the failover stories: sums that round, over several tensors, and says of
all results together one hash, so that runs can be compared bit for bit.

	failover_rank.py ROUNDS		so many
	failover_rank.py FILE		until FILE is there: rank 0 sees it, all agree

TROUBLE_COUNT is a file that shows how many rounds are done; with TROUBLE_PLACE=in-place
results lie where the inputs were.  TROUBLE_ON_LOSS is the job's on_loss.  A round begins
TROUBLE_PACE seconds after the one before at the earliest: what stories do meanwhile fits into
a job on fast machines, too.  At the end a line "hash H rounds N longest M ms": the longest round.
"""
import hashlib
import os
import sys
import time

import numpy as np

import tally

SIZES = (1 << 19, 300001, 77)
PACE = float(os.environ["TROUBLE_PACE"])	# seconds


def main():
    rounds = int(sys.argv[1]) if sys.argv[1].isdigit() else None
    session = tally.Session(timeout=30, on_loss=os.environ.get("TROUBLE_ON_LOSS", "error"))
    count = os.open(os.environ["TROUBLE_COUNT"], os.O_WRONLY | os.O_CREAT, 0o644)
    rng = np.random.default_rng(session.rank)
    base = [rng.standard_normal(n, dtype=np.float32) for n in SIZES]
    tensors = [session.declare(f"t{i}", (n,), "float32") for i, n in enumerate(SIZES)]
    inputs = [session.empty((n,), "float32") for n in SIZES]
    in_place = os.environ.get("TROUBLE_PLACE") == "in-place"
    digest, longest, r = hashlib.sha256(), 0, 0
    stop = session.declare("stop", (1,), "int32") if rounds is None else None
    flag = np.zeros(1, np.int32)
    while r != rounds:
        start = time.monotonic()
        for x, b in zip(inputs, base):
            np.multiply(b, np.float32(1 + r / 7), out=x)
        op = "mean" if r % 2 else "sum"
        tickets = [t.push_pull(x, x if in_place else None, op) for t, x in zip(tensors, inputs)]
        for t in tickets:
            digest.update(t.wait(120))
        longest = max(longest, time.monotonic() - start)
        r += 1
        os.pwrite(count, b"%10d\n" % r, 0)
        flag[0] = session.rank == 0 and os.path.exists(sys.argv[1])
        if stop and stop.push_pull(flag).wait(120)[0]:
            break
        time.sleep(max(0, start + PACE - time.monotonic()))
    session.detach()
    print(f"hash {digest.hexdigest()[:16]} rounds {r} longest {longest * 1000:.0f} ms",
          flush=True)


try:
    main()
except tally.TallyError as e:
    print("ERROR", e.name, e.text, flush=True)
    sys.exit(1)

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of the failover stories: sums that round, over several tensors, and says of
all results together one hash, so that runs can be compared bit for bit.

	failover_rank.py ROUNDS

TROUBLE_COUNT is a file that shows how many rounds are done.  At the end a line
"hash H rounds N longest M ms": the longest round.
"""
import hashlib
import os
import sys
import time

import numpy as np

import tally

SIZES = (1 << 19, 300001, 77)


def main():
    rounds = int(sys.argv[1])
    session = tally.Session(timeout=30)
    count = os.open(os.environ["TROUBLE_COUNT"], os.O_WRONLY | os.O_CREAT, 0o644)
    rng = np.random.default_rng(session.rank)
    base = [rng.standard_normal(n, dtype=np.float32) for n in SIZES]
    tensors = [session.declare(f"t{i}", (n,), "float32") for i, n in enumerate(SIZES)]
    inputs = [session.empty((n,), "float32") for n in SIZES]
    digest, longest = hashlib.sha256(), 0
    for r in range(rounds):
        start = time.monotonic()
        for x, b in zip(inputs, base):
            np.multiply(b, np.float32(1 + r / 7), out=x)
        tickets = [t.push_pull(x, op="mean" if r % 2 else "sum") for t, x in zip(tensors, inputs)]
        for t in tickets:
            digest.update(t.wait(120))
        longest = max(longest, time.monotonic() - start)
        os.pwrite(count, b"%10d\n" % (r + 1), 0)
    session.detach()
    print(f"hash {digest.hexdigest()[:16]} rounds {rounds} longest {longest * 1000:.0f} ms",
          flush=True)


try:
    main()
except tally.TallyError as e:
    print("ERROR", e.name, e.text, flush=True)
    sys.exit(1)

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of the soak: sums until it is told to stop, and checks every bit of every result.

	soak_rank.py FILE

Every rank knows what all ranks give, and adds it up itself, in the promised order (one
rank on each machine).  When FILE is there, rank 0 tells the others by a tensor.  Exit
status 3: a wrong bit.  TROUBLE_COUNT shows how many rounds are done, PAUSE how long a
rank computes between two rounds, in seconds.
"""
import os
import sys
import time

import numpy as np

import tally

SIZES = (1 << 18, 150001, 77)


def inputs_of(rank, r):
    """What a rank gives in round r: the same numbers, moved along and scaled."""
    scale = np.float32(1 + (r % 50) / 7)
    return [np.roll(b, r % 17) * scale for b in BASE[rank]]


def expected(world, r):
    total = inputs_of(0, r)
    for rank in range(1, world):
        total = [t + x for t, x in zip(total, inputs_of(rank, r))]
    return [t / np.float32(world) for t in total] if r % 2 else total


def main():
    session = tally.Session(timeout=60)
    count = os.open(os.environ["TROUBLE_COUNT"], os.O_WRONLY | os.O_CREAT, 0o644)
    pause = float(os.environ.get("PAUSE", "0"))
    for rank in range(session.world_size):
        rng = np.random.default_rng(rank)
        BASE.append([rng.standard_normal(n, dtype=np.float32) for n in SIZES])
    tensors = [session.declare(f"t{i}", (n,), "float32") for i, n in enumerate(SIZES)]
    inputs = [session.empty((n,), "float32") for n in SIZES]
    stop, flag = session.declare("stop", (1,), "int32"), np.zeros(1, np.int32)
    r, longest = 0, 0
    while True:
        for x, given in zip(inputs, inputs_of(session.rank, r)):
            x[...] = given
        start = time.monotonic()
        tickets = [t.push_pull(x, op="mean" if r % 2 else "sum") for t, x in zip(tensors, inputs)]
        results = [t.wait(120) for t in tickets]
        longest = max(longest, time.monotonic() - start)
        for i, (got, want) in enumerate(zip(results, expected(session.world_size, r))):
            wrong = np.flatnonzero(got.view(np.uint32) != want.view(np.uint32))
            if wrong.size:
                print(f"WRONG tensor {i} round {r + 1}: {wrong.size} elements from {wrong[0]} on,"
                      f" {got[wrong[0]]} is not {want[wrong[0]]}", flush=True)
                sys.exit(3)
        r += 1
        os.pwrite(count, b"%10d\n" % r, 0)
        flag[0] = session.rank == 0 and os.path.exists(sys.argv[1])
        if stop.push_pull(flag).wait(120)[0]:
            break
        time.sleep(pause)
    session.detach()
    print(f"rounds {r}, longest {longest * 1000:.0f} ms", flush=True)


BASE = []
try:
    main()
except tally.TallyError as e:
    print("ERROR", e.name, e.text, flush=True)
    sys.exit(1)

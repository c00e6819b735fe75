#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of the soak: sums until it is told to stop, and checks every bit of every result.

	soak_rank.py FILE

Every rank knows what all ranks give, and adds it up itself, in the promised order
(PER_MACHINE ranks on each machine).  When FILE is there, rank 0 tells the others by a tensor.
Exit status 3: a wrong bit.  TROUBLE_COUNT shows how many rounds are done, PAUSE how long a
rank computes between two rounds, in seconds.

With ON_LOSS=shrink each result is of some world that its rank is in; a page's first element
says of which, and the file WORLDS has a line for each round, with the ranks of each tensor's
result: soak.sh compares them between ranks.  Every few rounds others may come in; they say "in"
when they have heard of rank 0 (which stays) how far the job is.
"""
import os
import sys
import time

import numpy as np

import tally

SHRINK = os.environ.get("ON_LOSS") == "shrink"
SIZES = (1 << 15, 20001, 77) if SHRINK else (1 << 18, 150001, 77)
PER_MACHINE = int(os.environ.get("PER_MACHINE", "1"))
PAGE = 1024  # elements of 4 bytes
GROW_EVERY = 4


def inputs_of(rank, r):
    """What a rank gives in round r: the same numbers, moved along and scaled."""
    scale = np.float32(1 + (r % 50) / 7)
    inputs = [np.roll(b, r % 17) * scale for b in BASE[rank]]
    for x in inputs if SHRINK else ():
        x[::PAGE] = 1 << rank
    return inputs


def added(parts):
    total = next(parts)
    for part in parts:
        total = [t + x for t, x in zip(total, part)]
    return total


def expected(ranks, r):
    """The sums of those ranks: on each machine first."""
    machines = [[k for k in ranks if k // PER_MACHINE == m]
                for m in sorted({k // PER_MACHINE for k in ranks})]
    total = added(added(inputs_of(k, r) for k in m) for m in machines)
    return [t / np.float32(len(ranks)) for t in total] if r % 2 else total


def world_of(session, result, r):
    """The ranks that a result is of, as its first element says; none: of no such world."""
    everybody = range(session.world_size)
    if not SHRINK:
        return tuple(everybody)
    for bits in range(1, 1 << session.world_size):
        ranks = tuple(k for k in everybody if bits >> k & 1)
        mark = np.float32(bits) / np.float32(len(ranks) if r % 2 else 1)
        if mark == result[0] and session.rank in ranks:
            return ranks
    return ()


def check(session, results, r):
    """The world of each result."""
    sums, worlds = {}, []
    for i, got in enumerate(results):
        ranks = world_of(session, got, r)
        if ranks not in sums:
            sums[ranks] = expected(ranks, r) if ranks else [np.zeros(n, "f4") for n in SIZES]
        want = sums[ranks][i]
        wrong = np.flatnonzero(got.view(np.uint32) != want.view(np.uint32))
        if wrong.size:
            print(f"WRONG tensor {i} round {r + 1} of {ranks}: {wrong.size} elements from "
                  f"{wrong[0]} on, {got[wrong[0]]} is not {want[wrong[0]]}", flush=True)
            sys.exit(3)
        worlds.append(",".join(map(str, ranks)))
    return worlds


def main():
    session = tally.Session(timeout=60, on_loss=os.environ.get("ON_LOSS", "error"))
    count = os.open(os.environ["TROUBLE_COUNT"], os.O_WRONLY | os.O_CREAT, 0o644)
    pause = float(os.environ.get("PAUSE", "0"))
    worlds = open(os.environ.get("WORLDS", os.devnull), "w", 1, encoding="ascii")
    for rank in range(session.world_size):
        rng = np.random.default_rng(rank)
        BASE.append([rng.standard_normal(n, dtype=np.float32) for n in SIZES])
    tensors = [session.declare(f"t{i}", (n,), "float32") for i, n in enumerate(SIZES)]
    inputs = [session.empty((n,), "float32") for n in SIZES]
    stop, flag = session.declare("stop", (1,), "int32"), np.zeros(1, np.int32)
    clock, now = session.declare("clock", (1,), "int64"), np.zeros(1, np.int64)
    longest = 0

    def catch_up():
        clock.broadcast(now, now, root=0).wait(120)

    if session.is_late:
        catch_up()
    print("in", flush=True)
    while True:
        r = int(now[0])
        for x, given in zip(inputs, inputs_of(session.rank, r)):
            x[...] = given
        start = time.monotonic()
        tickets = [t.push_pull(x, op="mean" if r % 2 else "sum") for t, x in zip(tensors, inputs)]
        results = [t.wait(120) for t in tickets]
        longest = max(longest, time.monotonic() - start)
        print("round", r + 1, *check(session, results, r), file=worlds)
        now[0] += 1
        os.pwrite(count, b"%10d\n" % now[0], 0)
        flag[0] = session.rank == 0 and os.path.exists(sys.argv[1])
        if stop.push_pull(flag).wait(120)[0]:
            break
        time.sleep(pause)
        if SHRINK and now[0] % GROW_EVERY == 0 and session.grow(120):
            catch_up()
    session.detach()
    print(f"rounds {now[0]}, longest {longest * 1000:.0f} ms", flush=True)


BASE = []
try:
    main()
except tally.TallyError as e:
    print("ERROR", e.name, e.text, flush=True)
    sys.exit(1)

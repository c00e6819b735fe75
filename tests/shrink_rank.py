#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of a job that goes on without the ranks that it loses: shrink.sh.

	shrink_rank.py TENSORS ROUNDS STEP_S FILE

Trains TENSORS tensors of several sizes for ROUNDS rounds, whoever is lost meanwhile; the last
LAST of them when FILE is there: nobody is done before all who shall be lost are.
Each result has to be of one world, whole: every rank's input begins each page with its bit,
so the sum is the set of those who are in it.  A line per round says which world each tensor's
result was of, and a checksum of all its bits: the story compares them between ranks.
"""
import os
import sys
import time
import zlib

import numpy as np

import tally

PAGE = 1024  # elements of 4 bytes
LAST = 10


def make_base(size, rank, tensor):
    rng = np.random.default_rng(1000003 * rank + tensor)
    return rng.standard_normal(size, np.float32)


def world_of(result, op, live):
    """The set of ranks in every page; None: not the same in all."""
    bits = np.unique(result[::PAGE])
    if len(bits) != 1:
        return None
    if op == "sum":
        return int(bits[0])
    for count in range(1, live + 1):	# a mean over that many
        world = round(float(bits[0]) * count)
        if bin(world).count("1") == count and np.float32(world) / np.float32(count) == bits[0]:
            return world
    return None


def main():
    tensors, rounds, step_s = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    go = sys.argv[4]
    s = tally.Session(timeout=20, on_loss="shrink")
    sizes = [1 + (37777 * (k + 1)) % 300000 for k in range(tensors)]
    handles = s.declare_all([(f"t{k}", n) for k, n in enumerate(sizes)])
    arrays = [s.empty(n) for n in sizes]
    bases = [make_base(n, s.rank, k) for k, n in enumerate(sizes)]
    print("attached", flush=True)
    longest = 0
    for number in range(1, rounds + 1):
        while number > rounds - LAST and not os.path.exists(go):
            time.sleep(step_s)
        tickets, start = [], time.monotonic()
        for k, (handle, array) in enumerate(zip(handles, arrays)):
            np.multiply(bases[k], np.float32(number), out=array)
            array[::PAGE] = float(1 << s.rank)
            op = "mean" if (k + number) % 3 == 0 else "sum"
            tickets.append((op, handle.push_pull(array, array, op=op)))
        row = []
        for _, ticket in tickets:
            ticket.wait(60)
        longest = max(longest, time.monotonic() - start)
        for k, (op, _) in enumerate(tickets):
            world = world_of(arrays[k], op, s.world_size)
            if world is None:
                print("WRONG round", number, "tensor", k, op, np.unique(arrays[k][::PAGE]))
                sys.exit(3)
            row.append(f"{world:x}:{zlib.crc32(arrays[k]):08x}")
        print("round", number, *row, flush=True)
        time.sleep(step_s)
    live = [r for r in range(s.world_size) if s.is_live(r)]
    assert len(live) == s.live_ranks
    print("live", *live, flush=True)
    print(f"longest {longest * 1000:.0f} ms", flush=True)
    s.barrier(20)
    s.undeclare(*handles)
    s.detach()
    print("detached", flush=True)


try:
    main()
except tally.TallyError as e:
    print("ERROR", e.name, e.text, flush=True)
    sys.exit(1)

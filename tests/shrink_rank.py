#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of a job that goes on without the ranks that it loses: shrink.sh.

	shrink_rank.py TENSORS ROUNDS STEP_S FILE

Trains TENSORS tensors of several sizes for ROUNDS rounds, whoever is lost meanwhile; the last
LAST of them when FILE is there: nobody is done before all who shall be lost are.
Each result has to be of one world, whole: every LENGTH-th element of a rank's input is its bit,
so the sum is the set of those who are in it, and all other elements have to be the sum of
theirs, bit for bit.  A line per round says which world each tensor's result was of, and a
checksum of all its bits: the story compares them between ranks.
"""
import os
import sys
import time
import zlib

import numpy as np

import tally
from inputs import LENGTH, Inputs, machines

LAST = 10


def world_of(result, op, size):
    """The set of ranks that all marks name; 0: they are not of one world."""
    marks = np.unique(result[::LENGTH])
    for world in range(1, 1 << size) if len(marks) == 1 else ():
        count = bin(world).count("1") if op == "mean" else 1
        if np.float32(world) / np.float32(count) == marks[0]:
            return world
    return 0


def check(array, inputs, where, number, op):
    """The world that the result is of; ends where it is no such world's sum."""
    world = world_of(array, op, len(where))
    ranks = [r for r in range(len(where)) if world >> r & 1]
    wrong = inputs.wrong(array, ranks, where, number, op) if world else [0]
    if len(wrong):
        print(f"WRONG round {number} {op} of {ranks}: {len(wrong)} elements from {wrong[0]} on;",
              "marks:", *np.unique(array[::LENGTH])[:8], flush=True)
        sys.exit(3)
    return world


def main():
    tensors, rounds, step_s = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    go = sys.argv[4]
    s = tally.Session(timeout=20, on_loss="shrink")
    sizes = [1 + (37777 * (k + 1)) % 300000 for k in range(tensors)]
    handles = s.declare_all([(f"t{k}", n) for k, n in enumerate(sizes)])
    arrays = [s.empty(n) for n in sizes]
    inputs = [Inputs(tensor=k, marked=True) for k in range(tensors)]
    print("attached", flush=True)
    where, longest = machines(s.world_size), 0
    for number in range(1, rounds + 1):
        while number > rounds - LAST and not os.path.exists(go):
            time.sleep(step_s)
        tickets, start = [], time.monotonic()
        for k, (handle, array) in enumerate(zip(handles, arrays)):
            inputs[k].fill(array, s.rank, number)
            op = "mean" if (k + number) % 3 == 0 else "sum"
            tickets.append((op, handle.push_pull(array, array, op=op)))
        row = []
        for _, ticket in tickets:
            ticket.wait(60)
        longest = max(longest, time.monotonic() - start)
        for k, (op, _) in enumerate(tickets):
            world = check(arrays[k], inputs[k], where, number, op)
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

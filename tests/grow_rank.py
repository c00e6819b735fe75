#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of a job into which others come in the place of lost ones: grow.sh.

	grow_rank.py TENSORS STEPS STEP_S GROW_FROM [SHAPE [SEED]]

Steps of TENSORS rounds each; from step GROW_FROM on all call grow() behind each step, once
the file GROW_GATE is there; with a number in it, as long as the step is below that.  Who comes
in is given the step and the parameters by rank 0.  Step GROW_FROM itself waits for the file
GROW_LOST, if that is said: who is to be lost before it is by then.
Each result has to be of one world, whole, as its marks name it, and have the bits of that world's
sum in the promised order.  A line for each step: the world of each tensor's result and a hash of
its bits, and a hash of the parameters.  grow_rank.c says the same in C, and their lines can be
compared.
"""
import os
import sys
import time

import numpy as np

import tally
from inputs import added, machines

PAGE = 1024  # elements of 4 bytes
LENGTH = 1000  # elements, then the same again, but for the marks
PARAMS = 5000


def size_of(tensor):
    return 1 + (37777 * (tensor + 1)) % 100000


def hash_of(array):
    bits = array.view(np.uint32).astype(np.uint64)
    return int((bits * (2 * np.arange(len(bits), dtype=np.uint64) + 1)).sum(dtype=np.uint64))


def numbers(rank, tensor, step):
    i = np.arange(LENGTH, dtype=np.int64)
    whole = (rank * 7919 + tensor * 104729 + i * 31 + step * 17) % 1000
    return whole.astype(np.float32) / np.float32(3)


def fill(array, rank, tensor, step):
    array[:] = np.resize(numbers(rank, tensor, step), len(array))
    array[::PAGE] = float(1 << rank)


def check(array, where, tensor, step):
    """The world that the result is of; ends where it is no such world's sum."""
    world = array[0].astype(int)
    ranks = [r for r in range(len(where)) if world >> r & 1]
    wrong = [0]
    if ranks:
        want = np.resize(added({r: numbers(r, tensor, step) for r in ranks}, where), len(array))
        want[::PAGE] = world
        wrong = np.flatnonzero(array.view(np.uint32) != want.view(np.uint32))
    if len(wrong):
        print(f"WRONG step {step} of {ranks}: {len(wrong)} elements from {wrong[0]} on", flush=True)
        sys.exit(3)
    return world


def is_open(step):
    try:
        with open(os.environ["GROW_GATE"], encoding="utf-8") as f:
            return step < int(f.read() or sys.maxsize)
    except FileNotFoundError:
        return False


def main():
    tensors, steps, step_s, grow_from = (
        int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
    extra = int(sys.argv[5]) if len(sys.argv) > 5 else 0
    s = tally.Session(timeout=60, on_loss="shrink")
    print("attached, late" if s.is_late else "attached", flush=True)
    handles = s.declare_all([(f"t{k}", size_of(k) + extra) for k in range(tensors)]
                            + [("params", PARAMS)])
    clock = s.declare("step", 1, "int64")
    arrays = [s.empty(size_of(k)) for k in range(tensors)]
    params, now = s.empty(PARAMS), s.empty(1, "int64")
    where = machines(s.world_size)

    def catch_up():
        handles[-1].broadcast(params, params, root=0).wait(60)
        clock.broadcast(now, now, root=0).wait(60)

    if s.is_late:
        catch_up()
    longest = 0
    while now[0] < steps:
        now[0] += 1
        step, row = int(now[0]), []
        while step == grow_from and not os.path.exists(os.environ.get("GROW_LOST", "/")):
            time.sleep(0.01)
        tickets, start = [], time.monotonic()
        for k, array in enumerate(arrays):
            fill(array, s.rank, k, step)
            tickets.append(handles[k].push_pull(array, array))
        for ticket in tickets:
            ticket.wait(60)
        longest = max(longest, time.monotonic() - start)
        for k, array in enumerate(arrays):
            row.append(f"{check(array, where, k, step):x}:{hash_of(array):x}")
        params += arrays[0][:PARAMS]
        print("step", step, *row, flush=True)
        print("params", step, f"{hash_of(params):x}", flush=True)
        time.sleep(step_s)
        if step < grow_from:
            continue
        while not is_open(step):
            time.sleep(0.01)
        came = s.grow(60)
        if came:
            print("came", came, "live", s.live_ranks, flush=True)
            catch_up()
    print(f"longest {longest * 1000:.0f} ms", flush=True)
    s.barrier(30)
    s.detach()
    print("detached", flush=True)


try:
    main()
except tally.TallyError as e:
    print("ERROR", e.name, e.text, flush=True)
    sys.exit(1)

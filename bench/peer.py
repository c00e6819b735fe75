#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""peer: one process of Gloo or Open MPI that does as bench/run.py tells it.

	peer.py gloo|mpi CONTROL

The counterpart of rank.c, with the orders `tensors`, `prepare` and `run`; see there.
Gloo finds its partners as torch.distributed does (RANK, WORLD_SIZE, MASTER_ADDR,
MASTER_PORT, GLOO_SOCKET_IFNAME), Open MPI by mpirun.
"""
import json
import os
import socket
import sys
import time

import numpy


class Gloo:
    def __init__(self):
        import torch
        import torch.distributed as dist
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        self.torch, self.dist = torch, dist
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.barrier = dist.barrier

    def arrays(self, count, elements):
        self.tensors = [self.torch.zeros(elements) for _ in range(count)]
        return [t.numpy() for t in self.tensors]

    def step(self):
        for t in self.tensors:
            self.dist.all_reduce(t)


class Mpi:
    def __init__(self):
        from mpi4py import MPI
        self.mpi, self.comm = MPI, MPI.COMM_WORLD
        self.rank, self.world = self.comm.Get_rank(), self.comm.Get_size()
        self.barrier = self.comm.Barrier

    def arrays(self, count, elements):
        self.data = [numpy.zeros(elements, numpy.float32) for _ in range(count)]
        return self.data

    def step(self):
        for a in self.data:
            self.comm.Allreduce(self.mpi.IN_PLACE, a)


def pattern(elements, factor):
    return (numpy.arange(elements) % 1009 * factor).astype(numpy.float32)


def prepare(peer, arrays):
    for a in arrays:
        a[:] = pattern(a.size, peer.rank + 1)
    peer.step()
    want = peer.world * (peer.world + 1) // 2
    wrong = sum(int((a != pattern(a.size, want)).sum()) for a in arrays)
    for a in arrays:
        a[:] = 0
    peer.step()
    return {"wrong": wrong}


def run(peer, steps):
    clock, ends = time.monotonic, []
    peer.barrier()
    start = clock()
    for _ in range(steps):
        peer.step()
        ends.append(clock())
    return {"from": start, "ends": ends}


def main():
    peer = {"gloo": Gloo, "mpi": Mpi}[sys.argv[1]]()
    driver = socket.socket(socket.AF_UNIX)
    driver.connect(sys.argv[2])
    lines = driver.makefile("rw")
    arrays = []

    def say(answer):
        lines.write(json.dumps(answer) + "\n")
        lines.flush()

    say({"rank": peer.rank, "pid": os.getpid()})
    for line in lines:
        order, *args = line.split()
        if order == "tensors":
            arrays = peer.arrays(int(args[0]), int(args[1]) // 4)
            say({})
        elif order == "prepare":
            say(prepare(peer, arrays))
        elif order == "run":
            say(run(peer, int(args[0])))
        else:
            sys.exit(f"peer: wrong order: {line}")


if __name__ == "__main__":
    main()

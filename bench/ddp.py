#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""ddp: one rank of a DistributedDataParallel training that does as bench/run.py tells it.

	ddp.py gloo|tally CONTROL

Orders as of rank.c and peer.py: `model TABLES ROWS` (tables of embeddings, each row 4 KiB,
of which a step uses a few, while all of their gradients travel), `prepare`, `run STEPS`, and
`alone STEPS`: the same without any communication.  Gloo's process group is there in both; with
tally the gradients go by tally.torch.ddp_comm_hook().
"""
import json
import os
import socket
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../client/python"))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

WIDTH, CLASSES, BATCH = 1024, 16, 8


class Model(nn.Module):
    """The sum of what is found in each table, and a layer on top."""

    def __init__(self, tables, rows):
        super().__init__()
        torch.manual_seed(1)
        self.tables = nn.ModuleList(nn.Embedding(rows, WIDTH) for _ in range(tables))
        self.top = nn.Linear(WIDTH, CLASSES)

    def forward(self, found, factor=None):
        if factor is not None:      # gradients that everybody knows
            return sum(p.sum() for p in self.parameters()) * factor
        return self.top(sum(table(found) for table in self.tables))


class Training:
    """A model, its optimizer, and the steps of them."""

    def __init__(self, session, tables, rows):
        if session:
            import tally.torch
        model = Model(tables, rows)
        self.rows, self.session, self.bytes = rows, session, 0
        self.bytes = sum(p.numel() * 4 for p in model.parameters())
        self.ddp = DistributedDataParallel(model, gradient_as_bucket_view=True)
        if session:
            self.ddp.register_comm_hook(None, tally.torch.ddp_comm_hook(session))
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        self.data = torch.Generator().manual_seed(dist.get_rank())

    def step(self):
        found = torch.randint(self.rows, (BATCH,), generator=self.data)
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.ddp(found), found % CLASSES).backward()
        self.optimizer.step()

    def alone(self):
        with self.ddp.no_sync():
            self.step()

    def wrong(self):
        """Elements of gradients that are not the mean; buckets are what they will be then."""
        want, wrong = (dist.get_world_size() + 1) / 2, 0
        for _ in range(3):
            self.ddp.zero_grad()
            self.ddp(None, dist.get_rank() + 1.0).backward()
            wrong += sum(int((p.grad != want).sum()) for p in self.ddp.parameters())
        return wrong


def run(step, steps):
    clock, ends = time.monotonic, []
    dist.barrier()
    start = clock()
    for _ in range(steps):
        step()
        ends.append(clock())
    return {"from": start, "ends": ends}


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    session = training = None
    if sys.argv[1] == "tally":
        import tally
        session = tally.Session(rank=dist.get_rank(), world=dist.get_world_size())
    driver = socket.socket(socket.AF_UNIX)
    driver.connect(sys.argv[2])
    lines = driver.makefile("rw")

    def say(answer):
        lines.write(json.dumps(answer) + "\n")
        lines.flush()

    say({"rank": dist.get_rank(), "pid": os.getpid()})
    for line in lines:
        order, *args = line.split()
        if order == "model":
            training = Training(session, int(args[0]), int(args[1]))
            say({"bytes": training.bytes})
        elif order == "prepare":
            say({"wrong": training.wrong()})
        elif order in ("run", "alone"):
            say(run(training.step if order == "run" else training.alone, int(args[0])))
        else:
            sys.exit(f"ddp: wrong order: {line}")


main()

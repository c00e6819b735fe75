#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""pytorch: one rank of a training in PyTorch that does as bench/run.py tells it.

	pytorch.py gloo|tally CONTROL

Orders as of rank.c and peer.py.  What is trained:

	model TABLES ROWS	by DistributedDataParallel: tables of embeddings, each row 4 KiB,
				of which a step uses a few, while all of their gradients travel
	layers COUNT FORWARD BACKWARD barrier|cross
				by tally.torch.DistributedOptimizer, with cross_barrier or
				without: layers of 4 MiB that compute for so many seconds

and then `prepare`, `run STEPS`, and for DistributedDataParallel `alone STEPS`: the same
without any communication.  Gloo's process group is there in both; with tally
DistributedDataParallel's gradients go by tally.torch.ddp_comm_hook().
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

if sys.argv[1] == "tally":
    import tally.torch

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


class Parallel:
    """A model, its optimizer, and the steps of them."""

    def __init__(self, session, tables, rows):
        model = Model(tables, rows)
        self.rows = rows
        self.bytes = sum(p.numel() * 4 for p in model.parameters())
        self.ddp = DistributedDataParallel(model, gradient_as_bucket_view=True)
        self.hook = session and tally.torch.ddp_comm_hook(session)
        if session:
            self.ddp.register_comm_hook(None, self.hook)
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

    def close(self):
        if self.hook:
            self.hook.close()


class Compute(torch.autograd.Function):
    """Takes as long as told, forward and backward, and leaves the processor to others."""

    @staticmethod
    def forward(ctx, x, forward, backward):
        ctx.backward_s = backward
        time.sleep(forward)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        time.sleep(ctx.backward_s)
        return grad, None, None


class Layer(nn.Module):
    """Gets to zeros, so that the gradient of each weight is what the input was."""

    def __init__(self, forward, backward):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH, bias=False)
        nn.init.zeros_(self.linear.weight)
        self.seconds = forward, backward

    def forward(self, x):
        return Compute.apply(self.linear(x), *self.seconds)


class Layers(nn.Module):
    """They compute one after the other, and back again."""

    def __init__(self, count, *seconds):
        super().__init__()
        self.layers = nn.ModuleList(Layer(*seconds) for _ in range(count))

    def forward(self, x):
        return sum(layer(x).sum() for layer in self.layers)


class Crossing:
    """Such a training of layers whose weights are known at any time."""

    def __init__(self, count, forward, backward, way):
        self.model = Layers(int(count), float(forward), float(backward))
        self.bytes = sum(p.numel() * 4 for p in self.model.parameters())
        self.optimizer = tally.torch.DistributedOptimizer(
            torch.optim.SGD(self.model.parameters(), lr=1.0),
            named_parameters=self.model.named_parameters(),
            cross_barrier=self.model if way == "cross" else None)
        self.x = torch.full((1, WIDTH), dist.get_rank() + 1.0)

    def step(self):
        self.optimizer.zero_grad()
        self.model(self.x).backward()
        self.optimizer.step()

    def wrong(self):
        """Weights that are not what three steps make of zeros."""
        for _ in range(3):
            self.step()
        self.optimizer.synchronize()
        want = -3 * (dist.get_world_size() + 1) / 2
        return sum(int((p != want).sum()) for p in self.model.parameters())

    def close(self):
        self.optimizer.close()


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
        session = tally.Session(rank=dist.get_rank(), world=dist.get_world_size())
        tally.torch.init(session)
    driver = socket.socket(socket.AF_UNIX)
    driver.connect(sys.argv[2])
    lines = driver.makefile("rw")

    def say(answer):
        lines.write(json.dumps(answer) + "\n")
        lines.flush()

    say({"rank": dist.get_rank(), "pid": os.getpid()})
    for line in lines:
        order, *args = line.split()
        if order in ("model", "layers"):
            if training:
                training.close()
            training = (Parallel(session, int(args[0]), int(args[1])) if order == "model"
                        else Crossing(*args))
            say({"bytes": training.bytes})
        elif order == "prepare":
            say({"wrong": training.wrong()})
        elif order in ("run", "alone"):
            say(run(training.step if order == "run" else training.alone, int(args[0])))
        else:
            sys.exit(f"pytorch: wrong order: {line}")


main()

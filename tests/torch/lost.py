# SPDX-License-Identifier: Apache-2.0
"""Ranks that die, stand still, or leave a tensor out: every way of averaging gradients
raises, in bounded time, an error that names tensor, rank and machine; then the process ends.

Run as both of two ranks.  Each case has a process and a job of its own, forked from one
that has imported torch; rank 1 is who makes the trouble.
"""

import os
import re
import signal
import sys
import time

import rig
import torch
from rig import batch, mlp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tally
import tally.torch

TIMEOUT_S, SLACK_S = 5, 20  # of a round; more on a busy machine
KNOWN_S = 30  # who dies is known at once: before this deadline
LATE = (r"ETIMEDOUT: rank 0: (all_reduce [^:]*: )?round \d+ of tensor {0}: not done after 5 s; "
        r"tensor '{0}' round \d+ "
        r"waits for rank 1 \(machine agent-1\)")
GONE = r"EWORKERLOST: rank 0: tensor {0}: rank 1 on machine agent-1 is gone"
TROUBLES = {"dies": GONE, "stands still": LATE, "leaves a tensor out": LATE}


def loss(model, rank, step, part=False):
    """Of the model, or of its first layer alone: its other parameters have no gradients."""
    x, y = batch(rank, step)
    return nn.functional.cross_entropy(model[0](x) if part else model(x), y)


class Ddp:
    name, error = r"ddp\d+/bucket\d+\.\d+", RuntimeError  # what DDP makes of everything

    def __init__(self, session, timeout):
        self.model = mlp()
        self.ddp = DistributedDataParallel(self.model, bucket_cap_mb=0.01)
        self.ddp.register_comm_hook(None, tally.torch.ddp_comm_hook(session, timeout=timeout))

    def step(self, rank, step):
        x, y = batch(rank, step)
        nn.functional.cross_entropy(self.ddp(x), y).backward()

    def part(self, rank, step):
        x, y = batch(rank, step)
        out = self.ddp(x).detach() + self.model[4].bias
        nn.functional.cross_entropy(out, y).backward()


class Optimizer:
    name, error = r"optimizer\d+\.\d+/\S+", tally.TallyError
    cross = False

    def __init__(self, session, timeout):
        tally.torch.init(session)
        self.model = mlp()
        self.optimizer = tally.torch.DistributedOptimizer(
            torch.optim.SGD(self.model.parameters(), lr=0.1), self.model.named_parameters(),
            timeout=timeout, cross_barrier=self.model if self.cross else None)

    def step(self, rank, step):
        self.optimizer.zero_grad()
        loss(self.model, rank, step).backward()
        self.optimizer.step()
        if self.cross:
            self.model(batch(rank, step)[0])  # waits for the parameters

    def part(self, rank, step):
        loss(self.model, rank, step, part=True).backward()


class Crossing(Optimizer):
    cross = True


class Collective:
    """A call of one rank that the other does not make."""

    name, error = r"op\d+/call\d+", tally.TallyError

    def __init__(self, session, timeout):
        tally.torch.init(session, timeout=timeout)

    def step(self, rank, step):
        tally.torch.allreduce(torch.ones(1000))

    def part(self, rank, step):
        pass


def suffers(way, trouble, rank):
    """Rank 0: what is raised, and when."""
    begin = time.monotonic()
    try:
        way.step(rank, 3)
    except way.error as error:
        kind, text, took = type(error).__name__, str(error), time.monotonic() - begin
    else:
        raise AssertionError(f"{trouble}: nothing was raised")
    assert re.search(TROUBLES[trouble].format(way.name), text), text
    assert took < TIMEOUT_S + SLACK_S, took
    print(f"rank 1 {trouble}, {type(way).__name__.lower()}: {kind} "
          f"after {took:.1f} s", flush=True)


def gives_up(optimizer):
    """Its tensors cannot be given back while a round of theirs is on its way."""
    begin = time.monotonic()
    try:
        optimizer.close()
    except tally.TallyTimeout as error:
        assert "rank 1" in str(error), error
    else:
        raise AssertionError("closed, though rank 1 stands still")
    assert time.monotonic() - begin < TIMEOUT_S + SLACK_S


def causes(way, trouble, rank, told):
    """Rank 1; its parent ends it."""
    if trouble == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if trouble == "leaves a tensor out":
        way.part(rank, 3)
    os.kill(os.getpid(), signal.SIGSTOP if trouble == "stands still" else 0)
    rig.wait_until("rank 0 was told", lambda: os.path.exists(told))
    os._exit(0)


def case(kind, trouble):
    """The life of a case's process."""
    name = f"{kind.__name__}-{trouble.replace(' ', '-')}".lower()
    told = os.path.join(os.environ["RIG_DIR"], f"{name}.told")
    rig.start_gloo(name)
    session = tally.Session(job=name, timeout=60)
    way = kind(session, KNOWN_S if trouble == "dies" else TIMEOUT_S)
    for step in range(3):  # after which DDP's buckets are what they will be
        way.step(session.rank, step)
    rig.meet()
    if session.rank == 1:
        causes(way, trouble, session.rank, told)
    suffers(way, trouble, session.rank)
    if trouble == "stands still" and isinstance(way, Optimizer):
        gives_up(way.optimizer)
    open(told, "w", encoding="utf-8").close()
    sys.exit(0)  # as a script ends whose exception nobody caught: nothing may hang there


def main():
    rank = int(os.environ["TALLY_RANK"])
    for kind in (Ddp, Optimizer, Crossing, Collective):
        for trouble in TROUBLES:
            pid = os.fork()
            if not pid:
                case(kind, trouble)
            name = f"{kind.__name__}-{trouble.replace(' ', '-')}".lower()
            told = os.path.join(os.environ["RIG_DIR"], f"{name}.told")
            if rank == 1:
                rig.wait_until("rank 0 was told", lambda: os.path.exists(told))  # noqa: B023
                os.kill(pid, signal.SIGKILL)
            end, status = time.monotonic() + rig.DEADLINE_S, None
            while True:
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    break
                assert time.monotonic() < end, f"{name}: rank {rank} does not end"
                time.sleep(0.01)
            assert rank == 1 or status == 0, f"{name}: rank 0 ended with {status}"
    print("all well")


main()

# SPDX-License-Identifier: Apache-2.0
"""A rank that dies or stands still while gradients are on GPUs, those of the double: what its
companion hears, and when.  Streams are let go, so what was computed meanwhile is void, and that
never stays unsaid.

Run as both of two ranks, on one machine or on two.  Each case has a process and a job of its
own, forked from one that has imported torch; rank 1 is who makes the trouble.
"""

import os
import re
import signal
import sys
import threading
import time

import double
import rig
import torch
from rig import loss_of, mlp
from torch.nn.parallel import DistributedDataParallel

import tally
import tally.torch as hvd
from tally.torch import _device
from tally.torch._exchange import Exchange

LIMIT_S, SLACK_S = 5, 20  # of a round; more on a busy machine
KNOWN_S = 30  # who dies is known at once: before this deadline
GONE = r"EWORKERLOST: rank 0: tensor {0}: rank 1 on machine agent-\d is gone"
LATE = (r"(ETIMEDOUT: rank 0: (all_reduce .*: )?{0}after 5(000 ms| s)|"
        r"EIO: rank 0: {0}on its GPU after 5000 ms); .*rank 1"
        ).format(r"(tensor {0}: )?round \d+ of tensor {0}: not done ")
SHY_S = 12, 6  # rank 0 is still waiting for rank 1's GPU when that one gives up
SHY = r"ETIMEDOUT: on machine \S+ these have not said which GPU they have: rank 1"


class Ddp:
    name = r"ddp\d+/bucket\d+\.\d+"

    def __init__(self, session):
        self.ddp = DistributedDataParallel(mlp(), bucket_cap_mb=0.01)
        self.hook = hvd.ddp_comm_hook(session)
        self.ddp.register_comm_hook(None, self.hook)

    def step(self, rank, step):
        loss_of(self.ddp, rank, step).backward()

    def settle(self):
        self.hook.synchronize()

    def rounds(self):
        return len(self.hook._slots)


class Optimizer:
    name = r"optimizer\d+\.\d+/\S+"
    cross = False

    def __init__(self, session):
        hvd.init(session)
        self.model = mlp()
        self.optimizer = hvd.DistributedOptimizer(torch.optim.SGD(self.model.parameters(), lr=0.1),
                                                  self.model.named_parameters(),
                                                  cross_barrier=self.model if self.cross else None)

    def step(self, rank, step):
        self.optimizer.zero_grad()
        loss_of(self.model, rank, step).backward()
        self.optimizer.step()

    def settle(self):
        self.optimizer.state_dict()

    def rounds(self):
        return len(self.optimizer._tally.buckets) + 1  # and the vote


class Crossing(Optimizer):
    cross = True


class Collective:
    name = r"op\d+/call\d+"

    def __init__(self, session):
        hvd.init(session, timeout=LIMIT_S)

    def step(self, rank, step):
        hvd.allreduce(torch.ones(1000))

    def settle(self):
        raise AssertionError("the call has said nothing")


def suffers(way, trouble, text):
    """Rank 0: what the step says, or who asks whether all is there."""
    begin = time.monotonic()
    try:
        way.step(0, 3)
        way.settle()
    except (tally.TallyError, RuntimeError) as error:
        took = time.monotonic() - begin
        assert re.search(text.format(way.name), str(error)), error
    else:
        raise AssertionError(f"{trouble}: nothing was raised")
    assert took < (KNOWN_S if text is GONE else LIMIT_S + SLACK_S), took
    print(f"rank 1 {trouble}, {type(way).__name__.lower()}: heard after {took:.1f} s", flush=True)
    try:
        way.step(0, 4)
        way.settle()
    except (tally.TallyError, RuntimeError):
        return
    raise AssertionError("the next step is right")


def all_under_way(session, way):
    """Returns when a step's rounds are on the GPU."""
    flying, rounds = Exchange.of(session)._flying, way.rounds()
    rig.wait_until("all rounds are on the GPU", lambda: len(flying) == rounds)


def case(kind, trouble, told, ready):
    """The life of a case's process."""
    gpu, rank = double.play(), int(os.environ["TALLY_RANK"])
    rig.start_gloo(os.path.basename(told) + ".gloo")
    session = tally.Session(job=os.path.basename(told),
                            timeout=SHY_S[rank] if trouble == "has no GPU" else 60,
                            round_timeout=LIMIT_S if trouble == "stands still" else 600)
    if trouble == "has no GPU":
        shy(session, rank)
        sys.exit(0)
    way = kind(session)
    for step in range(3):  # after which DDP's buckets are what they will be
        way.step(rank, step)
    rig.meet()
    if rank == 1:
        if trouble == "dies unheard":
            rig.wait_until("rank 0's rounds are on its GPU", lambda: os.path.exists(ready))
        os.kill(os.getpid(), signal.SIGSTOP if trouble == "stands still" else signal.SIGKILL)
    if trouble == "dies, streams stay":  # libtally has not let them go yet: nothing may hang
        _device._Landing.test = lambda _: False
    if trouble != "dies unheard":
        suffers(way, trouble, LATE if trouble == "stands still" else GONE)
        open(told, "w", encoding="utf-8").close()
        sys.exit(0)  # as a script ends whose exception nobody caught: nothing may hang there

    def watch():
        all_under_way(session, way)
        open(ready, "w", encoding="utf-8").close()

    threading.Thread(target=watch).start()
    gone = GONE.format(way.name)
    try:
        way.step(0, 3)  # says nothing: its stream goes on when it is let go
    except tally.TallyError as error:  # where its last line comes late, on a busy machine
        assert re.search(gone, str(error)), error
    else:
        rig.raises(tally.TallyError, gone, session.detach)
    print(f"rank 1 {trouble}, {type(way).__name__.lower()}: detach() says it", flush=True)
    open(told, "w", encoding="utf-8").close()
    sys.exit(0)


def shy(session, rank):
    """Rank 1 has its tensor in host memory, on the same machine."""
    hvd.init(session, timeout=SHY_S[rank])
    rig.meet()
    if rank == 0:
        rig.raises(tally.TallyError, SHY, hvd.allreduce, torch.ones(3))
    else:
        with double.stopped():
            rig.raises(tally.TallyError, r"; gpu_open\(\) on machine \S+ waits for rank 1",
                       hvd.allreduce, torch.ones(3))
    rig.meet()


def main():
    rank, one_machine = int(os.environ["TALLY_RANK"]), "one" in sys.argv[1:]
    cases = [(kind, trouble) for kind in (Ddp, Optimizer, Collective)
             for trouble in ("dies", "stands still", "dies unheard")
             if (kind, trouble) != (Collective, "dies unheard")] + [(Crossing, "dies")]
    cases += [(kind, "dies, streams stay") for kind in (Ddp, Optimizer)]
    if one_machine:
        cases = [(Ddp, "dies"), (Optimizer, "stands still"), (Collective, "has no GPU")]
    for kind, trouble in cases:
        name = f"{kind.__name__}-{trouble.replace(' ', '-')}-{len(cases)}".lower()
        told = os.path.join(os.environ["RIG_DIR"], name)
        pid = os.fork()
        if not pid:
            case(kind, trouble, told, told + ".ready")
        if rank == 1 and trouble == "stands still":
            rig.wait_until("rank 0 was told", lambda: os.path.exists(told))  # noqa: B023
            os.kill(pid, signal.SIGKILL)
        end = time.monotonic() + rig.DEADLINE_S
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                break
            assert time.monotonic() < end, f"{name}: rank {rank} does not end"
            time.sleep(0.01)
        assert status == 0 or (rank == 1 and trouble != "has no GPU"), f"{name}: {status}"
    print("all well")


main()

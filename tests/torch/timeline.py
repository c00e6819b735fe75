# SPDX-License-Identifier: Apache-2.0
"""TALLY_TIMELINE, run as every rank: DDP, the optimizer and a copy of a plain array.  One
rank is killed at the end if the argument says so, as batch systems do."""

import os
import signal
import sys

import rig
import torch
from rig import loss_of, mlp
from torch.nn.parallel import DistributedDataParallel

import tally
import tally.torch as hvd

STEPS = 4


def main():
    rig.start_gloo(sys.argv[1])
    session = tally.Session()
    ddp = DistributedDataParallel(mlp(), bucket_cap_mb=0.01)
    hook = hvd.ddp_comm_hook(session)
    ddp.register_comm_hook(None, hook)
    for step in range(STEPS):
        with session.span(f'forward "{step}"'):
            loss = loss_of(ddp, session.rank, step)
        loss.backward()
    hook.close()
    hvd.init(session)
    model = mlp()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, session.rank, step).backward()
        optimizer.step()
    hvd.allreduce(torch.ones(1000))
    rig.meet()
    if sys.argv[1] == "kill" and session.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    hvd.shutdown()
    print("all well")


main()

#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Trains digits.py's network in mixed precision, with a loss scale and clipped gradients.

	tally local --agents 2 --servers 1 --ranks 4 -- /usr/bin/python3 examples/pytorch/amp.py

On the CPU in bfloat16, on a GPU (--device cuda) in float16.  Gradients are clipped when they are
means over all ranks: DDP has them after backward(), a DistributedOptimizer after synchronize().
A rank whose gradients overflow makes everybody's mean infinite, so that all skip the same steps
and have the same scale.
"""

import argparse
import contextlib
import sys

import torch
import torch.distributed as dist
from digits import Digits
from torch.nn.parallel import DistributedDataParallel
from trainer import identical, start_gloo

import tally
import tally.torch

CLIP = 1.0  # the largest norm of a step's gradients
TYPES = {"cpu": torch.bfloat16, "cuda": torch.float16}


def scaler_of(device):
    """A loss scale; one that does nothing on the CPU before torch 2.3."""
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler(device, init_scale=1024.0)
    return torch.cuda.amp.GradScaler(init_scale=1024.0, enabled=device == "cuda")


def train(task, model, optimizer, steps, seed, device):
    """The losses of this rank's batches, and the scale at the end."""
    scaler, losses, data = scaler_of(device), [], torch.Generator().manual_seed(seed)
    distributed = hasattr(optimizer, "synchronize")
    for _ in range(steps):
        optimizer.zero_grad()
        pictures, labels = (part.to(device) for part in task.batch(data))
        with torch.autocast(device, TYPES[device]):
            outputs = model(pictures)
        loss = torch.nn.functional.cross_entropy(outputs.float(), labels)
        scaler.scale(loss).backward()
        if distributed:
            optimizer.synchronize()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        with optimizer.skip_synchronize() if distributed else contextlib.nullcontext():
            scaler.step(optimizer)
        scaler.update()
        losses.append(float(tally.torch.allreduce(loss.detach())))
    return losses, scaler.get_scale()


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--way", choices=("ddp", "optimizer"), default="optimizer",
                   help="who averages gradients (optimizer)")
    p.add_argument("--steps", type=int, default=150, help="(150)")
    p.add_argument("--device", choices=TYPES, default="cpu", help="of the model (cpu)")
    a = p.parse_args()
    session = tally.Session()
    if a.device == "cuda":  # a GPU for each rank of the machine
        torch.cuda.set_device(session.local_rank)
    tally.torch.init(session)
    rank, world = tally.torch.rank(), tally.torch.size()
    start_gloo(rank, world)
    torch.manual_seed(1)
    task = Digits()
    model = trained = task.model().to(a.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=task.rate)
    if a.way == "ddp":
        trained = DistributedDataParallel(model, gradient_as_bucket_view=True)
        trained.register_comm_hook(None, tally.torch.ddp_comm_hook(session))
    else:
        optimizer = tally.torch.DistributedOptimizer(optimizer, model.named_parameters())
    losses, scale = train(task, trained, optimizer, a.steps, 1000 + rank, a.device)
    same = identical(model)
    model.to("cpu")
    if rank == 0:
        print(f"loss before {losses[0]:.4f}, after {losses[-1]:.4f}, {task.score(model)}, "
              f"scale {scale:g}")
        print(f"parameters {'identical' if same else 'NOT identical'} on {world} ranks")
    dist.destroy_process_group()
    tally.torch.shutdown()
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""What the examples share: one training loop, three ways to average the gradients.

	gloo		DistributedDataParallel alone
	ddp		DistributedDataParallel, its gradients through Tally
	optimizer	tally.torch.DistributedOptimizer, no DistributedDataParallel

A task is an object with model(), loss(model, batch), batch(generator) and score(model);
with the same seed the three give the same losses, up to the rounding of the sums.
"""

import argparse
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import tally
import tally.torch

WAYS = ("ddp", "optimizer", "gloo")


def train(task, way, steps, rank, session=None, seed=1, report=None, device="cpu"):
    """Losses of this rank's batches, mean over all ranks, and the trained model."""
    torch.manual_seed(seed)
    model = trained = task.model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=task.rate)
    if way == "optimizer":
        tally.torch.broadcast_parameters(model.state_dict(), root_rank=0)
        optimizer = tally.torch.DistributedOptimizer(optimizer, model.named_parameters())
        optimizer.flat_gradients()
    else:
        trained = DistributedDataParallel(model, gradient_as_bucket_view=True, bucket_cap_mb=1)
    if way == "ddp":
        hook = tally.torch.ddp_comm_hook(session)
        trained.register_comm_hook(None, hook)
    data, losses = torch.Generator().manual_seed(1000 * seed + rank), []
    for step in range(steps):
        optimizer.zero_grad()
        loss = task.loss(trained, [part.to(device) for part in task.batch(data)])
        loss.backward()
        optimizer.step()
        mean = loss.detach().cpu().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / dist.get_world_size())
        if report:
            report(step + 1, losses[-1])
    if way == "ddp":
        hook.close()
    if way == "optimizer":
        optimizer.close()
    return losses, model


def start_gloo(rank, world):
    """A process group for DDP and for what is printed, from torchrun's variables or a file."""
    if "MASTER_ADDR" in os.environ:
        return dist.init_process_group("gloo", rank=rank, world_size=world)
    # under tally local: one machine, and a directory of this job's own, which it removes
    place = os.path.dirname(os.environ.get("TALLY_SOCKET", ""))
    if not os.path.basename(place).startswith("tally-local-"):
        sys.exit("set MASTER_ADDR and MASTER_PORT, as torchrun does: where rank 0 can be reached")
    meet = os.path.join(place, "gloo")
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=world)


def identical(model):
    """Do all ranks hold the same parameters, bit for bit?"""
    mine = torch.cat([p.detach().reshape(-1) for p in model.parameters()]).cpu()
    others = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(others, mine)
    return all(torch.equal(mine, other) for other in others)


def main(task, description):
    """The command line of an example."""
    p = argparse.ArgumentParser(description=description)
    p.add_argument("--way", choices=WAYS, default="ddp", help="who averages gradients (ddp)")
    p.add_argument("--steps", type=int, default=task.steps, help=f"({task.steps})")
    p.add_argument("--seed", type=int, default=1, help="of model and data (1)")
    p.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="of the model (cpu)")
    a = p.parse_args()
    session = tally.Session()
    if a.device == "cuda":  # a GPU for each rank of the machine
        torch.cuda.set_device(session.local_rank)
    tally.torch.init(session)
    rank, world = tally.torch.rank(), tally.torch.size()
    start_gloo(rank, world)
    begin = time.monotonic()

    def report(step, loss):
        if rank == 0 and (step == 1 or step % task.every == 0):
            took = time.monotonic() - begin
            print(f"step {step:4}  loss {loss:.4f}  {step / took:.1f} steps/s", flush=True)

    losses, model = train(task, a.way, a.steps, rank, session, a.seed, report, a.device)
    same = identical(model)
    model.to("cpu")
    if rank == 0:
        print(f"loss before {losses[0]:.4f}, after {losses[-1]:.4f}, {task.score(model)}")
        print(f"parameters {'identical' if same else 'NOT identical'} on {world} ranks")
    dist.destroy_process_group()
    tally.torch.shutdown()
    return 0 if same else 1

# SPDX-License-Identifier: Apache-2.0
"""The process group "tally", run by torchrun or as every rank: c10d's calls and plain DDP; with
the argument "gpu" on the GPU that tests/gpu plays."""

import datetime
import os
import sys

import rig
import torch
import torch.distributed as dist
from rig import loss_of, mlp, parameters, raises
from torch.nn.parallel import DistributedDataParallel

import tally.torch  # noqa: F401  registers the backend


def calls(rank, world):
    t = torch.arange(5.0) + rank
    dist.all_reduce(t)
    assert torch.equal(t, world * torch.arange(5.0) + sum(range(world)))
    for op, want in ((dist.ReduceOp.AVG, (world - 1) / 2), (dist.ReduceOp.MAX, world - 1),
                     (dist.ReduceOp.MIN, 0), (dist.ReduceOp.PRODUCT, 0)):
        t = torch.full((3,), float(rank))
        dist.all_reduce(t, op)
        assert (t == want).all(), op
    raises((ValueError, RuntimeError), "has no", dist.all_reduce, torch.ones(1, dtype=torch.int32),
           dist.ReduceOp.BXOR)
    works = [dist.all_reduce(torch.full((n,), 1.0), async_op=True) for n in (7, 7, 9, 7)]
    for work in works:
        work.wait()
    t = torch.full((2, 3), rank).t()
    dist.broadcast(t, world - 1)
    assert (t == world - 1).all()
    parts = [torch.empty(2, dtype=torch.bool) for _ in range(world)]
    dist.all_gather(parts, torch.tensor([rank == 0, True]))
    assert [p.tolist() for p in parts] == [[r == 0, True] for r in range(world)]
    flat = torch.empty(world * 3)
    dist.all_gather_into_tensor(flat, torch.full((3,), float(rank)))
    assert flat.tolist() == [float(r) for r in range(world) for _ in range(3)]
    out = torch.empty(2)
    dist.reduce_scatter(out, [torch.full((2,), float(r + rank)) for r in range(world)])
    assert (out == sum(rank + r for r in range(world))).all()
    dist.reduce_scatter_tensor(out, torch.arange(2.0 * world))
    assert torch.equal(out, world * torch.arange(2.0 * rank, 2.0 * rank + 2))
    t = torch.full((4,), float(rank + 1))
    dist.reduce(t, 0)
    assert (t == (sum(range(1, world + 1)) if rank == 0 else rank + 1)).all()
    got = [torch.empty(1) for _ in range(world)] if rank == 1 else None
    dist.gather(torch.tensor([float(rank)]), got, dst=1)
    assert rank != 1 or [g.item() for g in got] == list(range(world))
    out = torch.empty(2)
    dist.scatter(out, [torch.full((2,), 5.0 + r) for r in range(world)] if rank == 0 else None)
    assert (out == 5 + rank).all()
    objects = [None] * world
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in range(world)]
    dist.barrier()


def groups_are_jobs(rank, world):
    alone = [dist.new_group([r]) for r in range(world)][rank]
    both = dist.new_group(list(range(world)))
    t = torch.tensor([float(rank)])
    dist.all_reduce(t, group=alone)
    assert t.item() == rank
    dist.all_reduce(t, group=both)
    assert t.item() == sum(range(world))


def ddp_trains(rank, world):
    def train(group):
        model = mlp()
        ddp = DistributedDataParallel(model, process_group=group, bucket_cap_mb=0.01)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.2)
        for step in range(4):
            optimizer.zero_grad()
            loss_of(ddp, rank, step).backward()
            optimizer.step()
        return parameters(model)

    got, want = train(None), train(dist.new_group(backend="gloo"))
    assert torch.allclose(got, want, rtol=1e-5, atol=1e-6)
    parts = [torch.empty_like(got) for _ in range(world)]
    dist.all_gather(parts, got)
    assert all(torch.equal(got, p) for p in parts)


def a_stuck_rank_is_named(rank):
    quick = dist.new_group(timeout=datetime.timedelta(seconds=4))
    t = torch.ones(10)
    dist.all_reduce(t, group=quick)
    if rank == 0:
        raises(RuntimeError, "rank 0: .*not done after 4 s.*waits for .*(rank 1|agent-1)",
               dist.all_reduce, t, dist.ReduceOp.SUM, quick)
    dist.barrier()


def main():
    if "gpu" in sys.argv[1:]:
        import double

        double.play()
    if "MASTER_ADDR" in os.environ:  # torchrun
        dist.init_process_group("tally")
    else:
        dist.init_process_group(
            "tally", init_method=f"file://{os.environ['RIG_DIR']}/group",
            rank=int(os.environ["TALLY_RANK"]), world_size=int(os.environ["TALLY_WORLD_SIZE"]))
    rank, world = dist.get_rank(), dist.get_world_size()
    calls(rank, world)
    groups_are_jobs(rank, world)
    ddp_trains(rank, world)
    a_stuck_rank_is_named(rank)
    dist.destroy_process_group()
    print("all well")


main()

# SPDX-License-Identifier: Apache-2.0
"""tally.torch on real GPUs, run as every rank by tests/gpu/check.sh: the hook, the optimizer,
the calls and, from torch 2.1 on, the process group, against Gloo's sums and plain arithmetic.

Not called cuda.py, which torch would take for the package cuda that newer ones bring.

    on_gpus.py --sees   prints how many GPUs torch sees, or why it sees none and exits 1
    on_gpus.py          the test; several ranks may have one GPU
    on_gpus.py lost     rank 1 dies while it trains, and the others hear of it
    on_gpus.py ... double   the same with the GPU that tests/gpu plays, so that it stays right
"""

import os
import sys

import rig
import torch
import torch.distributed as dist
from rig import batch, mlp, parameters
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tally
import tally.torch as hvd

DOUBLE = "double" in sys.argv[1:]
WIDTH = 200 if DOUBLE else 1000


def sees():
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        print(f"torch {torch.__version__}: {str(error).splitlines()[0]}")
        return 1
    print(torch.cuda.device_count())
    return 0


def choose():
    """This rank's device; several ranks that have one seem to NCCL to be of different hosts."""
    if DOUBLE:
        import double

        double.play()
        return torch.device("cpu")
    rank, local = os.environ["TALLY_RANK"], int(os.environ.get("TALLY_LOCAL_RANK", 0))
    if int(os.environ["TALLY_WORLD_SIZE"]) > torch.cuda.device_count():
        os.environ["NCCL_HOSTID"] = rank
    device = torch.device("cuda", local % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def loss_of(model, device, rank, step):
    x, y = (t.to(device) for t in batch(rank, step, rows=64))
    return nn.functional.cross_entropy(model(x).float(), y)


def check(got, want):
    for rank, other in enumerate(rig.gathered(got.cpu())):
        assert torch.equal(got.cpu(), other), f"rank {rank} has other bits"
    worst = (got - want).abs().max()
    assert torch.allclose(got, want, rtol=1e-4, atol=1e-5), worst


def busy(device):
    """Work for the current stream, so that rounds have something to wait for."""
    size = 32 if DOUBLE else 2048
    a = torch.ones(size, size, device=device)
    for _ in range(10):
        a = a @ a / size
    return a


def train_ddp(device, session=None, steps=6, **options):
    model = mlp(width=WIDTH).to(device)
    ddp = DistributedDataParallel(model, bucket_cap_mb=1, **options)
    hook = hvd.ddp_comm_hook(session) if session else None
    if hook:
        ddp.register_comm_hook(None, hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        busy(device)
        loss_of(ddp, device, dist.get_rank(), step).backward()
        optimizer.step()
    if hook:
        hook.synchronize()
        hook.close()
    return parameters(model)


def train_optimizer(device, steps=4, flat=False, cross=False):
    model = mlp(width=WIDTH).to(device)
    hvd.broadcast_parameters(model.state_dict())
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1),
                                         model.named_parameters(),
                                         cross_barrier=model if cross else None)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    if flat:
        optimizer.flat_gradients()
    for step in range(steps):
        optimizer.zero_grad()
        busy(device)
        loss_of(model, device, hvd.rank(), step).backward()
        optimizer.step()
    optimizer.state_dict()
    optimizer.close()
    return parameters(model)


def reference(device, steps=4):
    model = mlp(width=WIDTH).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        for rank in range(hvd.size()):
            (loss_of(model, device, rank, step) / hvd.size()).backward()
        optimizer.step()
    return parameters(model)


def calls(device):
    rank, world = hvd.rank(), hvd.size()
    total = sum(range(world))
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int64):
        busy(device)
        t = torch.full((1000, 3), rank, device=device).to(dtype).t()
        assert (hvd.allreduce_(t, op=hvd.Sum) == total).all(), dtype
    handles = [hvd.allreduce_async(torch.full((n,), 1.0 * rank, device=device), op=hvd.Sum)
               for n in (7, 7, 900_000, 7)]
    assert all((hvd.synchronize(h) == total).all() for h in handles)
    rows = hvd.allgather(torch.full((rank + 1, 2), rank, device=device))
    assert rows.device == device and rows[:, 0].tolist() == [
        r for r in range(world) for _ in range(r + 1)]
    assert hvd.broadcast(torch.tensor([rank], device=device), world - 1).item() == world - 1
    if not DOUBLE:
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):  # not the default one
            busy(device)
            t = torch.full((100_000,), 1.0 * rank, device=device)
            assert (hvd.allreduce_(t, op=hvd.Sum) == total).all()


def process_group(device):
    group = dist.new_group(backend="tally")
    t = torch.arange(5.0, device=device) + dist.get_rank()
    dist.all_reduce(t, group=group)
    world = dist.get_world_size()
    assert torch.equal(t.cpu(), world * torch.arange(5.0) + sum(range(world)))
    parts = [torch.empty(2, device=device) for _ in range(world)]
    dist.all_gather(parts, torch.full((2,), 1.0 * dist.get_rank(), device=device), group=group)
    assert [p[0].item() for p in parts] == list(range(world))
    out = torch.empty(2, device=device)
    dist.reduce_scatter(out, [torch.full((2,), float(r), device=device) for r in range(world)],
                        group=group)
    assert (out == world * dist.get_rank()).all()
    dist.all_reduce(t, dist.ReduceOp.MAX, group=group)
    want = train_ddp(device)
    check(train_ddp(device, process_group=group), want)


def lost(device, session):
    """Whoever is left gets an error that names the lost one, and is not held up by its GPU."""
    ddp = DistributedDataParallel(mlp(width=WIDTH).to(device), bucket_cap_mb=1)
    hook = hvd.ddp_comm_hook(session)
    ddp.register_comm_hook(None, hook)
    try:
        for step in range(1000):
            busy(device)
            if step == 3 and session.rank == 1:
                os._exit(0)
            loss_of(ddp, device, session.rank, step).backward()
        hook.synchronize()
    except (RuntimeError, tally.TallyError) as error:
        assert "EWORKERLOST" in str(error) and "rank 1 on machine" in str(error), error
        print("heard that rank 1 is lost", flush=True)
        os._exit(0)
    raise AssertionError("nobody has said that rank 1 is lost")


def main():
    if "--sees" in sys.argv[1:]:
        sys.exit(sees())
    device = choose()
    rig.start_gloo("gloo-cuda")
    session = tally.Session()
    hvd.init(session)
    if "lost" in sys.argv[1:]:
        lost(device, session)
    for view in (False, True):
        check(train_ddp(device, session, gradient_as_bucket_view=view),
              train_ddp(device, gradient_as_bucket_view=view))
    want = reference(device)
    for flat, cross in ((False, False), (True, False), (False, True)):
        check(train_optimizer(device, flat=flat, cross=cross), want)
    calls(device)
    if hasattr(dist.Backend, "default_device_backend_map"):
        process_group(device)
    rig.meet()
    hvd.shutdown()
    dist.destroy_process_group()
    print("all well")


main()

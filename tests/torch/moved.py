# SPDX-License-Identifier: Apache-2.0
"""Scripts that moved by changing their import, run as every rank.

The calls are those of the example scripts of Horovod and BytePS for PyTorch, in their
order and with their keywords; only models and data are small.  Their values are checked.
"""

import inspect
import math

import rig
import torch
from rig import batch, loss_of, mlp, parameters, raises, same_on_all_ranks
from torch import nn

import tally.torch as bps
import tally.torch as hvd


def trained(model, steps, lr, passes=1, momentum=0.0):
    """The model as one process trains it that has all ranks' data, means throughout."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
    for step in range(steps):
        optimizer.zero_grad()
        for turn in range(passes):
            for rank in range(hvd.size()):
                (loss_of(model, rank, step * passes + turn) / hvd.size()).backward()
        optimizer.step()
    return parameters(model)


def near(got, want):
    same_on_all_ranks(got)
    assert torch.allclose(got, want, rtol=1e-4, atol=1e-5), (got - want).abs().max()


def horovod_mnist():
    use_adasum, predivide = False, 2.0
    model = mlp(seed=7 + hvd.rank())
    lr_scaler = hvd.size() if not use_adasum else 1
    if use_adasum and hvd.nccl_built():
        lr_scaler = hvd.local_size()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02 * lr_scaler, momentum=0.5)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(), compression=hvd.Compression.none,
        op=hvd.Adasum if use_adasum else hvd.Average, gradient_predivide_factor=predivide)
    for step in range(4):
        optimizer.zero_grad()
        loss_of(model, hvd.rank(), step).backward()
        if step % 2:  # as with mixed precision
            optimizer.synchronize()
            with optimizer.skip_synchronize():
                optimizer.step()
        else:
            optimizer.step()
    near(parameters(model), trained(mlp(), 4, 0.02 * hvd.size(), momentum=0.5))

    def metric_average(value, name):
        return hvd.allreduce(torch.tensor(value), name=name).item()

    assert math.isclose(metric_average(0.5 + hvd.rank(), "avg_loss"), hvd.size() / 2, rel_tol=1e-6)
    assert math.isclose(metric_average(torch.tensor(2.0), "avg_accuracy"), 2.0)
    optimizer.close()


def horovod_synthetic_benchmark():
    model = mlp(seed=hvd.rank())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size())
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(), compression=hvd.Compression.fp16,
        op=hvd.Average, num_groups=2)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    for step in range(3):
        optimizer.zero_grad()
        loss_of(model, hvd.rank(), step).backward()
        optimizer.step()
    got = parameters(model)
    same_on_all_ranks(got)
    assert torch.allclose(got, trained(mlp(seed=0), 3, 0.01 * hvd.size()), rtol=0.02, atol=0.005)
    optimizer.close()


class Metric:
    """Horovod's example's."""

    def __init__(self, name):
        self.name, self.sum, self.n = name, torch.tensor(0.0), torch.tensor(0.0)

    def update(self, value):
        self.sum += hvd.allreduce(value.detach().cpu(), name=self.name)
        self.n += 1

    @property
    def avg(self):
        return self.sum / self.n


def horovod_imagenet():
    batches, epoch = 2, 3 if hvd.rank() == 0 else 0
    epoch = hvd.broadcast(torch.tensor(epoch), root_rank=0, name="resume_from_epoch").item()
    assert epoch == 3
    model = mlp(seed=7 + hvd.rank())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(), compression=hvd.Compression.none,
        backward_passes_per_step=batches, op=hvd.Average, gradient_predivide_factor=1.0)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    metric, losses = Metric("train_loss"), []
    for step in range(3):
        for group in optimizer.param_groups:
            group["lr"] = 0.05
        optimizer.zero_grad()
        for turn in range(batches):
            loss = loss_of(model, hvd.rank(), step * batches + turn)
            metric.update(loss)
            losses.append(loss.item())
            loss.div_(batches)
            loss.backward()
        optimizer.step()
    mean = sum(hvd.allgather(torch.tensor([sum(losses)]))) / hvd.size() / len(losses)
    assert torch.allclose(metric.avg, mean)
    # the reference does not divide by the batches, so its rate is smaller
    near(parameters(model), trained(mlp(), 3, 0.05 / batches, batches, momentum=0.9))
    optimizer.close()


def byteps_mnist():
    model = mlp(seed=7 + bps.rank())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02 * bps.size(), momentum=0.5)
    params = {"compressor": "", "ef": "", "momentum": "", "scaling": False, "k": 1,
              "partition": "linear", "normalize": "max", "seed": 42}
    optimizer = bps.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(), compression_params=params,
        pre_scale_factor=1. / bps.size(), post_scale_factor=1.)
    bps.broadcast_parameters(model.state_dict(), root_rank=0)
    bps.broadcast_optimizer_state(optimizer, root_rank=0)
    for step in range(3):
        optimizer.zero_grad()
        loss_of(model, bps.rank(), step).backward()
        optimizer.synchronize()
        with optimizer.skip_synchronize():
            optimizer.step()
    near(parameters(model), trained(mlp(), 3, 0.02 * bps.size(), momentum=0.5))

    tensor = torch.tensor(1.0 + bps.rank())
    bps.declare("avg_loss")
    total = bps.push_pull_inplace(tensor, average=False, name="avg_loss")
    assert total is tensor and total.item() == sum(range(1, bps.size() + 1))
    optimizer.close()


def byteps_benchmark():
    """With the factors that make it a sum, too."""
    for factors, lr in (({}, 0.01), ({"pre_scale_factor": 1}, 0.01 * bps.size())):
        model = mlp(seed=bps.rank())
        optimizer = bps.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.01),
            named_parameters=model.named_parameters(), compression=bps.Compression.none, **factors)
        bps.broadcast_parameters(model.state_dict(), root_rank=0)
        bps.broadcast_optimizer_state(optimizer, root_rank=0)
        for step in range(3):
            optimizer.zero_grad()
            loss_of(model, bps.rank(), step).backward()
            optimizer.step()
        near(parameters(model), trained(mlp(seed=0), 3, lr))
        optimizer.close()


def byteps_imagenet():
    model = mlp(seed=7 + bps.rank())
    optimizer = bps.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True),
        named_parameters=model.named_parameters(), compression_params={"fp16": False},
        backward_passes_per_step=2)
    bps.broadcast_parameters(model.state_dict(), root_rank=0)
    bps.broadcast_optimizer_state(optimizer, root_rank=0)
    bps.declare("acc")
    handle = bps.byteps_push_pull(torch.full((2,), 1.0 * bps.rank()), name="acc")
    assert torch.equal(bps.synchronize(handle), torch.full((2,), (bps.size() - 1) / 2))
    for step in range(2):
        optimizer.zero_grad()
        for turn in range(2):
            loss_of(model, bps.rank(), 2 * step + turn).backward()
        optimizer.step()
    same_on_all_ranks(parameters(model))
    handle = bps.byteps_push_pull(torch.tensor([1.0, 2.0]), average=False, name="acc")
    assert torch.equal(bps.synchronize(handle), torch.tensor([1.0, 2.0]) * bps.size())
    optimizer.close()


def handles_are_polled_and_awaited():
    rank, world = hvd.rank(), hvd.size()
    mine, total = torch.full((3,), 1.0 + rank), 1.0 * sum(range(1, world + 1))
    handles = [hvd.allreduce_async(mine), hvd.allreduce_async(mine, op=hvd.Sum, name="x"),
               hvd.allreduce_async(mine, False, None, None, 2.0, 0.5),
               bps.push_pull_async(mine, average=False, name="y", version=1, priority=2),
               hvd.grouped_allreduce_async([mine, mine * 2], op=hvd.Sum)]
    rig.wait_until("all are done", lambda: all(hvd.poll(h) for h in handles))
    came = [hvd.synchronize(h) for h in handles]
    assert (mine == 1.0 + rank).all()
    assert all((c == total / (1 if i else world)).all() for i, c in enumerate(came[:4]))
    assert (came[4][0] == total).all() and (came[4][1] == 2 * total).all()
    assert hvd.synchronize(handles[0]) is came[0]

    for call in (hvd.allreduce_async_, bps.push_pull_async_inplace):
        own = mine.clone()
        handle = call(own)
        assert hvd.synchronize(handle) is own and (own == total / world).all()
    own = mine.clone()
    assert hvd.synchronize(hvd.broadcast_async(own, 1)).tolist() == [2.0] * 3
    assert (own == mine).all()
    assert hvd.synchronize(hvd.broadcast_async_(own, 1)) is own and own.tolist() == [2.0] * 3
    rows = hvd.synchronize(hvd.allgather_async(torch.full((rank, 2), rank)))
    assert rows[:, 1].tolist() == [r for r in range(world) for _ in range(r)]
    pair = [mine.clone(), mine.clone()]
    assert hvd.grouped_allreduce_(pair, op=hvd.Sum)[1] is pair[1] and (pair[1] == total).all()

    late = hvd.allreduce_async(torch.ones(2)) if rank else None  # rank 0 comes later
    if not rank:
        rig.meet()
        late = hvd.allreduce_async(torch.ones(2))
    else:
        assert not hvd.poll(late)
        rig.meet()
    assert (hvd.synchronize(late) == 1).all()


def calls_take_what_horovods_take():
    rank, world = hvd.rank(), hvd.size()
    total = 1.0 * sum(range(1, world + 1))
    mine = torch.tensor([1.0 + rank])
    assert list(inspect.signature(hvd.allreduce).parameters) == [
        "tensor", "average", "name", "compression", "op", "prescale_factor", "postscale_factor"]
    assert hvd.allreduce(mine, False, "n", hvd.Compression.fp16).item() == total
    assert hvd.allreduce(mine, None, None, hvd.Compression.bf16, hvd.Sum, 2.0, 0.25).item() == (
        total / 2)
    assert hvd.allreduce(mine, compression=hvd.Compression.fp16).dtype == torch.float32
    assert bps.push_pull(mine, average=False, name="n").item() == total
    assert bps.push_pull(mine, name="n", compression=bps.Compression.fp16).item() == total / world
    both = hvd.grouped_allreduce([mine, torch.tensor([rank])], op=hvd.Sum)
    assert both[0].item() == total and both[1].item() == total - world
    assert hvd.allgather_object({"rank": rank, "x": "y" * rank}) == [
        {"rank": r, "x": "y" * r} for r in range(world)]
    assert hvd.cross_size() == 2 and hvd.cross_rank() in (0, 1)
    places = hvd.allgather_object((hvd.cross_rank(), hvd.local_rank()))
    assert len(set(places)) == world
    assert not any((hvd.nccl_built(), hvd.mpi_built(), hvd.gloo_built(), hvd.mpi_enabled(),
                    hvd.mpi_threads_supported()))


def gradients_go_through_calls():
    rank, world = hvd.rank(), hvd.size()

    def gradient(function, *shape):
        x = torch.ones(*shape, requires_grad=True)
        y = function(x)
        (y * (rank + 1)).sum().backward()
        return x.grad

    mean = (world + 1) / 2
    assert (gradient(hvd.allreduce, 3) == mean).all()
    assert (gradient(lambda x: hvd.allreduce(x, op=hvd.Sum), 3) == mean * world).all()
    assert (gradient(lambda x: bps.push_pull(x, name="n"), 3) == mean).all()
    assert (gradient(lambda x: hvd.grouped_allreduce([x, x])[1], 3) == mean).all()
    assert (gradient(lambda x: hvd.broadcast(x, 1), 3) == (mean if rank == 1 else 0)).all()
    got = gradient(hvd.allgather, rank + 1, 2)
    assert got.shape == (rank + 1, 2) and (got == mean).all()


def batches_are_normalized_together():
    """As one process normalizes the batches of all ranks, which have other sizes."""
    def make(norm):
        torch.manual_seed(9)
        return nn.Sequential(nn.Linear(33, 12), nn.Unflatten(1, (3, 4)), norm(3, momentum=0.2),
                             nn.Flatten(), nn.Tanh(), nn.Linear(12, 5))

    def loss(model, ranks, step):
        data = [batch(r, step, rows=3 + 2 * r) for r in ranks]
        x, y = (torch.cat(parts) for parts in zip(*data))
        return nn.functional.cross_entropy(model(x * 3 + 1), y, reduction="sum") / 50

    ranks = range(hvd.size())
    got, want = make(hvd.SyncBatchNorm), make(nn.BatchNorm1d)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(got.parameters(), lr=0.1),
                                         got.named_parameters(), op=hvd.Sum)
    alone = torch.optim.SGD(want.parameters(), lr=0.1)
    for step in range(4):
        optimizer.zero_grad()
        loss(got, [hvd.rank()], step).backward()
        optimizer.step()
        alone.zero_grad()
        loss(want, ranks, step).backward()
        alone.step()
    near(parameters(got), parameters(want))
    for name, value in want[2].state_dict().items():
        assert torch.allclose(got[2].state_dict()[name], value, rtol=1e-4, atol=1e-5), name
    got.eval(), want.eval()
    x, _ = batch(0, 9)
    assert torch.allclose(got(x), want(x), rtol=1e-4, atol=1e-5)
    half = hvd.SyncBatchNorm(3, affine=False, track_running_stats=False)
    x = torch.randn(4, 3, 2, 2, generator=torch.Generator().manual_seed(hvd.rank()))
    everything = hvd.allgather(x)
    plain = nn.BatchNorm2d(3, affine=False, track_running_stats=False)(everything)
    mine = plain[4 * hvd.rank(): 4 * hvd.rank() + 4]
    assert half(x.bfloat16()).dtype == torch.bfloat16
    assert torch.allclose(half(x), mine, rtol=1e-4, atol=1e-5)
    raises(ValueError, "at least two dimensions", half, torch.ones(3))
    optimizer.close()


def what_is_not_there_says_so():
    model = mlp()
    plain = torch.optim.SGD(model.parameters(), lr=0.1)

    def wrapped(**options):
        return lambda: hvd.DistributedOptimizer(plain, model.named_parameters(), **options)

    one = torch.ones(2)
    for op in (hvd.Min, hvd.Max, hvd.Product, hvd.Adasum):
        raises(ValueError, "there are Average and Sum", lambda: hvd.allreduce(one, op=op))
        raises(ValueError, "there are Average and Sum", lambda: hvd.allreduce_async_(one, op=op))
        raises(ValueError, "there are Average and Sum", wrapped(op=op))
    raises(ValueError, "op alone", lambda: hvd.allreduce(one, average=True, op=hvd.Sum))
    raises(ValueError, "there are Compression.none",
           lambda: hvd.allreduce(one, compression=nn.Identity))
    raises(ValueError, "there are Compression.none", wrapped(compression=nn.Identity))
    raises(ValueError, "op=Average only", wrapped(gradient_predivide_factor=2.0, op=hvd.Sum))
    raises(ValueError, "no process sets", wrapped(process_set=[0, 1]))
    raises(ValueError, "compressor 'onebit'", wrapped(compression_params={"compressor": "onebit"}))
    raises(ValueError, "only to 16 bits", lambda: bps.declare("x", byteps_compressor_type="topk"))
    raises(NotImplementedError, "on_loss='shrink'.*but without gathers", bps.suspend)
    raises(NotImplementedError, "init\\(tally.Session", bps.resume, 2, 1, 0)
    raises(NotImplementedError, "ddp_comm_hook", bps.DistributedDataParallel, model)


def main():
    rig.start_gloo()
    hvd.init()
    for story in (
        horovod_mnist,
        horovod_synthetic_benchmark,
        horovod_imagenet,
        byteps_mnist,
        byteps_benchmark,
        byteps_imagenet,
        handles_are_polled_and_awaited,
        calls_take_what_horovods_take,
        gradients_go_through_calls,
        batches_are_normalized_together,
        what_is_not_there_says_so,
    ):
        story()
        rig.meet()
        print(f"rank {hvd.rank()}: {story.__name__}", flush=True)
    hvd.shutdown()
    torch.distributed.destroy_process_group()
    print("all well")


main()

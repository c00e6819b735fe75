# SPDX-License-Identifier: Apache-2.0
"""Calls on tensors, arrays and numbers, run as every rank: factors, types, and batch norms."""

import itertools

import numpy as np
import rig
import torch
import torch.distributed as dist
from rig import raises, same_on_all_ranks
from torch import nn

import tally
import tally.torch as hvd

OLD = torch.__version__.startswith("1.")  # batch norms of float16 on the CPU are not there
HALF = torch.float16, torch.bfloat16


def as_horovod(values, op, before, after):
    """What Horovod gives for all ranks' values, of whole numbers cut towards zero."""
    whole = not values[0].is_floating_point()

    def scaled(x, factor):
        return (x * factor).trunc() if whole else x * factor

    total = sum(scaled(v.double(), before) for v in values)
    return scaled(total, after / (len(values) if op == hvd.Average else 1))


def factors_are_horovods():
    world, rank = hvd.size(), hvd.rank()
    pairs = ((0.5, 1.0), (1.0, 3.0), (1 / world, 1.0), (1.0, 1 / world), (0.25, world), (-2.0, 0.3),
             (0.0, 1.0))
    for dtype in (torch.float32, torch.float64, *HALF, torch.int32, torch.int64):
        rough = {torch.float16: 2e-3, torch.bfloat16: 2e-2}.get(dtype, 1e-6)
        values = [(torch.arange(1, 8) * (r + 3)).to(dtype) for r in range(world)]
        for op, (before, after) in itertools.product((hvd.Average, hvd.Sum), pairs):
            got = hvd.allreduce(values[rank], op=op, prescale_factor=before, postscale_factor=after)
            want = as_horovod(values, op, before, after)
            assert got.dtype == dtype
            assert torch.allclose(got.double(), want, rtol=rough), (dtype, op, before, after, got,
                                                                    want)
            same = values[rank].clone()
            assert hvd.allreduce_(same, op=op, prescale_factor=before,
                                  postscale_factor=after) is same
            assert torch.equal(same, got)
    x = torch.tensor([2.0], requires_grad=True)
    hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0).sum().backward()
    assert x.grad.item() == 1.5 * world
    raises(ValueError, "prescale_factor is 'a'; it is a number",
           lambda: hvd.allreduce(x, prescale_factor="a"))
    raises(tally.TallyError, "EMISMATCH.*factors", lambda: hvd.allreduce(
        torch.ones(31), name="factors", prescale_factor=1 + (rank == 1)))


def what_can_be_finite_is():
    """The mean of large numbers, whatever their sum, with factors that give it."""
    world = hvd.size()
    for dtype, value in zip(HALF, (60000.0, 3e38)):
        x = torch.full((5,), value, dtype=dtype)
        for op, before, after in ((hvd.Sum, 1 / world, 1.0), (hvd.Sum, 1.0, 1 / world),
                                  (hvd.Average, 1.0, 1.0), (hvd.Average, world, 1 / world),
                                  (hvd.Average, 1 / world, world), (hvd.Average, 0.5, 2.0)):
            got = hvd.allreduce(x, op=op, prescale_factor=before, postscale_factor=after)
            assert torch.allclose(got, x, rtol=1e-2), (dtype, op, before, after, got)
    wide = torch.full((5,), 3e38)
    got = hvd.allreduce(wide, prescale_factor=1 / world, postscale_factor=world)
    assert torch.allclose(got, wide)


def an_optimizers_factors_are_horovods_and_bytepss():
    """Gradients are divided before they are summed; of 16-bit types the mean is finite."""
    world, rank = hvd.size(), hvd.rank()

    def step(value, **options):
        p = nn.Parameter(torch.zeros(4))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p], lr=1.0), **options)
        for _ in range(2):  # in its own memory, then in the arena
            optimizer.zero_grad(set_to_none=False)
            (p * value).sum().backward()
            optimizer.step()
        optimizer.close()
        return -p.grad.neg()

    for flat in (float(world), 0.5, 3.0):
        got = step(float(rank + 1), gradient_predivide_factor=flat)
        assert torch.allclose(got, torch.full((4,), (world + 1) / 2)), got
    assert torch.isinf(step(3e38)).all()  # as everywhere: its sum is
    assert torch.allclose(step(3e38, gradient_predivide_factor=float(world)), torch.tensor(3e38))
    for factor in (1.0, 0.5, float(world)):
        got = step(60000.0, gradient_predivide_factor=factor, compression=hvd.Compression.fp16)
        assert (got == 60000).all(), got
    for before, after, total in ((1 / world, 1, 1), (1, 1, world), (0.5, 3, 1.5 * world)):
        for squeeze in hvd.Compression.none, hvd.Compression.fp16:
            got = step(8.0, pre_scale_factor=before, post_scale_factor=after, compression=squeeze)
            assert torch.allclose(got, torch.tensor(8.0 * total)), (before, after, got)
    p = nn.Parameter(torch.zeros(1))
    sgd = torch.optim.SGD([p], lr=1.0)
    raises(ValueError, "goes with op=Average only", lambda: hvd.DistributedOptimizer(
        sgd, op=hvd.Sum, gradient_predivide_factor=2.0))
    raises(ValueError, "gradients are divided by it", lambda: hvd.DistributedOptimizer(
        sgd, gradient_predivide_factor=0))
    raises(tally.TallyError, "EMISMATCH.* with factors", lambda: hvd.DistributedOptimizer(
        sgd, gradient_predivide_factor=1.0 + rank))


def arrays_and_numbers_are_taken():
    world, rank = hvd.size(), hvd.rank()
    total, mean = sum(range(world)), (world - 1) / 2
    assert hvd.allreduce(float(rank)) == mean and hvd.allreduce(0.1).item() == 0.1
    assert hvd.allreduce(rank, op=hvd.Sum) == total
    assert hvd.allreduce(np.float32(rank)) == mean and hvd.allreduce(np.int64(7)) == 7
    for array in (np.full((2, 3), rank, np.float64), np.full((6, 4), rank, np.float32)[::-2, 1:],
                  np.asfortranarray(np.full((2, 3), rank, np.float16)),
                  np.full(3, rank, ">f4"), np.array(float(rank))):
        kept = array.copy()
        got = hvd.allreduce(array)
        assert got.shape == array.shape and (got == mean).all() and (array == kept).all()
        assert (hvd.allgather(array).reshape(world, -1)
                == torch.arange(world).reshape(-1, 1)).all()
        assert (hvd.broadcast(array, 1) == 1).all() and (array == kept).all()
        assert (hvd.synchronize(hvd.allreduce_async(array, op=hvd.Sum)) == total).all()
    here = np.full((3, 4), float(rank)).T
    assert hvd.allreduce_(here) is here and (here == mean).all()
    here[:] = rank
    assert hvd.broadcast_(here, 1) is here and (here == 1).all()
    got = hvd.grouped_allreduce([float(rank), np.full(2, rank), torch.tensor(1.0)], op=hvd.Sum)
    assert [g.reshape(-1)[0].item() for g in got] == [total, total, world]
    assert hvd.allgather(float(rank)).tolist() == list(range(world))
    assert hvd.allgather(np.full((rank, 2), rank)).shape == (total, 2)
    assert hvd.broadcast(rank + 0.5, 1) == 1.5 and hvd.broadcast(True, 0).item() is True
    assert (hvd.push_pull(np.full(3, rank), average=False) == total).all()
    for thing in (3.5, 7, np.float32(2.5), np.arange(5), "text", None, [1, np.ones(2)]):
        got = hvd.broadcast_object(thing if rank == 1 else "other", 1)
        assert type(got) is type(thing) and repr(got) == repr(thing)
        assert repr(hvd.allgather_object(thing)) == repr([thing] * world)
    state = {"w": np.full(3, float(rank))}
    hvd.broadcast_parameters(state)
    assert (state["w"] == 0).all()


def what_cannot_be_taken_is_said_in_a_line():
    read_only = np.ones(3)
    read_only.flags.writeable = False
    for kind, text, call in (
        (ValueError, "torch.bool; those that can be summed: torch.float32", lambda: hvd.allreduce(
            torch.ones(2).bool())),
        (ValueError, "those that can be summed", lambda: hvd.allreduce(True)),
        (ValueError, "complex.*; those that can be summed", lambda: hvd.allreduce(1j)),
        (ValueError, "complex.*; those that can be summed", lambda: hvd.allreduce_(
            torch.ones(2, dtype=torch.cfloat), prescale_factor=0.5)),
        (TypeError, "a str is no tensor, array or number", lambda: hvd.allreduce("x")),
        (TypeError, "a list is no tensor, array or number", lambda: hvd.allgather([1, 2])),
        (TypeError, "a NoneType is no tensor", lambda: hvd.broadcast(None, 0)),
        (TypeError, "an array of object: ", lambda: hvd.allreduce(np.array([None]))),
        (TypeError, "an array of <U1: ", lambda: hvd.broadcast(np.array(["a"]), 0)),
        (TypeError, "a float cannot be changed in place", lambda: hvd.allreduce_(1.0)),
        (ValueError, "read-only", lambda: hvd.broadcast_(read_only, 0)),
        (ValueError, "op is 'min'; there are Average and Sum", lambda: hvd.allreduce(
            torch.ones(2), op=hvd.Min)),
        (ValueError, "is sparse: make it dense", lambda: hvd.allreduce(torch.eye(2).to_sparse())),
        (ValueError, "is on meta", lambda: hvd.allreduce(torch.ones(2, device="meta"))),
        (ValueError, "no rank 99", lambda: hvd.broadcast(torch.ones(2), 99)),
        (AttributeError, "tally.torch has no alltoall", lambda: hvd.alltoall),
        (AttributeError, "tally.torch has no reducescatter", lambda: hvd.reducescatter),
    ):
        text = raises(kind, text, call)
        assert "\n" not in text, text
    assert not hasattr(hvd, "join") and hvd.allreduce(torch.ones(2)).sum() == 2  # all goes on


def parts(sizes, shape, dtype):
    """The batches of all ranks."""
    return [(torch.randn(n, *shape, generator=torch.Generator().manual_seed(r)) * 3 + 2).to(dtype)
            for r, n in enumerate(sizes)]


def normalized(norm, x, cube):
    """What comes out, and the gradients of the input and of the parameters."""
    x = x.clone().requires_grad_()
    y = norm(x)
    weight = torch.arange(1.0, cube + 1).reshape(1, *x.shape[1:]).to(y.dtype)
    (y.pow(3) * weight / cube).sum().backward()
    return [y.detach(), x.grad, *[p.grad for p in norm.parameters()]]


def a_batch_norm_is_that_of_the_whole_batch():
    """With other sizes on other ranks, of any kind and type: as torch's in one process."""
    rank, world = hvd.rank(), hvd.size()
    kinds = ({}, {"momentum": None}, {"momentum": 0.7, "eps": 0.1}, {"affine": False},
             {"track_running_stats": False}, {"affine": False, "track_running_stats": False})
    shapes = ((4,), (1,), (4, 3), (3, 2, 5), (2, 2, 1, 2))
    all_sizes = ([1, 2, 5, 3], [1] * world, [3, 0, 2, 4], [0, 2, 0, 0], [6] * world)
    for dtype in (torch.float32, torch.float64, *HALF):
        rough = 2e-2 if dtype == torch.float16 else 2e-1 if dtype == torch.bfloat16 else 1e-3
        for number, (kind, shape) in enumerate(itertools.product(kinds, shapes)):
            sizes = all_sizes[(number + number // 5) % 5]
            norm = hvd.SyncBatchNorm(shape[0], **kind).to(dtype)
            alone = nn.modules.batchnorm._BatchNorm(shape[0], **kind).double()
            alone._check_input_dim = lambda x: None
            first = sum(sizes[:rank])
            cube = torch.Size(shape).numel()
            for turn in range(2 if OLD and dtype == torch.float16 else 3):
                for module in norm, alone:
                    module.zero_grad(set_to_none=True)
                    module.train(turn < 2)
                batches = parts(sizes, shape, dtype)
                got = normalized(norm, batches[rank], cube)
                want = normalized(alone, torch.cat(batches).double(), cube)
                mine = [w[first:first + sizes[rank]] for w in want[:2]]
                for g, w in zip(got[:2], mine):
                    assert g.dtype == dtype
                    assert torch.allclose(g.double(), w, rtol=rough, atol=rough), (
                        dtype, kind, shape, sizes, turn, g, w)
                for g, w in zip(got[2:], want[2:]):
                    total = hvd.allreduce(g.double(), op=hvd.Sum)
                    assert torch.allclose(total, w, rtol=rough, atol=rough * (1 + w.abs().max())), (
                        dtype, kind, shape, sizes, turn, total, w)
                for name, value in alone.named_buffers():
                    its = dict(norm.named_buffers())[name]
                    assert torch.allclose(its.double(), value.double(), rtol=rough, atol=rough)


def a_batch_norm_of_one_row_is_an_error():
    """In all ranks together, as torch's; of none it changes nothing; statistics stay."""
    rank = hvd.rank()
    norm = hvd.SyncBatchNorm(4)
    for sizes in ([1, 0, 0, 0], [0, 0, 1, 0]):
        raises(ValueError, "Expected more than 1 value per channel when training", norm,
               torch.ones(sizes[rank], 4))
    assert norm(torch.ones(0, 4)).shape == (0, 4)
    assert (norm.running_mean == 0).all() and (norm.running_var == 1).all()
    y = norm(torch.ones(int(rank == 2), 4, 2).requires_grad_())  # two values per channel
    y.sum().backward()
    assert torch.isfinite(norm.running_var).all()
    raises(ValueError, "4 channels got an input of 3", norm, torch.ones(2, 3))
    raises(ValueError, "1 channels got an input of 3", hvd.SyncBatchNorm(1), torch.ones(2, 3))
    raises(ValueError, "at least two dimensions", norm, torch.ones(4))
    same_on_all_ranks(norm.running_var)


def main():
    rig.start_gloo()
    hvd.init()
    for story in (
        factors_are_horovods,
        what_can_be_finite_is,
        an_optimizers_factors_are_horovods_and_bytepss,
        arrays_and_numbers_are_taken,
        what_cannot_be_taken_is_said_in_a_line,
        a_batch_norm_is_that_of_the_whole_batch,
        a_batch_norm_of_one_row_is_an_error,
    ):
        story()
        rig.meet()
        print(f"rank {hvd.rank()}: {story.__name__}", flush=True)
    hvd.shutdown()
    dist.destroy_process_group()
    print("all well")


main()

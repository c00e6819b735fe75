# SPDX-License-Identifier: Apache-2.0
"""The process group "tally", run by torchrun or as every rank: c10d's calls and plain DDP; with
the argument "gpu" on the GPU that tests/gpu plays."""

import contextlib
import datetime
import os
import signal
import sys
import threading
import time

import rig
import torch
import torch.distributed as dist
from rig import loss_of, mlp, parameters, raises, wait_until
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
    raises((ValueError, RuntimeError), "has no .*BXOR", dist.all_reduce,
           torch.ones(1, dtype=torch.int32), dist.ReduceOp.BXOR)
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


def callbacks_may_call(rank, world):
    """What is chained to a call may wait for another one."""
    t = torch.ones(3)

    def then(_):
        dist.all_reduce(t)
        return t

    for _ in range(2):
        t.fill_(1)
        work = dist.all_reduce(torch.ones(5), async_op=True)
        assert (work.get_future().then(then).wait() == world).all()


def what_does_not_fit_is_refused(rank, world):
    """Before anything is sent, and in words."""
    one, few, many = torch.ones(1), [torch.ones(1)], [torch.ones(1)] * (world + 1)
    raises(ValueError, "float64.* cannot receive torch.int64", dist.all_gather_into_tensor,
           torch.empty(world, dtype=torch.float64), torch.tensor([rank]))
    raises(ValueError, f"1 tensors to receive those of {world} ranks", dist.all_gather, few, one)
    for parts in (few, many, [torch.ones(2)] * world):
        raises(ValueError, f"for {world} ranks that want .*(1,)", dist.reduce_scatter, one, parts)
        if rank == 0:
            raises(ValueError, f"for {world} ranks that want", dist.scatter, one, parts)
    for call in (lambda: dist.send(one, 1 - rank), lambda: dist.recv(one, 1 - rank),
                 lambda: dist.all_to_all_single(torch.ones(world), torch.ones(world))):
        raises(NotImplementedError, "process group tally has no .*gloo", call)


def torchs_functions_find_the_group(rank, world):
    import torch.distributed._functional_collectives as functions

    t, group = torch.full((world,), float(rank)), dist.group.WORLD
    total = float(sum(range(world)))
    assert (functions.all_reduce(t, "sum", group) == total).all()
    want = torch.arange(float(world)).repeat_interleave(world)
    assert torch.equal(functions.all_gather_tensor(t, 0, group) + 0, want)
    assert torch.equal(functions.reduce_scatter_tensor(t, "sum", 0, group) + 0,
                       torch.tensor([total]))


def a_group_ends_when_it_is_destroyed(rank, world):
    before = set(threading.enumerate())
    group = dist.new_group()
    dist.all_reduce(torch.ones(3), group=group)
    jobs = len(rig.ask("jobs"))
    dist.barrier()
    dist.destroy_process_group(group)
    del group
    wait_until("its thread is gone", lambda: not set(threading.enumerate()) - before)
    wait_until("its job is gone", lambda: len(rig.ask("jobs")) < jobs)
    dist.barrier()


def autograd_is_left_out(rank, world):
    mine = torch.nn.Parameter(torch.full((2,), float(rank)))
    dist.all_reduce(mine, dist.ReduceOp.MAX)
    assert (mine == world - 1).all() and mine.is_leaf
    out = torch.zeros(2)
    dist.reduce_scatter(out, [torch.ones(2, requires_grad=True)] * world)
    assert (out == world).all() and not out.requires_grad
    out = torch.nn.Parameter(torch.zeros(2))
    dist.scatter(out, [torch.nn.Parameter(torch.ones(2))] * world if rank == 0 else None)
    assert (out == 1).all() and out.is_leaf


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


def another_shape_is_told(rank):
    """Also where one rank, or both, have used their shape before, and so declare nothing."""
    sides = r"\AEMISMATCH: rank {}: call \d+ of this group: rank . .* has {}, rank . .* has {}"
    a, b = r"all_reduce \(sum\) of float32\[10\]", r"all_reduce \(sum\) of float32\[11\]"
    one = torch.ones(10 + rank)
    for used in ((10,), (10, 11), ()):
        group = dist.new_group(timeout=datetime.timedelta(seconds=60))
        for count in used:
            dist.all_reduce(torch.ones(count), group=group)
        want = f"{sides.format(rank, a, b)}|{sides.format(rank, b, a)}"
        begin = time.monotonic()
        raises(RuntimeError, want, dist.all_reduce, one, dist.ReduceOp.SUM, group)
        assert time.monotonic() - begin < 50, "by the deadline, not at once"
    group = dist.new_group(timeout=datetime.timedelta(seconds=60))
    dist.all_reduce(torch.ones(4), group=group)
    dist.broadcast(torch.ones(4), 0, group=group)

    def call():
        if rank:
            dist.broadcast(torch.ones(4), 0, group=group)
        else:
            dist.all_reduce(torch.ones(4), group=group)

    want = r"EMISMATCH: .* has (all_reduce|broadcast from rank 0) .* has (broadcast|all_reduce)"
    raises(RuntimeError, want, call)
    dist.barrier()


def work_that_waits_says_for_whom(rank):
    """A timeout given to wait() has the text of the round's own."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=60))
    dist.all_reduce(torch.ones(4), group=group)
    if rank == 0:
        work = dist.all_reduce(torch.ones(4), group=group, async_op=True)
        raises(RuntimeError, r"not done after 1 s: .*all_reduce.*rank 1", work.wait,
               datetime.timedelta(seconds=1))
    dist.barrier()
    if rank:
        work = dist.all_reduce(torch.ones(4), group=group, async_op=True)
    work.wait()


def ctrl_c_is_heard(rank):
    """While another rank is waited for, which comes only then."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        work = dist.barrier(async_op=True)
        try:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            work.wait()
        except KeyboardInterrupt:
            assert not work.is_completed()
            store.set("heard", "yes")
        else:
            raise AssertionError("Ctrl-C was not heard")
        return
    if rank == 1:
        with contextlib.suppress(RuntimeError):  # not heard: rank 0 says so
            store.wait(["heard"], datetime.timedelta(seconds=20))
    dist.barrier()


def a_stuck_rank_is_named(rank):
    quick = dist.new_group(timeout=datetime.timedelta(seconds=4))
    t = torch.ones(10)
    dist.all_reduce(t, group=quick)
    if rank == 0:
        work = dist.all_reduce(t, group=quick, async_op=True)
        raises(RuntimeError, "not done after 1 s", work.wait, datetime.timedelta(seconds=1))
        raises(RuntimeError, "rank 0: .*not done after 4 s.*waits for .*(rank 1|agent-1)",
               work.wait)
    dist.barrier()


def main():
    if "gpu" in sys.argv[1:]:
        import double

        double.play()
    options = {}
    if "MASTER_ADDR" not in os.environ:  # not torchrun
        rank, world = (int(os.environ[f"TALLY_{x}"]) for x in ("RANK", "WORLD_SIZE"))
        store = dist.FileStore(f"{os.environ['RIG_DIR']}/group", world)
        options = dict(store=store, rank=rank, world_size=world)
    dist.init_process_group("tally", **options)
    rank, world = dist.get_rank(), dist.get_world_size()
    calls(rank, world)
    callbacks_may_call(rank, world)
    what_does_not_fit_is_refused(rank, world)
    torchs_functions_find_the_group(rank, world)
    a_group_ends_when_it_is_destroyed(rank, world)
    autograd_is_left_out(rank, world)
    groups_are_jobs(rank, world)
    ddp_trains(rank, world)
    another_shape_is_told(rank)
    work_that_waits_says_for_whom(rank)
    ctrl_c_is_heard(rank)
    a_stuck_rank_is_named(rank)
    dist.destroy_process_group()
    dist.init_process_group("tally", **options)  # in the same store
    dist.barrier()
    dist.destroy_process_group()
    print("all well")


main()

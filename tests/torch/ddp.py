# SPDX-License-Identifier: Apache-2.0
"""The DDP hook, run as every rank: means as Gloo's, in every type, in or out of place."""

import gc
import os
import threading
from unittest import mock

import rig
import torch
import torch.distributed as dist
from rig import loss_of, mlp, parameters, raises, same_on_all_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tally
import tally.torch


def train(rank, session, steps=4, lossy=loss_of, model=None, **options):
    """The model after some steps; by Gloo without a session."""
    model = model or mlp()
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.01, **options)
    hook = tally.torch.ddp_comm_hook(session) if session else None
    if hook:
        ddp.register_comm_hook(None, hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.2, momentum=0.9)
    for step in range(steps):
        # both ways of clearing: gradients made anew, and gradients that stay
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        lossy(ddp, rank, step).backward()
        optimizer.step()
    if session:
        in_arena = all(rig.is_in_arena(p.grad) for p in model.parameters() if p.requires_grad)
        hook.close()
        assert not any(rig.is_in_arena(p.grad) for p in model.parameters())
        return model, in_arena
    return model


def close_to(got, want):
    return torch.allclose(parameters(got), parameters(want), rtol=1e-5, atol=1e-6)


def means_are_those_of_gloo(session):
    for view in (False, True):
        want = train(session.rank, None, gradient_as_bucket_view=view)
        got, in_arena = train(session.rank, session, gradient_as_bucket_view=view)
        same_on_all_ranks(parameters(got))
        assert close_to(got, want)
        assert not close_to(got, mlp()), "nothing was learned"
        assert in_arena == view, "buckets that are views live in the arena, others do not"


class Product(nn.Module):
    """One layer that every type can do on a CPU."""

    def __init__(self, dtype):
        super().__init__()
        torch.manual_seed(1)
        self.weight = nn.Parameter(torch.randn(1001).to(dtype))
        self.bias = nn.Parameter(torch.randn(3, 5).to(dtype))

    def forward(self, x):
        return (self.weight.float() * x).sum() + (self.bias.float() * x[:15].view(3, 5)).sum()


def every_type_is_rounded_once(session):
    """One rank per machine: the mean of two is made in float32 and rounded once."""
    inputs = [torch.randn(1001, generator=torch.Generator().manual_seed(r)) for r in (0, 1)]
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        with mock.patch("torch.nn.parallel.distributed._sync_module_states"):
            # Gloo of torch 1.13 cannot broadcast bfloat16; the ranks' seeds are equal
            ddp = DistributedDataParallel(Product(dtype), gradient_as_bucket_view=True)
        hook = tally.torch.ddp_comm_hook(session)
        ddp.register_comm_hook(None, hook)
        wide = torch.promote_types(dtype, torch.float32)
        want = (inputs[0].to(dtype).to(wide) + inputs[1].to(dtype).to(wide)) / 2
        for _ in range(4):
            ddp.zero_grad(set_to_none=False)
            ddp(inputs[session.rank]).backward()
            got = ddp.module.weight.grad
            assert got.dtype == dtype and torch.equal(got, want.to(dtype)), dtype
            assert torch.equal(ddp.module.bias.grad.reshape(-1), want[:15].to(dtype)), dtype
        hook.close()


def autocast_changes_no_type(session):
    def loss(model, rank, step):
        with torch.autocast("cpu", torch.bfloat16):
            x, y = rig.batch(rank, step)
            return nn.functional.cross_entropy(model(x).float(), y)

    want = train(session.rank, None, lossy=loss)
    got, _ = train(session.rank, session, lossy=loss)
    same_on_all_ranks(parameters(got))
    assert close_to(got, want)


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.first, self.odd, self.even = nn.Linear(33, 9), nn.Linear(9, 5), nn.Linear(9, 5)

    def forward(self, x, odd):
        return (self.odd if odd else self.even)(self.first(x))


def parameters_may_be_unused(session):
    def loss(model, rank, step):
        x, y = rig.batch(rank, step)
        return nn.functional.cross_entropy(model(x, odd=(rank + step) % 2), y)

    for view in (False, True):
        options = dict(find_unused_parameters=True, gradient_as_bucket_view=view)
        want = train(session.rank, None, 6, loss, Branches(), **options)
        got, _ = train(session.rank, session, 6, loss, Branches(), **options)
        same_on_all_ranks(parameters(got))
        assert close_to(got, want)


def unused_parameters_that_nobody_announced(session):
    """DDP's own error, on all ranks, as without a hook; then the next model trains."""
    ddp = DistributedDataParallel(Branches(), bucket_cap_mb=0.0001)
    hook = tally.torch.ddp_comm_hook(session)
    ddp.register_comm_hook(None, hook)
    x, _ = rig.batch(session.rank, 0)
    ddp(x, odd=True).sum().backward()
    raises(RuntimeError, "Expected to have finished reduction", ddp, x, True)
    hook.close()
    train(session.rank, session)


class Strided(nn.Module):
    """Parameters, and so gradients, that are not contiguous."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.turned = nn.Parameter(torch.randn(5, 32).t())
        self.conv = nn.Conv2d(3, 4, 3, padding=1).to(memory_format=torch.channels_last)
        assert not self.turned.is_contiguous() and not self.conv.weight.is_contiguous()

    def forward(self, x):
        pictures = x[:, :12].reshape(-1, 3, 2, 2)
        return x[:, :32] @ self.turned + self.conv(pictures).sum((1, 2, 3)).unsqueeze(1)


def parameters_may_have_any_strides(session):
    for view in (False, True):
        options = dict(gradient_as_bucket_view=view)
        want = train(session.rank, None, model=Strided(), **options)
        got, _ = train(session.rank, session, model=Strided(), **options)
        same_on_all_ranks(parameters(got))
        assert close_to(got, want)


def tensors_come_and_go(session):
    """What rebuilt buckets and dropped models had is given back, on the servers too."""
    epochs, empty = rig.epochs(), rig.server_memory()
    rig.meet()
    for width in (16, 1200, 24, 1200):
        train(session.rank, session, model=mlp(width=width))
    assert rig.tensors() == []

    hook = tally.torch.ddp_comm_hook(session)
    ddp = DistributedDataParallel(mlp(width=1200), bucket_cap_mb=0.01)
    ddp.register_comm_hook(None, hook)
    names = []
    for step in range(3):
        loss_of(ddp, session.rank, step).backward()
        rig.meet()
        names.append(sorted(rig.tensors()))
        rig.meet()
    assert names[0] != names[1] == names[2], names
    elements = sum(p.numel() for p in ddp.parameters())
    assert sum(count for _, count in names[2]) == elements, names[2]
    rig.wait_until("the servers have memory for it",
                   lambda: rig.server_memory() > empty + elements * 2)
    rig.meet()
    hook.close()
    assert rig.tensors() == []
    rig.memory_is_as_before(empty, epochs)


def a_hook_that_is_gone_leaves_nothing(session):
    """Gradients outlive model and hook, and would outlive the arena.  Where the exchange's thread
    is late it does not hold them.
    """
    model, keep = mlp(width=16), tally.torch._memory.Promise.keep  # one bucket
    last, go_on = threading.Event(), threading.Event()

    def keep_and_wait(promise, value, stream=None):
        late = last.is_set()
        keep(promise, value, stream)
        if late:
            go_on.wait(rig.DEADLINE_S)

    def some_steps():
        ddp = DistributedDataParallel(model, gradient_as_bucket_view=True)
        ddp.register_comm_hook(None, tally.torch.ddp_comm_hook(session))
        for step in range(4):
            ddp.zero_grad(set_to_none=False)
            loss = loss_of(ddp, session.rank, step)
            if step == 3:
                last.set()
            loss.backward()
        assert all(rig.is_in_arena(p.grad) for p in model.parameters())
        return [p.grad.clone() for p in model.parameters()]

    with mock.patch.object(tally.torch._memory.Promise, "keep", keep_and_wait):
        want = some_steps()
        gc.collect()
        inside = [rig.is_in_arena(p.grad) for p in model.parameters()]
        go_on.set()
    assert not any(inside)
    assert all(torch.equal(p.grad, w) for p, w in zip(model.parameters(), want))


def a_hook_averages_one_model(session):
    """In one backward pass of two models, or in one after the other's; until it is closed."""
    def made(hook, width=64):
        ddp = DistributedDataParallel(mlp(width=width), bucket_cap_mb=0.01)
        ddp.register_comm_hook(None, hook)
        return ddp

    def loss(*models):
        return sum(loss_of(m, session.rank, 0) for m in models)

    refused = (RuntimeError, ValueError), "this hook averages another model: make one for each"
    for width in (64, 48):  # the same buckets, or others
        hook = tally.torch.ddp_comm_hook(session)
        both = made(hook), made(hook, width)
        raises(*refused, loss(*both).backward)
        hook.close()
        for _ in range(2):
            ddp = made(hook)
            for _ in range(3):  # buckets are rebuilt after the first
                loss(ddp).backward()
            other = made(hook, width)
            raises(*refused, loss(other).backward)
            hook.close()

    pair = [made(tally.torch.ddp_comm_hook(session)) for _ in range(2)]
    for step in range(3):
        for ddp in pair:
            ddp.zero_grad()
        loss(*pair).backward()
        for a, b in zip(*(ddp.parameters() for ddp in pair)):
            assert torch.equal(a.grad, b.grad), step
        same_on_all_ranks(torch.cat([p.grad.reshape(-1) for p in pair[0].parameters()]))


def slots_are_made_while_others_are_looked_at(session):
    """By the exchange's thread: here, whenever a slot's number is compared."""
    ddp = DistributedDataParallel(mlp(), bucket_cap_mb=0.01)
    hook = tally.torch.ddp_comm_hook(session)
    ddp.register_comm_hook(None, hook)
    for step in range(2):  # after which the buckets are what they will be
        loss_of(ddp, session.rank, step).backward()
    hook.synchronize()
    slots = hook._slots

    class Number(int):
        __hash__ = int.__hash__

        def __gt__(self, other):
            slots[self + 100] = None
            return int(self) > other

    numbers = list(slots)
    for number in numbers:
        slots[Number(number)] = slots.pop(number)
    loss_of(ddp, session.rank, 2).backward()
    assert [slots.pop(number + 100) for number in numbers] == [None] * len(numbers)
    hook.close()


def what_cannot_be_summed_is_said(session):
    ddp = DistributedDataParallel(nn.Embedding(10, 3, sparse=True))
    ddp.register_comm_hook(None, tally.torch.ddp_comm_hook(session))
    loss = ddp(torch.tensor([1, 2])).sum()
    raises((RuntimeError, ValueError), "bucket 0 is sparse: make it dense", loss.backward)

    alone = [dist.new_group([r]) for r in range(session.world_size)][session.rank]
    raises(ValueError, "rank 0 of 1 in the process group, but rank . of 2 in the Tally session",
           tally.torch.ddp_comm_hook, session, alone)
    raises(tally.TallyError, "EINVAL: no time -5", tally.torch.ddp_comm_hook, session, None, -5)
    raises(tally.TallyError, "EBUSY.*works for tally.torch", session.barrier)
    check = tally.torch._memory.check_summed
    raises(ValueError, "on meta: .*tensors of the CPU and of", check,
           torch.empty(3, device="meta"), "it")
    raises(ValueError, "it has type torch.bool", check, torch.ones(3).bool(), "it")


def backward_does_not_wait_for_others(session):
    """Rank 1 begins when rank 0 has handed over all its buckets."""
    model = mlp()
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.01)
    hook, flag = tally.torch.ddp_comm_hook(session), os.path.join(os.environ["RIG_DIR"], "handed")

    def watched(state, bucket):
        future = hook(state, bucket)
        if session.rank == 0 and bucket.is_last():
            open(flag, "w").close()
        return future

    ddp.register_comm_hook(None, watched)
    loss = loss_of(ddp, session.rank, 0)
    if session.rank == 1:
        rig.wait_until("rank 0 handed its buckets over", lambda: os.path.exists(flag))
    loss.backward()
    same_on_all_ranks(torch.cat([p.grad.reshape(-1) for p in model.parameters()]))
    hook.close()


def a_stuck_rank_is_named(session):
    """The last story: the job does not survive it."""
    ddp = DistributedDataParallel(mlp())
    ddp.register_comm_hook(None, tally.torch.ddp_comm_hook(session, timeout=4))
    for step in range(2):  # after which the buckets are what they will be
        loss_of(ddp, session.rank, step).backward()
    loss = loss_of(ddp, session.rank, 2)
    if session.rank == 0:
        raises(RuntimeError, r"ETIMEDOUT: rank 0: .*tensor ddp\d+/bucket0\S* ?.*not done after 4 s"
               r".*waits for .*(rank 1|agent-1)", loss.backward)
    rig.meet()


def main():
    rig.start_gloo()
    with tally.Session() as session:
        for story in (
            means_are_those_of_gloo,
            every_type_is_rounded_once,
            autocast_changes_no_type,
            parameters_may_be_unused,
            unused_parameters_that_nobody_announced,
            parameters_may_have_any_strides,
            tensors_come_and_go,
            a_hook_that_is_gone_leaves_nothing,
            backward_does_not_wait_for_others,
            a_hook_averages_one_model,
            slots_are_made_while_others_are_looked_at,
            what_cannot_be_summed_is_said,
            a_stuck_rank_is_named,
        ):
            story(session)
            rig.meet()
            print(f"rank {session.rank}: {story.__name__}", flush=True)
    dist.destroy_process_group()
    print("all well")


main()

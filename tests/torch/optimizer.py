# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer and its companions, run as every rank: what a Horovod script does."""

import collections
import copy
import gc
import io
import math
import os
import threading
import time
import weakref
from unittest import mock

import rig
import torch
import torch.distributed as dist
from rig import batch, loss_of, mlp, parameters, raises, same_on_all_ranks
from torch import nn

import tally
import tally.torch as hvd


def reference(steps, world, make=mlp, lr=0.2, passes=1, skip=lambda rank, step: False,
              optimizer=torch.optim.SGD, op=hvd.Average, lossy=loss_of):
    """One process that sums the gradients of all ranks itself."""
    model = make()
    opt = optimizer(model.parameters(), lr=lr)
    for step in range(steps):
        total = [torch.zeros_like(p) for p in model.parameters()]
        for rank in range(world):
            for turn in range(passes):
                grads = torch.autograd.grad(lossy(model, rank, step * passes + turn),
                                            list(model.parameters()), allow_unused=True)
                for t, g in zip(total, grads):
                    t.add_(0 if g is None else g.to_dense())
        for p, t in zip(model.parameters(), total):
            p.grad = t / (world if op == hvd.Average else 1)
        opt.step()
    return parameters(model)


def near(got, want):
    same_on_all_ranks(got)
    assert torch.allclose(got, want, rtol=1e-4, atol=1e-5), (got - want).abs().max()


def a_horovod_script_trains():
    """The usual lines, with either way of clearing gradients, flat or not."""
    for flat, none in ((False, True), (False, False), (True, False), (True, True)):
        model = mlp(seed=7 if hvd.rank() == 0 else 8)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
        assert isinstance(optimizer, torch.optim.SGD)
        if flat:
            optimizer.flat_gradients()
            assert all(rig.is_in_arena(p.grad) for p in model.parameters())
        for step in range(4):
            optimizer.zero_grad(set_to_none=none)
            loss_of(model, hvd.rank(), step).backward()
            if flat:
                assert all(rig.is_in_arena(p.grad) for p in model.parameters())
            optimizer.step()
        near(parameters(model), reference(4, hvd.size()))
        kept = [p.grad.clone() for p in model.parameters()]
        optimizer.close()
        for p, k in zip(model.parameters(), kept):
            assert torch.equal(p.grad, k) and not rig.is_in_arena(p.grad)


def sums_passes_and_compression():
    def run(steps=4, passes=1, **options):
        model = mlp()
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.05), model.named_parameters(),
            backward_passes_per_step=passes, **options)
        for step in range(steps):
            optimizer.zero_grad()
            for turn in range(passes):
                loss_of(model, hvd.rank(), step * passes + turn).backward()
            optimizer.step()
        optimizer.close()
        return parameters(model)

    near(run(op=hvd.Sum), reference(4, hvd.size(), lr=0.05, op=hvd.Sum))
    near(run(passes=3), reference(4, hvd.size(), lr=0.05, passes=3))
    for half in (hvd.Compression.fp16, hvd.Compression.bf16):
        got = run(compression=half)
        same_on_all_ranks(got)
        assert torch.allclose(got, reference(4, hvd.size(), lr=0.05), rtol=0.02, atol=0.005)


def clipping_between_synchronize_and_step():
    model = mlp()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0))
    loss_of(model, hvd.rank(), 0).backward()
    optimizer.synchronize()
    before = parameters(model)
    nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    with optimizer.skip_synchronize():
        optimizer.step()
    assert abs((parameters(model) - before).norm() - 0.01) < 1e-4
    same_on_all_ranks(parameters(model))
    optimizer.close()


def schedulers_and_closures_work():
    model = mlp()
    plain = torch.optim.Adam(model.parameters(), lr=0.1)
    # made before the optimizer is wrapped: the groups are the same; torch only warns
    early = torch.optim.lr_scheduler.StepLR(plain, 1)
    optimizer = hvd.DistributedOptimizer(plain)
    late = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    for step in range(3):
        def closure():
            optimizer.zero_grad()
            loss = loss_of(model, hvd.rank(), step)
            loss.backward()
            return loss

        assert optimizer.step(closure) > 0
        same_on_all_ranks(parameters(model))
        early.step()
        late.step()
    assert abs(optimizer.param_groups[0]["lr"] - 0.1 ** 7) < 1e-9
    optimizer.close()


def lbfgs_takes_the_way_of_all_ranks():
    """As on one process with all the data: every evaluation is everybody's."""
    def run(optimizer, loss):
        def closure():
            optimizer.zero_grad()
            value = loss()
            value.backward()
            return value

        return [float(optimizer.step(closure)) for _ in range(2)]

    def make(model):
        return torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4,
                                 line_search_fn="strong_wolfe")

    model, alone = mlp(), mlp()
    optimizer = hvd.DistributedOptimizer(make(model), model.named_parameters())
    ranks = range(hvd.size())
    want = run(make(alone), lambda: sum(loss_of(alone, r, 0) for r in ranks) / hvd.size())
    got = run(optimizer, lambda: loss_of(model, hvd.rank(), 0))
    same_on_all_ranks(torch.tensor(got))
    assert all(abs(a - b) < 1e-3 for a, b in zip(got, want)), (got, want)
    assert got[1] < got[0]
    same_on_all_ranks(parameters(model))
    assert torch.allclose(parameters(model), parameters(alone), rtol=1e-2, atol=1e-2)
    other = make(model)
    if hvd.rank() == 0:
        other.load_state_dict(optimizer.state_dict())
    hvd.broadcast_optimizer_state(other, root_rank=0)
    came, want = (o.state_dict()["state"][0]["old_dirs"] for o in (other, optimizer))
    assert len(came) == len(want) > 0 and all(map(torch.equal, came, want))
    raises(ValueError, "LBFGS.step.* needs a closure", optimizer.step)
    optimizer.close()
    raises(ValueError, "LBFGS looks at all gradients", lambda: hvd.DistributedOptimizer(
        make(model), cross_barrier=model))


def gradients_may_have_a_graph():
    """create_graph=True in every step; what is summed are their values."""
    def penalty(model, rank, step):
        loss = loss_of(model, rank, step)
        grads = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
        return loss + 0.1 * sum(g.pow(2).sum() for g in grads)

    for flat in (False, True):
        model = mlp()
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        if flat:
            optimizer.flat_gradients()
        for step in range(3):
            optimizer.zero_grad()
            penalty(model, hvd.rank(), step).backward(create_graph=True)
            optimizer.step()
            assert not any(p.grad.requires_grad for p in model.parameters())
        near(parameters(model), reference(3, hvd.size(), lr=0.1, lossy=penalty))
        optimizer.close()


def misuse_is_an_error():
    model = mlp()
    params = list(model.parameters())
    raises(ValueError, "Found duplicates: a", hvd.DistributedOptimizer,
           torch.optim.SGD(params[:2], lr=1), [("a", params[0]), ("a", params[1])])
    raises(ValueError, "were not named", hvd.DistributedOptimizer,
           torch.optim.SGD(params[:2], lr=1), [("a", params[0])])
    raises(ValueError, "sequence of tuples", hvd.DistributedOptimizer,
           torch.optim.SGD(params, lr=1), params)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(params, lr=0.1))
    loss_of(model, hvd.rank(), 0).backward()
    raises(AssertionError, "before optimizer.step()", optimizer.zero_grad)
    raises((AssertionError, RuntimeError), "more than backward_passes_per_step",
           loss_of(model, hvd.rank(), 0).backward)
    raises(RuntimeError, "changed after backward.. had sent it, on all ranks: call "
           r"optimizer.synchronize\(\)", optimizer.step)
    optimizer.close()
    meta = nn.Linear(2, 2, device="meta")
    raises(ValueError, "parameter parameter1 is on meta", hvd.DistributedOptimizer,
           torch.optim.SGD(meta.parameters(), lr=1))
    raises(ValueError, "invalid params of type", hvd.broadcast_parameters, 3)
    raises(ValueError, "backward_passes_per_step is 0", lambda: hvd.DistributedOptimizer(
        torch.optim.SGD(params, lr=1), backward_passes_per_step=0))
    raises(TypeError, "takes a tally.Session, not a list", hvd.init, [0, 1])
    raises(tally.TallyError, "EINVAL: no time nan", lambda: hvd.init(timeout=math.nan))
    raises(tally.TallyError, "EINVAL: no time -1", lambda: hvd.DistributedOptimizer(
        torch.optim.SGD(params, lr=1), timeout=-1))


class Odd(nn.Module):
    """Unused on some ranks, sparse, not contiguous."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.table = nn.Embedding(20, 33, sparse=True)
        self.here, self.there = nn.Linear(33, 5), nn.Linear(33, 5)
        self.turned = nn.Parameter(torch.randn(5, 33).t())

    def forward(self, x, rank, step):
        chosen = self.here if (rank + step) % 2 else self.there
        return chosen(x + self.table(torch.arange(len(x)) * (rank + 1) % 20)) + x @ self.turned


def odd_gradients_are_taken():
    def lossy(model, rank, step):
        x, y = batch(rank, step)
        return nn.functional.cross_entropy(model(x, rank, step), y)

    model = Odd()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1),
                                         model.named_parameters(), sparse_as_dense=True)
    for step in range(3):
        optimizer.zero_grad(set_to_none=True)
        lossy(model, hvd.rank(), step).backward()
        optimizer.step()
    near(parameters(model), reference(3, hvd.size(), Odd, lr=0.1, lossy=lossy))
    optimizer.close()

    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    optimizer.zero_grad(set_to_none=True)
    raises((ValueError, RuntimeError), "is sparse: make it dense",
           lossy(model, hvd.rank(), 0).backward)
    optimizer.close()


def autocast_changes_no_type():
    """Of gradients, that is; and a step without autocast may follow."""
    def lossy(model, rank, step):
        with torch.autocast("cpu", torch.bfloat16, enabled=step % 2 == 0):
            x, y = batch(rank, step)
            return nn.functional.cross_entropy(model(x).float(), y)

    model = mlp()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1),
                                         model.named_parameters())
    for step in range(4):
        optimizer.zero_grad()
        lossy(model, hvd.rank(), step).backward()
        optimizer.step()
        assert all(p.grad.dtype == torch.float32 for p in model.parameters())
    near(parameters(model), reference(4, hvd.size(), lr=0.1, lossy=lossy))
    optimizer.close()


class Attends(nn.Module):
    """Uses a layer's parameters without calling it, one layer twice, and one never."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(6)
        self.first, self.twice, self.never = nn.Linear(33, 8), nn.Linear(8, 8), nn.Linear(3, 3)
        self.attention, self.last = nn.MultiheadAttention(8, 2), nn.Linear(8, 5)

    def forward(self, x):
        x = self.twice(self.twice(self.first(x)).tanh()).unsqueeze(0)
        return self.last(self.attention(x, x, x)[0].squeeze(0))


class Slow(torch.optim.SGD):
    """Whose updates are not done when the next forward pass begins."""

    def step(self, closure=None):
        time.sleep(0.002)
        return super().step(closure)


class Early(nn.Module):
    """Uses parameters before it calls who has them, or without."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.tied = nn.Linear(33, 33, bias=False)
        self.normed = nn.utils.weight_norm(nn.Linear(33, 20))
        self.last, self.turns = nn.Linear(20, 5), 0
        self.last.register_forward_pre_hook(lambda m, x: (x[0] * m.weight.abs().mean(),))

    def forward(self, x):
        self.turns += 1
        x = self.normed(self.tied(x @ self.tied.weight))
        if self.turns % 2:
            return self.last(x)
        return nn.functional.linear(x, self.last.weight, self.last.bias)


def a_copy_of_a_model_that_crosses_is_a_plain_one():
    """And it can be pickled."""
    model = mlp()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.2),
                                         cross_barrier=model)
    loss_of(model, hvd.rank(), 0).backward()
    optimizer.step()
    optimizer.synchronize()
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    whole = {} if torch.__version__.startswith("1.") else {"weights_only": False}
    for other in (copy.deepcopy(model), torch.load(file, **whole)):
        assert type(other[0]._parameters) in (dict, collections.OrderedDict)
        other.load_state_dict(other.state_dict())
        loss_of(other, hvd.rank(), 1).backward()
        assert torch.equal(parameters(other), parameters(model))
    optimizer.close()
    assert type(model[0]._parameters) in (dict, collections.OrderedDict)


def updates_may_cross_the_barrier():
    """Bit for bit the parameters of the version with a barrier, which waits in step()."""
    def run(make, optimizer, cross):
        model = make()
        opt = optimizer(model.parameters())
        opt = hvd.DistributedOptimizer(opt, model.named_parameters(),
                                       cross_barrier=model if cross else None)
        sheet = torch.optim.lr_scheduler.StepLR(opt, 2, 0.5)
        for step in range(5):
            opt.zero_grad(set_to_none=True)
            loss_of(model, hvd.rank(), step).backward()
            opt.step()
            sheet.step()
        state = opt.state_dict()["state"]
        opt.close()
        return parameters(model), [v for _, s in sorted(state.items()) for v in s.values()
                                   if v is not None]

    kinds = [lambda p: torch.optim.SGD(p, lr=0.2, momentum=0.9), lambda p: Slow(p, lr=0.2),
             lambda p: torch.optim.AdamW(p, lr=0.02, weight_decay=0.1)]
    if not torch.__version__.startswith("1."):  # which the scheduler writes into
        kinds.append(lambda p: Slow(p, lr=torch.tensor(0.2)))
    for make in (mlp, Attends, Early):
        for optimizer in kinds:
            (got, states), (want, wanted) = run(make, optimizer, True), run(make, optimizer, False)
            assert torch.equal(got, want), (got - want).abs().max()
            assert not torch.equal(got, parameters(make()))
            assert len(states) == len(wanted)
            assert all(torch.equal(torch.as_tensor(a), torch.as_tensor(b))
                       for a, b in zip(states, wanted))


def a_state_dict_waits_for_updates():
    """The model's, or that of a part: it has what step() makes of the parameters."""
    def after(get, cross):
        model = mlp(width=300)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.2),
                                             cross_barrier=model if cross else None)
        if hvd.rank() == 1 and cross:
            rig.wait_until("rank 0 has stepped", lambda: os.path.exists(flag))
        loss_of(model, hvd.rank(), 0).backward()
        optimizer.step()
        if hvd.rank() == 0 and cross:
            open(flag, "w").close()
        taken = copy.deepcopy(get(model))
        optimizer.close()
        return taken

    for name, get in (("whole", lambda m: m.state_dict()), ("part", lambda m: m[2].state_dict())):
        flag = os.path.join(os.environ["RIG_DIR"], f"state-{name}")
        got, want = after(get, True), after(get, False)
        assert got.keys() == want.keys()
        assert all(torch.equal(got[key], want[key]) for key in want), name


def a_step_without_a_backward_pass_has_no_gradients():
    """An update that crosses clears its gradient: a second step() finds none, which is zeros."""
    def run(cross):
        model = mlp()
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9),
            cross_barrier=model if cross else None)
        for step in range(2):
            loss_of(model, hvd.rank(), step).backward()
            optimizer.step()
            if not cross:
                optimizer.zero_grad(set_to_none=True)
            optimizer.step()
            optimizer.synchronize() if cross else optimizer.zero_grad(set_to_none=True)
        optimizer.close()
        return parameters(model)

    got, want = run(True), run(False)
    assert torch.equal(got, want), (got - want).abs().max()


def what_is_loaded_stays():
    """Updates on their way are made before a state is loaded, the optimizer's or the model's."""
    def run(load, cross):
        model = mlp()
        optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=0.01),
                                             cross_barrier=model if cross else None)
        first = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(model.state_dict())
        for step in range(4):
            optimizer.zero_grad()
            loss_of(model, hvd.rank(), step).backward()
            optimizer.step()
            if step == 1:
                (optimizer, model)[load].load_state_dict(first[load])
        optimizer.close()
        return parameters(model)

    for load in 0, 1:
        got, want = run(load, True), run(load, False)
        assert torch.equal(got, want), (load, (got - want).abs().max())


class Counting(torch.optim.SGD):
    """Counts its steps in its group."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["steps"] = group.get("steps", 0) + 1
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"] / group["steps"])


class Empties(torch.nn.Module):
    """Two parameters without an element, side by side."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(7)
        self.linear = torch.nn.Linear(33, 5)
        self.a, self.b = (torch.nn.Parameter(torch.zeros(0)) for _ in range(2))

    def forward(self, x):
        return self.linear(x) + self.a.sum() + self.b.sum()


class Growing(torch.optim.SGD):
    """Counts them itself."""

    steps = 0

    def step(self, closure=None):
        self.steps += 1
        return super().step(closure)


def what_cannot_cross_the_barrier_says_so():
    for kind in (Counting, Growing):
        model = mlp()
        optimizer = hvd.DistributedOptimizer(kind(model.parameters(), lr=0.2), cross_barrier=model)
        loss_of(model, hvd.rank(), 0).backward()
        optimizer.step()
        raises(ValueError, "step.. keeps steps .*leave cross_barrier out", optimizer.synchronize)
        raises(ValueError, "leave cross_barrier out", optimizer.close)


def empty_parameters_hold_nobody_up():
    model = Empties()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1),
                                         cross_barrier=model)
    for _ in range(3):
        model(torch.ones(2, 33)).sum().backward()
        optimizer.step()
    optimizer.close()


def gradients_lie_as_their_parameters():
    """In memory: an optimizer's kernel may go by that."""
    def make():
        torch.manual_seed(7)
        return torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)

    def backward(model, rank):
        torch.manual_seed(rank)
        model(torch.randn(2, 3, 8, 8)).square().mean().backward()

    model, alone = make(), make()
    for rank in range(hvd.size()):
        backward(alone, rank)
    optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters()))
    backward(model, hvd.rank())
    optimizer.step()
    weight = model.weight
    assert not weight.is_contiguous() and weight.grad.stride() == weight.stride()
    near(weight.grad, alone.weight.grad / hvd.size())
    optimizer.close()

    model = make()
    optimizer = torch.optim.Adam(model.parameters())
    if hvd.rank() == 0:
        backward(model, 0)
        optimizer.step()
    hvd.broadcast_optimizer_state(optimizer, 0)
    mean = optimizer.state[model.weight]["exp_avg"]
    assert mean.stride() == model.weight.stride()
    same_on_all_ranks(mean)


def calls_compare_types_and_shapes():
    odd = hvd.rank() == 1
    types = torch.full((13,), 1.5), torch.zeros(13, dtype=torch.int32)  # nobody has used this size
    for call in lambda t: hvd.broadcast(t, 1), hvd.allgather, hvd.allreduce:
        text = raises(tally.TallyError, "EMISMATCH", call, types[odd])
        assert "float32[13]" in text and "int32[13]" in text, text
    shapes = torch.zeros(13, 3), torch.zeros(3, 13)
    text = raises(tally.TallyError, "EMISMATCH", hvd.allreduce, shapes[odd])
    assert "13" in text and "float32" in text, text
    assert hvd.allreduce(torch.ones(13, 3)).sum() == 39


def nothing_is_left_of_what_is_closed():
    """Nor of an optimizer that is gone: no thread, no hook, and no gradient in the arena."""
    def train(optimizer, model, step=0):
        optimizer.zero_grad(set_to_none=True)
        loss_of(model, hvd.rank(), step).backward()
        optimizer.step()

    def left(model):
        names = [t.name for t in threading.enumerate()]
        return sum(n.startswith("tally-update") for n in names) + sum(
            len(m._forward_pre_hooks) + len(m._forward_hooks) + len(m._state_dict_hooks)
            + len(getattr(m, "_state_dict_pre_hooks", ()))
            + (type(m._parameters) not in (dict, collections.OrderedDict))
            for m in model.modules())

    model = mlp()
    for turn in range(6):
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1),
                                             cross_barrier=model if turn % 2 else None)
        train(optimizer, model)
        assert turn % 2 == (left(model) > 0)
        hooks = [h for h in optimizer._tally.handles if hasattr(h, "hooks_dict_ref")]
        optimizer.close()
        assert hooks and not any(h.id in (h.hooks_dict_ref() or ()) for h in hooks)
        if turn >= 4:  # a closed one may go on
            train(optimizer, model, 1)
            optimizer.close()
        rig.wait_until("nothing is left", lambda: left(model) == 0)
        same_on_all_ranks(parameters(model))

    for cross in (False, True):
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1),
                                             cross_barrier=model if cross else None)
        before = parameters(model)
        train(optimizer, model)
        state = model.state_dict()
        assert not torch.equal(parameters(model), before)
        assert cross or rig.is_in_arena(model[0].weight.grad)
        gone = weakref.ref(optimizer)
        del optimizer
        gc.collect()
        assert gone() is None
        assert cross or not rig.is_in_arena(model[0].weight.grad)
        rig.wait_until("nothing is left", lambda: left(model) == 0)
        loss_of(model, hvd.rank(), 1).backward()
        loss_of(model, hvd.rank(), 2).backward()  # nobody counts them
        del state


def a_step_that_crosses_does_not_wait():
    """Rank 0's step() returns before rank 1 has begun its backward pass."""
    model = mlp()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1),
                                         cross_barrier=model)
    flag = os.path.join(os.environ["RIG_DIR"], "stepped")
    if hvd.rank() == 1:
        rig.wait_until("rank 0 has stepped", lambda: os.path.exists(flag))
    loss_of(model, hvd.rank(), 0).backward()
    optimizer.step()
    if hvd.rank() == 0:
        open(flag, "w").close()
    raises(ValueError, "needs the barrier", optimizer.flat_gradients)
    raises(ValueError, "needs the barrier", optimizer.skip_synchronize)
    optimizer.synchronize()
    same_on_all_ranks(parameters(model))
    optimizer.close()


def a_model_may_change():
    """New parameters, other shapes, another type; nothing stays on the servers."""
    before = rig.tensors()
    assert not [name for name, _ in before if name.startswith("optimizer")]
    epochs, empty = rig.epochs(), rig.server_memory()
    rig.meet()
    model = mlp(width=1200)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    optimizer.flat_gradients()

    def steps(n, dtype=torch.float32):
        for step in range(n):
            optimizer.zero_grad()
            loss_of(model, hvd.rank(), step, dtype).backward()
            optimizer.step()
        same_on_all_ranks(parameters(model))
        rig.meet()
        elements = sum(c for _, c in rig.tensors()) - sum(c for _, c in before)
        assert elements == sum(p.numel() for p in model.parameters()) + hvd.size()  # the vote
        rig.wait_until("the servers have memory for it",
                       lambda: rig.server_memory() > empty + elements * 2)
        rig.meet()

    steps(2)
    torch.manual_seed(5)
    model[4] = nn.Linear(1201, 7)  # two classes more
    optimizer.param_groups[0]["params"] = list(model.parameters())
    steps(2)
    assert len(optimizer._tally.handles) == len(list(model.parameters())), "old ones are hooked"
    model.append(nn.Linear(7, 9))
    optimizer.add_param_group({"params": list(model[5].parameters()), "lr": 0.05})
    fresh = parameters(model[5])
    steps(2)
    assert not torch.equal(parameters(model[5]), fresh)
    optimizer.zero_grad()
    for p in model.parameters():
        p.grad = None
    model.double()
    steps(2, torch.float64)
    optimizer.close()
    assert rig.tensors() == before
    rig.memory_is_as_before(empty, epochs)


def frozen_parameters_stay():
    """From one step on, with a gradient left from the last one."""
    for flat in (False, True):
        model = mlp()
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        if flat:
            optimizer.flat_gradients()
        for step in range(4):
            if step == 2:
                frozen = parameters(model[0].requires_grad_(False))
            optimizer.zero_grad()
            loss_of(model, hvd.rank(), step).backward()
            optimizer.step()
        assert torch.equal(parameters(model[0]), frozen)
        same_on_all_ranks(parameters(model))
        optimizer.close()


def a_scheduler_sees_what_is_loaded():
    """Of the optimizer that was wrapped, when state goes to the other one, or to itself."""
    for which in range(2):
        model = mlp()
        plain = torch.optim.SGD(model.parameters(), lr=0.1 if hvd.rank() == 0 else 1, momentum=0.9)
        early = torch.optim.lr_scheduler.StepLR(plain, 1)
        optimizer = hvd.DistributedOptimizer(plain)
        hvd.broadcast_optimizer_state((plain, optimizer)[which])
        if hvd.rank() == 0:  # as after a checkpoint that only root has read
            optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        for step in range(3):
            optimizer.zero_grad()
            loss_of(model, hvd.rank(), step).backward()
            optimizer.step()
            early.step()
        assert abs(optimizer.param_groups[0]["lr"] - 1e-4) < 1e-9
        same_on_all_ranks(parameters(model))
        optimizer.close()


def states_are_broadcast():
    """Parameters of any type and shape; an optimizer that only root has used."""
    torch.manual_seed(hvd.rank())
    state = {"f": torch.randn(3, 4).t(), "d": torch.randn(2).double(), "h": torch.randn(5).half(),
             "b": torch.tensor([hvd.rank() == 0, False]), "i": torch.tensor(hvd.rank()),
             "c": torch.randn(2, dtype=torch.cfloat), "e": torch.empty(0),
             "deep": torch.randn([1] * 9), "no": "tensor"}
    torch.manual_seed(0)
    want = {"f": torch.randn(3, 4).t(), "d": torch.randn(2).double(), "h": torch.randn(5).half(),
            "b": torch.tensor([True, False]), "i": torch.tensor(0),
            "c": torch.randn(2, dtype=torch.cfloat), "e": torch.empty(0),
            "deep": torch.randn([1] * 9), "no": "tensor"}
    hvd.broadcast_parameters(state)
    for name, value in want.items():
        assert state[name] == value if name == "no" else torch.equal(state[name], value), name

    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.5 if hvd.rank() else 0.01)
    if hvd.rank() == 0:
        loss_of(model, 0, 0).backward()
        optimizer.step()
    hvd.broadcast_parameters(model.named_parameters())
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert optimizer.param_groups[0]["lr"] == 0.01
    optimizer.zero_grad()
    loss_of(model, 0, 1).backward()
    optimizer.step()
    same_on_all_ranks(parameters(model))

    other = {"w": torch.zeros(3 if hvd.rank() else 4)}
    raises(tally.TallyError, r"EMISMATCH.* has w float32\[[34]\].* has w float32\[[34]\]",
           hvd.broadcast_parameters, other)


def small_calls():
    rank, world = hvd.rank(), hvd.size()
    assert hvd.local_size() == world // 2 and hvd.local_rank() < world
    assert hvd.allreduce(torch.tensor([1.0 * rank])).item() == (world - 1) / 2
    t = torch.full((3, 2), rank, dtype=torch.int64).t()  # not contiguous
    assert hvd.allreduce_(t, op=hvd.Sum) is t and (t == sum(range(world))).all()
    assert hvd.allreduce(torch.tensor(2.0), average=False).item() == 2 * world
    rows = hvd.allgather(torch.full((rank + 1, 2), rank))
    assert rows[:, 0].tolist() == [r for r in range(world) for _ in range(r + 1)]
    assert hvd.broadcast(torch.tensor([rank]), world - 1).item() == world - 1
    assert hvd.broadcast_object({"rank": rank, "x": [1, "two"]}, 1) == {"rank": 1, "x": [1, "two"]}
    for n in range(100):  # more sizes than channels are kept
        assert (hvd.allreduce(torch.full((n,), 1.0)) == 1).all()
    assert len(rig.tensors()) <= 2 * 64
    calls = hvd._world.collectives()
    with mock.patch("tally.torch._collective.CHANNELS_MAX", 2):  # a gather has more in any case
        hvd.allgather(torch.ones(7))
        with mock.patch.object(calls.exchange, "declare", side_effect=AssertionError):
            hvd.allgather(torch.ones(7))
    hvd.barrier()
    raises((ValueError, tally.TallyError), "bool", hvd.allreduce, torch.ones(2).bool())


def main():
    rig.start_gloo()
    raises(ValueError, "not been initialized", hvd.rank)
    with mock.patch.dict(os.environ, TALLY_SOCKET="/nowhere/agent.sock"):
        raises(tally.TallyError, "EAGENT: .*/nowhere/agent.sock.*systemctl start tally-agent",
               hvd.init)
    assert not hvd.is_initialized()
    hvd.init()
    rank = hvd.rank()
    assert hvd.is_initialized() and hvd.size() == dist.get_world_size() and rank == dist.get_rank()
    for story in (
        a_horovod_script_trains,
        sums_passes_and_compression,
        clipping_between_synchronize_and_step,
        schedulers_and_closures_work,
        lbfgs_takes_the_way_of_all_ranks,
        gradients_may_have_a_graph,
        misuse_is_an_error,
        odd_gradients_are_taken,
        autocast_changes_no_type,
        a_model_may_change,
        updates_may_cross_the_barrier,
        a_step_that_crosses_does_not_wait,
        a_copy_of_a_model_that_crosses_is_a_plain_one,
        a_state_dict_waits_for_updates,
        a_step_without_a_backward_pass_has_no_gradients,
        what_is_loaded_stays,
        what_cannot_cross_the_barrier_says_so,
        empty_parameters_hold_nobody_up,
        gradients_lie_as_their_parameters,
        calls_compare_types_and_shapes,
        nothing_is_left_of_what_is_closed,
        states_are_broadcast,
        frozen_parameters_stay,
        a_scheduler_sees_what_is_loaded,
        small_calls,
    ):
        story()
        rig.meet()
        print(f"rank {rank}: {story.__name__}", flush=True)
    model = mlp()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    loss_of(model, rank, 0).backward()
    optimizer.step()
    kept = copy.deepcopy([p.grad for p in model.parameters()])
    hvd.shutdown()
    assert all(torch.equal(p.grad, k) for p, k in zip(model.parameters(), kept))
    hvd.shutdown()
    dist.destroy_process_group()
    print("all well")


main()

# SPDX-License-Identifier: Apache-2.0
"""Gradients that change between backward() and step(), run as every rank: what comes after
synchronize() counts, what comes before is the same error on all ranks; loss scales work."""

import warnings

import rig
import torch
import torch.distributed as dist
from rig import loss_of, mlp, parameters, raises, same_on_all_ranks
from torch.nn.parallel import DistributedDataParallel

import tally
import tally.torch as hvd

Scaler = getattr(torch.amp, "GradScaler", None)  # one for the CPU: torch 2.3


def clipped(model):
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.001)


def clamped(model):
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.001)


def noised(model):
    for p in model.parameters():
        p.grad += torch.randn_like(p.grad)


def by_data(model):
    for p in model.parameters():
        p.grad.data.div_(1024)


def swapped(model):
    for p in model.parameters():
        p.grad.data = p.grad.data / 1024


def one_element(model):
    model[2].bias.grad[1] = 7


def replaced(model):
    for p in model.parameters():
        p.grad = p.grad / 1024


def zeroed(model):
    torch.optim.SGD(model.parameters(), lr=1).zero_grad(set_to_none=False)


def gone(model):
    torch.optim.SGD(model.parameters(), lr=1).zero_grad(set_to_none=True)


CHANGES = (clipped, clamped, noised, by_data, swapped, one_element, replaced, zeroed, gone)


def said_by_all(text):
    """All ranks were told the same."""
    texts = [None] * hvd.size()
    dist.all_gather_object(texts, text)
    assert len(set(texts)) == 1, texts
    return text


def what_is_changed_on_its_way_is_an_error():
    """On all ranks the same, also where only some have done it; the next step is right."""
    world, rank = hvd.size(), hvd.rank()
    for flat in (False, True):
        model, alone = mlp(), mlp()
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1),
                                             named_parameters=model.named_parameters())
        plain = torch.optim.SGD(alone.parameters(), lr=0.1)
        if flat:
            optimizer.flat_gradients()
        for number, change in enumerate(CHANGES):
            for those, where in ((range(world), "on all ranks"), ([1], "on rank 1:"),
                                 ([0, world - 1], f"on ranks 0, {world - 1}:")):
                optimizer.zero_grad()
                before = parameters(model)
                loss_of(model, rank, number).backward()
                if rank in those:
                    change(model)
                text = said_by_all(raises(RuntimeError, where, optimizer.step))
                assert "synchronize()" in text, text
                assert f"gradient of {'2.bias' if change is one_element else '4.bias'} " in text
                assert torch.equal(parameters(model), before)
            optimizer.zero_grad()
            loss_of(model, rank, number).backward()
            optimizer.step()
            plain.zero_grad()
            (sum(loss_of(alone, r, number) for r in range(world)) / world).backward()
            plain.step()
        same_on_all_ranks(parameters(model))
        assert torch.allclose(parameters(model), parameters(alone), rtol=1e-4, atol=1e-5)
        optimizer.close()


def what_is_changed_after_synchronize_counts():
    model, alone = mlp(), mlp()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0),
                                         backward_passes_per_step=2)
    plain = torch.optim.SGD(alone.parameters(), lr=1.0)
    for step in range(3):
        optimizer.zero_grad()
        plain.zero_grad()
        for turn in range(2):
            loss_of(model, hvd.rank(), 2 * step + turn).backward()
            if turn == 0:  # nothing is sent yet
                model[0].weight.grad.mul_(3)
            (sum(loss_of(alone, r, 2 * step + turn) for r in range(hvd.size()))
             / hvd.size()).backward()
            if turn == 0:
                alone[0].weight.grad.mul_(3)
        optimizer.synchronize()
        for change in clamped, clipped:
            change(model)
            change(alone)
        with optimizer.skip_synchronize():
            optimizer.step()
        plain.step()
        same_on_all_ranks(parameters(model))
        assert torch.allclose(parameters(model), parameters(alone), atol=1e-5)
    loss_of(model, hvd.rank(), 0).backward()
    loss_of(model, hvd.rank(), 1).backward()
    with optimizer.skip_synchronize():
        raises(RuntimeError, r"call optimizer.synchronize\(\) before it", optimizer.step)
    optimizer.close()


def across_the_barrier_it_is_an_error_too():
    model, rank = mlp(), hvd.rank()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1),
                                         cross_barrier=model)

    def step():
        loss_of(model, rank, 0).backward()
        if rank == 1:
            clipped(model)
        optimizer.step()
        optimizer.synchronize()

    for _ in range(2):  # until close()
        said_by_all(raises(RuntimeError, "parameter5 was .* on rank 1: .*cross_barrier", step))
        rank = -1 if rank == 1 else rank
    optimizer.close()
    hvd.broadcast_parameters(model.state_dict())
    rank = hvd.rank()
    loss_of(model, rank, 0).backward()
    optimizer.step()
    optimizer.synchronize()
    same_on_all_ranks(parameters(model))
    optimizer.close()


class Manual:
    """A loss scale as GradScaler's, for a torch that has none for the CPU."""

    def __init__(self, _device, init_scale):
        self._scale, self._unscaled, self._inf = init_scale, False, False

    def scale(self, loss):
        return loss * self._scale

    def _unscale_grads_(self, optimizer):
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.grad.data.mul_(1 / self._scale)
                self._inf |= not bool(torch.isfinite(p.grad).all())

    def unscale_(self, optimizer):
        self._unscale_grads_(optimizer)
        self._unscaled = True

    def step(self, optimizer):
        if not self._unscaled:
            self.unscale_(optimizer)
        if not self._inf:
            optimizer.step()

    def update(self):
        self._scale *= 0.5 if self._inf else 1
        self._unscaled = self._inf = False

    def get_scale(self):
        return self._scale


def scaled(model, optimizer, losses, clip, way):
    """Trains with a loss scale, and one overflow; the parameters and the scales."""
    scaler, scales = (Scaler or Manual)("cpu", init_scale=1024.0), []
    for step in range(5):
        optimizer.zero_grad()
        scaler.scale(losses(model, step)).backward()
        if way == "synchronize":
            optimizer.synchronize()
        if clip:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        if way == "synchronize":
            with optimizer.skip_synchronize():
                scaler.step(optimizer)
        else:
            scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return parameters(model), scales


def loss_scales_work():
    """As on one process, with all data: a rank that overflows has all of them skip the step."""
    def mine(model, step):
        return loss_of(model, rank, step) * (float("inf") if (rank, step) == (1, 2) else 1)

    def everybodys(model, step):
        losses = [loss_of(model, r, step) for r in range(world)]
        losses[1] = losses[1] * (float("inf") if step == 2 else 1)
        return sum(losses) / world

    world, rank = hvd.size(), hvd.rank()
    kinds = [lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)]
    if Scaler:  # the scaler leaves it to this one to unscale, and to skip
        kinds.append(lambda p: torch.optim.Adam(p, lr=0.01, fused=True))
    for kind in kinds:
        for clip in (False, True):
            alone = mlp()
            want, scales = scaled(alone, kind(alone.parameters()), everybodys, clip, "plain")
            assert scales[-1] == 512
            for way in ("synchronize", "as with DDP", "flat", "sum", "hook"):
                model, op = mlp(), hvd.Sum if way == "sum" else hvd.Average
                optimizer, ddp, losses = kind(model.parameters()), model, mine
                if way == "hook":
                    ddp = DistributedDataParallel(model, gradient_as_bucket_view=True)
                    session = tally.Session(job="scaled")
                    hook = hvd.ddp_comm_hook(session)
                    ddp.register_comm_hook(None, hook)
                    losses = lambda _, step: mine(ddp, step)  # noqa: B023,E731
                else:
                    optimizer = hvd.DistributedOptimizer(optimizer, op=op)
                if way == "flat":
                    optimizer.flat_gradients()
                if way == "sum":
                    losses = lambda m, step: mine(m, step) / world  # noqa: E731
                with warnings.catch_warnings():
                    warnings.simplefilter("error", UserWarning)
                    got, its = scaled(model, optimizer, losses, clip, way)
                same_on_all_ranks(got)
                assert its == scales, (way, its)
                assert torch.allclose(got, want, rtol=1e-3, atol=1e-4), (way, got, want)
                if way == "hook":
                    hook.close()
                    session.detach()
                else:
                    optimizer.close()
    crossing = hvd.DistributedOptimizer(torch.optim.SGD(alone.parameters(), lr=1),
                                        cross_barrier=alone)
    scaler = (Scaler or Manual)("cpu", init_scale=2.0)
    scaler.scale(loss_of(alone, rank, 0)).backward()
    raises(ValueError, "a GradScaler needs the barrier", scaler.step, crossing)
    crossing.step()
    crossing.close()


def main():
    rig.start_gloo()
    hvd.init()
    for story in (
        what_is_changed_on_its_way_is_an_error,
        what_is_changed_after_synchronize_counts,
        across_the_barrier_it_is_an_error_too,
        loss_scales_work,
    ):
        story()
        rig.meet()
        print(f"rank {hvd.rank()}: {story.__name__}", flush=True)
    hvd.shutdown()
    dist.destroy_process_group()
    print("all well")


main()

# SPDX-License-Identifier: Apache-2.0
"""What scripts do at the wrong time, run as both of two ranks: it works, or an error says why."""

import collections
import copy
import pickle

import rig
import torch
import torch.distributed as dist
from rig import loss_of, mlp, parameters, raises, same_on_all_ranks

import tally
import tally.torch as hvd


def wrapped(model, **options):
    return hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), **options)


def a_model_that_differs_may_be_mended():
    """The rank whose layer is another one is told, as all are; nothing half made is left."""
    for flat in (False, True):
        model = mlp()
        optimizer = wrapped(model)
        if flat:
            optimizer.flat_gradients()

        def step(optimizer=optimizer, model=model):
            optimizer.zero_grad()
            loss_of(model, hvd.rank(), 0).backward()
            optimizer.step()

        def widen(width, optimizer=optimizer, model=model):
            torch.manual_seed(5)
            model[4] = torch.nn.Linear(65, width)
            optimizer.param_groups[0]["params"] = list(model.parameters())

        step()
        widen(6 + hvd.rank())
        for _ in range(2):
            raises(tally.TallyError, "EMISMATCH", step)
        optimizer.close()
        widen(6)
        step()
        same_on_all_ranks(parameters(model))
        optimizer.close()


def a_step_after_close_is_of_all_ranks():
    """Also when close() came between it and its backward pass."""
    for flat in (False, True):
        model = mlp()
        optimizer = wrapped(model)
        if flat:
            optimizer.flat_gradients()
        loss_of(model, hvd.rank(), 0).backward()
        optimizer.close()
        optimizer.step()
        same_on_all_ranks(parameters(model))
        assert not torch.equal(parameters(model), parameters(mlp()))
        optimizer.close()


def a_step_after_shutdown_is_an_error():
    model = mlp()
    optimizer = wrapped(model)
    loss_of(model, hvd.rank(), 0).backward()
    hvd.shutdown()
    raises(tally.TallyError, "ESHUTDOWN", optimizer.step)
    assert torch.equal(parameters(model), parameters(mlp()))


def a_wrapped_optimizer_is_not_wrapped():
    model = mlp()
    for first in ({}, {"cross_barrier": model}):
        optimizer = wrapped(model, **first)
        for then in ({}, {"cross_barrier": model}):
            raises(ValueError, "a DistributedOptimizer already: wrap it once",
                   lambda: hvd.DistributedOptimizer(optimizer, **then))  # noqa: B023
        optimizer.close()


def what_is_of_the_wrong_kind_is_refused():
    """In one line, which says what there is, on the rank that gave it alone."""
    model = mlp()
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    x, session = torch.ones(2), hvd.DistributedOptimizer(plain)._tally.exchange.session
    for text, call, *args in (
        ("takes the handle .* not a str", hvd.synchronize, "h"),
        ("takes the handle .* not a Tensor", hvd.synchronize, x),
        ("takes the handle .* not a NoneType", hvd.poll, None),
        ("takes an optimizer of torch.optim, not a str", hvd.DistributedOptimizer, "x"),
        ("takes an optimizer of torch.optim, not the class SGD", hvd.DistributedOptimizer,
         torch.optim.SGD),
        ("model.named_parameters.. returns, not a Sequential", hvd.DistributedOptimizer, plain,
         model),
        ("passes_per_step is a whole number, not a float",
         lambda: hvd.DistributedOptimizer(plain, backward_passes_per_step=1.5)),
        ("cross_barrier is the model", lambda: hvd.DistributedOptimizer(plain, cross_barrier=True)),
        ("compression_params is a dict", lambda: hvd.DistributedOptimizer(
            plain, compression_params="fp16")),
        ("takes a tally.Session, not a str", hvd.ddp_comm_hook, "x"),
        ("takes a tally.Session, not a Sequential", hvd.ddp_comm_hook, model),
        ("process_group is the one given", hvd.ddp_comm_hook, session, "x"),
        ("takes an optimizer of torch.optim, not a dict", hvd.broadcast_optimizer_state,
         plain.state_dict()),
        ("pairs of a name", hvd.broadcast_parameters, {1: x, "a": x}),
        ("pairs of a name", hvd.broadcast_parameters, [("a",)]),
        ("prefix is a str", hvd.broadcast_parameters, model.state_dict(), 0, 5),
        ("takes a list of tensors, not a int", hvd.grouped_allreduce, 5),
        ("takes a list of tensors, not a dict", hvd.grouped_allreduce_, {"a": x}),
        ("average is True or False, or left to op, not a str", hvd.allreduce, x, "name"),
        ("name is a str or None, not a int", hvd.broadcast, x, 0, 5),
    ):
        if hvd.rank() == 0:
            assert "\n" not in raises(TypeError, text, call, *args), text
    assert hvd.allreduce(x).tolist() == [1, 1]  # calls without a name still meet


def objects_say_what_they_are_and_stay_here():
    """Rank, world and job in each repr(); no pickle, no copy that would send gradients, too."""
    model, session = mlp(), tally.Session(job="shown")
    place = f"rank {hvd.rank()}, world 2, job '"
    hook = hvd.ddp_comm_hook(session)
    for options in ({}, {"cross_barrier": model}):
        optimizer = wrapped(model, **options)
        assert repr(optimizer).startswith(f"<tally.torch DistributedOptimizer: {place}"), optimizer
        assert "lr: 0.1" in repr(optimizer), optimizer
        for travel in (pickle.dumps, copy.copy, copy.deepcopy):
            text = raises(TypeError, "load its state_dict", travel, optimizer)  # noqa: B023
            assert "\n" not in text, text
        optimizer.close()
    assert repr(hook) == f"<tally.torch ddp_comm_hook ddp0: {place}shown'>", hook
    assert "\n" not in raises(TypeError, "save model.module.state_dict", pickle.dumps, hook)
    ddp = torch.nn.parallel.DistributedDataParallel(mlp())
    ddp.register_comm_hook(None, hook)
    loss_of(ddp, hvd.rank(), 0).backward()
    averages = copy.deepcopy(ddp)  # a copy of a model, as for averages of its parameters
    assert torch.equal(parameters(averages), parameters(ddp))
    loss_of(ddp, hvd.rank(), 1).backward()
    assert copy.copy(hook) is hook
    hook.close()
    session.detach()


def two_optimizers_may_cross_with_one_model():
    """Whose layers are read by their attributes, also when one of the two is closed."""
    def run(cross):
        model = mlp()
        halves = [list(model[:2].parameters()), list(model[2:].parameters())]
        both = [hvd.DistributedOptimizer(torch.optim.SGD(half, lr=0.1),
                                         cross_barrier=model if cross else None)
                for half in halves]
        reads = []
        for step in range(4):
            for optimizer in both:
                optimizer.zero_grad()
            loss_of(model, hvd.rank(), step).backward()
            for optimizer in both:
                optimizer.step()
            reads += [layer.weight.detach().clone() for layer in (model[4], model[2], model[0])]
            if step == 2:
                both.pop(0).close()
        both[0].close()
        assert type(model[0]._parameters) in (dict, collections.OrderedDict)
        return reads

    for got, want in zip(run(True), run(False)):
        assert torch.equal(got, want), (got - want).abs().max()


def normalizing_by_what_was_learned_needs_no_job():
    norm = hvd.SyncBatchNorm(3).eval()
    x = torch.randn(4, 3)
    assert torch.equal(norm(x), torch.nn.BatchNorm1d(3).eval()(x))
    raises(ValueError, "not been initialized", norm.train(), x)


class Meddling(torch.utils.data.Dataset):
    """A data set whose workers, which are children of the rank, write to its gradients."""

    def __init__(self, model):
        self.model = model

    def __len__(self):
        return 6

    def __getitem__(self, step):
        for p in self.model.parameters():
            if p.grad is not None:
                before = p.grad.clone()
                p.grad.add_(1e6)
                assert torch.allclose(p.grad, before + 1e6)
        return step


def what_a_child_writes_to_gradients_stays_with_it():
    """They lie in memory that the agent reads, and so might a child's writes."""
    for way in ("flat", "kept", "hook"):
        def run(meddle, way=way):
            model = mlp()
            trained, session = model, None
            if way == "hook":
                session = tally.Session(job="meddled")
                hook = hvd.ddp_comm_hook(session)
                trained = torch.nn.parallel.DistributedDataParallel(
                    model, gradient_as_bucket_view=True)
                trained.register_comm_hook(None, hook)
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            else:
                optimizer = wrapped(model)
            if way == "flat":
                optimizer.flat_gradients()
            for epoch in range(2):
                data = Meddling(model) if meddle else range(6)
                for step in torch.utils.data.DataLoader(data, num_workers=2 * meddle):
                    optimizer.zero_grad(set_to_none=False)
                    loss_of(trained, hvd.rank(), 6 * epoch + int(step)).backward()
                    if epoch:
                        assert rig.is_in_arena(model[0].weight.grad)
                    optimizer.step()
            if way == "hook":
                hook.close()
                session.detach()
            else:
                optimizer.close()
            return parameters(model)

        got, want = run(True), run(False)
        assert torch.equal(got, want), way
        same_on_all_ranks(got)


def main():
    rig.start_gloo()
    normalizing_by_what_was_learned_needs_no_job()
    for story in (
        a_model_that_differs_may_be_mended,
        a_step_after_close_is_of_all_ranks,
        a_step_after_shutdown_is_an_error,
        a_wrapped_optimizer_is_not_wrapped,
        what_is_of_the_wrong_kind_is_refused,
        objects_say_what_they_are_and_stay_here,
        two_optimizers_may_cross_with_one_model,
        what_a_child_writes_to_gradients_stays_with_it,
    ):
        hvd.init(tally.Session(job=story.__name__))
        story()
        hvd.shutdown()
        rig.meet()
        print(f"rank {dist.get_rank()}: {story.__name__}", flush=True)
    normalizing_by_what_was_learned_needs_no_job()
    dist.destroy_process_group()
    print("all well")


main()

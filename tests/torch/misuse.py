# SPDX-License-Identifier: Apache-2.0
"""What scripts do at the wrong time, run as both of two ranks: it works, or an error says why."""

import rig
import torch
import torch.distributed as dist
from rig import loss_of, mlp, parameters, raises, same_on_all_ranks

import tally
import tally.torch as hvd


def wrapped(model, **options):
    return hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), **options)


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


def main():
    rig.start_gloo()
    for story in (
        a_step_after_close_is_of_all_ranks,
        a_step_after_shutdown_is_an_error,
    ):
        hvd.init(tally.Session(job=story.__name__))
        story()
        hvd.shutdown()
        rig.meet()
        print(f"rank {dist.get_rank()}: {story.__name__}", flush=True)
    dist.destroy_process_group()
    print("all well")


main()

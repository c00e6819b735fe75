# SPDX-License-Identifier: Apache-2.0
"""Rank 1 comes late, run as both of two ranks: what rank 0 is told, and what it can do then.

Each story has a job of its own, so that one may end with a round on its way.
"""

import os
from unittest import mock

import rig
import torch
import torch.distributed as dist
from rig import loss_of, mlp, parameters, raises, same_on_all_ranks
from torch.nn.parallel import DistributedDataParallel

import tally
import tally.torch as hvd
from tally.torch._exchange import Exchange

SOON_S = 0.3  # rank 0's limit for the round that rank 1 is late for


def when_told(name, rank, first, late):
    """Rank 0 does the one, then rank 1 the other."""
    flag = os.path.join(os.environ["RIG_DIR"], name)
    if rank == 0:
        first()
        open(flag, "w", encoding="utf-8").close()
    else:
        rig.wait_until(f"rank 0 is through: {name}", lambda: os.path.exists(flag))
        late()
    rig.meet()


def mean_of_both(model, step):
    """The gradients that a step has by all ranks, flat."""
    both = [torch.autograd.grad(loss_of(model, rank, step), list(model.parameters()))
            for rank in range(2)]
    return torch.cat([((a + b) / 2).reshape(-1) for a, b in zip(*both)])


def gradients(model):
    return torch.cat([p.grad.reshape(-1) for p in model.parameters()])


def an_optimizer_is_final(session):
    """A step that was given up: the late rank gets its sum, and nothing is sent any more."""
    hvd.init(session)
    rank = session.rank
    for flat in (False, True):
        model = mlp()
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        if flat:
            optimizer.flat_gradients()

        def step(number, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss_of(model, rank, number).backward()
            optimizer.step()

        def gives_up(model=model, optimizer=optimizer, step=step):
            optimizer._tally._options.timeout = SOON_S
            raises(tally.TallyTimeout, f"not done after {SOON_S} s", step, 1)
            assert not any(rig.is_in_arena(p.grad) for p in model.parameters())
            before = parameters(model)
            for _ in range(2):
                raises(tally.TallyTimeout, "step is lost here.*close.. on all ranks", step, 2)
                raises(tally.TallyTimeout, "step is lost here", optimizer.flat_gradients)
            assert torch.equal(parameters(model), before)

        def comes(model=model, step=step):
            want = mean_of_both(model, 1)
            step(1)
            assert torch.allclose(gradients(model), want, rtol=1e-4, atol=1e-6)

        step(0)
        when_told(f"optimizer-{flat}", rank, gives_up, comes)
        optimizer.close()
        hvd.broadcast_parameters(model.state_dict())
        optimizer._tally._options.timeout = None
        step(3)
        same_on_all_ranks(parameters(model))
        optimizer.close()
    hvd.shutdown()


def an_optimizer_that_crosses_is_final(session):
    hvd.init(session)
    rank, model = session.rank, mlp()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1),
                                         cross_barrier=model)

    def step(number):
        optimizer.zero_grad()
        loss_of(model, rank, number).backward()
        optimizer.step()
        optimizer.synchronize()

    def gives_up():
        optimizer._tally._options.timeout = SOON_S
        for number in 1, 2:
            raises(tally.TallyTimeout, f"not done after {SOON_S} s", step, number)

    step(0)
    when_told("crossing", rank, gives_up, lambda: step(1))
    if rank == 0:
        raises(tally.TallyTimeout, f"not done after {SOON_S} s", optimizer.close)
    else:
        optimizer.close()
    hvd.broadcast_parameters(model.state_dict())
    optimizer._tally._options.timeout = None
    step(3)
    same_on_all_ranks(parameters(model))
    optimizer.close()
    hvd.shutdown()


def a_hook_is_final(session):
    rank = session.rank
    for view in (False, True):
        model = mlp()
        ddp = DistributedDataParallel(model, bucket_cap_mb=0.01, gradient_as_bucket_view=view)
        hook = hvd.ddp_comm_hook(session)
        ddp.register_comm_hook(None, hook)
        for number in range(4):
            ddp.zero_grad(set_to_none=False)
            loss_of(ddp, rank, number).backward()

        def gives_up(ddp=ddp, hook=hook):
            hook._timeout = SOON_S
            ddp.zero_grad(set_to_none=False)
            loss = loss_of(ddp, rank, 4)
            raises(RuntimeError, f"not done after {SOON_S} s", loss.backward)
            assert not any(rig.is_in_arena(p.grad) for p in ddp.parameters())
            ddp.zero_grad(set_to_none=False)
            raises((RuntimeError, tally.TallyError), "step is lost here.*close.. on all ranks",
                   loss_of(ddp, rank, 5).backward)

        def comes(model=model, ddp=ddp):
            want = mean_of_both(model, 4)
            ddp.zero_grad(set_to_none=False)
            loss_of(ddp, rank, 4).backward()
            assert torch.allclose(gradients(model), want, rtol=1e-4, atol=1e-6)

        when_told(f"hook-{view}", rank, gives_up, comes)
        hook.close()


def late_to_declare(session, name, rank, times, first, late):
    """when_told(), where first() ends only when the late one comes, after so many refusals."""
    flag, real, left = os.path.join(os.environ["RIG_DIR"], name), session.declare_all, [times]

    def declare_all(descriptions):
        try:
            return real(descriptions)
        except tally.TallyTimeout:
            left[0] -= 1
            if not left[0]:
                open(flag, "w", encoding="utf-8").close()
            raise

    if rank == 0:
        with mock.patch.object(session, "declare_all", declare_all):
            first()
        assert left[0] <= 0, "nothing was refused"
    else:
        rig.wait_until(f"rank 0 was refused: {name}", lambda: os.path.exists(flag))
        late()


def the_limit_holds_for_what_is_new(_):
    """Longer than the session's; and a call that it has ended meets the late one when repeated."""
    rank = dist.get_rank()
    session = tally.Session(job="new", timeout=3)
    hvd.init(session)
    calls = hvd._world.collectives()

    def again():
        calls.timeout = 0
        raises(tally.TallyTimeout, "rank 1", hvd.barrier)
        calls.timeout = None
        hvd.barrier()

    late_to_declare(session, "barrier", rank, 2, again, hvd.barrier)

    def refused(*_):
        raise tally.TallyTimeout(-9, "refused")

    model = mlp()

    def make():
        return hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), timeout=0)

    if rank == 0:  # as if nobody had come
        with mock.patch.object(session, "declare_all", refused):
            raises(tally.TallyTimeout, "refused", make)
            calls.timeout = 0
            raises(tally.TallyTimeout, "refused", hvd.broadcast_parameters, {"x": torch.ones(1)})
            calls.timeout = None
    hvd.broadcast_parameters({"x": torch.ones(1)})
    optimizer, real = make(), session.undeclare

    def of_others(*tensors):
        """The first is through, and then nobody comes."""
        real(*tensors[:1])
        raise tally.TallyTimeout(-9, "refused")

    with mock.patch.object(session, "undeclare", of_others):
        raises(tally.TallyTimeout, "refused", optimizer.close)
        calls.timeout = 0
        raises(tally.TallyTimeout, "refused", calls.drop)
    raises(tally.TallyTimeout, "refused", optimizer.step)
    optimizer.close()
    calls.drop()
    rig.meet()
    assert rig.tensors() == []
    hvd.shutdown()


def a_round_without_room_has_a_deadline(session):
    """The agent's ring is full, and stays so."""
    exchange, heard = Exchange.of(session), []
    (channel,) = exchange.call(exchange.declare, [("x", (1,), "float32")])

    def full(_):
        raise tally.TallyError(-1, "the ring is full")

    exchange.call(exchange.start, channel, full, heard.append, SOON_S)
    rig.wait_until("its deadline is over", lambda: heard)
    assert f"tensor x: not done after {SOON_S} s" in str(heard[0]), heard


def main():
    rig.start_gloo()
    for story in (
        an_optimizer_is_final,
        an_optimizer_that_crosses_is_final,
        a_hook_is_final,
        the_limit_holds_for_what_is_new,
        a_round_without_room_has_a_deadline,
    ):
        with tally.Session(job=story.__name__) as session:
            story(session)
            rig.meet()
            print(f"rank {dist.get_rank()}: {story.__name__}", flush=True)
    dist.destroy_process_group()
    print("all well")


main()

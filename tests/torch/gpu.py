# SPDX-License-Identifier: Apache-2.0
"""tally.torch with tensors on GPUs, run as every rank of two machines of two.

The GPUs are the double's (double.py); everything below torch is as on real ones.  What comes
is compared with what the same training gives in host memory, in a job of its own: with the
argument "exact" bit for bit, else within rounding, as GPUs add up in NCCL's order.  Other
arguments are names of stories, to be played alone.
"""

import contextlib
import os
import sys
import threading
import time
from unittest import mock

import double
import rig
import torch
import torch.distributed as dist
from rig import batch, loss_of, mlp, parameters, raises, same_on_all_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tally
import tally.torch as hvd
from tally.torch import _memory, _optimizer

EXACT = "exact" in sys.argv[1:]
gpu = double.play()
gpu.exact = EXACT


def check_same(got, want, rtol=1e-5, atol=1e-6):
    same_on_all_ranks(got)
    if EXACT:
        assert torch.equal(got, want), (got - want).abs().max()
    else:
        assert torch.allclose(got, want, rtol=rtol, atol=atol), (got - want).abs().max()


# ---- libtally through ctypes ----

def a_session_has_a_gpu(_):
    """Streams and addresses by hand: what a stream writes is summed, and what it gets is a sum."""
    session = tally.Session(job="by-hand")
    raises(tally.TallyError, "EINVAL: no GPU was opened", session.declare(
        "early", 3).gpu_push_pull, torch.zeros(3).data_ptr())
    session.gpu_open(plugin=double.plugin(), exact=EXACT)
    assert session.gpu == session.local_rank
    raises(tally.TallyError, "EEXIST: this session has a GPU", session.gpu_open)
    tensor, stream = session.declare("t", 300_000, "int32"), double.Stream()
    memory, out, seen = (torch.zeros(300_000, dtype=torch.int32) for _ in range(3))
    want = torch.arange(300_000, dtype=torch.int32) * sum(range(1, session.world_size + 1))

    def write(value):
        time.sleep(0.01)
        memory.copy_(torch.arange(300_000, dtype=torch.int32) * value)

    for turn in range(4):
        apart = turn % 2 == 1
        memory.fill_(99)
        out.fill_(99)
        stream.call(lambda: write(session.rank + 1))
        ticket = tensor.gpu_push_pull(memory.data_ptr(), out.data_ptr() if apart else None,
                                      stream.cuda_stream)
        there = out if apart else memory
        with stream.captured():
            raises(tally.TallyError, "EINVAL: the stream is being captured", ticket.gpu_wait,
                   stream.cuda_stream)
        if turn < 2:
            ticket.wait()
            assert torch.equal(there, want), turn
        else:
            ticket.gpu_wait(stream.cuda_stream)
            stream.call(lambda: seen.copy_(there))  # noqa: B023
            stream.synchronize()
            assert torch.equal(seen, want), turn
            seen.zero_()
        raises(tally.TallyError, "EINVAL: .* used up", ticket.gpu_wait, stream.cuda_stream)
    session.undeclare(tensor)
    session.detach()


# ---- DistributedDataParallel ----

def train_ddp(session, steps=5, dtype=torch.float32, **options):
    model = mlp(dtype=dtype)
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.01, **options)
    hook = hvd.ddp_comm_hook(session)
    ddp.register_comm_hook(None, hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.2, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        loss_of(ddp, session.rank, step, dtype).backward()
        optimizer.step()
    hook.synchronize()
    return model, hook


def ddp_sums_buckets_where_they_are(session, host):
    for view in (False, True):
        with double.stopped():
            want, hook = train_ddp(host, gradient_as_bucket_view=view)
            hook.close()
        with mock.patch("tally.torch._memory.Block.__init__", side_effect=AssertionError):
            got, hook = train_ddp(session, gradient_as_bucket_view=view)
        assert not any(rig.is_in_arena(p.grad) for p in got.parameters())
        check_same(parameters(got), parameters(want))
        assert not torch.allclose(parameters(got), parameters(mlp())), "nothing was learned"
        rig.meet()
        assert any(name.startswith("ddp") for name, _ in rig.tensors())
        rig.meet()
        hook.close()
        rig.meet()
        assert not any(name.startswith("ddp") for name, _ in rig.tensors())
        rig.meet()


def ddp_sums_every_type(session, host):
    for dtype in (torch.float64, torch.bfloat16):
        # Gloo of torch 1.13 cannot broadcast bfloat16; the ranks' seeds are equal
        with mock.patch("torch.nn.parallel.distributed._sync_module_states"):
            with double.stopped():
                want, hook = train_ddp(host, dtype=dtype)
                hook.close()
            got, hook = train_ddp(session, dtype=dtype)
        hook.close()
        check_same(parameters(got), parameters(want), 0.05, 0.02)


def a_bucket_is_read_when_its_stream_has_written_it(session, _):
    """And kernels that come later hold nothing up."""
    model, streams = mlp(), []
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.01)
    hook, later = hvd.ddp_comm_hook(session), threading.Event()

    def slow(state, bucket):
        buffer, stream = bucket.buffer(), double.Stream()
        values = buffer.clone()
        buffer.fill_(99)
        stream.call(lambda: (time.sleep(0.02), buffer.copy_(values)))
        with gpu.on(stream):
            future = hook(state, bucket)
        stream.call(lambda: later.wait(rig.DEADLINE_S))
        streams.append(stream)
        return future

    ddp.register_comm_hook(None, slow)
    for step in range(3):
        later.clear()
        for p in model.parameters():
            p.grad = None
        loss_of(ddp, session.rank, step).backward()  # waits for the means
        assert not later.is_set()
        later.set()
        wants = [torch.zeros_like(p) for p in model.parameters()]
        for rank in range(session.world_size):
            alone = mlp()
            loss_of(alone, rank, step).backward()
            for want, p in zip(wants, alone.parameters()):
                want += p.grad / session.world_size
        for want, p in zip(wants, model.parameters()):
            assert torch.allclose(p.grad, want, rtol=1e-4, atol=1e-6)
        for stream in streams:
            stream.synchronize()
    hook.close()


def means_are_promised_before_others_have_begun(session, _):
    """No thread waits: rank 0's futures are on its stream while the others have not begun."""
    ddp, flag = DistributedDataParallel(mlp()), os.path.join(os.environ["RIG_DIR"], "promised")
    hook = hvd.ddp_comm_hook(session)
    ddp.register_comm_hook(None, hook)
    for step in range(3):
        loss_of(ddp, session.rank, step).backward()
    loss = loss_of(ddp, session.rank, 3)
    rig.meet()
    if session.rank:
        rig.wait_until("rank 0's means are promised", lambda: os.path.exists(flag))
    else:
        before = gpu.promises

        def watch():
            rig.wait_until("a promise", lambda: gpu.promises > before)
            open(flag, "w").close()

        threading.Thread(target=watch).start()
    loss.backward()
    hook.close()


# ---- DistributedOptimizer ----

def train_optimizer(steps=4, passes=1, flat=False, none=True, cross=False, make=mlp, lossy=loss_of,
                    kind=lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9), **options):
    model = make()
    optimizer = hvd.DistributedOptimizer(kind(model.parameters()), model.named_parameters(),
                                         backward_passes_per_step=passes,
                                         cross_barrier=model if cross else None, **options)
    if flat:
        optimizer.flat_gradients()
    for step in range(steps):
        optimizer.zero_grad(set_to_none=none)
        for turn in range(passes):
            lossy(model, hvd.rank(), step * passes + turn).backward()
        optimizer.step()
    optimizer.state_dict()
    assert not cross or optimizer._tally._users, "nobody has noted who uses which parameter"
    grads = [p.grad for p in model.parameters()]
    optimizer.close()
    assert all(p.grad is g for p, g in zip(model.parameters(), grads))
    return parameters(model)


def only_votes(self, session, count, dtype, make=_memory.Block.__init__):
    """A block's constructor: of what an optimizer sends only its vote is in the arena."""
    assert dtype == torch.int64
    make(self, session, count, dtype)


def compare(host, session, *args, rtol=1e-4, atol=1e-5, **options):
    """The same training in host memory and on the GPU."""
    with double.stopped(), mock.patch("tally.torch._world._here", host_calls(host)):
        want = train_optimizer(*args, **options)
    with mock.patch("tally.torch._memory.Block.__init__", only_votes):
        got = train_optimizer(*args, **options)
    check_same(got, want, rtol, atol)


def host_calls(host, made={}):  # noqa: B006
    """The Collectives of the job in host memory."""
    from tally.torch._collective import Collectives

    return made.setdefault("here", None) or made.update(here=Collectives(host)) or made["here"]


def the_optimizer_gives_what_it_gives_on_the_cpu(session, host):
    for flat, none in ((False, True), (False, False), (True, False)):
        compare(host, session, flat=flat, none=none)
    compare(host, session, op=hvd.Sum, kind=lambda p: torch.optim.SGD(p, lr=0.01))
    compare(host, session, passes=3)
    compare(host, session, kind=lambda p: torch.optim.AdamW(p, lr=0.02))
    for half in (hvd.Compression.fp16, hvd.Compression.bf16):
        compare(host, session, compression=half, rtol=0.02, atol=0.005)


def updates_may_cross_the_barrier(session, host):
    for kind in (lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
                 lambda p: torch.optim.AdamW(p, lr=0.02, weight_decay=0.1)):
        compare(host, session, cross=True, kind=kind)
        with_barrier, crossing = train_optimizer(kind=kind), train_optimizer(cross=True, kind=kind)
        assert torch.equal(with_barrier, crossing)


def an_update_waits_for_the_backward_pass(session, _):
    """Which reads parameters on the stream of step(), late."""
    p = nn.Parameter(torch.zeros(1000))
    model = nn.Module()
    model.p = p
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p], lr=1.0), [("p", p)],
                                         cross_barrier=model)
    stream, read = double.Stream(), []
    p.grad = torch.ones(1000)
    optimizer._tally._arrived(p)
    stream.call(lambda: (time.sleep(0.05), read.append(p.detach().clone())))
    with gpu.on(stream):
        optimizer.step()
    optimizer.synchronize()
    assert (read[0] == 0).all() and (p == -1).all()
    optimizer.close()


def machines_may_differ(session, host):
    """The second one has the same gradients in host memory."""
    def train(session):
        model, hook = train_ddp(session)
        hook.close()
        total = hvd.allreduce(torch.full((5,), 1.0 * hvd.rank()), op=hvd.Sum)
        return torch.cat([parameters(model), train_optimizer(), total])

    with double.stopped(), mock.patch("tally.torch._world._here", host_calls(host)):
        want = train(host)
    with double.stopped() if session.rank >= 2 else contextlib.nullcontext():
        got = train(session)
    check_same(got, want, 1e-4, 1e-5)
    # tensors of one size here and there are two to one machine, and one to the other
    for on_host in (True, False, True):
        with double.stopped() if on_host or session.rank >= 2 else contextlib.nullcontext():
            assert (hvd.allreduce(torch.full((17,), 3.0)) == 3).all()


class Crosswise(nn.Module):
    """Two branches whose gradients come in another order on every other rank; one is sparse,
    one parameter is not contiguous, and one has no gradient on some ranks."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.left, self.right = nn.Linear(33, 70), nn.Linear(33, 70)
        self.table = nn.Embedding(20, 33, sparse=True)
        self.turned = nn.Parameter(torch.randn(5, 70).t())
        self.odd, self.even = nn.Linear(70, 70), nn.Linear(70, 70)

    def forward(self, x, rank, step):
        x = x + self.table(torch.arange(len(x)) * (rank + 1) % 20)
        turn = (rank + step) % 2
        branches = [self.left, self.right] if turn else [self.right, self.left]
        first, second = (branch(x) for branch in branches)
        return (self.odd if turn else self.even)(first + second) @ self.turned


def rounds_start_in_one_order(session, host):
    """Gradients come in different orders, and a bucket waits for its turn."""
    came, started = [], []

    def lossy(model, rank, step):
        x, y = batch(rank, step)
        return nn.functional.cross_entropy(model(x, rank, step), y)

    take, post = _optimizer.Gradients._take, _optimizer.Gradients._post

    def taken(self, p):
        came.append(self._names[p])
        take(self, p)

    def posted(self, bucket):
        started.append(bucket.name)
        post(self, bucket)

    with mock.patch.object(_optimizer.Gradients, "_take", taken), \
            mock.patch.object(_optimizer.Gradients, "_post", posted), \
            mock.patch.object(_optimizer, "BUCKET_BYTES", 1):
        compare(host, session, make=Crosswise, lossy=lossy, sparse_as_dense=True,
                kind=lambda p: torch.optim.SGD(p, lr=0.05))
    buckets = len(list(Crosswise().parameters()))
    steps = [started[i:i + buckets] for i in range(0, len(started), buckets)]
    assert len(steps) == 8 and all(sorted(s) == sorted(steps[0]) for s in steps), steps
    assert all(s == steps[4] for s in steps[4:]), steps
    orders = [None] * session.world_size
    dist.all_gather_object(orders, came[-buckets:])
    assert orders[0] != orders[1], "gradients came in one order: nothing was tested"


def an_optimizer_waits_for_streams(session, _):
    """Gradients that another stream than the step's writes, late."""
    p = nn.Parameter(torch.zeros(1000))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p], lr=1.0), [("p", p)])
    optimizer.flat_gradients()
    for step in range(3):
        stream, view, was = double.Stream(), p.grad, p.detach().clone()
        view.fill_(99)
        stream.call(lambda: (time.sleep(0.02), view.fill_(session.rank + step)))  # noqa: B023
        with gpu.on(stream):
            optimizer._tally._arrived(p)  # as autograd does, with that stream
        optimizer.step()
        mean = (session.world_size - 1) / 2 + step
        assert torch.allclose(p.detach(), was - mean)
    optimizer.close()


def a_model_may_change(session, _):
    model = mlp()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    for step in range(4):
        if step == 2:
            torch.manual_seed(5)
            model[4] = nn.Linear(65, 7)
            optimizer.param_groups[0]["params"] = list(model.parameters())
        optimizer.zero_grad(set_to_none=True)
        loss_of(model, hvd.rank(), step).backward()
        optimizer.step()
    same_on_all_ranks(parameters(model))
    optimizer.close()
    rig.meet()
    assert not any(name.startswith("optimizer") for name, _ in rig.tensors())
    rig.meet()


# ---- calls ----

def states_are_broadcast(session, _):
    torch.manual_seed(hvd.rank())
    state = {"f": torch.randn(3, 4).t(), "h": torch.randn(5).half(), "e": torch.empty(0),
             "b": torch.tensor([hvd.rank() == 0, False]), "c": torch.randn(2, dtype=torch.cfloat)}
    torch.manual_seed(0)
    want = {"f": torch.randn(3, 4).t(), "h": torch.randn(5).half(), "e": torch.empty(0),
            "b": torch.tensor([True, False]), "c": torch.randn(2, dtype=torch.cfloat)}
    hvd.broadcast_parameters(state)
    assert all(torch.equal(state[name], value) for name, value in want.items())
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


def small_calls(session, _):
    rank, world = hvd.rank(), hvd.size()
    total = sum(range(world))
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int8,
                  torch.uint8, torch.int32, torch.int64):
        t = torch.full((5,), rank).to(dtype)
        assert hvd.allreduce_(t, op=hvd.Sum) is t and (t == total).all(), dtype
    assert hvd.allreduce(torch.tensor([1.0 * rank])).item() == (world - 1) / 2
    t = torch.full((3, 2), rank, dtype=torch.int64).t()  # not contiguous
    assert hvd.allreduce_(t, op=hvd.Sum) is t and (t == total).all()
    t = torch.full((10,), rank)[::2]
    assert hvd.allreduce_(t, op=hvd.Sum) is t and (t == total).all()
    scaled = hvd.allreduce(torch.tensor([1.0 * rank]), op=hvd.Sum, prescale_factor=2.0,
                           postscale_factor=3.0)
    assert scaled.item() == 6 * total
    got = hvd.allreduce(torch.tensor([rank + 0.1]), compression=hvd.Compression.fp16)
    assert got.dtype == torch.float32 and abs(got.item() - (world - 1) / 2 - 0.1) < 0.01
    a, b = hvd.grouped_allreduce([torch.tensor(1.0 * rank), torch.tensor(2.0)], op=hvd.Sum)
    assert (a.item(), b.item()) == (total, 2.0 * world)
    handles = [hvd.allreduce_async_(torch.full((n,), 1.0 * rank), op=hvd.Sum)
               for n in (7, 7, 9, 7, 9, 300_000, 7)]
    if rank:  # in whatever order they are waited for
        handles.reverse()
    assert all((hvd.synchronize(h) == total).all() for h in handles)
    assert all(hvd.poll(h) for h in handles)
    assert hvd.allreduce(torch.empty(0)).numel() == 0
    rows = hvd.allgather(torch.full((rank + 1, 2), rank))
    assert rows[:, 0].tolist() == [r for r in range(world) for _ in range(r + 1)]
    assert hvd.broadcast(torch.tensor([rank]), world - 1).item() == world - 1
    t = torch.full((2, 3), 1.0 * rank).t()
    assert hvd.broadcast_(t, 1) is t and (t == 1).all()
    assert hvd.broadcast_object({"rank": rank}, 1) == {"rank": 1}
    assert hvd.allgather_object(rank) == list(range(world))
    x = torch.tensor([1.0 * rank], requires_grad=True)
    (hvd.allreduce(x, op=hvd.Sum) * (rank + 1)).backward()
    assert x.grad.item() == sum(range(1, world + 1))
    for n in range(70):  # more sizes than channels are kept
        assert (hvd.allreduce(torch.full((n,), 1.0)) == 1).all()
    hvd.barrier()


def a_call_waits_for_the_stream(session, _):
    """Of sums, which are made where the tensor is, and of broadcasts, which are not."""
    for call in (lambda t: hvd.allreduce_(t, op=hvd.Sum), lambda t: hvd.broadcast_(t, 1)):
        stream, t = double.Stream(), torch.full((1000,), 99.0)
        stream.call(lambda: (time.sleep(0.02), t.fill_(hvd.rank())))  # noqa: B023
        copies = mock.patch.object(torch.Tensor, "copy_", after(stream, torch.Tensor.copy_))
        with gpu.on(stream), copies:
            call(t)
        assert (t == (sum(range(hvd.size())) if call(torch.ones(1)).item() > 1 else 1)).all()


def after(stream, copy):
    """Copies as a GPU makes them, by its stream: behind what that holds."""
    def copied(*args, **kwargs):
        if gpu.current(None) is stream:
            stream.synchronize()
        return copy(*args, **kwargs)

    return copied


def misuse_is_an_error(session, _):
    model = mlp()
    raises(ValueError, r"limit of the session: .*round_timeout", lambda: hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1), timeout=5))
    ddp = DistributedDataParallel(mlp())
    ddp.register_comm_hook(None, hvd.ddp_comm_hook(session, timeout=5))
    raises(RuntimeError, "limit of the session: .*round_timeout",
           loss_of(ddp, session.rank, 0).backward)
    params = list(model.parameters())
    gpu.elsewhere.append(params[1])
    with mock.patch.object(_optimizer, "BUCKET_BYTES", 1):
        raises(ValueError, "a tensor is on cpu:1, and the session has cpu: a process has one GPU",
               hvd.DistributedOptimizer, torch.optim.SGD(params, lr=1))
    gpu.elsewhere.clear()
    t = torch.ones(3)
    gpu.elsewhere.append(t)
    raises(ValueError, "a process has one GPU", hvd.allreduce_, t)
    gpu.elsewhere.clear()
    raises(ValueError, "bool", hvd.allreduce, torch.ones(2).bool())


def main():
    rig.start_gloo(f"gloo-{'-'.join(sys.argv[1:])}")
    session, host = tally.Session(), tally.Session(job="in-host-memory")
    hvd.init(session)
    stories = [a_session_has_a_gpu, ddp_sums_buckets_where_they_are, ddp_sums_every_type,
               the_optimizer_gives_what_it_gives_on_the_cpu, updates_may_cross_the_barrier,
               machines_may_differ, rounds_start_in_one_order]
    if not EXACT:
        stories += [a_bucket_is_read_when_its_stream_has_written_it,
                    means_are_promised_before_others_have_begun, an_optimizer_waits_for_streams,
                    an_update_waits_for_the_backward_pass, a_model_may_change,
                    states_are_broadcast, small_calls, a_call_waits_for_the_stream,
                    misuse_is_an_error]
    named = [name for name in sys.argv[1:] if name != "exact"]
    for story in [s for s in stories if not named or s.__name__ in named]:
        story(*(session, host)[:story.__code__.co_argcount])
        rig.meet()
        print(f"rank {session.rank}: {story.__name__}", flush=True)
    host.detach()
    hvd.shutdown()
    dist.destroy_process_group()
    print("all well")


main()

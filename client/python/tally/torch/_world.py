# SPDX-License-Identifier: Apache-2.0
"""The process's place in the job and the calls that Horovod has beside its optimizer."""

import io
import math
import pickle
import threading

import torch

from .. import _session
from . import _memory
from ._collective import Collectives

Average, Sum = "mean", "sum"
DIMS_MAX = 8  # of a declared shape

_here = None  # the Collectives of this process


def init(session=None, timeout=None):
    """Joins the job, with everything taken from the environment, or uses that session.

    ``timeout`` in seconds is the limit for each of the calls below; None: the session's
    round_timeout.  Again it does nothing.
    """
    global _here
    if not is_initialized():
        _here = Collectives(session or _session.Session(), timeout)


def shutdown():
    """Leaves the job; harmless without init()."""
    global _here
    here, _here = _here, None
    if here:
        here.exchange.session.detach()


def is_initialized():
    """Between init() and shutdown()?"""
    return _here is not None


def _collectives():
    if _here is None:
        raise ValueError("Tally has not been initialized; use tally.torch.init().")
    return _here


def exchange():
    """The exchange of the process's session."""
    return _collectives().exchange


def rank():
    """This process's number in the job."""
    return _collectives().rank


def size():
    """Processes in the job."""
    return _collectives().world


def local_rank():
    """This process's number on its machine."""
    return exchange().session.local_rank


def local_size():
    """Processes of the job on this machine."""
    return exchange().session.local_size


def _wait(future):
    """The future's value; Ctrl-C ends the wait."""
    ended = threading.Event()
    future.add_done_callback(lambda _: ended.set())
    ended.wait()
    return future.value()


def _op(average, op):
    if average is not None:
        return Average if average else Sum
    return op or Average


def allreduce_(tensor, average=None, name=None, op=None):
    """The tensor becomes the mean (op=Sum: the sum) over all ranks; returns it."""
    del name  # tensors meet by the order of calls
    return _wait(_collectives().all_reduce(tensor, _op(average, op)))


def allreduce(tensor, average=None, name=None, op=None):
    """As allreduce_(), in a new tensor."""
    return allreduce_(tensor.detach().clone(), average, name, op)


def broadcast_(tensor, root_rank, name=None):
    """The tensor becomes that of root_rank; returns it."""
    del name
    return _wait(_collectives().broadcast(tensor, root_rank))


def broadcast(tensor, root_rank, name=None):
    """As broadcast_(), in a new tensor."""
    return broadcast_(tensor.detach().clone(), root_rank, name)


def allgather(tensor, name=None):
    """All ranks' tensors, one after the other in the first dimension, which may differ."""
    del name
    here = _collectives()
    tensor = tensor.detach().reshape(1) if tensor.dim() == 0 else tensor.detach()
    rows = torch.tensor([tensor.shape[0]])
    counts = [torch.empty_like(rows) for _ in range(here.world)]
    _wait(here.all_gather(counts, rows))
    parts = [tensor.new_empty((int(n), *tensor.shape[1:])) for n in counts]
    futures = [here.broadcast(tensor.clone() if r == here.rank else part, r)
               for r, part in enumerate(parts)]
    return torch.cat([_wait(f) for f in futures])


def barrier():
    """Returns when all ranks have called it."""
    _wait(_collectives().barrier())


def broadcast_object(obj=None, root_rank=0, name=None):
    """Root's object for everybody, by pickle."""
    data = torch.empty(0, dtype=torch.uint8)
    if rank() == root_rank:
        data = torch.frombuffer(bytearray(pickle.dumps(obj)), dtype=torch.uint8)
    length = broadcast_(torch.tensor([data.numel()]), root_rank)
    if rank() != root_rank:
        data = torch.empty(int(length), dtype=torch.uint8)
    broadcast_(data, root_rank, name)
    return obj if rank() == root_rank else pickle.load(io.BytesIO(data.numpy().tobytes()))


# ---- models and optimizers ----

def _described(name, tensor):
    """(name, shape, dtype) to declare: other types go as bytes, long shapes flat."""
    if tensor.dtype not in _memory.DTYPES:
        return name, [tensor.numel() * tensor.element_size()], torch.uint8
    shape = tensor.shape if tensor.dim() <= DIMS_MAX else [tensor.numel()]
    return name, list(shape), tensor.dtype


def _broadcast_all(named, root):
    """Every tensor becomes root's, all in flight together, then forgotten."""
    exch, timeout = exchange(), _collectives().timeout
    title = f"broadcast{exch.number('broadcast')}/"
    rows = [_described(name, tensor) for name, tensor in named]
    left, failed, ended = len(rows), [], threading.Event()

    def done(error):
        nonlocal left
        left -= 1
        failed.extend([error] if error else [])
        if not left:
            ended.set()

    def begin():
        channels = exch.declare(
            [((title + n)[-255:], s, _memory.DTYPES[d][0]) for n, s, d in rows]
        )
        blocks = [_memory.Block(exch.session, math.prod(s), d) for _, s, d in rows]
        for channel, block, (_, tensor) in zip(channels, blocks, named):
            if exch.rank == root:
                _memory.fill(block.tensor, tensor)
            array = block.array
            exch.start(channel, lambda t, a=array: t.broadcast(a, out=a, root=root), done, timeout)
        return channels, blocks

    def end(channels, blocks):
        if not failed and exch.rank != root:
            for block, (_, tensor) in zip(blocks, named):
                _memory.empty(block.tensor, tensor)
        exch.undeclare(channels)
        for block in blocks:
            block.free()

    if rows:
        channels, blocks = exch.call(begin)
        ended.wait()
        if failed:
            raise failed[0]
        exch.call(end, channels, blocks)


def broadcast_parameters(params, root_rank=0, prefix=None):
    """Everybody gets root's values: of a model.state_dict() or model.named_parameters()."""
    if isinstance(params, dict):
        named = sorted(params.items())
    elif isinstance(params, (list, tuple)) or hasattr(params, "__next__"):
        named = [p if isinstance(p, tuple) else (f"parameter{i}", p) for i, p in enumerate(params)]
    else:
        raise ValueError(f"invalid params of type: {type(params)}")
    start = prefix or ""
    named = [(start + name, p) for name, p in named if isinstance(p, torch.Tensor)]
    for name, tensor in named:
        _memory.check(tensor, name)
    _broadcast_all(named, root_rank)


class _Hole:
    """Where a tensor belongs in a state that travels without its tensors."""

    def __init__(self, tensor):
        self.shape, self.dtype = tensor.shape, tensor.dtype


def _walk(state, visit):
    """The state with visit(x) in place of everything that is no container."""
    if isinstance(state, dict):
        return {key: _walk(value, visit) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(_walk(value, visit) for value in state)
    return visit(state)


def broadcast_optimizer_state(optimizer, root_rank=0, prefix="optimizer."):
    """Everybody's optimizer gets root's state and options, those that it lacks, too."""
    state = optimizer.state_dict() if rank() == root_rank else None
    plan = state and _walk(state, lambda x: _Hole(x) if isinstance(x, torch.Tensor) else x)
    plan = broadcast_object(plan, root_rank)
    if rank() != root_rank:
        state = _walk(
            plan, lambda x: torch.empty(x.shape, dtype=x.dtype) if isinstance(x, _Hole) else x
        )
    tensors = []
    _walk(state, lambda x: tensors.append(x) if isinstance(x, torch.Tensor) else None)
    _broadcast_all([(f"{prefix}{i}", t) for i, t in enumerate(tensors)], root_rank)
    if rank() != root_rank:
        optimizer.load_state_dict(state)

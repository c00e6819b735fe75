# SPDX-License-Identifier: Apache-2.0
"""Collective calls on tensors, with Horovod's names.

What ends in _async returns a handle, for poll() and synchronize(); what ends in _ works on
the tensor itself.  Tensors with a name meet by it, in whatever order ranks submit them; those
without meet by the order of calls, which is the same on all ranks.  allreduce(),
grouped_allreduce(), allgather() and broadcast() are differentiable, the others are not.
"""

import io
import math
import numbers
import pickle

import numpy as np
import torch

from .. import _session
from . import _memory, _world

Average, Sum = "mean", "sum"
Min, Max, Product, Adasum = "min", "max", "product", "adasum"  # names only, to be refused


class Compression:
    """What travels: a tensor's own type, or a 16-bit one."""

    none = None
    fp16 = torch.float16
    bf16 = torch.bfloat16

    @staticmethod
    def check(compression):
        """Refuses what is none of these."""
        if compression not in (Compression.none, Compression.fp16, Compression.bf16):
            raise ValueError(f"compression is {compression!r}; there are Compression.none, "
                             "Compression.fp16 and Compression.bf16")


def check_kind(thing, right, takes):
    """A TypeError that says what the call takes, unless that is what it was given."""
    if not right:
        name = thing.__name__ if isinstance(thing, type) else type(thing).__name__
        what = f"the class {name}" if isinstance(thing, type) else f"a {name}"
        raise TypeError(f"{takes}, not {what}")


def check_optimizer(optimizer, call):
    """A TypeError, unless it is an optimizer."""
    right = hasattr(optimizer, "param_groups") and hasattr(optimizer, "state_dict")
    check_kind(optimizer, right, f"{call}() takes an optimizer of torch.optim")


def check_op(op):
    """The operation, or a ValueError: Tally adds."""
    if op not in (Average, Sum):
        raise ValueError(f"op is {op!r}; there are Average and Sum")
    return op


def around(dtype, op, before, after, world):
    """(before, op, after): how a sum of that type is made that has these factors around it.

    The factors of 16-bit types are one, after the mean, which is finite if it can be: a sum, or
    what goes into it, might not be.
    """
    if (before, after) == (1, 1):
        return 1, op, 1
    if dtype not in (torch.float16, torch.bfloat16):
        if op == Average and not dtype.is_floating_point:  # whose mean would be rounded before
            return before, Sum, after / world
        return before, op, after
    factor = before * after * (world if op == Sum else 1)
    return 1, Average, 1 if math.isclose(factor, 1) else factor


def check_factor(factor, what):
    """The factor as a float, or a ValueError."""
    if isinstance(factor, numbers.Real):
        return float(factor)
    raise ValueError(f"{what} is {factor!r}; it is a number")


def check_root(root):
    """The rank, or a ValueError."""
    if not isinstance(root, numbers.Integral) or not 0 <= root < _world.size():
        raise ValueError(f"no rank {root!r} to broadcast from; there are 0 to {_world.size() - 1}")
    return int(root)


def _scaled(tensor, factor):
    """The tensor, multiplied in place; whole numbers are cut towards zero, as by Horovod."""
    with torch.no_grad():
        if factor == 1:
            return tensor
        if tensor.is_floating_point():
            return tensor.mul_(factor)
        return tensor.copy_(tensor.double().mul_(factor))


def _tensor(value):
    """A tensor as it is; a new one of a NumPy array or a number."""
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, float):
        return torch.tensor(value, dtype=torch.float64)
    if isinstance(value, (numbers.Number, np.generic, np.ndarray)):
        value = np.array(value)
        return _from_numpy(value.astype(value.dtype.newbyteorder("=")))
    raise TypeError(f"a {type(value).__name__} is no tensor, array or number: objects go by "
                    "broadcast_object() and allgather_object()")


def _memory_of(value):
    """A tensor as it is, or one that is a NumPy array's memory."""
    if isinstance(value, torch.Tensor):
        return value
    if not isinstance(value, np.ndarray):
        raise TypeError(f"a {type(value).__name__} cannot be changed in place: there are calls "
                        "without _ at the end")
    if not value.flags.writeable:
        raise ValueError("the array is read-only, and cannot be changed in place")
    return _from_numpy(value)


def _from_numpy(array):
    try:
        return torch.from_numpy(array)
    except (TypeError, ValueError) as error:
        raise type(error)(f"an array of {array.dtype}: {error}") from None


def _op(average, op):
    if average is None:
        return check_op(Average if op is None else op)
    check_kind(average, isinstance(average, (bool, np.bool_, int)),
               "average is True or False, or left to op")
    if op is not None:
        raise ValueError("average and op are given; op alone says it")
    return Average if average else Sum


class Handle:
    """A call on its way: its futures, and what makes their values its result."""

    def __init__(self, futures, finish):
        self.futures, self._finish, self._value = futures, finish, None
        self._place = _session.place_text(_world.exchange().session)

    _kind, _instead = "handle of tally.torch", "synchronize() it here"
    __reduce__ = _session.Bound.__reduce__

    def __repr__(self):
        return f"<tally.torch handle, {'done' if self.done() else 'under way'}: {self._place}>"

    def done(self):
        """Would result() return at once?"""
        return all(future.done() for future in self.futures)

    def result(self):
        """Waits, then returns the result or raises what went wrong; again the same."""
        values = [_world.wait(future) for future in self.futures]
        if self._finish:
            self._value, self._finish = self._finish(values), None
        return self._value


def _check_handle(handle, call):
    check_kind(handle, isinstance(handle, Handle),
               f"{call}() takes the handle that a call with _async in its name returned")


def poll(handle):
    """Is the call done?  Then synchronize() returns at once."""
    _check_handle(handle, "poll")
    return handle.done()


def synchronize(handle):
    """Waits for the call and returns its result."""
    _check_handle(handle, "synchronize")
    return handle.result()


class _Through(torch.autograd.Function):
    """Tensors through do(tensors), gradients through back(gradients)."""

    @staticmethod
    def forward(ctx, do, back, *tensors):
        ctx.back = back
        return tuple(do(tensors))

    @staticmethod
    def backward(ctx, *grads):
        return (None, None, *ctx.back(grads))


# ---- sums and means ----

def _several(tensors):
    """The tensors of a grouped call, as a list."""
    right = hasattr(tensors, "__iter__") and not isinstance(tensors, (str, bytes, dict))
    check_kind(tensors, right, "a grouped call takes a list of tensors")
    return list(tensors)


def allreduce_async_(tensor, average=None, name=None, op=None, prescale_factor=1.0,
                     postscale_factor=1.0):
    """As allreduce_(), and returns a handle at once."""
    op, given, tensor = _op(average, op), tensor, _memory_of(tensor)
    factors = (check_factor(prescale_factor, "prescale_factor"),
               check_factor(postscale_factor, "postscale_factor"))
    _memory.check_summed(tensor, "a tensor to reduce")
    before, its, after = around(tensor.dtype, op, *factors, _world.size())
    said = "" if factors == (1, 1) else ", factors {:g} and {:g}".format(*factors)

    def finish(_):
        _scaled(tensor, after)
        return given

    return Handle([_world.collectives().all_reduce(_scaled(tensor, before), its, name, said)],
                  finish)


def allreduce_async(tensor, *args, **kwargs):
    """As allreduce_async_(), in a new tensor."""
    return allreduce_async_(_tensor(tensor).detach().clone(), *args, **kwargs)


def allreduce_(tensor, *args, **kwargs):
    """The tensor becomes the mean (op=Sum: the sum) over all ranks; returns it."""
    return synchronize(allreduce_async_(tensor, *args, **kwargs))


def grouped_allreduce_async_(tensors, average=None, name=None, *args, **kwargs):
    """As allreduce_async_(), for some tensors together; the result is a list."""
    tensors = _several(tensors)
    names = [name] if len(tensors) == 1 else [name and f"{name}.{i}" for i in range(len(tensors))]
    handles = [allreduce_async_(t, average, n, *args, **kwargs) for t, n in zip(tensors, names)]
    return Handle([f for h in handles for f in h.futures],
                  lambda _: [synchronize(h) for h in handles])


def grouped_allreduce_async(tensors, *args, **kwargs):
    """As grouped_allreduce_async_(), in new tensors."""
    copies = [_tensor(t).detach().clone() for t in _several(tensors)]
    return grouped_allreduce_async_(copies, *args, **kwargs)


def grouped_allreduce_(tensors, *args, **kwargs):
    """As allreduce_(), for some tensors together."""
    return synchronize(grouped_allreduce_async_(tensors, *args, **kwargs))


def grouped_allreduce(tensors, average=None, name=None, compression=Compression.none, op=None,
                      prescale_factor=1.0, postscale_factor=1.0):
    """As allreduce(), for some tensors together; a list of new tensors."""
    op = _op(average, op)
    Compression.check(compression)

    def reduce(tensors):
        wires = [compression if compression and t.is_floating_point() else t.dtype
                 for t in tensors]
        sent = [t.detach().to(wire, copy=True) for t, wire in zip(tensors, wires)]
        came = grouped_allreduce_(sent, None, name, op, prescale_factor, postscale_factor)
        return [c.to(t.dtype) for c, t in zip(came, tensors)]

    return list(_Through.apply(reduce, reduce, *map(_tensor, _several(tensors))))


def allreduce(tensor, average=None, name=None, compression=Compression.none, op=None,
              prescale_factor=1.0, postscale_factor=1.0):
    """The mean (op=Sum, or average=False: the sum) over all ranks, in a new tensor.

    The factors are multiplied with before and after; of 16-bit types that is one factor, after a
    mean made in float32, so that what can be finite is.  NumPy arrays and numbers are taken, too,
    here and in the other calls; a tensor comes back.
    """
    return grouped_allreduce([tensor], average, name, compression, op, prescale_factor,
                             postscale_factor)[0]


# ---- broadcasts and gathers ----

def broadcast_async_(tensor, root_rank, name=None):
    """As broadcast_(), and returns a handle at once."""
    future = _world.collectives().broadcast(_memory_of(tensor), check_root(root_rank), name)
    return Handle([future], lambda _: tensor)


def broadcast_async(tensor, root_rank, name=None):
    """As broadcast_async_(), in a new tensor."""
    return broadcast_async_(_tensor(tensor).detach().clone(), root_rank, name)


def broadcast_(tensor, root_rank, name=None):
    """The tensor becomes that of root_rank; returns it."""
    return synchronize(broadcast_async_(tensor, root_rank, name))


def broadcast(tensor, root_rank, name=None):
    """As broadcast_(), in a new tensor; root's gradient is the mean over all ranks."""
    mine = _world.rank() == check_root(root_rank)
    return _Through.apply(lambda t: [synchronize(broadcast_async(t[0], root_rank, name))],
                          lambda grads: [allreduce(grads[0]) * mine], _tensor(tensor))[0]


def _gather(tensor):
    """A handle, and the rows of its result that are this rank's.  Waits for their numbers."""
    here, tensor = _world.collectives(), _tensor(tensor)
    tensor = tensor.detach().reshape(1) if tensor.dim() == 0 else tensor.detach()
    rows = torch.tensor([tensor.shape[0]])
    counts = [torch.empty_like(rows) for _ in range(here.world)]
    counts = [int(n) for n in _world.wait(here.all_gather(counts, rows))]
    parts = [tensor.new_empty((n, *tensor.shape[1:])) for n in counts]
    futures = [here.broadcast(tensor.clone() if r == here.rank else part, r)
               for r, part in enumerate(parts)]
    first = sum(counts[: here.rank])
    return Handle(futures, torch.cat), slice(first, first + counts[here.rank])


def allgather_async(tensor, name=None):
    """As allgather(); returns a handle when all ranks have called this."""
    del name
    return _gather(tensor)[0]


def allgather(tensor, name=None):
    """All ranks' tensors, one after the other in the first dimension, which may differ.

    The gradient is this rank's part of the mean over all ranks.
    """
    del name
    mine, tensor = None, _tensor(tensor)

    def gather(tensors):
        nonlocal mine
        handle, mine = _gather(tensors[0])
        return [synchronize(handle)]

    return _Through.apply(gather, lambda grads: [allreduce(grads[0])[mine].reshape(tensor.shape)],
                          tensor)[0]


def _pickled(obj):
    return torch.frombuffer(bytearray(pickle.dumps(obj)), dtype=torch.uint8)


def _unpickled(data):
    return pickle.load(io.BytesIO(data.numpy().tobytes()))


def broadcast_object(obj=None, root_rank=0, name=None):
    """Root's object for everybody, by pickle."""
    mine = _world.rank() == check_root(root_rank)
    data = _pickled(obj) if mine else None
    length = broadcast_(torch.tensor([data.numel() if mine else 0]), root_rank)
    if not mine:
        data = torch.empty(int(length), dtype=torch.uint8)
    broadcast_(data, root_rank, name)
    return obj if mine else _unpickled(data)


def allgather_object(obj, name=None):
    """A list of all ranks' objects, by pickle."""
    data = _pickled(obj)
    lengths = allgather(torch.tensor([data.numel()]), name).tolist()
    return [_unpickled(part) for part in allgather(data, name).split(lengths)]

# SPDX-License-Identifier: Apache-2.0
"""Models and optimizers that become root's on every rank."""

import contextlib
import math
import threading

import numpy as np
import torch

from .. import _waits
from . import _device, _memory, _world
from ._calls import broadcast_object, check_kind, check_optimizer, check_root

DIMS_MAX = 8  # of a declared shape


def _described(number, name, tensor):
    """[name, shape, dtype, meaning] to declare: other types go as bytes, long shapes flat."""
    meaning = [f"{name} {_memory.kind(tensor.dtype)}{list(tensor.shape)}"]
    if tensor.dtype not in _memory.DTYPES:
        bytes_ = tensor.numel() * tensor.element_size()
        return [f"tensor{number}", [bytes_], torch.uint8, meaning]
    shape = tensor.shape if tensor.dim() <= DIMS_MAX else [tensor.numel()]
    return [f"tensor{number}", list(shape), tensor.dtype, meaning]


def _broadcast_all(named, root):
    """Every tensor becomes root's, all in flight together, then forgotten."""
    exch, timeout, root = _world.exchange(), _world.collectives().timeout, check_root(root)
    parcels = [_device.to_copy(tensor, exch.rank == root) for _, tensor in named]
    rows = [_described(i, name, tensor) for i, (name, tensor) in enumerate(named)]
    if rows:
        rows[-1][-1].append(f"the last of {len(rows)} tensors")
    left, failed, ended = len(rows), [], threading.Event()

    def done(error):
        nonlocal left
        left -= 1
        failed.extend([error] if error else [])
        if not left:
            ended.set()

    def begin():
        with exch.numbered("broadcast") as number:
            channels = exch.declare([(f"broadcast{number}/{n}", s, _memory.DTYPES[d][0], 0, m)
                                     for n, s, d, m in rows], timeout)
        arena = _device.in_arena(exch)
        blocks = [arena.block(math.prod(s), d) for _, s, d, _ in rows]
        for channel, block, parcel in zip(channels, blocks, parcels):
            if exch.rank == root:
                parcel.fill(block)
            exch.start(channel, lambda t, b=block: b.broadcast(t, root), done, timeout)
        return channels, blocks

    def end(channels, blocks):
        if not failed and exch.rank != root:
            for block, parcel in zip(blocks, parcels):
                parcel.empty(block)
        exch.undeclare(channels, timeout)
        for block in blocks:
            block.free()

    if rows:
        channels, blocks = exch.call(begin)
        with _waits.interruptible():
            ended.wait()
        if failed:
            raise failed[0]
        exch.call(end, channels, blocks)


def broadcast_parameters(params, root_rank=0, prefix=None):
    """Everybody gets root's values: of a model.state_dict() or model.named_parameters()."""
    if isinstance(params, dict):
        named = list(params.items())
    elif isinstance(params, (list, tuple)) or hasattr(params, "__next__"):
        named = [p if isinstance(p, tuple) else (f"parameter{i}", p) for i, p in enumerate(params)]
    else:
        raise ValueError(f"invalid params of type: {type(params)}; broadcast_parameters() takes "
                         "model.state_dict() or model.named_parameters()")
    start = prefix or ""
    check_kind(prefix, isinstance(start, str), "prefix is a str or None")
    if not all(len(pair) == 2 and isinstance(pair[0], str) for pair in named):
        raise TypeError("parameters are pairs of a name, which is a str, and a tensor")
    named = sorted(named, key=lambda pair: pair[0]) if isinstance(params, dict) else named
    named = [(start + name, torch.from_numpy(p) if isinstance(p, np.ndarray) else p)
             for name, p in named if isinstance(p, (torch.Tensor, np.ndarray))]
    for name, tensor in named:
        _memory.check(tensor, name)
    _broadcast_all(named, root_rank)


class _Hole:
    """Where a tensor belongs in a state that travels without its tensors."""

    def __init__(self, tensor):
        self.shape, self.dtype = tensor.shape, tensor.dtype
        self.stride = torch.empty_like(tensor, device="meta").stride()  # dense, in root's order

    def filled(self):
        """A tensor for it, of whatever values."""
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype)


def _walk(state, visit):
    """The state with visit(x) in place of everything that is no container."""
    if isinstance(state, dict):
        return {key: _walk(value, visit) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(_walk(value, visit) for value in state)
    return visit(state)


@contextlib.contextmanager
def loaded_in_place(optimizer):
    """What is loaded here goes to the groups and the state that others have, too.

    A DistributedOptimizer shares them with the optimizer that it was made of, and with a scheduler
    of that one, which would go on on some ranks only.
    """
    groups, state = optimizer.param_groups, optimizer.state
    yield
    if optimizer.param_groups is groups:
        return
    for group, new in zip(groups, optimizer.param_groups):
        group.clear()
        group.update(new)
    state.clear()
    state.update(optimizer.state)
    optimizer.param_groups, optimizer.state = groups, state


def broadcast_optimizer_state(optimizer, root_rank=0, prefix="optimizer."):
    """Everybody's optimizer gets root's state and options, those that it lacks, too."""
    check_optimizer(optimizer, "broadcast_optimizer_state")
    state = optimizer.state_dict() if _world.rank() == check_root(root_rank) else None
    plan = state and _walk(state, lambda x: _Hole(x) if isinstance(x, torch.Tensor) else x)
    plan = broadcast_object(plan, root_rank)
    if _world.rank() != root_rank:
        state = _walk(plan, lambda x: x.filled() if isinstance(x, _Hole) else x)
    tensors = []
    _walk(state, lambda x: tensors.append(x) if isinstance(x, torch.Tensor) else None)
    _broadcast_all([(f"{prefix}{i}", t) for i, t in enumerate(tensors)], root_rank)
    if _world.rank() != root_rank:
        with loaded_in_place(optimizer):
            optimizer.load_state_dict(state)

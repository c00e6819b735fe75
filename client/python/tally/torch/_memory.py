# SPDX-License-Identifier: Apache-2.0
"""Torch tensors and the arena: types, blocks, and moving tensors in and out."""

import contextlib

import numpy as np
import torch

# torch's type: (Tally's name, how NumPy holds it)
DTYPES = {
    torch.float32: ("float32", np.float32),
    torch.float64: ("float64", np.float64),
    torch.float16: ("float16", np.float16),
    torch.bfloat16: ("bfloat16", np.uint16),
    torch.int8: ("int8", np.int8),
    torch.uint8: ("uint8", np.uint8),
    torch.int32: ("int32", np.int32),
    torch.int64: ("int64", np.int64),
}


def kind(dtype):
    """The type as people write it: float32."""
    return str(dtype).replace("torch.", "")


def described(name, tensor):
    """A line that says what the tensor is: ranks compare it with their own."""
    line = f"{name} {kind(tensor.dtype)}{list(tensor.shape)}"
    return line if tensor.is_contiguous() else f"{line} with strides {list(tensor.stride())}"


def check(tensor, what):
    """Refuses what cannot be summed, in words; ``what`` names it."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{what} is a {type(tensor).__name__}, not a torch.Tensor")
    if tensor.device.type not in ("cpu", "cuda"):
        raise ValueError(
            f"{what} is on {tensor.device}: tally.torch exchanges tensors of the CPU and of "
            "CUDA's GPUs"
        )
    if tensor.layout != torch.strided:
        raise ValueError(
            f"{what} is sparse: make it dense (Embedding(sparse=False); for "
            "DistributedOptimizer also sparse_as_dense=True)"
        )


def check_summed(tensor, what):
    """check(), and that Tally can add its type."""
    check(tensor, what)
    if tensor.dtype not in DTYPES:
        known = ", ".join(str(d) for d in DTYPES)
        raise ValueError(f"{what} has type {tensor.dtype}; those that can be summed: {known}")


def as_bytes(tensor):
    """A contiguous tensor's memory as a flat tensor of uint8."""
    return tensor.detach().reshape(-1).view(torch.uint8)


class Arena:
    """Where blocks of the session's arena are made; its like for GPUs is _device.Gpu."""

    name = "arena"

    def __init__(self, session):
        self._session = session

    def block(self, count, dtype):
        """A new block."""
        return Block(self._session, count, dtype)

    for_parcels = block

    def over(self, tensor):
        """A block for what is in the tensor: it is copied, or moves."""
        return Block(self._session, tensor.numel(), tensor.dtype)

    def check_timeout(self, timeout):
        """Any will do."""


class Block:
    """A piece of the arena: ``tensor`` for torch, ``array`` for Tally, the same memory.

    Made and freed by the thread that owns the session.  On a GPU there is _device.Block; what
    does nothing here is of use there.
    """

    look_s = None  # as the exchange wants it
    stream = None  # behind which a result is in its place

    def __init__(self, session, count, dtype):
        held = DTYPES[dtype][1]
        self._session = session
        self.bytes = count * np.dtype(held).itemsize
        self._raw = session.empty(self.bytes, "uint8")
        self.array = self._raw.view(held)
        self.tensor = torch.from_numpy(self._raw).view(dtype)

    def lend(self, tensor):
        """Is the tensor's own memory the block's from now on?  Not in the arena."""
        return False

    def note(self):
        """The current stream has written to the block."""

    def moments(self):
        """What a round that begins at this moment has to wait for."""

    def sum(self, exchange, channel, moments, came, op, timeout, begin):
        """A round of what is in the block; came(error) when others may arrive()."""
        exchange.start(channel, lambda tensor: self.push_pull(tensor, op), came, timeout,
                       begin=begin)

    def push_pull(self, tensor, op):
        """Starts a round of the tensor, in place; a Ticket."""
        return tensor.push_pull(self.array, out=self.array, op=op)

    def broadcast(self, tensor, root):
        """As push_pull(): everybody gets what root has here."""
        return tensor.broadcast(self.array, out=self.array, root=root)

    def arrive(self):
        """Before a result is used that has come: by the current stream, that is."""

    def aside(self, moments):
        """A context in which a result is used beside what the current stream does, after moments;
        whoever uses what is made there calls its follow() first.
        """
        del moments
        return Aside()

    def evict(self, views):
        """Views of the block get memory of their own, as its own is about to go."""
        for view in views:
            view.data = view.clone()

    def free(self):
        """Gives the memory back; whoever uses it still must have been moved away."""
        self._session.free(self._raw)
        self.array = self.tensor = self._raw = None


class Aside(contextlib.AbstractContextManager):
    """See Block.aside(): in host memory all is done when the context ends."""

    def __exit__(self, *exc):
        return None

    def follow(self):
        """What was done aside is done, to the current stream."""


class Parcel:
    """Somebody's tensor, for a block: what goes in there, and comes out of it."""

    def __init__(self, tensor):
        self.tensor = tensor

    def fill(self, block):
        """The block has its values."""
        fill(block.tensor, self.tensor)

    def empty(self, block):
        """It has the block's."""
        empty(block.tensor, self.tensor)


class Promise:
    """A Future to be kept; one for tensors on GPUs is _device's."""

    def __init__(self):
        self.future = torch.futures.Future()

    def keep(self, value, stream=None):
        """The future's value; ``stream``: that is in its place when this has done what it holds."""
        del stream
        self.future.set_result(value)

    def fail(self, error):
        """Whoever waits for the future gets the error."""
        self.future.set_exception(error)


def fill(block, source):
    """A block's values become source's, or its bytes do."""
    if block.dtype == source.dtype:
        block.copy_(source.detach().reshape(-1))
    else:
        block.copy_(as_bytes(source.detach().contiguous()))


def empty(block, target):
    """And the other way, into whatever strides target has."""
    with torch.no_grad():
        target.copy_(block.view(target.dtype).view(target.shape))


def _like(view, old_base, new_base):
    """The part of new_base that view is of old_base: same place, sizes and strides."""
    offset = view.storage_offset() - old_base.storage_offset() + new_base.storage_offset()
    return new_base.as_strided(view.size(), view.stride(), offset)


def is_within(view, base):
    """Does the view's memory lie wholly in base, a flat tensor of the same type?"""
    if view is None or view.layout != torch.strided or view.dtype != base.dtype:
        return False
    # last element + 1, in base's elements; only dense tensors move here
    first = view.data_ptr() - base.data_ptr()
    return first >= 0 and first + view.numel() * view.element_size() <= (
        base.numel() * base.element_size()
    )


def move(base, views, new_base):
    """Makes base and its views live in new_base, for everybody who holds them.

    The tensors stay the same objects, in C++ too; only their memory is another.  The
    values come along.
    """
    with torch.no_grad():
        new_base.copy_(base)
        moved = [_like(v, base, new_base) for v in views]
        base.data = new_base
        for view, to in zip(views, moved):
            view.data = to


def move_out(base, views):
    """Moves them from the arena to memory of their own, e.g. before it goes away."""
    move(base, views, torch.empty(base.numel(), dtype=base.dtype))

# SPDX-License-Identifier: Apache-2.0
"""Collectives on any tensor, composed of Tally's two: the sum and the broadcast.

Every operation goes through a channel for its kind, type and number of elements, which
is declared when it is first needed and kept for the next time.  All ranks call the same
operations in the same order, so they declare and drop the same channels.  Operations on
different channels overlap; those on one channel follow each other.

Inputs are read, and outputs written, between the call and the end of its future.  On a GPU
both are done in the order of the current stream: what it holds at the call comes before, and
when the future has ended the host may go on.
"""

import collections
import math

import torch

from .._session import TallyTimeout
from . import _device, _memory
from ._exchange import Exchange

CHANNELS_MAX = 64  # kept for later use; in large jobs GATHERS_MAX for each rank
GATHERS_MAX = 4  # of other sizes, each with a channel for every rank
KEPT_BYTES_MAX = 256 << 20
DIMS_MAX = 8  # of a declared shape


class Collectives:
    """The operations of one session.

    strict: tensors of other types and shapes on another rank are EMISMATCH; else those of as many
    bytes will do, as in c10d.
    """

    def __init__(self, session, timeout=None, strict=False):
        self.exchange, self.timeout = Exchange.of(session), timeout
        self.rank, self.world = self.exchange.rank, self.exchange.world
        self._strict = strict
        self._name = f"op{self.exchange.number('op')}"
        self._session = self.exchange.session
        self._kept = collections.OrderedDict()  # (channel, {place: block}) by use, oldest first

    def all_reduce(self, tensor, op="sum"):
        """Sum or mean ("mean") over all ranks, in place; a Future of the tensor."""
        _memory.check_summed(tensor, "a tensor to reduce")
        parcel = _device.to_sum(tensor)
        place = _device.placed(tensor)
        return self._go("all_reduce", tensor, tensor, [
            ("sum", tensor.dtype, self._shape(tensor), place, parcel, parcel,
             lambda t, block: block.push_pull(t, op))])

    def broadcast(self, tensor, root=0):
        """Everybody's tensor becomes root's; a Future of it.  Any type."""
        return self._go("broadcast", tensor, tensor, [self._from(root, tensor, tensor, 0)])

    def all_gather(self, outputs, tensor):
        """outputs[r] becomes rank r's tensor; a Future of outputs."""
        if len(outputs) != self.world:
            raise ValueError(f"{len(outputs)} tensors to receive those of {self.world} ranks")
        rounds = [self._from(r, tensor, out, r) for r, out in enumerate(outputs)]
        return self._go("all_gather", outputs, tensor, rounds)

    def _shape(self, tensor):
        """As it is declared."""
        flat = not self._strict or tensor.dim() > DIMS_MAX
        return (tensor.numel(),) if flat else tuple(tensor.shape)

    def barrier(self):
        """A Future that is done when all ranks have called this."""
        return self.all_reduce(torch.zeros(1, dtype=torch.uint8))

    def _from(self, root, source, target, lane):
        """A round in which target gets root's source: bytes, so that any type will do."""
        _memory.check(source, "a tensor to send")
        _memory.check(target, "a tensor to receive")
        if (source.numel(), source.dtype) != (target.numel(), target.dtype):
            raise ValueError(f"{target.dtype} {tuple(target.shape)} cannot receive "
                             f"{source.dtype} {tuple(source.shape)}")
        what = torch.uint8, (target.numel() * target.element_size(),)
        if self._strict and target.dtype in _memory.DTYPES:
            what = target.dtype, self._shape(target)
        sent = _device.to_copy(source, True) if root == self.rank else None
        came = sent if source is target and sent else _device.to_copy(target, False)
        return (f"from{lane}", *what, _device.in_arena, sent, came,
                lambda t, block: block.broadcast(t, root))

    def _go(self, what, result, like, rounds):
        promise = _device.promise(like)
        self.exchange.post(self._start, promise, result, rounds, what, self._session._begin())
        return promise.future

    # ---- in the exchange's thread ----

    def _start(self, promise, result, rounds, what, begin):
        left, failed = len(rounds), None

        def ended(error):
            nonlocal left, failed
            left -= 1
            failed = failed or error
            if left:
                return
            self._session._add_span(f"{self._name}: {what}", begin)
            if failed:
                promise.fail(failed)
            else:
                promise.keep(result)

        if not rounds:
            promise.keep(result)
        for kind, dtype, shape, find_place, source, target, submit in rounds:
            try:
                channel, block = self._channel(kind, dtype, shape, find_place(self.exchange))
            except Exception as error:
                ended(error)
            else:
                self._round(channel, block, source, target, submit, ended)

    def _round(self, channel, block, source, target, submit, ended):
        def begin(tensor):
            if source is not None:
                with self._session.span(tensor.name, "copy"):
                    source.fill(block)
            return submit(tensor, block)

        def done(error):
            if not error:
                try:
                    with self._session.span(channel.tensor.name, "copy"):
                        target.empty(block)
                except Exception as why:  # memory, say
                    error = why
            ended(error)

        self.exchange.start(channel, begin, done, self.timeout, block.look_s)

    def _channel(self, kind, dtype, shape, place):
        """The channel, and its block in that place: another machine may use another place."""
        key = kind, dtype, shape
        if key not in self._kept:
            most = max(CHANNELS_MAX, GATHERS_MAX * self.world)
            self._drop_to(most - 1, KEPT_BYTES_MAX - bytes_of(key))
            try:
                with self.exchange.numbered(self._name) as made:
                    (channel,) = self.exchange.declare([(
                        f"{self._name}/{kind}.{made}", shape, _memory.DTYPES[dtype][0])],
                        self.timeout)
            except TallyTimeout as late:
                raise TallyTimeout(late.code, f"{late.text}, or has made this call with another "
                                   f"shape or type than {dtype} {tuple(shape)}") from None
            self._kept[key] = channel, {}
        self._kept.move_to_end(key)
        channel, blocks = self._kept[key]
        if place.name not in blocks:
            blocks[place.name] = place.for_parcels(math.prod(shape), dtype)
        return channel, blocks[place.name]

    def _drop_to(self, channels, bytes_):
        """Gives the longest unused back until so many are left, with so many bytes."""
        left, have = len(self._kept), sum(bytes_of(key) for key in self._kept)
        dropped = []
        for key in self._kept:
            if left <= channels and have <= bytes_:
                break
            dropped.append(key)
            left, have = left - 1, have - bytes_of(key)
        self.exchange.undeclare([self._kept[key][0] for key in dropped], self.timeout)
        for key in dropped:
            for block in self._kept.pop(key)[1].values():
                block.free()

    def drop(self):
        """Gives all of them back, as all ranks must."""
        self.exchange.call(self._drop_to, 0, 0)


def bytes_of(key):
    """Bytes of a channel's tensor, wherever its blocks are."""
    _, dtype, shape = key
    return math.prod(shape) * torch.empty(0, dtype=dtype).element_size()

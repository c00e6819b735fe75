# SPDX-License-Identifier: Apache-2.0
"""Collectives on any tensor, composed of Tally's two: the sum and the broadcast.

Every operation goes through a channel for its kind, type and number of elements, which
is declared when it is first needed and kept for the next time.  All ranks call the same
operations in the same order, so they declare and drop the same channels.  Operations on
different channels overlap; those on one channel follow each other.

An operation with a name has a channel of its own, which ranks may come to in any order.

Ranks that do not call the same operations are found out in two ways.  A channel is declared under
the number of the call, with what is called in words, which all ranks have to mean by it.  And a
rank whose call waits for long declares the call's number with those words: if another rank has
declared its own call of that number, or waits for it, too, the words are compared.

Inputs are read, and outputs written, between the call and the end of its future.  On a GPU
both are done in the order of the current stream: what it holds at the call comes before, and
when the future has ended the host may go on.
"""

import collections
import math

import torch

from .._session import TallyError, TallyTimeout
from . import _device, _memory
from ._exchange import Exchange

_EMISMATCH = -4
CHANNELS_MAX = 64  # kept for later use; in large jobs GATHERS_MAX for each rank
GATHERS_MAX = 4  # of other sizes, each with a channel for every rank
KEPT_BYTES_MAX = 256 << 20
NAMES_MAX = 4096  # of operations with a name
DOUBT_S = 0.3  # for which a call that waits asks what others call; more than half of the time
GIVE_BACK_TRIES = 5  # of what was declared to ask so
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
        self._named = {}  # by name {(dtype, shape): the same}; a list: who waits for it
        self._calls = 0  # operations without a name, so far
        self._agreed = 0  # the last of them of which all ranks are known to mean the same
        self._asked = []  # [channel, tries]: declared to find that out, and to be given back

    def all_reduce(self, tensor, op="sum", name=None, said=""):
        """Sum or mean ("mean") over all ranks, in place; a Future of the tensor.

        said: what else ranks compare of the call.
        """
        _memory.check_summed(tensor, "a tensor to reduce")
        parcel = _device.to_sum(tensor)
        place = _device.placed(tensor)
        shape = list(self._shape(tensor))
        words = f"all_reduce ({op}{said}) of {_memory.kind(tensor.dtype)}{shape}"
        return self._go("all_reduce", words, name, tensor, tensor, [
            ("sum", tensor.dtype, self._shape(tensor), place, parcel, parcel,
             lambda t, block: block.push_pull(t, op))])

    def broadcast(self, tensor, root=0, name=None):
        """Everybody's tensor becomes root's; a Future of it.  Any type."""
        return self._go("broadcast", f"broadcast from rank {root} of {self._said(tensor)}", name,
                        tensor, tensor, [self._from(root, tensor, tensor, 0)])

    def all_gather(self, outputs, tensor):
        """outputs[r] becomes rank r's tensor; a Future of outputs."""
        if len(outputs) != self.world:
            raise ValueError(f"{len(outputs)} tensors to receive those of {self.world} ranks")
        rounds = [self._from(r, tensor, out, r) for r, out in enumerate(outputs)]
        return self._go("all_gather", f"all_gather of {self._said(tensor)}", None, outputs, tensor,
                        rounds)

    def _said(self, tensor):
        """What is compared of a tensor whose bytes travel."""
        if self._strict and tensor.dtype in _memory.DTYPES:
            return f"{_memory.kind(tensor.dtype)}{list(self._shape(tensor))}"
        return f"{tensor.numel() * tensor.element_size()} bytes"

    def _shape(self, tensor):
        """As it is declared."""
        flat = not self._strict or tensor.dim() > DIMS_MAX
        return (tensor.numel(),) if flat else tuple(tensor.shape)

    def barrier(self):
        """A Future that is done when all ranks have called this."""
        tensor = torch.zeros(1, dtype=torch.uint8)
        parcel = _device.to_sum(tensor)
        return self._go("barrier", "barrier", None, tensor, tensor, [
            ("sum", tensor.dtype, (1,), _device.placed(tensor), parcel, parcel,
             lambda t, block: block.push_pull(t, "sum"))])

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

    def _go(self, what, words, name, result, like, rounds):
        if name is not None and not isinstance(name, str):
            raise TypeError(f"{what}: its name is a str or None, not a {type(name).__name__}")
        promise = _device.promise(like)
        self.exchange.post(self._start, promise, result, rounds, what, words, name,
                           self._session._begin())
        return promise.future

    # ---- in the exchange's thread ----

    def _start(self, promise, result, rounds, what, words, name, begin):
        left, failed = len(rounds), None
        if name is None:
            self._calls += 1
        call = self._calls

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
                place = find_place(self.exchange)
                if name is not None:
                    self._when_named((kind, name), dtype, shape, words, place, (
                        source, target, submit, ended), ended)
                    continue
                channel, block = self._channel(kind, dtype, shape, place, call, words)
            except Exception as error:
                ended(error)
            else:
                self._round(channel, block, source, target, submit, ended, words,
                            lambda: self._doubt(call, words))

    def _when_named(self, key, dtype, shape, words, place, round_, ended):
        """Starts the round in the channel of that name, as soon as all ranks have declared it.

        Another shape or type under the name has another channel.
        """
        kinds = self._named.setdefault(key, {})
        kept = kinds.get((dtype, shape))
        if isinstance(kept, tuple):
            self._in_named(kept, dtype, shape, words, place, round_)
            return
        if kept is not None:
            kept.append((dtype, shape, words, place, round_))
            return
        if sum(len(k) for k in self._named.values()) == NAMES_MAX:
            raise ValueError(f"{NAMES_MAX} names of operations are in use: take the same ones in "
                             "each step, or none")
        waiting = kinds[dtype, shape] = [(dtype, shape, words, place, round_)]

        def declared(channel, error):
            if error:
                del kinds[dtype, shape]
            else:
                kinds[dtype, shape] = channel, {}
            for *what, (source, target, submit, end) in waiting:
                try:
                    if error:
                        raise error
                    self._in_named(kinds[dtype, shape], *what, (source, target, submit, end))
                except Exception as why:
                    end(why)

        kind, name = key
        called = f"{self._name}/{kind}/{name}"[:240] + (f"/{len(kinds)}" if len(kinds) > 1 else "")
        self.exchange.declare_in_turn(
            (called, shape, _memory.DTYPES[dtype][0], 0, [words]), declared, self.timeout)

    def _in_named(self, kept, dtype, shape, words, place, round_):
        channel, blocks = kept
        if place.name not in blocks:
            blocks[place.name] = place.for_parcels(math.prod(shape), dtype)
        self._round(channel, blocks[place.name], *round_, words, None)

    def _doubt(self, call, words):
        """Why the call will never be done: another rank has made another one; None: who knows."""
        if call <= self._agreed:
            return None
        try:
            with self._session._patience(DOUBT_S):
                (asked,) = self.exchange.declare(
                    [(f"{self._name}/call{call}", (0,), "uint8", 0, [words])], 0)
        except TallyError as error:  # others than this one the round hears itself
            return self._in_words(error, call) if error.code == _EMISMATCH else None
        self._agreed = call
        self._asked.append([asked, 0])
        self._give_back()
        return None

    def _give_back(self):
        """Gives back what was declared to ask; a rank that has not heard of it may be missing."""
        for entry in list(self._asked):
            entry[1] += 1
            try:
                with self._session._patience(DOUBT_S):
                    self.exchange.undeclare([entry[0]], 0)
            except TallyTimeout:
                if entry[1] < GIVE_BACK_TRIES:
                    continue
            except TallyError:
                pass  # the job is over, which the round hears, too
            self._asked.remove(entry)

    def _in_words(self, error, call):
        """An error of a declaration, as one of the call that it was for."""
        text = error.text.replace(f"tensor '{self._name}/call{call}'", f"call {call} of this group")
        return error.saying(f"rank {self.rank}: {text}")

    def _round(self, channel, block, source, target, submit, ended, words, doubt):
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

        self.exchange.start(channel, begin, done, self.timeout, block.look_s, doubt=doubt,
                            what=words)

    def _channel(self, kind, dtype, shape, place, call, words):
        """The channel, and its block in that place: another machine may use another place."""
        key = kind, dtype, shape
        if key not in self._kept:
            most = max(CHANNELS_MAX, GATHERS_MAX * self.world)
            self._drop_to(most - 1, KEPT_BYTES_MAX - bytes_of(key))
            lane = "" if kind in ("sum", "from0") else f".{kind}"
            name = f"{self._name}/call{call}{lane}"
            try:
                (channel,) = self.exchange.declare(
                    [(name, shape, _memory.DTYPES[dtype][0], 0, [words])], self.timeout)
            except TallyTimeout as late:
                self._calls = min(self._calls, call - 1)  # the next try has the same number
                raise late.saying(f"rank {self.rank}: {words}: {late.text}") from None
            except TallyError as error:
                raise self._in_words(error, call) from None
            if not lane:
                self._agreed = max(self._agreed, call)
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

# SPDX-License-Identifier: Apache-2.0
"""A communication hook for DistributedDataParallel.

DDP hands its buckets over one by one while the backward pass runs, in the same order on
all ranks.  Each becomes a tensor of Tally with a block of the arena.  The first time a
bucket comes the exchange's thread declares it; from the second time on, where DDP lets
gradients be views of buckets, the bucket itself moves to the block, so that gradients are
written into the arena and read from there without a copy.  Else there is one copy in,
and DDP's own copy out.  On a GPU the bucket is the block: nothing is copied.

DDP rebuilds its buckets after the first step, in the order in which gradients came.  A
bucket that is not what it was is undeclared, its successor declared under a new name.
"""

import weakref
import zlib

import torch
import torch.distributed as dist

from .._session import Bound, Session, TallyError, TallyTimeout, check_time, place_text
from . import _device, _memory, _world
from ._calls import check_kind
from ._exchange import Exchange, last_word
from ._gradients import BUCKET_PARAMS


class _Slot:
    """One bucket's tensor and block, and which of DDP's tensors live there."""

    def __init__(self, session, channel, block):
        self._session, self.channel, self.block = session, channel, block
        self._base, self._views = None, ()

    def fits(self, buffer):
        return self.block.tensor.dtype == buffer.dtype and (
            self.block.tensor.numel() == buffer.numel()
        )

    def take(self, bucket, buffer):
        """The bucket's values are in the block afterwards, if need be by a copy."""
        if buffer.data_ptr() == self.block.tensor.data_ptr() or self.block.lend(buffer):
            return
        grads = [p.grad for p in bucket.parameters()]
        if all(_memory.is_within(g, buffer) for g in grads):
            self.move_out()
            _memory.move(buffer, grads, self.block.tensor)
            self._base, self._views = buffer, grads
        else:
            self.copy(buffer)

    def take_first(self, buffer):
        """take(), of a block that is new, and empty."""
        if not self.block.lend(buffer):
            self.copy(buffer)

    def copy(self, buffer):
        with self._session.span(self.channel.tensor.name, "copy"):
            self.block.tensor.copy_(buffer)

    def move_out(self):
        """DDP's tensors get memory of their own again."""
        if self._base is not None:
            _memory.move_out(self._base, self._views)
        self._base, self._views = None, ()


class _Hook(Bound):
    """The hook of one DDP model, with its buckets.  A model that is copied, as for averages of its
    parameters, has the same one.
    """

    _kind, _instead = "hook of ddp_comm_hook()", "save model.module.state_dict(), not the DDP model"

    def __copy__(self):
        return self

    def __deepcopy__(self, _memo):
        return self

    def __repr__(self):
        return f"<tally.torch ddp_comm_hook {self._name}: {place_text(self._session)}>"

    def __call__(self, _state, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        return self.sum(bucket)

    def __init__(self, exchange, timeout):
        self.__name__ = self.__qualname__ = "tally_hook"  # as a function's, which DDP asks for
        self._exchange, self._timeout = exchange, timeout
        self._name = f"ddp{exchange.number('ddp')}"
        self._slots = {}  # by the bucket's number; the exchange's thread adds to them at any time
        self._params, self._seen = set(), set()  # ids: of the last whole pass, and of this one
        self._pass = []  # the futures of this pass, so far
        self._next = 0  # the number of the bucket that comes next
        self._trouble = None  # why tensors could not be given back
        self._given_up = None  # what has ended a round
        self._session, self._begun = exchange.session, 0  # when the first bucket came
        exchange.at_close(self)

    def sum(self, bucket):
        """Starts the bucket's mean over all ranks; a Future of it."""
        self._exchange.check()
        if self._given_up:
            raise self._given_up
        index, buffer = bucket.index(), bucket.buffer()
        self._check_model(bucket)
        _memory.check_summed(buffer, f"{self._name}: bucket {index}")
        promise, begin = _device.promise(buffer), self._session._begin()
        slot = self._slots.get(index)
        if slot and slot.fits(buffer):
            slot.take(bucket, buffer)
            self._exchange.post(self._start, slot, slot.block.moments(), promise, begin)
        else:
            self._forget([index])
            moments = _device.moments(buffer)
            self._exchange.post(self._declare, index, self._meaning(bucket), buffer, moments,
                                promise, begin)
        self._begun = begin if index == 0 else self._begun
        if bucket.is_last():
            self._forget([i for i in list(self._slots) if i > index])
            self._session._add_span(f"{self._name}: backward, first to last bucket", self._begun)
        self._pass.append(promise.future)
        if bucket.is_last():
            futures, self._pass = self._pass, []
            # DDP waits for them in C++, where Ctrl-C is not heard: this comes before
            torch.autograd.Variable._execution_engine.queue_callback(
                lambda: [_world.ended(future) for future in futures])
        # an exception becomes one of C++'s, with its text
        return promise.future.then(lambda f: f.value())

    @staticmethod
    def _meaning(bucket):
        """What ranks compare of a bucket; DDP knows no names."""
        lines = [_memory.described(f"gradient {i}", p)
                 for i, p in enumerate(bucket.parameters())]
        if len(lines) > BUCKET_PARAMS:
            rest = " ".join(lines[BUCKET_PARAMS:]).encode()
            lines[BUCKET_PARAMS:] = [f"{len(lines) - BUCKET_PARAMS} more gradients, in short "
                                     f"{zlib.crc32(rest):08x}"]
        lines.append("mean" + (", the last bucket" if bucket.is_last() else ""))
        return lines

    def _check_model(self, bucket):
        """Of one model the buckets come by their numbers, with the same parameters each time."""
        params = {id(p) for p in bucket.parameters()}
        if bucket.index() != self._next or (self._params and not params <= self._params):
            raise ValueError(f"{self._name}: this hook averages another model: make one for each, "
                             "or close() it before its model is replaced")
        self._next += 1
        self._seen |= params
        if bucket.is_last():
            self._params, self._seen, self._next = self._seen, set(), 0

    def _forget(self, indices):
        """Gives the tensors of those buckets back."""
        slots = [self._slots.pop(i) for i in indices if i in self._slots]
        for slot in slots:
            slot.move_out()
        if slots:
            self._exchange.post(self._undeclare, slots)

    def move_out(self):
        """Everything of DDP's leaves the arena."""
        while self._slots:
            self._slots.popitem()[1].move_out()

    def __del__(self):
        self.move_out()  # p.grad outlives the hook, and nobody would move it when the session ends

    def synchronize(self):
        """Returns when every mean that DDP got is there, or raises what made one void."""
        self._exchange.settled()

    def close(self):
        """Gives all tensors back, as all ranks must; the hook may be used again."""
        self._exchange.call(lambda: None)  # a backward pass that failed may have begun some
        self._forget(list(self._slots))
        self._params, self._seen, self._next, self._pass = set(), set(), 0, []
        self._exchange.call(lambda: None)
        self._exchange.check()
        if self._trouble:
            raise self._trouble
        self._given_up = None

    # ---- in the exchange's thread ----

    def _undeclare(self, slots):
        try:
            self._exchange.undeclare([s.channel for s in slots], self._timeout)
            for slot in slots:
                slot.block.free()
        except TallyError as error:  # mostly the end of the job, which the next round meets, too
            self._trouble = error

    def _declare(self, index, meaning, buffer, moments, promise, begin):
        try:
            if self._trouble or self._given_up:
                raise self._trouble or self._given_up
            place = _device.place(self._exchange, buffer)
            place.check_timeout(self._timeout)
            dtype = _memory.DTYPES[buffer.dtype][0]
            with self._exchange.numbered(self._name) as made:
                # the later a bucket, the earlier its layers: the next forward pass wants them first
                (channel,) = self._exchange.declare([(
                    f"{self._name}/bucket{index}.{made}", (buffer.numel(),), dtype, index,
                    meaning)],
                    self._timeout)
            slot = _Slot(self._session, channel, place.over(buffer))
            slot.take_first(buffer)
            self._slots[index] = slot
        except Exception as error:
            if isinstance(error, TallyTimeout):
                self._give_up(last_word(error))
            promise.fail(error)
        else:
            self._start(slot, moments, promise, begin)

    def _start(self, slot, moments, promise, begin):
        block = slot.block
        # Nobody but DDP holds this object when the promise is kept: it may let go of it then, and
        # its gradients are to leave the arena at once, in its own thread.
        me = weakref.ref(self)

        def came(error):
            if error:
                buckets = me()
                if buckets:
                    buckets._give_up(last_word(error))
                promise.fail(error)
            else:
                promise.keep(block.tensor, block.stream)

        if self._given_up:  # meanwhile
            slot.move_out()
            promise.fail(self._given_up)
            return
        block.sum(self._exchange, slot.channel, moments, came, "mean", self._timeout, begin)

    def _give_up(self, error):
        """No bucket goes any more; rounds that go on keep the arena, and DDP leaves it."""
        self._given_up = self._given_up or error
        for slot in list(self._slots.values()):
            if slot.channel.rounds:
                slot.move_out()


def _check_group(session, group):
    """The process group whose model it is must be the session's job."""
    if not dist.is_initialized():
        return
    ranks, mine = dist.get_world_size(group), dist.get_rank(group)
    if (ranks, mine) != (session.world_size, session.rank):
        raise ValueError(
            f"this process is rank {mine} of {ranks} in the process group, but rank "
            f"{session.rank} of {session.world_size} in the Tally session: start both with "
            "the same ranks"
        )


def ddp_comm_hook(session, process_group=None, timeout=None):
    """A hook that lets Tally average the gradients of a DistributedDataParallel model.

        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
        model.register_comm_hook(None, tally.torch.ddp_comm_hook(session))

    Gradients become means over all ranks, as without a hook.  With
    ``gradient_as_bucket_view=True`` buckets move into the arena and are not copied.
    Types: those of Tally, also float16 and bfloat16.  Each model has a hook of its own.

    Buckets on a GPU are summed where they are.  The mean is there for what comes behind it on
    the stream of backward(); no thread waits for it, so when the job fails, parameters may have
    been updated with what is void.  The next backward() raises it, and ``hook.synchronize()``,
    which waits until all means are there: call that before a checkpoint is taken.

    ``process_group`` is the one given to DDP.  ``timeout`` in seconds is the limit for a
    bucket (None: the session's round_timeout, the only one there is on a GPU); then backward()
    raises an error that names tensor, rank and machine.  A model that is not trained any more
    gives its tensors back by ``hook.close()``, on all ranks.
    The session belongs to tally.torch from then on; ``session.detach()`` ends it.
    """
    check_kind(session, isinstance(session, Session), "ddp_comm_hook() takes a tally.Session")
    check_kind(process_group, isinstance(process_group, (dist.ProcessGroup, type(None))),
               "process_group is the one given to DistributedDataParallel, or None")
    _check_group(session, process_group)
    check_time(timeout)
    return _Hook(Exchange.of(session), timeout)

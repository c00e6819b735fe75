# SPDX-License-Identifier: Apache-2.0
"""Tensors on a GPU: whose memory a round uses, and who waits for whom.

All that tally.torch knows of GPUs is here, and what it uses of torch.cuda in one class,
Cuda, in whose place the tests put something else.  A process has one GPU, that of its
first tensor; the exchange's thread opens it, and has two streams there:

    ahead   waits for what users' streams held when they asked for rounds; each round waits
            for it, so kernels that come later hold no round up
    behind  waits for the results, one round after the other

and a third one, for updates that cross the barrier between steps.

Gradients: as soon as a round is on libtally's streams its result is promised, to whoever
waits for the stream behind; no thread waits.  If the job fails then, the streams go on,
and the exchange keeps the error for the next call: Exchange.check().

Calls on tensors end when the host has seen the result, or the error.  Sums are made in
the tensor's own memory.  Broadcasts and gathers, for which libtally has no way on GPUs,
are made in host memory: such a call waits until its tensor is copied there.

Memory is kept from the allocator by references, until the round is over.
"""

import math

import torch

from .._session import TallyError
from . import _memory
from ._exchange import SOON_S

_EIO = -18
_LOOK_S = 0.01  # between two looks at a round for which only streams wait


class Cuda:
    """What is used of torch.cuda."""

    def of(self, tensor):
        """The GPU that it is on, or None."""
        return tensor.device if tensor.is_cuda else None

    def open(self, session, device):
        """The session has that GPU afterwards, or another one that it was given before."""
        if session.gpu is None:
            session.gpu_open(device.index)
        return torch.device("cuda", session.gpu)

    def empty(self, count, dtype, device):
        return torch.empty(count, dtype=dtype, device=device)

    def stream(self, device):
        return torch.cuda.Stream(device)

    def current(self, device):
        return torch.cuda.current_stream(device)

    def under(self, stream):
        return torch.cuda.stream(stream)

    def used(self, tensor, stream):
        tensor.record_stream(stream)

    def pinned_like(self, tensor):
        return torch.empty_like(tensor, device="cpu", pin_memory=True)

    def future(self, device):
        return torch.futures.Future(devices=[device])

    def keep(self, future, value, stream):
        with torch.cuda.stream(stream):
            future.set_result(value)


cuda = Cuda()
_copiers = {}  # by device: a stream for copies between it and the host


def _copier(device):
    if device not in _copiers:
        _copiers[device] = cuda.stream(device)
    return _copiers[device]


class _Promise(_memory.Promise):
    """Of values on a GPU, which are there when a stream has come so far."""

    def __init__(self, device):
        self._device, self.future = device, cuda.future(device)

    def keep(self, value, stream=None):
        cuda.keep(self.future, value, stream or _copier(self._device))


class Gpu:
    """The GPU of an exchange, opened and used by its thread."""

    name = "gpu"

    def __init__(self, session, device):
        self.device = cuda.open(session, device)
        self.ahead, self.behind, self.beside = (cuda.stream(self.device) for _ in range(3))

    def check(self, device):
        """A process has one GPU."""
        if device != self.device:
            raise ValueError(f"a tensor is on {device}, and the session has {self.device}: a "
                             "process has one GPU, and a model on several is none for Tally")

    def block(self, count, dtype):
        """A new block, of memory that nobody uses any more."""
        memory = cuda.empty(count, dtype, self.device)
        cuda.current(self.device).synchronize()
        return Block(self, memory)

    def for_parcels(self, count, dtype):
        """A block that will be the memory of whoever fills it."""
        del count, dtype
        return Block(self, None)

    def over(self, tensor):
        """A block that is the tensor's memory."""
        return Block(self, tensor)

    def check_timeout(self, timeout):
        """A stream that waits can be called back by libtally alone."""
        if timeout is not None:
            raise ValueError("gradients on a GPU have the limit of the session: give the timeout "
                             "to tally.Session(round_timeout=...)")

    def start(self, tensor, memory, moments, op):
        """Puts a round of the tensor on the GPU, in place; a Ticket."""
        for moment in moments:
            self.ahead.wait_event(moment)
        at = memory.data_ptr()
        return tensor.gpu_push_pull(at, at, self.ahead.cuda_stream, op)


class _Landing:
    """In place of the Ticket of a round for which only streams wait."""

    def __init__(self, session, came):
        self._session, self._came = session, came

    def test(self):
        """Is the result there?  If it is, and the job had not ended before, it is right."""
        try:
            if not self._came.query():
                return False
        except RuntimeError as error:  # the GPU's
            raise TallyError(_EIO, str(error)) from error
        self._session._check_live()
        return True


class Block:
    """Memory on the GPU, for rounds of one channel; as _memory.Block, see there."""

    look_s = SOON_S

    def __init__(self, gpu, tensor):
        self._gpu, self.tensor, self.stream = gpu, tensor, gpu.behind
        self._writers = {}  # streams, by their handles
        self._sent = ()
        self._came = None  # the event of the last round's result

    def lend(self, tensor, moments=()):
        """The tensor's memory is the block's; a push_pull() waits for those moments."""
        self.tensor, self._sent = tensor, moments
        return True

    def note(self):
        stream = cuda.current(self._gpu.device)
        self._writers[stream.cuda_stream] = stream

    def moments(self):
        if not self._writers:
            self.note()
        streams, self._writers = self._writers.values(), {}
        return [stream.record_event() for stream in streams]

    def sum(self, exchange, channel, moments, came, op, timeout, begin):
        """came() when the round is on its way: its result is there for who arrives."""
        del timeout  # check_timeout()
        memory, promised = self.tensor, []

        def submit(tensor):
            ticket = self._gpu.start(tensor, memory, moments, op)
            ticket.gpu_wait(self.stream.cuda_stream)
            self._came = self.stream.record_event()
            came(None)
            promised.append(True)
            return _Landing(exchange.session, self._came)

        def done(error):
            if not promised:
                exchange.heard()
                came(error)
            elif error:
                exchange.fail(error)

        exchange.start(channel, submit, done, math.inf, _LOOK_S, begin)

    def push_pull(self, tensor, op):
        return self._gpu.start(tensor, self.tensor, self._sent, op)

    def arrive(self):
        if self._came:
            stream = cuda.current(self._gpu.device)
            stream.wait_event(self._came)
            cuda.used(self.tensor, stream)

    def aside(self, moments):
        return _Aside(self._gpu, moments)

    def evict(self, views):
        """They may stay: the memory is torch's, and goes when nobody has it any more."""

    def free(self):
        self.tensor = None


class _Aside(_memory.Aside):
    """On the stream beside, which does one after the other."""

    def __init__(self, gpu, moments):
        self._gpu, self._moments, self._done = gpu, moments, None

    def __enter__(self):
        for moment in self._moments:
            self._gpu.beside.wait_event(moment)
        self._under = cuda.under(self._gpu.beside)
        self._under.__enter__()
        return self

    def __exit__(self, *exc):
        self._under.__exit__(*exc)
        self._done = self._gpu.beside.record_event()

    def follow(self):
        cuda.current(self._gpu.device).wait_event(self._done)


class _Lent:
    """A tensor that is summed where it is, or a contiguous copy of it."""

    def __init__(self, tensor):
        self._tensor, self._device = tensor.detach(), cuda.of(tensor)
        self._flat = self._tensor.reshape(-1).contiguous()
        self._ready = cuda.current(self._device).record_event()

    def fill(self, block):
        block.lend(self._flat, [self._ready])

    def empty(self, block):
        block.lend(None)
        if self._flat.data_ptr() != self._tensor.data_ptr():
            copier = _copier(self._device)
            with cuda.under(copier):
                self._tensor.copy_(self._flat.view(self._tensor.shape))
            copier.synchronize()


class _Staged(_memory.Parcel):
    """A tensor that travels through host memory."""

    def __init__(self, tensor, sends):
        super().__init__(cuda.pinned_like(tensor))
        self._there, self._device = tensor.detach(), cuda.of(tensor)
        self._ready = cuda.current(self._device).record_event()
        if sends:
            self.tensor.copy_(self._there)

    def empty(self, block):
        super().empty(block)
        copier = _copier(self._device)
        copier.wait_event(self._ready)
        with cuda.under(copier):
            self._there.copy_(self.tensor, non_blocking=True)
        copier.synchronize()


# ---- what is chosen by where a tensor is ----

def in_arena(exchange):
    """The place of blocks in the arena."""
    return _memory.Arena(exchange.session)


def _on_gpu(exchange, device):
    if exchange.gpu is None:
        exchange.gpu = Gpu(exchange.session, device)
    exchange.gpu.check(device)
    return exchange.gpu


def placed(tensor):
    """A function of the exchange, for its thread: the place of blocks for such tensors."""
    device = cuda.of(tensor)
    return in_arena if device is None else lambda exchange: _on_gpu(exchange, device)


def place(exchange, tensor):
    """That place; called by the exchange's thread."""
    return placed(tensor)(exchange)


def to_sum(tensor):
    """A parcel for push_pull(), of a tensor that the caller has written."""
    return _memory.Parcel(tensor) if cuda.of(tensor) is None else _Lent(tensor)


def to_copy(tensor, sends):
    """A parcel for blocks of the arena; sends: what the tensor has is asked for."""
    return _memory.Parcel(tensor) if cuda.of(tensor) is None else _Staged(tensor, sends)


def moments(tensor):
    """What a round of it that begins at this moment has to wait for."""
    device = cuda.of(tensor)
    return None if device is None else [cuda.current(device).record_event()]


def promise(tensor):
    """A promise of such tensors."""
    return _memory.Promise() if cuda.of(tensor) is None else _Promise(cuda.of(tensor))


def finish(tensor):
    """What the current stream does to such a tensor is done afterwards."""
    if cuda.of(tensor) is not None:
        cuda.current(cuda.of(tensor)).synchronize()

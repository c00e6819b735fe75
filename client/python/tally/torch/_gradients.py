# SPDX-License-Identifier: Apache-2.0
"""The gradients of an optimizer's parameters: gathered as they come, summed, given back.

Parameters are put together in buckets, the last ones first, as that is the order in which
gradients come.  A bucket is one tensor of Tally and one block of the arena; each of its
parameters has a view.  When autograd has accumulated the last gradient of a bucket, the
bucket's round starts.  After the round p.grad is that view: a gradient that stays from
step to step (zeroed, not None) is from then on written to the arena directly.  Of
parameters on a GPU the block is there; such rounds start in the order of buckets, on all
ranks, in whatever order gradients come.

The parameters' shapes, types and number may change between steps.  The first gradient
of a step finds that out; then nothing is sent until synchronize(), which gives the old
tensors back, declares new ones, and sends everything.
"""

import collections
import threading
import weakref
import zlib

import torch

from .._session import TallyError
from . import _device, _memory
from ._calls import around
from ._exchange import last_word
from ._vote import Vote

BUCKET_BYTES = 1 << 20  # a bucket is sent as a whole: small enough to overlap
BUCKET_PARAMS = 100  # and has no more of them, so that what it stands for can be said
NAME_SHOWN = 90  # of a parameter's, where ranks compare them


class Bucket:
    """Some parameters whose gradients travel together."""

    def __init__(self, number, params, names, wire, scale):
        self.params, self.names, self.wire = params, names, wire
        self._before, self.op, self._after = scale
        self.count = sum(p.numel() for p in params)
        self.name = f"bucket{number}"
        self.members = [_memory.described(shown(n), p) for n, p in zip(names, params)]
        self.missing = set(params)  # no gradient yet in this step
        self.full = self.sent = False
        self.ended = threading.Event()
        self.error = self.channel = self.block = None
        self.views, self._places = {}, {}

    def place(self, channel, block):
        """Gets what was declared for it."""
        self.channel, self.block, at = channel, block, 0
        for p in self.params:
            part = block.tensor[at : at + p.numel()]
            # strides as autograd's gradients have them: fused optimizers go by memory
            view = part.as_strided(p.shape, p.stride()) if fills(p) else part.view(p.shape)
            self._places[p] = view
            self.views[p] = view.data  # no view to torch: p.grad.detach_() works, and each of
            # them counts its own writes
            at += p.numel()

    def view(self, p):
        """The parameter's part of the block, also if a script gave the last one other memory."""
        place = self._places[p]
        if self.views[p].data_ptr() != place.data_ptr():
            self.views[p] = place.data
        return self.views[p]

    def take(self, p, dense):
        """The parameter's gradient is in the block afterwards, as it is to be summed."""
        self.load(p, dense)
        if self._before != 1:
            self.views[p].detach().mul_(self._before)

    def load(self, p, dense):
        """The parameter's gradient is in the block afterwards; none counts as zeros."""
        view, grad = self.view(p), p.grad
        grad = None if grad is None else grad.detach()  # create_graph=True: it has a graph
        self.missing.discard(p)
        if grad is None:
            view.zero_()
        elif grad.layout != torch.strided and dense:
            view.copy_(grad.to_dense())
        else:
            _memory.check(grad, "a gradient")
            if grad.data_ptr() != view.data_ptr():
                view.copy_(grad)
        self.block.note()

    def give(self):
        """What the round brought becomes the parameters' gradients."""
        self.block.arrive()
        if self._after != 1:
            self.block.tensor.mul_(self._after)
        self.show()

    def show(self):
        """What is in the block becomes the parameters' gradients."""
        for p in self.params:
            view = self.view(p)
            if p.dtype != self.wire:
                p.grad = view.to(p.dtype)
            elif p.grad is not view:
                p.grad = view

    def begin(self):
        """A new step: nothing has come yet."""
        self.missing, self.error = set(self.params), None
        self.full = self.sent = False
        self.ended.clear()

    def move_out(self):
        """The views get memory of their own; who holds them keeps the values."""
        if self.block:
            self.block.evict(self.views.values())
            self.views, self._places = {}, {}


class Gradients:
    """See above.  All ranks have the same parameters in the same order."""

    REMEDY = ("call optimizer.synchronize() after backward(), then change gradients, and step() "
              "within optimizer.skip_synchronize()")

    def __init__(self, exchange, groups, names, options):
        self.exchange, self._groups, self._names, self._options = exchange, groups, names, options
        self._hooks = {}  # parameter: what keeps its hook alive, and what removes it
        self.handles = []  # what removes hooks, those of models, too
        weakref.finalize(self, remove, self.handles).atexit = False
        self._left = {}  # parameter: backward passes to come before it is sent
        self.buckets, self._built, self._bucket_of = [], None, {}
        self._line = collections.deque()  # buckets whose rounds are yet to start in this order
        self._checked = self._stale = False  # the signature, in this step; it has changed
        self.busy = False  # a gradient of this step has been taken
        self._trouble = None  # why there are no more steps until these tensors are given back
        self._vote = Vote(exchange, options)
        self.late = False  # step() does not wait for all ranks, nor hear what they have voted
        self.summed = False  # p.grad of all parameters are the sums, as none has come since
        self._session, self._begun = exchange.session, 0  # when the first one came
        with exchange.numbered("optimizer") as number:
            self._title = f"optimizer{number}"
            self._build()
        exchange.at_close(self)

    # ---- which parameters ----

    def _params(self):
        return [p for g in self._groups() for p in g["params"] if p.requires_grad]

    def _signature(self):
        return [(id(p), p.shape, p.stride(), p.dtype, p.device) for p in self._params()]

    def _wire(self, p):
        squeeze = self._options.compression
        return squeeze if squeeze and p.dtype.is_floating_point else p.dtype

    def _scale(self, wire):
        """(factor before, sum or mean, factor after) of gradients that travel as that type."""
        options = self._options
        return around(wire, options.op, options.before, options.after, self.exchange.world)

    def _name(self, p, number):
        return self._names.get(p, f"parameter{number}")

    def _grouped(self):
        """((wire type, device), [(parameter, name)]) per bucket, the last parameters first."""
        groups, size = [], 0
        for number, p in reversed(list(enumerate(self._params()))):
            name, wire = self._name(p, number), self._wire(p)
            _memory.check_summed(p.detach(), f"parameter {name}")
            bytes_ = p.numel() * p.element_size()
            kind = wire, p.device
            if groups and groups[-1][0] == kind and len(groups[-1][1]) < BUCKET_PARAMS and (
                    0 < size + bytes_ <= self._options.bucket_bytes):
                groups[-1][1].append((p, name))
                size += bytes_
            else:
                groups.append((kind, [(p, name)]))
                size = bytes_
        return groups

    def _build(self):
        """Buckets for the parameters as they are; the old ones go."""
        self.drop()
        self._built = self._signature()
        self.buckets = [
            Bucket(i, [p for p, _ in members], [n for _, n in members], wire, self._scale(wire))
            for i, ((wire, _), members) in enumerate(self._grouped())
        ]
        self._bucket_of = {p: b for b in self.buckets for p in b.params}
        self.set_passes(self._options.passes)
        try:
            with self.exchange.numbered(self._title) as made:
                self.exchange.call(self._declare, self.buckets, f"{self._title}.{made}/")
        except BaseException:  # the next step tries again
            self._forget()
            raise
        self._line_up()
        self._hook_all()

    def _hook_all(self):
        """The parameters of buckets are hooked, and no others."""
        for p in [p for p in self._hooks if p not in self._bucket_of]:
            self._unhook(p)
        for p in self._bucket_of:
            held, handle = self._hooks.get(p, (None, None))
            now = gradient_hook(p)
            if held is now:
                continue
            if handle:  # a parameter of another type has another one
                self._unhook(p)
            self._hooks[p] = now, register(p, now, Weak(self._arrived))
            self.handles.append(self._hooks[p][1])

    def _unhook(self, p):
        handle = self._hooks.pop(p)[1]
        self.handles.remove(handle)
        handle.remove()

    def _declare(self, buckets, title):
        places = [_device.place(self.exchange, b.params[0]) for b in buckets]
        for place in places:
            self.check_place(place)
        rows = [
            # the first layers have the last buckets, and the next forward pass wants them first
            (title + b.name, (b.count,), _memory.DTYPES[b.wire][0], i, self._meaning(buckets, i))
            for i, b in enumerate(buckets)
        ]
        if not rows:
            return
        rows.append(self._vote.row(title, [n for b in buckets for n in b.names]))
        *channels, vote = self.exchange.declare(rows, self._options.timeout)
        self._vote.place(vote)
        for bucket, place, channel in zip(buckets, places, channels):
            bucket.place(channel, place.block(bucket.count, bucket.wire))

    def _meaning(self, buckets, i):
        """What ranks compare of bucket i: its parameters, whose gradients become what, the end."""
        options = self._options
        factors = "" if (options.before, options.after) == (1, 1) else (
            f" with factors {options.before:g} and {options.after:g}")
        what = f"{options.op} of {_memory.kind(buckets[i].wire)}{factors}"
        last = i == len(buckets) - 1
        end = f"the last of {sum(len(b.params) for b in buckets)} parameters"
        return [*buckets[i].members, what, *([end] if last else [])]

    def check_place(self, place):
        """An error if these gradients cannot be summed there."""
        place.check_timeout(self._options.timeout)

    def _line_up(self):
        self._line = collections.deque(b for b in self.buckets if b.block.look_s)
        self.late = bool(self._line)

    def drop(self):
        """Gives all tensors back, as all ranks must; gradients keep their values."""
        self._vote.let_go()
        for bucket in self.buckets:
            if bucket.sent:
                bucket.ended.wait()
            bucket.move_out()
        try:
            if self.buckets:
                self.exchange.call(self._undeclare, self.buckets)
        except TallyError as error:  # to be called again
            self._trouble = self._trouble or error
            raise
        except BaseException:  # Ctrl-C
            self._forget()
            raise
        self._forget()
        self._trouble = None

    def _undeclare(self, buckets):
        channels = [b.channel for b in buckets] + self._vote.channels()
        self.exchange.undeclare(channels, self._options.timeout)
        self._vote.free()
        for bucket in buckets:
            bucket.block.free()

    def _forget(self):
        """Gradients leave the arena; what was declared is forgotten, and a step begins anew."""
        self._vote.forget()
        for bucket in self.buckets:
            bucket.move_out()
        self.buckets, self._built, self._bucket_of, self._left = [], None, {}, {}
        self._checked = self._stale = self.busy = False

    def let_go(self):
        """Parameters, and models, are as if nobody had ever hooked them."""
        self._hooks = {}
        remove(self.handles)

    def close(self):
        """drop() and let_go(); another step begins anew."""
        try:
            self.drop()
        finally:
            self.let_go()

    def move_out(self):
        """The session is about to end, and the arena with it."""
        self._forget()
        self.let_go()

    def __del__(self):
        self._forget()  # p.grad outlives this, and nobody would move it when the session ends

    def set_passes(self, passes):
        """So many backward passes come before gradients are sent; counts from here."""
        self._options.passes = passes
        self._left = {p: passes for p in self._bucket_of}

    # ---- one step ----

    def _arrived(self, p):
        """Autograd has accumulated p.grad."""
        if p not in self._left:
            return  # of a parameter that is no more, or not yet, among the buckets'
        self.summed = False
        self._check()
        if self._left[p] <= 0:
            raise AssertionError(
                "Gradients were computed more than backward_passes_per_step times before call "
                "to step(). Increase backward_passes_per_step to accumulate gradients locally."
            )
        self._left[p] -= 1
        if self._left[p] == 0 and not self._stale:
            self._take(p)

    def _take(self, p):
        bucket = self._bucket_of[p]
        if not self.busy:
            self.busy, self._begun = True, self._session._begin()
        with self._session.span(bucket.name, "copy"):
            bucket.take(p, self._options.sparse_as_dense)
        if p.grad is not None:
            self._vote.note(p)
        if not bucket.missing:
            self._send(bucket)

    def _send(self, bucket):
        """The bucket has all that it will have; its round starts when its turn has come."""
        bucket.full = True
        if not bucket.block.look_s:
            self._post(bucket)
        while self._line and self._line[0].full:
            self._post(self._line.popleft())

    def _post(self, bucket):
        bucket.sent = True
        self.exchange.post(self._start, bucket, bucket.block.moments(), self._session._begin())

    def _start(self, bucket, moments, begin):
        def came(error):
            bucket.error = error
            self.ended(bucket)

        bucket.block.sum(self.exchange, bucket.channel, moments, came, bucket.op,
                         self._options.timeout, begin)

    def ended(self, bucket):
        """A bucket's round is over, or its result promised; called in the exchange's thread."""
        bucket.ended.set()

    def _check(self):
        """Finds out, once in a step, whether the parameters are what they were."""
        if self._trouble:
            raise self._trouble
        if not self._checked:
            self._checked, self._stale = True, self._signature() != self._built

    def send_rest(self):
        """Whatever has not been sent in this step is: the gradient as it is, or zeros."""
        self._check()
        if self._stale:
            self._build()
            self._stale = False
        if self.buckets:
            self._heed()  # of the step before
            self._vote.begin(p for b in self.buckets for p in b.params)
        for bucket in self.buckets:
            for p in list(bucket.missing):
                self._take(p)
        self._session._add_span(f"{self._title}: backward, first to last gradient", self._begun)

    def synchronize(self):
        """Returns when every gradient is the sum or mean over all ranks."""
        self.send_rest()
        with self._session.span(f"{self._title}: step waits"):
            for bucket in self.buckets:
                bucket.ended.wait()
            gone = None if self.late and not self._vote.mine else self._vote.wait()
        failed = [b.error for b in self.buckets if b.error] + ([gone] if gone else [])
        for bucket in self.buckets:
            if not bucket.error:
                bucket.give()
        self.begin_step()
        if failed:
            self._trouble = last_word(failed[0])
            for bucket in self.buckets:  # a round that goes on keeps the arena
                bucket.move_out()
            raise failed[0]
        if not self.late or self._vote.mine:
            self._heed()
        self.exchange.check()
        self.summed = True

    def _heed(self):
        """Raises what the last vote has found, once; where parameters may have been updated
        since, there are no more steps until close().
        """
        error, changed = self._vote.wait(), self._vote.changed()
        if error and not self.late:  # else the gradients' own rounds tell it
            raise error
        if not changed:
            return
        self._vote.forget()
        if not self.late:
            raise RuntimeError(f"{changed}: {self.REMEDY}; nobody has made this step")
        self._trouble = RuntimeError(
            f"{changed}: {self.REMEDY}; some ranks have made that step: close() on all of them, "
            "then broadcast parameters and state, or go back to a checkpoint")
        raise self._trouble

    def settled(self):
        """Returns when what synchronize() gave is there; raises if some of it is void."""
        self.exchange.settled()
        self._heed()

    def begin_step(self):
        """Nothing has come yet."""
        for bucket in self.buckets:
            bucket.begin()
        self._line_up()
        self.busy = self._checked = False
        self._begun = 0
        self.set_passes(self._options.passes)

    def bind(self):
        """Makes every p.grad a view of the arena, now; the values come along."""
        if self.busy:
            raise RuntimeError("gradients are on their way: call this between two steps")
        if self._trouble:
            raise self._trouble
        if self._signature() != self._built:
            self._build()
        for bucket in self.buckets:
            for p in bucket.params:
                if p.dtype != bucket.wire:
                    raise ValueError("compressed gradients cannot be views of the arena")
                if p.grad is not bucket.view(p):
                    bucket.load(p, self._options.sparse_as_dense)
            bucket.show()
            bucket.begin()

    def zero(self):
        """Zeroes all gradients in the arena; those of parameters that have been frozen go."""
        self.bind()
        for bucket in self.buckets:
            bucket.block.tensor.zero_()
        for p in (p for g in self._groups() for p in g["params"]):
            if p not in self._bucket_of:
                p.grad = None


def shown(name):
    """A parameter's name, so short that BUCKET_PARAMS of them can be compared."""
    if len(name) <= NAME_SHOWN:
        return name
    return f"{name[:NAME_SHOWN - 9]}~{zlib.crc32(name.encode()):08x}"


def fills(tensor):
    """Does it fill its memory, in whatever order of dimensions?"""
    steps = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size != 1:
            if stride != steps:
                return False
            steps *= size
    return True


class Weak:
    """Calls the bound method as long as its object is there, ``bare`` without arguments.

    Copies, and what comes out of a pickle, do nothing: those of a model have nobody to tell.
    """

    def __init__(self, method, bare=False):
        self._method, self._bare = weakref.WeakMethod(method), bare

    def __call__(self, *args):
        method = self._method()
        return method(*(() if self._bare else args)) if method else None

    def __reduce__(self):
        return _nobody, ()


def _nobody():
    return _nothing


def _nothing(*_):
    return None


def remove(handles):
    """Removes the hooks; the list is empty afterwards."""
    while handles:
        handles.pop().remove()


def gradient_hook(p):
    """What has a hook for p's gradients; whoever holds it keeps the hook alive."""
    if hasattr(p, "register_post_accumulate_grad_hook"):  # torch 2.1
        return p
    return p.expand_as(p).grad_fn.next_functions[0][0]


def register(p, where, function):
    """Has function(p) called whenever p.grad was accumulated; what is returned removes it."""
    if where is p:
        return p.register_post_accumulate_grad_hook(function)
    return where.register_hook(lambda *_: function(p))

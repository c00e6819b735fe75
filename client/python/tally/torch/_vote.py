# SPDX-License-Identifier: Apache-2.0
"""Gradients that a script changes after they were sent: found out, and told to all ranks.

A gradient is on its way as soon as backward() has accumulated it.  What clipping, a loss scale or
zero_grad() do to it before synchronize() would be lost, or would be done to the sum on those ranks
alone where it has come already.  So each gradient is noted when it is sent: the tensor, and the
number of writes to it that torch has counted, those by way of p.grad.data among them.

In each step every rank adds its word to a small tensor of its own, one element for each rank: 0,
or which of its gradients was changed.  So all ranks raise the same error in the same step, and
none goes on with a step that another one has not made.
"""

import copy
import threading

import torch

from .._session import TallyError
from . import _device


class _Sent(torch.Tensor):
    """A gradient that is on its way: also what is written by way of .data is counted."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @property
    def data(self):
        return self.detach()  # which has the same count

    @data.setter
    def data(self, tensor):
        self.detach().copy_(tensor)

    def numpy(self, *args, **kwargs):
        array = super().numpy(*args, **kwargs)
        array.flags.writeable = False  # nobody would count
        return array

    def __deepcopy__(self, memo):
        return copy.deepcopy(self.detach(), memo)

    def __reduce_ex__(self, protocol):
        return self.detach().__reduce_ex__(protocol)


class Vote:
    """The notes of an optimizer's gradients, and the tensor in which ranks tell each other."""

    def __init__(self, exchange, options):
        self._exchange, self._options = exchange, options
        self._notes = {}  # parameter: its gradient as it was sent, and that one's version
        self._channel = self._block = None
        self._names, self._ended = (), threading.Event()
        self._ended.set()
        self._error, self._words = None, ()
        self.mine = False  # a gradient of this rank was changed, in the step that is voted on

    def row(self, title, names):
        """What is to be declared for it; parameters have these names, on all ranks."""
        self._names = names
        return (f"{title}step", (self._exchange.world,), "int64", 0, ["which gradients changed"])

    def place(self, channel):
        """Gets what was declared for it, in the exchange's thread."""
        self._channel = channel
        self._block = _device.in_arena(self._exchange).block(self._exchange.world, torch.int64)

    def channels(self):
        """What is to be undeclared, in the exchange's thread."""
        return [self._channel] if self._channel else []

    def free(self):
        """It is undeclared; in the exchange's thread."""
        if self._block:
            self._block.free()
        self._channel = self._block = None

    def forget(self):
        """A step begins anew; nothing is sent."""
        self.let_go()
        self._words, self._error, self.mine = (), None, False

    def note(self, p):
        """The parameter's gradient is as it is sent."""
        grad = p.grad
        if type(grad) is torch.Tensor:
            grad.__class__ = _Sent
        self._notes[p] = grad, grad._version

    def let_go(self):
        """Gradients are plain tensors again, and nobody counts what is written to them."""
        for grad, _ in self._notes.values():
            if type(grad) is _Sent:
                grad.__class__ = torch.Tensor
        self._notes = {}

    def begin(self, params):
        """Has this rank's word sent: which of them, that were sent already, was changed."""
        word = next((n for n, p in enumerate(params, 1) if self._changed(p)), 0)
        self.let_go()
        self.mine = word > 0
        self._ended.clear()
        try:
            self._exchange.post(self._start, word)
        except TallyError:
            self._ended.set()
            raise

    def _changed(self, p):
        grad, version = self._notes.get(p, (None, 0))
        return grad is not None and (p.grad is not grad or grad._version != version)

    def _start(self, word):
        self._block.tensor.zero_()
        self._block.tensor[self._exchange.rank] = word
        self._block.sum(self._exchange, self._channel, None, self._came, "sum",
                        self._options.timeout, 0)

    def _came(self, error):
        self._error, self._words = error, () if error else self._block.tensor.tolist()
        self._ended.set()

    def wait(self):
        """Returns when all ranks have voted, if there is a vote; an error that ended it."""
        self._ended.wait()
        return self._error

    def changed(self):
        """Which gradient was changed and on which ranks, in words; the same on all of them."""
        ranks = [r for r, word in enumerate(self._words) if word]
        if not ranks:
            return None
        where = "all ranks" if len(ranks) == self._exchange.world else (
            f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}")
        return (f"the gradient of {self._names[self._words[ranks[0]] - 1]} was changed after "
                f"backward() had sent it, on {where}")

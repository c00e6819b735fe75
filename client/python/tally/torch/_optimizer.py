# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer, with the names and the semantics of Horovod's."""

import contextlib
import dataclasses
import inspect
import numbers
import sys
import typing
import warnings

import torch

from .._session import Bound, check_time, place_text
from . import _world
from ._calls import (
    Average,
    Compression,
    Sum,
    allreduce,
    check_factor,
    check_kind,
    check_op,
    check_optimizer,
)
from ._cross import CrossGradients, update_one
from ._gradients import BUCKET_BYTES, Gradients
from ._states import loaded_in_place


@dataclasses.dataclass
class _Options:
    compression: typing.Optional[torch.dtype]
    passes: int
    op: str
    before: float  # factors of gradients before they are summed, and of what that gives
    after: float
    sparse_as_dense: bool
    bucket_bytes: int
    timeout: typing.Optional[float]


def _check_passes(passes):
    check_kind(passes, isinstance(passes, numbers.Integral),
               "backward_passes_per_step is a whole number")
    if passes < 1:
        raise ValueError(f"backward_passes_per_step is {passes}; one is the least")


class _Base(Bound):
    """What both kinds of wrapped optimizer have.

    A copy would share hooks and tensors with the first, and send each gradient for it.
    """

    _kind = "DistributedOptimizer"
    _instead = "load its state_dict() into another one"

    def __repr__(self):
        place = place_text(self._tally.exchange.session)
        return f"<tally.torch DistributedOptimizer: {place}> {super().__repr__()}"

    @property
    def param_groups(self):
        """The wrapped optimizer's.  A GradScaler reads them before it changes gradients, in a way
        that no version of a tensor tells of, and in no other way it says that it is about to.
        """
        if sys._getframe(1).f_code.co_name == "_unscale_grads_":
            self._before_unscaling()
        return self.__dict__["param_groups"]

    @param_groups.setter
    def param_groups(self, groups):
        self.__dict__["param_groups"] = groups

    def load_state_dict(self, state_dict):
        """As the wrapped optimizer's."""
        with loaded_in_place(self):
            super().load_state_dict(state_dict)

    def set_backward_passes_per_step(self, passes):
        """As many backward passes are accumulated before gradients are sent."""
        _check_passes(passes)
        self._tally.set_passes(passes)

    def close(self):
        """Gives all tensors back, as all ranks must; p.grad keeps its values.

        Nothing of it is left on parameters and models; another step() begins anew.
        """
        self._tally.close()


class _Crossing(_Base):
    """Mixed into the class of an optimizer whose updates cross the barrier."""

    def synchronize(self):
        """Returns when all parameters are updated: before they are read or saved."""
        self._tally.finish()

    def step(self, closure=None):
        """Has every parameter updated when its gradient has come, and returns at once."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._tally.step()
        return loss

    def zero_grad(self, *args, **kwargs):
        """As the wrapped optimizer; an update that is to come clears its gradient itself."""
        if not self._tally.busy:
            super().zero_grad(*args, **kwargs)

    def state_dict(self):
        """As the wrapped optimizer's, after all updates."""
        self._tally.settled()
        return super().state_dict()

    def load_state_dict(self, state_dict):
        """As the wrapped optimizer's, after all updates, which would be made with this state."""
        self._tally.finish()
        super().load_state_dict(state_dict)

    def _before_unscaling(self):
        raise ValueError("with cross_barrier an update uses its gradient as soon as it has come: "
                         "a GradScaler needs the barrier")

    def close(self):
        """As without cross_barrier, after all updates."""
        try:
            self.synchronize()
        finally:
            super().close()

    def flat_gradients(self):
        """Is not there: an error says why."""
        raise ValueError("with cross_barrier an update clears its gradient as soon as it has "
                         "used it, so there is none to keep in the arena: flat_gradients() needs "
                         "the barrier")

    def skip_synchronize(self):
        """Is not there: an error says why."""
        raise ValueError("with cross_barrier an update uses its gradient as soon as it has come: "
                         "what changes gradients before step() needs the barrier")


class _Distributed(_Base):
    """Mixed into the class of the optimizer that is wrapped."""

    def synchronize(self):
        """Returns when all gradients are summed; step() does it unless this was called."""
        self._tally.synchronize()

    def _before_unscaling(self):
        if not self._tally.summed:
            self.synchronize()
        self._unscaled = True

    @contextlib.contextmanager
    def skip_synchronize(self):
        """step() inside does not synchronize: for those who have, to clip, say."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure=None):
        """Synchronizes, then does what the wrapped optimizer does.

        One that needs a closure, as LBFGS, gets the loss and the gradients of all ranks
        whenever it calls it, so that all ranks take the same way.
        """
        if self._needs_closure:
            return super().step(self._of_all_ranks(closure))
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if not self._should_synchronize:
            self._check_skipped()
        elif not (self._unscaled and self._tally.summed):
            if self._tally.summed:
                warnings.warn(
                    "optimizer.step() called without optimizer.skip_synchronize() context after "
                    "optimizer.synchronize(). This can cause training slowdown."
                )
            self.synchronize()
        self._unscaled = self._tally.summed = False
        super().step()
        return loss

    def _check_skipped(self):
        if self._tally.busy:
            raise RuntimeError("optimizer.step() within skip_synchronize() while gradients are on "
                               "their way: call optimizer.synchronize() before it")

    def _of_all_ranks(self, closure):
        if closure is None:
            raise ValueError(f"{type(self).__name__}.step() needs a closure")

        def evaluate():
            with torch.enable_grad():
                loss = closure()
            self._tally.synchronize()
            return allreduce(torch.as_tensor(loss).detach(), op=self._op,
                             postscale_factor=self._factor)

        return evaluate

    def zero_grad(self, *args, **kwargs):
        """As the wrapped optimizer; between backward() and step() it is an error."""
        if self._tally.busy:
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before "
                "optimizer.step() or optimizer.synchronize(). This is prohibited as it can "
                "cause a race condition."
            )
        self._tally.summed = False
        if self._flat:
            self._tally.zero()
        else:
            super().zero_grad(*args, **kwargs)

    def state_dict(self):
        """As the wrapped optimizer's; an error if gradients were void that it has used."""
        self._tally.settled()
        return super().state_dict()

    def flat_gradients(self):
        """Makes every p.grad a view of the arena, and keeps it so: nothing is copied.

        zero_grad() zeroes from then on and never sets to None.
        """
        self._flat = True
        self._tally.bind()


def _is_named(pair):
    return isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) and (
        isinstance(pair[1], torch.Tensor))


def _named(optimizer, named_parameters):
    """Names by parameter; the errors are Horovod's."""
    params = [p for g in optimizer.param_groups for p in g["params"]]
    if named_parameters is None:
        return {p: f"parameter{i}" for i, p in enumerate(params)}
    pairs = hasattr(named_parameters, "__iter__") and (
        not isinstance(named_parameters, torch.nn.Module))
    check_kind(named_parameters, pairs, "named_parameters is what model.named_parameters() "
               "returns")
    named = list(named_parameters)
    if not all(map(_is_named, named)):
        raise ValueError(
            "named_parameters should be a sequence of tuples (name, parameter), usually produced "
            "by model.named_parameters()."
        )
    names = [name for name, _ in named]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"Parameter names must be unique. Found duplicates: {', '.join(twice)}")
    by_parameter = {p: name for name, p in named}
    if any(p not in by_parameter for p in params):
        raise ValueError(
            "named_parameters was specified, but one or more model parameters were not named."
        )
    return by_parameter


def needs_closure(kind):
    """Is step() of that class of optimizers one that evaluates the loss itself?"""
    closure = inspect.signature(kind.step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


def _squeezed(compression, params):
    """The compression that Horovod's keyword and BytePS's ask for."""
    Compression.check(compression)
    check_kind(params, isinstance(params, dict), "compression_params is a dict")
    for what in ("compressor", "ef", "momentum"):
        if params.get(what):
            raise ValueError(f"compression_params has {what} {params[what]!r}; there is only fp16")
    return Compression.fp16 if params.get("fp16") else compression


def _factors(op, predivide, before, after):
    """(op, factor before the sum, after it): Horovod's one factor, or BytePS's two."""
    check_op(op)
    if predivide != 1 and op != Average:
        raise ValueError("gradient_predivide_factor goes with op=Average only")
    if before is None and after is None:
        check_factor(predivide, "gradient_predivide_factor")
        if predivide == 0:
            raise ValueError("gradient_predivide_factor is 0: gradients are divided by it")
        return op, 1 / predivide, predivide
    if predivide != 1:
        raise ValueError("gradient_predivide_factor and BytePS's factors are given")
    return (Sum, check_factor(1 if before is None else before, "pre_scale_factor"),
            check_factor(1 if after is None else after, "post_scale_factor"))


def DistributedOptimizer(optimizer, named_parameters=None, compression=Compression.none,
                         backward_passes_per_step=1, op=Average, gradient_predivide_factor=1.0,
                         num_groups=0, groups=None, sparse_as_dense=False, process_set=None, *,
                         timeout=None, cross_barrier=None, compression_params=None,
                         pre_scale_factor=None, post_scale_factor=None):
    """An optimizer whose step() works with gradients averaged over all ranks.

        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer = tally.torch.DistributedOptimizer(
            optimizer, named_parameters=model.named_parameters())

    Gradients are sent while backward() runs.  The object is of the same class as the
    optimizer, works on its parameter groups and has its state.  ``op`` is Average or
    Sum, ``compression`` Compression.none, .fp16 or .bf16.  A parameter without a gradient
    counts as zeros; sparse gradients need ``sparse_as_dense=True``.  ``timeout`` in
    seconds is the limit for a bucket's round (None: the session's round_timeout); the
    error names tensor, rank and machine.

    ``cross_barrier=model`` lets step() return at once: each parameter is updated when its
    own gradient has come, and the model's next forward pass waits layer by layer, as does
    its state_dict() for all.  The parameters become the same.  Call synchronize() before
    reading them otherwise, and do not look at gradients between backward() and step().

    ``gradient_predivide_factor`` is Horovod's: gradients are divided by it before they are
    summed, and multiplied with it after.  ``num_groups`` and ``groups`` change nothing, as Tally
    makes its own buckets; a ``process_set`` is refused.  ``compression_params``,
    ``pre_scale_factor`` and ``post_scale_factor`` are BytePS's: fp16 is there, other compressors
    are not; the factors are those before and after a sum.  Factors of 16-bit types are one, after
    a mean made in float32, which is finite where it can be.
    """
    del num_groups, groups
    check_optimizer(optimizer, "DistributedOptimizer")
    if isinstance(optimizer, _Base):
        raise ValueError("the optimizer is a DistributedOptimizer already: wrap it once")
    op, before, after = _factors(op, gradient_predivide_factor, pre_scale_factor,
                                 post_scale_factor)
    if process_set is not None:
        raise ValueError("there are no process sets: a set of ranks would be a job of its own")
    _check_passes(backward_passes_per_step)
    check_time(timeout)
    check_kind(cross_barrier, isinstance(cross_barrier, (torch.nn.Module, type(None))),
               "cross_barrier is the model, a torch.nn.Module")
    compression = _squeezed(compression, compression_params or {})
    names = _named(optimizer, named_parameters)
    wrapped = type(optimizer)
    evaluates = needs_closure(wrapped)
    if cross_barrier is not None and evaluates:
        raise ValueError(f"{wrapped.__name__} looks at all gradients together, so that no update "
                         "can cross the barrier: leave cross_barrier out")
    kind = _Distributed if cross_barrier is None else _Crossing
    made = object.__new__(type(wrapped.__name__, (kind, wrapped), {}))
    made.__dict__.update(optimizer.__dict__)
    made.__dict__.pop("step", None)  # a scheduler's wrapper around the old one's
    made._unscaled, made._should_synchronize, made._flat = False, True, False
    made._op, made._factor, made._needs_closure = op, before * after, evaluates
    options = _Options(compression, backward_passes_per_step, op, before, after, sparse_as_dense,
                       BUCKET_BYTES if cross_barrier is None else 0, timeout)
    what = _world.exchange(), lambda: made.param_groups, names, options
    if cross_barrier is None:
        made._tally = Gradients(*what)
    else:
        made._tally = CrossGradients(*what, cross_barrier, update_one(made, wrapped))
    return made

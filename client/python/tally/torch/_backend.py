# SPDX-License-Identifier: Apache-2.0
"""The process group backend "tally", for torch 2.1 and later.

    import tally.torch
    torch.distributed.init_process_group("tally")

Every group is a job of its own, whose name its first rank makes up and tells the others
by the store.  Reductions other than sum and mean are made of a gather, reduce-scatter of
a reduction; point-to-point messages are not there.  Tensors may be on a GPU; wait() waits
in the host then, too.
"""

import concurrent.futures
import contextlib
import re
import uuid

import torch
import torch.distributed as dist

from .. import _session, _waits
from .._errors import CODES, TallyError
from . import _device, _world
from ._collective import Collectives

_REDUCE = {  # made on every rank from all contributions
    dist.ReduceOp.MIN: lambda x: x.amin(0),
    dist.ReduceOp.MAX: lambda x: x.amax(0),
    dist.ReduceOp.PRODUCT: lambda x: x.prod(0),
}


HELD_MAX = 1024
SLACK_S = 2

# what users chain to a Future may call, and wait for, another collective: never in the exchange's
# thread, which would have to carry it out; a thread more when all of these wait
_callbacks = concurrent.futures.ThreadPoolExecutor(1024, thread_name_prefix="tally-then")


def _aside(future, result):
    """A Future that ends as that one does, with the result, but in a thread for callbacks."""
    like = result
    while isinstance(like, (list, tuple)) and like:
        like = like[0]
    promise = _device.promise(like if isinstance(like, torch.Tensor) else torch.empty(0))

    def end():
        try:
            future.value()
        except Exception as error:
            promise.fail(error)
        else:
            promise.keep(result)

    def ended(_):
        try:
            _callbacks.submit(end)
        except RuntimeError:  # the interpreter is about to end, and starts no more threads
            end()

    future.add_done_callback(ended)
    return promise.future


_INNER = re.compile(r"Tally\w+: (E[A-Z]+): (.*?)(?:\n\nAt:\n.*)?\Z", re.S)


def _plain(error):
    """What went wrong, without the callbacks through which torch has brought it."""
    inner = list(_INNER.finditer(str(error)))
    if not inner or inner[-1][1] not in CODES:
        return error
    return TallyError(CODES[inner[-1][1]], inner[-1][2].strip())


class _Work(torch._C._distributed_c10d.Work):
    """What c10d's calls return.  torch's own around a future forgets errors in wait().

    C++ holds only its own half (that of torch 2.4 does), which without the Python object waits
    for ever: so each is held here until its end is asked for, or HELD_MAX others are.
    """

    _held = {}  # in the order of calls

    def __init__(self, future, result):
        super().__init__()
        self._future, self._result = future.then(lambda ended: (ended.value(), result)[1]), result
        self._theirs = None  # the Future that users get
        self._place = ""  # its rank, world and job
        self._why_not = None  # says why it is not done yet
        self._held[self] = None
        if len(self._held) > HELD_MAX:
            self._held.pop(next(iter(self._held)), None)

    _kind = "work of the process group tally"
    _instead = "wait() for it here"
    __reduce__ = _session.Bound.__reduce__

    def __repr__(self):
        place = f": {self._place}" if self._place else ""
        return f"<tally.torch work, {'done' if self.is_completed() else 'under way'}{place}>"

    def wait(self, timeout=None):
        self._held.pop(self, None)
        seconds = timeout.total_seconds() if timeout else None  # c10d's 0 is none
        if not _world.ended(self._future, seconds):
            why = self._why_not() if self._why_not else None
            raise RuntimeError(f"not done after {seconds:g} s" + (f": {why}" if why else ""))
        try:
            self._future.wait()
        except RuntimeError as error:
            raise _plain(error) from None
        return True

    def is_completed(self):
        return self._future.done()

    def get_future(self):
        self._held.pop(self, None)
        if self._theirs is None:
            done = self._future.done()
            self._theirs = self._future if done else _aside(self._future, self._result)
        return self._theirs

    def result(self):
        return self._result


def _then(futures, finish=lambda: None, on=None):
    """A Future that is done when all are and finish() has run, which may write to `on`."""

    def end(ended):
        for future in ended.value():
            future.value()
        with torch.no_grad():  # collectives do not go through autograd
            finish()
        if on is not None:
            _device.finish(on)  # what it has used may be freed

    return torch.futures.collect_all(futures).then(end)


def _stacked(tensors, size, like):
    """All of them in one, each for a rank that gets what is `like` it."""
    if len(tensors) != size or any((t.shape, t.dtype) != (like.shape, like.dtype) for t in tensors):
        has = ", ".join(f"{t.dtype} {tuple(t.shape)}" for t in tensors[:8])
        raise ValueError(f"{len(tensors)} tensors ({has}) for {size} ranks that want "
                         f"{like.dtype} {tuple(like.shape)} each")
    with torch.no_grad():
        return torch.stack(list(tensors))


class TallyGroup(dist.ProcessGroup):
    """One group of processes, all of them ranks of one job."""

    group_name = ""
    _kind = "process group tally"
    _instead = "make one there, by init_process_group() or new_group()"
    __reduce__ = _session.Bound.__reduce__

    def __repr__(self):
        do = getattr(self, "_do", None)
        place = _session.place_text(do.exchange.session) if do else "of no job yet"
        return f"<tally.torch process group: {place}>"

    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self._here = (rank, size)
        if rank == 0:
            store.set("tally_job", f"group-{uuid.uuid4()}")
        job = _waits.Call(lambda _: None, store.get, "tally_job").wait().decode()
        seconds = timeout.total_seconds()
        # libtally's own limit, which on a GPU ends the job, comes behind that of a call
        session = _session.Session(job=job, rank=rank, world=size, timeout=seconds,
                                   round_timeout=seconds + SLACK_S)
        if rank == 0:  # all have read it: who comes again, with the same store, waits for a new one
            with contextlib.suppress(RuntimeError, NotImplementedError):
                store.delete_key("tally_job")
        self._do = Collectives(session, seconds)

    def rank(self):
        return self._here[0]

    def size(self):
        return self._here[1]

    def getBackendName(self):
        return "tally"

    def name(self):
        return "tally"

    def _set_group_name(self, name):
        super()._set_group_name(name)
        self.group_name = name  # torch 2.4 asks a backend inside this group, and there is none

    def shutdown(self):
        """Ends the job of this rank."""
        self._do.exchange.session.detach()

    def __del__(self):
        """destroy_process_group() of torch before 2.6 only forgets it."""
        do = getattr(self, "_do", None)
        if do:
            do.exchange.abandon()

    def _work(self, future, result):
        work, exchange = _Work(future, result), self._do.exchange
        work._place = _session.place_text(exchange.session)
        work._why_not = lambda: exchange.call(exchange.waits_for)
        return work

    def _reduce(self, tensor, op):
        """A Future of the tensor reduced over all ranks, in place."""
        if op == dist.ReduceOp.SUM:
            return self._do.all_reduce(tensor, "sum")
        if op == dist.ReduceOp.AVG:
            return self._do.all_reduce(tensor, "mean")
        how = next((f for known, f in _REDUCE.items() if op == known), None)
        if how is None:
            what = getattr(op, "op", op)  # torch 2.4's has no text of its own
            raise ValueError(f"tally has no {what}; there are SUM, AVG, MIN, MAX and PRODUCT")
        parts = [torch.empty_like(tensor) for _ in range(self.size())]
        gathered = self._do.all_gather(parts, tensor)
        return _then([gathered], lambda: tensor.copy_(how(torch.stack(parts))), tensor)

    def allreduce(self, tensors, opts=None):
        op = opts.reduceOp if opts else dist.ReduceOp.SUM
        return self._work(_then([self._reduce(t, op) for t in tensors]), tensors)

    allreduce_coalesced = allreduce

    def reduce(self, tensors, opts):
        """Root's tensor is reduced; the others keep theirs."""
        mine = self.rank() == opts.rootRank
        work = [t if mine else t.clone() for t in tensors]
        return self._work(_then([self._reduce(t, opts.reduceOp) for t in work]), tensors)

    def broadcast(self, tensors, opts):
        futures = [self._do.broadcast(t, opts.rootRank) for t in tensors]
        return self._work(_then(futures), tensors)

    def allgather(self, outputs, inputs, opts=None):
        futures = [self._do.all_gather(o, t) for o, t in zip(outputs, inputs)]
        return self._work(_then(futures), outputs[0])

    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        futures = []
        for output, tensor in zip(outputs, inputs):
            parts = list(output.view(self.size(), -1).unbind(0))
            futures.append(self._do.all_gather(parts, tensor.contiguous().view(-1)))
        return self._work(_then(futures), outputs)

    def _allgather_base(self, output, tensor, opts=None):
        return self.allgather_into_tensor_coalesced([output], [tensor])

    all_gather_single = _allgather_base

    def gather(self, outputs, inputs, opts):
        """As allgather: only root keeps what comes."""
        mine = self.rank() == opts.rootRank
        targets = outputs[0] if mine else [torch.empty_like(inputs[0]) for _ in range(self.size())]
        return self._work(self._do.all_gather(targets, inputs[0]), inputs)

    def scatter(self, outputs, inputs, opts):
        """As a broadcast of everything."""
        mine = self.rank() == opts.rootRank
        out, size, rank = outputs[0], self.size(), self.rank()
        everything = _stacked(inputs[0], size, out) if mine else out.new_empty((size, *out.shape))
        sent = self._do.broadcast(everything, opts.rootRank)
        return self._work(_then([sent], lambda: out.copy_(everything[rank]), out), outputs)

    def reduce_scatter(self, outputs, inputs, opts):
        """As an all-reduce of everything."""
        ends = [self._reduce_scatter(*each, opts.reduceOp) for each in zip(outputs, inputs)]
        return self._work(_then(ends), outputs)

    def _reduce_scatter(self, out, parts, op):
        everything, rank = _stacked(parts, self.size(), out), self.rank()
        reduced = self._reduce(everything, op)
        return _then([reduced], lambda: out.copy_(everything[rank]), out)

    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts):
        parts = [list(t.view(self.size(), *o.shape)) for o, t in zip(outputs, inputs)]
        return self.reduce_scatter(outputs, parts, opts)

    def _reduce_scatter_base(self, output, tensor, opts):
        return self.reduce_scatter_tensor_coalesced([output], [tensor], opts)

    reduce_scatter_single = _reduce_scatter_base

    def barrier(self, opts=None):
        return self._work(self._do.barrier(), [])


def _absent(name):
    def call(self, *args, **kwargs):
        raise NotImplementedError(f"the process group tally has no {name}(): make a group of "
                                  "another backend for it, as new_group(backend='gloo')")

    return call


for _name in ("send", "recv", "recv_anysource", "alltoall", "alltoall_base", "allgather_coalesced"):
    setattr(TallyGroup, _name, _absent(_name))

dist.Backend.register_backend("tally", TallyGroup, devices=["cpu", "cuda"])

# SPDX-License-Identifier: Apache-2.0
"""Session, Tensor and Ticket over libtally's handles."""

import contextlib
import ctypes
import fcntl
import math
import os
import threading
import time
import weakref

import numpy as np

from . import _errors, _ffi, _waits
from ._args import (
    DIMS_MAX,
    check_time,
    dtype_of,
    int_of,
    ms_of,
    one_of,
    path_of,
    shape_of,
    str_of,
    text_of,
)
from ._errors import CODES, TallyError, TallyTimeout, in_python

__all__ = ["MEAN", "SUM", "Session", "TallyError", "TallyTimeout", "Tensor", "Ticket",
           "check_time", "version"]

_lib = _errors.lib

SUM, MEAN = 1, 2
_SPANS = {"framework": 1, "copy": 2}
_ON_LOSS = {"error": 0, "shrink": 1}
_OPS = {"sum": SUM, "mean": MEAN, SUM: SUM, MEAN: MEAN}

_EINVAL, _ETIMEDOUT = CODES["EINVAL"], CODES["ETIMEDOUT"]
_ESHUTDOWN, _EBUSY = CODES["ESHUTDOWN"], CODES["EBUSY"]
_STAYS = CODES["EAGAIN"], _ETIMEDOUT, _EINVAL  # no round ends with these: the ticket is what it was
_REMEDIES = {
    CODES["EAGENT"]: "; start one on this machine (tally-agent, or systemctl start tally-agent), "
    "set TALLY_SOCKET to where it listens, or run under tally local",
    CODES["EVERSION"]: "; install tally-agent and libtally from one release, and start the agent "
    "again",
}
_MOMENT_S = 0.5  # for the agent's answer that is due when Ctrl-C comes
_SLICE_MS = 200  # a wait returns to Python this often, so that Ctrl-C works


def version():
    """libtally's version, "0.1.0"."""
    return _lib.tally_version().decode()


def now():
    """The timeline's clock, in nanoseconds."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Bound:
    """What belongs to a session, and stays in its process.

    ``_kind`` is what it is, ``_instead`` what to do in another process.
    """

    def __reduce__(self):
        raise TypeError(f"a {self._kind} cannot be pickled or copied, as it belongs to this "
                        f"process's session: {self._instead}")


def place_text(session):
    """Of which rank, world and job it is, for a repr()."""
    rank, world, job = session._who
    return f"rank {rank}, world {world}, job {job!r}"


class _Round:
    """What is known of a round; its tensor has it, too, until it is done.

    What C fills in is kept here, where it is also when a signal's handler raises behind the call.
    """

    def __init__(self, arrays):
        self.number = ctypes.c_uint64()  # 0: it has not begun
        self.arrays = arrays  # they live until it is done; None: they are on a GPU
        self.codes = []  # the last answer to who asked for its end
        self.done, self.error, self.result = False, None, None


class Ticket(Bound):
    """One round on its way.  Keeps the arrays it uses alive until it is done."""

    _kind, _instead = "tally.Ticket", "wait() for it here, and send the result"

    def __init__(self, tensor, round_):
        self._tensor, self._round = tensor, round_

    def __repr__(self):
        state = "done" if self._round.done else "in flight"
        number, session = self._round.number.value & 0xffffffff, self._tensor.session
        return (f"<tally.Ticket of tensor {self._tensor.name!r}, round {number}, {state}: "
                f"{place_text(session)}>")

    @property
    def done(self):
        """Has wait() or test() seen the end of the round?"""
        return self._round.done

    def _ask(self, function, *args):
        """The answer of a function that uses the ticket up, unless it is one of ``_STAYS``."""
        round_ = self._round
        self._tensor.session._used(round_.codes, function, round_.number, *args)
        return round_.codes[0]

    def _ended(self):
        """Is the round done?  Takes in what was answered."""
        round_ = self._round
        if not round_.done and round_.codes and round_.codes[0] not in _STAYS:
            if round_.codes[0]:
                round_.error = self._tensor._error(round_.codes[0])
            elif round_.arrays:  # of a round on a GPU the host has no result
                round_.result = self._tensor.result()
            round_.done, round_.arrays = True, None
        if round_.done and self._tensor._round is round_:
            self._tensor._round = None
        return round_.done

    def _answer(self):
        if self._round.error:
            raise self._round.error.with_traceback(None)
        return self._round.result

    def wait(self, timeout=None):
        """Waits, then returns the tensor's result.

        timeout is in seconds; None: the session's round_timeout; 0: it does not wait; less is
        refused.  TallyTimeout leaves the ticket valid; any other error uses it up.  A ticket
        that is done answers again what it answered first, also when the session is detached.
        The result is this round's, valid as long as Tensor.result() says.
        """
        session = self._tensor.session
        if timeout is None and not self._ended():
            timeout = session.round_timeout
        left = ms_of(timeout, 0)
        end = time.monotonic() + left / 1000
        with _waits.interruptible():
            while not self._ended():
                part = min(left, _SLICE_MS)
                code = self._ask(_lib.tally_wait, part)
                left = max(0, int((end - time.monotonic()) * 1000))
                if code == _EINVAL or code == _ETIMEDOUT and left == 0:
                    error = self._tensor._error(code)
                    raise error.saying(error.text.replace(
                        f"after {part} ms", f"after {timeout:g} s", 1))
        return self._answer()

    def gpu_wait(self, stream=0):
        """Has a stream wait for the result of gpu_push_pull(), and returns at once.

        ``stream`` is a cudaStream_t as a number (torch: ``stream.cuda_stream``); what it gets
        from now on runs when the result is there.  The ticket is used up.  If the job fails the
        stream goes on, and what it finds is of no use: the next call says why.  A round from
        host memory it waits for here, as wait().
        """
        if self._ended():
            raise TallyError(_EINVAL, f"tensor {self._tensor.name}: the ticket is used up; "
                             "gpu_wait() is for one that wait(), test() and gpu_wait() have not "
                             "seen the end of")
        if self._round.arrays:
            self.wait()
            return
        code = self._ask(_lib.tally_gpu_wait, stream)
        if not self._ended():  # the stream is captured: another one can wait, or the host
            raise self._tensor._error(code)
        self._answer()

    def test(self):
        """True when the round is done (its output is filled then), False when not yet."""
        if not self._ended():
            code = self._ask(_lib.tally_test)
            if code == _EINVAL:
                raise self._tensor._error(code)
        if not self._ended():
            return False
        self._answer()
        return True


class Tensor(Bound):
    """A declared tensor; made by Session.declare()."""

    _kind, _instead = "tally.Tensor", "declare it there, in a session of that process"

    def __init__(self, session, handle, name, shape, dtype, dtype_name):
        self.session, self._pointer = session, handle
        self.name, self.shape, self.dtype, self.dtype_name = name, shape, dtype, dtype_name
        self._round = None  # the last one; None: it is done
        self._begun = False  # a round has had all that it needs of the agent

    def __repr__(self):
        gone = "" if self._pointer and self.session._pointer else ", not declared any more"
        return (f"<tally.Tensor {self.name!r}, {self.dtype_name} {list(self.shape)}{gone}: "
                f"{place_text(self.session)}>")

    def _error(self, code):
        return self.session._error(code, self.session.error_text, self.name)

    @property
    def ticket(self):
        """The Ticket of the round that has begun and is not done, or None.

        For who caught what a signal's handler, Ctrl-C's among them, raised in push_pull():
        the round may have begun by then.
        """
        round_ = self._round
        ticket = Ticket(self, round_) if round_ and round_.number.value else None
        return None if ticket is None or ticket._ended() else ticket

    def _start(self, function, arrays, *args):
        """Starts a round with a function whose last argument is where its number goes."""
        round_ = _Round(arrays)
        handles = self.session._handle(), self._handle()
        if not self.ticket:
            self._round = round_
        args = *handles[1:], *args, ctypes.byref(round_.number)
        if self._begun or arrays is None:
            code = function(handles[0], *args)
        else:  # which may ask the agent for memory
            code = self.session._together(function, *args, moment=_MOMENT_S)
        if code < 0 and self._round is round_:
            self._round = None
        if code < 0:
            raise self._error(code)
        self._begun = True
        self._round = round_
        return Ticket(self, round_)

    def _address(self, array, writable, what):
        """The address of an array that fits this tensor, or None for None."""
        if array is None:
            return None
        why = self._misfit(array, writable)
        if why:
            raise TallyError(_EINVAL, f"tensor {self.name}: {what} {why}")
        return array.ctypes.data

    def _misfit(self, array, writable):
        """What is wrong with an array; None: nothing."""
        if not isinstance(array, np.ndarray):
            return f"is no numpy.ndarray of {self.dtype}, but a {type(array).__name__}"
        if array.dtype != self.dtype:  # >f4 is another one than float32
            return f"is an array of {array.dtype}, not of {self.dtype}; astype() makes one"
        if array.size != math.prod(self.shape):
            return f"has another size, {array.size} and not {math.prod(self.shape)} elements"
        if not array.flags.c_contiguous:
            return "is not contiguous; " + ("a result needs an array that is" if writable else
                                            "np.ascontiguousarray() makes a copy that is")
        if writable and not array.flags.writeable:
            return "is not writable"
        return None

    def _handle(self):
        if not self._pointer:
            raise TallyError(_EINVAL, f"tensor {self.name} is not declared any more")
        return self._pointer

    def _options(self, op, priority):
        op = one_of(op, _OPS, "operation")
        return _ffi.PushPullOptions(op, int_of(priority or 0, "priority"), priority is not None)

    def push_pull(self, array, out=None, op="sum", priority=None):
        """Starts a round: ``array`` summed over all ranks.  Returns a Ticket at once, but asks
        the agent for memory when the tensor's first array comes that is not from ``s.empty()``.

        ``out`` gets the result when the ticket is waited for; it may be ``array``
        itself.  Without it, wait() shows the result without a copy.
        """
        return self._start(
            _lib.tally_push_pull,
            (array, out),
            self._address(array, False, "the input"),
            self._address(out, True, "out"),
            ctypes.byref(self._options(op, priority)),
        )

    def gpu_push_pull(self, source, out=None, stream=0, op="sum", priority=None):
        """As push_pull(), of memory on the session's GPU; Session.gpu_open() comes first.

        ``source`` and ``out`` (None: in place) are addresses there, as numbers (torch:
        ``tensor.data_ptr()``), of as many contiguous elements as the tensor has; the caller keeps
        that memory until the round is done.  The round begins when ``stream``, a cudaStream_t as a
        number (0: the default one), has done what it holds now.  All ranks start rounds on GPUs
        in the same order.  Wait in the host with wait(), or have a stream wait: gpu_wait().
        """
        return self._start(
            _lib.tally_gpu_push_pull,
            None,
            source,
            source if out is None else out,
            ctypes.byref(self._options(op, priority)),
            stream,
        )

    def broadcast(self, array=None, out=None, root=0):
        """Starts a round in which everybody gets ``array`` of rank ``root``."""
        return self._start(
            _lib.tally_broadcast,
            (array, out),
            self._address(array, False, "the input"),
            self._address(out, True, "out"),
            int_of(root, "root"),
        )

    def result(self):
        """The last finished round's result, a read-only view; None before the first.

        Valid until the next but one round is submitted, or the tensor undeclared.
        """
        address = _lib.tally_result(self.session._handle(), self._handle())
        if not address:
            return None
        return self.session._view(address, self.shape, self.dtype, writable=False)


def _leave(place, pid, left):
    """Of a session that nobody has any more, or at the end of the process.

    What runs later at that end finds the session detached, and its arrays as they were.  A child
    that was forked has it, too, and ends; the rank is its parent.
    """
    pointer, place[0] = place[0], None
    if os.getpid() == pid and not left:
        left.append(_leave)  # nothing is unmapped while it leaves, nor at the end
        leaving = _waits.Call(lambda _: left.clear(), _lib.tally_leave, pointer)
        code = leaving.wait(_waits.patience_s())
        if code is not None:
            left.clear()


class _Memory:
    """What a session has mapped; its own, and that of each array that lies there.

    When the last of them is gone it is unmapped, in whatever thread that is.  Where both are
    garbage at once, it may be before _leave(), which has nothing to leave then.
    """

    _all = weakref.WeakSet()  # of this process

    def __init__(self, pointer, place, pid, left):
        self.pointer = pointer
        weakref.finalize(self, self._free, pointer, place, pid, left).atexit = False
        if pointer:
            self._all.add(self)

    @classmethod
    def unshare(cls):
        """In a child that was forked: what it writes to arrays does not reach its parent's."""
        for memory in list(cls._all):
            _lib.tally_forked(memory.pointer)
        cls._all = weakref.WeakSet()

    @staticmethod
    def _free(pointer, place, pid, left):
        place[0] = None
        if os.getpid() == pid and not left:
            _lib.tally_detach(pointer)


os.register_at_fork(after_in_child=_Memory.unshare)


class Session(Bound):
    """This process's place in a job.  A context manager: leaving it detaches.

    Everything that is not given comes from the environment (TALLY_*, torchrun,
    Open MPI, Slurm), then from defaults; rank and world are given together, and the launcher's
    local rank, of another numbering, is not taken then.  Times are in seconds: timeout for joining,
    declare and barrier (60), round_timeout for each round (600); Ctrl-C ends each of them, and
    the session where it was not a round.  None stands for that limit everywhere; a negative time,
    or NaN, is refused (EINVAL), and math.inf is 24 days.  A session belongs to one thread at a
    time and does not survive fork(); what a child writes to its arrays stays with the child.

    on_loss="shrink", on all ranks alike: the job goes on without the ranks that it loses
    (tally.h says how); live_ranks and is_live() tell who is left.  At grow() lost ranks come
    back: processes that attach under their numbers, for which is_late is true.

    Arrays from empty() and results are libtally's memory.  They may be used after detach(), and
    each of them keeps all of that session's memory: copy what is kept for long.
    """

    _kind = "tally.Session"
    _instead = "each process makes a Session of its own; send arrays, which are copied"
    _who = None, None, None  # rank, world, job

    def __init__(self, socket=None, job=None, rank=0, world=0, local_rank=-1, timeout=None,
                 chunk_bytes=0, on_loss="error", round_timeout=None):
        if rank and not world:
            raise TallyError(_EINVAL, f"rank {rank} without a world size: give world, too, or "
                             "leave both to the environment")
        options = _ffi.Options(
            path_of(socket, "the socket's path") if socket else None,
            text_of(job, "the job's name") if job else None,
            int_of(rank, "rank"),
            int_of(world, "world size"),
            int_of(local_rank, "local rank"),
            ms_of(timeout),
            int_of(chunk_bytes, "chunk_bytes", 0),
            one_of(on_loss, _ON_LOSS, "on_loss"),
            ms_of(round_timeout),
        )
        pointer = ctypes.c_void_p()
        code = _waits.Call(
            lambda _: _lib.tally_detach(pointer),
            _lib.tally_attach, ctypes.byref(options), ctypes.byref(pointer),
        ).wait()
        self._place = [pointer.value]  # where the finalizer finds it, too
        self._pid = os.getpid()
        self._left = []  # not empty: a call that nobody waits for uses the session
        self._memory = _Memory(pointer.value, self._place, self._pid, self._left)
        job_name = (_lib.tally_job_name(pointer) or b"").decode("utf-8", "replace")
        self._who = _lib.tally_rank(pointer), _lib.tally_world_size(pointer), job_name
        if code == _EINVAL:  # who knows what it is
            self._who = None, *self._who[1:]
        if code:
            text = self.error_text.replace("; does tally-agent run on this machine?", "")
            self._place[0] = self._memory = None
            raise self._error(code, text + _REMEDIES.get(code, ""))
        self._finalizer = weakref.finalize(self, _leave, self._place, self._pid, self._left)
        self._owner = None  # the one thread that may use it; None: whoever comes
        self._last_words = None  # what detach() calls first
        self._post = None  # has the owner call something
        self.gpu = None  # which one gpu_open() has given it
        self.timeline = bool(os.environ.get("TALLY_TIMELINE"))

    def __repr__(self):
        return f"<tally.Session: {place_text(self)}{'' if self._pointer else ', detached'}>"

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.detach()

    def _error(self, code, text, tensor=None):
        return TallyError(code, text, self._who[0], tensor)

    @property
    def _pointer(self):
        return self._place[0]

    def _handle(self):
        if not self._pointer:
            raise self._detached()
        self._check_process()
        if self._owner not in (None, threading.get_ident()):
            raise self._error(_EBUSY, "the session works for tally.torch, in a thread of its own: "
                              "use tally.torch's calls, or a second Session of another job")
        return self._pointer

    def _detached(self):
        return self._error(_ESHUTDOWN, "the session is detached: make a new tally.Session, as all "
                           "ranks must")

    def _used(self, codes, function, *args):
        """codes[0] = function(pointer, *args), which may still run, in a daemon, when the
        process ends.  All in C: when a signal's handler raises, codes is as before, or has it.
        """
        pointer = self._handle()
        try:
            self._left.append(function)
            codes[:] = map(function, (pointer,), *((arg,) for arg in args))
        finally:
            self._left.clear()

    def _together(self, function, *args, moment=0):
        """function(pointer, *args), which waits for other ranks, or for the agent.

        After Ctrl-C the session is of no use any more.  It leaves its job when the call is
        over, or the process; its memory is freed when no array of it is left.  Where the call is
        over by then, or so many seconds later, the session stays as it is.
        """
        pointer = self._handle()

        def over(through):
            if not through:
                memory, self._memory, self._place[0] = self._memory, None, None
                _lib.tally_leave(pointer)
            self._left.clear()
            if not through:
                del memory  # which may be all that there was, and is not left to a call any more

        call = _waits.Call(over, function, pointer, *args)
        try:
            self._left.append(function)
            code = call.wait(moment=moment)
        except BaseException:
            if call.left:
                self._place[0] = None
            else:
                self._left.clear()
            raise
        self._left.clear()
        return code

    def _check(self, code):
        if code < 0:
            raise self._error(code, self.error_text)
        return code

    def _check_live(self):
        """Raises what has ended the session, if anything has; waits for nothing."""
        self._check(_lib.tally_undeclare(self._handle(), None, 0))

    def _check_process(self):
        if self._pid != os.getpid():
            raise self._error(_ESHUTDOWN, "the session is the parent process's, and a child that "
                              "was forked has none: make a tally.Session there, of another job "
                              "(job=...), or leave it to the parent")

    def _fact(self, question):
        """What never changes may be asked from any thread."""
        if not self._pointer:
            raise self._detached()
        return self._check(question(self._pointer))

    def _view(self, address, shape, dtype, writable=True):
        count = math.prod(shape)
        raw = (ctypes.c_uint8 * max(count * dtype.itemsize, 1)).from_address(address)
        raw._memory = self._memory
        array = np.frombuffer(raw, dtype=dtype, count=count).reshape(shape)
        array.flags.writeable = writable
        return array

    @property
    def error_text(self):
        """The text of the last error, "" if there was none."""
        return self._error_text(self._pointer)

    @staticmethod
    def _error_text(pointer):
        return in_python((_lib.tally_error_text(pointer) or b"").decode("utf-8", "replace"))

    @property
    def rank(self):
        """This process's number in the job."""
        return self._fact(_lib.tally_rank)

    @property
    def world_size(self):
        """Processes in the job."""
        return self._fact(_lib.tally_world_size)

    @property
    def local_rank(self):
        """This process's number on its machine."""
        return self._fact(_lib.tally_local_rank)

    @property
    def local_size(self):
        """Processes of the job on this machine."""
        return self._fact(_lib.tally_local_size)

    @property
    def machines(self):
        """Machines of the job."""
        return self._fact(_lib.tally_machines)

    @property
    def round_timeout(self):
        """Seconds that a round may take, where a wait says nothing else."""
        return self._fact(_lib.tally_round_timeout_ms) / 1000

    @property
    def live_ranks(self):
        """Processes of the job that are not lost: world_size, but with on_loss="shrink"."""
        self._check_process()  # a child would not hear of it, and may find its lock held
        return self._fact(_lib.tally_live_ranks)

    @property
    def is_late(self):
        """True: the job was running when this process attached, and grow() let it in."""
        return bool(self._fact(_lib.tally_is_late))

    def is_live(self, rank):
        """False: the job goes on without that rank."""
        if not 0 <= int_of(rank, "rank") < self.world_size:
            raise TallyError(_EINVAL, f"rank {rank} is not in a world of {self.world_size}")
        self._check_process()
        return bool(self._fact(lambda pointer: _lib.tally_rank_is_live(pointer, rank)))

    def detach(self):
        """Leaves the job; harmless when done already, and in a child.

        Its memory is freed when no array of it is left.
        """
        if self._pointer and self._pid == os.getpid():
            last_words = self._last_words  # keeps memory that a GPU may still write to
            failure = last_words() if last_words else None
            self._finalizer.detach()
            code, text = self._leave_now()
            if failure:
                raise failure
            if code:
                raise self._error(code, text)

    def _leave_now(self):
        """(code, text) of tally_leave(); (0, "") where it is left to itself after Ctrl-C."""
        pointer, self._place[0] = self._pointer, None
        memory, self._memory = [self._memory], None
        if self._left:  # the owner's call, which nobody waits for, has the session
            return 0, ""

        def over(_):
            self._left.clear()
            memory.clear()

        def leave():
            return _lib.tally_leave(pointer), self._error_text(pointer)

        self._left.append(leave)
        answer = _waits.Call(over, leave).wait(_waits.patience_s())
        if answer:
            over(True)
        return answer or (0, "")

    def gpu_open(self, device=None, exact=False, plugin=None):
        """Gives the session a GPU until it is detached; all ranks of the machine call it.

        ``device`` is one of those that the process sees (None: as its local rank says).
        ``exact=True``, on all of them: sums have the bits of those in host memory.  ``plugin``
        is the path of libtally-cuda.so.0, which else lies beside libtally, or where the system's
        loader looks.  See docs/GPU.md.
        """
        device = self.local_rank if device is None else device
        plugin = plugin or _ffi.plugin(_lib)
        plugin = path_of(plugin, "the plugin's path") if plugin else None
        options = _ffi.GpuOptions(int_of(device, "device"), bool(exact), plugin)
        self._check(self._together(_lib.tally_gpu_open, ctypes.byref(options)))
        self.gpu = device

    def empty(self, shape, dtype="float32"):
        """An array of zeros in the arena: push_pull() reads it without a copy."""
        _, held, _ = dtype_of(dtype)
        shape, count = shape_of(shape, held, "an array")
        pointer = ctypes.c_void_p()
        bytes_ = count * held.itemsize
        self._check(self._together(_lib.tally_alloc, bytes_, ctypes.byref(pointer),
                                   moment=_MOMENT_S))
        return self._view(pointer.value, shape, held)

    def from_dma_buf(self, fd, shape, dtype="float32"):
        """A device's memory, exported as the dma-buf fd, as an array for push_pull()'s input.

        Cards read it from the device directly where they can (tally_import() in tally.h); the
        agent must run with --dma-buf.  Lent until the session ends; fd stays the caller's.
        """
        _, held, _ = dtype_of(dtype)
        shape, count = shape_of(shape, held, "an array")
        pointer = ctypes.c_void_p()
        fd, bytes_ = int_of(fd, "descriptor"), count * held.itemsize
        self._check(self._together(_lib.tally_import, fd, bytes_, ctypes.byref(pointer),
                                   moment=_MOMENT_S))
        writable = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR
        return self._view(pointer.value, shape, held, writable)

    def free(self, array):
        """Gives an array of empty() back before the session ends; do not use it after."""
        if not isinstance(array, np.ndarray):
            raise TallyError(_EINVAL, f"an array of empty() is freed, not {array!r}")
        self._check(_lib.tally_free(self._handle(), array.ctypes.data))

    def span(self, name, kind="framework"):
        """A context whose time is shown in the timeline (docs/TIMELINE.md), from any thread.

        Without TALLY_TIMELINE it does nothing.  kind: framework or copy.
        """
        one_of(kind, _SPANS, "kind of span")
        str_of(name, "a span's name")
        return self._timed(name, kind) if self.timeline else contextlib.nullcontext()

    @contextlib.contextmanager
    def _timed(self, name, kind):
        begin = now()
        try:
            yield
        finally:
            self._add_span(name, begin, kind)

    def _add_span(self, name, begin, kind="framework"):
        """One that began then and ends now; begin 0: there is no timeline."""
        if not begin or not self._pointer or self._pid != os.getpid():
            return
        what = _SPANS[kind], name.encode(errors="replace"), begin, now()
        if self._owner in (None, threading.get_ident()):
            _lib.tally_span(self._pointer, *what)
        else:
            with contextlib.suppress(TallyError):  # it is about to end
                self._post(_lib.tally_span, self._pointer, *what)

    def _begin(self):
        """What _add_span() wants."""
        return now() if self.timeline else 0

    def declare(self, name, shape, dtype="float32", priority=0):
        """Declares one tensor, and returns when all ranks have.  Returns a Tensor.

        Its name is 1 to 255 bytes of printable UTF-8, its shape has 8 dimensions at most, and its
        elements 64 GiB.  An array may have another shape, of as many elements.
        """
        return self.declare_all([(name, shape, dtype, priority)])[0]

    @contextlib.contextmanager
    def _patience(self, seconds):
        """Calls in here that wait for other ranks do so for that long only."""
        self._check(_lib.tally_set_timeout_ms(self._handle(), max(1, round(1000 * seconds))))
        try:
            yield
        finally:
            if self._pointer:
                _lib.tally_set_timeout_ms(self._pointer, 0)

    def declare_all(self, descriptions):
        """Declares (name, shape[, dtype[, priority[, meaning]]]) each, all or none, at once.

        What is left out is as of declare(); a dtype of None is refused.  meaning: texts that say
        what the tensor stands for; ranks compare them, an error shows the first that differ.
        """
        try:
            descriptions = [(name, shape, *more) for name, shape, *more in descriptions]
        except (TypeError, ValueError):
            raise TallyError(_EINVAL, f"no descriptions {descriptions!r}; they are a list of "
                             "(name, shape[, dtype[, priority[, meaning]]])") from None
        n = len(descriptions)
        rows, handles, made = (_ffi.TensorDesc * n)(), (ctypes.c_void_p * n)(), []
        for row, (name, shape, *more) in zip(rows, descriptions):
            row.dtype, held, held_name = dtype_of(more[0] if more else "float32")
            row.name = text_of(name, "a tensor's name")
            shape, row.count = shape_of(shape, held, f"tensor {name}", DIMS_MAX)
            row.shape, row.ndims = (ctypes.c_uint64 * len(shape))(*shape), len(shape)
            row.priority = int_of(more[1] if len(more) > 1 else 0, "priority")
            row.meaning = _ffi.meaning(more[2]) if len(more) > 2 else None
            made.append((name, shape, held, held_name))
        self._check(self._together(_lib.tally_declare, rows, n, handles))
        return [Tensor(self, handles[i], *made[i]) for i in range(n)]

    def undeclare(self, *tensors):
        """Gives tensors back, as all ranks must; their handles die."""
        for tensor in tensors:
            self._check_mine(tensor)
        handles = (ctypes.c_void_p * len(tensors))(*[t._handle() for t in tensors])
        code = self._together(_lib.tally_undeclare, handles, len(tensors))
        for i, tensor in enumerate(tensors):
            tensor._pointer = handles[i]
        self._check(code)

    def _check_mine(self, tensor):
        if not isinstance(tensor, Tensor):
            raise TallyError(_EINVAL, f"a tensor is what declare() returns, not {tensor!r}")
        if tensor.session is not self:
            raise TallyError(_EINVAL, f"tensor {tensor.name} is another session's: {tensor!r}")

    def push_pull(self, tensor, array, out=None, op="sum", priority=None):
        """tensor.push_pull(array, out, op, priority)"""
        self._check_mine(tensor)
        return tensor.push_pull(array, out, op, priority)

    def broadcast(self, tensor, array=None, out=None, root=0):
        """tensor.broadcast(array, out, root)"""
        self._check_mine(tensor)
        return tensor.broadcast(array, out, root)

    def barrier(self, timeout=None):
        """Returns when all ranks have called it; TallyTimeout names who has not.

        timeout is in seconds; None: the session's timeout; less than 0 is refused.
        """
        self._check(self._together(_lib.tally_barrier, ms_of(timeout)))

    def grow(self, timeout=None):
        """A barrier at which processes come in that wait in the place of lost ranks.

        Returns how many did, the same number on all ranks.  Then broadcast what they lack.
        timeout: as with barrier().
        """
        return self._check(self._together(_lib.tally_grow, ms_of(timeout)))

    def fileno(self):
        """A descriptor that becomes readable when tickets complete; then poll()."""
        return self._check(_lib.tally_fd(self._handle()))

    def poll(self):
        """Takes completions in; how many are new.  Then test() the tickets."""
        return self._check(_lib.tally_poll(self._handle()))

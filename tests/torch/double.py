# SPDX-License-Identifier: Apache-2.0
"""tally.torch on a GPU that is played by tests/gpu: tensors of the CPU count as on it.

    gpu = double.play()    from now on; the story has set GPU_DOUBLE, the folder of the double

Streams and events are the double's, and the plugin that libtally loads is the real one over
it.  Torch works in the host and knows nothing of such streams, so the stream that it is on,
the current one, does at once what it is told (Here), unless a test makes another one current
(on()).  A future is kept by the stream that it waits for.
"""

import contextlib
import ctypes
import os
import threading
import time

import rig  # noqa: F401  finds the package
import torch

from tally.torch import _device

_FN = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_NOT_READY = 3  # cudaErrorNotReady in tests/gpu/include
_PAUSE_S = 0.0002

_lib = None
_kept = {}  # what the double calls, until it has
_numbers = iter(range(1, 1 << 62))


def _must(code, allowed=()):
    if code and code not in allowed:
        raise RuntimeError(f"the double: error {code}")
    return code


class Event:
    """As torch.cuda.Event."""

    def __init__(self):
        self._as_parameter_ = ctypes.c_void_p()
        _must(_lib.cudaEventCreateWithFlags(ctypes.byref(self._as_parameter_), 0))

    def __del__(self):
        if _lib:  # else the interpreter ends
            _lib.cudaEventDestroy(self)

    def query(self):
        return not _must(_lib.cudaEventQuery(self), (_NOT_READY,))

    def synchronize(self):
        while not self.query():
            time.sleep(_PAUSE_S)


class Stream:
    """As torch.cuda.Stream: a thread of the double's."""

    def __init__(self):
        self._as_parameter_ = ctypes.c_void_p()
        _must(_lib.cudaStreamCreateWithFlags(ctypes.byref(self._as_parameter_), 1))
        self.cuda_stream = self._as_parameter_.value

    def record_event(self):
        event = Event()
        _must(_lib.cudaEventRecord(event, self))
        return event

    def wait_event(self, event):
        _must(_lib.cudaStreamWaitEvent(self, event, 0))

    def synchronize(self):
        _must(_lib.cudaStreamSynchronize(self))

    @contextlib.contextmanager
    def captured(self):
        """As torch.cuda.graph(), with nothing in it."""
        graph = ctypes.c_void_p()
        _must(_lib.cudaStreamBeginCapture(self, 0))
        yield
        _must(_lib.cudaStreamEndCapture(self, ctypes.byref(graph)))

    def call(self, function):
        """The function is called when the stream has done what it holds."""
        number = next(_numbers)

        def call(_):
            try:
                function()
            finally:
                del _kept[number]

        _kept[number] = _FN(call)
        _must(_lib.cudaLaunchHostFunc(self, _kept[number], None))


class Here:
    """The host itself: it has done what it was told, and waits by waiting."""

    cuda_stream = 0

    def record_event(self):
        return Event()

    def wait_event(self, event):
        event.synchronize()

    def synchronize(self):
        pass


class Double:
    """In place of _device.Cuda."""

    def __init__(self):
        self._local = threading.local()
        self._device, self.exact = torch.device("cpu"), False
        self.elsewhere = []  # tensors on another GPU
        self.promises = 0  # kept, or about to be

    def of(self, tensor):
        there = any(tensor is t for t in self.elsewhere)
        return torch.device("cpu", 1) if there else self._device

    def open(self, session, device):
        if session.gpu is None:
            session.gpu_open(plugin=plugin(), exact=self.exact)
        return self._device

    def empty(self, count, dtype, device):
        return torch.full((count,), 77, dtype=dtype, device=device)

    def stream(self, device):
        return Stream()

    def current(self, device):
        return getattr(self._local, "stream", None) or Here()

    @contextlib.contextmanager
    def under(self, stream):
        """What torch does there it does at once, so the stream has to come so far."""
        stream.synchronize()
        with self.on(Here()):
            yield

    @contextlib.contextmanager
    def on(self, stream):
        """This thread's current stream; torch works at once all the same."""
        before = getattr(self._local, "stream", None)
        self._local.stream = stream
        try:
            yield
        finally:
            self._local.stream = before

    def used(self, tensor, stream):
        pass

    def pinned_like(self, tensor):
        return torch.empty_like(tensor)

    def future(self, device):
        return torch.futures.Future()

    def keep(self, future, value, stream):
        # what is chained to it may use that stream, so another thread does that
        self.promises += 1
        stream.call(lambda: threading.Thread(target=future.set_result, args=(value,)).start())


def plugin():
    """The path of libtally-cuda over the double."""
    return os.path.join(os.environ["GPU_DOUBLE"], "libtally-cuda.so.0")


def play():
    """Tensors are on the double's GPU from now on; returns the Double."""
    global _lib
    # a torch with CUDA has brought the real one: both are to find themselves first
    mode = os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_DEEPBIND
    _lib = ctypes.CDLL(os.path.join(os.environ["GPU_DOUBLE"], "libcuda.so.1"), mode=mode)
    ctypes.CDLL(plugin(), mode=mode)
    _device.cuda = Double()
    return _device.cuda


@contextlib.contextmanager
def stopped():
    """Tensors are on the CPU, within."""
    before, _device.cuda = _device.cuda, _device.Cuda()
    try:
        yield
    finally:
        _device.cuda = before

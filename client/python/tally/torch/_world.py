# SPDX-License-Identifier: Apache-2.0
"""The process's place in the job, under Horovod's names."""

import threading

import torch

from .. import _session, _waits
from ._collective import Collectives

_here = None  # the Collectives of this process


def init(session=None, timeout=None):
    """Joins the job, with everything taken from the environment, or uses that session.

    ``timeout`` in seconds is the limit for each of the calls below; None: the session's
    round_timeout.  Again it does nothing.
    """
    global _here
    if session is not None and not isinstance(session, _session.Session):
        raise TypeError(f"init() takes a tally.Session, not a {type(session).__name__}: a set of "
                        "ranks is a job of its own, tally.Session(job=..., rank=..., world=...)")
    _session.check_time(timeout)
    if not is_initialized():
        _here = Collectives(session or _session.Session(), timeout, strict=True)


def shutdown():
    """Leaves the job; harmless without init()."""
    global _here
    here, _here = _here, None
    if here:
        here.exchange.session.detach()


def is_initialized():
    """Between init() and shutdown()?"""
    return _here is not None


def collectives():
    """The operations of the process's session."""
    if _here is None:
        raise ValueError("Tally has not been initialized; use tally.torch.init().")
    return _here


def exchange():
    """The exchange of the process's session."""
    return collectives().exchange


def rank():
    """This process's number in the job."""
    return collectives().rank


def size():
    """Processes in the job."""
    return collectives().world


def local_rank():
    """This process's number on its machine."""
    return exchange().session.local_rank


def local_size():
    """Processes of the job on this machine."""
    return exchange().session.local_size


def cross_size():
    """Machines of the job."""
    return exchange().session.machines


def cross_rank():
    """This machine's number among those whose ranks have this local_rank(), by their ranks.

    All ranks call this together: they tell each other.
    """
    places = torch.zeros(size(), dtype=torch.int64)
    places[rank()] = local_rank()
    wait(collectives().all_reduce(places))
    return int((places[: rank()] == local_rank()).sum())


def _absent():
    """Horovod's question about something that Tally has no part of: False."""
    return False


mpi_built = mpi_enabled = mpi_threads_supported = gloo_built = gloo_enabled = _absent
nccl_built = cuda_built = rocm_built = ddl_built = ccl_built = _absent


def ended(future, seconds=None):
    """Is it done, in so many seconds?  Ctrl-C ends the wait, which torch's does not hear."""
    done = threading.Event()
    future.add_done_callback(lambda _: done.set())
    with _waits.interruptible():
        return done.wait(seconds)


def wait(future):
    """The future's value; Ctrl-C ends the wait."""
    ended(future)
    return future.wait()  # at once, and the current stream does so, too


def barrier():
    """Returns when all ranks have called it."""
    wait(collectives().barrier())

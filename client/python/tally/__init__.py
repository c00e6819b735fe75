# SPDX-License-Identifier: Apache-2.0
"""Tally for Python: sum NumPy arrays across processes and machines.

    import numpy as np
    import tally

    with tally.Session() as s:                      # rank, world size: environment
        g = s.empty((1000, 100), "float32")         # in the arena: no copy later
        t = s.declare("grad", g.shape, g.dtype)
        g[:] = my_gradient()
        s.push_pull(t, g, out=g, op="mean").wait()  # g is the mean over all ranks

Several rounds overlap: start them all, then wait.

        tickets = [t.push_pull(g, out=g) for t, g in zip(tensors, gradients)]
        for k in tickets:
            k.wait()

Any contiguous array may be pushed; one from ``s.empty()`` is read in place and
must not change until its ticket is done.  Without ``out``, ``wait()`` returns a
read-only view of the result.  NumPy has no bfloat16: declare with
``dtype="bfloat16"`` and pass arrays of uint16 (``s.empty(shape, "bfloat16")``
makes one).

Errors are TallyError, with ``code``, ``name``, ``text``, ``rank`` and ``tensor``, and each kind
has a class of its own: TallyTimeout, whose text names the ranks that are missing (of a round once
it is a second old), and after which the ticket is still good, TallyMismatch, TallyRankLost, ...
With TALLY_LOG=info in the environment libtally says on stderr what it waits for, once that has
taken a second, and then now and again; TALLY_LOG=debug says more.

Start the ranks with ``tally local``, torchrun, mpirun, srun, or with TALLY_RANK and
TALLY_WORLD_SIZE set.  Nothing is compiled: libtally.so.0 is taken from TALLY_LIBRARY, the package
(of a wheel), the build tree, or the system; its version has to fit the package's.

For PyTorch there is tally.torch.
"""

from ._errors import (
    TallyAgain,
    TallyBusy,
    TallyError,
    TallyExists,
    TallyInternal,
    TallyInvalid,
    TallyIOError,
    TallyLimit,
    TallyMismatch,
    TallyNoAgent,
    TallyNoMemory,
    TallyNoScheduler,
    TallyNoServer,
    TallyNotAllowed,
    TallyNotFound,
    TallyProtocolError,
    TallyRankLost,
    TallyServerLost,
    TallyShutdown,
    TallyTimeout,
    TallyVersion,
)
from ._ffi import VERSION as __version__
from ._session import MEAN, SUM, Session, Tensor, Ticket, version

__all__ = [
    "MEAN", "SUM", "Session", "TallyAgain", "TallyBusy", "TallyError", "TallyExists",
    "TallyIOError", "TallyInternal", "TallyInvalid", "TallyLimit", "TallyMismatch", "TallyNoAgent",
    "TallyNoMemory", "TallyNoScheduler", "TallyNoServer", "TallyNotAllowed", "TallyNotFound",
    "TallyProtocolError", "TallyRankLost", "TallyServerLost", "TallyShutdown", "TallyTimeout",
    "TallyVersion", "Tensor", "Ticket", "version",
]

for _public in (Session, Tensor, Ticket):
    _public.__module__ = "tally"

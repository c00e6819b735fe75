# SPDX-License-Identifier: Apache-2.0
"""What Tally raises: TallyError, and a class for each of libtally's codes.

``TallyError(code, text)`` makes one of the code's class.  All of them can be pickled, and read as
part of ``tally``.  libtally's texts speak of its own functions; in_python() has them say what
those are called here.
"""

import re

from . import _ffi

lib = _ffi.load()

_CALLED = {  # libtally's name: what it is called in Python, where that is another
    "attach": "Session",
    "alloc": "empty",
    "import": "from_dma_buf",
    "round_timeout_ms": "round_timeout",
    "set_timeout_ms": "Session",
    "fd": "fileno",
    "leave": "detach",
}
_NAMES = "|".join(name[len("tally_"):] for name in _ffi.FUNCTIONS)
_C_CALL = re.compile(rf"\btally_({_NAMES})\b(\(\))?")
_C_CONSTANT = {"TALLY_ON_LOSS_SHRINK": "on_loss='shrink'", "TALLY_ON_LOSS_ERROR": "on_loss='error'",
               "TALLY_MEAN": "'mean'", "TALLY_SUM": "'sum'", "NULL": "None"}


def in_python(text):
    """One of libtally's texts, in the words of this package."""
    text = _C_CALL.sub(lambda m: _CALLED.get(m[1], m[1]) + "()", text)
    return re.sub(r"\b(" + "|".join(_C_CONSTANT) + r")\b", lambda m: _C_CONSTANT[m[1]], text)


class TallyError(RuntimeError):
    """What Tally has refused, or what has ended a session.

    ``code`` is libtally's number (negative), ``name`` its name ("EMISMATCH"), ``text`` what
    happened and what to do.  ``rank`` is the process's that was told so, ``tensor`` the name of
    the tensor that the call was about; each is None where there is none.
    """

    def __new__(cls, code, text="", rank=None, tensor=None):
        kind = KINDS.get(code, cls) if cls is TallyError else cls
        base = OSError if issubclass(kind, OSError) else RuntimeError
        return base.__new__(kind, f"{name_of(code)}: {text or help_of(code)}")

    def __init__(self, code, text="", rank=None, tensor=None):
        self.code, self.name, self.text = code, name_of(code), text or help_of(code)
        self.rank, self.tensor = rank, tensor

    def __reduce__(self):
        return type(self), (self.code, self.text, self.rank, self.tensor)

    def saying(self, text):
        """The same error with another text."""
        return type(self)(self.code, text, self.rank, self.tensor)


class TallyAgain(TallyError):
    """EAGAIN: too many rounds are in flight; wait for some of them, and try again."""


class TallyInvalid(TallyError, ValueError):
    """EINVAL: the call's arguments are wrong, and nothing has happened."""


class TallyProtocolError(TallyError):
    """EPROTO: the agent, or a daemon behind it, broke the protocol."""


class TallyMismatch(TallyError):
    """EMISMATCH: the ranks differ; the text names both sides."""


class TallyExists(TallyError):
    """EEXIST: there is one already, or it is in flight."""


class TallyNotFound(TallyError):
    """ENOENT: there is no such thing."""


class TallyNoMemory(TallyError, MemoryError):
    """ENOMEM: this process, the agent, or a daemon behind it is out of memory."""


class TallyLimit(TallyError):
    """EQUOTA: a limit of this process, its machine or a server is reached; the text names it."""


class TallyTimeout(TallyError, TimeoutError):
    """ETIMEDOUT: a deadline passed; a ticket stays valid.

    The text names the ranks that are missing, of a round once that is a second old.
    """


class TallyRankLost(TallyError):
    """EWORKERLOST: a rank of the job is gone, and the job is over."""


class TallyServerLost(TallyError):
    """ESERVERLOST: no server can take a lost one's part, and the job is over."""


class TallyNoServer(TallyError):
    """ENOSERVER: the job has several machines, and there is no tally-server."""


class TallyNoAgent(TallyError):
    """EAGENT: the machine's tally-agent cannot be reached, or is gone."""


class TallyNoScheduler(TallyError):
    """ESCHED: the scheduler cannot be reached."""


class TallyVersion(TallyError):
    """EVERSION: libtally and the agent are of different releases."""


class TallyNotAllowed(TallyError):
    """EAUTH: the agent's socket, or the job, is another user's."""


class TallyShutdown(TallyError):
    """ESHUTDOWN: the session is over, or the job was brought down."""


class TallyIOError(TallyError):
    """EIO: an input or output has failed; the text says which."""


class TallyBusy(TallyError):
    """EBUSY: it is in use just now."""


class TallyInternal(TallyError):
    """EINTERNAL: a bug of Tally's; please report it."""


_KIND_OF = {
    "EAGAIN": TallyAgain, "EINVAL": TallyInvalid, "EPROTO": TallyProtocolError,
    "EMISMATCH": TallyMismatch, "EEXIST": TallyExists, "ENOENT": TallyNotFound,
    "ENOMEM": TallyNoMemory, "EQUOTA": TallyLimit, "ETIMEDOUT": TallyTimeout,
    "EWORKERLOST": TallyRankLost, "ESERVERLOST": TallyServerLost, "ENOSERVER": TallyNoServer,
    "EAGENT": TallyNoAgent, "ESCHED": TallyNoScheduler, "EVERSION": TallyVersion,
    "EAUTH": TallyNotAllowed, "ESHUTDOWN": TallyShutdown, "EIO": TallyIOError,
    "EBUSY": TallyBusy, "EINTERNAL": TallyInternal,
}


def name_of(code):
    """libtally's name of a code."""
    return lib.tally_error_name(code).decode()


def help_of(code):
    """One sentence on a code."""
    return in_python(lib.tally_error_help(code).decode())


CODES = {name_of(code): code for code in range(-len(_KIND_OF), 0)}
KINDS = {CODES[name]: kind for name, kind in _KIND_OF.items()}

for _kind in (TallyError, *_KIND_OF.values()):
    _kind.__module__ = "tally"

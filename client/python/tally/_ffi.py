# SPDX-License-Identifier: Apache-2.0
"""libtally through ctypes: where it is found, its structs and its functions.

The library is looked for in this order: the path in TALLY_LIBRARY, beside this file (where a
wheel has it), the build tree that this file lies in (build/lib), then wherever the system's
loader looks.
"""

import ctypes
import os
from ctypes import POINTER, c_char_p, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p

SONAME = "libtally.so.0"
PLUGIN = "libtally-cuda.so.0"
VERSION = "0.1.0"  # of this package: tally.h's


class Options(ctypes.Structure):
    """tally_options"""

    _fields_ = [
        ("socket", c_char_p),
        ("job", c_char_p),
        ("rank", c_int),
        ("world", c_int),
        ("local_rank", c_int),
        ("timeout_ms", c_int),
        ("chunk_bytes", c_size_t),
        ("on_loss", c_int),
        ("round_timeout_ms", c_int),
    ]


class TensorDesc(ctypes.Structure):
    """tally_tensor_desc"""

    _fields_ = [
        ("name", c_char_p),
        ("dtype", c_int),
        ("count", c_uint64),
        ("shape", POINTER(c_uint64)),
        ("ndims", c_uint32),
        ("priority", c_int32),
        ("meaning", c_char_p),
    ]


def meaning(items):
    """As libtally takes it: printable, one after the other, and no longer than it may be."""
    text = "; ".join("".join(c if c.isprintable() else "?" for c in item) for item in items)
    return text.encode(errors="replace")


class PushPullOptions(ctypes.Structure):
    """tally_push_pull_options"""

    _fields_ = [("op", c_int), ("priority", c_int32), ("override_priority", c_int)]


class GpuOptions(ctypes.Structure):
    """tally_gpu_options"""

    _fields_ = [("device", c_int), ("exact", c_int), ("plugin", c_char_p)]


FUNCTIONS = {
    # name: (result, arguments)
    "tally_attach": (c_int, [POINTER(Options), POINTER(c_void_p)]),
    "tally_leave": (c_int, [c_void_p]),
    "tally_detach": (c_int, [c_void_p]),
    "tally_forked": (None, [c_void_p]),
    "tally_rank": (c_int, [c_void_p]),
    "tally_world_size": (c_int, [c_void_p]),
    "tally_local_rank": (c_int, [c_void_p]),
    "tally_local_size": (c_int, [c_void_p]),
    "tally_job_name": (c_char_p, [c_void_p]),
    "tally_round_timeout_ms": (c_int, [c_void_p]),
    "tally_set_timeout_ms": (c_int, [c_void_p, c_int]),
    "tally_machines": (c_int, [c_void_p]),
    "tally_live_ranks": (c_int, [c_void_p]),
    "tally_is_late": (c_int, [c_void_p]),
    "tally_rank_is_live": (c_int, [c_void_p, c_int]),
    "tally_alloc": (c_int, [c_void_p, c_size_t, POINTER(c_void_p)]),
    "tally_import": (c_int, [c_void_p, c_int, c_size_t, POINTER(c_void_p)]),
    "tally_free": (c_int, [c_void_p, c_void_p]),
    "tally_declare": (c_int, [c_void_p, POINTER(TensorDesc), c_uint32, POINTER(c_void_p)]),
    "tally_undeclare": (c_int, [c_void_p, POINTER(c_void_p), c_uint32]),
    "tally_push_pull": (
        c_int,
        [c_void_p, c_void_p, c_void_p, c_void_p, POINTER(PushPullOptions), POINTER(c_uint64)],
    ),
    "tally_broadcast": (
        c_int,
        [c_void_p, c_void_p, c_void_p, c_void_p, c_int, POINTER(c_uint64)],
    ),
    "tally_gpu_open": (c_int, [c_void_p, POINTER(GpuOptions)]),
    "tally_gpu_push_pull": (
        c_int,
        [c_void_p, c_void_p, c_void_p, c_void_p, POINTER(PushPullOptions), c_void_p,
         POINTER(c_uint64)],
    ),
    "tally_gpu_wait": (c_int, [c_void_p, c_uint64, c_void_p]),
    "tally_wait": (c_int, [c_void_p, c_uint64, c_int]),
    "tally_test": (c_int, [c_void_p, c_uint64]),
    "tally_fd": (c_int, [c_void_p]),
    "tally_poll": (c_int, [c_void_p]),
    "tally_result": (c_void_p, [c_void_p, c_void_p]),
    "tally_barrier": (c_int, [c_void_p, c_int]),
    "tally_span": (c_int, [c_void_p, c_int, c_char_p, c_uint64, c_uint64]),
    "tally_grow": (c_int, [c_void_p, c_int]),
    "tally_error_text": (c_char_p, [c_void_p]),
    "tally_error_name": (c_char_p, [c_int]),
    "tally_error_help": (c_char_p, [c_int]),
    "tally_version": (c_char_p, []),
    "tally_dtype_size": (c_size_t, [c_int]),
}


def _candidates():
    named = os.environ.get("TALLY_LIBRARY")
    if named:
        return [named]
    here = os.path.dirname(os.path.abspath(__file__))
    files = (
        os.path.join(here, SONAME),
        os.path.normpath(os.path.join(here, "..", "..", "..", "build", "lib", SONAME)),
    )
    return [path for path in files if os.path.exists(path)] + [SONAME]


def plugin(lib):
    """The plugin for GPUs that lies beside the library; None: where the system's loader looks."""
    folder = os.path.dirname(lib._name)
    beside = os.path.join(folder, PLUGIN)
    return beside if folder and os.path.exists(beside) else None


def check_version(lib, path):
    """A library whose structs may be others than those above is refused.

    Before 1.0 the minor number counts, from then on the major one.
    """
    theirs = lib.tally_version().decode()
    counts = 2 if VERSION.startswith("0.") else 1
    if theirs.split(".")[:counts] != VERSION.split(".")[:counts]:
        raise ImportError(
            f"the Python package tally is version {VERSION}, but {path} is version {theirs}: "
            "install both from one release, or set TALLY_LIBRARY"
        )


def load():
    """The loaded library with typed functions; ImportError says where it was sought."""
    failures = []
    for path in _candidates():
        try:
            lib = ctypes.CDLL(path)
        except OSError as why:
            failures.append(f"{path}: {why}")
            continue
        for name, (result, arguments) in FUNCTIONS.items():
            try:
                function = getattr(lib, name)
            except AttributeError:
                raise ImportError(f"{path} has no {name}(): it is no libtally {VERSION}") from None
            function.restype = result
            function.argtypes = arguments
        check_version(lib, path)
        return lib
    raise ImportError("libtally was not found (set TALLY_LIBRARY): " + "; ".join(failures))

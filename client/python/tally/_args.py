# SPDX-License-Identifier: Apache-2.0
"""What callers give, as libtally takes it; what cannot be is refused in one line (EINVAL)."""

import math
import operator
import os

import numpy as np

from ._errors import CODES, TallyError

EINVAL = CODES["EINVAL"]
INT_MAX = 2**31 - 1
DIMS_MAX = 8  # of a tensor
ARRAY_DIMS_MAX = 32  # NumPy's

# name: (libtally's number, how NumPy holds it)
DTYPES = {
    "float32": (1, np.dtype(np.float32)),
    "float64": (2, np.dtype(np.float64)),
    "float16": (3, np.dtype(np.float16)),
    "bfloat16": (4, np.dtype(np.uint16)),
    "int8": (5, np.dtype(np.int8)),
    "uint8": (6, np.dtype(np.uint8)),
    "int32": (7, np.dtype(np.int32)),
    "int64": (8, np.dtype(np.int64)),
}


def dtype_of(dtype):
    """(number, NumPy dtype, name) for a name or a NumPy dtype; None, NumPy's float64, is none."""
    name = dtype
    if not isinstance(dtype, str) or dtype not in DTYPES:
        try:
            held = np.dtype(dtype) if dtype is not None else None
        except TypeError:  # NumPy has none of that name
            held = None
        if held is not None and not held.isnative:
            raise TallyError(EINVAL, f"dtype {held} has another byte order than this machine: "
                             f"declare {held.name}, and convert arrays with astype()")
        name = held.name if held is not None else str(dtype)
    if name not in DTYPES:
        raise TallyError(EINVAL, f"no dtype {name}; there are {', '.join(DTYPES)}")
    return (*DTYPES[name], name)


def shape_of(shape, dtype, what, dims_max=ARRAY_DIMS_MAX):
    """(shape as a tuple, its elements), of one number or several; C would take the lowest bits."""
    try:
        dims = (operator.index(shape),)
    except TypeError:
        try:
            dims = tuple(operator.index(d) for d in shape)
        except TypeError:
            raise TallyError(EINVAL, f"{what}: no shape {shape!r}; it is a whole number, or a "
                             "tuple of them") from None
    if any(d < 0 for d in dims):
        raise TallyError(EINVAL, f"{what}: no shape {dims}; a dimension is negative")
    if len(dims) > dims_max:
        raise TallyError(EINVAL, f"{what}: {len(dims)} dimensions are more than {dims_max}")
    # of no elements, too: NumPy wants the others' product to fit
    if math.prod(max(d, 1) for d in dims) * dtype.itemsize >= 2**63:
        raise TallyError(EINVAL, f"{what}: shape {dims} has 2**63 bytes or more")
    return dims, math.prod(dims)


def check_time(seconds):
    """None, which stands for the session's limit, or a number of seconds, not negative."""
    try:
        possible = seconds is None or seconds >= 0  # NaN is not
    except TypeError:
        possible = False
    if not possible:
        raise TallyError(EINVAL, f"no time {seconds!r}; it is a number of seconds, 0 or more, or "
                         "None for the session's limit")


def ms_of(seconds, least=1):
    """For libtally, to which 0 means a default, and less, too: None does here, and 0 s is 1 ms.

    What an int cannot hold, math.inf among it, is the most that it can, 24 days.
    """
    check_time(seconds)
    return 0 if seconds is None else max(least, int(min(seconds * 1000, INT_MAX)))


def str_of(text, what):
    """A str, or EINVAL."""
    if not isinstance(text, str):
        raise TallyError(EINVAL, f"{what} is a str, not {text!r}")
    return text


def text_of(text, what):
    """For C, where a text ends at a NUL."""
    if "\0" in str_of(text, what):
        raise TallyError(EINVAL, f"{what} has a NUL: {text!r}")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise TallyError(EINVAL, f"{what} is no UTF-8: {text!r}") from None


def path_of(path, what):
    """A path, whatever its bytes are."""
    try:
        path = os.fsencode(path)
    except TypeError:
        raise TallyError(EINVAL, f"{what} is a str or a path, not {path!r}") from None
    if b"\0" in path:
        raise TallyError(EINVAL, f"{what} has a NUL: {path!r}")
    return path


def one_of(value, table, what):
    """The value's entry of a table of what there is, by name; EINVAL says which names."""
    try:
        return table[value]
    except (KeyError, TypeError):  # what cannot be hashed is not there, either
        names = [key for key in table if isinstance(key, str)]
        raise TallyError(EINVAL, f"no {what} {value!r}; there are {', '.join(names[:-1])} and "
                         f"{names[-1]}") from None


def int_of(number, what, least=-INT_MAX - 1):
    """For C, which would take the lowest bits of a larger one."""
    try:
        number = operator.index(number)
    except TypeError:
        raise TallyError(EINVAL, f"{what} is a whole number, not {number!r}") from None
    if not least <= number <= INT_MAX:
        raise TallyError(EINVAL, f"no {what} {number}; {least} to {INT_MAX} are possible")
    return number

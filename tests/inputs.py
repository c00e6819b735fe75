# SPDX-License-Identifier: Apache-2.0
"""What ranks of the stories give, and what it must come to, bit for bit.

Floating point numbers are of either sign and their exponents lie apart, so that the bits of a
sum depend on the order; that is the one of docs/ARCHITECTURE.md, section 6.  Integers are any,
and wrap.  Which tensor, rank and round an input is of can be told from its numbers.
"""
import functools
import os

import numpy as np

LENGTH = 1013  # elements, then the same again: no chunk's or segment's length is a multiple of it
ROUNDS = 50    # then the same again


@functools.lru_cache(maxsize=4096)
def numbers(dtype, tensor, rank, number):
    """The first LENGTH elements of what rank gives in a round."""
    rng, dtype = np.random.default_rng([tensor, rank, number % ROUNDS]), np.dtype(dtype)
    if dtype.kind != "f":
        of = np.iinfo(dtype)
        return rng.integers(of.min, of.max, LENGTH, dtype, endpoint=True)
    return np.ldexp(rng.standard_normal(LENGTH), rng.integers(-8, 8, LENGTH)).astype(dtype)


def machines(world, path=None):
    """Of each rank: its machine.  Lines "RANK MACHINE" of the file (TROUBLE_MACHINES) say it, the
    last one counts; a rank that is in none of them has one of its own."""
    where = {str(r): r for r in range(world)}
    path = path or os.environ.get("TROUBLE_MACHINES")
    if path:
        with open(path, encoding="utf-8") as f:
            where.update(line.split() for line in f)
    return [where[str(r)] for r in range(world)]


def level(parts, ranks):
    """One after the other, of 16 bits in 32, and rounded once; a mean over so many ranks."""
    wide = np.float32 if parts[0].dtype == np.float16 else parts[0].dtype.type
    total = parts[0].astype(wide)
    for part in parts[1:]:
        total += part
    return (total / wide(ranks) if ranks > 1 else total).astype(parts[0].dtype)


def added(parts, where, op="sum"):
    """What comes of parts ({rank: elements}): on each machine in the order of ranks, then machine
    by machine, the one of the lowest rank first; where names the machine of each rank, also of
    those that give nothing."""
    ranks = len(parts) if op == "mean" else 1
    local = {machine: [] for machine in where}
    for rank in sorted(parts):
        local[where[rank]].append(parts[rank])
    if len(local) == 1:
        return level(local[where[0]], ranks)
    return level([level(p, 1) for p in local.values() if p], ranks)


class Inputs:
    """Of one tensor; marked: element 0, LENGTH, 2 * LENGTH.. of rank r is 2^r, so that the sum
    there tells whose it is."""

    def __init__(self, dtype="float32", tensor=0, marked=False):
        self._dtype, self._tensor, self._marked = np.dtype(dtype).name, tensor, marked

    def _part(self, rank, number):
        part = numbers(self._dtype, self._tensor, rank, number)
        if self._marked:
            part = part.copy()
            part[0] = 1 << rank
        return part

    def fill(self, array, rank, number):
        part, flat = self._part(rank, number), array.reshape(-1)
        whole = len(flat) // LENGTH * LENGTH
        flat[:whole].reshape(-1, LENGTH)[...] = part
        flat[whole:] = part[:len(flat) - whole]

    def wrong(self, result, ranks, where, number, op="sum"):
        """Indices of the elements that are not what ranks' inputs come to."""
        want = added({r: self._part(r, number) for r in ranks}, where, op)
        bits = result.reshape(-1).view(f"u{result.itemsize}")
        want = want.view(bits.dtype)
        whole = len(bits) // LENGTH * LENGTH
        return np.concatenate((
            np.flatnonzero(bits[:whole].reshape(-1, LENGTH) != want),
            np.flatnonzero(bits[whole:] != want[:len(bits) - whole]) + whole))

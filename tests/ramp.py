# SPDX-License-Identifier: Apache-2.0
"""Inputs of the trouble stories: what is summed tells rank, round and element."""

import numpy as np

LENGTH = 13  # no chunk's or segment's length is a multiple of it


class Ramp:
    """Of one tensor: element i of rank r in round n is i % LENGTH + (r + n) % 50."""

    def __init__(self, shape, dtype="float32"):
        self._ramp = np.resize(np.arange(LENGTH, dtype=dtype), shape)
        self._want = np.empty_like(self._ramp)  # no new memory, of which the kernel clears a page

    def fill(self, array, rank, number):
        np.add(self._ramp, (rank + number) % 50, out=array, casting="unsafe")

    def wrong(self, result, world, number):
        """Indices of the elements that are not the sum of all ranks' inputs."""
        np.multiply(self._ramp, world, out=self._want, casting="unsafe")
        self._want += np.array(sum((r + number) % 50 for r in range(world)), self._want.dtype)
        return np.flatnonzero(result != self._want)

"""Whether a job finds room now, and how early at best, told by those that were looked for before.

Room only shrinks during a pass: where a request found no room before some instant, an equal one finds none
there, nor one that asks for at least as much of everything for at least as long.
"""

import ctypes
from typing import Final

import numpy as np

from spur_sched import kernel

#: Failures of one kind that are remembered one by one.
_MOST_FAILURES: Final = 256
#: So many searches of one kind are remembered.
_MOST: Final = 2048


class Bounds:
    """Searches of requests that can be compared, by their sizes."""

    def __init__(self, size: int) -> None:
        self._asks = np.zeros((16, size))
        self._starts = np.zeros(16)
        self._count = 0

    def after(self, ask: tuple[float, ...]) -> float:
        """Whoever asks for this finds no room before; -inf = nobody knows."""
        count = self._count
        if not count:
            return -np.inf
        less = (self._asks[:count] <= ask).all(axis=1)
        starts = self._starts[:count][less]
        return float(starts.max()) if len(starts) else -np.inf

    def add(self, ask: tuple[float, ...], start: float) -> None:
        """Who asked for this found no room before `start`."""
        count = self._count
        if count == _MOST:
            return
        if count == len(self._starts):
            self._asks = np.concatenate([self._asks, np.zeros_like(self._asks)])
            self._starts = np.concatenate([self._starts, np.zeros_like(self._starts)])
        self._asks[count] = ask
        self._starts[count] = start
        self._count = count + 1


class Failures:
    """Requests of one pool that found no room: whoever asks for at least as much finds none either.

    Attributes:
        count: how many there are.
    """

    def __init__(self, size: int) -> None:
        self._table = np.zeros((_MOST_FAILURES, size))
        self._library = kernel.library()
        self._address = self._table.ctypes.data
        self.count = 0

    def cover(self, ask: tuple[float, ...], known: int = 0) -> bool:
        """Whether a failure asked for no more than this.

        Args:
            known: how many failures there were when none of them did.
        """
        if self.count == known:
            return False
        if self._library is not None:
            size = self._table.shape[1]
            sizes = (ctypes.c_double * size)(*ask)
            place = self._address + 8 * size * known
            return bool(self._library.spur_cover(self.count - known, size, place, sizes))
        return bool((self._table[known : self.count] <= ask).all(axis=1).any())

    def add(self, ask: tuple[float, ...]) -> None:
        """A request failed."""
        if self.count < _MOST_FAILURES:
            self._table[self.count] = ask
            self.count += 1

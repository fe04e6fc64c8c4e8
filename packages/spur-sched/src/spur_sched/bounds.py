"""How early a job can begin at best, told by those that were looked for before.

Room only shrinks during a pass: where a request found no room before some instant, an equal one finds none
there, nor one that asks for at least as much of everything for at least as long.
"""

from typing import Final

import numpy as np

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

"""How many tasks of one request every node holds now, kept up to date from start to start."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from spur_sched.columns import Bools, Ints

#: Of these columns those with room, and tasks for each.
Look = Callable[[Ints], tuple[Ints, Ints]]
#: Numbers up to this are counted to find the greatest.
_MOST_COUNTED: Final = 4096


class Fits:
    """The nodes of a pool that have room for a request.

    Only columns that something was put on since the last time are looked at again.
    """

    def __init__(self, allowed: Bools) -> None:
        self._allowed = allowed
        self._tasks: Ints = np.zeros(len(allowed), dtype=np.int64)
        #: How many changes it knows; -1 = nothing was looked at.
        self._known = -1

    def now(self, touched: Sequence[int], look: Look) -> tuple[Ints, Ints]:
        """As `look` at all columns that are allowed.

        Args:
            touched: columns that something was put on, one after the other.
        """
        tasks = self._tasks
        if self._known < 0:
            where = self._allowed.nonzero()[0]
        elif self._known < len(touched):
            where = np.array(touched[self._known :], dtype=np.int64)
            where = where[self._allowed[where]]
            tasks[where] = 0
        else:
            where = None
        if where is not None and len(where):
            found, held = look(where)
            tasks[found] = held
        self._known = len(touched)
        found = tasks.nonzero()[0]
        return found, tasks[found]


def greatest(numbers: Ints, count: int) -> Ints:
    """Positions of the `count` greatest of more numbers, of equal ones the first."""
    if numbers.max() <= _MOST_COUNTED:
        there = np.bincount(numbers)
        level = len(there) - 1 - int(there[::-1].cumsum().searchsorted(count))
    else:
        level = int(np.partition(numbers, len(numbers) - count)[len(numbers) - count])
    greater = (numbers > level).nonzero()[0]
    equal = (numbers == level).nonzero()[0][: count - len(greater)]
    return np.concatenate([greater, equal])

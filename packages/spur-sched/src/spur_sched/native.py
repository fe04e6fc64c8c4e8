"""The time of nodes kept in the table of steps by the compiled kernel, in place of `timeline`'s lists."""

import ctypes
import math
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from spur_sched import kernel
from spur_sched.columns import Bools, Columns, Ints, Vector
from spur_sched.rows import Rows, Steps

_TABLE: Final = ("where", "begins", "lasts", "falls", "room", "heads", "given", "used")


class Native:
    """The table of a pass, changed in place.

    What is put on nodes waits until somebody looks.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        columns: Columns,
        rows: Rows,
        promised: Bools,
        work_out: Callable[[int], Steps],
    ) -> None:
        self._library = library
        self._columns = columns
        self._rows = rows
        self._work_out = work_out
        self._table = kernel.Table()
        self._address = ctypes.addressof(self._table)
        self._held: dict[str, npt.NDArray[np.generic]] = {}
        self._version = -1
        self._waiting: list[tuple[int, float, float, Vector]] = []
        self._vector: Ints = np.zeros(columns.rows, dtype=np.int64)
        sums = [number for row, kinds in columns.parts.items() for number in (row, len(kinds), *kinds)]
        table = self._table
        table.rows, table.columns, table.sums = columns.rows, columns.size, len(columns.parts)
        self._hold("summed", np.array(sums, dtype=np.int64))
        self._hold("promised", promised)
        self._hold("vector", self._vector)

    def _hold(self, name: str, array: npt.NDArray[np.generic]) -> None:
        assert array.flags.c_contiguous
        self._held[name] = array
        setattr(self._table, name, array.ctypes.data)

    def sink_into(self, low: Ints) -> None:
        """Where what is free at worst is told from now on."""
        self._hold("low", low)

    def _borders(self) -> None:
        rows, table = self._rows, self._table
        if self._version != rows.version:
            self._version = rows.version
            for name in _TABLE:
                self._hold(name, getattr(rows, name))
            table.stride = rows.room.shape[1]
        table.size, table.lost = rows.size, rows.lost

    def take(self, at: int, start: float, end: float, vector: Vector) -> None:
        """Take this out of a node's time; said before it is taken from what is free now."""
        if not self._rows.used[at]:
            self._add(at)
        self._waiting.append((at, start, end, vector))

    def settle(self) -> Rows:
        """The table with all that was taken."""
        rows, waiting = self._rows, self._waiting
        if not waiting:
            return rows
        self._waiting = []
        at = np.array([one[0] for one in waiting], dtype=np.int64)
        starts = np.array([one[1] for one in waiting])
        ends = np.array([one[2] for one in waiting])
        vectors = np.array([one[3] for one in waiting], dtype=np.int64)
        done, table = 0, self._table
        while done < len(waiting):
            self._borders()
            done += self._library.spur_occupy(
                self._address,
                len(waiting) - done,
                at.ctypes.data + 8 * done,
                starts.ctypes.data + 8 * done,
                ends.ctypes.data + 8 * done,
                vectors.ctypes.data + 8 * done * vectors.shape[1],
            )
            rows.size, rows.lost = table.size, table.lost
            if done < len(waiting):
                rows.grow()
        rows.tidy()
        return rows

    def _add(self, at: int) -> None:
        """A column that could not be used comes into the table."""
        self._rows.replace([(at, self._work_out(at))])

    def window(self, at: int, start: float, end: float) -> tuple[list[int], float]:
        """As `Timeline.window`."""
        self.settle()
        if not self._rows.used[at]:
            self._add(at)
        self._borders()
        until = self._library.spur_window(self._address, at, start, end)
        return self._vector.tolist(), until

    def steps(self, at: int) -> Steps:
        """As `Timeline.steps`."""
        rows = self.settle()
        if not rows.used[at]:
            self._add(at)
        head = int(rows.heads[at])
        span = slice(head, head + int(rows.used[at]))
        good = rows.lasts[span] > -math.inf
        return Steps(rows.begins[span][good].tolist(), rows.room[:, span][:, good].T.tolist())

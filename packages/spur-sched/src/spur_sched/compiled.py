"""`search`'s way from instant to instant, gone by the compiled kernel: the same finds, to the last bit."""

import ctypes
import math
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from spur_sched import kernel
from spur_sched.columns import FOREVER, Bools, Columns, Ints
from spur_sched.demand import Demand
from spur_sched.rows import Rows
from spur_sched.spread import Count

#: Numbers that are asked for and reach this are left to Python, which knows no greatest one.
TOO_MUCH: Final = 1 << 40
_REALS: Final = ("starts", "limits", "sure", "firm", "keep_starts", "keep_limits", "keep_sure", "keep_firm")
_LONGS: Final = (
    *("step", "tasks", "there_at", "there_where", "there_tasks", "keep_step", "keep_tasks"),
    *("order", "other", "keys", "other_keys"),
)
_TABLE: Final = ("where", "begins", "lasts", "falls", "room")
_CANNOT: Final = -2
#: A choice that the kernel cannot make.
UNKNOWN: Final[list[tuple[int, int]]] = [(-1, -1)]
#: The choice among columns, in order, and their tasks.
Choice = Callable[[Ints, Ints], list[tuple[int, int]] | None]


def picked_by(
    library: ctypes.CDLL, count: Count, most: int, where: Ints, tasks: Ints
) -> list[tuple[int, int]] | None:
    """The choice of `shape` among many nodes of which none is special, of a job with a number of tasks.

    Returns:
        `UNKNOWN` = the kernel cannot.
    """
    chosen = np.empty(4 * most, dtype=np.int64)
    even = count.min_nodes > 1 if count.even is None else count.even
    size = library.spur_pick(
        len(where),
        where.ctypes.data,
        tasks.ctypes.data,
        count.min_nodes,
        most,
        count.num_tasks,
        even,
        chosen.ctypes.data,
    )
    if size < 0:
        return UNKNOWN if size == _CANNOT else None
    return list(zip(chosen[:size].tolist(), chosen[most : most + size].tolist(), strict=True))


class Compiled:
    """Room to work in, and the borders of the table of steps."""

    def __init__(self, library: ctypes.CDLL, columns: Columns, promised: Bools, now: float) -> None:
        self._library = library
        self._columns = columns
        self._search = kernel.Search()
        self._address = ctypes.addressof(self._search)
        #: Arrays that the kernel has borders of, by the name of the border.
        self._held: dict[str, npt.NDArray[np.generic]] = {}
        self._rows: Rows | None = None
        self._version = -1
        self._size = 0
        sums = [number for row, kinds in columns.parts.items() for number in (row, len(kinds), *kinds)]
        search = self._search
        search.now, search.forever = now, FOREVER
        search.rows, search.columns, search.sums = columns.rows, columns.size, len(columns.parts)
        self._hold("summed", np.array(sums, dtype=np.int64))
        self._hold("promised", promised)
        self._hold("vector", np.zeros(columns.rows, dtype=np.int64))
        self._hold("by_column", np.zeros(columns.size, dtype=np.int64))
        self._demand: Demand | None = None

    def _hold(self, name: str, array: npt.NDArray[np.generic]) -> None:
        assert array.flags.c_contiguous
        self._held[name] = array
        setattr(self._search, name, array.ctypes.data)

    def prepare(
        self,
        rows: Rows,
        demand: Demand,
        secs: float,
        member: Bools,
        bounds: tuple[int, int, int, tuple[int, int, int]],
    ) -> bool:
        """Look for this from now on.

        Args:
            bounds: (each, most, level, enough) of the search.

        Returns:
            False = the kernel cannot.
        """
        each, most, level, (nodes, tasks, most_nodes) = bounds
        if demand.uneven or not demand.possible or most_nodes < 1:
            return False
        parts = demand.parts
        if max(each, most, level, nodes, tasks, most_nodes, demand.need.tasks_per_node) >= TOO_MUCH:
            return False
        betters = [part.each * level for part in parts]
        lowest = [max(part.fixed, part.each * each) for part in parts]
        if max(*betters, *lowest) >= 1 << 62:
            return False
        search = self._search
        if self._rows is not rows or self._version != rows.version:
            self._rows, self._version = rows, rows.version
            for name in _TABLE:
                self._hold(name, getattr(rows, name))
            search.stride = rows.room.shape[1]
            if search.stride > self._size:
                self._size = search.stride
                for name in _REALS:
                    self._hold(name, np.empty(self._size, dtype=np.float64))
                for name in _LONGS:
                    self._hold(name, np.empty(self._size, dtype=np.int64))
                self._hold("good", np.empty(self._size, dtype=np.uint8))
        search.size = rows.size
        if self._held.get("member") is not member:
            self._hold("member", member)
        if demand is not self._demand:
            self._demand = demand
            for name in ("row", "fixed", "each"):
                self._hold(name, np.array([getattr(part, name) for part in parts], dtype=np.int64))
            search.from_nodes = None
            if demand.from_nodes is not None:
                self._hold("from_nodes", demand.from_nodes)
            search.parts, search.exclusive, search.mixes = len(parts), demand.exclusive, demand.mixes
            search.per_node = demand.need.tasks_per_node
        self._hold("bounds", np.array(lowest, dtype=np.int64))
        self._hold("betters", np.array(betters, dtype=np.int64))
        search.secs, search.least, search.most, search.level = secs, each, most, level
        search.nodes, search.tasks_wanted, search.most_nodes = max(1, nodes), tasks, most_nodes
        return True

    def run(
        self, after: float, horizon: float, resolution: float, plain: Choice
    ) -> tuple[float, list[tuple[int, int]]] | None:
        """The first start from `after` to `horizon`, and the nodes and their tasks."""
        search, library, address = self._search, self._library, self._address
        search.after, search.horizon, search.resolution = after, horizon, resolution
        library.spur_candidates(address)
        while library.spur_sweep(address):
            count = search.there
            where: Ints = self._held["there_where"][:count]  # type: ignore[assignment]
            chosen = plain(where, self._held["there_tasks"][:count])  # type: ignore[arg-type]
            if chosen is None:
                search.place = search.begun
                continue
            places = where.searchsorted([at for at, _ in chosen])
            steps = self._held["there_at"][:count][places]
            if not library.spur_look(address, len(steps), steps.ctypes.data):
                assert not math.isnan(search.instant)
                return search.instant, chosen
        return None

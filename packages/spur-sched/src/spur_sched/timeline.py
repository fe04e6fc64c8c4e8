"""What is free on each node over time.

A node's time is cut into steps: from one instant to the next nothing changes on it.  What runs now ends at
its expected end, a promise begins in the future.  `rows` has the steps of all nodes together, `search` finds
the earliest instant in them.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from operator import lt
from typing import Final, NamedTuple

import numpy as np

from spur_sched import kernel
from spur_sched.columns import FOREVER, Bools, Columns, Floats, Ints, Vector
from spur_sched.compiled import Compiled
from spur_sched.layers import with_layers
from spur_sched.native import Native
from spur_sched.rows import Rows, Steps

#: Work past its expected end is being ended: it is gone this soon.
OVERDUE_SECS: Final = 1.0
#: Bounds of the guess how far ahead a place will be found.
_NEAR: Final = 300.0
_FAR: Final = 30 * 86_400.0


class Part(NamedTuple):
    """What is taken on one column."""

    at: int
    vector: Vector


class Timeline:
    """Nodes over time; `columns.free` stays what is free now."""

    def __init__(self, columns: Columns, now: float, usable: Bools, *, shrinks: bool = False) -> None:
        self.columns = columns
        self.now = now
        #: Room only shrinks during the pass.
        self.shrinks = shrinks
        #: Columns that may be used at all.
        self.usable = usable
        #: Of nodes with promises: when the first and the last begin, and what is free at worst from now on.
        self.promised: Bools = np.zeros(columns.size, dtype=np.bool_)
        self.first: Floats = np.full(columns.size, math.inf)
        self.last: Floats = np.full(columns.size, -math.inf)
        self.low: Ints = np.zeros((0, 0), dtype=np.int64)
        self.promises = 0
        #: Columns that something was put on, one after the other.
        self.touched: list[int] = []
        #: How far ahead it is worth looking first: a guess, which changes nothing of what is found.
        self.reach = math.inf
        self._held: dict[int, list[tuple[float, Vector]]] = {}
        self._steps: dict[int, Steps] = {}
        self._changed: set[int] = set()
        self._rows: Rows | None = None
        library = kernel.library()
        self._library = library
        self._compiled = None if library is None else Compiled(library, columns, self.promised, now)
        #: Once there is a table: the kernel has the time of all nodes in it.
        self._native: Native | None = None

    # -- one node

    def put(self, at: int, start: float, end: float, vector: Vector) -> None:
        """Something runs on the node from `start` to `end` (inf = without a limit)."""
        if start > self.now:
            self.promise((Part(at, vector),), start, end)
            return
        if self._native is not None:
            self._native.take(at, start, self._end(at, start, end), vector)
        free = self.columns.free
        self.touched.append(at)
        for row, number in enumerate(vector):
            if number:
                free[row, at] -= number
        if self._native is not None:
            if self.promises and self.promised[at]:
                self._native.settle()
            return
        end = self._end(at, start, end)
        steps = self._steps.get(at)
        if steps is not None:
            _occupy(steps, start, end, vector)
        elif end != math.inf:
            self._held.setdefault(at, []).append((end, vector))
        if self._rows is not None:
            self._changed.add(at)
        if self.promises and self.promised[at]:
            self._sink((at,))

    def promise(self, parts: Iterable[Part], start: float, end: float) -> None:
        """Something will run on these nodes from `start`, which lies ahead, to `end`."""
        columns = self.columns
        if not self.promises:
            self.low = columns.free.copy()
            if self._native is not None:
                self._native.sink_into(self.low)
        self.promises += 1
        places = []
        if self._native is not None:
            for at, vector in parts:
                self._native.take(at, start, self._end(at, start, end), vector)
                places.append(at)
            self._promised(places, start)
            self._native.settle()
            return
        for at, vector in parts:
            _occupy(self.steps(at), start, self._end(at, start, end), vector)
            places.append(at)
        self._changed.update(places)
        self._promised(places, start)
        self._sink(places)

    def _promised(self, places: list[int], start: float) -> None:
        self.touched += places
        self.promised[places] = True
        self.first[places] = np.minimum(self.first[places], start)
        self.last[places] = np.maximum(self.last[places], start)

    def _end(self, at: int, start: float, end: float) -> float:
        """The end of work without a limit is waited for as that of everything without one, but a promise
        made for that time sees it stay."""
        if end == math.inf and start < FOREVER and not (self.promised[at] and self.last[at] >= FOREVER):
            return FOREVER
        return end

    def _sink(self, places: Iterable[int]) -> None:
        """Work out what is free at worst on nodes with promises."""
        leasts = []
        for at in places:
            least = list(map(min, zip(*self._steps[at].rooms, strict=True)))
            self.columns.resum(least)
            leasts.append(least)
        self.low[:, list(places)] = np.array(leasts, dtype=np.int64).T

    def steps(self, at: int) -> Steps:
        """The node's time from now on."""
        if self._native is not None:
            return self._native.steps(at)
        found = self._steps.get(at)
        if found is None:
            found = self._steps[at] = self._work_out(at)
        return found

    def _work_out(self, at: int) -> Steps:
        now, columns = self.now, self.columns
        ends = [
            (
                FOREVER if end is None or end == math.inf else max(end, now + OVERDUE_SECS),
                columns.vector(cpus, memory, gres, layer),
            )
            for (end, cpus, memory, gres), layer in with_layers(columns.views[at])
        ]
        ends += self._held.pop(at, ())
        ends.sort(key=_instant)
        room = columns.free[:, at].tolist()
        times, rooms = [now], [room]
        for instant, vector in ends:
            if instant > times[-1]:
                room = list(room)
                times.append(instant)
                rooms.append(room)
            for row, number in enumerate(vector):
                if number:
                    room[row] += number
        return Steps(times, rooms)

    def room_now(self, at: int, end: float) -> list[int]:
        """The least room from now to `end`."""
        if self.promises and self.promised[at] and self.first[at] < end:
            return self.window(at, self.now, end)[0]
        found: list[int] = self.columns.free[:, at].tolist()
        return found

    def window(self, at: int, start: float, end: float) -> tuple[list[int], float]:
        """The least room from `start` to `end`, and until when it stays at that at least."""
        if self._native is not None:
            return self._native.window(at, start, end)
        times, rooms = self.steps(at)
        place = max(0, bisect_right(times, start) - 1)
        room = rooms[place]
        place += 1
        mixed = False
        size = len(times)
        while place < size and times[place] < end:
            later = rooms[place]
            if any(map(lt, later, room)):
                room = list(map(min, later, room))
                mixed = True
            place += 1
        if mixed:
            self.columns.resum(room)
        if self.promised[at]:
            while place < size:
                if any(map(lt, rooms[place], room)):
                    return room, times[place]
                place += 1
        return room, math.inf

    # -- all nodes

    def compiled(self) -> Compiled | None:
        """The kernel's side of a search, if there is a kernel."""
        return self._compiled

    def reached(self, secs: float) -> None:
        """So far ahead a place was found."""
        secs = min(2 * secs, _FAR) + _NEAR
        self.reach = secs if self.reach == math.inf else self.reach + (secs - self.reach) / 8

    def rows(self) -> Rows:
        """All steps as one table, up to date."""
        if self._native is not None:
            return self._native.settle()
        if self._rows is None:
            self._rows = Rows(self.columns, self.usable, self.now, OVERDUE_SECS)
            self._changed = {*self._held, *self._steps}
        if self._changed:
            self._rows.replace([(at, self.steps(at)) for at in sorted(self._changed)])
            self._changed.clear()
        if self._library is not None and self.shrinks:
            self._native = Native(self._library, self.columns, self._rows, self.promised, self._work_out)
            if self.promises:
                self._native.sink_into(self.low)
            self._steps.clear()
            self._held.clear()
        return self._rows


def end_of(start: float, secs: float) -> float:
    """When work ends at the latest; what begins when work without a limit ends is there for good."""
    return start + secs if start < FOREVER else math.inf


def _occupy(steps: Steps, start: float, end: float, vector: Vector) -> None:
    """Take something out of a node's time."""
    times, rooms = steps
    first = max(0, bisect_right(times, start) - 1)
    if times[first] < start:
        first += 1
        times.insert(first, start)
        rooms.insert(first, list(rooms[first - 1]))
    last = len(times)
    if end < math.inf:
        last = bisect_left(times, end, first)
        if last == len(times) or times[last] != end:
            times.insert(last, end)
            rooms.insert(last, list(rooms[last - 1]))
    taken = [(row, number) for row, number in enumerate(vector) if number]
    for place in range(first, last):
        room = rooms[place]
        for row, number in taken:
            room[row] -= number


def _instant(end: tuple[float, Vector]) -> float:
    return end[0]

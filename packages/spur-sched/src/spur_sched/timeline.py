"""What is free on each node over time, and the earliest instant at which a job finds its room.

A node's time is cut into steps: from one instant to the next nothing changes on it.  What runs now ends at
its expected end, a promise begins in the future.  All steps of all nodes together are a table (`Rows`), in
which one look finds every step that could hold a task of a job; only those are looked at more closely.
"""

import heapq
import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from spur_sched.columns import CPUS, EMPTY, FOREVER, MEMORY, Bools, Columns, Floats, Ints, Vector
from spur_sched.demand import Demand

#: Work past its expected end is being ended: it is gone this soon.
OVERDUE_SECS: Final = 1.0
_NO_TIMES: Final[tuple[tuple[float, float], ...]] = ()


class Steps(NamedTuple):
    """A node's room from each instant on; the first instant is now."""

    times: list[float]
    rooms: list[list[int]]


class Found(NamedTuple):
    """Where and when: (column, tasks) at `start`."""

    start: float
    chosen: list[tuple[int, int]]


class Ask(NamedTuple):
    """A search.

    Attributes:
        member: columns that may be used.
        each: least tasks of a node.
        most: more tasks of one node than this are of no use.
        enough: (nodes, tasks, most nodes): with fewer nodes, or fewer tasks on that many, they do not
            suffice.
        pick: the choice among (column -> tasks) at an instant, None = they do not suffice.
        away: times at which a node may not be used.
        clear: whether everything that is not of a node (a licence) is there for a start at an instant.
        instants: when that may change.
        clip: the part of a node's room that may be used between two instants, for the columns of `odd`.
    """

    demand: Demand
    secs: float
    member: Bools
    each: int
    most: int
    enough: tuple[int, int, int]
    pick: Callable[[dict[int, int], float], list[tuple[int, int]] | None]
    away: dict[int, tuple[tuple[float, float], ...]]
    clear: Callable[[float], bool] | None = None
    instants: Sequence[float] = ()
    clip: Callable[[int, list[int], float, float], list[int]] | None = None
    odd: frozenset[int] = frozenset()


class Timeline:
    """Nodes over time; `columns.free` stays what is free now."""

    def __init__(self, columns: Columns, now: float, usable: Bools) -> None:
        self.columns = columns
        self.now = now
        #: Columns that may be used at all.
        self.usable = usable
        #: Of nodes with promises: when the first begins, and what is free at worst from now on.
        self.promised: Bools = np.zeros(columns.size, dtype=np.bool_)
        self.first: Floats = np.full(columns.size, math.inf)
        self.last: Floats = np.full(columns.size, -math.inf)
        self.low: Ints = np.zeros((0, 0), dtype=np.int64)
        self.promises = 0
        self._held: dict[int, list[tuple[float, float, Vector]]] = {}
        self._steps: dict[int, Steps] = {}
        self._changed: set[int] = set()
        self._rows: Rows | None = None

    # -- one node

    def put(self, at: int, start: float, end: float, vector: Vector) -> None:
        """Something runs on the node from `start` to `end` (inf = without a limit)."""
        columns = self.columns
        if end == math.inf and not (self.promised[at] and self.last[at] >= FOREVER):
            # Its end is waited for as that of everything without a limit, but a promise made for that time
            # sees it stay.
            end = FOREVER if start < FOREVER else math.inf
        self._held.setdefault(at, []).append((start, end, vector))
        self._steps.pop(at, None)
        if self._rows is not None:
            self._changed.add(at)
        if start <= self.now:
            for row, number in enumerate(vector):
                if number:
                    columns.free[row, at] -= number
        else:
            if not self.promises:
                self.low = columns.free.copy()
            self.promises += 1
            self.promised[at] = True
            self.first[at] = min(self.first[at], start)
            self.last[at] = max(self.last[at], start)
        if self.promised[at]:
            rooms = self.steps(at).rooms
            least = [min(numbers) for numbers in zip(*rooms, strict=True)]
            columns.resum(least)
            self.low[:, at] = least

    def steps(self, at: int) -> Steps:
        """The node's time from now on."""
        found = self._steps.get(at)
        if found is None:
            found = self._steps[at] = self._work_out(at)
        return found

    def _work_out(self, at: int) -> Steps:
        now, columns = self.now, self.columns
        deltas: list[tuple[float, Vector, int]] = []
        for end, cpus, memory, gres in columns.views[at].running:
            until = FOREVER if end is None or end == math.inf else max(end, now + OVERDUE_SECS)
            deltas.append((until, columns.vector(cpus, memory, gres), 1))
        for start, end, vector in self._held.get(at, ()):
            if start > now:
                deltas.append((start, vector, -1))
            if end != math.inf:
                deltas.append((end, vector, 1))
        deltas.sort(key=_instant)
        room = columns.free[:, at].tolist()
        times, rooms = [now], [room]
        for instant, vector, sign in deltas:
            if instant > times[-1]:
                room = list(room)
                times.append(instant)
                rooms.append(room)
            for row, number in enumerate(vector):
                if number:
                    room[row] += sign * number
        return Steps(times, rooms)

    def room_now(self, at: int, end: float) -> list[int]:
        """The least room from now to `end`."""
        if self.promises and self.promised[at] and self.first[at] < end:
            return self.window(at, self.now, end)[0]
        found: list[int] = self.columns.free[:, at].tolist()
        return found

    def window(self, at: int, start: float, end: float) -> tuple[list[int], float]:
        """The least room from `start` to `end`, and until when it stays at that at least."""
        times, rooms = self.steps(at)
        place = max(0, bisect_right(times, start) - 1)
        room = rooms[place]
        place += 1
        mixed = False
        while place < len(times) and times[place] < end:
            later = rooms[place]
            if any(more < less for more, less in zip(later, room, strict=True)):
                room = [min(pair) for pair in zip(later, room, strict=True)]
                mixed = True
            place += 1
        if mixed:
            self.columns.resum(room)
        until = math.inf
        if self.promised[at]:
            while place < len(times):
                if any(more < less for more, less in zip(rooms[place], room, strict=True)):
                    until = times[place]
                    break
                place += 1
        return room, until

    # -- all nodes

    def earliest(self, ask: Ask, after: float, horizon: float, resolution: float) -> Found | None:
        """The first instant from `after` on at which the job finds room for all of its time.

        Args:
            horizon: later instants are not looked at.
            resolution: starts are rounded up to a multiple of this many seconds; 0 = exact.
        """
        rows = self._table()
        starts, where, tasks = rows.candidates(ask, self.promised, after, self.now, resolution)
        extra = [
            (_rounded(end, resolution), at)
            for at, times in ask.away.items()
            if ask.member[at]
            for _, end in times
            if self.now < end < math.inf
        ]
        if extra:
            starts = np.concatenate([starts, [max(instant, after) for instant, _ in extra]])
            where = np.concatenate([where, np.array([at for _, at in extra], dtype=np.int64)])
            tasks = np.concatenate([tasks, np.full(len(extra), -1, dtype=np.int64)])
        if ask.instants:
            starts = np.concatenate([starts, [max(instant, after) for instant in ask.instants]])
            where = np.concatenate([where, np.full(len(ask.instants), -1, dtype=np.int64)])
            tasks = np.concatenate([tasks, np.full(len(ask.instants), -1, dtype=np.int64)])
        in_time = starts <= horizon
        if not in_time.all():
            starts, where, tasks = starts[in_time], where[in_time], tasks[in_time]
        return _Search(self, ask, horizon, resolution).run(starts, where, tasks)

    def _table(self) -> "Rows":
        if self._rows is None:
            self._rows = Rows(self)
            self._changed.update(self._held)
        rows = self._rows
        for at in sorted(self._changed):
            rows.replace(at, self.steps(at))
        self._changed.clear()
        return rows


class _Search:
    """One walk through the instants at which nodes become free, the set of nodes that hold the job at its
    side."""

    def __init__(self, timeline: Timeline, ask: Ask, horizon: float, resolution: float) -> None:
        self.timeline = timeline
        self.ask = ask
        self.horizon = horizon
        self.resolution = resolution
        #: Nodes that hold tasks of the job when it starts at the instant looked at.
        self.active: dict[int, int] = {}
        self.total = 0
        #: How many more tasks must have come in before it is worth looking whether the nodes suffice.
        self.lack = 0
        #: (end that a node's room lasts until, column)
        self.lasting: list[tuple[float, int]] = []

    def run(self, starts: Floats, where: Ints, tasks: Ints) -> Found | None:
        """Walk in order of time, a piece of the candidates at a time."""
        size = max(64, 4 * self.ask.enough[0])
        while len(starts):
            if len(starts) > 2 * size:
                bound = np.partition(starts, size)[size]
                now = starts <= bound
                found = self._walk(starts[now], where[now], tasks[now])
                if found is not None:
                    return found
                starts, where, tasks = starts[~now], where[~now], tasks[~now]
                size *= 4
            else:
                return self._walk(starts, where, tasks)
        return None

    def _walk(self, starts: Floats, where: Ints, tasks: Ints) -> Found | None:
        order = np.lexsort((where, starts))
        instants, nodes, held = starts[order].tolist(), where[order].tolist(), tasks[order].tolist()
        size, place = len(instants), 0
        secs = self.ask.secs
        while place < size:
            start = instants[place]
            end = end_of(start, secs)
            while self.lasting and self.lasting[0][0] < end:
                _, at = heapq.heappop(self.lasting)
                self._enter(at, start, -1)
            while place < size and instants[place] == start:
                if nodes[place] >= 0:
                    self._enter(nodes[place], start, held[place])
                place += 1
            found = self._enough(start)
            if found is not None:
                return found
        return None

    def _enter(self, at: int, start: float, tasks: int) -> None:
        """Look at a node at an instant: the tasks it holds from then on for the whole time."""
        ask = self.ask
        until = math.inf
        end = end_of(start, ask.secs)
        if tasks < 0:
            room, until = self.timeline.window(at, start, end)
            if ask.clip is not None and at in ask.odd:
                room = ask.clip(at, room, start, end)
            tasks = ask.demand.holds(at, room)
        if ask.away and tasks:
            for begin, over in ask.away.get(at, _NO_TIMES):
                if begin < end and over > start:
                    tasks = 0
                elif begin >= end:
                    until = min(until, begin)
        before = self.active.pop(at, 0)
        self.total -= before
        if tasks >= ask.each:
            tasks = min(tasks, ask.most)
            self.active[at] = tasks
            self.total += tasks
            if tasks > before:
                self.lack -= tasks - before
            if until < math.inf:
                heapq.heappush(self.lasting, (until, at))

    def _enough(self, start: float) -> Found | None:
        nodes, tasks, most = self.ask.enough
        if len(self.active) < nodes or self.total < tasks or self.lack > 0:
            return None
        if self.ask.clear is not None and not self.ask.clear(start):
            return None
        if tasks and len(self.active) > most:
            held = np.fromiter(self.active.values(), dtype=np.int64, count=len(self.active))
            held.partition(len(held) - most)
            self.lack = tasks - int(held[len(held) - most :].sum())
            if self.lack > 0:
                return None
        chosen = self.ask.pick(self.active, start)
        return None if chosen is None else Found(start, chosen)


class Rows:
    """All steps of all usable nodes as one table.

    A step is a row: from when, until when, on which node, what is free, and the next fall of what is free:
    when, and what is left then.  Rows that no longer hold have no CPUs.
    """

    def __init__(self, timeline: Timeline) -> None:
        columns, now = timeline.columns, timeline.now
        nodes = timeline.usable.nonzero()[0]
        at: list[int] = nodes.tolist()
        ends: list[float] = [now] * len(at)
        numbers: list[list[int]] = [[] for _ in range(3)]
        kinds: list[tuple[int, int, int]] = []
        for place in at[:]:
            for end, cpus, memory, gres in columns.views[place].running:
                if gres:
                    kinds += [
                        (len(at), columns.kinds[key], n) for key, n in gres.items() if key in columns.kinds
                    ]
                at.append(place)
                ends.append(FOREVER if end is None or end == math.inf else max(end, now + OVERDUE_SECS))
                numbers[0].append(cpus)
                numbers[1].append(memory)
        size = len(at)
        where = np.array(at, dtype=np.int64)
        begins = np.array(ends, dtype=np.float64)
        change = np.zeros((columns.rows, size), dtype=np.int64)
        first = len(nodes)
        change[:, :first] = columns.free[:, nodes]
        change[CPUS, first:] = numbers[0]
        change[MEMORY, first:] = numbers[1]
        change[EMPTY, first:] = 1
        for place, row, count in kinds:
            change[row, place] += count
        for row, types in columns.parts.items():
            change[row, first:] = change[list(types), first:].sum(axis=0)
        order = np.lexsort((begins, where))
        where, begins = where[order], begins[order]
        room = np.cumsum(change[:, order], axis=1)
        #: Where each node's rows begin.
        heads = np.searchsorted(where, nodes)
        before = room[:, heads] - change[:, order][:, heads]
        room -= np.repeat(before, np.diff(np.append(heads, size)), axis=1)
        lasts = np.full(size, math.inf)
        same = where[1:] == where[:-1]
        lasts[:-1][same] = begins[1:][same]
        # Of rows with one beginning only the last one holds.
        room[CPUS, (lasts == begins).nonzero()[0]] = -1
        self.columns = columns
        self.size = size
        self.dead = 0
        self.where = where
        self.begins = begins
        self.lasts = lasts
        self.falls: Floats = np.full(size, math.inf)
        self.room: Ints = room
        self.after: Ints = np.zeros_like(room)
        self._of = {
            place: (head, end)
            for place, head, end in zip(
                nodes.tolist(), heads.tolist(), [*heads.tolist()[1:], size], strict=True
            )
        }

    def replace(self, at: int, steps: Steps) -> None:
        """The node's time has changed."""
        head, end = self._of.get(at, (0, 0))
        self.room[CPUS, head:end] = -1
        count = len(steps.times)
        if self.size + count > len(self.begins):
            self._grow(count)
        head, end = self.size, self.size + count
        self._of[at] = (head, end)
        self.size = end
        self.where[head:end] = at
        self.begins[head:end] = steps.times
        self.lasts[head:end] = [*steps.times[1:], math.inf]
        self.room[:, head:end] = np.array(steps.rooms, dtype=np.int64).T
        fall, left = math.inf, steps.rooms[-1]
        falls, lefts = [], []
        for place in range(count - 1, -1, -1):
            falls.append(fall)
            lefts.append(left)
            if place and any(
                more < less for more, less in zip(steps.rooms[place], steps.rooms[place - 1], strict=True)
            ):
                fall, left = steps.times[place], steps.rooms[place]
        self.falls[head:end] = falls[::-1]
        self.after[:, head:end] = np.array(lefts[::-1], dtype=np.int64).T

    def _grow(self, count: int) -> None:
        """Leave out what no longer holds and make room for more."""
        live = (self.room[CPUS, : self.size] >= 0).nonzero()[0]
        size = len(live)
        more = size // 2 + count + 256
        place = np.cumsum(self.room[CPUS, : self.size] >= 0)
        places = np.append(0, place).tolist()
        self._of = {at: (places[head], places[end]) for at, (head, end) in self._of.items()}
        self.where = np.append(self.where[live], np.zeros(more, dtype=np.int64))
        for name in ("begins", "lasts", "falls"):
            setattr(self, name, np.append(getattr(self, name)[live], np.zeros(more)))
        blank = np.full((self.columns.rows, more), -1, dtype=np.int64)
        self.room = np.concatenate([self.room[:, live], blank], axis=1)
        self.after = np.concatenate([self.after[:, live], blank], axis=1)
        self.size = size

    def candidates(
        self, ask: Ask, promised: Bools, after: float, now: float, resolution: float
    ) -> tuple[Floats, Ints, Ints]:
        """(start, column, tasks) of all steps that may hold a task; tasks -1 = to be looked at closely."""
        size = self.size
        demand = ask.demand
        good = None
        for part in demand.parts:
            bound = max(part.fixed, part.each * ask.each)
            mask = self.room[part.row, :size] >= bound
            good = mask if good is None else good & mask
        assert good is not None
        if demand.exclusive:
            good &= self.room[EMPTY, :size] >= 0
        found = good.nonzero()[0]
        where = self.where[found]
        mine = ask.member[where]
        if not mine.all():
            found, where = found[mine], where[mine]
        starts = self.begins[found]
        if resolution:
            later = (starts > now) & (starts < FOREVER)
            starts = np.where(later, np.ceil(starts / resolution) * resolution, starts)
        starts = np.maximum(starts, after)
        keep = self.lasts[found] > starts
        tight = self.falls[found] < np.where(starts < FOREVER, starts + ask.secs, math.inf)
        if tight.any():
            for part in demand.parts:
                bound = max(part.fixed, part.each * ask.each)
                keep &= ~tight | (self.after[part.row][found] >= bound)
        found, where, starts = found[keep], where[keep], starts[keep]
        close: Sequence[bool] | Bools = promised[where]
        if demand.whole_memory or demand.total:
            close = np.ones(len(where), dtype=np.bool_)
        if ask.odd:
            close = np.isin(where, list(ask.odd)) | close
        room = self.room
        tasks = demand.tasks(where, lambda row: room[row][found])
        tasks = np.where(close, -1, tasks)
        return starts, where, tasks


def end_of(start: float, secs: float) -> float:
    """When work ends at the latest; what begins when work without a limit ends is there for good."""
    return start + secs if start < FOREVER else math.inf


def _rounded(instant: float, resolution: float) -> float:
    return math.ceil(instant / resolution) * resolution if resolution and instant < FOREVER else instant


def _instant(delta: tuple[float, Vector, int]) -> float:
    return delta[0]

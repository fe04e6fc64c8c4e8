"""The earliest instant at which a job finds its room for all of its time.

Most jobs need nothing but counted room: for them every step of every node is looked at as a column of
numbers.  A step may hold tasks of a job for starts within an interval; the search goes from instant to
instant at which there could be enough such steps.  Whatever depends on more (reservations, licences, who is
where, switches) walks from step to step.
"""

import heapq
import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from spur_sched.columns import EMPTY, FOREVER, MEMORY, Bools, Floats, Ints
from spur_sched.compiled import Compiled
from spur_sched.demand import Demand
from spur_sched.fits import greatest
from spur_sched.rows import Rows
from spur_sched.timeline import Timeline, end_of

#: So many parts of the time are looked at before all the rest is, each so much longer than the one before.
_PARTS: Final = 3
_WIDER: Final = 4.0
_NO_TIMES: Final[tuple[tuple[float, float], ...]] = ()
#: (column, tasks)
Chosen = list[tuple[int, int]]


class Found(NamedTuple):
    """Where and when: (column, tasks) at `start`."""

    start: float
    chosen: Chosen


class Ask(NamedTuple):
    """A search.

    Attributes:
        member: columns that may be used.
        each: least tasks of a node.
        most: more tasks of one node than this are of no use.
        enough: (nodes, tasks, most nodes): with fewer nodes, or fewer tasks on that many, they do not
            suffice.
        pick: the choice among (column -> tasks) at an instant, None = they do not suffice.
        plain: the choice among columns, in order, and their tasks, where nothing but these decides; None =
            more does.
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
    pick: Callable[[dict[int, int], float], Chosen | None]
    plain: Callable[[Ints, Ints], Chosen | None] | None
    away: dict[int, tuple[tuple[float, float], ...]]
    clear: Callable[[float], bool] | None = None
    instants: Sequence[float] = ()
    clip: Callable[[int, list[int], float, float], list[int]] | None = None
    odd: frozenset[int] = frozenset()


class _Candidates(NamedTuple):
    """Steps that may hold a task.

    Attributes:
        starts: the first start within the step.
        limits: starts from this instant on are not of this step, or find less room than they need.
        sure: starts before this instant find all the tasks, later ones perhaps fewer.
        where: the column.
        tasks: so many at most.
        level: a number of tasks; starts before `firm` find at least so many, later ones fewer.
    """

    starts: Floats
    limits: Floats
    sure: Floats
    where: Ints
    tasks: Ints
    level: int
    firm: Floats


def earliest(timeline: Timeline, ask: Ask, after: float, horizon: float, resolution: float) -> Found | None:
    """The first instant from `after` on at which the job finds room for all of its time.

    Args:
        horizon: later instants are not looked at.
        resolution: starts are rounded up to a multiple of this many seconds; 0 = exact.
    """
    if ask.plain is not None and not ask.away and not ask.instants and ask.clear is None and not ask.odd:
        return _in_parts(timeline, ask, after, horizon, resolution)
    found = _candidates(timeline, timeline.rows(), ask, after, horizon, resolution)
    starts, where = found.starts, found.where
    extra = [
        (max(after, rounded(end, resolution)), at)
        for at, times in ask.away.items()
        if ask.member[at]
        for _, end in times
        if timeline.now < end < math.inf
    ]
    extra += [(max(after, instant), -1) for instant in ask.instants]
    # What is held for ever does not come free at the end of time.
    extra = [item for item in extra if item[0] <= horizon and item[0] < math.inf]
    if extra:
        starts = np.concatenate([starts, [instant for instant, _ in extra]])
        where = np.concatenate([where, np.array([at for _, at in extra], dtype=np.int64)])
    return _Walk(timeline, ask).run(starts, where)


def _in_parts(timeline: Timeline, ask: Ask, after: float, horizon: float, resolution: float) -> Found | None:
    """A part of the time after the other; where nothing begins, nothing fits that did not fit before."""
    rows, begin = timeline.rows(), after
    width = timeline.reach
    compiled = timeline.compiled()
    if compiled is not None:
        bounds = (ask.each, ask.most, _level(ask), ask.enough)
        if not compiled.prepare(rows, ask.demand, ask.secs, ask.member, bounds):
            compiled = None
    for _ in range(_PARTS):
        until = begin + width
        if until >= horizon:
            break
        found = _part(timeline, rows, ask, compiled, (begin, until, resolution))
        if found is not None:
            timeline.reached(found.start - after)
            return found
        begin, width = until, width * _WIDER
    found = _part(timeline, rows, ask, compiled, (begin, horizon, resolution))
    if found is not None:
        timeline.reached(found.start - after)
    return found


def _part(
    timeline: Timeline, rows: Rows, ask: Ask, compiled: Compiled | None, part: tuple[float, float, float]
) -> Found | None:
    """The earliest in a part of the time, (from, to, resolution)."""
    if compiled is None:
        return _Sweep(timeline, ask, _candidates(timeline, rows, ask, *part)).run()
    assert ask.plain is not None
    found = compiled.run(*part, ask.plain)
    return None if found is None else Found(*found)


def _level(ask: Ask) -> int:
    """With fewer tasks than this on every node they could not hold them all."""
    level = max(1, ask.each)
    if ask.enough[1] and not ask.demand.uneven:
        level = max(level, -(-ask.enough[1] // max(1, ask.enough[2])))
    return level


def _candidates(
    timeline: Timeline, rows: Rows, ask: Ask, after: float, horizon: float, resolution: float
) -> _Candidates:
    """Steps that may hold a task for starts from `after` to `horizon`."""
    size, demand = rows.size, ask.demand
    bounds = [(part.row, max(part.fixed, part.each * ask.each)) for part in demand.parts]
    if demand.exclusive:
        bounds.append((EMPTY, 0))
    good = rows.room[bounds[0][0], :size] >= bounds[0][1]
    for row, bound in bounds[1:]:
        good &= rows.room[row, :size] >= bound
    if demand.from_nodes is not None:
        good &= rows.room[MEMORY, :size] >= demand.from_nodes[rows.where[:size]]
    ends = _NextShort(good)
    level = _level(ask)
    further = ends
    if level > max(1, ask.each):
        better = good.copy()
        for part in demand.parts:
            if part.each:
                better &= rows.room[part.row, :size] >= part.each * level
        further = _NextShort(better)
    good &= rows.begins[:size] <= horizon
    good &= rows.lasts[:size] > after
    found = good.nonzero()[0]
    where = rows.where[found]
    mine = ask.member[where]
    if not mine.all():
        found, where = found[mine], where[mine]
    starts, lasts = rows.begins[found], rows.lasts[found]
    if resolution:
        later = (starts > timeline.now) & (starts < FOREVER)
        starts = np.where(later, np.ceil(starts / resolution) * resolution, starts)
    np.maximum(starts, after, out=starts)
    limits = np.minimum(lasts, _latest(rows.begins[ends.of(found)], ask.secs))
    keep = (limits > starts) & (starts <= horizon)
    found, where, starts, limits = found[keep], where[keep], starts[keep], limits[keep]
    tasks = demand.tasks(where, lambda row: rows.room[row][found])
    np.minimum(tasks, ask.most, out=tasks)
    enough = tasks >= max(1, ask.each)
    if not enough.all():
        found, where, starts = found[enough], where[enough], starts[enough]
        limits, tasks = limits[enough], tasks[enough]
    firm = limits
    if further is not ends:
        firm = np.where(tasks >= level, _latest(rows.begins[further.of(found)], ask.secs), -math.inf)
    if demand.uneven or demand.mixes:
        sure = np.full(len(found), -math.inf)
    elif ask.most <= max(1, ask.each):
        sure = limits
    else:
        sure = np.where(tasks > max(1, ask.each), _latest(rows.falls[found], ask.secs), limits)
    return _Candidates(starts, limits, sure, where, tasks, level, firm)


class _NextShort:
    """Of each step the next one, of whatever node, that has too little."""

    def __init__(self, good: Bools) -> None:
        short = ~good
        self._short = short.nonzero()[0]
        self._before = short.cumsum(dtype=np.int32)

    def of(self, steps: Ints) -> Ints:
        """Of these, which have enough."""
        return np.asarray(self._short[self._before[steps]])


def _latest(instants: Floats, secs: float) -> Floats:
    """Starts before this are over by the instant."""
    if secs == math.inf:
        return np.where(instants < math.inf, -math.inf, math.inf)
    return np.nextafter(instants - secs, math.inf)


class _Sweep:
    """From instant to instant at which enough steps may be there."""

    def __init__(self, timeline: Timeline, ask: Ask, found: _Candidates) -> None:
        self._timeline = timeline
        self._ask = ask
        starts = found.starts
        order = np.zeros(0, dtype=np.int64)
        if len(starts):
            first = starts == starts.min()
            rest = (~first).nonzero()[0]
            order = np.concatenate([first.nonzero()[0], rest[starts[rest].argsort(kind="stable")]])
        self.starts = starts[order]
        self.limits = found.limits[order]
        self.sure = found.sure[order]
        self.where = found.where[order]
        self.tasks = found.tasks[order]
        self.level = found.level
        self.firm = found.firm[order]

    def run(self) -> Found | None:
        nodes, tasks, most = self._ask.enough
        nodes = max(1, nodes)
        starts = self.starts
        size = len(starts)
        place = nodes - 1
        if tasks:
            sums = self.tasks.cumsum()
            place = max(place, int(sums.searchsorted(tasks)))
        while place < size:
            instant = float(starts[place])
            count = int(starts.searchsorted(instant, side="right"))
            there = (self.limits[:count] > instant).nonzero()[0]
            lack = nodes - len(there)
            short = least = 0
            if lack <= 0 and tasks:
                there, short, least = self._roomiest(there, instant, tasks, most)
                lack = nodes - len(there)
            if lack <= 0 and short <= 0:
                found, again = self._choose(there, instant)
                if found is not None:
                    return Found(instant, found)
                if again:
                    continue
                lack = 1
            place = count + max(0, lack - 1)
            if short > 0 and count < size:
                # Who comes in helps by what it holds more than the least of those that count.
                more = np.maximum(self.tasks[count:] - least, 0).cumsum()
                place = max(place, count + int(more.searchsorted(short)))
        return None

    def _roomiest(self, there: Ints, instant: float, tasks: int, most: int) -> tuple[Ints, int, int]:
        """The steps that are there, looked at until those with most tasks are certain; how many tasks are
        still missing; what the least of those that count holds, if there are enough of them."""
        loose = there[(self.firm[there] <= instant) & (self.tasks[there] >= self.level)]
        if len(loose) and self.level > max(1, self._ask.each):
            self.tasks[loose] = self.level - 1
        while True:
            held = self.tasks[there]
            top = there
            if len(there) > most:
                top = there[greatest(held, most)]
            mine = self.tasks[top]
            short = tasks - int(mine.sum())
            if short > 0:
                return there, short, int(mine.min()) if len(top) >= most else 0
            unsure = top[self.sure[top] <= instant].tolist()
            if not self._look(unsure, instant):
                return there, 0, 0
            there = there[self.limits[there] > instant]

    def _look(self, steps: list[int], instant: float) -> bool:
        """Look closely at these steps; whether one of them holds less than was thought."""
        ask, learned = self._ask, False
        end = end_of(instant, ask.secs)
        for step in steps:
            at = int(self.where[step])
            room, until = self._timeline.window(at, instant, end)
            tasks = min(ask.demand.holds(at, room), ask.most)
            # So much is certain for every start that is over before less is free than now.
            self.sure[step] = max(float(self.sure[step]), math.nextafter(until - ask.secs, math.inf))
            if tasks < max(1, ask.each):
                self.limits[step] = instant
                learned = True
            elif tasks < self.tasks[step]:
                self.tasks[step] = tasks
                learned = True
        return learned

    def _choose(self, there: Ints, instant: float) -> tuple[Chosen | None, bool]:
        """The choice at an instant, looked at closely; else whether something was learned by that."""
        assert self._ask.plain is not None
        there = there[self.where[there].argsort()]
        where = self.where[there]
        chosen = self._ask.plain(where, self.tasks[there])
        if chosen is None:
            return None, False
        steps = there[where.searchsorted([at for at, _ in chosen])]
        if self._look(steps[self.sure[steps] <= instant].tolist(), instant):
            return None, True
        return chosen, False


class _Walk:
    """Step by step, the set of nodes that hold the job at its side."""

    def __init__(self, timeline: Timeline, ask: Ask) -> None:
        self.timeline = timeline
        self.ask = ask
        #: Nodes that hold tasks of the job when it starts at the instant looked at.
        self.active: dict[int, int] = {}
        self.total = 0
        #: How many more tasks must have come in before it is worth looking whether the nodes suffice.
        self.lack = 0
        #: (end that a node's room lasts until, column)
        self.lasting: list[tuple[float, int]] = []

    def run(self, starts: Floats, where: Ints) -> Found | None:
        """Walk in order of time."""
        order = np.lexsort((where, starts))
        instants, nodes = starts[order].tolist(), where[order].tolist()
        size, place = len(instants), 0
        while place < size:
            start = instants[place]
            end = end_of(start, self.ask.secs)
            while self.lasting and self.lasting[0][0] < end:
                _, at = heapq.heappop(self.lasting)
                self._enter(at, start, end)
            while place < size and instants[place] == start:
                if nodes[place] >= 0:
                    self._enter(nodes[place], start, end)
                place += 1
            found = self._enough(start)
            if found is not None:
                return found
        return None

    def _enter(self, at: int, start: float, end: float) -> None:
        """Look at a node at an instant: the tasks it holds from then on for the whole time."""
        ask = self.ask
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


def rounded(instant: float, resolution: float) -> float:
    """Up to a multiple of `resolution`."""
    if not resolution or not -math.inf < instant < FOREVER:
        return instant
    return math.ceil(instant / resolution) * resolution

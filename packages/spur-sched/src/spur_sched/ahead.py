"""When and where a job that has to wait will start, from the expected ends of what runs.  Pure.

The scheduler makes such a promise for the first waiting job of each partition: work behind it may start
only where it ends before that instant or leaves the promised room alone.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from spur_sched.api import GresMap
from spur_sched.floor import Floor, Promise
from spur_sched.need import Need, Room, take, tasks_that_fit
from spur_sched.spread import Count, Offer, choose, with_features

#: Work past its expected end is being ended: it is gone this soon.
_OVERDUE_SECS = 1.0


class Ask(NamedTuple):
    """What the waiting job wants: per node, in all, by name, and by counted feature."""

    need: Need
    counts: Count
    required: frozenset[str]
    features: Sequence[tuple[str, int]]


def promise(ask: Ask, floors: Sequence[Floor], now: float) -> float | None:
    """Keep room on `floors` for a job that does not fit now.

    Floors that are promised to somebody already are left out.

    Returns:
        The instant at which it will start (inf: when work without a time limit ends), or None when the
        floors would not do even then.
    """
    need, count, required, wants = ask
    free = [floor for floor in floors if floor.promise is None]
    rooms = [floor.room for floor in free]
    held = [tasks_that_fit(need, floor.view, floor.room) for floor in free]
    tally = _Tally(held, count)
    named = [place for place, floor in enumerate(free) if floor.view.name in required]
    if len(named) < len(required):
        return None
    # (end, floor, which of the floor's ends)
    ends = sorted(
        (math.inf if item[0] is None else max(item[0], now + _OVERDUE_SECS), place, which)
        for place, floor in enumerate(free)
        for which, item in enumerate(floor.ends)
    )
    at = 0
    while at < len(ends):
        instant = ends[at][0]
        while at < len(ends) and ends[at][0] == instant:
            _, place, which = ends[at]
            floor = free[place]
            rooms[place] = _grown(rooms[place], floor.ends[which])
            tasks = tasks_that_fit(need, floor.view, rooms[place])
            tally.change(held[place], tasks)
            held[place] = tasks
            at += 1
        if not tally.enough() or not all(held[place] >= count.each for place in named):
            continue
        offers = [
            Offer(place, tasks, free[place].view.name in required)
            for place, tasks in enumerate(held)
            if tasks
        ]
        marked = with_features(offers, [free[offer.at].view.features for offer in offers], wants)
        chosen = None if marked is None else choose(count, marked)
        if chosen is not None:
            for place, tasks in chosen:
                floor = free[place]
                cpus, memory, gres = take(need, floor.view, rooms[place], tasks)
                floor.promise = Promise(instant, _left(rooms[place], cpus, memory, gres))
            return instant
    return None


class _Tally:
    """How many tasks the floors hold, kept up cheaply: a histogram of per-node task counts."""

    def __init__(self, held: Sequence[int], count: Count) -> None:
        self._by_tasks = Counter(held)
        self._count = count

    def change(self, before: int, after: int) -> None:
        self._by_tasks[before] -= 1
        self._by_tasks[after] += 1

    def enough(self) -> bool:
        """Whether the roomiest nodes, at most as many as the job may have, hold it."""
        count = self._count
        nodes = tasks = 0
        left = min(count.max_nodes, count.num_tasks) if count.tasks_given else count.max_nodes
        for each in sorted((each for each, number in self._by_tasks.items() if number), reverse=True):
            if each < count.each:
                break
            nodes += self._by_tasks[each]
            used = min(left, self._by_tasks[each])
            tasks += used * each
            left -= used
        return nodes >= count.min_nodes and (not count.tasks_given or tasks >= count.num_tasks)


def _grown(room: Room, gone: tuple[float | None, int, int, GresMap]) -> Room:
    _, cpus, memory_mb, held = gone
    gres = room.gres
    if held:
        gres = dict(gres)
        for key, number in held.items():
            gres[key] = gres.get(key, 0) + number
    return Room(room.cpus + cpus, room.memory_mb + memory_mb, gres, max(0, room.jobs - 1))


def _left(room: Room, cpus: int, memory_mb: int, gres: GresMap) -> Room:
    spare = dict(room.gres)
    for key, number in gres.items():
        spare[key] = spare.get(key, 0) - number
    return Room(room.cpus - cpus, room.memory_mb - memory_mb, spare, room.jobs + 1)

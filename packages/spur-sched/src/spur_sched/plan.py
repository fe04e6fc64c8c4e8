"""One scheduling pass: place what fits, best job first, and say of everything else why it waits.  Pure.

1. A job whose partitions are closed to it, or whose nodes do not exist or are away, waits for that and
   holds nobody up.
2. Otherwise it starts when room is free that is not promised to somebody before it.
3. The first job of a partition that finds no room gets a promise (see `ahead`): the earliest instant at
   which the ends of running work give it room, and that room.  Jobs behind it start only where they end
   by then or leave the promised room alone, so nobody who waits is overtaken for ever.

Room only shrinks during a pass.  So what was found not to fit is not tried again for an equal request: a
queue of ten thousand jobs costs as much as its different shapes.
"""

import math
import sys
from typing import Final, NamedTuple

from spur_core import reasons
from spur_core.errors import GrammarError
from spur_core.grammar import features
from spur_sched import ahead
from spur_sched.api import JobView, NodeShare, PartitionView, Placement, Plan, Snapshot, Waiting
from spur_sched.floor import Ground, Pool, outlasts
from spur_sched.need import Need, need_of, take, tasks_that_fit
from spur_sched.rules import (
    NODES_MISSING,
    Class,
    Why,
    count_of,
    enough_nodes,
    limit_secs,
    partition_gate,
    unavailable,
    usable,
)
from spur_sched.spread import Count, Offer, choose, with_features

#: Looks at a node that one pass may take; some seconds of work.
DEFAULT_BUDGET: Final = 5_000_000
_RESOURCES: Final = Why(reasons.RESOURCES)
_PRIORITY: Final = Why(reasons.PRIORITY)


class _Shape:
    """What one partition is asked for; jobs with equal shapes fit or fail alike, and share this object."""

    __slots__ = ("counts", "failed", "missing", "need", "wanted")

    def __init__(self, wanted: Class, need: Need, counts: Count) -> None:
        self.wanted = wanted
        self.need = need
        self.counts = counts
        #: Work that ends later than this finds no room for the rest of the pass.
        self.failed = math.inf
        #: Why the partition's nodes would not do even if all were free.
        self.missing: Why | None = None


class _Kind(NamedTuple):
    """Jobs that ask for the same: the shapes to try, and the first obstacle of the partitions left out."""

    opened: tuple[_Shape, ...]
    why: Why


def plan(snapshot: Snapshot, now: float, budget: int = DEFAULT_BUDGET) -> Plan:
    """What starts now, and why the rest does not.

    Args:
        now: seconds since the epoch.
        budget: looks at a node before the pass stops early; work and not time, so that the answer is the
            same on every machine.
    """
    return _Pass(snapshot, now, budget).run()


class _Pass:
    def __init__(self, snapshot: Snapshot, now: float, budget: int) -> None:
        self.now = now
        self.left = budget
        self.queue = snapshot.pending()
        self.ground = Ground(snapshot.nodes(), snapshot.partitions())
        self.placements: list[Placement] = []
        self.waiting: list[Waiting] = []
        #: Partitions whose first waiting job has its promise.
        self.promised: set[str] = set()
        #: Instants of all promises.
        self.instants: set[float] = set()
        self._kinds: dict[tuple[object, ...], _Kind] = {}
        self._shapes: dict[tuple[Class, Need, Count], _Shape] = {}

    def run(self) -> Plan:
        for job in self.queue:
            if self.left <= 0:
                return Plan(tuple(self.placements), tuple(self.waiting), complete=False)
            self.left -= 1
            why = self._job(job)
            if why is not None:
                self.waiting.append(Waiting(job.job_id, why.reason, why.desc))
        return Plan(tuple(self.placements), tuple(self.waiting))

    def _job(self, job: JobView) -> Why | None:
        """Start the job, or all tasks of an array that fit; why it, or its next task, waits."""
        kind = self._kind(job)
        if not kind.opened:
            return kind.why
        limit = limit_secs(job)
        end = math.inf if limit is None else self.now + limit
        for task in (None,) if job.tasks is None else job.tasks:
            for shape in kind.opened:
                if end <= shape.failed and self._start(job, task, shape, end):
                    break
            else:
                return self._blocked(kind.opened)
        return None

    def _kind(self, job: JobView) -> _Kind:
        """The job's kind, worked out once for all jobs that ask for the same."""
        # Everything but who asks and since when.
        key = (job[4:13], tuple(job.gres.items()) if job.gres else None, job[14:19])
        kind = self._kinds.get(key)
        if kind is None:
            try:
                kind = self._open_partitions(job)
            except GrammarError:
                kind = _Kind((), Why(reasons.BAD_CONSTRAINTS))
            self._kinds[key] = kind
        return kind

    def _open_partitions(self, job: JobView) -> _Kind:
        first: Why | None = None
        opened = []
        for part in self._in_order(job):
            view = self.ground.partitions.get(part)
            why = partition_gate(job, view)
            if why is None and view is not None:
                wanted = Class(part, job.nodelist, job.exclude, job.constraint)
                shape = self._shape(wanted, need_of(job), count_of(job, view))
                why = shape.missing
                if why is None:
                    opened.append(shape)
            first = first or why
        return _Kind(tuple(opened), first or Why(reasons.PARTITION_CONFIG))

    def _shape(self, wanted: Class, need: Need, counts: Count) -> _Shape:
        key = (wanted, need, counts)
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = _Shape(wanted, need, counts)
            shape.missing = self._find_missing(shape)
        return shape

    def _in_order(self, job: JobView) -> list[str]:
        """The job's partitions, higher tiers first, else as it named them."""
        if len(job.partitions) < 2:
            return list(job.partitions)

        def tier(name: str) -> int:
            view: PartitionView | None = self.ground.partitions.get(name)
            return -view.priority_tier if view is not None else 0

        return sorted(job.partitions, key=tier)

    def _find_missing(self, shape: _Shape) -> Why | None:
        wanted = shape.wanted
        named = [self.ground.by_name.get(name) for name in sorted(wanted.nodelist)]
        members = self.ground.partitions[wanted.partition].nodes
        if any(floor is None or floor.view.name not in members for floor in named):
            return Why(reasons.BAD_CONSTRAINTS)
        if not self._empty_would_do(shape, up_only=False):
            return Why(reasons.BAD_CONSTRAINTS)
        away = [floor.view.name for floor in named if floor is not None and not floor.view.schedulable]
        if away:
            return unavailable(away)
        if not self._empty_would_do(shape, up_only=True):
            return Why(reasons.NODE_DOWN, NODES_MISSING)
        return None

    def _empty_would_do(self, shape: _Shape, *, up_only: bool) -> bool:
        """Whether the partition's nodes, all empty, could run it; with `up_only` those in service now."""
        wanted, need, count = shape.wanted, shape.need, shape.counts
        for tree, pool in self.ground.pools(wanted):
            wants = features.counts(tree)
            if not wanted.nodelist and not wants:
                if pool.enough(need, count, up_only=up_only):
                    return True
                continue
            views = [
                floor.view
                for floor in self.ground.members(wanted.partition)
                if usable(floor.view, wanted, tree) and (floor.view.schedulable or not up_only)
            ]
            if enough_nodes(views, need, count, wanted.nodelist, wants):
                return True
        return False

    def _start(self, job: JobView, task: int | None, shape: _Shape, end: float) -> bool:
        """Place one run if there is room for it until `end`."""
        for tree, pool in self.ground.pools(shape.wanted):
            chosen = self._choose(shape, tree, pool, end)
            if chosen is not None:
                self._place(job, task, shape, chosen, end)
                return True
        # Ends between two promised instants see the same room; "no end" lies behind every instant.
        before = max((instant for instant in self.instants if outlasts(end, instant)), default=-math.inf)
        shape.failed = min(before, sys.float_info.max)
        return False

    def _choose(
        self, shape: _Shape, tree: features.Node, pool: Pool, end: float
    ) -> list[tuple[int, int]] | None:
        wanted, need, count = shape.wanted, shape.need, shape.counts
        wants_some = features.counts(tree) if wanted.constraint else []
        picky = bool(wanted.nodelist or wants_some)
        offers: list[Offer] = []
        total = 0
        looked = 0
        for floor in pool.with_room(need):
            looked += 1
            fits = tasks_that_fit(
                need, floor.view, floor.room if floor.promise is None else floor.room_until(end)
            )
            if fits < count.each:
                continue
            offers.append(Offer(floor.at, fits, floor.view.name in wanted.nodelist))
            total += fits
            if not picky and _plenty(count, len(offers), total, fits):
                break
        self.left -= looked
        if sum(offer.required for offer in offers) < len(wanted.nodelist):
            return None
        if wants_some:
            marked = with_features(
                offers, [self.ground.floors[o.at].view.features for o in offers], wants_some
            )
            return None if marked is None else choose(count, marked)
        return choose(count, offers)

    def _place(
        self, job: JobView, task: int | None, shape: _Shape, chosen: list[tuple[int, int]], end: float
    ) -> None:
        shares = []
        rank = 0
        for at, tasks in chosen:
            floor = self.ground.floors[at]
            cpus, memory, gres = take(shape.need, floor.view, floor.room, tasks)
            self.ground.put(floor, cpus, memory, gres, end)
            shares.append(NodeShare(floor.view.name, cpus, memory, gres, tuple(range(rank, rank + tasks))))
            rank += tasks
        self.placements.append(Placement(job.job_id, task, shape.wanted.partition, tuple(shares)))

    def _blocked(self, opened: tuple[_Shape, ...]) -> Why:
        """The job finds no room: a promise for the first one of its partition, its place in line for
        others."""
        for shape in opened:
            if shape.wanted.partition in self.promised:
                continue
            self.promised.add(shape.wanted.partition)
            for tree, pool in self.ground.pools(shape.wanted):
                self.left -= len(pool.floors)
                ask = ahead.Ask(shape.need, shape.counts, shape.wanted.nodelist, features.counts(tree))
                instant = ahead.promise(ask, pool.floors, self.now)
                if instant is not None:
                    self.instants.add(instant)
                    break
            return _RESOURCES
        return _PRIORITY


def _plenty(count: Count, nodes: int, tasks: int, last: int) -> bool:
    """Whether more offers cannot make the choice better."""
    if not count.tasks_given:
        return nodes >= count.max_nodes
    if count.min_nodes == 1:
        return last >= count.num_tasks
    return count.min_nodes <= nodes <= count.max_nodes and tasks >= count.num_tasks

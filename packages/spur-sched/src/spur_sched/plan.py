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

#: Looks at a node that one pass may take; about a second of work.
DEFAULT_BUDGET: Final = 3_000_000


class _Shape(NamedTuple):
    """Jobs with equal shapes fit or fail alike."""

    wanted: Class
    need: Need
    counts: Count


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
        #: Shape -> ends later than this find no room.
        self.failed: dict[_Shape, float] = {}
        self.missing: dict[_Shape, Why | None] = {}

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
        try:
            opened, why = self._open_partitions(job)
        except GrammarError:
            return Why(reasons.BAD_CONSTRAINTS)
        if not opened:
            return why
        limit = limit_secs(job)
        end = math.inf if limit is None else self.now + limit
        for task in (None,) if job.tasks is None else job.tasks:
            if not any(self._start(job, task, shape, end) for shape in opened):
                return self._blocked(opened)
        return None

    def _open_partitions(self, job: JobView) -> tuple[list[_Shape], Why | None]:
        """The shapes to try, one for each partition where nothing but room is in the way; the first
        obstacle of the others."""
        first: Why | None = None
        opened = []
        for part in self._in_order(job):
            view = self.ground.partitions.get(part)
            why = partition_gate(job, view)
            if why is None and view is not None:
                shape = _Shape(
                    Class(part, job.nodelist, job.exclude, job.constraint), need_of(job), count_of(job, view)
                )
                why = self._nodes_missing(shape)
                if why is None:
                    opened.append(shape)
            first = first or why
        return opened, first or Why(reasons.PARTITION_CONFIG)

    def _in_order(self, job: JobView) -> list[str]:
        """The job's partitions, higher tiers first, else as it named them."""
        if len(job.partitions) < 2:
            return list(job.partitions)

        def tier(name: str) -> int:
            view: PartitionView | None = self.ground.partitions.get(name)
            return -view.priority_tier if view is not None else 0

        return sorted(job.partitions, key=tier)

    def _nodes_missing(self, shape: _Shape) -> Why | None:
        """Why the partition's nodes would not do even if all were free."""
        if shape not in self.missing:
            self.missing[shape] = self._find_missing(shape)
        return self.missing[shape]

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
        wanted, need, count = shape
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
        if end > self.failed.get(shape, math.inf):
            return False
        for tree, pool in self.ground.pools(shape.wanted):
            chosen = self._choose(shape, tree, pool, end)
            if chosen is not None:
                self._place(job, task, shape, chosen, end)
                return True
        # Ends between two promised instants see the same room; "no end" lies behind every instant.
        before = max((instant for instant in self.instants if outlasts(end, instant)), default=-math.inf)
        self.failed[shape] = min(before, sys.float_info.max)
        return False

    def _choose(
        self, shape: _Shape, tree: features.Node, pool: Pool, end: float
    ) -> list[tuple[int, int]] | None:
        wanted, need, count = shape
        wants_some = features.counts(tree) if wanted.constraint else []
        picky = bool(wanted.nodelist or wants_some)
        offers: list[Offer] = []
        total = 0
        at = first = pool.start.get(need, 0)
        floors = pool.floors
        only_full_so_far = True
        while at < len(floors):
            floor = floors[at]
            at += 1
            fits = tasks_that_fit(need, floor.view, floor.room)
            if only_full_so_far:
                if fits:
                    only_full_so_far = False
                else:
                    first = at
            if fits and floor.promise is not None:
                fits = tasks_that_fit(need, floor.view, floor.room_until(end))
            if fits < count.each:
                continue
            offers.append(Offer(floor.at, fits, floor.view.name in wanted.nodelist))
            total += fits
            if not picky and _plenty(count, len(offers), total, fits):
                break
        self.left -= at - pool.start.get(need, 0)
        pool.start[need] = first
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
            floor.put(cpus, memory, gres, end)
            shares.append(NodeShare(floor.view.name, cpus, memory, gres, tuple(range(rank, rank + tasks))))
            rank += tasks
        self.placements.append(Placement(job.job_id, task, shape.wanted.partition, tuple(shares)))

    def _blocked(self, opened: list[_Shape]) -> Why:
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
            return Why(reasons.RESOURCES)
        return Why(reasons.PRIORITY)


def _plenty(count: Count, nodes: int, tasks: int, last: int) -> bool:
    """Whether more offers cannot make the choice better."""
    if not count.tasks_given:
        return nodes >= count.max_nodes
    if count.min_nodes == 1:
        return last >= count.num_tasks
    return count.min_nodes <= nodes <= count.max_nodes and tasks >= count.num_tasks

"""Preemption within one pass: who makes room for a job, and that nobody else gets that room.

Room that is on its way (of attempts that are ending, or that this pass ends) is not free yet.  It stands in
the timeline as taken until it is expected, and here, by node, for those who may count on it: a job that
fits with it waits for it, and whatever else the job takes on those nodes is taken at once.  Room of
attempts that are suspended for others is there already; whoever may push them aside starts on it at once.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

from spur_sched.api import JobView, Limits, NodeShare, Over, Placement, Policy, Preemption, Running
from spur_sched.bounds import Failures
from spur_sched.columns import FOREVER, Ints, Vector
from spur_sched.ground import Ground
from spur_sched.preemption import Preemptor, candidates, choose, coming, freed
from spur_sched.shape import Shape, Share
from spur_sched.timeline import OVERDUE_SECS

#: (column, tasks)
Chosen = list[tuple[int, int]]
#: What a request must have in common with another one to be compared, and its sizes (see `bounds.Failures`).
Ask = tuple[tuple[object, ...], tuple[float, ...]]
#: From the first signal to the last process, if it obeys.
_ENDING_SECS: Final = 1.0
#: More victims than these are added up as a table.
_FEW: Final = 8


#: (partition, tier, QOS) of those who push.
Key = tuple[str, int, str]


class Held(NamedTuple):
    """Room on one node that is on its way.

    Attributes:
        end: until when the timeline has it as taken.
        soon: when it is expected; before `end` if the work is ended early.
    """

    vector: Vector
    end: float
    soon: float


class Fit(NamedTuple):
    """Where a job would run, and what would be free then."""

    chosen: Chosen
    free: Ints


class Made(NamedTuple):
    """Room for a job.

    Attributes:
        now: it is there; the job is to be placed on `chosen`.
        victims: to be ended or stopped for it.
        at: when the room is expected.
    """

    chosen: Chosen
    now: bool
    victims: Preemption | None
    at: float


class MakingRoom:
    """The attempts of a cluster during one pass.

    Attributes:
        over: the limit against the place that was found for the job last, or None.
        trials: how often it was looked whether a job fits; each is a look at all nodes.
    """

    def __init__(
        self,
        ground: Ground,
        policy: Policy,
        running: Iterable[Running],
        now: float,
        limits: Limits | None = None,
    ) -> None:
        self._ground = ground
        self._policy = policy
        self._now = now
        self._running = list(running)
        #: Column -> what is on its way there.
        self._coming: dict[int, list[Held]] = {}
        #: The same as columns.
        self._on_way: Ints = np.zeros_like(ground.columns.free)
        self._meant = {one.room_for for one in self._running if one.room_for}
        self._any_lent = any(one.lent for one in self._running)
        self._used: set[int] = set()
        self._sorted: dict[Key, list[Running]] = {}
        #: What all of a list free together, as far as they are left.
        self._together: dict[Key, Ints] = {}
        self._listed: dict[Key, frozenset[int]] = {}
        self._freed: dict[int, list[tuple[int, Vector]]] = {}
        self._in_vain: dict[tuple[object, ...], Failures] = {}
        self._limits = limits
        self.over: Over | None = None
        self.trials = 0
        for one in coming(self._running, now):
            self._use(one)
            for at, vector in self._vectors(one):
                self._coming.setdefault(at, []).append(Held(vector, self._end(one), self._soon(one)))
                _add(self._on_way, at, vector)

    def for_job(self, job: JobView, task: int | None, shape: Shape, ask: Ask) -> Made | None:
        """Room for one run of the job that found none, or None; the room is taken.

        A job that starts on it is placed by the caller, all else is kept here.
        """
        self.over = None
        key = self._key(job, shape)
        found = self._candidates(job, key)
        if not found and job.job_id not in self._meant:
            return None
        failures = self._in_vain.setdefault((*ask[0], job.qos), Failures(len(ask[1])))
        if failures.cover(ask[1]):
            return None
        lent = [one for one in found if one.lent] if self._any_lent else []
        if lent:
            awake = choose(lent, lambda some: self._nodes(shape, some, coming_too=False), self._policy)
            if awake is not None:
                fit = self._fit(shape, awake, coming_too=False)
                assert fit is not None
                if not self._allowed(job, task, shape, fit, starts=True):
                    return None
                return self._start(shape, awake, fit)
        if self._coming:
            fit = self._fit(shape, ())
            if fit is not None:
                if not self._allowed(job, task, shape, fit):
                    return None
                return self._keep(job, shape, (), fit)
        if self._fit(shape, (), self._together[key]) is None:
            failures.add(ask[1])
            return None
        victims = choose(found, lambda some: self._nodes(shape, some), self._policy)
        if victims is None:
            failures.add(ask[1])
            return None
        fit = self._fit(shape, victims)
        assert fit is not None
        if not self._allowed(job, task, shape, fit):
            return None
        return self._keep(job, shape, victims, fit)

    def _allowed(
        self, job: JobView, task: int | None, shape: Shape, fit: Fit, *, starts: bool = False
    ) -> bool:
        """Whether no limit is against the place; one that is kept counts from now on."""
        if self._limits is None:
            return True
        views = self._ground.columns.views
        shares = tuple(
            NodeShare(views[one.at].name, one.cpus, one.memory_mb, one.gres, tuple(range(one.tasks)))
            for one in self._shares(shape, fit)
        )
        placement = Placement(job.job_id, task, shape.wanted.partition, shares)
        self.over = self._limits.charge(job, placement)
        if self.over is None and starts:
            # It is placed right away, and that charges it.
            self._limits.refund(job, placement)
        return self.over is None

    # -- who

    def _key(self, job: JobView, shape: Shape) -> Key:
        view = self._ground.partitions[shape.wanted.partition]
        return view.name, view.priority_tier, job.qos

    def _candidates(self, job: JobView, key: Key) -> list[Running]:
        found = self._sorted.get(key)
        if found is None:
            nodes = self._ground.partitions[key[0]].nodes
            preemptor = Preemptor(job.job_id, key[1], key[2], nodes)
            found = candidates(preemptor, self._running, self._policy, self._now)
            self._sorted[key] = found
            self._listed[key] = frozenset(one.job_id for one in found)
            together = self._together[key] = np.zeros_like(self._ground.columns.free)
            for one in found:
                if one.job_id not in self._used:
                    for at, vector in self._vectors(one):
                        _add(together, at, vector)
        return [one for one in found if one.job_id not in self._used]

    def _use(self, one: Running) -> None:
        """It is nobody's victim any more in this pass."""
        self._used.add(one.job_id)
        for key, together in self._together.items():
            if one.job_id in self._listed[key]:
                for at, vector in self._vectors(one):
                    _add(together, at, _negative(vector))

    # -- whether it helps

    def _nodes(
        self, shape: Shape, victims: Sequence[Running], *, coming_too: bool = True
    ) -> list[str] | None:
        fit = self._fit(shape, victims, coming_too=coming_too)
        if fit is None:
            return None
        views = self._ground.columns.views
        return [views[at].name for at, _ in fit.chosen]

    def _fit(
        self,
        shape: Shape,
        victims: Sequence[Running],
        more: Ints | None = None,
        *,
        coming_too: bool = True,
    ) -> Fit | None:
        """Where the job would run with that room.

        Args:
            more: further room, by column.
            coming_too: with what is on its way.
        """
        self.trials += 1
        ground = self._ground
        columns, timeline = ground.columns, ground.timeline
        free = columns.free + self._on_way if coming_too else columns.free.copy()
        if more is not None:
            free += more
        if len(victims) > _FEW:
            pairs = [pair for one in victims for pair in self._vectors(one)]
            places = np.array([at for at, _ in pairs], dtype=np.int64)
            np.add.at(free.T, places, np.array([vector for _, vector in pairs], dtype=np.int64))
        else:
            for one in victims:
                for at, vector in self._vectors(one):
                    _add(free, at, vector)
        if timeline.promises:
            # Promised room is nobody's to take: there it is as if nobody was pushed aside.
            bound = timeline.promised & (timeline.first < self._now + shape.secs)
            free[:, bound] = timeline.low[:, bound]
        demand, count = shape.demand, shape.counts
        closed = ground.closed(shape.wanted.reservation)
        for tree, pool in ground.pools(shape.wanted):
            where = shape.member(pool).nonzero()[0]
            if closed is not None:
                where = where[closed.until[where] >= self._now + shape.secs]
            where = where[demand.fitting(where, lambda row, at=where: free[row][at], max(1, count.each))]  # type: ignore[misc]
            if len(where) < count.min_nodes:
                continue
            tasks = demand.tasks(where, lambda row, at=where: free[row][at])  # type: ignore[misc]
            good = tasks >= max(1, count.each)
            where, tasks = where[good], tasks[good]
            if shape.restricted:
                where, tasks = shape.beside(where, tasks)
            if shape.picky:
                chosen = shape.pick(
                    where.tolist(), tasks.tolist(), tree, lambda at: free[:, at].tolist(), self._now
                )
            else:
                chosen = shape.pick_plain(where, tasks, self._now)
            if chosen is not None:
                return Fit(chosen, free)
        return None

    # -- what becomes of it

    def _start(self, shape: Shape, victims: Sequence[Running], fit: Fit) -> Made:
        """On CPUs that suspended attempts lent."""
        rooms = self._give_back(victims)
        takes = self._takes(shape, fit)
        for at, room in rooms.items():
            left = _less(room, takes.get(at, ()))
            if any(left):
                # What it does not need stays theirs.
                self._ground.timeline.put(at, self._now, FOREVER, self._summed(left))
        return Made(fit.chosen, True, None, self._now)

    def _keep(self, job: JobView, shape: Shape, victims: Sequence[Running], fit: Fit) -> Made:
        """Nobody else gets the room, be it free already or on its way."""
        put = self._ground.timeline.put
        grace = max((one.grace_secs for one in victims if not one.lent), default=0)
        gone = ready = self._now + grace + _ENDING_SECS
        rooms = self._give_back(victims)
        takes, tasks = self._takes(shape, fit), dict(fit.chosen)
        for at in sorted({*rooms, *takes}):
            room = list(rooms.get(at, (0,) * self._ground.columns.rows))
            at_last = gone
            awaited = at in tasks and self._lacks(shape, at, tasks[at])
            for item in self._coming.pop(at, ()):
                if awaited:
                    ready = max(ready, item.soon)
                _add(self._on_way, at, _negative(item.vector))
                put(at, self._now, item.end, _negative(item.vector))
                room = [have + more for have, more in zip(room, item.vector, strict=True)]
                at_last = max(at_last, item.end)
            left = _less(room, takes.get(at, ()))
            if any(left):
                vector = self._summed(left)
                put(at, self._now, at_last, vector)
                self._coming[at] = [Held(vector, at_last, min(at_last, ready))]
                _add(self._on_way, at, vector)
            if at in takes:
                put(at, self._now, self._now + shape.secs, takes[at])
        ends = tuple(
            (
                one.job_id,
                one.attempt,
                one.preempt_mode,
                one.grace_secs if one.preempt_mode != "suspend" else 0,
            )
            for one in victims
            if not one.lent
        )
        return Made(fit.chosen, False, Preemption(job.job_id, ends) if ends else None, ready)

    def _lacks(self, shape: Shape, at: int, tasks: int) -> bool:
        """Whether the node's free room does not do for so many tasks of the job."""
        free, demand = self._ground.columns.free, shape.demand
        where = np.array([at], dtype=np.int64)
        good = demand.fitting(where, lambda row: free[row][where], max(1, tasks))
        return not len(good) or bool(demand.tasks(where, lambda row: free[row][where])[0] < tasks)

    def _give_back(self, victims: Sequence[Running]) -> dict[int, list[int]]:
        """Take the victims off their nodes; what they had there, by column."""
        rooms: dict[int, list[int]] = {}
        for one in victims:
            self._use(one)
            for at, vector in self._vectors(one):
                self._ground.timeline.put(at, self._now, self._end(one), _negative(vector))
                have = rooms.setdefault(at, [0] * self._ground.columns.rows)
                rooms[at] = [held + more for held, more in zip(have, vector, strict=True)]
        return rooms

    def _shares(self, shape: Shape, fit: Fit) -> list[Share]:
        return shape.shares(fit.chosen, lambda at: fit.free[:, at].tolist())

    def _takes(self, shape: Shape, fit: Fit) -> dict[int, Vector]:
        return {share.at: share.vector for share in self._shares(shape, fit)}

    def _vectors(self, one: Running) -> list[tuple[int, Vector]]:
        found = self._freed.get(one.job_id)
        if found is None:
            columns = self._ground.columns
            found = self._freed[one.job_id] = [
                (
                    columns.at[share.node],
                    columns.vector(
                        share.cpus,
                        share.memory_mb,
                        share.gres,
                        (one.partition, share.layer) if share.layer else None,
                    ),
                )
                for share in freed(one)
                if share.node in columns.at
            ]
        return found

    def _summed(self, left: list[int]) -> Vector:
        self._ground.columns.resum(left)
        return tuple(left)

    def _end(self, one: Running) -> float:
        """As the timeline sees the attempt's end."""
        if one.end is None or one.end == math.inf:
            return FOREVER
        return max(one.end, self._now + OVERDUE_SECS)

    def _soon(self, one: Running) -> float:
        """When the room of an attempt that is ending is expected: after what is left of its grace."""
        since = self._now if one.ending_since is None else one.ending_since
        grace = one.grace_secs if one.ending_since is not None else 0
        return min(self._end(one), max(self._now, since + grace)) + _ENDING_SECS


def _add(free: Ints, at: int, vector: Vector) -> None:
    for row, number in enumerate(vector):
        if number:
            free[row, at] += number


def _less(room: Sequence[int], takes: Sequence[int]) -> list[int]:
    """What is left of `room`, row by row, never below nothing."""
    if not takes:
        return list(room)
    return [max(0, have - taken) for have, taken in zip(room or (0,) * len(takes), takes, strict=True)]


def _negative(vector: Vector) -> Vector:
    return tuple(-number for number in vector)

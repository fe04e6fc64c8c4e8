"""The replay itself: submissions and ends in order of time, and a scheduling pass after each.  Pure.

Time stands still while a pass is made.  The scheduler sees time limits, never run times; a job that outlives
its limit is overdue to it, as it is in life.
"""

import heapq
import math
from bisect import insort
from collections.abc import Sequence
from typing import Final, NamedTuple

from spur_sched.api import (
    GresMap,
    JobView,
    License,
    Limits,
    NodeShare,
    NodeView,
    PartitionView,
    Placement,
    Policy,
    Running,
    Window,
)
from spur_sched.plan import plan
from spur_sched.simulate.machine import Machine

#: A pass of a replay is never cut short.
_BUDGET: Final = 1 << 50
_MOST_IDLE: Final = 100


class Arrival(NamedTuple):
    """A job and when it comes; `run` = seconds that it will run, unknown to the scheduler."""

    at: float
    job: JobView
    run: float


class Start(NamedTuple):
    """A job that ran.  `first_promise`: the start that the scheduler expected when it first told one."""

    job: JobView
    start: float
    end: float
    cpus: int
    nodes: tuple[str, ...]
    first_promise: float | None


class Stuck(NamedTuple):
    """A job that never started though everything else had ended, and the scheduler's reason."""

    job: JobView
    reason: str


class Outcome(NamedTuple):
    """`starts` in order of starting."""

    starts: tuple[Start, ...]
    stuck: tuple[Stuck, ...]
    passes: int


class _Snap:
    """What the scheduler is shown at one instant."""

    def __init__(
        self,
        index: int,
        nodes: list[NodeView],
        partitions: dict[str, PartitionView],
        pending: list[JobView],
        policy: Policy,
        running: list[Running],
    ) -> None:
        self.index = index
        self._nodes = nodes
        self._partitions = partitions
        self._pending = pending
        self._policy = policy
        self._running = running

    def nodes(self) -> list[NodeView]:
        return self._nodes

    def partitions(self) -> dict[str, PartitionView]:
        return self._partitions

    def pending(self) -> list[JobView]:
        return self._pending

    def policy(self) -> Policy:
        return self._policy

    def running(self) -> list[Running]:
        return self._running

    def windows(self) -> list[Window]:
        return []

    def licenses(self) -> dict[str, License]:
        return {}

    def limits(self) -> Limits | None:
        return None


class _Live(NamedTuple):
    view: Running
    shares: tuple[NodeShare, ...]
    limit: float | None


def replay(machine: Machine, arrivals: Sequence[Arrival], policy: Policy) -> Outcome:
    """Every start of these jobs on this machine.

    Args:
        arrivals: in any order; job ids are unique, and lower ones come first among equals.
    """
    return _Replay(machine, arrivals, policy).run()


class _Replay:
    def __init__(self, machine: Machine, arrivals: Sequence[Arrival], policy: Policy) -> None:
        self.partitions = dict(machine.partitions)
        self.policy = policy
        self.coming = sorted(arrivals, key=lambda arrival: (arrival.at, arrival.job.job_id))
        self.run_of = {arrival.job.job_id: arrival.run for arrival in arrivals}
        self.views = list(machine.nodes)
        self.place = {view.name: at for at, view in enumerate(self.views)}
        #: On each node, by job: (end as far as is known, cpus, MiB, gres).
        self.on_node: list[dict[int, tuple[float | None, NodeShare]]] = [{} for _ in self.views]
        self.live: dict[int, _Live] = {}
        #: (end, job id)
        self.ends: list[tuple[float, int]] = []
        #: Sorted: (order, job).
        self.queue: list[tuple[tuple[float, ...], JobView]] = []
        self.promises: dict[int, float] = {}
        self.starts: list[Start] = []
        self.reasons: dict[int, str] = {}
        self.passes = 0
        self.wake = math.inf

    def run(self) -> Outcome:
        at = idle = 0
        while idle < _MOST_IDLE:
            coming = self.coming[at].at if at < len(self.coming) else math.inf
            now = min(coming, self.ends[0][0] if self.ends else math.inf, self.wake)
            if now == math.inf:
                break
            # Passes for their own sake, with nothing running and nobody to come, are not made for ever.
            idle = 0 if self.live or coming < math.inf else idle + 1
            while self.ends and self.ends[0][0] <= now:
                self._end(heapq.heappop(self.ends)[1])
            while at < len(self.coming) and self.coming[at].at <= now:
                self._queue(self.coming[at].job)
                at += 1
            self._pass(now)
        stuck = tuple(Stuck(job, self.reasons.get(job.job_id, "")) for _, job in self.queue)
        return Outcome(tuple(self.starts), stuck, self.passes)

    def _queue(self, job: JobView) -> None:
        """Into the order in which the controller would ask for it."""
        tier = max((self.partitions[name].priority_tier for name in job.partitions), default=1)
        order = (-tier, -job.priority, job.eligible_at, job.submit_at, job.job_id)
        insort(self.queue, (order, job), key=lambda item: item[0])

    def _pass(self, now: float) -> None:
        self.wake = math.inf
        if not self.queue:
            return
        self.passes += 1
        pending = [job for _, job in self.queue]
        snap = _Snap(
            self.passes,
            list(self.views),
            self.partitions,
            pending,
            self.policy,
            [live.view for live in self.live.values()],
        )
        found = plan(snap, now, _BUDGET)
        by_id = {job.job_id: job for job in pending}
        for placement in found.placements:
            self._start(by_id[placement.job_id], placement, now)
        gone = {placement.job_id for placement in found.placements}
        if gone:
            self.queue = [item for item in self.queue if item[1].job_id not in gone]
        for waiting in found.waiting:
            self.reasons[waiting.job_id] = waiting.reason
        for expected in found.expected:
            self.promises.setdefault(expected.job_id, expected.at)
            if expected.at > now:
                self.wake = min(self.wake, expected.at)

    def _start(self, job: JobView, placement: Placement, now: float) -> None:
        end = now + self.run_of[job.job_id]
        limit = placement.time_limit if placement.time_limit is not None else job.time_limit
        until = None if limit is None else now + limit
        view = Running(
            job_id=job.job_id,
            attempt=1,
            priority=job.priority,
            tier=self.partitions[placement.partition].priority_tier,
            partition=placement.partition,
            uid=job.uid,
            account=job.account,
            qos=job.qos,
            started=now,
            end=until,
            shares=placement.shares,
            licenses=placement.licenses,
        )
        self.live[job.job_id] = _Live(view, placement.shares, until)
        for share in placement.shares:
            at = self.place[share.node]
            self.on_node[at][job.job_id] = (until, share)
            self._view(at)
        heapq.heappush(self.ends, (end, job.job_id))
        self.starts.append(
            Start(
                job,
                now,
                end,
                sum(share.cpus for share in placement.shares),
                tuple(share.node for share in placement.shares),
                self.promises.get(job.job_id),
            )
        )

    def _end(self, job_id: int) -> None:
        for share in self.live.pop(job_id).shares:
            at = self.place[share.node]
            del self.on_node[at][job_id]
            self._view(at)

    def _view(self, at: int) -> None:
        """Make the node's view again from what runs on it."""
        held = list(self.on_node[at].values())
        used: GresMap = {}
        for _, share in held:
            for key, count in share.gres.items():
                used[key] = used.get(key, 0) + count
        self.views[at] = self.views[at]._replace(
            used_cpus=sum(share.cpus for _, share in held if not share.layer),
            used_memory_mb=sum(share.memory_mb for _, share in held),
            used_gres=used,
            running=tuple((until, share.cpus, share.memory_mb, share.gres) for until, share in held),
            jobs=len(held),
            layers=tuple(
                (self.live[job_id].view.partition, share.layer) if share.layer else None
                for job_id, (_, share) in self.on_node[at].items()
            )
            if any(share.layer for _, share in held)
            else (),
        )

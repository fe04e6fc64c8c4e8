"""The event-driven scheduling loop.

Whatever may let a job start wakes it: a submission, a release, freed room, a node, the end of a job that
others depend on, a begin time.  Wake-ups that come together are one pass.  A pass reads a snapshot, asks
the pure scheduler, records every placement at once and then sees the outcome; reasons are written only
when they changed.

A pass over a long queue takes longer than anybody should wait.  So wake-ups are followed by quick passes,
over the front of the queue and whoever came just now, and the whole queue has its turn a few times a second.
All of that is done in slices; a quick pass may come between two slices of a whole one, which is begun anew if
the quick one started anything.  So what one pass promises no other gives away; and the state machine checks
every start against the room that there is then.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from spur_core import reasons
from spur_core.errors import SpurError
from spur_core.states import JobState
from spur_ctld.scheduling import pushing
from spur_ctld.scheduling.pace import Pace
from spur_ctld.scheduling.snapshot import View
from spur_ctld.scheduling.views import limit_of_deadline, slices_of
from spur_ctld.site import Site
from spur_ctld.state import ops, resv_gate
from spur_ctld.state.arrays import task_room
from spur_ctld.state.events import (
    ConfigChanged,
    Event,
    JobChanged,
    JobEnded,
    JobQueued,
    NodeChanged,
    ReservationChanged,
    RoomFreed,
)
from spur_ctld.timers import due
from spur_sched.api import Placement, Plan
from spur_sched.plan import Planner

log = logging.getLogger(__name__)

#: Work of the planner between two looks at the clock, some half a millisecond.
_WORK: Final = 50
#: Plans for a whole queue in a row that may be thrown away because a quick pass started something.
_MOST_THROWN_AWAY: Final = 3
#: Starts that are put into the log in one turn of the event loop.
_STARTS_A_TURN: Final = 32
#: Waiting jobs whose reasons are compared in one turn.
_REASONS_A_TURN: Final = 1000
#: With more jobs in the queue a wake-up looks at the best of them at once, and at all of them a little later.
QUICK_DEPTH: Final = 200
#: Passes over the whole of a long queue are this far apart, or their own length times `_FULL_SHARE`.
_FULL_EVERY_SECS: Final = 0.25
_FULL_SHARE: Final = 4.0
#: Without any event the queue is looked at again after this long.
_LOOK_AGAIN_SECS: Final = 30.0
_WAKING: Final = (RoomFreed, NodeChanged, ConfigChanged, JobEnded, ReservationChanged)
#: Longest pause after a pass: a flood of events shall not keep the loop busy with passes only.
_MOST_PAUSE_SECS: Final = 0.1


@dataclass
class Since:
    """What happened since a pass over the whole queue began.

    Attributes:
        fresh: jobs that came.
        freed: something came free, or may be looked at in another way.
        promised: whom it promised room.
    """

    fresh: set[int] = field(default_factory=set)
    freed: bool = False
    promised: frozenset[int] = frozenset()


class SchedulerLoop:
    """One task that runs passes."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        #: A queued job waits for another one to start (`after:`).
        self._starts_matter = False
        #: Pending jobs to which an instant matters: a begin time, the end of the wait for few switches.
        self._timed: dict[int, tuple[float, ...]] = {}
        #: When the next running attempt may be preempted.
        self._preemptable_at: float | None = None
        self._next_full = 0.0
        #: The last pass over the whole queue, and the one that is under way.
        self._settled: Since | None = None
        self._under_way: Since | None = None
        #: Counts changes that some plan made before does not know of; and the last of the configuration or of
        #: a reservation: no plan made before that holds.
        self._changes = 0
        self._void_since = 0
        #: The same of waiting jobs that ask for something else now.
        self._altered: dict[int, int] = {}
        #: For metrics and tests.
        self.passes = 0
        self.last_secs = 0.0

    def start(self) -> None:
        for job_id in self._site.ledger.state.pending:
            self._note_time(job_id)
        self._site.ledger.subscribe(self._on_events)
        self._wanted.set()
        self._task = asyncio.create_task(self._run(), name="scheduler")

    async def stop(self) -> None:
        self._site.ledger.unsubscribe(self._on_events)
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def wake(self) -> None:
        """Something changed that events do not tell."""
        self._wanted.set()

    def _on_events(self, events: Sequence[Event]) -> None:
        jobs = self._site.ledger.state.jobs
        for event in events:
            if isinstance(event, JobChanged):
                self._note_time(event.job_id)
                job = jobs.get(event.job_id)
                if job is not None and self._site.builder.asks_otherwise(job):
                    self._changes += 1
                    self._altered[event.job_id] = self._changes
                if self._starts_matter and job is not None and job.state is JobState.RUNNING:
                    self._wanted.set()
            elif isinstance(event, JobQueued):
                job = jobs.get(event.job_id)
                if job is not None and job.reason not in reasons.HOLDS:
                    for since in self._sinces():
                        since.fresh.add(event.job_id)
                    self._wanted.set()
            elif isinstance(event, _WAKING):
                for since in self._sinces():
                    since.freed = True
                if isinstance(event, (ConfigChanged, ReservationChanged)):
                    self._changes += 1
                    self._void_since = self._changes
                self._wanted.set()

    def _sinces(self) -> list[Since]:
        return [since for since in (self._settled, self._under_way) if since is not None]

    def _note_time(self, job_id: int) -> None:
        """Keep `_timed` right for one job."""
        job = self._site.ledger.state.jobs.get(job_id)
        instants = due.turns(job) if job is not None else ()
        if instants:
            self._timed[job_id] = instants
        else:
            self._timed.pop(job_id, None)

    async def _run(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            began, pause = time.perf_counter(), 0.0
            try:
                pause = await self._pass()
            except SpurError as error:
                log.warning("schedule_retry error=%r", error.text)
                self._wake_in(1.0)
            except Exception:
                # One job that nobody thought of must not stop the others for good.
                log.exception("schedule_failed")
                self._wake_in(5.0)
            self.last_secs = time.perf_counter() - began
            self.passes += 1
            if self._wanted.is_set():
                await asyncio.sleep(min(pause, _MOST_PAUSE_SECS))

    async def _pass(self) -> float:
        """A quick pass, or one over the whole queue if it is time for that.

        Returns:
            seconds until another one should follow at the earliest.
        """
        clock = asyncio.get_running_loop().time
        pace = Pace()
        if clock() < self._next_full:
            if await self._quick(pace) is not None:
                self._wake_in(self._next_full - clock())
            return pace.worked
        worked = 0.0
        # Starts by quick passes in between make a plan void.  After a few of them they have to wait.
        for left in range(_MOST_THROWN_AWAY, -1, -1):
            done = await self._whole(pace, yields=left > 0)
            worked += pace.worked
            if done:
                break
            pace = Pace()
        else:
            self._wanted.set()
        self._next_full = clock() + max(_FULL_EVERY_SECS, _FULL_SHARE * worked)
        return 0.0

    async def _view(self, pace: Pace) -> tuple[View, float]:
        """The state as it is now, and that instant."""
        site = self._site
        await pace.through(site.builder.catch_up(site.clock()))
        now = site.clock()
        view = site.builder.build(now, site.memory.cooling(site.monotonic()))
        view.changes = self._changes
        self._starts_matter = view.starts_matter
        return view, now

    async def _quick(self, pace: Pace) -> int | None:
        """Look at the front of the queue.

        Returns:
            how much of the plan of a pass that it came into has become void: what it started or pushed aside.
            None: the queue is short, and it looked at the whole of it.
        """
        view, now = await self._view(pace)
        depth = view.policy().default_queue_depth or QUICK_DEPTH
        queue = len(view.pending())
        whole = queue <= depth
        if not whole:
            # Who came since the last whole pass need not stand behind those to whom it gave nothing.
            since = self._settled
            also = since.fresh | since.promised if since is not None and not since.freed else ()
            view = view.front(depth, also)
        found = await self._plan(view, now, pace)
        if found is None:
            self._wanted.set()
            return 0
        await self._carry_out(view, found, now, pace, queue, whole=whole)
        return None if whole else len(found.placements) + len(found.preemptions)

    async def _whole(self, pace: Pace, *, yields: bool) -> bool:
        """Look at the whole queue.

        Args:
            yields: quick passes may come between.

        Returns:
            False: the plan was thrown away.
        """
        view, now = await self._view(pace)
        since = self._under_way = Since()
        self._altered.clear()
        depth = view.policy().default_queue_depth or QUICK_DEPTH
        queue = len(view.pending())
        found = await self._plan(view, now, pace, yields=yields and queue > depth)
        if found is None:
            return False
        carried = await self._carry_out(view, found, now, pace, queue, whole=True)
        since.promised = frozenset(one.job_id for one in found.expected)
        stands = carried and found.complete and view.policy().backfill == "easy"
        self._settled, self._under_way = since if stands else None, None
        return True

    async def _plan(self, view: View, now: float, pace: Pace, *, yields: bool = False) -> Plan | None:
        """What the scheduler makes of it, a slice at a time.

        Args:
            yields: quick passes may come between.

        Returns:
            None: what it was shown does not hold any more.
        """
        if not view.pending():
            return Plan((), ())
        planner = Planner(view, now)
        while not planner.advance(_WORK):
            if not pace.over:
                continue
            await pace.rest()
            if yields and self._wanted.is_set() and self._void_since <= view.changes:
                self._wanted.clear()
                self.passes += 1
                if await self._quick(Pace()):
                    return None
                pace.resume()
            if self._void_since > view.changes:
                return None
        return planner.result()

    async def _carry_out(
        self, view: View, found: Plan, now: float, pace: Pace, queue: int, *, whole: bool
    ) -> bool:
        """Record a plan, and what it says of those who wait.

        Args:
            queue: how many they are, looked at or not.
            whole: all were looked at.

        Returns:
            False: for some of it the state had moved on.
        """
        site = self._site
        order = [job.job_id for job in view.pending()]
        eligible = frozenset(order)
        site.outlook.learn(found, eligible, whole=whole)
        if order:
            site.outlook.count(found, order, queue, pace.worked, now)
        self._preemptable_at = pushing.next_preemptable(view.policy(), view.running(), now)
        results = await asyncio.gather(
            self._dispatch_all(view, found.placements),
            self._explain(found, view.gated, view.never, now),
            pushing.push(site, found.preemptions, now),
        )
        if whole:
            await pushing.resume(site, eligible, now)
        if any(placement.task is not None for placement in found.placements):
            # What is left of an array may have another reason to wait now.
            self._wanted.set()
        if not found.complete or not all(results):
            self._wake_in(0.0 if all(results) else 0.2)
        self._arm(now)
        return all(results)

    async def _dispatch_all(self, view: View, placements: Sequence[Placement]) -> bool:
        """Record all of them, a few in one turn of the event loop."""
        tasks = []
        started = self._within_throttles(placements)
        for at, placement in enumerate(started, 1):
            tasks.append(asyncio.create_task(self._dispatch(placement, view.changes)))
            if at % _STARTS_A_TURN == 0:
                await asyncio.sleep(0)
        return all(await asyncio.gather(*tasks)) and len(started) == len(placements)

    def _within_throttles(self, placements: Sequence[Placement]) -> list[Placement]:
        """Those without which no array would have more tasks running than it may.

        The records of one array were looked at one by one, each as if the others did not start.
        """
        state = self._site.ledger.state
        left: dict[int, int] = {}
        found = []
        for placement in placements:
            job = state.jobs.get(placement.job_id)
            array = None if job is None or not job.array_throttle else job.array_job_id
            if job is not None and array is not None:
                room = left[array] if array in left else task_room(state, job, len(placements))
                if room <= 0:
                    continue
                left[array] = room - 1
            found.append(placement)
        return found

    async def _dispatch(self, placement: Placement, changes: int) -> bool:
        """Record one placement; the launch follows from the record.

        Args:
            changes: those that the plan knows of.

        Returns:
            False: the state had moved on.
        """
        state, now = self._site.ledger.state, self._site.clock()
        job = state.jobs.get(placement.job_id)
        if job is None or job.state is not JobState.PENDING:
            return False
        if self._altered.get(placement.job_id, 0) > changes:
            log.info("dispatch_dropped job=%d it was changed", placement.job_id)
            return False
        op = ops.DispatchBegin(
            at=now,
            job_id=placement.job_id,
            attempt=job.run_attempt + 1,
            partition=placement.partition,
            slices=slices_of(placement, job.request),
            task=placement.task,
            everywhere=True,
            reservation=placement.reservation or resv_gate.gate(state, job.request, now).name,
            licenses=placement.licenses,
            time_limit=placement.time_limit or limit_of_deadline(job.request, now),
            priority=self._site.priorities.of(job) if state.command_version >= 4 else 0,
        )
        try:
            await self._site.ledger.commit(op)
        except SpurError as error:
            log.info("dispatch_refused job=%d error=%r", placement.job_id, error.text)
            return False
        return True

    async def _explain(
        self,
        found: Plan,
        gated: Sequence[tuple[int, str, str]],
        never: Sequence[int],
        now: float,
    ) -> bool:
        """Write down why jobs wait, where that changed."""
        jobs = self._site.ledger.state.jobs
        changed = []
        waiting = ((item.job_id, item.reason, item.desc) for item in found.waiting)
        for at, (job_id, reason, desc) in enumerate((*gated, *waiting), 1):
            if at % _REASONS_A_TURN == 0:
                await asyncio.sleep(0)
            job = jobs.get(job_id)
            if job is not None and (job.reason, job.desc) != (reason, desc):
                changed.append((job_id, reason, desc))
        if changed or never:
            try:
                await self._site.ledger.commit(
                    ops.PendingReasons(at=now, reasons=tuple(changed), cancel=tuple(never))
                )
            except SpurError as error:
                log.info("reasons_refused error=%r", error.text)
                return False
        return True

    def _arm(self, now: float) -> None:
        """Look again when a begin time or the end of a cool-down comes."""
        state = self._site.ledger.state
        if not state.pending:
            if self._timer is not None:
                self._timer.cancel()
            return
        waits = [_LOOK_AGAIN_SECS]
        if self._starts_matter:
            waits.append(float(state.settings.scheduler_interval))
        ahead = [at for instants in self._timed.values() for at in instants if at > now]
        if self._preemptable_at is not None:
            ahead.append(self._preemptable_at)
        if ahead:
            waits.append(min(ahead) - now)
        warm = self._site.memory.next_warm()
        if warm is not None:
            waits.append(warm - self._site.monotonic())
        self._wake_in(max(0.0, min(waits)))

    def _wake_in(self, secs: float) -> None:
        loop = asyncio.get_running_loop()
        due_at = loop.time() + secs
        if self._timer is not None and not self._timer.cancelled() and self._timer.when() > loop.time():
            if self._timer.when() <= due_at:
                return
            self._timer.cancel()
        self._timer = loop.call_later(secs, self.wake)

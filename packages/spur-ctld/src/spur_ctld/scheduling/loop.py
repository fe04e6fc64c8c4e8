"""The event-driven scheduling loop.

Whatever may let a job start wakes it: a submission, a release, freed room, a node, the end of a job that
others depend on, a begin time.  Wake-ups that come together are one pass.  A pass reads a snapshot, asks
the pure scheduler, records every placement at once and then sees the outcome; reasons are written only
when they changed.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Final

from spur_core import reasons
from spur_core.errors import SpurError
from spur_core.states import JobState
from spur_ctld.scheduling import pushing
from spur_ctld.scheduling.views import limit_of_deadline, slices_of
from spur_ctld.site import Site
from spur_ctld.state import ops, resv_gate
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
from spur_sched.plan import plan

log = logging.getLogger(__name__)

#: From this many queued jobs and nodes on the plan is made in a thread: the loop has 10 ms.
THREAD_FROM: Final = 200
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
                if self._starts_matter and job is not None and job.state is JobState.RUNNING:
                    self._wanted.set()
            elif isinstance(event, JobQueued):
                job = jobs.get(event.job_id)
                if job is not None and job.reason not in reasons.HOLDS:
                    self._wanted.set()
            elif isinstance(event, _WAKING):
                self._wanted.set()

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
            began = time.perf_counter()
            try:
                await self._pass()
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
                await asyncio.sleep(min(self.last_secs, _MOST_PAUSE_SECS))

    async def _pass(self) -> None:
        site = self._site
        now = site.clock()
        cooling = site.memory.cooling(site.monotonic())
        snapshot = site.builder.build(now, cooling)
        self._starts_matter = snapshot.starts_matter
        eligible = frozenset(job.job_id for job in snapshot.pending())
        self._preemptable_at = pushing.next_preemptable(snapshot.policy(), snapshot.running(), now)
        clock = asyncio.get_running_loop().time
        queue = len(snapshot.pending())
        depth = snapshot.policy().default_queue_depth or QUICK_DEPTH
        quick = queue > depth and clock() < self._next_full
        if quick:
            snapshot = snapshot.best(depth)
            self._wake_in(self._next_full - clock())
        began = clock()
        if snapshot.pending():
            if len(snapshot.pending()) + len(snapshot.nodes()) >= THREAD_FROM:
                found = await asyncio.to_thread(plan, snapshot, now)
            else:
                found = plan(snapshot, now)
        else:
            found = Plan((), ())
        if not quick:
            self._next_full = clock() + max(_FULL_EVERY_SECS, _FULL_SHARE * (clock() - began))
        looked_at = [job.job_id for job in snapshot.pending()] if quick else ()
        site.outlook.learn(found, looked_at, whole=not quick)
        if queue:
            site.outlook.count(found, queue, clock() - began, now)
        results = await asyncio.gather(
            *(self._dispatch(placement, now) for placement in found.placements),
            self._explain(found, snapshot.gated, snapshot.never, now),
            pushing.push(site, found.preemptions, now),
        )
        await pushing.resume(site, eligible, now)
        if any(placement.task is not None for placement in found.placements):
            # What is left of an array may have another reason to wait now.
            self._wanted.set()
        if not found.complete or not all(results):
            self._wake_in(0.0 if all(results) else 0.2)
        self._arm(now)

    async def _dispatch(self, placement: Placement, now: float) -> bool:
        """Record one placement; the launch follows from the record.  False: the state had moved on."""
        state = self._site.ledger.state
        job = state.jobs.get(placement.job_id)
        if job is None or job.state is not JobState.PENDING:
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
        for job_id, reason, desc in (*gated, *waiting):
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

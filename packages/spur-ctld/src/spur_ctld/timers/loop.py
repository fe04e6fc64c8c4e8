"""Carries out what `due` finds: limits, deadlines, silence, purging.  One task, at most one look a second.

Jobs are looked through only when one of them changed or the next known instant has come, so an idle
cluster costs nothing however many jobs run.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from spur_core import reasons
from spur_core.errors import SpurError
from spur_core.grammar import dependency
from spur_core.states import ACTIVE_STATES, JobState
from spur_ctld.dispatch.nodes import node_address
from spur_ctld.reservations.keeper import Keeper
from spur_ctld.site import Site
from spur_ctld.state import ops
from spur_ctld.state.apply_fence import live_nodes
from spur_ctld.state.events import ConfigChanged, Event, JobChanged
from spur_ctld.state.records import Job
from spur_ctld.timers import due

log = logging.getLogger(__name__)

TICK_SECS: Final = 1.0
_PURGE_EVERY_SECS: Final = 10.0
#: Answers to request ids are kept this long.
ANSWERS_SECS: Final = 3600.0
NOT_RESPONDING: Final = "Not responding"


class Timers:
    """Args: sleep: waits between two looks; replaced by tests with one that they control."""

    def __init__(self, site: Site, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._site = site
        self._sleep = sleep
        self._dirty = True
        self._next: float | None = None
        self._purge_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self._effects: set[asyncio.Task[None]] = set()
        self._keeper = Keeper(site, self._end_in_time)
        site.ledger.subscribe(self._on_events)

    def _on_events(self, events: Sequence[Event]) -> None:
        if not self._dirty and any(isinstance(event, (JobChanged, ConfigChanged)) for event in events):
            self._dirty = True

    def start(self) -> None:
        """Go on with limits that were signalled before, begin to look."""
        for job in self._active():
            if job.time_signalled_at is not None and job.fence is None:
                self._tell(job)
        self._task = asyncio.create_task(self._run(), name="timers")

    async def stop(self) -> None:
        self._site.ledger.unsubscribe(self._on_events)
        tasks = [task for task in (self._task, *self._effects) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._sleep(TICK_SECS)
            try:
                await self.tick()
            except SpurError as error:
                log.warning("timer_retry error=%r", error.text)
                self._dirty = True
            except Exception:
                log.exception("timer_failed")
                self._dirty = True

    def _active(self) -> list[Job]:
        state = self._site.ledger.state
        return [state.jobs[job_id] for job_id in sorted(state.active)]

    async def tick(self) -> None:
        """Do everything that is due now."""
        now = self._site.clock()
        await self._nodes()
        await self._clients(now)
        await self._keeper.tick(now)
        await self._site.recovery.tick()
        if now >= self._purge_at:
            self._purge_at = now + _PURGE_EVERY_SECS
            await self._purge(now)
        if not self._dirty and (self._next is None or now < self._next):
            return
        self._dirty = False
        nexts = [
            await self._warnings(now),
            await self._limits(now),
            await self._graces(now),
            await self._steps(now),
            await self._deadlines(now),
        ]
        self._next = min((at for at in nexts if at is not None), default=None)

    async def _warnings(self, now: float) -> float | None:
        """Signals ahead of a limit: recorded first, then told by the warner."""
        if not self._site.ledger.takes(ops.WarnBegin):
            return None
        near, following = due.unwarned(self._active(), now)
        for job_id, attempt in near:
            await self._try(ops.WarnBegin(at=now, job_id=job_id, attempt=attempt))
        return following

    async def _limits(self, now: float) -> float | None:
        site, state = self._site, self._site.ledger.state
        active = self._active()
        over, next_over = due.unsignalled(active, state.partitions, site.settings.over_time_limit_secs, now)
        for job_id, attempt in over:
            log.info("time_limit job=%d attempt=%d", job_id, attempt)
            await self._end_in_time(state.jobs[job_id], now)
        outlived, next_kill = due.outlived_kill(active, state.settings.kill_wait, now)
        for job_id, attempt in outlived:
            await self._fence(job_id, attempt, JobState.TIMEOUT, reasons.TIME_LIMIT, "timeout", now)
        hanging, next_hang = due.hanging(active, site.settings.complete_wait_secs, now)
        for job_id, attempt in hanging:
            job = state.jobs.get(job_id)
            if job is not None and job.time_signalled_at is not None:
                await self._fence(job_id, attempt, JobState.TIMEOUT, reasons.TIME_LIMIT, "timeout", now)
            else:
                await self._fence(
                    job_id, attempt, JobState.NODE_FAIL, reasons.SYSTEM_FAILURE, "node_fail", now
                )
        return min((at for at in (next_over, next_kill, next_hang) if at is not None), default=None)

    async def _end_in_time(self, job: Job, now: float) -> None:
        """Its time is over: recorded, then told."""
        await self._try(ops.TimeLimitSignalled(at=now, job_id=job.job_id, attempt=job.run_attempt))
        after = self._site.ledger.state.jobs.get(job.job_id)
        if after is not None and after.run_attempt == job.run_attempt and after.time_signalled_at is not None:
            self._tell(after)

    async def _fence(
        self, job_id: int, attempt: int, outcome: JobState, reason: str, why: str, now: float
    ) -> None:
        await self._try(
            ops.FenceBegin(at=now, job_id=job_id, attempt=attempt, outcome=outcome, reason=reason, why=why)
        )

    async def _steps(self, now: float) -> float | None:
        """Steps over a limit of their own, recorded before the first signal leaves; and steps that a client
        had recorded and never came back for."""
        over, following = due.steps_over(self._active(), now)
        for rid in over:
            log.info("step_time_limit step=%s", rid)
            await self._try(
                ops.StepCancel(
                    at=now,
                    job_id=rid.job_id,
                    attempt=rid.run_attempt,
                    step_id=rid.step_id,
                    who=ops.Who(),
                    why="timeout",
                )
            )
        left, next_left = due.steps_left(self._active(), now)
        for job in left:
            self._site.steps.resume(job)
        return min((at for at in (following, next_left) if at is not None), default=None)

    async def _graces(self, now: float) -> float | None:
        """Preempted attempts that had their time to prepare."""
        over, following = due.grace_over(self._active(), now)
        for job in over:
            assert job.push is not None
            log.info("grace_over job=%d attempt=%d by=%d", job.job_id, job.run_attempt, job.push.by)
            await self._try(
                ops.Preempt(
                    at=now, job_id=job.job_id, attempt=job.run_attempt, by=job.push.by, mode=job.push.mode
                )
            )
        return following

    async def _clients(self, now: float) -> None:
        """Allocations whose client has been silent for too long."""
        site = self._site
        limit = site.settings.inactive_limit_secs
        if not limit:
            return
        runs = [(job.job_id, job.run_attempt) for job in self._active() if due.has_client(job)]
        for job_id, attempt in site.clients.silent(runs, limit, site.monotonic()):
            log.warning("client_silent job=%d attempt=%d limit=%d", job_id, attempt, limit)
            await self._fence(job_id, attempt, JobState.TIMEOUT, reasons.INACTIVE_LIMIT, "timeout", now)

    async def _deadlines(self, now: float) -> float | None:
        state = self._site.ledger.state
        over, following = due.past_deadline((state.jobs[job_id] for job_id in state.pending), now)
        if over:
            await self._try(ops.Deadline(at=now, job_ids=tuple(sorted(over))))
        return following

    async def _nodes(self) -> None:
        site = self._site
        silent = due.silent_nodes(
            site.ledger.state.nodes.values(),
            site.memory.beats,
            site.settings.heartbeat_timeout_secs,
            site.settings.agent_restart_grace_secs,
            site.monotonic(),
        )
        for node, secs in silent:
            log.warning("node_down node=%s silent_secs=%d", node, secs)
            await self._try(ops.NodeDown(at=site.clock(), name=node, reason=NOT_RESPONDING))

    async def _purge(self, now: float) -> None:
        state = self._site.ledger.state
        stale = any(answer.at < now - ANSWERS_SECS for answer in state.answers.values())
        # Cheap test first: most looks find nothing old enough.
        old = due.forgotten(state.jobs.values(), (), state.settings.retention, now)
        if old:
            named: set[int] = set()
            for job_id in state.pending:
                text = state.jobs[job_id].request.dependency
                if text:
                    named |= dependency.job_ids(dependency.parse(text))
            waiting = {key[0] for key in (*state.outbox, *state.step_outbox)}
            old = [
                job_id
                for job_id in due.forgotten(state.jobs.values(), named, state.settings.retention, now)
                if job_id not in waiting
            ]
        if old or stale:
            await self._try(ops.Purge(at=now, job_ids=tuple(sorted(old)), answers_before=now - ANSWERS_SECS))

    async def _try(self, op: ops.AnyOp) -> None:
        try:
            await self._site.ledger.commit(op)
        except SpurError as error:
            log.info("timer_refused op=%s error=%r", type(op).__name__, error.text)
            self._dirty = True

    def _tell(self, job: Job) -> None:
        """TERM, grace and KILL to an attempt whose time is over; recorded before."""
        task = asyncio.create_task(self._tell_nodes(job.job_id, job.run_attempt))
        self._effects.add(task)
        task.add_done_callback(self._effects.discard)

    async def _tell_nodes(self, job_id: int, attempt: int) -> None:
        state = self._site.ledger.state
        job = state.jobs.get(job_id)
        if job is None or job.run_attempt != attempt or job.state not in ACTIVE_STATES:
            return
        assert job.time_signalled_at is not None
        passed = self._site.clock() - job.time_signalled_at
        grace = max(0, round(state.settings.kill_wait - passed))
        for node in live_nodes(job):
            known = state.nodes.get(node)
            try:
                address = node_address(known) if known is not None else ""
                await self._site.agents.end(address, job_id, attempt, grace, "timeout")
            except SpurError as error:
                log.warning("time_limit_waits job=%d node=%s error=%r", job_id, node, error.text)

"""What becomes due for reservations with time: ends, occurrences, unused ones, nodes to be replaced.

Called by the leader's timer.  What is decided follows from the state; only since when one is unused is the
leader's own memory, so a new leader counts anew.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from spur_core import reasons
from spur_core.errors import RequestError, SpurError
from spur_core.states import JobState
from spur_ctld.reservations.nodes import in_order, pick
from spur_ctld.site import Site
from spur_ctld.state import ops
from spur_ctld.state.apply_reservations import newest, users_of, waiting_for
from spur_ctld.state.records import Job
from spur_ctld.state.reservations import Reservation, is_active
from spur_sched.reservations.model import Span
from spur_sched.reservations.recurrence import following, zone_of

log = logging.getLogger(__name__)

#: Nodes are looked after so often.
_NODES_EVERY_SECS: Final = 5.0


class Keeper:
    """Looks after them.

    Args:
        end_job: begins to end a job whose time in its reservation is over.
    """

    def __init__(self, site: Site, end_job: Callable[[Job, float], Awaitable[None]]) -> None:
        self._site = site
        self._end_job = end_job
        #: Name -> since when nobody uses or waits for it.
        self._unused: dict[str, float] = {}
        self._nodes_at = 0.0
        self._seen_at = site.clock()

    async def tick(self, now: float) -> None:
        """Do everything that is due."""
        state = self._site.ledger.state
        if not state.reservations:
            self._unused.clear()
            self._seen_at = now
            return
        self._wake(now)
        for one in list(state.reservations.values()):
            if one.floating is None:
                await self._times(one, now)
        if now >= self._nodes_at or now < self._nodes_at - _NODES_EVERY_SECS:
            self._nodes_at = now + _NODES_EVERY_SECS
            for one in list(state.reservations.values()):
                await self._nodes(one)

    def _wake(self, now: float) -> None:
        """Jobs may start, or may not any more, from an edge on."""
        before, self._seen_at = self._seen_at, now
        for one in self._site.ledger.state.reservations.values():
            if before < one.start_at <= now or before < one.end_at <= now:
                office = self._site.office
                if office is not None:
                    office.scheduler.wake()
                return

    async def _times(self, one: Reservation, now: float) -> None:
        state = self._site.ledger.state
        # Every second: who uses it is looked up only where that matters.
        if now >= one.end_at + self._site.settings.resv_overrun_secs:
            inside = users_of(state, one.name)
            if "FLEX" not in one.flags:
                for job in inside:
                    await self._end(one, job, now)
            starting = any(job.state is JobState.CONFIGURING and job.fence is None for job in inside)
            if (one.repeat and not starting) or not inside:
                await self._turn(one)
            return
        if one.purge_after is None or not is_active(one, now):
            self._unused.pop(one.name, None)
            return
        if users_of(state, one.name) or waiting_for(state, one.name):
            self._unused[one.name] = now
            return
        since = self._unused.setdefault(one.name, now)
        if now >= since + one.purge_after:
            log.info("reservation_unused name=%s", one.name)
            self._unused.pop(one.name, None)
            await self._turn(one)

    async def _end(self, one: Reservation, job: Job, now: float) -> None:
        """A job's time in its reservation is over; one that is being launched is ended when it runs."""
        if job.time_signalled_at is not None or job.fence is not None:
            return
        if job.state is JobState.RUNNING:
            log.info("reservation_over name=%s job=%d", one.name, job.job_id)
            await self._end_job(job, now)
        elif job.state is JobState.SUSPENDED:
            log.info("reservation_over name=%s job=%d", one.name, job.job_id)
            await self._try(
                ops.FenceBegin(
                    at=now,
                    job_id=job.job_id,
                    attempt=job.run_attempt,
                    outcome=JobState.TIMEOUT,
                    reason=reasons.TIME_LIMIT,
                    why="timeout",
                )
            )

    async def _turn(self, one: Reservation) -> None:
        """On to the next occurrence that is not over yet, or away."""
        now = self._site.clock()
        span: Span | None = Span(one.start_at, one.end_at)
        zone = zone_of(one.zone)
        while span is not None and (span.end <= now or span.start <= one.start_at):
            span = following(Span(one.first_start, one.first_end), one.repeat, zone, span)
        op = ops.ReservationExpire(
            at=now,
            name=one.name,
            start_at=one.start_at,
            end_at=one.end_at,
            next_start=span.start if span is not None else None,
            next_end=span.end if span is not None else None,
        )
        await self._try(op)

    async def _nodes(self, one: Reservation) -> None:
        """Nodes that are down make room for others; of partitions that are kept whole it has all nodes."""
        state = self._site.ledger.state
        partitions = self._site.catalog.partitions()
        if "ALL_NODES" in one.flags:
            nodes = in_order(state.nodes)
        elif "PART_NODES" in one.flags and one.partition in partitions:
            nodes = in_order(partitions[one.partition].nodes)
        else:
            nodes = one.nodes
        changed = one
        if nodes != one.nodes:
            changed = msgspec.structs.replace(one, nodes=nodes)
        elif (one.node_count or one.core_count) and "STATIC" not in one.flags:
            changed = self._replaced(one)
        if changed is one:
            return
        log.info("reservation_nodes name=%s nodes=%d", one.name, len(changed.nodes))
        await self._try(
            ops.ReservationUpdate(
                at=self._site.clock(), reservation=changed, who=ops.Who(), seen=newest(state)
            )
        )

    def _replaced(self, one: Reservation) -> Reservation:
        state = self._site.ledger.state
        gone = {
            name for name in one.nodes if name not in state.nodes or not state.schedulable(state.nodes[name])
        }
        if "REPLACE" in one.flags:
            gone |= {name for job in users_of(state, one.name) for name in job.held if name in one.nodes}
        if not gone:
            return one
        try:
            found = pick(state, self._site.catalog.partitions(), one, (), avoid=frozenset(gone))
        except RequestError:
            found = None
        if found is None:
            # Better some that are down than fewer: they may come back.
            return one
        return msgspec.structs.replace(one, nodes=found.nodes, cpus=found.cpus)

    async def _try(self, op: ops.AnyOp) -> None:
        try:
            await self._site.ledger.commit(op)
        except SpurError as error:
            log.info("reservation_refused op=%s error=%r", type(op).__name__, error.text)

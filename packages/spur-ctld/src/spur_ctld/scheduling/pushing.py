"""From the preemptions of a plan to operations, and suspended attempts back on their way."""

import asyncio
import logging
from collections.abc import Collection, Sequence

from spur_core.errors import SpurError
from spur_core.states import JobState
from spur_ctld.site import Site
from spur_ctld.state import ops
from spur_ctld.state.apply_preempt import has_room
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.records import Job
from spur_sched.api import Policy, Preemption, Running
from spur_sched.preemption import MODES

log = logging.getLogger(__name__)


async def push(site: Site, preemptions: Sequence[Preemption], now: float) -> bool:
    """Record what a plan asked for, each against the very attempt that it saw.  False: some had moved on."""
    if not preemptions or not site.ledger.takes(ops.Preempt):
        return True
    orders = [
        ops.Preempt(at=now, job_id=job_id, attempt=attempt, by=found.job_id, mode=mode, grace_secs=grace_secs)
        for found in preemptions
        for job_id, attempt, mode, grace_secs in found.victims
    ]
    return all(await asyncio.gather(*(_push(site, order) for order in orders)))


async def _push(site: Site, order: ops.Preempt) -> bool:
    try:
        await site.ledger.commit(order)
    except SpurError as error:
        log.info("preemption_refused job=%d by=%d error=%r", order.job_id, order.by, error.text)
        return False
    log.info(
        "preempted job=%d attempt=%d by=%d mode=%s grace=%d",
        order.job_id,
        order.attempt,
        order.by,
        order.mode,
        order.grace_secs,
    )
    return True


def resumable(state: ClusterState, waiting: Collection[int]) -> list[Job]:
    """Attempts whose suspension may end: those of high tiers first, then of high priority.

    Args:
        waiting: jobs that may start when they get room; whoever was stopped for one of them goes on waiting.
    """
    found = [
        job
        for job_id in sorted(state.active)
        if (job := state.jobs[job_id]).state is JobState.SUSPENDED
        and job.push is not None
        and job.push.mode == "suspend"
        and job.fence is None
        and job.push.by not in waiting
        and (not job.push.lent or has_room(state, job))
    ]
    tiers = {name: partition.priority_tier for name, partition in state.partitions.items()}
    return sorted(found, key=lambda job: (-tiers.get(job.partition, 0), -job.priority, job.job_id))


async def resume(site: Site, waiting: Collection[int], now: float) -> None:
    """Let every suspended attempt go on that may."""
    for job in resumable(site.ledger.state, waiting):
        assert job.push is not None
        op = ops.Preempt(at=now, job_id=job.job_id, attempt=job.run_attempt, by=job.push.by, mode="resume")
        try:
            await site.ledger.commit(op)
            log.info("resumed job=%d attempt=%d", job.job_id, job.run_attempt)
        except SpurError as error:
            # Somebody before it took the CPUs: it waits on.
            log.info("resumption_refused job=%d error=%r", job.job_id, error.text)


def next_preemptable(policy: Policy, running: Sequence[Running], now: float) -> float | None:
    """When the exemption of some running attempt ends next; None = that changes nothing."""
    if policy.preempt_type == "none":
        return None
    ahead = [
        one.exempt_until
        for one in running
        if one.exempt_until > now and one.preempt_mode in MODES and one.started is not None
    ]
    return min(ahead, default=None)

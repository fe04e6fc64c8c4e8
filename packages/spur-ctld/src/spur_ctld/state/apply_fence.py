"""Fences that no user asked for, their confirmations, and the time limit's mark."""

import msgspec

from spur_core.states import JobState
from spur_ctld.state.apply_dispatch import current
from spur_ctld.state.cluster import ClusterState, launch_nodes
from spur_ctld.state.endings import begin_fence, cross_off
from spur_ctld.state.events import JobChanged
from spur_ctld.state.ops import (
    ClientSeen,
    Done,
    FenceBegin,
    FenceConfirm,
    Refusal,
    SuspendTold,
    TimeLimitSignalled,
)
from spur_ctld.state.records import Fence, Job


def live_nodes(job: Job) -> tuple[str, ...]:
    """Nodes where something of the attempt may still run."""
    return tuple(node for node in launch_nodes(job) if node not in job.exits)


def begin(state: ClusterState, op: FenceBegin) -> Done:
    """Open a fence over exactly this attempt.

    Recovery fences what nobody ends yet: of racing reports one has its way, and none turns an end that was
    asked for into another.
    """
    job = current(state, op.job_id, op.attempt)
    if isinstance(job, Refusal):
        return Done(refusal=job)
    if op.recovery and job.fence is not None:
        return Done(refusal=Refusal("wrong_state", "the attempt is being ended already"))
    outcome = op.outcome
    if outcome is JobState.PENDING and not job.request.requeue:
        outcome = JobState.NODE_FAIL
    fence = Fence(
        outcome=outcome,
        targets=live_nodes(job),
        reason=op.reason,
        desc=op.desc,
        kill_uid=op.kill_uid,
        at=op.at,
        why="recovery" if op.recovery else op.why,
        may_have_run=op.recovery,
        exit=op.exit,
    )
    if not begin_fence(state, job, fence):
        return Done(refusal=Refusal("wrong_state", "the attempt is being ended already"))
    return Done()


def confirm(state: ClusterState, op: FenceConfirm) -> Done:
    """Cross a node off; the last one brings the outcome."""
    job = current(state, op.job_id, op.attempt)
    if isinstance(job, Refusal):
        return Done(refusal=job)
    if job.fence is None or op.node not in job.fence.targets:
        return Done(refusal=Refusal("wrong_state", f"no fence of job {op.job_id} waits for {op.node}"))
    cross_off(state, job, op.node, op.at)
    return Done()


def time_limit(state: ClusterState, op: TimeLimitSignalled) -> Done:
    """Mark a running attempt as over its limit, once."""
    job = current(state, op.job_id, op.attempt)
    if isinstance(job, Refusal):
        return Done(refusal=job)
    if job.state is not JobState.RUNNING or job.time_signalled_at is not None or job.fence is not None:
        return Done(refusal=Refusal("wrong_state", "the attempt is not running, or was signalled before"))
    state.put_job(msgspec.structs.replace(job, time_signalled_at=op.at))
    state.emit(JobChanged(op.job_id))
    return Done()


def suspend_told(state: ClusterState, op: SuspendTold) -> Done:
    """Nodes carried out the last suspension or resumption."""
    job = current(state, op.job_id, op.attempt)
    if isinstance(job, Refusal):
        return Done(refusal=job)
    left = tuple(name for name in job.untold if name not in op.nodes)
    if op.suspended != (job.state is JobState.SUSPENDED) or left == job.untold:
        return Done(refusal=Refusal("wrong_state", "the job was suspended or resumed again meanwhile"))
    push = job.push
    if push is not None and push.mode == "suspend" and not left:
        # Nothing of it runs any more: from now on others may have its CPUs.
        push = msgspec.structs.replace(push, lent=True)
    state.put_job(msgspec.structs.replace(job, untold=left, push=push))
    state.emit(JobChanged(op.job_id))
    return Done()


def client_seen(state: ClusterState, op: ClientSeen) -> Done:
    """From now on the client's silence counts."""
    job = current(state, op.job_id, op.attempt)
    if isinstance(job, Refusal):
        return Done(refusal=job)
    if job.client_seen:
        return Done(refusal=Refusal("wrong_state", "the client was seen before"))
    state.put_job(msgspec.structs.replace(job, client_seen=True))
    state.emit(JobChanged(op.job_id))
    return Done()

"""Preemption of running attempts: grace, end, suspension, and the way back from that.

An attempt that makes room for another job carries a `Push`.  Whoever leads sees from it alone what is still
to be done, and for whom the room is meant.
"""

import msgspec

from spur_core import reasons
from spur_core.states import JobEvent, JobState, next_job_state
from spur_ctld.state import naming
from spur_ctld.state.accounting_rows import put_job_row
from spur_ctld.state.apply_dispatch import current
from spur_ctld.state.apply_fence import live_nodes
from spur_ctld.state.cluster import ClusterState, NodeUse, is_lent
from spur_ctld.state.endings import begin_fence, requeue_delay, unsuspended
from spur_ctld.state.events import JobChanged, PreemptRequested, SuspendRequested
from spur_ctld.state.ops import Done, Preempt, PreemptTold, Refusal
from spur_ctld.state.records import Fence, Job, Push

_MODES = frozenset({"cancel", "requeue", "suspend", "resume"})
_LIVE = frozenset({JobState.RUNNING, JobState.SUSPENDED})


def preempt(state: ClusterState, op: Preempt) -> Done:
    """Begin, or go on with, the preemption of exactly this attempt."""
    job = current(state, op.job_id, op.attempt)
    if isinstance(job, Refusal):
        return Done(refusal=job)
    if op.mode not in _MODES:
        return _no(f"mode {op.mode} is not one")
    if job.state not in _LIVE or job.fence is not None or job.time_signalled_at is not None:
        return _no("the attempt is not running, or is being ended already")
    if op.mode == "resume":
        return _resume(state, job, op)
    if op.mode == "suspend":
        return _suspend(state, job, op)
    if job.push is not None and not _over(job.push, op):
        return _no("the attempt is preempted already")
    mode = job.push.mode if job.push is not None and job.push.mode != "suspend" else op.mode
    if mode == "requeue" and not may_requeue(job):
        mode = "cancel"
    if op.grace_secs > 0:
        push = Push(by=op.by, mode=mode, at=op.at, end_at=op.at + op.grace_secs, unwarned=live_nodes(job))
        state.put_job(msgspec.structs.replace(job, push=push))
        state.emit(JobChanged(job.job_id))
        state.emit(PreemptRequested(job.job_id, job.run_attempt))
        return Done()
    if job.push is not None and job.push.mode != "suspend":
        push = msgspec.structs.replace(job.push, unwarned=())
    else:
        push = Push(by=op.by, mode=mode, at=op.at, lent=is_lent(job))
    begin_fence(state, msgspec.structs.replace(job, push=push), _fence(state, mode, job, op.at))
    return Done()


def may_requeue(job: Job) -> bool:
    """Whether the job may go back to the queue: a batch job whose owner did not forbid it."""
    return job.request.requeue and not job.request.srun and not job.request.alloc_only


def _over(push: Push, op: Preempt) -> bool:
    """Whether `op` ends a grace that is over, or takes what is only suspended."""
    if push.mode == "suspend":
        return True
    return op.grace_secs == 0 and push.end_at is not None and push.end_at <= op.at


def _fence(state: ClusterState, mode: str, job: Job, at: float) -> Fence:
    again = mode == "requeue"
    return Fence(
        outcome=JobState.PENDING if again else JobState.PREEMPTED,
        targets=live_nodes(job),
        reason=reasons.BEGIN_TIME if again else reasons.NONE,
        not_before=at + requeue_delay(state) if again else None,
        at=at,
        why="preempted",
    )


def _suspend(state: ClusterState, job: Job, op: Preempt) -> Done:
    if job.state is not JobState.RUNNING or job.push is not None:
        return _no("the attempt is not running, or is preempted already")
    after = msgspec.structs.replace(
        job,
        state=next_job_state(job.state, JobEvent.SUSPEND),
        suspended_at=op.at,
        untold=live_nodes(job),
        push=Push(by=op.by, mode="suspend", at=op.at),
    )
    _put(state, after)
    return Done()


def _resume(state: ClusterState, job: Job, op: Preempt) -> Done:
    if job.state is not JobState.SUSPENDED or job.push is None or job.push.mode != "suspend":
        return _no("the attempt is not suspended by a preemption")
    if is_lent(job) and not has_room(state, job):
        return _no("its CPUs are in use")
    after = msgspec.structs.replace(
        unsuspended(job, op.at),
        state=next_job_state(job.state, JobEvent.RESUME),
        untold=live_nodes(job),
        push=None,
    )
    _put(state, after)
    return Done()


def has_room(state: ClusterState, job: Job) -> bool:
    """Whether the CPUs that a suspended attempt lent are free on all its nodes.

    Not by their number alone: whoever of a higher tier came after it was stopped may run on the very same
    CPUs, though others are free by now.
    """
    held = set(job.held)
    for part in job.slices:
        if part.node not in held:
            continue
        node = state.nodes.get(part.node)
        use = state.use.get(part.node) or NodeUse()
        if node is None or use.cpus + part.cpus > node.cpus:
            return False
        if any(_borrows(state, state.jobs[other], job) for other in use.jobs if other != job.job_id):
            return False
        if naming.in_use(use, part.cpu_ids, job.job_id):
            return False
    return True


def _borrows(state: ClusterState, other: Job, job: Job) -> bool:
    assert job.push is not None
    tiers = [
        partition.priority_tier if (partition := state.partitions.get(one.partition)) is not None else 0
        for one in (other, job)
    ]
    return tiers[0] > tiers[1] and not is_lent(other) and (other.dispatch_at or 0.0) >= job.push.at


def _put(state: ClusterState, job: Job) -> None:
    state.put_job(job)
    put_job_row(state, job)
    state.emit(JobChanged(job.job_id))
    state.emit(SuspendRequested(job.job_id, job.run_attempt))


def told(state: ClusterState, op: PreemptTold) -> Done:
    """Nodes passed the signals on."""
    job = current(state, op.job_id, op.attempt)
    if isinstance(job, Refusal):
        return Done(refusal=job)
    if job.push is None or not set(op.nodes) & set(job.push.unwarned):
        return _no("nobody waits for that")
    left = tuple(name for name in job.push.unwarned if name not in op.nodes)
    state.put_job(msgspec.structs.replace(job, push=msgspec.structs.replace(job.push, unwarned=left)))
    state.emit(JobChanged(job.job_id))
    return Done()


def _no(text: str) -> Done:
    return Done(refusal=Refusal("wrong_state", text))

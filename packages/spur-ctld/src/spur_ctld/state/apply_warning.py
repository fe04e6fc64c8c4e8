"""The signal that a job asked for ahead of its limit: begun once an attempt, told node by node."""

import msgspec

from spur_core.states import JobState
from spur_ctld.state.apply_dispatch import current
from spur_ctld.state.apply_fence import live_nodes
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.events import JobChanged, WarnRequested
from spur_ctld.state.ops import Done, Refusal, WarnBegin, WarnTold


def begin(state: ClusterState, op: WarnBegin) -> Done:
    """The time of the signal has come for exactly this attempt."""
    job = current(state, op.job_id, op.attempt)
    if isinstance(job, Refusal):
        return Done(refusal=job)
    if job.state is not JobState.RUNNING or job.fence is not None or job.time_signalled_at is not None:
        return _no("the attempt is not running, or is being ended already")
    if job.warned_at is not None or not job.request.warn_signal:
        return _no("the attempt has had its signal, or asked for none")
    state.put_job(msgspec.structs.replace(job, warned_at=op.at, unwarned=live_nodes(job)))
    state.emit(JobChanged(op.job_id))
    state.emit(WarnRequested(op.job_id, op.attempt))
    return Done()


def told(state: ClusterState, op: WarnTold) -> Done:
    """Nodes passed the signal on."""
    job = current(state, op.job_id, op.attempt)
    if isinstance(job, Refusal):
        return Done(refusal=job)
    if not set(op.nodes) & set(job.unwarned):
        return _no("nobody waits for that")
    left = tuple(name for name in job.unwarned if name not in op.nodes)
    state.put_job(msgspec.structs.replace(job, unwarned=left))
    state.emit(JobChanged(op.job_id))
    return Done()


def _no(text: str) -> Done:
    return Done(refusal=Refusal("wrong_state", text))

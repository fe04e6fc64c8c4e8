"""A job, or a whole array as one record, enters the queue."""

import msgspec

from spur_core import reasons
from spur_core.grammar.array import IndexSet
from spur_ctld.state.accounting_rows import put_job_row
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.events import JobChanged, JobQueued
from spur_ctld.state.ops import Refusal, Submit, SubmitResult
from spur_ctld.state.records import Job


def submit(state: ClusterState, op: Submit) -> SubmitResult:
    """Give the next id.  A repeated request id gets the first answer."""
    if op.request_id:
        known = state.answers.get(op.request_id)
        if known is not None:
            return msgspec.msgpack.decode(known.result, type=SubmitResult)
    if len(state.pending) + len(state.active) >= state.settings.max_job_count:
        return SubmitResult(refusal=Refusal("busy", "MaxJobCount limit reached"))
    missing = [name for name in op.request.partitions if name not in state.partitions]
    if missing:
        return SubmitResult(refusal=Refusal("bad_partition", "Invalid partition name specified"))
    job = _record(state, op)
    state.put_job(job)
    put_job_row(state, job)
    result = SubmitResult(job_id=job.job_id)
    if op.request_id:
        state.remember(op.request_id, msgspec.msgpack.encode(result), op.at)
    state.emit(JobChanged(job.job_id))
    state.emit(JobQueued(job.job_id))
    return result


def _record(state: ClusterState, op: Submit) -> Job:
    request = msgspec.structs.replace(
        op.request, env=state.intern(op.request.env), script=state.intern(op.request.script)
    )
    job_id = state.take_id()
    base = op.priority or state.settings.default_priority
    reason = reasons.NONE
    if op.held:
        reason = reasons.HELD_ADMIN if op.held_by_admin else reasons.HELD_USER
    job = Job(
        job_id=job_id,
        request=request,
        submit_at=op.at,
        reason=reason,
        priority=0 if op.held else base,
        prior_priority=base,
        priority_given=op.priority_given,
        eligible_at=max(op.at, request.begin_at or 0.0),
    )
    if not op.array:
        return job
    indices = IndexSet(op.array)
    return msgspec.structs.replace(
        job,
        array_job_id=job_id,
        array_pending=op.array,
        array_throttle=op.array_throttle,
        array_count=len(indices),
        array_min=indices.first,
        array_max=indices.last,
        array_step=indices.step,
    )

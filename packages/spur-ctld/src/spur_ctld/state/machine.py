"""`apply`: one operation to the state.  Deterministic: no clock, no random numbers, no environment.

An operation that does not fit is a no-op with a refusal, the same on every replica; nothing raises for
what a user asked.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from spur_core import reasons
from spur_core.states import TERMINAL_STATES, JobState
from spur_ctld.state import (
    apply_complete,
    apply_control,
    apply_dispatch,
    apply_fence,
    apply_nodes,
    apply_preempt,
    apply_reservations,
    apply_steps,
    apply_submit,
    apply_warning,
    codec,
    dependencies,
    ops,
)
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.endings import finish
from spur_ctld.state.events import Event, JobChanged
from spur_ctld.state.records import Job

__all__ = ["ClusterState", "apply"]


def apply(state: ClusterState, index: int, op: "ops.AnyOp") -> "tuple[ops.AnyResult, tuple[Event, ...]]":
    """Carry out `op`, the entry at `index`.  A repeat of a request that was carried out is only answered.

    Returns:
        The result for the proposer, and what the shell may have to do.
    """
    state.applied = index
    state.time = max(state.time, op.at)
    known = state.answers.get(op.key) if op.key else None
    if known is not None:
        return codec.decode_result(known.result), ()
    result: ops.AnyResult = _APPLY[type(op)](state, op)
    if op.key and result.refusal is None:
        state.remember(op.key, codec.encode_result(result), op.at)
    return result, state.take_events()


def _reasons(state: ClusterState, op: ops.PendingReasons) -> ops.Done:
    """What the last pass found; jobs that moved on since are passed over."""
    for job_id, reason, desc in op.reasons:
        job = state.jobs.get(job_id)
        if job is None or job.state is not JobState.PENDING or job.reason in reasons.HOLDS:
            continue
        if (job.reason, job.desc) != (reason, desc):
            met = job.reason == reasons.DEPENDENCY and reason != reasons.DEPENDENCY
            since = op.at if met and state.command_version >= 4 else job.accrue_at
            state.put_job(msgspec.structs.replace(job, reason=reason, desc=desc, accrue_at=since))
            state.emit(JobChanged(job_id))
    for job_id in op.cancel:
        job = state.jobs.get(job_id)
        if job is not None and job.state is JobState.PENDING:
            finish(state, job, JobState.CANCELLED, op.at, reason=reasons.DEPENDENCY_NEVER)
    return ops.Done()


def _deadline(state: ClusterState, op: ops.Deadline) -> ops.Done:
    for job_id in op.job_ids:
        job = state.jobs.get(job_id)
        if job is not None and job.state is JobState.PENDING:
            finish(state, job, JobState.DEADLINE, op.at, reason=reasons.DEADLINE)
    return ops.Done()


def _outbox_ack(state: ClusterState, op: ops.OutboxAck) -> ops.Done:
    """Forget exactly the versions that the database holds."""
    for job_id, attempt, seq in op.rows:
        row = state.outbox.get((job_id, attempt))
        if row is not None and row.seq == seq:
            del state.outbox[job_id, attempt]
    for *key, seq in op.steps:
        step_row = state.step_outbox.get((key[0], key[1], key[2]))
        if step_row is not None and step_row.seq == seq:
            del state.step_outbox[key[0], key[1], key[2]]
    return ops.Done()


def _purge(state: ClusterState, op: ops.Purge) -> ops.Done:
    """Ended jobs leave; one that is not over, that the database does not hold yet, or that a live job's
    dependency names, stays."""
    waiting = {job_id for job_id, _ in state.outbox} | {job_id for job_id, _, _ in state.step_outbox}
    named = dependencies.referenced(state)
    for job_id in op.job_ids:
        job = state.jobs.get(job_id)
        if job is None or not _over(job) or job_id in waiting:
            continue
        if job_id not in named and job.array_job_id not in named:
            state.drop_job(job_id)
            state.emit(JobChanged(job_id))
    for request_id in [key for key, answer in state.answers.items() if answer.at < op.answers_before]:
        del state.answers[request_id]
    return ops.Done()


def _raise_version(state: ClusterState, op: ops.RaiseCommandVersion) -> ops.Done:
    """Never back: two leaders may have proposed it."""
    if op.to > state.command_version:
        state.command_version = op.to
        state.raised_at = op.at
    return ops.Done()


def _over(job: Job) -> bool:
    return job.state in TERMINAL_STATES


_APPLY: dict[type, Callable[[ClusterState, Any], Any]] = {
    ops.Configure: apply_nodes.configure,
    ops.Submit: apply_submit.submit,
    ops.Cancel: apply_control.cancel,
    ops.Hold: apply_control.hold,
    ops.Update: apply_control.update,
    ops.Requeue: apply_control.requeue_op,
    ops.DispatchBegin: apply_dispatch.begin,
    ops.DispatchCommit: apply_dispatch.commit,
    ops.DispatchAbort: apply_dispatch.abort,
    ops.FenceBegin: apply_fence.begin,
    ops.FenceConfirm: apply_fence.confirm,
    ops.NodeComplete: apply_complete.complete,
    ops.StepCreate: apply_steps.create,
    ops.StepLaunched: apply_steps.launched,
    ops.StepCancel: apply_steps.cancel,
    ops.StepGone: apply_steps.gone,
    ops.StepForget: apply_steps.forget,
    ops.AllocComplete: apply_complete.complete_allocation,
    ops.Suspend: apply_control.suspend,
    ops.SuspendTold: apply_fence.suspend_told,
    ops.Preempt: apply_preempt.preempt,
    ops.PreemptTold: apply_preempt.told,
    ops.WarnBegin: apply_warning.begin,
    ops.WarnTold: apply_warning.told,
    ops.ClientSeen: apply_fence.client_seen,
    ops.TimeLimitSignalled: apply_fence.time_limit,
    ops.PendingReasons: _reasons,
    ops.Deadline: _deadline,
    ops.NodeRegister: apply_nodes.register,
    ops.NodeSilent: apply_nodes.silent,
    ops.NodeBack: apply_nodes.back,
    ops.NodeDown: apply_nodes.down,
    ops.NodeUpdate: apply_nodes.update,
    ops.OutboxAck: _outbox_ack,
    ops.Purge: _purge,
    ops.RaiseCommandVersion: _raise_version,
    ops.ReservationCreate: apply_reservations.create,
    ops.ReservationUpdate: apply_reservations.update,
    ops.ReservationDelete: apply_reservations.delete,
    ops.ReservationExpire: apply_reservations.expire,
}

"""What users and administrators do to jobs: cancel, hold, release, update, requeue."""

from typing import Any

import msgspec

from spur_core import reasons
from spur_core.states import ACTIVE_STATES, TERMINAL_STATES, JobState
from spur_ctld.state.accounting_rows import put_job_row
from spur_ctld.state.apply_fence import live_nodes
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.endings import begin_fence, finish, requeue, requeue_delay
from spur_ctld.state.events import JobChanged, JobQueued
from spur_ctld.state.ops import Cancel, Hold, Refusal, Requeue, TargetsResult, Update, Who
from spur_ctld.state.records import UNLIMITED, Fence, Job, Request
from spur_ctld.state.targets import ALREADY_DONE, DENIED, NOT_PENDING, may, resolve_split

_FIELD_TYPES: dict[str, Any] = {field.name: field.type for field in msgspec.structs.fields(Request)}
#: What may change while a job runs; everything else is for pending jobs.
_RUNNING_FIELDS = frozenset({"time_limit", "comment", "requeue", "name", "wckey"})
#: Who a job is, is not for updates.
_FIXED_FIELDS = frozenset({"user", "uid", "gid", "group", "srun", "script", "argv", "env"})


def cancel(state: ClusterState, op: Cancel) -> TargetsResult:
    """Pending parts end at once; active attempts are fenced."""
    return TargetsResult(results=tuple(_cancel(state, op, target) for target in op.targets))


def _cancel(state: ClusterState, op: Cancel, target: Any) -> Refusal | None:
    found = resolve_split(state, target, op.who)
    if isinstance(found, Refusal):
        return found
    if not all(may(op.who, job) for job in found):
        return DENIED
    done = False
    for job in found:
        if job.state is JobState.PENDING:
            finish(state, job, JobState.CANCELLED, op.at, kill_uid=op.who.uid)
            done = True
        elif job.state in ACTIVE_STATES:
            fence = Fence(
                outcome=JobState.CANCELLED,
                targets=live_nodes(job),
                reason=reasons.NONE,
                kill_uid=op.who.uid,
                at=op.at,
                why="cancelled",
            )
            done = begin_fence(state, job, fence) or done
    return None if done else ALREADY_DONE


def hold(state: ClusterState, op: Hold) -> TargetsResult:
    """Hold, or give back what a hold took."""
    act = _release if op.mode == "release" else _hold
    return TargetsResult(results=tuple(_each(state, op, target, act) for target in op.targets))


def _each(state: ClusterState, op: Any, target: Any, act: Any) -> Refusal | None:
    """Apply `act` to every record of a target; the first refusal is the target's when none went well."""
    found = resolve_split(state, target, op.who)
    if isinstance(found, Refusal):
        return found
    if not all(may(op.who, job) for job in found):
        return DENIED
    answers = [act(state, op, state.jobs[job.job_id]) for job in found]
    refusals = [answer for answer in answers if answer is not None]
    return refusals[0] if len(refusals) == len(answers) else None


def _hold(state: ClusterState, op: Hold, job: Job) -> Refusal | None:
    if job.state is not JobState.PENDING:
        return NOT_PENDING if job.state in ACTIVE_STATES else ALREADY_DONE
    by_admin = op.mode == "hold" and op.who.admin and op.who.uid != job.request.uid
    reason = reasons.HELD_ADMIN if by_admin else reasons.HELD_USER
    if job.reason == reasons.HELD_ADMIN and not op.who.admin:
        return None
    _put_pending(
        state,
        msgspec.structs.replace(
            job, reason=reason, desc="", priority=0, prior_priority=job.priority or job.prior_priority
        ),
    )
    return None


def _release(state: ClusterState, op: Hold, job: Job) -> Refusal | None:
    if job.state is not JobState.PENDING:
        return NOT_PENDING if job.state in ACTIVE_STATES else ALREADY_DONE
    if job.reason not in reasons.HOLDS:
        return None
    if job.reason == reasons.HELD_ADMIN and not op.who.admin:
        return DENIED
    fresh = job.reason == reasons.HELD_MAX_REQUEUE
    _put_pending(
        state,
        msgspec.structs.replace(
            job,
            reason=reasons.NONE,
            desc="",
            priority=job.prior_priority or state.settings.default_priority,
            not_before=None,
            launch_failures=0 if fresh else job.launch_failures,
        ),
    )
    state.emit(JobQueued(job.job_id))
    return None


def _put_pending(state: ClusterState, job: Job) -> None:
    state.put_job(job)
    put_job_row(state, job)
    state.emit(JobChanged(job.job_id))


def update(state: ClusterState, op: Update) -> TargetsResult:
    """Change fields; all of a request's changes happen to a record, or none."""
    return TargetsResult(results=tuple(_each(state, op, target, _update) for target in op.targets))


def _update(state: ClusterState, op: Update, job: Job) -> Refusal | None:
    if job.state in TERMINAL_STATES:
        return Refusal("already_done", "Job has already finished")
    try:
        changes = {name: _decode(name, raw) for name, raw in op.changes.items()}
    except (KeyError, msgspec.MsgspecError):
        return Refusal("bad_request", "Requested operation not supported on this system")
    pending = job.state is JobState.PENDING
    if not pending and (
        set(changes) - _RUNNING_FIELDS or op.priority is not None or op.array_throttle is not None
    ):
        return NOT_PENDING
    if op.time_limit_delta is not None:
        if job.request.time_limit is None:
            return Refusal("bad_request", "Requested time limit is invalid (missing or exceeds some limit)")
        changes["time_limit"] = max(60, job.request.time_limit + op.time_limit_delta)
    if refusal := _limits(op.who, job, changes, state):
        return refusal
    request = msgspec.structs.replace(job.request, **changes)
    changed = msgspec.structs.replace(job, request=request)
    if pending:
        if "begin_at" in changes:
            changed = msgspec.structs.replace(
                changed, eligible_at=max(job.submit_at, request.begin_at or 0.0), not_before=None
            )
        if op.priority is not None:
            changed = _with_priority(changed, op.priority, op.who)
        if op.array_throttle is not None:
            changed = msgspec.structs.replace(changed, array_throttle=op.array_throttle)
        if changed.reason not in reasons.HOLDS:
            changed = msgspec.structs.replace(changed, reason=reasons.NONE, desc="")
    state.put_job(changed)
    put_job_row(state, changed)
    state.emit(JobChanged(job.job_id))
    if pending:
        state.emit(JobQueued(job.job_id))
    return None


def _decode(name: str, raw: bytes) -> Any:
    if name in _FIXED_FIELDS:
        raise KeyError(name)
    return msgspec.msgpack.decode(raw, type=_FIELD_TYPES[name])


def _limits(who: Who, job: Job, changes: dict[str, Any], state: ClusterState) -> Refusal | None:
    """What an owner may not do to his own job."""
    for name in changes.get("partitions", ()):
        if name not in state.partitions:
            return Refusal("bad_partition", "Invalid partition name specified")
    if who.admin or who.uid is None:
        return None
    if "time_limit" in changes and job.state is not JobState.PENDING:
        old = UNLIMITED if job.request.time_limit is None else job.request.time_limit
        new = UNLIMITED if changes["time_limit"] is None else changes["time_limit"]
        if new > old:
            return DENIED
    if "nice" in changes and changes["nice"] < job.request.nice:
        return DENIED
    return None


def _with_priority(job: Job, priority: int, who: Who) -> Job:
    """Zero is a hold; an owner may only lower."""
    if priority == 0:
        reason = reasons.HELD_ADMIN if who.admin and who.uid != job.request.uid else reasons.HELD_USER
        return msgspec.structs.replace(
            job, priority=0, prior_priority=job.priority or job.prior_priority, reason=reason, desc=""
        )
    lowered = priority if who.admin or who.uid is None else min(priority, job.priority or priority)
    return msgspec.structs.replace(job, priority=lowered, prior_priority=lowered, reason=reasons.NONE)


def requeue_op(state: ClusterState, op: Requeue) -> TargetsResult:
    """Active attempts are ended and go back to the queue, ended jobs go back at once."""
    return TargetsResult(results=tuple(_each(state, op, target, _requeue) for target in op.targets))


def _requeue(state: ClusterState, op: Requeue, job: Job) -> Refusal | None:
    request = job.request
    if request.srun:
        return Refusal("wrong_state", "Requested operation is presently disabled")
    if job.state is JobState.PENDING:
        return Refusal("wrong_state", "Job is pending execution")
    if not request.requeue:
        return Refusal("wrong_state", "Requested operation is presently disabled")
    fence = Fence(
        outcome=JobState.PENDING,
        targets=live_nodes(job) if job.state in ACTIVE_STATES else (),
        reason=reasons.BEGIN_TIME,
        desc="job requeued in held state" if op.hold else "",
        hold_reason=_hold_reason(op.who, job) if op.hold else "",
        not_before=None if op.hold else op.at + requeue_delay(state),
        at=op.at,
        why="requeue",
    )
    if job.state in ACTIVE_STATES:
        return None if begin_fence(state, job, fence) else ALREADY_DONE
    if op.incomplete_only:
        return None
    requeue(state, job, msgspec.structs.replace(fence, not_before=None, reason=reasons.NONE), op.at)
    return None


def _hold_reason(who: Who, job: Job) -> str:
    return reasons.HELD_ADMIN if who.admin and who.uid != job.request.uid else reasons.HELD_USER

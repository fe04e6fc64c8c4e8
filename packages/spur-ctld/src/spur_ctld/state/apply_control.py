"""What users and administrators do to jobs: cancel, hold, release, update, requeue."""

from collections.abc import Callable
from typing import Any

import msgspec

from spur_core import reasons
from spur_core.states import ACTIVE_STATES, TERMINAL_STATES, JobEvent, JobState, next_job_state
from spur_ctld.state.accounting_rows import put_job_row
from spur_ctld.state.apply_fence import live_nodes
from spur_ctld.state.apply_reservations import released
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.endings import (
    begin_fence,
    finish,
    may_fence,
    requeue,
    requeue_delay,
    unsuspended,
)
from spur_ctld.state.events import JobChanged, JobQueued, SuspendRequested
from spur_ctld.state.ops import (
    Cancel,
    Hold,
    Refusal,
    Requeue,
    Suspend,
    Target,
    TargetsResult,
    Update,
    Who,
)
from spur_ctld.state.records import UNLIMITED, Fence, Job, Request
from spur_ctld.state.targets import ALREADY_DONE, DENIED, NOT_PENDING, may, named_parts, resolve

_FIELD_TYPES: dict[str, Any] = {field.name: field.type for field in msgspec.structs.fields(Request)}
#: What may change while a job runs; everything else is for pending jobs.
_RUNNING_FIELDS = frozenset({"time_limit", "comment", "requeue", "name", "wckey"})
#: Who a job is, is not for updates.
_FIXED_FIELDS = frozenset(
    {"user", "uid", "gid", "group", "srun", "alloc_only", "shape", "task_nodes", "script", "argv", "env"}
)


_GRES_FORMS = ("gres", "gres_total", "gres_per_task", "gres_per_socket")

#: Does what was asked to one record.
Change = Callable[[Job], None]


def _each(
    state: ClusterState, target: Target, who: Who, decide: "Callable[[Job], Refusal | Change | None]"
) -> Refusal | None:
    """Change every record of a target.

    First it is decided for all of them, then tasks are split from their array, then they are changed; so
    a refusal leaves everything as it was.

    Args:
        decide: why not, what to do, or None when it is so already.

    Returns:
        The first refusal when all records refused, else None.
    """
    found = resolve(state, target)
    if isinstance(found, Refusal):
        return found
    if not all(may(who, job) for job in found):
        return DENIED
    answers = [(job, decide(job)) for job in found]
    refusals = [answer for _, answer in answers if isinstance(answer, Refusal)]
    if len(refusals) == len(answers):
        return refusals[0]
    for job, change in answers:
        if change is not None and not isinstance(change, Refusal):
            for part in named_parts(state, target, job):
                change(part)
    return None


def cancel(state: ClusterState, op: Cancel) -> TargetsResult:
    """Pending parts end at once; active attempts are fenced."""

    def end(job: Job) -> None:
        finish(state, job, JobState.CANCELLED, op.at, kill_uid=op.who.uid)

    def fence(job: Job) -> None:
        begin_fence(state, job, _cancel_fence(op, job))

    def decide(job: Job) -> Refusal | Change:
        if job.state is JobState.PENDING:
            return end
        if job.state in ACTIVE_STATES and may_fence(job, JobState.CANCELLED):
            return fence
        return ALREADY_DONE

    return TargetsResult(results=tuple(_each(state, target, op.who, decide) for target in op.targets))


def _cancel_fence(op: Cancel, job: Job) -> Fence:
    return Fence(
        outcome=JobState.CANCELLED,
        targets=live_nodes(job),
        reason=reasons.NONE,
        kill_uid=op.who.uid,
        at=op.at,
        why="cancelled",
    )


def hold(state: ClusterState, op: Hold) -> TargetsResult:
    """Hold, or give back what a hold took."""

    def decide(job: Job) -> Refusal | Change | None:
        if job.state is not JobState.PENDING:
            return NOT_PENDING if job.state in ACTIVE_STATES else ALREADY_DONE
        if op.mode == "release":
            if job.reason == reasons.HELD_ADMIN and not _rules(op.who):
                return DENIED
            return release if job.reason in reasons.HOLDS else None
        # An owner's hold does not take an administrator's away.
        return None if job.reason == reasons.HELD_ADMIN and not _rules(op.who) else park

    def park(job: Job) -> None:
        reason = _hold_reason(op.who, job) if op.mode == "hold" else reasons.HELD_USER
        _put_pending(
            state,
            msgspec.structs.replace(
                job, reason=reason, desc="", priority=0, prior_priority=job.priority or job.prior_priority
            ),
        )

    def release(job: Job) -> None:
        fresh = job.reason == reasons.HELD_MAX_REQUEUE
        base, prior = job.prior_priority or state.settings.default_priority, job.prior_priority
        since = job.accrue_at
        if state.command_version >= 4:
            since = op.at
            if job.priority_given:
                # As in Slurm, a release gives what was set by hand back to the factors.
                base = prior = _within(state.settings.default_priority - job.request.nice)
        _put_pending(
            state,
            msgspec.structs.replace(
                released(state, job),
                reason=reasons.NONE,
                desc="",
                priority=base,
                prior_priority=prior,
                priority_given=False,
                accrue_at=since,
                not_before=None,
                launch_failures=0 if fresh else job.launch_failures,
            ),
        )
        state.emit(JobQueued(job.job_id))

    return TargetsResult(results=tuple(_each(state, target, op.who, decide) for target in op.targets))


def _rules(who: Who) -> bool:
    """An administrator, or the controller itself."""
    return who.admin or who.uid is None


def _put_pending(state: ClusterState, job: Job) -> None:
    state.put_job(job)
    put_job_row(state, job)
    state.emit(JobChanged(job.job_id))


def update(state: ClusterState, op: Update) -> TargetsResult:
    """Change fields; all of a request's changes happen to a record, or none."""

    def decide(job: Job) -> Refusal | Change:
        changed = updated(state, op, job)
        return changed if isinstance(changed, Refusal) else put

    def put(job: Job) -> None:
        changed = updated(state, op, job)
        if isinstance(changed, Refusal):
            return
        state.put_job(changed)
        put_job_row(state, changed)
        state.emit(JobChanged(job.job_id))
        if changed.state is JobState.PENDING:
            state.emit(JobQueued(job.job_id))

    return TargetsResult(results=tuple(_each(state, target, op.who, decide) for target in op.targets))


def updated(state: ClusterState, op: Update, job: Job) -> Job | Refusal:
    """The record with the request's changes, or why not; nothing is done yet."""
    if job.state in TERMINAL_STATES:
        return Refusal("already_done", "Job has already finished")
    try:
        changes = {name: _decode(name, raw) for name, raw in op.changes.items()}
    except (KeyError, msgspec.MsgspecError):
        return Refusal("bad_request", "Requested operation not supported on this system")
    pending = job.state is JobState.PENDING
    shaped = set(changes) - _RUNNING_FIELDS or op.priority is not None or op.array_throttle is not None
    if not pending and shaped:
        return NOT_PENDING
    if op.time_limit_delta is not None:
        if job.request.time_limit in (None, UNLIMITED):
            return Refusal("bad_request", "Requested time limit is invalid (missing or exceeds some limit)")
        changed_limit = (job.request.time_limit or 0) + op.time_limit_delta
        changes["time_limit"] = min(max(60, changed_limit), UNLIMITED - 1)
    if refusal := _forbidden(state, op, job, changes):
        return refusal
    request = _consistent(msgspec.structs.replace(job.request, **changes), changes)
    if (
        request.time_min is not None
        and request.time_limit is not None
        and request.time_min > request.time_limit
    ):
        return Refusal("bad_request", "Requested time limit is invalid (missing or exceeds some limit)")
    changed = msgspec.structs.replace(job, request=request)
    if "time_limit" in changes and job.asked_limit is not None:
        changed = msgspec.structs.replace(changed, asked_limit=None)
    if not pending:
        return changed
    if "begin_at" in changes:
        changed = msgspec.structs.replace(
            changed, eligible_at=max(job.submit_at, request.begin_at or 0.0), not_before=None
        )
    if "nice" in changes:
        changed = _with_nice(changed, job.request.nice)
    if op.priority is not None:
        changed = _with_priority(changed, op.priority, op.who)
        if op.priority and state.command_version >= 4:
            changed = _by_hand(changed, keep_nice="nice" in changes)
    if op.array_throttle is not None:
        changed = msgspec.structs.replace(changed, array_throttle=op.array_throttle)
    if changed.reason not in reasons.HOLDS:
        changed = msgspec.structs.replace(changed, reason=reasons.NONE, desc="")
    return changed


def _consistent(request: Request, changes: dict[str, Any]) -> Request:
    """GPUs stand in one form and memory in one: the form that was set takes the place of the others."""
    more: dict[str, Any] = {}
    if request.memory_per_gpu_mb is not None and (
        changes.get("memory_per_node_mb") is not None or changes.get("memory_per_cpu_mb") is not None
    ):
        more["memory_per_gpu_mb"] = None
    if request.limit_open and "time_limit" in changes:
        more["limit_open"] = False
    for name in _GRES_FORMS:
        if any(item.name == "gpu" for item in changes.get(name, ())):
            for other in _GRES_FORMS:
                held = getattr(request, other)
                rest = tuple(item for item in held if item.name != "gpu")
                if other != name and rest != held:
                    more[other] = rest
            more["gpus_per_node"] = name == "gres" and request.gpus_per_node
    return msgspec.structs.replace(request, **more) if more else request


def _decode(name: str, raw: bytes) -> Any:
    if name in _FIXED_FIELDS:
        raise KeyError(name)
    return msgspec.msgpack.decode(raw, type=_FIELD_TYPES[name])


def _forbidden(state: ClusterState, op: Update, job: Job, changes: dict[str, Any]) -> Refusal | None:
    """Values that nobody may set, and what an owner may not do to his own job."""
    for name in changes.get("partitions", ()):
        if name not in state.partitions:
            return Refusal("bad_partition", "Invalid partition name specified")
    if _rules(op.who):
        return None
    if "time_limit" in changes and job.state is not JobState.PENDING:
        old = UNLIMITED if job.request.time_limit is None else job.request.time_limit
        new = UNLIMITED if changes["time_limit"] is None else changes["time_limit"]
        if new > old:
            return DENIED
    if "nice" in changes and changes["nice"] < job.request.nice:
        return DENIED
    if "site_factor" in changes:
        return DENIED
    if op.priority is not None and job.reason == reasons.HELD_ADMIN:
        return DENIED
    return None


def _with_priority(job: Job, priority: int, who: Who) -> Job:
    """Zero is a hold; an owner may only lower."""
    if priority == 0:
        return msgspec.structs.replace(
            job,
            priority=0,
            prior_priority=job.priority or job.prior_priority,
            reason=_hold_reason(who, job),
            desc="",
        )
    most = job.priority or job.prior_priority or priority
    lowered = priority if _rules(who) else min(priority, most)
    return msgspec.structs.replace(job, priority=lowered, prior_priority=lowered, reason=reasons.NONE)


def _by_hand(job: Job, *, keep_nice: bool) -> Job:
    """The priority is not made of factors any more, and nothing is taken off it, as in Slurm."""
    request = job.request if keep_nice else msgspec.structs.replace(job.request, nice=0)
    return msgspec.structs.replace(job, priority_given=True, request=request)


def _with_nice(job: Job, before: int) -> Job:
    """The base priority was computed with the old nice value; so is what a release gives back."""
    shift = before - job.request.nice
    return msgspec.structs.replace(
        job,
        priority=_within(job.priority + shift) if job.priority else 0,
        prior_priority=_within(job.prior_priority + shift),
    )


def _within(priority: int) -> int:
    return min(max(1, priority), 0xFFFFFFFE)


def requeue_op(state: ClusterState, op: Requeue) -> TargetsResult:
    """Active attempts are ended and go back to the queue, ended jobs go back at once."""

    def decide(job: Job) -> Refusal | Change | None:
        if job.state is JobState.PENDING:
            return Refusal("wrong_state", "Job is pending execution")
        if job.request.srun or job.request.alloc_only or not job.request.requeue:
            return Refusal("wrong_state", "Requested operation is presently disabled")
        if job.state in ACTIVE_STATES:
            return end_first if may_fence(job, JobState.PENDING) else ALREADY_DONE
        return None if op.incomplete_only else at_once

    def end_first(job: Job) -> None:
        begin_fence(state, job, _requeue_fence(state, op, job))

    def at_once(job: Job) -> None:
        fence = _requeue_fence(state, op, job)
        requeue(state, job, msgspec.structs.replace(fence, not_before=None, reason=reasons.NONE), op.at)

    return TargetsResult(results=tuple(_each(state, target, op.who, decide) for target in op.targets))


def _requeue_fence(state: ClusterState, op: Requeue, job: Job) -> Fence:
    return Fence(
        outcome=JobState.PENDING,
        targets=live_nodes(job),
        reason=reasons.BEGIN_TIME,
        desc="job requeued in held state" if op.hold else "",
        hold_reason=_hold_reason(op.who, job) if op.hold else "",
        not_before=None if op.hold else op.at + requeue_delay(state),
        at=op.at,
        why="requeue",
    )


def _hold_reason(who: Who, job: Job) -> str:
    return reasons.HELD_ADMIN if who.admin and who.uid != job.request.uid else reasons.HELD_USER


def suspend(state: ClusterState, op: Suspend) -> TargetsResult:
    """Stop, or let go on; which nodes are still to be told is part of the record."""
    event = JobEvent.RESUME if op.resume else JobEvent.SUSPEND

    def decide(job: Job) -> Refusal | Change:
        if job.state is JobState.PENDING:
            return Refusal("wrong_state", "Job is pending execution")
        if job.state in TERMINAL_STATES:
            return ALREADY_DONE
        if op.resume and job.state is not JobState.SUSPENDED:
            return Refusal("wrong_state", "Job is not suspended")
        if op.resume and job.push is not None and job.push.mode == "suspend":
            return Refusal("wrong_state", f"Job is suspended for job {job.push.by}; it goes on by itself")
        if not op.resume and job.state is not JobState.RUNNING:
            return Refusal("wrong_state", "Job is not running")
        if not op.resume and job.time_signalled_at is not None:
            return ALREADY_DONE
        return change

    def change(job: Job) -> None:
        after = unsuspended(job, op.at)
        if not op.resume:
            after = msgspec.structs.replace(after, suspended_at=op.at)
        after = msgspec.structs.replace(after, state=next_job_state(job.state, event), untold=live_nodes(job))
        state.put_job(after)
        put_job_row(state, after)
        state.emit(JobChanged(job.job_id))
        state.emit(SuspendRequested(job.job_id, job.run_attempt))

    return TargetsResult(results=tuple(_each(state, target, op.who, decide) for target in op.targets))

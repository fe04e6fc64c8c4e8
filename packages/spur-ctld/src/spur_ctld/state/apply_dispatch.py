"""Dispatch and its two ways on: commit and abort.  An attempt number is never dispatched twice."""

import msgspec

from spur_core import reasons
from spur_core.grammar.array import IndexSet
from spur_core.states import ACTIVE_STATES, JobEvent, JobState, next_job_state
from spur_ctld.state import naming
from spur_ctld.state.accounting_rows import put_job_row
from spur_ctld.state.arrays import split_task
from spur_ctld.state.cluster import ClusterState, launch_nodes
from spur_ctld.state.endings import begin_fence
from spur_ctld.state.events import DispatchRequested, JobChanged
from spur_ctld.state.ops import (
    DispatchAbort,
    DispatchBegin,
    DispatchCommit,
    DispatchResult,
    Done,
    OpResult,
    Refusal,
)
from spur_ctld.state.records import UNLIMITED, Fence, Job


def begin(state: ClusterState, op: DispatchBegin) -> OpResult:
    """Take the resources and the attempt number, before any launch leaves."""
    job = state.jobs.get(op.job_id)
    why = _why_not(state, job, op)
    if why or job is None:
        return DispatchResult(refusal=Refusal("wrong_state", why))
    if op.task is not None and job.array_pending:
        job = split_task(state, job, op.task)
    nodes = tuple(part.node for part in op.slices)
    if op.time_limit is not None and op.time_limit != job.request.time_limit:
        job = msgspec.structs.replace(
            job,
            asked_limit=UNLIMITED if job.request.time_limit is None else job.request.time_limit,
            request=msgspec.structs.replace(job.request, time_limit=op.time_limit),
        )
    slices = op.slices
    if state.command_version >= naming.SINCE:
        slices = tuple(naming.named(state, part) for part in op.slices)
    state.put_job(
        msgspec.structs.replace(
            job,
            state=next_job_state(job.state, JobEvent.DISPATCH),
            run_attempt=op.attempt,
            partition=op.partition,
            slices=slices,
            held=nodes,
            dispatch_at=op.at,
            not_before=None,
            reason=reasons.NONE,
            desc="",
            everywhere=op.everywhere,
            reservation=op.reservation,
            licenses=op.licenses,
            start_priority=op.priority,
            # A stand-alone srun is step 0 of its own job.
            next_step_id=1 if job.request.srun else 0,
        )
    )
    state.emit(JobChanged(op.job_id))
    if job.job_id != op.job_id:
        state.emit(JobChanged(job.job_id))
    state.emit(DispatchRequested(job.job_id, op.attempt))
    return DispatchResult(job_id=job.job_id)


def _why_not(state: ClusterState, job: Job | None, op: DispatchBegin) -> str:
    if job is None or job.state is not JobState.PENDING:
        return "job is not pending"
    if job.reason in reasons.HOLDS:
        return "job is held"
    if op.attempt != job.run_attempt + 1:
        return f"attempt {op.attempt} is not the next one ({job.run_attempt + 1})"
    if job.array_pending and (op.task is None or op.task not in IndexSet(job.array_pending)):
        return f"array task {op.task} is not pending"
    if not job.array_pending and op.task not in (None, job.array_task_id):
        return f"array task {op.task} is not pending"
    if not op.slices or len({part.node for part in op.slices}) != len(op.slices):
        return "a dispatch names each of its nodes once"
    for part in op.slices:
        if why := state.why_not(part, op.partition):
            return why
    if op.reservation and op.reservation not in state.reservations:
        return f"reservation {op.reservation} is gone"
    return state.why_no_licenses(op.licenses)


def current(state: ClusterState, job_id: int, attempt: int) -> "Job | Refusal":
    """The record while exactly this attempt is active."""
    job = state.jobs.get(job_id)
    if job is None:
        return Refusal("no_such_job", "Invalid job id specified")
    if job.run_attempt != attempt or job.dispatch_at is None or job.state not in ACTIVE_STATES:
        return Refusal("wrong_state", f"attempt {attempt} of job {job_id} is not the running one")
    return job


def commit(state: ClusterState, op: DispatchCommit) -> OpResult:
    """All nodes confirmed: running, with its start, in one entry."""
    job = current(state, op.job_id, op.attempt)
    if isinstance(job, Refusal):
        return Done(refusal=job)
    if job.state is not JobState.CONFIGURING:
        return Done(refusal=Refusal("wrong_state", "the dispatch was settled before"))
    running = msgspec.structs.replace(
        job,
        state=JobState.COMPLETING if job.exits else next_job_state(job.state, JobEvent.COMMIT),
        start_at=min([op.start_at, *(e.started_at for e in job.exits.values() if e.started_at)]),
        end_at=min((e.at for e in job.exits.values()), default=None),
        stdout_real=op.stdout_real or job.stdout_real,
        stderr_real=op.stderr_real or job.stderr_real,
        launch_failures=0,
    )
    state.put_job(running)
    put_job_row(state, running)
    state.emit(JobChanged(op.job_id))
    return Done()


def abort(state: ClusterState, op: DispatchAbort) -> OpResult:
    """The launch failed somewhere: everything of the attempt is fenced, then it is decided."""
    job = current(state, op.job_id, op.attempt)
    if isinstance(job, Refusal):
        return Done(refusal=job)
    if job.state is not JobState.CONFIGURING:
        return Done(refusal=Refusal("wrong_state", "the dispatch was settled before"))
    gone = set(op.clear) | set(job.exits)
    targets = tuple(node for node in launch_nodes(job) if node not in gone)
    hold = reasons.HELD_USER if op.outcome == "hold" else ""
    outcomes = {"fail": JobState.FAILED, "cancel": JobState.CANCELLED}
    fence = Fence(
        outcome=outcomes.get(op.outcome, JobState.PENDING),
        targets=targets,
        reason=op.reason,
        desc=op.desc if not hold else (op.desc or "launch failed requeued held"),
        hold_reason=hold,
        at=op.at,
        why="launch",
        # An allocation runs nothing before its launch has succeeded everywhere.
        may_have_run=bool(targets) and not job.request.alloc_only,
    )
    if not begin_fence(state, job, fence):
        return Done(refusal=Refusal("wrong_state", "the attempt is being ended already"))
    return Done()

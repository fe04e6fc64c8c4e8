"""How a run ends: for good, or back into the queue.  Every way out of an attempt comes through here."""

import msgspec

from spur_core import reasons
from spur_core.states import END_EVENT, TERMINAL_STATES, JobEvent, JobState, next_job_state
from spur_ctld.state import step_endings
from spur_ctld.state.accounting_rows import drop_job_row, put_job_row
from spur_ctld.state.cluster import ClusterState, attempt_of
from spur_ctld.state.events import FenceRequested, JobChanged, JobEnded, JobQueued
from spur_ctld.state.records import Exit, Fence, Job

#: What a run ended by a launch that was the job's own fault shows: ExitCode 0:53.
LAUNCH_EXIT = Exit(signal=53)
NODE_FAIL_EXIT = Exit(code=1)
OOM_EXIT = Exit(signal=125)
#: A job whose supervisors were lost this often is parked.
MAX_RECOVERY_FENCES = 5
_DAY = 86400
#: How history shows a run that ended because the job went back to the queue, if not as REQUEUED.
_RECORDED = {"node_fail": JobState.NODE_FAIL, "preempted": JobState.PREEMPTED}


def finish(
    state: ClusterState,
    job: Job,
    end: JobState,
    at: float,
    *,
    reason: str = reasons.NONE,
    desc: str = "",
    exit_status: Exit | None = None,
    kill_uid: int | None = None,
) -> None:
    """End the job for good."""
    job = step_endings.cut_off(state, unsuspended(job, at), at)
    done = msgspec.structs.replace(
        job,
        state=next_job_state(job.state, END_EVENT[end]),
        reason=reason,
        desc=desc,
        end_at=end_of_run(job, at) if job.state is JobState.COMPLETING else at,
        held=(),
        untold=(),
        fence=None,
        exit=exit_status if exit_status is not None else job.exit,
        kill_uid=kill_uid if kill_uid is not None else job.kill_uid,
    )
    state.put_job(done)
    put_job_row(state, done)
    state.emit(JobChanged(job.job_id))
    state.emit(JobEnded(job.job_id, attempt_of(done), end))


def unsuspended(job: Job, at: float) -> Job:
    """The job with the suspension that its end cuts short on its account."""
    if job.suspended_at is None:
        return job
    secs = job.suspended_secs + max(0.0, at - job.suspended_at)
    return msgspec.structs.replace(job, suspended_at=None, suspended_secs=secs)


def end_of_run(job: Job, at: float) -> float:
    """When the run ended: stamped when it began to end, but never before its start.

    A report may bring a start later than the fence that ends it, and clocks of nodes may differ.
    """
    ended = at if job.end_at is None else job.end_at
    return max(ended, job.start_at or 0.0)


def may_fence(job: Job, outcome: JobState) -> bool:
    """Whether a fence with that outcome has its way.

    A requeue in progress may still be turned into an end, never the other way.
    """
    if job.fence is None:
        return True
    return job.fence.outcome is JobState.PENDING and outcome is not JobState.PENDING


def begin_fence(state: ClusterState, job: Job, fence: Fence) -> bool:
    """Put `fence` over an active attempt; with no target left its outcome is applied at once.

    Returns:
        False when a fence is there that the new one does not outrank (nothing changed).
    """
    if not may_fence(job, fence.outcome):
        return False
    if job.fence is not None:
        fence = msgspec.structs.replace(fence, targets=job.fence.targets)
    fenced = msgspec.structs.replace(
        unsuspended(job, fence.at),
        state=next_job_state(job.state, JobEvent.FENCE),
        untold=(),
        fence=fence,
        held=tuple(node for node in job.held if node in fence.targets or node not in job.exits),
        end_at=job.end_at if job.state is JobState.COMPLETING else fence.at,
    )
    state.put_job(fenced)
    state.emit(JobChanged(job.job_id))
    if fence.targets:
        state.emit(FenceRequested(job.job_id, job.run_attempt))
    else:
        apply_outcome(state, fenced, fence.at)
    return True


def cross_off(state: ClusterState, job: Job, node: str, at: float) -> None:
    """A fence's target certainly holds nothing any more."""
    assert job.fence is not None
    fence = msgspec.structs.replace(
        job.fence, targets=tuple(name for name in job.fence.targets if name != node)
    )
    after = msgspec.structs.replace(job, fence=fence, held=tuple(name for name in job.held if name != node))
    state.put_job(after)
    state.emit(JobChanged(job.job_id))
    if not fence.targets:
        apply_outcome(state, after, at)


def apply_outcome(state: ClusterState, job: Job, at: float) -> None:
    """Every target of the fence is confirmed: what it was for."""
    fence = job.fence
    assert fence is not None
    outcome = fence.outcome
    if outcome is JobState.PENDING:
        requeue(state, job, fence, at)
        return
    exits = {
        JobState.CANCELLED: Exit(),
        JobState.TIMEOUT: Exit(),
        JobState.NODE_FAIL: NODE_FAIL_EXIT,
        JobState.FAILED: LAUNCH_EXIT,
        JobState.PREEMPTED: Exit(),
    }
    finish(
        state,
        job,
        outcome,
        at,
        reason=fence.reason,
        desc=fence.desc,
        exit_status=fence.exit if fence.exit is not None else exits.get(outcome, job.exit),
        kill_uid=fence.kill_uid,
    )


def requeue(state: ClusterState, job: Job, fence: Fence, at: float) -> None:
    """Back to the queue under the same id; the next dispatch takes the next attempt number."""
    ran = job.start_at is not None or bool(job.exits)
    job = step_endings.cut_off(state, job, at)
    if job.state in TERMINAL_STATES:
        pass  # its row tells how it ended already
    elif ran:
        record_as = _RECORDED.get(fence.why, JobState.REQUEUED)
        put_job_row(state, job, final=record_as, end_at=end_of_run(job, at))
    else:
        drop_job_row(state, job)
    launch = fence.why == "launch"
    failures = job.launch_failures + 1 if launch else 0
    recoveries = job.recovery_fences + (1 if fence.why == "recovery" else 0)
    reason, desc, hold, not_before = fence.reason, fence.desc, fence.hold_reason, fence.not_before
    if launch and not hold:
        if failures >= state.settings.max_batch_requeue:
            hold, desc = reasons.HELD_MAX_REQUEUE, desc or "launch failed requeued held"
        else:
            not_before = at + launch_backoff(state, job.launch_failures)
    if recoveries >= MAX_RECOVERY_FENCES and not hold:
        hold, recoveries = reasons.RECOVERY_FAILED, 0
    if job.asked_limit is not None:
        request = msgspec.structs.replace(job.request, time_limit=job.asked_limit)
        job = msgspec.structs.replace(job, request=request, asked_limit=None)
    waiting = msgspec.structs.replace(
        job,
        state=next_job_state(job.state, JobEvent.REQUEUE),
        reason=hold or reason,
        desc=desc,
        # A job that was held when it ended goes back without the hold.
        priority=0 if hold else job.priority or job.prior_priority or state.settings.default_priority,
        prior_priority=job.priority if hold and job.priority else job.prior_priority,
        not_before=not_before,
        eligible_at=max(at, not_before or 0.0),
        fence=None,
        held=(),
        slices=(),
        exits={},
        partition="",
        dispatch_at=None,
        start_at=None,
        end_at=None,
        time_signalled_at=None,
        warned_at=None,
        unwarned=(),
        suspended_at=None,
        suspended_secs=0.0,
        exit=Exit(),
        derived_exit=Exit(),
        kill_uid=None,
        stdout_real="",
        stderr_real="",
        everywhere=False,
        start_priority=0,
        next_step_id=0,
        past_steps=(),
        interactive_used=False,
        untold=(),
        client_seen=False,
        reservation="",
        licenses=(),
        push=None,
        launch_failures=failures,
        recovery_fences=recoveries,
        restarts=job.restarts + (1 if ran or fence.may_have_run else 0),
    )
    state.put_job(waiting)
    put_job_row(state, waiting)
    state.emit(JobChanged(job.job_id))
    state.emit(JobQueued(job.job_id))


def requeue_delay(state: ClusterState) -> float:
    """Seconds that a job requeued by hand waits, so that its nodes can settle."""
    return float(max(5, 2 * state.settings.scheduler_interval + 3))


def launch_backoff(state: ClusterState, failures_before: int) -> float:
    """Seconds until the next launch after a failed one; doubles each time up to the configured bound."""
    delay = requeue_delay(state) * 2 ** min(failures_before, 16)
    return float(min(delay, state.settings.max_launch_backoff, _DAY))

"""Reports from nodes: a part of an attempt has ended.  The attempt is compared here again, at apply.

The exits of the deciding nodes (a batch script's, those of a stand-alone srun's tasks) decide the run; nodes
that only hold its place are then ended by a fence, whose outcome is the verdict.
"""

import msgspec

from spur_core import reasons
from spur_core.grammar.counts import signal_name
from spur_core.ids import STEP_BATCH, STEP_EXTERN
from spur_core.states import ACTIVE_STATES, TERMINAL_STATES, JobEvent, JobState, next_job_state
from spur_ctld.state import apply_steps
from spur_ctld.state.apply_fence import live_nodes
from spur_ctld.state.cluster import ClusterState, deciding_nodes, launch_nodes, main_nodes
from spur_ctld.state.endings import OOM_EXIT, begin_fence, cross_off, finish, unsuspended
from spur_ctld.state.events import JobChanged
from spur_ctld.state.ops import AllocComplete, CompleteResult, Done, NodeComplete, Refusal
from spur_ctld.state.records import Exit, Fence, Job, NodeExit
from spur_ctld.state.step_rows import higher
from spur_ctld.state.targets import ALREADY_DONE, DENIED, NO_SUCH_JOB, may

#: Names that a shell prints for deaths by signal.
_SIGNAL_TEXT = {9: "Killed", 11: "Segmentation fault", 15: "Terminated", 6: "Aborted", 2: "Interrupt"}


def complete(state: ClusterState, op: NodeComplete) -> CompleteResult:
    """Record one node's exit.  Verdicts: accepted, final, unknown, retry, wrong_node."""
    job = state.jobs.get(op.job_id)
    if job is None:
        return CompleteResult(verdict="unknown")
    if op.attempt > job.run_attempt:
        return CompleteResult(verdict="retry")
    if op.attempt != job.run_attempt or job.dispatch_at is None:
        return CompleteResult(verdict="final")
    if op.step_id != step_of(job) and job.state in ACTIVE_STATES | TERMINAL_STATES:
        found = apply_steps.report(state, job, op)
        active = job.state in ACTIVE_STATES
        return found if active or found.verdict == "accepted" else CompleteResult(verdict="final")
    if job.state not in ACTIVE_STATES:
        return CompleteResult(verdict="final")
    nodes = launch_nodes(job)
    if op.node not in nodes:
        return CompleteResult(verdict="wrong_node")
    if op.node in job.exits:
        return CompleteResult(verdict="final")
    report = NodeExit(exit=op.exit, at=op.ended_at, started_at=op.started_at, usage=op.usage)
    exits = {**job.exits, op.node: report}
    known = msgspec.structs.replace(
        job,
        exits=exits,
        stdout_real=op.stdout_real if op.node == nodes[0] and op.stdout_real else job.stdout_real,
        stderr_real=op.stderr_real if op.node == nodes[0] and op.stderr_real else job.stderr_real,
    )
    if job.fence is not None:
        if job.start_at is None and job.fence.why != "launch":
            known = msgspec.structs.replace(known, start_at=op.started_at or job.dispatch_at)
        if op.node in job.fence.targets:
            cross_off(state, known, op.node, op.at)
        else:
            state.put_job(known)
        return CompleteResult(verdict="accepted")
    if decided(known):
        _end(state, known, op.at)
        return CompleteResult(verdict="accepted")
    if op.node not in deciding_nodes(job) and job.time_signalled_at is None:
        _broken(state, known, op)
        return CompleteResult(verdict="accepted")
    state.put_job(
        msgspec.structs.replace(
            unsuspended(known, op.at),
            state=next_job_state(job.state, JobEvent.NODE_EXIT),
            untold=(),
            held=tuple(node for node in job.held if node != op.node),
            end_at=op.ended_at if job.end_at is None else min(job.end_at, op.ended_at),
        )
    )
    state.emit(JobChanged(job.job_id))
    return CompleteResult(verdict="accepted")


def step_of(job: Job) -> int:
    """The step whose end is the end of the job's part on a node."""
    if job.request.alloc_only:
        return STEP_EXTERN
    return 0 if job.request.srun else STEP_BATCH


def decided(job: Job) -> bool:
    """Whether the exits that are in decide the run."""
    nodes = main_nodes(job)
    return all(node in job.exits for node in nodes)


def _broken(state: ClusterState, job: Job, op: NodeComplete) -> None:
    """A node that held its place for the run let go of it, and nobody had asked: the run cannot go on."""
    again = job.request.requeue and not (job.request.srun or job.request.alloc_only)
    fence = Fence(
        outcome=JobState.PENDING if again else JobState.NODE_FAIL,
        targets=live_nodes(job),
        reason=reasons.SYSTEM_FAILURE,
        desc=f"the allocation on {op.node} was ended there",
        at=op.at,
        why="node_fail",
        may_have_run=True,
    )
    begin_fence(state, job, fence)


def complete_allocation(state: ClusterState, op: AllocComplete) -> Done:
    """End an allocation as its owner says; its nodes are fenced, the verdict stands already."""
    job = state.jobs.get(op.job_id)
    if job is None:
        return Done(refusal=NO_SUCH_JOB)
    if not may(op.who, job):
        return Done(refusal=DENIED)
    if not job.request.alloc_only:
        return Done(refusal=Refusal("wrong_state", "Requested operation not supported on this system"))
    if job.state is JobState.PENDING:
        return Done(refusal=Refusal("wrong_state", "Job is pending execution"))
    if job.state not in ACTIVE_STATES or job.fence is not None:
        return Done(refusal=ALREADY_DONE)
    end, reason, shown = verdict(job, op.exit)
    fence = Fence(
        outcome=end,
        targets=live_nodes(job),
        reason=reason,
        kill_uid=op.who.uid if end is JobState.CANCELLED else None,
        at=op.at,
        why="ended",
        exit=shown,
    )
    begin_fence(state, job, fence)
    return Done()


def _end(state: ClusterState, job: Job, at: float) -> None:
    """The deciding reports are in: the verdict over the whole run."""
    nodes = main_nodes(job)
    first = job.exits[nodes[0]].exit
    worst = first
    if job.request.srun:
        for node in nodes:
            other = job.exits[node].exit
            if (other.signal, other.code) > (worst.signal, worst.code):
                worst = other
    end, reason, exit_status = verdict(job, worst)
    started = job.start_at
    if started is None:
        # It ended before the last node confirmed its launch.
        started = min((e.started_at for e in job.exits.values() if e.started_at), default=job.dispatch_at)
    ended = max(e.at for e in job.exits.values())
    running = msgspec.structs.replace(
        job,
        start_at=started,
        end_at=None,
        launch_failures=0,
    )
    if job.request.srun:
        derived = higher(job.derived_exit, Exit(code=worst.code, signal=worst.signal))
        running = msgspec.structs.replace(running, derived_exit=derived)
    rest = live_nodes(running)
    over_at = max(ended, started or 0.0)
    if rest:
        fence = Fence(outcome=end, targets=rest, reason=reason, at=over_at, why="ended", exit=exit_status)
        begin_fence(state, msgspec.structs.replace(running, end_at=over_at), fence)
        return
    state.put_job(running)
    finish(state, running, end, over_at, reason=reason, exit_status=exit_status)


def verdict(job: Job, status: Exit) -> tuple[JobState, str, Exit]:
    """(state, reason, shown exit) of a run by its deciding exit."""
    if status.oom or any(report.exit.oom for report in job.exits.values()):
        return JobState.OUT_OF_MEMORY, reasons.OUT_OF_MEMORY, OOM_EXIT
    if job.time_signalled_at is not None:
        return JobState.TIMEOUT, reasons.TIME_LIMIT, Exit()
    if status.signal:
        name = _SIGNAL_TEXT.get(status.signal, signal_name(status.signal))
        return JobState.FAILED, f"{reasons.RAISED_SIGNAL}:{status.signal}({name})", status
    if status.code:
        return JobState.FAILED, reasons.NON_ZERO_EXIT, status
    return JobState.COMPLETED, reasons.NONE, status

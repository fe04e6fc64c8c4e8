"""Reports from nodes: a part of an attempt has ended.  The attempt is compared here again, at apply."""

import msgspec

from spur_core import reasons
from spur_core.grammar.counts import signal_name
from spur_core.ids import STEP_BATCH
from spur_core.states import ACTIVE_STATES, JobEvent, JobState, next_job_state
from spur_ctld.state.cluster import ClusterState, launch_nodes
from spur_ctld.state.endings import OOM_EXIT, cross_off, finish
from spur_ctld.state.events import JobChanged
from spur_ctld.state.ops import CompleteResult, NodeComplete
from spur_ctld.state.records import Exit, Job, NodeExit

#: Names that a shell prints for deaths by signal.
_SIGNAL_TEXT = {9: "Killed", 11: "Segmentation fault", 15: "Terminated", 6: "Aborted", 2: "Interrupt"}


def complete(state: ClusterState, op: NodeComplete) -> CompleteResult:
    """Record one node's exit.  Verdicts: accepted, final, unknown, retry, wrong_node."""
    job = state.jobs.get(op.job_id)
    if job is None:
        return CompleteResult(verdict="unknown")
    if op.attempt > job.run_attempt:
        return CompleteResult(verdict="retry")
    if op.attempt != job.run_attempt or job.dispatch_at is None or job.state not in ACTIVE_STATES:
        return CompleteResult(verdict="final")
    nodes = launch_nodes(job)
    if op.node not in nodes or op.step_id != step_of(job):
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
    if all(node in exits for node in nodes):
        _end(state, known, op.at)
        return CompleteResult(verdict="accepted")
    state.put_job(
        msgspec.structs.replace(
            known,
            state=next_job_state(job.state, JobEvent.NODE_EXIT),
            held=tuple(node for node in job.held if node != op.node),
            end_at=op.ended_at if job.end_at is None else min(job.end_at, op.ended_at),
        )
    )
    state.emit(JobChanged(job.job_id))
    return CompleteResult(verdict="accepted")


def step_of(job: Job) -> int:
    """The step whose end is the end of the job's part on a node."""
    return 0 if job.request.srun else STEP_BATCH


def _end(state: ClusterState, job: Job, at: float) -> None:
    """All reports are in: the verdict over the whole run."""
    nodes = launch_nodes(job)
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
        derived_exit=Exit(code=worst.code, signal=worst.signal) if job.request.srun else Exit(),
    )
    state.put_job(running)
    finish(state, running, end, max(ended, started or 0.0), reason=reason, exit_status=exit_status)


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

"""The accounting row of a step as it is now, and how a step is judged.  Pure."""

from spur_core.grammar.hostlist import compress_sorted
from spur_core.grammar.tres import format_tres
from spur_core.states import JobState
from spur_ctld.state import distribution
from spur_ctld.state.accounting_rows import allocated_tres, usage_of, worst_of
from spur_ctld.state.cluster import ClusterState, total
from spur_ctld.state.records import Exit, Job, Step, StepAcct, StepRow

_SIGKILL = 9
#: A step that could not be started everywhere.
LAUNCH_EXIT = Exit(code=1)


def waits_for(step: Step) -> tuple[str, ...]:
    """The nodes on which something of the step may still run."""
    return tuple(p.node for p in step.slices if p.node not in step.exits and p.node not in step.gone)


def judge(step: Step) -> tuple[JobState, Exit]:
    """(state, exit) of a step that is over, or that its job's end cut off."""
    worst = worst_of(report.exit for report in step.exits.values())
    why = step.stop.why if step.stop is not None else ""
    if why == "lost":
        return JobState.FAILED, Exit(signal=_SIGKILL)
    if worst.oom:
        return JobState.OUT_OF_MEMORY, worst
    if why == "launch":
        return JobState.FAILED, worst_of((worst, LAUNCH_EXIT))
    if why == "timeout":
        return JobState.TIMEOUT, worst
    cut_off = bool(waits_for(step))
    if cut_off or not step.exits or (why == "cancelled" and worst.signal):
        return JobState.CANCELLED, worst if step.exits else Exit(signal=_SIGKILL)
    if worst.code or worst.signal:
        return JobState.FAILED, worst
    return JobState.COMPLETED, worst


def higher(one: Exit, other: Exit) -> Exit:
    """Of two exits the one that a job's derived exit shows, as Slurm compares them: code before signal."""
    return other if (other.code, other.signal) > (one.code, one.signal) else one


def began(step: Step) -> float:
    """When the step started; a short one may have ended before its last node confirmed."""
    if step.start_at is not None:
        return step.start_at
    return min((e.started_at for e in step.exits.values() if e.started_at), default=step.created_at)


def step_row(step: Step, state: JobState, end_at: float | None, status: Exit) -> StepRow:
    """The row of a step in that state."""
    cpus, _, _ = total(step.slices)
    usage, node = usage_of(step.exits.items())
    started = began(step)
    return StepRow(
        step_id=step.step_id,
        name=step.name,
        state=state,
        start_at=started,
        end_at=None if end_at is None else max(end_at, started),
        exit=status,
        num_tasks=step.num_tasks,
        cpus=cpus,
        num_nodes=len(step.slices),
        nodelist=compress_sorted([part.node for part in step.slices]),
        alloc_tres=format_tres(allocated_tres(step.slices), by_name=True),
        usage=usage,
        max_rss_node=node,
        layout=distribution.parse(step.distribution).label,
    )


def put_row(state: ClusterState, job: Job, row: StepRow) -> None:
    """Queue a step's row of the job's present attempt."""
    state.put_step_row(
        StepAcct(
            seq=state.next_seq(),
            job_id=job.job_id,
            attempt=job.run_attempt,
            submit_at=job.submit_at,
            step=row,
        )
    )

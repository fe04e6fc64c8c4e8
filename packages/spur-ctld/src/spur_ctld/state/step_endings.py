"""How a step ends: by the reports of all its nodes, or with its job.  Every way out comes through here."""

import msgspec

from spur_core.states import JobState
from spur_ctld.state import step_rows
from spur_ctld.state.accounting_rows import put_job_row, worst_of
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.events import JobChanged, StepChanged
from spur_ctld.state.records import Exit, Job, NodeExit, PastStep, Step

#: Past steps that a job's record keeps for those who watch them.
KEPT = 32
_KILLS = frozenset({9, 15})


def replaced(job: Job, step: Step) -> Job:
    """The job with that version of the step."""
    return msgspec.structs.replace(job, steps={**job.steps, step.step_id: step})


def settle(state: ClusterState, job: Job, step: Step, at: float) -> None:
    """Store a changed step; when no node of it is left, it is over."""
    if step_rows.waits_for(step):
        state.put_job(replaced(job, step))
    else:
        ends = [report.at for report in step.exits.values()]
        state.put_job(_closed(state, job, step, max(ends, default=at)))
    state.emit(StepChanged(job.job_id, job.run_attempt, step.step_id))
    state.emit(JobChanged(job.job_id))


def cut_off(state: ClusterState, job: Job, at: float) -> Job:
    """The job, whose attempt has ended, without steps: those left over are closed as they are now."""
    for step_id in sorted(job.steps):
        step = job.steps[step_id]
        job = _closed(state, job, step, at)
        state.emit(StepChanged(job.job_id, job.run_attempt, step_id))
    return job


def _closed(state: ClusterState, job: Job, step: Step, at: float) -> Job:
    end, status = step_rows.judge(step)
    row = step_rows.step_row(step, end, at, status)
    step_rows.put_row(state, job, row)
    past = PastStep(
        row=row,
        stop=step.stop,
        missing=step_rows.waits_for(step),
        slices=step.slices,
        cpus_per_task=step.cpus_per_task,
        distribution=step.distribution,
    )
    counted = status if step.exits or step.stop is not None else Exit()
    return msgspec.structs.replace(
        job,
        steps={step_id: other for step_id, other in job.steps.items() if step_id != step.step_id},
        past_steps=(*job.past_steps, past)[-KEPT:],
        derived_exit=step_rows.higher(job.derived_exit, Exit(code=counted.code, signal=counted.signal)),
    )


def correct(state: ClusterState, job: Job, past: PastStep, node: str, report: NodeExit) -> None:
    """A report of a step that its job's end had closed before the report came: the row becomes right."""
    missing = tuple(name for name in past.missing if name != node)
    row = past.row
    before = Exit() if row.state is JobState.CANCELLED and row.exit.signal in _KILLS else row.exit
    worst = worst_of((before, report.exit))
    end = row.state
    if not missing and past.stop is None:
        killed = worst.signal in _KILLS
        failed = JobState.FAILED if worst.code or worst.signal else JobState.COMPLETED
        end = JobState.CANCELLED if killed else failed
    if worst.oom:
        end = JobState.OUT_OF_MEMORY
    usage = report.usage
    larger = usage.max_rss_kb > row.usage.max_rss_kb
    row = msgspec.structs.replace(
        row,
        state=end,
        exit=worst,
        end_at=max(report.at, row.start_at),
        usage=msgspec.structs.replace(
            row.usage,
            user_secs=row.usage.user_secs + usage.user_secs,
            system_secs=row.usage.system_secs + usage.system_secs,
            max_rss_kb=max(row.usage.max_rss_kb, usage.max_rss_kb),
        ),
        max_rss_node=node if larger else row.max_rss_node,
    )
    step_rows.put_row(state, job, row)
    after = msgspec.structs.replace(past, row=row, missing=missing)
    derived = job.derived_exit
    if end is not JobState.CANCELLED:
        derived = step_rows.higher(derived, Exit(code=worst.code, signal=worst.signal))
    changed = msgspec.structs.replace(
        job,
        past_steps=tuple(after if item is past else item for item in job.past_steps),
        derived_exit=derived,
    )
    state.put_job(changed)
    if derived != job.derived_exit:
        put_job_row(state, changed)
    state.emit(StepChanged(job.job_id, job.run_attempt, row.step_id))
    state.emit(JobChanged(job.job_id))

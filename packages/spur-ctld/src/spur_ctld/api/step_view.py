"""Steps as the wire shows them.  Pure."""

from collections.abc import Sequence
from typing import Final

from spur_core.grammar.hostlist import compress_sorted
from spur_core.grammar.tres import format_tres
from spur_core.ids import RuntimeId
from spur_core.states import JobState
from spur_ctld.api.job_view import exit_message, run_seconds
from spur_ctld.dispatch.launch_spec import rid_message, slice_message
from spur_ctld.state.accounting_rows import allocated_tres, main_step
from spur_ctld.state.apply_steps import reason_of
from spur_ctld.state.cluster import main_nodes, total
from spur_ctld.state.records import Job, PastStep, Slice, Step
from spur_proto import common_pb2 as pb

#: What another user's step does not show under `job_info_visibility = "redacted"`.
HIDDEN: Final = ("name", "command", "submit_host", "nodelist", "slices", "alloc_tres")


def _common(job: Job, step_id: int, parts: Sequence[Slice]) -> pb.StepInfo:
    cpus, _, _ = total(parts)
    message = pb.StepInfo(
        rid=rid_message(RuntimeId(job.job_id, job.run_attempt, step_id)),
        user=job.request.user,
        uid=job.request.uid,
        partition=job.partition,
        num_cpus=cpus,
        nodelist=compress_sorted([part.node for part in parts]),
        num_nodes=len(parts),
        slices=[slice_message(part) for part in parts],
        alloc_tres=format_tres(allocated_tres(tuple(parts))),
    )
    if job.array_job_id is not None and job.array_task_id is not None:
        message.array_job_id = job.array_job_id
        message.array_task_id = job.array_task_id
    return message


def step_message(job: Job, step: Step, now: float) -> pb.StepInfo:
    """A numbered or interactive step that is not over."""
    message = _common(job, step.step_id, step.slices)
    message.name = step.name
    message.state = int(state_of(job, step))  # type: ignore[assignment]  # enum numbers are equal
    message.reason = step.stop.text or reason_of(step.stop) if step.stop is not None else ""
    message.num_tasks = step.num_tasks
    message.cpus_per_task = step.cpus_per_task
    message.distribution = step.distribution
    message.overlap = step.overlap
    message.pty = step.pty
    message.start_at = step.start_at if step.start_at is not None else step.created_at
    message.run_secs = step_run_seconds(job, step, now)
    message.submit_host = step.submit_host
    message.command = step.submit_line
    if step.time_limit is not None:
        message.time_limit_secs = step.time_limit
    if step.stop is not None and step.stop.uid is not None:
        message.kill_uid = step.stop.uid
    return message


def state_of(job: Job, step: Step) -> JobState:
    """PENDING until every node confirmed its launch, COMPLETING once it begins to end."""
    if step.stop is not None or step.exits or step.gone:
        return JobState.COMPLETING
    if step.start_at is None:
        return JobState.PENDING
    return JobState.SUSPENDED if job.state is JobState.SUSPENDED else JobState.RUNNING


def step_run_seconds(job: Job, step: Step, now: float) -> float:
    """Seconds it ran, suspensions left out."""
    if step.start_at is None:
        return 0.0
    end = job.suspended_at if job.suspended_at is not None else now
    return max(0.0, end - step.start_at - (job.suspended_secs - step.suspended_before))


def past_message(job: Job, past: PastStep) -> pb.StepInfo:
    """A step that is over."""
    row = past.row
    message = _common(job, row.step_id, past.slices)
    message.name = row.name
    message.state = int(row.state)  # type: ignore[assignment]
    message.reason = past.stop.text or reason_of(past.stop) if past.stop is not None else ""
    message.num_tasks = row.num_tasks
    message.cpus_per_task = past.cpus_per_task
    message.distribution = past.distribution
    message.start_at = row.start_at
    if row.end_at is not None:
        message.end_at = row.end_at
        message.run_secs = row.end_at - row.start_at
    message.exit.CopyFrom(exit_message(row.exit))
    if past.stop is not None and past.stop.uid is not None:
        message.kill_uid = past.stop.uid
    return message


def main_message(job: Job, now: float) -> pb.StepInfo:
    """The step that the job lives by: batch, extern, or a stand-alone srun's step 0."""
    row = main_step(job)
    nodes = main_nodes(job)
    message = _common(job, row.step_id, [part for part in job.slices if part.node in nodes])
    message.name = row.name
    message.state = int(job.state)  # type: ignore[assignment]
    message.num_tasks = row.num_tasks
    message.cpus_per_task = job.request.cpus_per_task
    message.distribution = job.request.distribution
    message.start_at = row.start_at
    message.run_secs = run_seconds(job, now)
    message.submit_host = job.request.submit_host
    message.command = job.request.command
    if row.end_at is not None:
        message.state = int(row.state)  # type: ignore[assignment]
        message.end_at = row.end_at
        message.exit.CopyFrom(exit_message(row.exit))
    return message


def redact(message: pb.StepInfo) -> None:
    """Blank what only the owner and administrators see."""
    for name in HIDDEN:
        message.ClearField(name)

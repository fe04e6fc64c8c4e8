"""From a job or step id as typed to the run that is meant."""

from typing import TYPE_CHECKING

from spur_cli.cli_errors import CallFailed
from spur_core.ids import STEP_BATCH, STEP_EXTERN, STEP_INTERACTIVE, step_name

if TYPE_CHECKING:
    from spur_cli.transport import Transport
    from spur_core.grammar.jobid import JobRef
    from spur_proto import common_pb2

NO_SUCH_JOB = "Invalid job id specified"


def job_id_of(transport: "Transport", ref: "JobRef") -> int:
    """The id of the one job that `ref` names; a task of an array has one of its own once it runs.

    Raises:
        CallFailed: there is none.
    """
    if ref.tasks is None:
        return ref.job_id
    from spur_cli.queue import select

    found = select.fetch(transport, refs=[ref._replace(step=None)])
    if len(found) != 1 or found[0].array_pending:
        raise CallFailed("NOT_FOUND", "no_such_job", NO_SUCH_JOB)
    return found[0].job_id


def only_step(transport: "Transport", job_id: int) -> int:
    """The step of a job that can be attached to when none is named: its shell, else its only numbered one.

    Raises:
        CallFailed: there is none, or there are several.
    """
    from spur_proto import controller_pb2 as pb

    request = pb.GetJobStepsRequest(jobs=[pb.JobTarget(job_id=job_id)])
    steps = transport.call("GetJobSteps", request, pb.GetJobStepsResponse).steps
    here = [step.rid.step_id for step in steps if step.rid.job_id == job_id and is_attachable(step)]
    if STEP_INTERACTIVE in here:
        return STEP_INTERACTIVE
    if len(here) == 1:
        return here[0]
    if not here:
        raise CallFailed("NOT_FOUND", "not_found", f"job {job_id} has no step that can be attached to")
    names = ", ".join(f"{job_id}.{step_name(step)}" for step in sorted(here))
    raise CallFailed("FAILED_PRECONDITION", "bad_value", f"job {job_id} has several steps, name one: {names}")


def is_attachable(step: "common_pb2.StepInfo") -> bool:
    """Whether the step's output comes through its supervisor, and not to files."""
    return step.rid.step_id not in (STEP_BATCH, STEP_EXTERN)

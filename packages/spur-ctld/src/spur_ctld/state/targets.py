"""From what a command names to the records it means, and who may touch them."""

from spur_core.grammar.array import IndexSet
from spur_ctld.state.arrays import split_task, tasks_of
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.ops import Refusal, Target, Who
from spur_ctld.state.records import Job

NO_SUCH_JOB = Refusal("no_such_job", "Invalid job id specified")
DENIED = Refusal("access_denied", "Access/permission denied")
ALREADY_DONE = Refusal("already_done", "Job/step already completing or completed")
NOT_PENDING = Refusal("wrong_state", "Job is no longer pending execution")


def may(who: Who, job: Job) -> bool:
    """The ownership rule at apply: the controller itself, an administrator, or the job's owner."""
    return who.uid is None or who.admin or who.uid == job.request.uid


def resolve(state: ClusterState, target: Target) -> "list[Job] | Refusal":
    """Records that the target means, none changed; for tasks of an array the pending rest may be one."""
    if target.tasks is None:
        job = state.jobs.get(target.job_id)
        members = state.array_members(target.job_id)
        if members:
            return members
        return [job] if job is not None else NO_SUCH_JOB
    rest, single = tasks_of(state, target.job_id)
    wanted = IndexSet(target.tasks)
    found = [single[index] for index in sorted(single) if index in wanted]
    if rest is not None and any(index in wanted for index in IndexSet(rest.array_pending)):
        found.append(rest)
    return found or NO_SUCH_JOB


def named_parts(state: ClusterState, target: Target, job: Job) -> list[Job]:
    """The records to change for `job`, one of those that `resolve` found.

    Pending tasks that the target singles out become records of their own here; so this is called only
    once it is certain that they will be changed.
    """
    job = state.jobs[job.job_id]
    if target.tasks is None or not job.array_pending:
        return [job]
    pending = IndexSet(job.array_pending)
    named = pending.intersection(IndexSet(target.tasks))
    if len(named) == len(pending):
        return [job]
    return [split_task(state, state.jobs[job.job_id], index) for index in named]

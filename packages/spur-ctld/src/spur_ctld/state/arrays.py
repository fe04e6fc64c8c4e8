"""Array records: one record stands for all tasks that have not started.

A task that starts, or is singled out by a command, is split away into a record with an id of its own; the
last pending task keeps the record's id, as in Slurm.
"""

import msgspec

from spur_core.grammar.array import IndexSet
from spur_core.states import ACTIVE_STATES
from spur_ctld.state.accounting_rows import put_job_row
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.records import Job


def task_room(state: ClusterState, job: Job, most: int) -> int:
    """How many more tasks of the job's array its throttle lets run now, at most `most`; may be below 0.

    A task with a record of its own keeps the throttle that held when it was split away; where some are
    left together theirs counts, for that is the one that is changed.
    """
    throttle = job.array_throttle
    if not throttle or job.array_job_id is None:
        return most
    running = 0
    for job_id in state.by_array.get(job.array_job_id, ()):
        one = state.jobs[job_id]
        running += one.state in ACTIVE_STATES
        if one.array_pending:
            throttle = one.array_throttle
    return min(most, throttle - running) if throttle else most


def split_task(state: ClusterState, record: Job, task: int) -> Job:
    """Make pending `task` of `record` a record of its own; both are stored.

    The caller has checked that the task is pending in it.
    """
    left = IndexSet(record.array_pending).without(task)
    if not left:
        alone = msgspec.structs.replace(record, array_pending=(), array_task_id=task)
        state.put_job(alone)
        put_job_row(state, alone)
        return alone
    state.put_job(msgspec.structs.replace(record, array_pending=left.ranges))
    put_job_row(state, state.jobs[record.job_id])
    task_job = msgspec.structs.replace(record, job_id=state.take_id(), array_pending=(), array_task_id=task)
    state.put_job(task_job)
    return task_job


def tasks_of(state: ClusterState, array_job_id: int) -> "tuple[Job | None, dict[int, Job]]":
    """(the record of the pending rest or None, records of single tasks by index)."""
    rest: Job | None = None
    single: dict[int, Job] = {}
    for job in state.array_members(array_job_id):
        if job.array_pending:
            rest = job
        elif job.array_task_id is not None:
            single[job.array_task_id] = job
    return rest, single

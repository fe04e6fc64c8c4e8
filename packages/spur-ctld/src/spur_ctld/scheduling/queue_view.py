"""The queue as the scheduler sees it: which pending jobs only room can hold back, and why the rest waits.

Pure.  Order: priority, then eligible time, then id.
"""

from typing import NamedTuple

from spur_core import reasons
from spur_core.grammar import dependency
from spur_core.grammar.array import IndexSet
from spur_core.states import TERMINAL_STATES, JobState
from spur_ctld.scheduling.views import gres_map
from spur_ctld.state.arrays import running_tasks, tasks_of
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.records import Job
from spur_sched.api import JobView

#: Reasons that explain a hold-back by time better than BeginTime does.
_OWN_REASON = frozenset({reasons.LAUNCH_FAILURE, reasons.BEGIN_TIME})
#: Tasks of one array that one pass looks at.
_MOST_TASKS = 1000


class Queue(NamedTuple):
    """`gated`: (job id, reason, text); `never`: jobs to cancel; `starts_matter`: a job waits for a start."""

    views: list[JobView]
    gated: list[tuple[int, str, str]]
    never: list[int]
    starts_matter: bool


def queue_view(state: ClusterState, now: float) -> Queue:
    """Every pending job, once."""
    views: list[JobView] = []
    gated: list[tuple[int, str, str]] = []
    never: list[int] = []
    starts_matter = False
    for job_id in state.pending:
        job = state.jobs[job_id]
        if job.reason in reasons.HOLDS or job.priority == 0:
            continue
        if job.request.dependency:
            parsed = dependency.parse(job.request.dependency)
            starts_matter = starts_matter or any(term.kind == "after" for term in parsed.terms)
            found = dependency.evaluate(parsed, lookup_for(state, job), now)
            if found == dependency.NEVER:
                if job.request.kill_on_invalid_dependency:
                    never.append(job_id)
                else:
                    gated.append((job_id, reasons.DEPENDENCY_NEVER, ""))
                continue
            if found == dependency.WAITING:
                gated.append((job_id, reasons.DEPENDENCY, ""))
                continue
        if _too_early(job, now):
            if job.reason not in _OWN_REASON:
                gated.append((job_id, reasons.BEGIN_TIME, ""))
            continue
        tasks = startable_tasks(state, job)
        if tasks == ():
            gated.append((job_id, reasons.ARRAY_TASK_LIMIT, ""))
            continue
        views.append(job_view(job, tasks))
    views.sort(key=lambda view: (-view.priority, view.eligible_at, view.job_id))
    return Queue(views, gated, never, starts_matter)


def _too_early(job: Job, now: float) -> bool:
    begin = job.request.begin_at
    return (begin is not None and begin > now) or (job.not_before is not None and job.not_before > now)


def startable_tasks(state: ClusterState, job: Job) -> tuple[int, ...] | None:
    """Indices that may start now; () when the throttle is reached, None for a job that is no array."""
    if not job.array_pending:
        return None
    room = _MOST_TASKS
    if job.array_throttle and job.array_job_id is not None:
        room = max(0, job.array_throttle - running_tasks(state, job.array_job_id))
    return tuple(IndexSet(job.array_pending).lowest(room))


def job_view(job: Job, tasks: tuple[int, ...] | None) -> JobView:
    """One eligible job."""
    request = job.request
    return JobView(
        job_id=job.job_id,
        priority=job.priority,
        submit_at=job.submit_at,
        eligible_at=job.eligible_at,
        partitions=request.partitions,
        min_nodes=request.min_nodes,
        max_nodes=request.max_nodes,
        num_tasks=request.num_tasks,
        tasks_given=request.tasks_given,
        tasks_per_node=request.tasks_per_node,
        cpus_per_task=request.cpus_per_task,
        memory_per_node_mb=request.memory_per_node_mb,
        memory_per_cpu_mb=request.memory_per_cpu_mb,
        gres=gres_map(request.gres),
        exclusive=request.exclusive,
        nodelist=frozenset(request.nodelist),
        exclude=frozenset(request.exclude),
        constraint=request.constraint,
        time_limit=request.time_limit,
        tasks=tasks,
    )


def lookup_for(state: ClusterState, asking: Job) -> dependency.Lookup:
    """What `asking`'s dependency may ask about other jobs."""

    def look(term: dependency.Term) -> dependency.Target | None:
        if term.kind == "singleton":
            others = state.by_name.get((asking.request.uid, asking.request.name), set())
            same_array = {j for j in others if state.jobs[j].array_job_id == asking.array_job_id}
            ahead = {j for j in others if j < asking.job_id}
            if asking.array_job_id is not None:
                ahead -= same_array
            return dependency.Target(ended=not ahead, ok=not ahead, started_at=None)
        task = term.task
        if term.kind == "aftercorr" and task is None and asking.array_task_id is not None:
            task = str(asking.array_task_id)
        return _target(state, term.job_id, None if task == "*" else task)

    return look


def _target(state: ClusterState, job_id: int, task: str | None) -> dependency.Target | None:
    members = state.array_members(job_id)
    if task is not None and members:
        rest, single = tasks_of(state, job_id)
        index = int(task)
        if index in single:
            return _of([single[index]])
        if rest is not None and index in IndexSet(rest.array_pending):
            return _of([rest])
        return None
    own = state.jobs.get(job_id)
    found = members or ([own] if own is not None else [])
    return _of(found) if found else None


def _of(jobs: list[Job]) -> dependency.Target:
    starts = [job.start_at for job in jobs]
    started = None if any(start is None for start in starts) else max(start for start in starts if start)
    ended = all(job.state in TERMINAL_STATES for job in jobs)
    return dependency.Target(
        ended=ended, ok=ended and all(job.state is JobState.COMPLETED for job in jobs), started_at=started
    )

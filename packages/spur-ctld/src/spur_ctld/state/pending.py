"""The queue as the scheduler sees it: which pending jobs only room can hold back, and why the rest waits.

Pure.  Order: tier of the best requested partition, priority, then whoever is eligible for longest.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from spur_core import reasons
from spur_core.grammar.array import IndexSet
from spur_ctld.state import access, dependencies, resv_gate
from spur_ctld.state.arrays import task_room
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.records import Gres, Job, Request
from spur_sched.api import NOTHING, GresMap, JobView

#: Reasons that explain a hold-back by time better than BeginTime does.
_OWN_REASON: Final = frozenset({reasons.LAUNCH_FAILURE, reasons.BEGIN_TIME})
#: Tasks of one array that one pass looks at.
MOST_TASKS: Final = 1000

#: Job id -> the request that a view was made of, and the view; lets a pass reuse those of the last one.
Memo = dict[int, tuple[Request, JobView]]
#: What jobs are sorted by: without a reservation, minus tier, minus priority, eligible, submitted, id.
Place = tuple[bool, int, int, float, float, int]
_NOWHERE: Final[Place] = (True, 0, 0, 0.0, 0.0, 0)


class Queue(NamedTuple):
    """Every pending job that is not held stands in exactly one of the lists.

    Attributes:
        views: eligible jobs, best first.
        gated: (job id, reason, free text) of the others.  A job that waits for a time and says so in words
            of its own is left out.
        never: jobs to be cancelled, because their dependency can never hold and they asked for it.
        starts_matter: some job waits for another one to start.
    """

    views: list[JobView]
    gated: list[tuple[int, str, str]]
    never: list[int]
    starts_matter: bool


def base_priority(job: Job) -> int:
    """The priority where nobody makes one of the base."""
    return job.priority


class Look(NamedTuple):
    """What one look at a pending job found: a view if only room may hold it back, else why it waits.

    Attributes:
        reason: "" without a view = it says itself why it waits.
        never: its dependency can never hold, and it is to be cancelled then.
        until: as long as its record, its priority and the partitions stay what they are, another look finds
            the same until this instant; -inf = it goes by more than those.
    """

    view: JobView | None = None
    key: Place = _NOWHERE
    reason: str = ""
    never: bool = False
    until: float = math.inf


_SILENT: Final = Look()


class Doors(NamedTuple):
    """What partitions mean for the order and the eligibility of jobs."""

    tiers: dict[str, int]
    limited: frozenset[str]


def doors(state: ClusterState) -> Doors:
    """Of the partitions as they are."""
    return Doors(
        {name: part.priority_tier for name, part in state.partitions.items()},
        frozenset(name for name, part in state.partitions.items() if access.restricts(part)),
    )


def look(
    state: ClusterState,
    job: Job,
    now: float,
    found: Doors,
    memo: Memo,
    priority_of: Callable[[Job], int] = base_priority,
) -> Look:
    """Where a pending job stands."""
    if job.reason in reasons.HOLDS or job.priority == 0:
        return _SILENT
    request = job.request
    until = _until(job, now)
    outcome = _gate(state, job, now)
    if isinstance(outcome, str):
        never = outcome == reasons.DEPENDENCY_NEVER and request.kill_on_invalid_dependency
        return Look(reason="" if never else outcome, never=never, until=until)
    held = resv_gate.gate(state, request, now)
    if held.reason:
        return Look(reason=held.reason, until=until)
    view = _view(job, priority_of(job), outcome, memo)
    if not found.limited.isdisjoint(request.partitions):
        known = [state.partitions[name] for name in request.partitions if name in state.partitions]
        names, reason = access.open_to(request, known)
        if reason:
            return Look(reason=reason, until=until)
        view = view._replace(partitions=names)
    view = resv_gate.inside(state, view, held.name, now)
    tier = max((found.tiers.get(name, 1) for name in view.partitions), default=1)
    # What is kept for somebody is his before anything else is decided, as in Slurm.
    key = (not view.reservation, -tier, -view.priority, view.eligible_at, view.submit_at, view.job_id)
    return Look(view, key, until=until)


def _until(job: Job, now: float) -> float:
    """As long as its record stays, another look at the job is needed at this instant."""
    if job.request.dependency or job.request.reservation or job.array_throttle:
        return -math.inf
    if too_early(job, now):
        return max(at for at in (job.request.begin_at, job.not_before) if at is not None)
    return math.inf


def pending_views(
    state: ClusterState,
    now: float,
    memo: Memo | None = None,
    priority_of: Callable[[Job], int] = base_priority,
) -> Queue:
    """Sort every pending job into what may start and what waits for something else than room."""
    memo = {} if memo is None else memo
    found = doors(state)
    ready: list[tuple[Place, JobView]] = []
    queue = Queue([], [], [], False)
    starts_matter = False
    for job_id in state.pending:
        job = state.jobs[job_id]
        seen = look(state, job, now, found, memo, priority_of)
        if seen is not _SILENT:
            starts_matter = starts_matter or dependencies.waits_for_starts(job)
        if seen.view is not None:
            ready.append((seen.key, seen.view))
        elif seen.never:
            queue.never.append(job_id)
        elif seen.reason:
            queue.gated.append((job_id, seen.reason, ""))
    ready.sort(key=lambda item: item[0])
    queue.views.extend(view for _, view in ready)
    for job_id in memo.keys() - state.pending:
        del memo[job_id]
    return queue._replace(starts_matter=starts_matter)


def _gate(state: ClusterState, job: Job, now: float) -> tuple[int, ...] | str | None:
    """The reason that holds the job back ("" = it has its own), else the array tasks that may start, None
    for a plain job."""
    per_task = dependencies.by_task(job)
    if not per_task:
        verdict = dependencies.verdict(state, job, now)
        if verdict == dependencies.NEVER:
            return reasons.DEPENDENCY_NEVER
        if verdict == dependencies.WAITING:
            return reasons.DEPENDENCY
    if too_early(job, now):
        return "" if job.reason in _OWN_REASON else reasons.BEGIN_TIME
    # A task that a command singled out, or that was requeued, is one of its array all the same.
    room = task_room(state, job, MOST_TASKS)
    if room <= 0:
        return reasons.ARRAY_TASK_LIMIT
    if not job.array_pending:
        return None
    if not per_task:
        return tuple(IndexSet(job.array_pending).lowest(room))
    return _tasks_by_verdict(state, job, now, room)


def _tasks_by_verdict(state: ClusterState, job: Job, now: float, room: int) -> tuple[int, ...] | str:
    """`aftercorr`: each task waits for its own counterpart."""
    free: list[int] = []
    waiting = False
    for task in IndexSet(job.array_pending):
        verdict = dependencies.verdict(state, job, now, task)
        waiting = waiting or verdict == dependencies.WAITING
        if verdict == dependencies.SATISFIED:
            free.append(task)
            if len(free) == room:
                break
    if free:
        return tuple(free)
    return reasons.DEPENDENCY if waiting else reasons.DEPENDENCY_NEVER


def too_early(job: Job, now: float) -> bool:
    """Whether the user's begin time or an automatic hold-back lies ahead."""
    begin = job.request.begin_at
    return (begin is not None and begin > now) or (job.not_before is not None and job.not_before > now)


def _view(job: Job, priority: int, tasks: tuple[int, ...] | None, memo: Memo) -> JobView:
    known = memo.get(job.job_id)
    eligible_at = job.eligible_at or job.submit_at
    if known is not None and known[0] is job.request and known[1].eligible_at == eligible_at:
        view = known[1]
        if view.priority != priority:
            view = view._replace(priority=priority)
            memo[job.job_id] = (job.request, view)
    else:
        view = request_view(job.request, job.job_id, priority, job.submit_at, eligible_at)
        memo[job.job_id] = (job.request, view)
    return view if tasks is None else view._replace(tasks=tasks)


def request_view(
    request: Request, job_id: int, priority: int, submit_at: float, eligible_at: float
) -> JobView:
    """A request as the scheduler sees it."""
    licenses, licenses_any = resv_gate.licenses(request.licenses)
    return JobView(
        job_id=job_id,
        priority=priority,
        submit_at=submit_at,
        eligible_at=eligible_at,
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
        switches=request.switches,
        switches_until=None if request.switches is None else eligible_at + request.switches_wait,
        uid=request.uid,
        account=request.account,
        qos=request.qos,
        gres_total=gres_map(request.gres_total) or NOTHING,
        gres_per_task=gres_map(request.gres_per_task) or NOTHING,
        gres_per_socket=gres_map(request.gres_per_socket) or NOTHING,
        memory_per_gpu_mb=request.memory_per_gpu_mb,
        cpus_per_gpu=request.cpus_per_gpu,
        ntasks_per_socket=request.ntasks_per_socket,
        ntasks_per_core=request.ntasks_per_core,
        ntasks_per_gpu=request.ntasks_per_gpu,
        min_cpus=request.min_cpus,
        sockets_per_node=request.sockets_per_node,
        cores_per_socket=request.cores_per_socket,
        threads_per_core=request.threads_per_core,
        tmp_disk_mb=request.tmp_disk_mb,
        contiguous=request.contiguous,
        spread=request.spread,
        use_min_nodes=request.use_min_nodes,
        oversubscribe=request.oversubscribe,
        exclusive_user=request.exclusive_user,
        licenses=licenses,
        licenses_any=licenses_any,
        time_min=request.time_min,
        # What nobody asked for is cut when the job starts.
        deadline_at=None if request.limit_open else request.deadline_at,
    )


def gres_map(items: Sequence[Gres]) -> GresMap:
    """Counts by (name, type)."""
    found: GresMap = {}
    for item in items:
        found[item.name, item.type] = found.get((item.name, item.type), 0) + item.count
    return found

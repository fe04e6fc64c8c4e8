"""The accounting row of a job as it is now; pure.  The database keeps one per run."""

from collections.abc import Iterable

from spur_core.grammar.array import IndexSet
from spur_core.grammar.hostlist import compress_sorted
from spur_core.grammar.tres import format_tres
from spur_core.ids import STEP_BATCH, STEP_EXTERN
from spur_core.states import ACTIVE_STATES, TERMINAL_STATES, JobState
from spur_ctld.state.cluster import ClusterState, attempt_of, main_nodes, total
from spur_ctld.state.records import AcctRow, Exit, Job, NodeExit, Request, Slice, StepRow, Usage

_SIGTERM = 15
#: The wire's counts have 32 bits.
_MOST_SHOWN = 0xFFFFFFFF


def requested_cpus(request: Request) -> int:
    """CPUs that the request comes to; changed bit by bit it may come to more than any field can show."""
    cpus = request.num_tasks * request.cpus_per_task
    if request.cpus_per_gpu:
        cpus = request.cpus_per_gpu * _requested_gpus(request)
    least = (request.min_cpus or 1) * request.min_nodes
    return min(max(cpus, least, request.num_tasks), _MOST_SHOWN)


def _requested_gpus(request: Request) -> int:
    return sum(count for (name, _), count in requested_gres(request).items() if name == "gpu")


def requested_gres(request: Request) -> dict[tuple[str, str], int]:
    """Typed resources that the whole request comes to, by (name, type)."""
    found: dict[tuple[str, str], int] = {}
    for items, times in (
        (request.gres, request.min_nodes),
        (request.gres_total, 1),
        (request.gres_per_task, request.num_tasks),
        (request.gres_per_socket, (request.sockets_per_node or 1) * request.min_nodes),
    ):
        for item in items:
            key = (item.name, item.type)
            found[key] = min(found.get(key, 0) + item.count * times, 1 << 63)
    return found


def requested_tres(request: Request) -> dict[str, int]:
    """Totals of a request by TRES name."""
    cpus = requested_cpus(request)
    memory = 0
    if request.memory_per_node_mb:
        memory = request.memory_per_node_mb * request.min_nodes
    elif request.memory_per_cpu_mb:
        memory = request.memory_per_cpu_mb * cpus
    elif request.memory_per_gpu_mb:
        memory = request.memory_per_gpu_mb * _requested_gpus(request)
    amounts = {"cpu": cpus, "mem": memory, "node": request.min_nodes, "billing": cpus}
    for (name, kind), count in requested_gres(request).items():
        add_gres(amounts, name, kind, count)
    return amounts


def allocated_tres(parts: tuple[Slice, ...]) -> dict[str, int]:
    """Totals of an allocation by TRES name."""
    cpus, memory, gres = total(parts)
    amounts = {"cpu": cpus, "mem": memory, "node": len(parts), "billing": cpus}
    for (name, kind), count in gres.items():
        add_gres(amounts, name, kind, count)
    return amounts


def add_gres(amounts: dict[str, int], name: str, kind: str, count: int) -> None:
    """Count a typed resource under its plain name and under its type, as Slurm does."""
    amounts[f"gres/{name}"] = amounts.get(f"gres/{name}", 0) + count
    if kind:
        amounts[f"gres/{name}:{kind}"] = amounts.get(f"gres/{name}:{kind}", 0) + count


def put_job_row(
    state: ClusterState, job: Job, *, final: JobState | None = None, end_at: float | None = None
) -> None:
    """Queue the row of `job`'s present life.

    Args:
        final: how this run is recorded, when the job itself goes on (REQUEUED, NODE_FAIL).
        end_at: with `final`, when the run ended.
    """
    state.put_row(_row(job, state.next_seq(), final, end_at))


def drop_job_row(state: ClusterState, job: Job) -> None:
    """The present life's row leads nowhere (a dispatch that never ran): remove it."""
    state.put_row(
        AcctRow(
            seq=state.next_seq(),
            job_id=job.job_id,
            attempt=attempt_of(job),
            state=job.state,
            name=job.request.name,
            user=job.request.user,
            uid=job.request.uid,
            gid=job.request.gid,
            submit_at=job.submit_at,
            gone=True,
        )
    )


def shown_state(job: Job) -> JobState:
    """History knows PENDING, RUNNING and the ends."""
    if job.state is JobState.CONFIGURING and job.start_at is None:
        return JobState.PENDING
    return JobState.RUNNING if job.state in ACTIVE_STATES else job.state


def _row(job: Job, seq: int, final: JobState | None, end_at: float | None) -> AcctRow:
    request = job.request
    started = job.start_at is not None
    cpus, _, _ = total(job.slices)
    over = final is not None or job.state in TERMINAL_STATES
    ended = end_at if final is not None else (job.end_at if over else None)
    state = final or shown_state(job)
    return AcctRow(
        seq=seq,
        job_id=job.job_id,
        attempt=attempt_of(job),
        state=state,
        name=request.name,
        user=request.user,
        uid=request.uid,
        gid=request.gid,
        submit_at=job.submit_at,
        account=request.account,
        partition=job.partition or ",".join(request.partitions),
        qos=request.qos,
        reason=job.reason,
        array_job_id=job.array_job_id,
        array_task_id=job.array_task_id,
        array_pending=_array_text(job),
        eligible_at=job.eligible_at or None,
        start_at=job.start_at,
        end_at=ended,
        suspended_secs=job.suspended_secs,
        time_limit=request.time_limit,
        exit=job.exit,
        derived_exit=job.derived_exit,
        req_cpus=requested_cpus(request),
        req_nodes=request.min_nodes,
        req_mem_mb=request.memory_per_node_mb or request.memory_per_cpu_mb or 0,
        req_mem_per_cpu=request.memory_per_cpu_mb is not None,
        alloc_cpus=cpus if started else 0,
        alloc_nodes=len(job.slices) if started else 0,
        nodelist=compress_sorted([part.node for part in job.slices]) if started else "",
        req_tres=format_tres(requested_tres(request), by_name=True),
        alloc_tres=format_tres(allocated_tres(job.slices), by_name=True) if started else "",
        priority=job.start_priority or job.priority,
        work_dir=request.work_dir,
        submit_line=request.submit_line,
        comment=request.comment,
        constraint=request.constraint,
        wckey=request.wckey,
        stdout=job.stdout_real or request.stdout,
        stderr=job.stderr_real or request.stderr,
        stdin=request.stdin,
        kill_uid=job.kill_uid,
        restarts=job.restarts,
        steps=_steps(job, over, state, ended) if started else (),
        reservation=job.reservation,
        req_reservation=request.reservation,
        licenses=",".join(f"{name}:{count}" for name, count in job.licenses) or request.licenses,
    )


def _array_text(job: Job) -> str:
    if not job.array_pending:
        return ""
    text = IndexSet(job.array_pending).text()
    return f"{text}%{job.array_throttle}" if job.array_throttle else text


def main_step(job: Job) -> StepRow:
    """The row of the step that the job lives by, as it is now."""
    over = job.state in TERMINAL_STATES
    return _steps(job, over, shown_state(job), job.end_at if over else None)[0]


def _steps(job: Job, over: bool, state: JobState, ended: float | None) -> tuple[StepRow, ...]:
    """The step that the job lives by: batch, extern, or a stand-alone srun's step 0."""
    nodes = main_nodes(job)
    parts = tuple(part for part in job.slices if part.node in nodes)
    cpus, _, _ = total(parts)
    reports = {node: job.exits[node] for node in nodes if node in job.exits}
    worst = worst_of(report.exit for report in reports.values())
    step_state = JobState.RUNNING
    if over:
        step_state = step_end(state, worst, bool(reports))
        if not reports and step_state is JobState.CANCELLED:
            worst = Exit(signal=_SIGTERM)
    usage, rss_node = usage_of(reports.items())
    request = job.request
    step_id, name = STEP_BATCH, "batch"
    if request.srun:
        step_id, name = 0, request.name
    elif request.alloc_only:
        step_id, name = STEP_EXTERN, "extern"
    return (
        StepRow(
            step_id=step_id,
            name=name,
            state=step_state,
            start_at=job.start_at or 0.0,
            end_at=(max(report.at for report in reports.values()) if reports else ended) if over else None,
            exit=worst,
            # A hold has none; Slurm counts one a node.
            num_tasks=request.num_tasks if request.srun else len(nodes),
            cpus=cpus,
            num_nodes=len(nodes),
            nodelist=compress_sorted(list(nodes)),
            alloc_tres=format_tres(allocated_tres(parts), by_name=True),
            usage=usage,
            max_rss_node=rss_node,
        ),
    )


def step_end(job_end: JobState, worst: Exit, reported: bool) -> JobState:
    """How a step is recorded: by its own exit, unless it was ended from outside."""
    if worst.oom:
        return JobState.OUT_OF_MEMORY
    if job_end in (JobState.CANCELLED, JobState.TIMEOUT, JobState.REQUEUED, JobState.PREEMPTED):
        killed = worst.signal or not reported
        return JobState.CANCELLED if killed else _plain(worst)
    if job_end is JobState.NODE_FAIL and not reported:
        return JobState.NODE_FAIL
    return _plain(worst)


def _plain(worst: Exit) -> JobState:
    return JobState.FAILED if worst.code or worst.signal else JobState.COMPLETED


def badness(end: Exit) -> tuple[bool, bool, int]:
    """Of several exits the greatest stands for all."""
    return (end.oom, end.signal != 0, end.signal or end.code)


def worst_of(exits: Iterable[Exit]) -> Exit:
    """The exit that stands for several."""
    worst = Exit()
    for one in exits:
        if badness(one) > badness(worst):
            worst = one
    return worst


def usage_of(reports: Iterable[tuple[str, NodeExit]]) -> tuple[Usage, str]:
    """(sums of times and the largest memory, the node that had it)."""
    user = system = 0.0
    rss, node = 0, ""
    for name, report in reports:
        user += report.usage.user_secs
        system += report.usage.system_secs
        if report.usage.max_rss_kb > rss:
            rss, node = report.usage.max_rss_kb, name
    return Usage(user_secs=user, system_secs=system, max_rss_kb=rss), node

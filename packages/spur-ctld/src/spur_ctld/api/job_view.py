"""A job record as the wire shows it.  Pure."""

from typing import Final

from spur_core import reasons
from spur_core.grammar import dependency, filepattern
from spur_core.grammar.array import IndexSet
from spur_core.grammar.hostlist import compress_sorted
from spur_core.grammar.tres import format_tres
from spur_core.states import ACTIVE_STATES, TERMINAL_STATES, JobState
from spur_ctld import submit_wishes
from spur_ctld.dispatch.launch_spec import slice_message
from spur_ctld.state.accounting_rows import allocated_tres, requested_cpus, requested_tres
from spur_ctld.state.records import UNLIMITED, Exit, Job
from spur_proto import common_pb2 as pb

#: What another user's job does not show under `job_info_visibility = "redacted"`.
HIDDEN: Final = (
    "work_dir",
    "command",
    "submit_line",
    "submit_host",
    "stdout_path",
    "stderr_path",
    "stdin_path",
    "comment",
    "nodelist",
    "batch_host",
    "req_nodelist",
    "exc_nodelist",
    "slices",
    "alloc_tres",
)
NOT_SUBMITTED_OUTPUT: Final = "/dev/null"


def exit_message(status: Exit) -> pb.ExitStatus:
    return pb.ExitStatus(code=status.code, signal=status.signal, oom=status.oom, core_dumped=status.core)


def run_seconds(job: Job, now: float) -> float:
    """Seconds it ran, suspensions left out; 0 before the start."""
    if job.start_at is None:
        return 0.0
    end = job.end_at if job.end_at is not None else now
    if job.suspended_at is not None and job.end_at is None:
        end = job.suspended_at
    return max(0.0, end - job.start_at - job.suspended_secs)


def latest_end(job: Job) -> float | None:
    """The end, or while it runs the instant of its limit."""
    if job.end_at is not None:
        return job.end_at
    limit = job.request.time_limit
    grace_end = job.push.end_at if job.push is not None and job.start_at is not None else None
    if job.start_at is None or limit is None or limit == UNLIMITED:
        return grace_end
    end = job.start_at + limit + job.suspended_secs
    return end if grace_end is None else min(end, grace_end)


def output_paths(job: Job) -> tuple[str, str, str]:
    """(stdout, stderr, stdin): the real ones once the node said so, else the expanded patterns."""
    request = job.request
    if request.srun or request.alloc_only:
        return request.stdout, request.stderr, request.stdin
    values = filepattern.PatternValues(
        job_id=job.job_id,
        array_job_id=job.array_job_id,
        array_task=job.array_task_id,
        step=None,
        task=0,
        node=job.slices[0].node if job.slices else "%N",
        node_index=0,
        user=request.user,
        job_name=request.name,
        restarts=job.restarts,
    )
    pattern = request.stdout or filepattern.default_pattern(job.array_job_id is not None)
    out = job.stdout_real or filepattern.resolve(pattern, values, request.work_dir)
    if request.stderr:
        err = job.stderr_real or filepattern.resolve(request.stderr, values, request.work_dir)
    else:
        err = job.stderr_real or out
    if not request.stdin:
        return out, err, NOT_SUBMITTED_OUTPUT
    return out, err, filepattern.resolve(request.stdin, values, request.work_dir)


def job_message(
    job: Job, now: float, *, dependency_text: str = "", detail: bool = False, priority: int | None = None
) -> pb.JobInfo:
    """The wire form of one record.

    Args:
        dependency_text: what is left of the dependency, with states; "" when nothing is.
        detail: with what the job holds on each node.
        priority: what the record's base comes to now; None = the base.
    """
    request = job.request
    allocated = job.state in ACTIVE_STATES or (job.state in TERMINAL_STATES and bool(job.slices))
    nodes = [part.node for part in job.slices]
    cpus = sum(part.cpus for part in job.slices) if allocated else requested_cpus(request)
    stdout, stderr, stdin = output_paths(job)
    message = pb.JobInfo(
        job_id=job.job_id,
        run_attempt=job.run_attempt,
        name=request.name,
        user=request.user,
        uid=request.uid,
        gid=request.gid,
        group=request.group,
        account=request.account,
        qos=request.qos,
        partition=job.partition or ",".join(request.partitions),
        state=int(job.state),  # type: ignore[arg-type]  # enum numbers are equal
        reason=job.reason,
        state_desc=job.desc,
        priority=job.priority if priority is None else priority,
        nice=request.nice,
        site_factor=request.site_factor,
        comment=request.comment,
        wckey=request.wckey,
        dependency=dependency_text,
        requeue=request.requeue,
        restarts=job.restarts,
        batch=not (request.srun or request.alloc_only),
        submit_at=job.submit_at,
        eligible_at=job.eligible_at,
        time_limit_secs=request.time_limit,
        run_secs=run_seconds(job, now),
        start_at=job.start_at,
        end_at=latest_end(job),
        begin_at=request.begin_at if request.begin_at is not None else job.not_before,
        deadline_at=request.deadline_at,
        last_sched_at=job.dispatch_at,
        suspend_at=job.suspended_at,
        preempt_at=job.push.at if job.push is not None else None,
        preempted_by=job.push.by if job.push is not None else None,
        nodelist=compress_sorted(nodes) if allocated else "",
        batch_host=nodes[0] if allocated and nodes and not request.srun else "",
        min_nodes=request.min_nodes,
        max_nodes=request.max_nodes,
        num_nodes=len(nodes) if allocated else request.min_nodes,
        num_cpus=cpus,
        num_tasks=request.num_tasks,
        cpus_per_task=request.cpus_per_task,
        tasks_per_node=request.tasks_per_node,
        memory_per_node_mb=request.memory_per_node_mb,
        memory_per_cpu_mb=request.memory_per_cpu_mb,
        gres=submit_wishes.gres_text(request.gres),
        wishes=submit_wishes.message(request),
        req_tres=format_tres(requested_tres(request)),
        alloc_tres=format_tres(allocated_tres(job.slices)) if allocated else "",
        exclusive=request.exclusive,
        req_nodelist=compress_sorted(list(request.nodelist)),
        exc_nodelist=compress_sorted(list(request.exclude)),
        constraint=request.constraint,
        exit=exit_message(job.exit),
        derived_exit=exit_message(job.derived_exit),
        work_dir=request.work_dir,
        command=request.command,
        stdout_path=stdout,
        stderr_path=stderr,
        stdin_path=stdin,
        submit_line=request.submit_line,
        submit_host=request.submit_host,
        kill_uid=job.kill_uid,
        srun_job=request.srun,
        alloc_only=request.alloc_only,
        distribution=request.distribution,
        kill_on_invalid_dependency=request.kill_on_invalid_dependency,
        reservation=job.reservation or request.reservation,
        licenses=request.licenses,
        licenses_alloc=",".join(f"{name}:{count}" for name, count in job.licenses),
    )
    if job.array_job_id is not None:
        message.array_job_id = job.array_job_id
        message.array_throttle = job.array_throttle
        message.array_task_count = job.array_count
        if job.array_task_id is not None:
            message.array_task_id = job.array_task_id
        if job.array_pending:
            pending = IndexSet(job.array_pending)
            text = pending.text()
            message.array_pending = f"{text}%{job.array_throttle}" if job.array_throttle else text
            message.array_pending_count = len(pending)
    if detail:
        message.slices.extend(slice_message(part) for part in job.slices if allocated)
    return message


def redact(message: pb.JobInfo) -> None:
    """Blank what only the owner and administrators see."""
    for name in HIDDEN:
        message.ClearField(name)


def dependency_left(job: Job, lookup: dependency.Lookup, now: float) -> str:
    """What is left of a pending job's dependency, with states."""
    if not job.request.dependency or job.state is not JobState.PENDING:
        return ""
    return dependency.display(dependency.parse(job.request.dependency), lookup, now)


def is_held(job: Job) -> bool:
    return job.reason in reasons.HOLDS

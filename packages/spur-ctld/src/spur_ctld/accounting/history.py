"""`sacct`'s questions as SQL; the answers as wire messages."""

import asyncio
import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from spur_core.errors import RequestError
from spur_core.grammar.array import IndexSet, parse_array
from spur_core.states import ACTIVE_STATES, JobState
from spur_ctld import bounds
from spur_ctld.accounting.schema import jobs, steps
from spur_ctld.api import parse
from spur_proto import accounting_pb2 as pb
from spur_proto import common_pb2

#: Rows of one answer at most; the client asks on with the page token.
PAGE = 5000
#: Values of one filter.
MOST_NAMES = 10_000
#: Runs of task indices in one question: each is a condition of its own, of which SQLite takes a thousand.
MOST_RUNS = 400

#: Columns that are wire fields of the same name.
_JOB_FIELDS = (
    "db_index",
    "job_id",
    "array_pending",
    "cluster",
    "name",
    "uid",
    "gid",
    "account",
    "partition",
    "qos",
    "reason",
    "state",
    "submit_at",
    "suspended_secs",
    "req_cpus",
    "alloc_cpus",
    "req_nodes",
    "alloc_nodes",
    "req_mem_mb",
    "req_mem_per_cpu",
    "nodelist",
    "req_tres",
    "alloc_tres",
    "priority",
    "work_dir",
    "submit_line",
    "comment",
    "restarts",
    "wckey",
    "reservation",
    "req_reservation",
    "licenses",
)
_STEP_FIELDS = (
    "step_id",
    "name",
    "state",
    "start_at",
    "num_tasks",
    "num_nodes",
    "nodelist",
    "alloc_tres",
    "user_secs",
    "system_secs",
    "max_rss_kb",
    "max_rss_node",
    "layout",
)


def select_jobs(request: pb.GetJobHistoryRequest, cluster: str) -> "sa.Select[Any]":
    """The rows that `request` asks for, oldest id first.

    Raises:
        RequestError: a page token, state, instant or task list that is none, or too many values.
    """
    query = sa.select(jobs).where(jobs.c.cluster == cluster)
    if request.jobs:
        query = query.where(_targets(request.jobs))
    for names, column in (
        (request.users, jobs.c.user_name),
        (request.accounts, jobs.c.account),
        (request.partitions, jobs.c.partition),
        (request.names, jobs.c.name),
        (request.qos, jobs.c.qos),
    ):
        if len(names) > MOST_NAMES:
            raise RequestError(f"{column.name}: more than {MOST_NAMES} names")
        if names:
            query = query.where(column.in_(list(names)))
    query = query.where(*_window(request))
    if not request.duplicates:
        later = jobs.alias("later")
        query = query.where(
            ~sa.exists().where(
                later.c.cluster == jobs.c.cluster,
                later.c.job_id == jobs.c.job_id,
                later.c.submit_at >= jobs.c.submit_at,
                sa.or_(later.c.submit_at > jobs.c.submit_at, later.c.attempt > jobs.c.attempt),
            )
        )
    order = (jobs.c.job_id, jobs.c.submit_at, jobs.c.attempt)
    if request.page_token:
        query = query.offset(parse.page_token(request.page_token))
    return query.order_by(*order).limit(page_size(request))


def page_size(request: pb.GetJobHistoryRequest) -> int:
    """Rows of one page: as asked, within the server's maximum."""
    return min(request.page_size or PAGE, PAGE)


@lru_cache(maxsize=64)
def _indices(text: str) -> IndexSet:
    return parse_array(text).indices


def _targets(targets: "Sequence[pb.HistoryTarget]") -> "sa.ColumnElement[bool]":
    """Rows of any of the targets; databases take a long list of ids, but no long chain of conditions."""
    whole = sorted({target.job_id for target in targets if target.array_tasks in ("", "*")})
    some = [target for target in targets if target.array_tasks not in ("", "*")]
    if len(whole) > MOST_NAMES:
        raise RequestError(f"jobs: more than {MOST_NAMES}, ask for fewer at a time")
    parts = [sa.or_(jobs.c.job_id.in_(whole), jobs.c.array_job_id.in_(whole))] if whole else []
    left = MOST_RUNS
    for target in some:
        if len(target.array_tasks) > bounds.TEXTS["array"]:
            raise RequestError("jobs: a task list is too long, ask for fewer at a time")
        ranges = _indices(target.array_tasks).ranges
        left -= len(ranges) + 1
        if left < 0:
            raise RequestError("jobs: too many task lists, ask for fewer at a time")
        parts.append(_tasks(target.job_id, ranges))
    return sa.or_(*parts)


def _tasks(job_id: int, ranges: "tuple[tuple[int, int, int], ...]") -> "sa.ColumnElement[bool]":
    wanted = sa.or_(
        *(
            sa.and_(
                jobs.c.array_task_id >= first,
                jobs.c.array_task_id <= last,
                (jobs.c.array_task_id - first) % step == 0,
            )
            for first, last, step in ranges
        )
    )
    # The record of the tasks that have not started stands for any of them.
    remainder = sa.and_(jobs.c.job_id == job_id, jobs.c.array_task_id.is_(None))
    return sa.or_(sa.and_(jobs.c.array_job_id == job_id, wanted), remainder)


def _asked_for(row: Any, request: pb.GetJobHistoryRequest) -> bool:
    """Whether the record of tasks that have not started stands for one that was asked for by index."""
    named = [target.array_tasks for target in request.jobs if target.job_id == row["job_id"]]
    if not request.jobs or any(text in ("", "*") for text in named):
        return True
    pending = parse_array(row["array_pending"]).indices
    wanted = [_indices(text) for text in named]
    return any(index in indices for indices in wanted for index in pending)


def _window(request: pb.GetJobHistoryRequest) -> "list[sa.ColumnElement[bool]]":
    """Jobs that were eligible, running or ended in the window; with states: in that state during it."""
    start = _instant(request, "window_start")
    end = _instant(request, "window_end")
    begun = sa.func.coalesce(jobs.c.eligible_at, jobs.c.submit_at)

    def overlaps(first: Any, last: Any) -> "sa.ColumnElement[bool]":
        parts: list[sa.ColumnElement[bool]] = []
        if end is not None:
            parts.append(first <= sa.bindparam(None, end, jobs.c.submit_at.type))
        if start is not None:
            bound = sa.bindparam(None, start, jobs.c.submit_at.type)
            parts.append(sa.or_(last.is_(None), last >= bound))
        return sa.and_(sa.true(), *parts)

    if not request.states:
        return [overlaps(begun, jobs.c.end_at)]
    wanted: list[sa.ColumnElement[bool]] = []
    for state in sorted(parse.job_states(request.states)):
        if state == JobState.PENDING:
            waited_until = sa.func.coalesce(jobs.c.start_at, jobs.c.end_at)
            wanted.append(overlaps(begun, waited_until))
        elif state in ACTIVE_STATES:
            # A running job's row says RUNNING for every active state.
            wanted.append(sa.and_(jobs.c.start_at.is_not(None), overlaps(jobs.c.start_at, jobs.c.end_at)))
        else:
            ended = [jobs.c.state == state]
            if end is not None:
                ended.append(jobs.c.end_at <= sa.bindparam(None, end, jobs.c.submit_at.type))
            if start is not None:
                ended.append(jobs.c.end_at >= sa.bindparam(None, start, jobs.c.submit_at.type))
            wanted.append(sa.and_(*ended))
    return [sa.or_(*wanted)]


def _instant(request: pb.GetJobHistoryRequest, field: str) -> float | None:
    if not request.HasField(field):
        return None
    value: float = getattr(request, field)
    if not math.isfinite(value):
        raise RequestError(f"{field}: not an instant")
    return value


async def find(
    engine: AsyncEngine, cluster: str, request: pb.GetJobHistoryRequest
) -> pb.GetJobHistoryResponse:
    """The answer to `request`, without visibility rules (see `service`)."""
    response = pb.GetJobHistoryResponse()
    query = (
        # Task lists with steps can take long to put together.
        await asyncio.to_thread(select_jobs, request, cluster)
        if any(":" in target.array_tasks for target in request.jobs)
        else select_jobs(request, cluster)
    )
    async with engine.connect() as connection:
        found = (await connection.execute(query)).mappings().all()
        by_run: dict[tuple[int, int, float], pb.JobHistory] = {}
        for row in found:
            if row["array_pending"] and not _asked_for(row, request):
                continue
            message = response.jobs.add()
            fill_job(message, row)
            by_run[(row["job_id"], row["attempt"], row["submit_at"])] = message
        if found and not request.without_steps:
            await _add_steps(connection, cluster, by_run)
            if any(target.HasField("step_id") for target in request.jobs):
                _only_named_steps(response.jobs, request)
    if len(found) == page_size(request):
        response.next_page_token = str(parse.page_token(request.page_token) + len(found))
    return response


def _only_named_steps(found: "Iterable[pb.JobHistory]", request: pb.GetJobHistoryRequest) -> None:
    """Of jobs that are named by single steps only, drop the others."""
    for job in found:
        own = (job.job_id, job.array_job_id if job.HasField("array_job_id") else job.job_id)
        named = [target for target in request.jobs if target.job_id in own]
        if not named or not all(target.HasField("step_id") for target in named):
            continue
        wanted = {target.step_id for target in named}
        kept = [step for step in job.steps if step.step_id in wanted]
        del job.steps[:]
        job.steps.extend(kept)


async def _add_steps(
    connection: Any, cluster: str, by_run: "dict[tuple[int, int, float], pb.JobHistory]"
) -> None:
    ids = sorted({job_id for job_id, _, _ in by_run})
    for at in range(0, len(ids), 500):
        query = (
            sa.select(steps)
            .where(steps.c.cluster == cluster, steps.c.job_id.in_(ids[at : at + 500]))
            .order_by(steps.c.job_id, steps.c.attempt, steps.c.step_id)
        )
        for row in (await connection.execute(query)).mappings():
            job = by_run.get((row["job_id"], row["attempt"], row["submit_at"]))
            if job is not None:
                fill_step(job.steps.add(), row)


def fill_job(message: pb.JobHistory, row: Any) -> None:
    """Copy one `jobs` row; what is NULL stays absent."""
    for name in _JOB_FIELDS:
        setattr(message, name, row[name])
    for name in ["array_job_id", "array_task_id", "eligible_at", "start_at", "end_at", "kill_uid"]:
        if row[name] is not None:
            setattr(message, name, row[name])
    if row["time_limit"] is not None:
        message.time_limit_secs = row["time_limit"]
    message.run_attempt = row["attempt"]
    message.user = row["user_name"]
    message.constraint = row["constraint_expr"]
    message.stdout_path, message.stderr_path, message.stdin_path = row["stdout"], row["stderr"], row["stdin"]
    message.exit.CopyFrom(_exit(row["exit_code"], row["exit_signal"], row["exit_oom"]))
    message.derived_exit.CopyFrom(_exit(row["derived_code"], row["derived_signal"], False))


def fill_step(message: pb.StepHistory, row: Any) -> None:
    """Copy one `steps` row."""
    for name in _STEP_FIELDS:
        setattr(message, name, row[name])
    message.alloc_cpus = row["cpus"]
    if row["end_at"] is not None:
        message.end_at = row["end_at"]
    message.exit.CopyFrom(_exit(row["exit_code"], row["exit_signal"], row["exit_oom"]))


def _exit(code: int, signal: int, oom: bool) -> common_pb2.ExitStatus:
    return common_pb2.ExitStatus(code=code, signal=signal, oom=oom)

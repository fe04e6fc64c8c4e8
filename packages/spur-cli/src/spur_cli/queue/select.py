"""Asking for jobs: ids and filters to requests, pages to one list."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from spur_cli.cli_errors import CallFailed, is_no_such_job
from spur_cli.transport import Transport
from spur_core.grammar.jobid import JobRef, parse_job_ref, split_refs
from spur_core.states import JobState, parse_job_state

if TYPE_CHECKING:
    from spur_proto import common_pb2, controller_pb2

#: What squeue shows when no state is asked for.
LIVE_STATES = (
    JobState.PENDING,
    JobState.CONFIGURING,
    JobState.RUNNING,
    JobState.SUSPENDED,
    JobState.COMPLETING,
)


def parse_refs(texts: Iterable[str]) -> list[JobRef]:
    """The references in comma lists.

    Raises:
        ValueError: one is none; the exception's text is the bad word.
    """
    from spur_core.errors import GrammarError

    out = []
    for text in texts:
        for word in split_refs(text):
            try:
                out.append(parse_job_ref(word))
            except GrammarError:
                raise ValueError(word) from None
    return out


def target(ref: JobRef) -> "controller_pb2.JobTarget":
    """The wire form."""
    from spur_proto import controller_pb2

    made = controller_pb2.JobTarget(job_id=ref.job_id, array_tasks=ref.tasks or "")
    if ref.step is not None:
        made.step_id = ref.step
    return made


def parse_states(text: str) -> list[JobState] | None:
    """The states of a comma list; None for `all`.  States that no job of ours is ever in are dropped.

    Raises:
        GrammarError: no such state.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    if any(word.lower() == "all" for word in words):
        return None
    found = [parse_job_state(word) for word in words]
    return [state for state in found if isinstance(state, JobState)]


def fetch(
    transport: Transport,
    *,
    refs: Iterable[JobRef] = (),
    states: Iterable[JobState] = (),
    users: Iterable[str] = (),
    detail: bool = False,
) -> "list[common_pb2.JobInfo]":
    """Every job that the controller finds, all pages.

    Raises:
        CallFailed: also when it does not know one of several ids; see `fetch_known`.
    """
    from spur_proto import controller_pb2

    request = controller_pb2.GetJobsRequest(
        jobs=[target(ref) for ref in refs],
        states=[int(state) for state in states],  # type: ignore[misc]
        users=users,
        detail=detail,
    )
    jobs: list[common_pb2.JobInfo] = []
    while True:
        page = transport.call("GetJobs", request, controller_pb2.GetJobsResponse)
        jobs.extend(page.jobs)
        if not page.next_page_token:
            return jobs
        request.page_token = page.next_page_token


def fetch_known(
    transport: Transport, refs: list[JobRef], *, detail: bool = False
) -> "list[common_pb2.JobInfo]":
    """The jobs of `refs`, each once; unknown ones are passed over."""
    jobs: dict[tuple[int, str], common_pb2.JobInfo] = {}
    groups = [refs]
    while groups:
        group = groups.pop()
        try:
            found = fetch(transport, refs=group, detail=detail)
        except CallFailed as failure:
            if not is_no_such_job(failure):
                raise
            if len(group) > 1:
                groups.extend([ref] for ref in group)
            continue
        for job in found:
            jobs[job.job_id, job.array_pending] = job
    return list(jobs.values())


def expand_pending(job: "common_pb2.JobInfo") -> "list[common_pb2.JobInfo]":
    """One row per task of an array's pending remainder (`squeue -r`)."""
    if not job.array_pending:
        return [job]
    from spur_core.grammar.array import parse_array

    rows = []
    for index in parse_array(job.array_pending.partition("%")[0]).indices:
        row = type(job)()
        row.CopyFrom(job)
        row.array_pending = ""
        row.array_task_id = index
        rows.append(row)
    return rows

"""What pending jobs wait for in other jobs.  Pure; the grammar and its rules are spur_core's.

Facts about other jobs come from their records.  A job that left memory is unknown, so a job that a live
dependency names never leaves (`referenced`).
"""

from functools import lru_cache
from typing import Final

from spur_core.errors import GrammarError
from spur_core.grammar import dependency
from spur_core.grammar.array import IndexSet
from spur_core.states import TERMINAL_STATES, JobState
from spur_ctld.state.arrays import tasks_of
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.records import Job

SATISFIED: Final = dependency.SATISFIED
WAITING: Final = dependency.WAITING
NEVER: Final = dependency.NEVER


@lru_cache(maxsize=4096)
def parsed(text: str) -> dependency.Dependency:
    """The structure of a stored dependency; one that no longer parses has no terms."""
    try:
        terms, any_of = dependency.parse(text)
        # A condition that is stated twice is looked up once.
        return dependency.Dependency(tuple(dict.fromkeys(terms)), any_of)
    except GrammarError:
        return dependency.Dependency((), False)


def referenced(state: ClusterState) -> set[int]:
    """Ids of jobs and arrays that a pending job's dependency names."""
    named: set[int] = set()
    for job_id in state.pending:
        text = state.jobs[job_id].request.dependency
        if text:
            named |= dependency.job_ids(parsed(text))
    return named


def waits_for_starts(job: Job) -> bool:
    """Whether the job depends on the start of another one, and not only on ends."""
    text = job.request.dependency
    return bool(text) and any(term.kind == "after" for term in parsed(text).terms)


def verdict(state: ClusterState, job: Job, now: float, task: int | None = None) -> str:
    """SATISFIED, WAITING or NEVER for a job, or for one pending task of an array.

    Args:
        task: the index, for a task that has no record of its own yet.
    """
    if not job.request.dependency:
        return SATISFIED
    return dependency.evaluate(parsed(job.request.dependency), lookup_for(state, job, task), now)


def by_task(job: Job) -> bool:
    """Whether the pending tasks of this record may have different verdicts."""
    if not job.array_pending or not job.request.dependency:
        return False
    return any(
        term.kind == "aftercorr" and term.task is None for term in parsed(job.request.dependency).terms
    )


def lookup_for(state: ClusterState, asking: Job, task: int | None = None) -> dependency.Lookup:
    """What the dependency of `asking` (or of its pending `task`) may ask about other jobs."""
    own = task if task is not None else asking.array_task_id

    def look(term: dependency.Term) -> dependency.Target | None:
        if term.kind == "singleton":
            alone = not _ahead(state, asking)
            return dependency.Target(ended=alone, ok=alone, started_at=None)
        wanted = None if term.task in (None, "*") else int(term.task or 0)
        if term.kind == "aftercorr" and term.task is None and own is not None:
            wanted = own
        if term.task is not None and not state.by_array.get(term.job_id):
            return None
        return _target(state, term.job_id, wanted)

    return look


def _ahead(state: ClusterState, asking: Job) -> bool:
    """Whether a job of the same user and name is active, or was submitted earlier and waits."""
    for job_id in state.by_name.get((asking.request.uid, asking.request.name), ()):
        other = state.jobs[job_id]
        if job_id == asking.job_id:
            continue
        if asking.array_job_id is not None and other.array_job_id == asking.array_job_id:
            # Tasks of one array are one job to their singleton.
            continue
        if other.state is not JobState.PENDING or _place(other) < _place(asking):
            return True
    return False


def _place(job: Job) -> int:
    """The order of submission; a task stands where its array stands."""
    return job.array_job_id if job.array_job_id is not None else job.job_id


def _target(state: ClusterState, job_id: int, task: int | None) -> dependency.Target | None:
    members = state.array_members(job_id)
    if not members:
        single = state.jobs.get(job_id)
        return None if single is None else _facts([single])
    if task is None:
        return _facts(members)
    rest, tasks = tasks_of(state, job_id)
    if task in tasks:
        return _facts([tasks[task]])
    if rest is not None and task in IndexSet(rest.array_pending):
        return _facts([rest])
    return None


def _facts(jobs: list[Job]) -> dependency.Target:
    starts = [job.start_at for job in jobs if job.start_at is not None]
    ended = all(job.state in TERMINAL_STATES for job in jobs)
    return dependency.Target(
        ended=ended,
        ok=ended and all(job.state is JobState.COMPLETED for job in jobs),
        started_at=max(starts) if len(starts) == len(jobs) else None,
    )

"""What is due at a given instant.  Pure: the state and the time in, lists of things to do out.

Times are seconds since the epoch unless a name says otherwise.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from spur_core.grammar.signals import parse_warn_signal
from spur_core.ids import RuntimeId
from spur_core.states import TERMINAL_STATES, JobState, NodeAvail
from spur_ctld.state.records import UNLIMITED, Job, Node, Partition

#: An attempt over its limit whose processes outlive TERM, grace and KILL is fenced this much later.
KILL_SLACK_SECS = 15.0
#: A step is launched or given up in this time; else it is looked after.
STEP_LAUNCH_SECS = 120.0
#: The least time an ended job stays in memory.
MIN_RETENTION_SECS = 120


class Overdue(NamedTuple):
    """An attempt past a limit."""

    job_id: int
    attempt: int


class Silence(NamedTuple):
    """A node that has been silent for too long."""

    node: str
    silent_secs: float


def limit_end(job: Job, over_limit_secs: int) -> float | None:
    """When a running attempt is over its time limit, or None while there is no such instant.

    A suspended job's clock stands still.
    """
    limit = job.request.time_limit
    if limit is None or limit == UNLIMITED or job.start_at is None:
        return None
    if job.state is not JobState.RUNNING or job.fence is not None:
        return None
    return job.start_at + limit + job.suspended_secs + over_limit_secs


def over_limit_secs(job: Job, partitions: Mapping[str, Partition], default: int) -> int:
    """How long the attempt may run on past its limit: the partition's word, or the cluster's."""
    partition = partitions.get(job.partition)
    own = partition.over_time_limit if partition is not None else 0
    return own or default


def unsignalled(
    jobs: Iterable[Job], partitions: Mapping[str, Partition], default_over: int, now: float
) -> tuple[list[Overdue], float | None]:
    """Attempts whose limit has passed and who were not told yet, and the next instant to look again."""
    due: list[Overdue] = []
    following: float | None = None
    for job in jobs:
        if job.time_signalled_at is not None:
            continue
        end = limit_end(job, over_limit_secs(job, partitions, default_over))
        if end is None:
            continue
        if end <= now:
            due.append(Overdue(job.job_id, job.run_attempt))
        elif following is None or end < following:
            following = end
    return due, following


def unwarned(jobs: Iterable[Job], now: float) -> tuple[list[Overdue], float | None]:
    """Attempts whose signal ahead of the limit (`--signal`) is due, and the next instant to look again.

    Nothing is due once the limit itself has passed.
    """
    due: list[Overdue] = []
    following: float | None = None
    for job in jobs:
        if not job.request.warn_signal or job.warned_at is not None or job.time_signalled_at is not None:
            continue
        end = limit_end(job, 0)
        if end is None or end <= now:
            continue
        at = end - parse_warn_signal(job.request.warn_signal)[2]
        if at <= now:
            due.append(Overdue(job.job_id, job.run_attempt))
        elif following is None or at < following:
            following = at
    return due, following


def outlived_kill(
    jobs: Iterable[Job], kill_wait_secs: float, now: float
) -> tuple[list[Overdue], float | None]:
    """Attempts that were told that their time is over and run on past grace and KILL."""
    due: list[Overdue] = []
    following: float | None = None
    for job in jobs:
        if job.time_signalled_at is None or job.fence is not None or job.state in TERMINAL_STATES:
            continue
        if job.state is JobState.PENDING:
            continue
        end = job.time_signalled_at + kill_wait_secs + KILL_SLACK_SECS
        if end <= now:
            due.append(Overdue(job.job_id, job.run_attempt))
        elif following is None or end < following:
            following = end
    return due, following


def hanging(jobs: Iterable[Job], wait_secs: float, now: float) -> tuple[list[Overdue], float | None]:
    """Attempts that some node ended long ago while others never reported."""
    due: list[Overdue] = []
    following: float | None = None
    for job in jobs:
        if job.state is not JobState.COMPLETING or job.fence is not None or not job.exits:
            continue
        end = min(report.at for report in job.exits.values()) + wait_secs
        if end <= now:
            due.append(Overdue(job.job_id, job.run_attempt))
        elif following is None or end < following:
            following = end
    return due, following


def steps_over(jobs: Iterable[Job], now: float) -> tuple[list[RuntimeId], float | None]:
    """Steps past a limit of their own; a suspended job's clock stands still."""
    due: list[RuntimeId] = []
    following: float | None = None
    for job in jobs:
        if not job.steps or job.fence is not None or job.suspended_at is not None:
            continue
        for step in job.steps.values():
            if step.time_limit is None or step.start_at is None or step.stop is not None:
                continue
            end = step.start_at + step.time_limit + job.suspended_secs - step.suspended_before
            if end <= now:
                due.append(RuntimeId(job.job_id, job.run_attempt, step.step_id))
            elif following is None or end < following:
                following = end
    return due, following


def steps_left(jobs: Iterable[Job], now: float) -> tuple[list[Job], float | None]:
    """Jobs with a step whose launch is not decided long after it was recorded."""
    due: list[Job] = []
    following: float | None = None
    for job in jobs:
        open_since = [s.created_at for s in job.steps.values() if s.start_at is None and s.stop is None]
        if not open_since:
            continue
        end = min(open_since) + STEP_LAUNCH_SECS
        if end <= now:
            due.append(job)
            end = now + STEP_LAUNCH_SECS
        if following is None or end < following:
            following = end
    return due, following


def has_client(job: Job) -> bool:
    """Whether somebody's silence counts: an allocation or a stand-alone srun whose client said once that it
    lives.  Steps that run in it are a sign of life too."""
    if not job.client_seen or job.fence is not None or job.state is not JobState.RUNNING:
        return False
    return (job.request.srun or job.request.alloc_only) and not job.steps


def past_deadline(jobs: Iterable[Job], now: float) -> tuple[list[int], float | None]:
    """Pending jobs that cannot end by their deadline any more, whatever starts them now."""
    due: list[int] = []
    following: float | None = None
    for job in jobs:
        deadline = job.request.deadline_at
        if deadline is None or job.state is not JobState.PENDING:
            continue
        least = job.request.time_min or (None if job.request.limit_open else job.request.time_limit)
        last = deadline if least in (None, UNLIMITED) else deadline - (least or 0)
        if last < now or deadline <= now:
            due.append(job.job_id)
        elif following is None or last < following:
            following = last
    return due, following


def eligible_by_time(job: Job) -> float | None:
    """When a pending job's begin time and hold-backs are over; None when it has none or is not pending."""
    if job.state is not JobState.PENDING:
        return None
    return max((at for at in (job.request.begin_at, job.not_before) if at is not None), default=None)


def turns(job: Job) -> tuple[float, ...]:
    """Instants at which a pending job may start though nothing else happens."""
    begin = eligible_by_time(job)
    found = () if begin is None else (begin,)
    if job.state is JobState.PENDING and job.request.switches is not None:
        return (*found, (job.eligible_at or job.submit_at) + job.request.switches_wait)
    return found


def grace_over(jobs: Iterable[Job], now: float) -> tuple[list[Job], float | None]:
    """Preempted attempts whose grace is over, and the next instant to look again."""
    due: list[Job] = []
    following: float | None = None
    for job in jobs:
        end = job.push.end_at if job.push is not None else None
        if end is None or job.fence is not None or job.state not in (JobState.RUNNING, JobState.SUSPENDED):
            continue
        if end <= now:
            due.append(job)
        elif following is None or end < following:
            following = end
    return due, following


def forgotten(
    jobs: Iterable[Job],
    referenced: Collection[int],
    retention_secs: int,
    now: float,
    most: int = 1000,
) -> list[int]:
    """Ended jobs that may leave memory: old enough, and no live job's dependency names them."""
    keep = max(retention_secs, MIN_RETENTION_SECS)
    found: list[int] = []
    for job in jobs:
        if job.state not in TERMINAL_STATES or job.end_at is None or job.end_at + keep > now:
            continue
        if job.job_id in referenced or (job.array_job_id is not None and job.array_job_id in referenced):
            continue
        found.append(job.job_id)
        if len(found) >= most:
            break
    return found


def silent_nodes(
    nodes: Iterable[Node],
    beats: Mapping[str, float],
    timeout_secs: float,
    restart_grace_secs: float,
    now_mono: float,
) -> list[Silence]:
    """Nodes to be marked down.

    Args:
        beats: monotonic time of the last sign of life; a node that is not in it is not judged.
        timeout_secs: for nodes that said nothing of a restart.
        restart_grace_secs: for nodes that announced one.
    """
    found: list[Silence] = []
    for node in nodes:
        heard = beats.get(node.name)
        if heard is None or node.avail not in (NodeAvail.UP, NodeAvail.SILENT):
            continue
        allowed = restart_grace_secs if node.avail is NodeAvail.SILENT else timeout_secs
        silent = now_mono - heard
        if silent > max(allowed, timeout_secs):
            found.append(Silence(node.name, silent))
    return found

"""From a trace to what is replayed: the jobs of the trace as requests to this cluster.  Pure."""

import math
from collections import Counter
from typing import NamedTuple

from spur_core.errors import RequestError
from spur_sched.api import JobView
from spur_sched.feasible import feasible
from spur_sched.rules import partition_gate
from spur_sched.simulate.machine import Machine
from spur_sched.simulate.replay import Arrival
from spur_sched.simulate.trace import Trace, TraceError, TraceJob, plural


class Reading(NamedTuple):
    """How records become requests.

    exact: time limits are the run times, as if users could tell.
    kill: jobs end at their limit, whatever they ran when they were recorded.
    default_time: limit of jobs without a recorded one, seconds; None = their run time, 0 = unlimited.
    any_partition: a partition that the cluster lacks is its default one.
    memory: whether requests for memory count.
    whole_nodes: each job has its nodes for itself.
    skip_impossible: what the cluster could never run is left out instead of refused.
    """

    exact: bool = False
    kill: bool = False
    default_time: int | None = None
    any_partition: bool = True
    memory: bool = True
    whole_nodes: bool = False
    skip_impossible: bool = False


class Work(NamedTuple):
    """`names`: job id -> the job's name in the trace."""

    arrivals: tuple[Arrival, ...]
    names: dict[int, str]
    notes: tuple[str, ...]


def prepare(trace: Trace, machine: Machine, how: Reading) -> Work:
    """The trace's jobs as requests, in order of submission.

    Raises:
        TraceError: a job that this cluster could never run.
        RequestError: no job is left.
    """
    arrivals = []
    names = {}
    uids: dict[str, int] = {}
    seen: Counter[str] = Counter()
    could = _Could(machine)
    for job_id, record in enumerate(trace.jobs, 1):
        run, limit = _times(record, how, seen)
        uid = uids.setdefault(record.user, len(uids) + 1)
        view = _view(job_id, record, _partition(trace, record, machine, how), limit, how)._replace(uid=uid)
        obstacle = could.obstacle(view)
        if obstacle:
            if not how.skip_impossible:
                raise TraceError(
                    trace.name,
                    record.line,
                    f"job {record.name} ({plural(record.cpus, 'CPU')}) could never run here: {obstacle};"
                    " describe a cluster that can, or leave such jobs out with --skip-impossible",
                )
            seen["impossible"] += 1
            continue
        names[job_id] = record.name
        arrivals.append(Arrival(record.submit, view, run))
    if not arrivals:
        raise RequestError(f"{trace.name}: no job that could be replayed")
    return Work(tuple(arrivals), names, _notes(seen, how))


def _times(record: TraceJob, how: Reading, seen: Counter[str]) -> tuple[float, int | None]:
    """(seconds that it runs, limit)."""
    run = record.run
    # A limit of 0 would be none at all.
    own = max(1, math.ceil(run))
    if how.exact:
        return run, own
    if record.unlimited:
        return run, None
    if record.limit is None:
        seen["no limit"] += 1
        if how.default_time is None:
            return run, own
        limit: float = how.default_time
        if not limit:
            return run, None
    else:
        limit = record.limit
    whole = max(1, math.ceil(limit))
    if run > whole:
        seen["over limit"] += 1
        if how.kill:
            run = float(whole)
    return run, whole


def _partition(trace: Trace, record: TraceJob, machine: Machine, how: Reading) -> str:
    if not record.partition or record.partition in machine.partitions:
        return record.partition or machine.default
    if how.any_partition:
        return machine.default
    raise TraceError(
        trace.name,
        record.line,
        f"job {record.name} is of partition {record.partition!r}, which the cluster does not have;"
        " add it to the cluster's file, or use its default partition with --any-partition",
    )


def _view(job_id: int, record: TraceJob, partition: str, limit: int | None, how: Reading) -> JobView:
    nodes = record.nodes or 1
    return JobView(
        job_id=job_id,
        priority=1000,
        submit_at=record.submit,
        eligible_at=record.submit,
        partitions=(partition,),
        min_nodes=nodes,
        max_nodes=nodes if record.nodes else record.cpus,
        num_tasks=max(record.cpus, nodes),
        tasks_given=True,
        tasks_per_node=None,
        cpus_per_task=1,
        memory_per_node_mb=record.memory_per_node_mb if how.memory else None,
        memory_per_cpu_mb=record.memory_per_cpu_mb if how.memory else None,
        gres={},
        exclusive=how.whole_nodes,
        nodelist=frozenset(),
        exclude=frozenset(),
        constraint="",
        time_limit=limit,
        account=record.account,
    )


class _Could:
    """Whether the cluster could ever run a job, asked once for jobs that ask for the same."""

    def __init__(self, machine: Machine) -> None:
        self._partitions = machine.partitions
        self._nodes = list(machine.nodes)
        self._known: dict[tuple[object, ...], str] = {}

    def obstacle(self, view: JobView) -> str:
        """What is in its way; "" = nothing."""
        key = (
            view.partitions,
            view.min_nodes,
            view.num_tasks,
            view.memory_per_cpu_mb,
            view.memory_per_node_mb,
            view.time_limit,
        )
        if key not in self._known:
            self._known[key] = self._find(view)
        return self._known[key]

    def _find(self, view: JobView) -> str:
        found = feasible(view, self._nodes, self._partitions)
        if found is not None:
            return found.text
        why = partition_gate(view, self._partitions[view.partitions[0]])
        return why.reason if why is not None else ""


def _notes(seen: Counter[str], how: Reading) -> tuple[str, ...]:
    notes = []
    if seen["impossible"]:
        notes.append(f"{plural(seen['impossible'], 'job')} left out: this cluster could never run them")
    if seen["no limit"]:
        taken = "the run time is taken" if how.default_time is None else "--default-time is taken"
        notes.append(f"{plural(seen['no limit'], 'job')} without a recorded time limit: {taken}")
    if seen["over limit"]:
        done = "ended there" if how.kill else "left to run on"
        notes.append(f"{plural(seen['over limit'], 'job')} ran past the time limit: {done}")
    return tuple(notes)

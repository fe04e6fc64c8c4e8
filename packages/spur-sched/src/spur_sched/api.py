"""The border of the scheduler: what it is shown, and what it answers.

`plan(snapshot, now, budget)` is pure: no clock, no I/O, the same answer for the same input on every
machine.  Memory is MiB, times are seconds since the epoch.
"""

from typing import NamedTuple, Protocol

#: ("gpu", "h100") -> count; the type is "" when none was named.
GresMap = dict[tuple[str, str], int]


class NodeView(NamedTuple):
    """One node as the scheduler sees it.

    `schedulable` is False for nodes that are down, draining, silent or unknown: they count for whether a
    job could ever run, not for whether it can run now.
    """

    name: str
    cpus: int
    memory_mb: int
    gres: GresMap
    used_cpus: int
    used_memory_mb: int
    used_gres: GresMap
    schedulable: bool
    #: In the pool of nodes that exist for good (registered once); a node never seen has no resources.
    known: bool
    weight: int
    features: frozenset[str]
    #: Latest expected end of what runs here per job: (end, cpus, memory, gres); end None = no limit.
    running: tuple[tuple[float | None, int, int, GresMap], ...] = ()
    #: Attempts on this node, for exclusive requests.
    jobs: int = 0


class PartitionView(NamedTuple):
    """A partition.  `state` decides: queued jobs start in UP and DRAIN (which only refuses new ones)."""

    name: str
    up: bool
    state: str
    nodes: frozenset[str]
    max_time: int | None
    max_nodes: int | None
    min_nodes: int
    priority_tier: int


class JobView(NamedTuple):
    """A pending job that nothing but room and partitions may hold back.

    `gate` is a reason set by the caller (dependency, hold, begin time, array throttle); such jobs are
    passed over.  `tasks` are the array indices that may start now, lowest first, None for a plain job.
    """

    job_id: int
    priority: int
    submit_at: float
    eligible_at: float
    partitions: tuple[str, ...]
    min_nodes: int
    max_nodes: int
    num_tasks: int
    #: True: num_tasks was asked for; False: one task per node.
    tasks_given: bool
    tasks_per_node: int | None
    cpus_per_task: int
    #: Per node; 0 = all of the node's memory; None = see memory_per_cpu_mb; both None = none asked.
    memory_per_node_mb: int | None
    memory_per_cpu_mb: int | None
    gres: GresMap
    exclusive: bool
    nodelist: frozenset[str]
    exclude: frozenset[str]
    constraint: str
    time_limit: int | None
    tasks: tuple[int, ...] | None = None


class Snapshot(Protocol):
    """A read-only view of the cluster at one log index; it never changes under the scheduler."""

    index: int

    def nodes(self) -> list[NodeView]: ...

    def partitions(self) -> dict[str, PartitionView]: ...

    def pending(self) -> list[JobView]:
        """Eligible jobs, best first: priority descending, then eligible time, then id."""
        ...


class NodeShare(NamedTuple):
    """What a placement takes on one node; `ranks` are global task ranks."""

    node: str
    cpus: int
    memory_mb: int
    gres: GresMap
    ranks: tuple[int, ...]


class Placement(NamedTuple):
    """Start this job (or this task of it) now."""

    job_id: int
    task: int | None
    partition: str
    shares: tuple[NodeShare, ...]


class Waiting(NamedTuple):
    """Why a job does not start now: a token of spur_core.reasons, and a free text or ""."""

    job_id: int
    reason: str
    desc: str


class Plan(NamedTuple):
    """Complete when `complete`; otherwise the budget ran out and the rest was not looked at."""

    placements: tuple[Placement, ...]
    waiting: tuple[Waiting, ...]
    complete: bool = True


class Infeasible(NamedTuple):
    """A request that no set of existing nodes could ever satisfy: the sentence for the user."""

    text: str
    code: str

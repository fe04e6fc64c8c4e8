"""The border of the scheduler: what it is shown, and what it answers.

`plan(snapshot, now, budget)` is pure: no clock, no I/O, the same answer for the same input on every
machine.  Memory is MiB, times are seconds since the epoch.
"""

from typing import Final, NamedTuple, Protocol

#: A partition whose jobs share CPUs has every CPU several times: once in each layer, numbered from 1.
Layer = tuple[str, int]
#: ("gpu", "h100") -> count; the type is "" when none was named.
GresMap = dict[tuple[str, str], int]
#: Shared by whoever asks for none; never written to.
NOTHING: Final[GresMap] = {}
#: QOS -> those that it may preempt; never written to.
NO_QOS: Final[dict[str, frozenset[str]]] = {}


class Running(NamedTuple):
    """An active attempt, for preemption, licences and group limits.

    `end`: its expected end; None = no limit.  `started`: None while it is being launched.
    """

    job_id: int
    attempt: int
    priority: int
    tier: int
    partition: str
    uid: int
    account: str
    qos: str
    started: float | None
    end: float | None
    shares: tuple["NodeShare", ...]
    licenses: tuple[tuple[str, int], ...] = ()
    reservation: str = ""
    #: What may be done to it, resolved: "off", "cancel", "requeue", "suspend".
    preempt_mode: str = "off"
    #: Nobody may preempt it before this instant.
    exempt_until: float = 0.0
    #: Seconds between the signal and the kill.
    grace_secs: int = 0
    #: Since when it is being ended: its processes may be gone at any moment.
    ending_since: float | None = None
    #: It was preempted for this job, which gets its room; 0 = for nobody.
    room_for: int = 0
    #: Suspended by a preemption: its CPUs may be used by others, memory and devices are still its own.
    lent: bool = False


class Window(NamedTuple):
    """One occurrence of a reservation: its nodes are kept for its own jobs from `start` to `end`.

    Jobs that name the reservation run inside it only; jobs that do not stay off its nodes, or end before
    `start`.  `cpus` None = whole nodes.
    """

    name: str
    start: float
    end: float
    nodes: frozenset[str]
    #: For the reason of those who are kept out.
    maintenance: bool = False
    #: Its own jobs may begin before and end after it, on its nodes outside it (FLEX).
    flex: bool = False
    cpus: tuple[tuple[str, int], ...] | None = None
    licenses: tuple[tuple[str, int], ...] = ()
    #: Jobs that name no reservation and may start in this one while it holds (MAGNETIC).
    draws: frozenset[int] = frozenset()


class License(NamedTuple):
    """A licence pool.  `used` is what active jobs hold, `reserved` what nobody outside may take now."""

    total: int
    used: int
    reserved: int = 0


class Policy(NamedTuple):
    """How a pass decides, from `[scheduler]`.

    `backfill`: "easy" promises room to the first waiting job of each partition, "conservative" to each of
    the first `bf_max_job_test`, "none" starts nobody before an earlier job of the same partition.  Names
    and meanings of the others are Slurm's (SchedulerParameters); seconds.
    """

    backfill: str = "easy"
    bf_window: int = 86_400
    bf_resolution: int = 60
    bf_max_job_test: int = 1000
    bf_max_job_user: int = 0
    bf_max_job_part: int = 0
    bf_min_prio_reserve: int = 0
    default_queue_depth: int = 0
    #: "none", "partition_prio" or "qos".
    preempt_type: str = "none"
    preempt_youngest_first: bool = False
    preempt_by_size: bool = False
    #: Most victims for one job; 0 = any number.
    preempt_most: int = 0
    #: Take the lowest in order, even if that makes more of them.
    preempt_strict_order: bool = False
    #: How often another order is tried to find fewer victims.
    preempt_reorder_count: int = 1
    #: Nobody with this priority or a higher one is a victim; None = no such bound.
    preempt_min_exempt_priority: int | None = None
    #: "qos": QOS -> those whose jobs its jobs may preempt.
    preempt_qos: dict[str, frozenset[str]] = NO_QOS
    #: (switch, the switch above it or "") of the network; leaves are those that nodes name.  Empty = the
    #: network does not matter.
    topology: tuple[tuple[str, str], ...] = ()


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
    sockets: int = 1
    #: 0 = whatever `cpus` makes of it.
    cores_per_socket: int = 0
    threads_per_core: int = 1
    tmp_disk_mb: int = 0
    #: The only user whose jobs may come here while his run (ExclusiveUser); None = anybody's.
    owner: int | None = None
    #: Name of its leaf switch or block; "" = none.
    switch: str = ""
    #: Left alone for a moment because it refused work.
    cooling: bool = False
    #: Whose jobs are here: a job with `exclusive_user` (or of such a partition) needs a node without others.
    users: frozenset[int] = frozenset()
    #: (partition, CPUs) that the jobs of each partition hold here, for `max_cpus_per_node`.
    partition_cpus: tuple[tuple[str, int], ...] = ()
    #: Of each of `running` the layer that it shares CPUs in, None = it has its own; () = nobody shares.
    #: What is in a layer is not in `used_cpus`.
    layers: "tuple[Layer | None, ...]" = ()


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
    #: "NO", "YES", "FORCE" or "EXCLUSIVE", and for the middle two how many jobs share a CPU.
    oversubscribe: str = "NO"
    share: int = 1
    exclusive_user: bool = False
    max_cpus_per_node: int | None = None
    preempt_mode: str = "off"
    #: Least loaded nodes first.
    lln: bool = False
    #: Jobs must name a reservation.
    req_resv: bool = False


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

    uid: int = 0
    account: str = ""
    qos: str = ""
    #: GPUs and other typed resources of the whole job (`--gpus`), per task, per socket.
    gres_total: GresMap = NOTHING
    gres_per_task: GresMap = NOTHING
    gres_per_socket: GresMap = NOTHING
    memory_per_gpu_mb: int | None = None
    cpus_per_gpu: int | None = None
    ntasks_per_socket: int | None = None
    ntasks_per_core: int | None = None
    ntasks_per_gpu: int | None = None
    #: Least that a node must have: `--mincpus`, `--sockets-per-node`, `--cores-per-socket`,
    #: `--threads-per-core`, `--tmp` (MiB); None = anything.
    min_cpus: int | None = None
    sockets_per_node: int | None = None
    cores_per_socket: int | None = None
    threads_per_core: int | None = None
    tmp_disk_mb: int | None = None
    contiguous: bool = False
    spread: bool = False
    use_min_nodes: bool = False
    #: Most leaf switches, and until when to wait for so few (absolute; None = for ever).
    switches: int | None = None
    switches_until: float | None = None
    licenses: tuple[tuple[str, int], ...] = ()
    #: Any one of `licenses` will do (`a|b`).
    licenses_any: bool = False
    reservation: str = ""
    #: `--oversubscribe`; `--exclusive=user`.
    oversubscribe: bool = False
    exclusive_user: bool = False
    #: `--time-min`: a backfilled start may cut the limit down to this, seconds.
    time_min: int | None = None
    deadline_at: float | None = None


class Over(NamedTuple):
    """A limit keeps a job from starting: Slurm's token for it, and a sentence for who asks for details."""

    reason: str
    text: str = ""


class Near(NamedTuple):
    """A group may use hardly any node where it is not yet: `nodes` are those where it is, `fresh` so many
    others may come, fewer than the job asks for.  `over`: the limit."""

    nodes: frozenset[str]
    fresh: int
    over: Over


class Limits(Protocol):
    """Limits of associations and QOS in one pass; see `spur_sched.limits.check`.

    A job that is over a limit waits for that and holds nobody up: no room is kept for it.
    """

    def admit(self, job: JobView, partition: str = "") -> Over | None:
        """Why no run of the job may start now, whatever its nodes; asked before room is looked for."""
        ...

    def near(self, job: JobView, partition: str = "") -> Near | None:
        """Where an admitted job has to stay; None = anywhere."""
        ...

    def charge(self, job: JobView, placement: "Placement") -> Over | None:
        """Take one placed run in, or why it may not have this place, and then nothing is taken."""
        ...

    def refund(self, job: JobView, placement: "Placement") -> None:
        """A charged run does not start after all."""
        ...


class Snapshot(Protocol):
    """A read-only view of the cluster at one log index; it never changes under the scheduler."""

    index: int

    def nodes(self) -> list[NodeView]: ...

    def partitions(self) -> dict[str, PartitionView]: ...

    def pending(self) -> list[JobView]:
        """Eligible jobs, best first: priority descending, then eligible time, then id."""
        ...

    def policy(self) -> Policy: ...

    def running(self) -> list[Running]: ...

    def windows(self) -> list[Window]:
        """Active and coming occurrences of reservations, earliest first."""
        ...

    def licenses(self) -> dict[str, License]: ...

    def limits(self) -> Limits | None:
        """For this pass alone: what it starts is charged; None = nobody has limits."""
        ...


class NodeShare(NamedTuple):
    """What a placement takes on one node; `ranks` are global task ranks."""

    node: str
    cpus: int
    memory_mb: int
    gres: GresMap
    ranks: tuple[int, ...]
    #: Where CPUs are shared: which of the partition's layers its CPUs are of, 1 and up; 0 = they are its own.
    layer: int = 0


class Placement(NamedTuple):
    """Start this job (or this task of it) now."""

    job_id: int
    task: int | None
    partition: str
    shares: tuple[NodeShare, ...]
    #: The licences taken (the one chosen of `a|b`), and the limit when `time_min` cut it.
    licenses: tuple[tuple[str, int], ...] = ()
    time_limit: int | None = None
    #: The one that drew it in; "" = none, or the one that it names.
    reservation: str = ""


class Expected(NamedTuple):
    """A start that is planned for later; `nodes` sorted.  `at` inf = when work without a limit ends."""

    job_id: int
    at: float
    nodes: tuple[str, ...]


class Preemption(NamedTuple):
    """Make room for `job_id` by ending or stopping these, as told."""

    job_id: int
    #: (job id, attempt, "cancel" | "requeue" | "suspend", grace seconds)
    victims: tuple[tuple[int, int, str, int], ...]


class Waiting(NamedTuple):
    """Why a job does not start now: a token of spur_core.reasons, and a free text or ""."""

    job_id: int
    reason: str
    desc: str
    #: The same in a sentence for who asks for details; "" = the token says it all.
    text: str = ""


class Plan(NamedTuple):
    """Complete when `complete`; otherwise the budget ran out and the rest was not looked at."""

    placements: tuple[Placement, ...]
    waiting: tuple[Waiting, ...]
    complete: bool = True
    expected: tuple[Expected, ...] = ()
    preemptions: tuple[Preemption, ...] = ()
    #: Jobs looked at, and those for which room later was looked for.
    depth: int = 0
    backfill_depth: int = 0


class Infeasible(NamedTuple):
    """A request that no set of existing nodes could ever satisfy: the sentence for the user."""

    text: str
    code: str

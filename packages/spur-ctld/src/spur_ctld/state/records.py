"""What the replicated state is made of.

Every record is a frozen msgspec struct; a change replaces the record.  All of them are written to
snapshots and must load for ever: fields are only appended, each with a default, and none is renamed or
given another meaning.  Times are seconds since the epoch, put there by the proposer; memory is MiB.
"""

from typing import Final

import msgspec

from spur_core.ids import INFINITE
from spur_core.states import JobState, NodeAvail
from spur_ctld.state.inventory import Inventory

#: A time limit that is no limit; the wire's and Slurm's value.
UNLIMITED: Final = INFINITE
#: (first, last inclusive, step) of an arithmetic run of array indices.
IndexRange = tuple[int, int, int]


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Base: immutable, keyword-only, defaults left out of the encoding.

    Nothing immutable can come to refer to itself: the garbage collector need not look at tens of thousands
    of them, for which its longest pauses were."""


class Exit(Record, frozen=True, kw_only=True):
    """How something ended: exit code, or the signal that killed it."""

    code: int = 0
    signal: int = 0
    oom: bool = False
    core: bool = False


class Gres(Record, frozen=True, kw_only=True):
    """A countable resource: `gpu`, or `gpu` of type `h100`."""

    name: str
    count: int
    type: str = ""
    #: Of a slice: which ones of its node, "0-1,3"; empty = the agent chooses.
    indices: str = ""


class Slice(Record, frozen=True, kw_only=True):
    """An attempt on one node: global ranks, layer of shared CPUs (0 = none), CPUs (empty = agent chooses)."""

    node: str
    cpus: int
    memory_mb: int = 0
    gres: tuple[Gres, ...] = ()
    ranks: tuple[int, ...] = ()
    layer: int = 0
    cpu_ids: str = ""


class Usage(Record, frozen=True, kw_only=True):
    """Resources a step really used on one node."""

    user_secs: float = 0.0
    system_secs: float = 0.0
    max_rss_kb: int = 0


class NodeExit(Record, frozen=True, kw_only=True):
    """One node's report of how its part of an attempt ended."""

    exit: Exit
    at: float
    started_at: float = 0.0
    usage: Usage = Usage()


class Request(Record, frozen=True, kw_only=True):
    """What the user asked for, after the controller resolved defaults; constant over requeues, and
    replaced as a whole by an update.

    `env` is NUL-joined `NAME=value` bytes.  `memory_per_node_mb` 0 means all of a node's memory, None
    with `memory_per_cpu_mb` None means no memory was asked for and no default exists.
    """

    name: str
    user: str
    uid: int
    gid: int
    group: str = ""
    account: str = ""
    qos: str = ""
    comment: str = ""
    wckey: str = ""
    partitions: tuple[str, ...] = ()

    min_nodes: int = 1
    max_nodes: int = 1
    num_tasks: int = 1
    tasks_given: bool = False
    tasks_per_node: int | None = None
    cpus_per_task: int = 1
    cpus_per_task_given: bool = False
    memory_per_node_mb: int | None = None
    memory_per_cpu_mb: int | None = None
    gres: tuple[Gres, ...] = ()
    exclusive: bool = False
    nodelist: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    constraint: str = ""

    script: bytes = b""
    argv: tuple[bytes, ...] = ()
    script_args: tuple[bytes, ...] = ()
    env: bytes = b""
    work_dir: str = ""
    stdout: str = ""
    stderr: str = ""
    stdin: str = ""
    open_mode: str = ""
    umask: int | None = None
    rlimits: tuple[str, ...] = ()
    srun: bool = False
    label: bool = False
    command: str = ""
    submit_line: str = ""
    submit_host: str = ""
    #: Empty = the work directory.
    submit_dir: str = ""

    time_limit: int | None = None
    begin_at: float | None = None
    deadline_at: float | None = None
    dependency: str = ""
    requeue: bool = True
    kill_on_invalid_dependency: bool = False
    nice: int = 0
    warn_signal: str = ""

    #: An allocation without a command of its own (salloc): ended by its owner, a cancel or its limit.
    alloc_only: bool = False
    #: As typed: "block", "cyclic", "plane=N", "arbitrary"; empty = block.
    distribution: str = ""
    #: "arbitrary": the node of each task in order.
    task_nodes: tuple[str, ...] = ()
    #: A serialized StepShape of the wire for a stand-alone srun's tasks; not looked into here.
    shape: bytes = b""
    #: Asked for by nodes alone: how many tasks its steps run was left open.
    by_nodes: bool = False

    #: Typed resources of the whole job, of each task, of each socket.
    gres_total: tuple[Gres, ...] = ()
    gres_per_task: tuple[Gres, ...] = ()
    gres_per_socket: tuple[Gres, ...] = ()
    gpus_per_node: bool = False
    cpus_per_gpu: int | None = None
    memory_per_gpu_mb: int | None = None
    ntasks_per_socket: int | None = None
    ntasks_per_core: int | None = None
    ntasks_per_gpu: int | None = None
    #: Least that each node must have; so many CPUs the job gets, no more threads of a core it uses.
    min_cpus: int | None = None
    sockets_per_node: int | None = None
    cores_per_socket: int | None = None
    threads_per_core: int | None = None
    tmp_disk_mb: int | None = None
    contiguous: bool = False
    spread: bool = False
    use_min_nodes: bool = False
    oversubscribe: bool = False
    exclusive_user: bool = False
    #: Seconds; a start that is found in a gap may cut `time_limit` down to this.
    time_min: int | None = None
    #: Nobody asked for `time_limit`, it is the partition's; a deadline may cut it.
    limit_open: bool = False
    hint: str = ""

    #: Comma list: the first of these that can be used.
    reservation: str = ""
    #: "name:count" joined by "," (all of them) or "|" (one of them).
    licenses: str = ""
    #: Most leaf switches of the network, and for how many seconds to wait for so few.
    switches: int | None = None
    switches_wait: int = 0
    #: Added to its priority by an administrator.
    site_factor: int = 0


class Fence(Record, frozen=True, kw_only=True):
    """An attempt being made certain not to run any more.

    `outcome` is the state afterwards; PENDING means back to the queue (held when `hold_reason` is set,
    not before `not_before`).  `targets` are the nodes not yet confirmed.
    """

    outcome: JobState
    targets: tuple[str, ...]
    reason: str
    desc: str = ""
    hold_reason: str = ""
    not_before: float | None = None
    kill_uid: int | None = None
    at: float = 0.0
    #: For the line in the job's stderr: "cancelled", "timeout", "requeue", "node_fail", "launch".
    why: str = ""
    #: The launch was not confirmed, but user code may have begun: the next run counts as a restart.
    may_have_run: bool = False
    #: The exit that the job shows afterwards; None = the usual one of its outcome.
    exit: Exit | None = None


class Push(Record, frozen=True, kw_only=True):
    """The present attempt is preempted: why, and how far that has come.

    `mode`: "cancel", "requeue" or "suspend".  Grace runs from `at` to `end_at`; `unwarned` are the nodes
    whose processes have not got the signals that tell of it.
    """

    by: int
    mode: str
    at: float
    end_at: float | None = None
    unwarned: tuple[str, ...] = ()
    #: Stopped on every node: its CPUs are free for others, memory and devices stay its own.
    lent: bool = False


class StepAsk(Record, frozen=True, kw_only=True):
    """What a step asks of its job's allocation; None = not given.

    `gres` is per node; None = what the job has there.  `nodelist` keeps its order and repeats, which
    "arbitrary" goes by.
    """

    num_tasks: int | None = None
    min_nodes: int | None = None
    max_nodes: int | None = None
    cpus_per_task: int | None = None
    tasks_per_node: int | None = None
    distribution: str = ""
    exact: bool = False
    overlap: bool = False
    overcommit: bool = False
    nodelist: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    #: Index of the first node of the allocation that may be used.
    relative: int | None = None
    memory_per_node_mb: int | None = None
    memory_per_cpu_mb: int | None = None
    gres: tuple[Gres, ...] | None = None
    #: Of each task, besides `gres`; a step that asks so gets nothing that it did not ask for.
    gres_per_task: tuple[Gres, ...] = ()


class StepStop(Record, frozen=True, kw_only=True):
    """Why a step is being ended before its tasks end by themselves; recorded before the first kill.

    `why`: "cancelled", "timeout", "launch" (it could not be started everywhere), "lost" (a supervisor of it
    died).  `text` is for the step's client.  `hard`: kill without grace.
    """

    why: str
    at: float
    uid: int | None = None
    text: str = ""
    hard: bool = False


class Step(Record, frozen=True, kw_only=True):
    """One numbered or interactive step of the job's present attempt that is not over.

    `slices` are in the step's node order, `ranks` in them are the step's own.  `start_at` None = not every
    node confirmed its launch.  The step is over when each of its nodes is in `exits` or in `gone`.
    """

    step_id: int
    name: str
    created_at: float
    slices: tuple[Slice, ...]
    num_tasks: int = 1
    cpus_per_task: int = 1
    distribution: str = ""
    #: Holds nothing of the allocation for itself, and waits for nobody.
    overlap: bool = False
    exact: bool = False
    #: The slices' gres is seen but not held.
    gres_shared: bool = False
    pty: bool = False
    time_limit: int | None = None
    submit_host: str = ""
    submit_line: str = ""
    #: Under which the answer to its creation is stored.
    request_id: str = ""

    start_at: float | None = None
    #: The job's `suspended_secs` when it started.
    suspended_before: float = 0.0
    exits: dict[str, NodeExit] = {}
    #: Nodes that hold nothing of it and will not report.
    gone: tuple[str, ...] = ()
    stop: StepStop | None = None


class StepRow(Record, frozen=True, kw_only=True):
    """Accounting: one step of one attempt."""

    step_id: int
    name: str
    state: JobState
    start_at: float
    end_at: float | None = None
    exit: Exit = Exit()
    num_tasks: int = 1
    cpus: int = 0
    num_nodes: int = 1
    nodelist: str = ""
    alloc_tres: str = ""
    usage: Usage = Usage()
    max_rss_node: str = ""
    #: How the tasks lie: "Block", "Cyclic", "Plane", "Arbitrary"; empty = unknown.
    layout: str = ""


class PastStep(Record, frozen=True, kw_only=True):
    """A step of the present attempt that is over; the last few are kept for whoever watches them.

    `missing`: nodes whose report had not come when the job's end closed the step; it may still come, and
    then corrects the row.
    """

    row: StepRow
    stop: StepStop | None = None
    missing: tuple[str, ...] = ()
    #: Where it was: a client that comes late fetches its output there.
    slices: tuple[Slice, ...] = ()
    cpus_per_task: int = 1
    distribution: str = ""


class Job(Record, frozen=True, kw_only=True):
    """One job, one array task, or what is left of an array.

    For an array with tasks still pending `array_pending` is not empty and the record stands for all of
    them; each task that starts or is modified gets a record of its own, the last one keeps this one.
    `slices` are the present attempt's, in allocation order (first = batch node); `held` are the nodes
    whose part is not over.  Invariant: resources are taken exactly on `held` nodes of active jobs.
    """

    job_id: int
    request: Request
    submit_at: float
    state: JobState = JobState.PENDING
    reason: str = "None"
    desc: str = ""
    #: Base priority; 0 = held.  `prior_priority` is what release gives back.
    priority: int = 0
    prior_priority: int = 0
    eligible_at: float = 0.0
    #: Automatic hold-back (backoff, requeue delay); the user's own begin time stays in the request.
    not_before: float | None = None

    array_job_id: int | None = None
    array_task_id: int | None = None
    array_pending: tuple[IndexRange, ...] = ()
    array_throttle: int = 0
    array_count: int = 0
    array_min: int = 0
    array_max: int = 0
    array_step: int = 1

    run_attempt: int = 0
    partition: str = ""
    dispatch_at: float | None = None
    start_at: float | None = None
    end_at: float | None = None
    slices: tuple[Slice, ...] = ()
    held: tuple[str, ...] = ()
    exits: dict[str, NodeExit] = {}
    fence: Fence | None = None
    #: Time limit of the present attempt in seconds (a running job's may differ from the request's).
    time_signalled_at: float | None = None
    suspended_at: float | None = None
    suspended_secs: float = 0.0

    exit: Exit = Exit()
    derived_exit: Exit = Exit()
    kill_uid: int | None = None
    stdout_real: str = ""
    stderr_real: str = ""

    #: Counters: launch failures in a row, requeues by anybody, fences by recovery.
    launch_failures: int = 0
    restarts: int = 0
    recovery_fences: int = 0

    #: The attempt has a supervisor on each of its nodes.  Batch attempts of the first release had one on
    #: their first node only.
    everywhere: bool = False
    #: Steps inside the allocation: the id that the next one gets, and those not over, by id.
    next_step_id: int = 0
    steps: dict[int, Step] = {}
    past_steps: tuple[PastStep, ...] = ()
    #: The attempt's one interactive step was started.
    interactive_used: bool = False
    #: When the signal of `request.warn_signal` was due, and the nodes that have not passed it on.
    warned_at: float | None = None
    unwarned: tuple[str, ...] = ()
    #: Nodes that were not told yet that the attempt was suspended, or resumed.
    untold: tuple[str, ...] = ()
    #: A client (srun, salloc) has said that it lives; from then on its silence counts.
    client_seen: bool = False
    #: What the present attempt runs in, and the licences that it holds.
    reservation: str = ""
    licenses: tuple[tuple[str, int], ...] = ()
    #: It was, or is being, preempted; of an ended job how it ended.
    push: Push | None = None
    #: The request's time limit before this attempt's start cut it; None = it was not cut.
    asked_limit: int | None = None
    #: `priority` was set by hand: it is the priority, and not the base that one is made of.
    priority_given: bool = False
    #: Since when its age counts, if later than `eligible_at`: a dependency was met, a hold was lifted.
    accrue_at: float = 0.0
    #: What the present attempt started with; 0 = not known.
    start_priority: int = 0


class Node(Record, frozen=True, kw_only=True):
    """One machine.  Base state and allocations are derived from jobs, never stored."""

    name: str
    avail: NodeAvail = NodeAvail.UNKNOWN
    drain: bool = False
    fail: bool = False
    #: DOWN was an administrator's word: beats and registrations do not lift it.
    locked_down: bool = False
    reason: str = ""
    reason_at: float | None = None
    reason_uid: int | None = None

    cpus: int = 0
    memory_mb: int = 0
    gres: tuple[Gres, ...] = ()
    sockets: int = 1
    cores_per_socket: int = 1
    threads_per_core: int = 1
    tmp_disk_mb: int = 0
    weight: int = 1
    features: tuple[str, ...] = ()
    labels: dict[str, str] = {}

    address: str = ""
    port: int = 0
    hostname: str = ""
    version: str = ""
    arch: str = ""
    os: str = ""
    boot_id: str = ""
    boot_at: float | None = None
    agent_start_at: float | None = None
    registered_at: float | None = None
    last_busy_at: float | None = None
    comment: str = ""
    #: Digest of the secret of the agent that has the node's name; empty = it showed none.
    holder: str = ""
    inventory: Inventory | None = None


class Partition(Record, frozen=True, kw_only=True):
    """A queue.  `nodes` is the expanded member list, sorted; None in a limit = no limit."""

    name: str
    default: bool = False
    state: str = "UP"
    nodes: tuple[str, ...] = ()
    #: Members by label, all pairs must match; joined with `nodes`.
    selector: dict[str, str] = {}
    max_time: int | None = None
    default_time: int | None = None
    max_nodes: int | None = None
    min_nodes: int = 1
    priority_tier: int = 1
    allow_accounts: tuple[str, ...] = ()
    deny_accounts: tuple[str, ...] = ()
    allow_qos: tuple[str, ...] = ()
    deny_qos: tuple[str, ...] = ()
    preempt_mode: str = "OFF"
    def_mem_per_cpu: int | None = None
    def_mem_per_node: int | None = None
    max_mem_per_node: int | None = None
    over_time_limit: int = 0
    all_nodes: bool = False
    allow_groups: tuple[str, ...] = ()
    #: "NO"; "EXCLUSIVE": its jobs get whole nodes; "YES:n", "FORCE:n": up to n jobs share a CPU.
    oversubscribe: str = "NO"
    exclusive_user: bool = False
    max_cpus_per_node: int | None = None
    lln: bool = False
    req_resv: bool = False
    root_only: bool = False
    disable_root_jobs: bool = False
    #: Where a job goes that names this partition while it takes none; empty = nowhere.
    alternate: str = ""
    #: Seconds that a job runs before anybody preempts it; None = the cluster's.
    preempt_exempt_time: int | None = None
    #: Seconds between the signals that tell of a preemption and the end.
    grace_time: int = 0
    #: What the partition adds to a multifactor priority, by the highest of all partitions.
    priority_job_factor: int = 1


class AcctRow(Record, frozen=True, kw_only=True):
    """Accounting: everything the database holds about one attempt of one job.

    The outbox keeps at most one row per (job_id, attempt); a later event replaces it with a higher
    `seq`.  The database takes a row only when its `seq` is higher than the stored one, so replays double
    nothing.  A job that never ran has the row of the attempt it would have run as (1, or the next).
    """

    seq: int
    job_id: int
    attempt: int
    state: JobState
    name: str
    user: str
    uid: int
    gid: int
    submit_at: float
    account: str = ""
    partition: str = ""
    qos: str = ""
    reason: str = ""
    array_job_id: int | None = None
    array_task_id: int | None = None
    array_pending: str = ""
    eligible_at: float | None = None
    start_at: float | None = None
    end_at: float | None = None
    suspended_secs: float = 0.0
    time_limit: int | None = None
    exit: Exit = Exit()
    derived_exit: Exit = Exit()
    req_cpus: int = 0
    req_nodes: int = 0
    req_mem_mb: int = 0
    req_mem_per_cpu: bool = False
    alloc_cpus: int = 0
    alloc_nodes: int = 0
    nodelist: str = ""
    req_tres: str = ""
    alloc_tres: str = ""
    priority: int = 0
    work_dir: str = ""
    submit_line: str = ""
    comment: str = ""
    constraint: str = ""
    wckey: str = ""
    stdout: str = ""
    stderr: str = ""
    stdin: str = ""
    kill_uid: int | None = None
    restarts: int = 0
    steps: tuple[StepRow, ...] = ()
    #: The record moved elsewhere (an array remainder that was split away): delete, do not show.
    gone: bool = False
    #: What it ran in, what was asked for, and licences held, or asked for before the start.
    reservation: str = ""
    req_reservation: str = ""
    licenses: str = ""


class StepAcct(Record, frozen=True, kw_only=True):
    """Accounting: a step with its own row, keyed (job_id, attempt, step_id); `seq` as in `AcctRow`."""

    seq: int
    job_id: int
    attempt: int
    submit_at: float
    step: StepRow


class Answer(Record, frozen=True, kw_only=True):
    """The stored result of a request id, so that a repeat gets the same answer."""

    result: bytes
    at: float

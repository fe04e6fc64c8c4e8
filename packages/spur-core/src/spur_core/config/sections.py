"""The sections that this release honours.  Every key says what it means; the sample is made from that.

Times named `_secs`, `_minutes` and `_days` are in that unit; `max_time` and its like are durations and
stored in seconds; memory is stored in MiB.  None = no limit or not set.
"""

# ruff: noqa: RUF009 -- key makes a dataclass field.

from dataclasses import dataclass
from functools import cached_property

from spur_core.config import kinds
from spur_core.config.schema import key

_YEAR_SECS = 366 * 86400
_DAY_SECS = 86400

#: Words of priority_flags: flag -> the feature that it has to wait for; "" = it has an effect.
PRIORITY_FLAGS = {
    "ACCRUE_ALWAYS": "",
    "CALCULATE_RUNNING": "",
    "DEPTH_OBLIVIOUS": "fair share",
    "INCR_ONLY": "priorities that never fall",
    "MAX_TRES": "billing",
    "MAX_TRES_GRES": "billing",
    "NO_FAIR_TREE": "fair share",
    "NO_NORMAL_ALL": "",
    "NO_NORMAL_ASSOC": "associations",
    "NO_NORMAL_PART": "",
    "NO_NORMAL_QOS": "QOS",
    "NO_NORMAL_TRES": "",
    "SMALL_RELATIVE_TO_TIME": "",
}


@dataclass(frozen=True)
class ControllerSection:
    """`[controller]`: the controllers, and how they treat nodes and finished jobs."""

    listen_addr: str = key("[::]:6817", kinds.address, "where spurctld answers; --listen overrides")
    rest_addr: str = key("[::]:6820", kinds.address, "where the REST service answers")
    hosts: tuple[str, ...] = key(
        ("localhost",),
        kinds.texts,
        "the controllers, for commands and agents; the port comes from listen_addr",
    )
    state_dir: str = key("/var/spool/spur", kinds.path, "log, snapshots and spool; --state-dir overrides")
    max_job_id: int = key(999_999_999, kinds.whole(1, 0xFFFFFFF0), "the last job id before they start over")
    first_job_id: int = key(1, kinds.whole(1, 0xFFFFFFF0), "the first job id of a new cluster")
    peers: tuple[str, ...] = key(
        (),
        kinds.addresses,
        "members of the controller group, HOST:PORT of each raft_listen_addr, in the same order everywhere",
        example=["ctl1:6821", "ctl2:6821", "ctl3:6821"],
    )
    node_id: int | None = key(
        None,
        kinds.whole(1),
        "this controller's position in peers, from 1; found by the host's name unless given",
        example=1,
    )
    client_addrs: tuple[str, ...] = key(
        (),
        kinds.addresses,
        "where commands, agents and the other members reach each member's listen_addr, HOST:PORT, in the"
        " order of peers; empty = the host of each peer and the port of listen_addr",
        example=["ctl1:6817", "ctl2:6817", "ctl3:6817"],
    )
    raft_listen_addr: str = key("[::]:6821", kinds.address, "where the other members reach this one")
    raft_tls_dir: str = key(
        "",
        kinds.path,
        "ca.pem, member.pem and member.key of this member; empty = tls in the state directory",
        example="/etc/spur/raft",
    )
    heartbeat_timeout_secs: int = key(90, kinds.whole(1, _DAY_SECS), "a node silent for so long is DOWN")
    max_batch_requeue: int = key(5, kinds.whole(1), "automatic requeues before a job is held", live=True)
    max_launch_backoff_secs: int = key(
        300, kinds.whole(1, _DAY_SECS), "longest pause between two attempts to launch a job", live=True
    )
    hold_on_prolog_fail: bool = key(
        True, kinds.boolean, "hold a job whose node prolog failed instead of trying again", live=True
    )
    terminal_job_retention_secs: int = key(
        3600,
        kinds.whole(0, _YEAR_SECS),
        "a finished job stays in memory for so long (at least 120)",
        live=True,
    )
    dispatch_reject_cooldown_secs: int = key(
        30,
        kinds.whole(0, _DAY_SECS),
        "a node that refused a job is left alone for so long; 0 = not",
        live=True,
    )
    job_info_visibility: str = key(
        "redacted",
        kinds.word("redacted", "owner_only", "full"),
        "what other users see of a job: all but script and environment, nothing, or everything",
        live=True,
    )
    stepd_recovery_grace_secs: int = key(
        60, kinds.whole(1, _DAY_SECS), "how long a restarted agent may take to report its steps", live=True
    )
    agent_restart_grace_secs: int = key(
        300, kinds.whole(1, _DAY_SECS), "silence allowed to an agent that said it restarts", live=True
    )
    fence_unreachable: str = key(
        "wait",
        kinds.word("wait", "requeue"),
        "a job whose lost node cannot confirm that it is gone: wait for the node, or requeue at once",
        live=True,
    )
    max_array_size: int = key(
        1001, kinds.whole(1, 4_000_001), "array indices must be below this number", live=True
    )
    max_job_count: int = key(
        1_000_000, kinds.whole(1), "jobs and array tasks that the controller holds at a time", live=True
    )


@dataclass(frozen=True)
class AccountingSection:
    """`[accounting]`: the history of jobs."""

    enabled: bool = key(True, kinds.boolean, "write job history")
    database_url: str = key(
        "",
        kinds.text,
        "sqlite+aiosqlite:///PATH or postgresql+asyncpg://USER@HOST/NAME; empty = a file in state_dir",
        secret=True,
    )
    fairshare_refresh_secs: int = key(300, kinds.whole(10), "how often fair-share factors are fetched")
    grp_wall_window_days: int = key(14, kinds.whole(1, 3650), "window of the GrpWall budget")
    default_qos: str = key("", kinds.text, "QOS of a job that names none", live=True)
    require_qos: bool = key(False, kinds.boolean, "refuse jobs without a QOS", live=True)
    require_association: bool = key(False, kinds.boolean, "refuse jobs without an account", live=True)
    txn_retention_days: int = key(0, kinds.whole(0), "age at which audit rows are purged; 0 = never")


@dataclass(frozen=True)
class SchedulerSection:
    """`[scheduler]`: which job starts when."""

    plugin: str = key("backfill", kinds.word("backfill"), "the placement algorithm")
    interval_secs: int = key(1, kinds.whole(1, 3600), "longest pause between two looks at the queue")
    max_jobs_per_cycle: int = key(10_000, kinds.whole(1), "jobs looked at in one pass")
    fairshare_halflife_days: int = key(14, kinds.whole(0, 365), "half-life of past usage; 0 = 14")
    default_time_limit_minutes: int = key(
        0, kinds.whole(0), "limit of a job for which neither user nor partition sets one; 0 = none", live=True
    )
    enforce_part_limits: str = key(
        "NO",
        kinds.word("NO", "ALL", "ANY", aliases={"yes": "ALL"}),
        "refuse at submission what no (ANY) or not every (ALL) requested partition allows",
        live=True,
    )
    complete_wait_secs: int = key(
        300, kinds.whole(1, _DAY_SECS), "a job is COMPLETING for so long at most", live=True
    )
    resv_overrun_minutes: int = key(0, kinds.whole(0), "grace after the end of a reservation", live=True)
    inactive_limit_secs: int = key(
        0,
        kinds.whole(0),
        "end an interactive allocation whose client is silent; 0 = never, else 60 or more",
        live=True,
    )
    max_user_priority: int = key(1000, kinds.whole(0), "highest priority that a user may ask for", live=True)
    priority_type: str = key(
        "basic",
        kinds.word("basic", "multifactor"),
        "how priorities are made: a base that grows with the wait and the tier, or Slurm's sum of factors",
        live=True,
    )
    priority_max_age: int | None = key(
        None,
        kinds.span,
        "duration after which a job is as old as can be; 7 days unless given",
        live=True,
        example="14-00:00:00",
    )
    priority_calc_period_secs: int = key(
        300, kinds.whole(1, _DAY_SECS), "how often the priorities of waiting jobs are made anew", live=True
    )
    priority_favor_small: bool = key(False, kinds.boolean, "small jobs have the high size factors", live=True)
    priority_flags: tuple[str, ...] = key(
        (), kinds.words(*PRIORITY_FLAGS), "Slurm's PriorityFlags, such as SMALL_RELATIVE_TO_TIME", live=True
    )
    priority_weight_age: int = key(0, kinds.weight, "what an age of priority_max_age adds", live=True)
    priority_weight_assoc: int = key(0, kinds.weight, "weight of the association's priority", live=True)
    priority_weight_fairshare: int = key(0, kinds.weight, "weight of the fair share", live=True)
    priority_weight_job_size: int = key(0, kinds.weight, "what asking for the whole cluster adds", live=True)
    priority_weight_partition: int = key(
        0, kinds.weight, "what the highest priority_job_factor of all partitions adds", live=True
    )
    priority_weight_qos: int = key(0, kinds.weight, "weight of the QOS's priority", live=True)
    priority_weight_tres: dict[str, int] = key(
        {}, kinds.tres_weights, "for each TRES what asking for all of the partition's adds", live=True
    )
    backfill: str = key(
        "easy",
        kinds.word("none", "easy", "conservative"),
        "who is promised room: nobody, the first waiting job of each partition, or each of the first ones",
        live=True,
    )
    bf_window: int = key(
        86_400,
        kinds.whole(60, _YEAR_SECS),
        "seconds that conservative backfill looks ahead; at least the longest usual time limit",
        live=True,
    )
    bf_resolution: int = key(
        60,
        kinds.whole(1, 3600),
        "seconds to which conservative backfill rounds promised starts up",
        live=True,
    )
    bf_max_job_test: int = key(
        1000, kinds.whole(1, 1_000_000), "waiting jobs that conservative backfill promises room", live=True
    )
    bf_max_job_user: int = key(
        0, kinds.whole(0), "jobs of one user that backfill tries in a pass; 0 = any number", live=True
    )
    bf_max_job_part: int = key(
        0, kinds.whole(0), "jobs of one partition that backfill tries in a pass; 0 = any number", live=True
    )
    bf_min_prio_reserve: int = key(
        0, kinds.whole(0, 0xFFFFFFFF), "jobs of a lower priority are promised nothing", live=True
    )
    default_queue_depth: int = key(
        0,
        kinds.whole(0, 1_000_000),
        "jobs that a look at a long queue between two whole passes goes through; 0 = 200",
        live=True,
    )
    preempt_type: str = key(
        "none",
        kinds.word("none", "partition_prio", "qos_priority"),
        "who may preempt whom: nobody, jobs of a higher priority_tier, jobs of a QOS that lists the other's",
        live=True,
    )
    preempt_exempt_time: int = key(
        0, kinds.whole(0, _YEAR_SECS), "seconds that a job runs before anybody preempts it", live=True
    )
    preempt_youngest_first: bool = key(
        False,
        kinds.boolean,
        "of one tier preempt the job that started last, not that of least priority",
        live=True,
    )
    preempt_by_size: bool = key(
        False, kinds.boolean, "of one tier preempt the job with the fewest CPUs first", live=True
    )
    preempt_strict_order: bool = key(
        False, kinds.boolean, "keep to that order even when fewer jobs of a higher place would do", live=True
    )
    preempt_reorder_count: int = key(
        1, kinds.whole(0, 1000), "other orders tried to find fewer jobs to preempt", live=True
    )
    preempt_min_exempt_priority: int | None = key(
        None,
        kinds.whole(1),
        "jobs of this priority or a higher one are not preempted",
        live=True,
        example=5000,
    )
    max_switch_wait_secs: int = key(
        300,
        kinds.whole(0, _YEAR_SECS),
        "longest wait of a job for as few switches as it asked for",
        live=True,
    )
    kill_wait_secs: int = key(30, kinds.whole(0, 65533), "from SIGTERM to SIGKILL at a time limit", live=True)
    over_time_limit: int = key(0, kinds.grace, "duration that a job may run on past its limit", live=True)
    min_job_age_secs: int | None = key(
        None,
        kinds.whole(0, _YEAR_SECS),
        "Slurm's name for controller.terminal_job_retention_secs; set one of the two",
        live=True,
        example=3600,
    )


@dataclass(frozen=True)
class AuthSection:
    """`[auth]`: who callers are."""

    plugin: str = key(
        "jwt",
        kinds.word("none", "jwt", "spur"),
        "none = believe local callers (loopback only), jwt = signed tokens, spur = minted by spurauthd",
    )
    mode: str = key(
        "permissive",
        kinds.word("disabled", "permissive", "required"),
        "whether callers without a credential are let in; set required wherever a key exists",
    )
    jwt_key: str = key(
        "",
        kinds.text,
        "the cluster key itself; prefer jwt_key_file",
        secret=True,
        example="0123456789abcdef0123456789abcdef",
    )
    jwt_key_file: str = key(
        "",
        kinds.path,
        "file with the cluster key, the same on controllers and agents, readable by its owner alone",
        example="/etc/spur/jwt.key",
    )
    allow_root_jobs: bool = key(False, kinds.boolean, "let root run jobs")
    allow_none_off_loopback: bool = key(
        False, kinds.boolean, "serve plugin none to other hosts too: they can then be anybody"
    )


@dataclass(frozen=True)
class AgentSection:
    """`[agent]`: the node daemon."""

    listen_addr: str = key("[::]:6818", kinds.address, "where spurd answers; --listen overrides")
    state_dir: str = key(
        "", kinds.path, "where running steps live; empty = controller.state_dir", example="/var/spool/spurd"
    )
    heartbeat_interval_secs: int = key(30, kinds.whole(1, 3600), "how often spurd reports")
    supervisor: bool = key(True, kinds.boolean, "run every step under a supervisor of its own")
    stepd_path: str = key(
        "",
        kinds.path,
        "the spurstepd program; empty = beside spurd, else on PATH",
        example="/usr/libexec/spur/spurstepd",
    )
    spawn: str = key(
        "spawner",
        kinds.word("spawner", "exec"),
        "how supervisors start: forked by a prepared process (fast), or each as a fresh program",
    )
    cgroup_root: str = key(
        "auto",
        lambda value: value if value in ("auto", "none") else kinds.path(value),
        "cgroup below which steps are put: auto, none, or a directory",
    )
    epilog_timeout_secs: int = key(600, kinds.whole(1, _DAY_SECS), "time that the end of a step may take")


@dataclass(frozen=True)
class ClientSection:
    """`[client]`: the commands."""

    token_file: str = key("~/.spur/token", kinds.home_path, "the user's token, if SPUR_AUTH_TOKEN is not set")
    slurm_file_names: bool = key(
        True, kinds.boolean, "default output files are slurm-JOB.out; false: spur-JOB.out"
    )


@dataclass(frozen=True)
class PartitionEntry:
    """`[[partitions]]`: a queue."""

    name: str = key("", kinds.name, "its name", live=True, required=True, example="batch")
    default: bool = key(False, kinds.boolean, "where jobs go that name no partition", live=True)
    state: str = key("UP", kinds.word("UP", "DOWN", "DRAIN", "INACTIVE"), "whether it takes jobs", live=True)
    nodes: str = key("", kinds.hostlist, "its nodes; ALL = every node", live=True, example="n[01-16]")
    selector: dict[str, str] = key(
        {}, kinds.labels, "nodes with all these labels belong to it too", live=True, example={"rack": "r1"}
    )
    max_time: int | None = key(None, kinds.duration, "longest time limit", live=True, example="7-00:00:00")
    default_time: int | None = key(
        None, kinds.duration, "time limit of a job that sets none", live=True, example="1:00:00"
    )
    max_nodes: int | None = key(None, kinds.whole(1), "nodes per job, at most", live=True, example=16)
    min_nodes: int = key(1, kinds.whole(1), "nodes per job, at least", live=True)
    allow_accounts: tuple[str, ...] = key((), kinds.texts, "only these accounts", live=True)
    deny_accounts: tuple[str, ...] = key((), kinds.texts, "not these accounts", live=True)
    allow_qos: tuple[str, ...] = key((), kinds.texts, "only these QOS", live=True)
    deny_qos: tuple[str, ...] = key((), kinds.texts, "not these QOS", live=True)
    allow_groups: tuple[str, ...] = key(
        (), kinds.texts, "only users of these groups of the controller's host", live=True
    )
    disable_root_jobs: bool = key(False, kinds.boolean, "no jobs of root", live=True)
    root_only: bool = key(False, kinds.boolean, "only administrators submit here", live=True)
    req_resv: bool = key(False, kinds.boolean, "jobs must name a reservation", live=True)
    oversubscribe: str = key(
        "NO",
        kinds.sharing,
        "EXCLUSIVE: every job gets whole nodes; YES[:n]: up to n (4) jobs that ask for it share CPUs, "
        "FORCE[:n]: all do",
        live=True,
    )
    exclusive_user: bool = key(
        False,
        kinds.boolean,
        "a node runs jobs of one user at a time as long as one of these is there",
        live=True,
    )
    max_cpus_per_node: int | None = key(
        None, kinds.whole(1), "CPUs of each node that its jobs together may use", live=True, example=32
    )
    lln: bool = key(False, kinds.boolean, "least loaded nodes first", live=True)
    alternate: str = key(
        "", kinds.text, "partition that takes its jobs while it is in DRAIN or INACTIVE", live=True
    )
    priority_tier: int = key(0, kinds.whole(0, 65533), "jobs of a higher tier come first", live=True)
    priority_job_factor: int = key(
        1, kinds.whole(0, 65533), "its part of priority_weight_partition, by the highest of all", live=True
    )
    preempt_mode: str = key(
        "off",
        kinds.word("off", "cancel", "requeue", "suspend", aliases={"": "off"}),
        "what preemption does to its jobs",
        live=True,
    )
    preempt_exempt_time: int | None = key(
        None, kinds.whole(0, _YEAR_SECS), "overrides the scheduler's value", live=True, example=600
    )
    grace_time: int = key(
        0,
        kinds.whole(0, _YEAR_SECS),
        "seconds from the SIGTERM that tells a job of its preemption to its end",
        live=True,
    )
    over_time_limit: int = key(0, kinds.grace, "duration that a job may run on past its limit", live=True)
    def_mem_per_cpu: int | None = key(
        None, kinds.memory, "memory per CPU of a job that asks for none", live=True, example="2G"
    )
    def_mem_per_node: int | None = key(
        None, kinds.memory, "memory per node of a job that asks for none", live=True, example="4G"
    )
    max_mem_per_node: int | None = key(
        None, kinds.memory, "memory per node, at most", live=True, example="64G"
    )

    @property
    def all_nodes(self) -> bool:
        """Whether every node belongs to it."""
        return self.nodes == "ALL"

    @cached_property
    def node_names(self) -> tuple[str, ...]:
        """The names that `nodes` lists; empty for ALL."""
        return _names(self.nodes)


@dataclass(frozen=True)
class NodeEntry:
    """`[[nodes]]`: what the cluster says about nodes; the first entry that fits a node counts."""

    names: str = key("", kinds.hostlist, "the nodes meant; ALL = every node", live=True, example="n[01-16]")
    selector: dict[str, str] = key({}, kinds.labels, "or nodes with all these labels", live=True)
    cpus: int = key(0, kinds.whole(0), "CPUs to use of such a node, at most; 0 = all it has", example=8)
    memory_mb: int = key(0, kinds.whole(0), "MiB to use, at most; 0 = all it has", example=16000)
    gres: tuple[str, ...] = key(
        (), kinds.gres_list, "generic resources to use, at most; empty = all it has", example=["gpu:2"]
    )
    features: tuple[str, ...] = key(
        (), kinds.texts, "features for --constraint", live=True, example=["intel", "ib"]
    )
    address: str | None = key(
        None, kinds.host, "where to reach it until it registers", live=True, example="10.0.0.5"
    )
    weight: int = key(1, kinds.whole(0), "nodes with a HIGHER weight are used first", live=True)

    @cached_property
    def node_names(self) -> frozenset[str]:
        """The names that `names` lists; empty for ALL."""
        return frozenset(_names(self.names))

    def fits(self, name: str, labels: dict[str, str]) -> bool:
        """Whether a node of this name with these labels is meant."""
        if self.names == "ALL" or name in self.node_names:
            return True
        return bool(self.selector) and all(
            labels.get(label) == value for label, value in self.selector.items()
        )


@dataclass(frozen=True)
class LoggingSection:
    """`[logging]`: the daemons' logs."""

    level: str = key("info", kinds.word("debug", "info", "warning", "error"), "--log-level overrides")
    format: str = key("text", kinds.word("text", "json"), "one line an event, as key=value or as JSON")
    file: str = key("", kinds.path, "append to this file; empty = stderr", example="/var/log/spur.log")


@dataclass(frozen=True)
class GresEntry:
    """`[[devices.gres]]`: generic resources of the node that reads this file."""

    name: str = key("", kinds.name, "kind of resource", required=True, example="gpu")
    type: str = key("", kinds.text, "its model", example="h100")
    count: int = key(0, kinds.whole(0), "how many; 0 = as many as there are files, else 1", example=2)
    file: str = key("", kinds.text, "device files, one each", example="/dev/nvidia[0-1]")
    multiple_files: str = key("", kinds.text, "device files that belong to one resource")
    cores: str = key("", kinds.text, "CPUs near it, which its jobs get first", example="0-15,32-47")
    links: str = key(
        "", kinds.text, "how many links it has to device 0, 1, ... of its name", example="-1,4,4,0"
    )
    flags: tuple[str, ...] = key((), kinds.texts, "count_only: nothing but a number", example=["count_only"])


def _names(hostlist: str) -> tuple[str, ...]:
    from spur_core.grammar.hostlist import expand

    return () if hostlist == "ALL" else tuple(expand(hostlist))

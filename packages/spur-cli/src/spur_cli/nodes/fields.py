"""Every column of sinfo.

A column is of one kind.  KEY: rows are made of nodes that agree in it.  PLUS: a number; a row whose nodes
differ shows `min+`.  SPAN: a number; such a row shows `min-max`.  SUM: computed over all nodes of a row.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from spur_cli.nodes import states
from spur_core.grammar import duration, hostlist
from spur_core.grammar.instant import format_timestamp
from spur_core.states import NodeBase, NodeFlag

if TYPE_CHECKING:
    from spur_proto import common_pb2

    Node = common_pb2.NodeInfo
    Partition = common_pb2.PartitionInfo

KEY, PLUS, SPAN, SUM = "key", "plus", "span", "sum"


class Entry:
    """One node in one partition; the node is None for a partition without nodes.

    style: SLURM_TIME_FORMAT.  now: seconds since the epoch.
    """

    __slots__ = ("node", "now", "partition", "style")

    def __init__(self, node: "Node | None", partition: "Partition | None", style: str, now: float) -> None:
        self.node = node
        self.now = now
        self.partition = partition
        self.style = style


class Column:
    """header, kind, and a function: of an entry for KEY, of a node (number or None) for PLUS and SPAN, of the
    row's nodes for SUM."""

    __slots__ = ("function", "header", "kind")

    def __init__(self, header: str, kind: str, function: Callable[..., Any]) -> None:
        self.header = header
        self.kind = kind
        self.function = function

    def key(self, entry: Entry, exact: bool) -> object:
        """What nodes of one row have in common."""
        if self.kind == KEY:
            return self.function(entry)
        if exact and self.kind in (PLUS, SPAN) and entry.node is not None:
            return self.function(entry.node)
        return None

    def text(self, entries: Sequence[Entry]) -> str:
        """What the row shows."""
        if self.kind == KEY:
            return str(self.function(entries[0]))
        nodes = [entry.node for entry in entries if entry.node is not None]
        if self.kind == SUM:
            return str(self.function(nodes))
        numbers = sorted(value for value in map(self.function, nodes) if value is not None)
        if not numbers:
            return "N/A" if self.kind == SPAN else "0"
        low, high = _shown(numbers[0]), _shown(numbers[-1])
        if low == high:
            return low
        return f"{low}-{high}" if self.kind == SPAN else f"{low}+"


def _shown(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _node(function: "Callable[[Node], str]", missing: str = "n/a") -> Callable[[Entry], str]:
    return lambda entry: missing if entry.node is None else function(entry.node)


def _part(function: "Callable[[Partition], str]", missing: str = "n/a") -> Callable[[Entry], str]:
    return lambda entry: missing if entry.partition is None else function(entry.partition)


def _limit(seconds: int | None) -> str:
    return duration.limit_squeue(seconds, "infinite")


def _size(part: "Partition") -> str:
    high = str(part.max_nodes) if part.HasField("max_nodes") else "infinite"
    low = str(max(part.min_nodes, 1))
    return low if low == high else f"{low}-{high}"


def _reason_time(entry: Entry) -> str:
    if entry.node is None or not entry.node.HasField("reason_at"):
        return "Unknown"
    return format_timestamp(entry.node.reason_at, entry.style, entry.now)


def reason_user(node: "Node") -> str:
    """Who gave the reason."""
    if node.reason_user:
        return node.reason_user
    return str(node.reason_uid) if node.HasField("reason_uid") else "Unknown"


def _reason_user_long(node: "Node") -> str:
    return f"{reason_user(node)}({node.reason_uid})" if node.HasField("reason_uid") else "Unknown"


def _reservation(entry: "Entry") -> str:
    return entry.node.reservation if entry.node is not None else ""


def gres_named(item: "common_pb2.GresCount") -> str:
    """`gpu:mi300x:2(IDX:0-1)`; without the indices where they are not known."""
    name = f"{item.name}:{item.type}:{item.count}" if item.type else f"{item.name}:{item.count}"
    return f"{name}(IDX:{item.indices})" if item.indices else name


def gres_counts(items: "Sequence[common_pb2.GresCount]") -> str:
    """`gpu:mi300x:8,shard:4`, "(null)" for none."""
    out = [f"{i.name}:{i.type}:{i.count}" if i.type else f"{i.name}:{i.count}" for i in items]
    return ",".join(out) or "(null)"


def gres_used(node: "Node") -> str:
    """What is used of each resource the node has, zeros included."""
    used = {(item.name, item.type): gres_named(item) for item in node.gres_used}
    out = []
    for item in node.gres:
        name = f"{item.name}:{item.type}" if item.type else item.name
        out.append(used.get((item.name, item.type), f"{name}:0"))
    return ",".join(out) or "(null)"


def _usable(node: "Node") -> bool:
    return states.base(node) not in (
        NodeBase.DOWN,
        NodeBase.UNKNOWN,
        NodeBase.FUTURE,
        NodeBase.ERROR,
    ) and not node.flags & (NodeFlag.DRAIN | NodeFlag.FAIL | NodeFlag.INVAL)


def node_counts(nodes: "Sequence[Node]") -> tuple[int, int, int, int]:
    """(allocated, idle, other, total)."""
    usable = [node for node in nodes if _usable(node)]
    busy = sum(1 for node in usable if states.has_work(node))
    return busy, len(usable) - busy, len(nodes) - len(usable), len(nodes)


def cpu_counts(nodes: "Sequence[Node]") -> tuple[int, int, int, int]:
    """(allocated, idle, other, total) CPUs; idle ones of unusable nodes are other."""
    used = sum(node.alloc_cpus for node in nodes)
    total = sum(node.cpus for node in nodes)
    idle = sum(node.cpus - node.alloc_cpus for node in nodes if _usable(node))
    return used, idle, total - used - idle, total


def _slashed(numbers: tuple[int, ...]) -> str:
    return "/".join(map(str, numbers))


def _names(nodes: "Sequence[Node]") -> str:
    return hostlist.compress_sorted([node.name for node in nodes])


def _load(node: "Node") -> float | None:
    return node.cpu_load / 100 if node.HasField("cpu_load") else None


def _free(node: "Node") -> int | None:
    return node.free_memory_mb if node.HasField("free_memory_mb") else None


def _features(node: "Node") -> str:
    return ",".join(node.features) or "(null)"


def _sct(node: "Node") -> str:
    return f"{node.sockets}:{node.cores_per_socket}:{node.threads_per_core}"


def _most_cpus(part: "Partition") -> str:
    return str(part.max_cpus_per_node) if part.HasField("max_cpus_per_node") else "UNLIMITED"


def _preempt(part: "Partition") -> str:
    return part.preempt_mode.upper() or "OFF"


_AVAIL = {"UP": "up", "DOWN": "down", "DRAIN": "drain", "INACTIVE": "inact"}

#: letter, names of -O, header, kind, function.
ROWS: tuple[tuple[str, str, str, str, Callable[..., Any]], ...] = (
    ("a", "available", "AVAIL", KEY, _part(lambda p: _AVAIL.get(p.state, p.state.lower()))),
    ("A", "nodeai", "NODES(A/I) ", SUM, lambda nodes: _slashed(node_counts(nodes)[:2])),
    ("b", "features_act", "ACTIVE_FEATURES", KEY, _node(_features)),
    ("B", "maxcpuspernode", "MAX_CPUS_PER_NODE", KEY, _part(_most_cpus)),
    ("c", "cpus", "CPUS", PLUS, lambda n: n.cpus),
    ("C", "cpusstate", "CPUS(A/I/O/T)", SUM, lambda nodes: _slashed(cpu_counts(nodes))),
    ("d", "disk", "TMP_DISK", PLUS, lambda n: n.tmp_disk_mb),
    ("D", "nodes", "NODES", SUM, len),
    ("e", "freemem", "FREE_MEM", SPAN, _free),
    ("E", "reason", "REASON", KEY, _node(lambda n: n.reason or "none", "none")),
    ("f", "features", "AVAIL_FEATURES", KEY, _node(_features)),
    ("F", "nodeaiot", "NODES(A/I/O/T)", SUM, lambda nodes: _slashed(node_counts(nodes))),
    ("g", "groups", "GROUPS", KEY, _part(lambda p: ",".join(p.allow_groups) or "all")),
    ("G", "gres", "GRES", KEY, _node(lambda n: gres_counts(n.gres))),
    ("h", "oversubscribe", "OVERSUBSCRIBE", KEY, _part(lambda p: p.oversubscribe or "NO")),
    ("H", "timestamp", "TIMESTAMP", KEY, _reason_time),
    (
        "i",
        "reservation",
        "RESERVATION",
        KEY,
        _reservation,
    ),
    ("I", "priorityjobfactor", "PRIO_JOB_FACTOR", KEY, _part(lambda p: str(p.priority_job_factor))),
    (
        "l",
        "time",
        "TIMELIMIT",
        KEY,
        _part(lambda p: _limit(p.max_time_secs if p.HasField("max_time_secs") else None)),
    ),
    (
        "L",
        "defaulttime",
        "DEFAULTTIME",
        KEY,
        _part(lambda p: _limit(p.default_time_secs) if p.HasField("default_time_secs") else "n/a"),
    ),
    ("m", "memory", "MEMORY", PLUS, lambda n: n.memory_mb),
    ("M", "preemptmode", "PREEMPT_MODE", KEY, _part(_preempt)),
    ("n", "nodehost", "HOSTNAMES", KEY, _node(lambda n: n.hostname or n.name)),
    ("N", "nodelist", "NODELIST", SUM, _names),
    ("o", "nodeaddr", "NODE_ADDR", KEY, _node(lambda n: n.address or n.name)),
    ("O", "cpusload", "CPU_LOAD", SPAN, _load),
    ("p", "prioritytier", "PRIO_TIER", KEY, _part(lambda p: str(p.priority_tier))),
    ("P", "partition", "PARTITION", KEY, _part(lambda p: p.name + ("*" if p.is_default else ""))),
    ("r", "root", "ROOT", KEY, _part(lambda p: "yes" if p.root_only else "no")),
    ("R", "partitionname", "PARTITION", KEY, _part(lambda p: p.name)),
    ("s", "size", "JOB_SIZE", KEY, _part(_size)),
    ("S", "allocnodes", "ALLOCNODES", KEY, _part(lambda p: "all")),
    ("t", "statecompact", "STATE", KEY, _node(states.compact_state)),
    ("T", "statelong", "STATE", KEY, _node(states.long_state)),
    ("u", "user", "USER", KEY, _node(reason_user, "Unknown")),
    ("U", "userlong", "USER", KEY, _node(_reason_user_long, "Unknown")),
    ("v", "version", "VERSION", KEY, _node(lambda n: n.version or "N/A")),
    ("V", "cluster", "CLUSTER", KEY, lambda entry: "N/A"),
    ("w", "weight", "WEIGHT", PLUS, lambda n: n.weight),
    ("X", "sockets", "SOCKETS", PLUS, lambda n: n.sockets),
    ("Y", "cores", "CORES", PLUS, lambda n: n.cores_per_socket),
    ("z", "socketcorethread", "S:C:T", KEY, _node(_sct)),
    ("Z", "threads", "THREADS", PLUS, lambda n: n.threads_per_core),
    ("", "allocmem", "ALLOCMEM", PLUS, lambda n: n.alloc_memory_mb),
    ("", "comment", "COMMENT", KEY, lambda entry: "(null)"),
    ("", "extra", "EXTRA", KEY, lambda entry: "(null)"),
    ("", "gresused", "GRES_USED", KEY, _node(gres_used)),
    ("", "port", "PORT", PLUS, lambda n: n.port),
    ("", "statecomplete", "STATECOMPLETE", KEY, _node(lambda n: states.scontrol_state(n).lower())),
)

BY_LETTER = {row[0]: Column(row[2], row[3], row[4]) for row in ROWS if row[0]}
BY_NAME = {name: Column(row[2], row[3], row[4]) for row in ROWS for name in row[1].split()}
#: Names and letters that show which partition a row belongs to.
PARTITION_KEYS = frozenset(("P", "R", "partition", "partitionname"))

"""What holds a job back before room is looked at: partitions, their limits, and which nodes can ever do."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from spur_core import reasons
from spur_core.grammar import features
from spur_core.grammar.hostlist import compress_sorted
from spur_core.ids import INFINITE
from spur_sched.api import JobView, NodeView, PartitionView
from spur_sched.layers import layers_of
from spur_sched.need import Need, need_of, tasks_that_fit, total_room
from spur_sched.spread import Count

#: States of a partition whose queued jobs start; DRAIN only refuses new ones.
STARTING: Final = frozenset({"UP", "DRAIN"})
NODES_MISSING: Final = (
    "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
)


class Why(NamedTuple):
    """A reason token, a text to be shown in its place or "", and a sentence for who asks for details."""

    reason: str
    desc: str = ""
    text: str = ""


class Class(NamedTuple):
    """Everything but numbers that decides which nodes may take part; equal ones share their lists."""

    partition: str
    nodelist: frozenset[str]
    exclude: frozenset[str]
    constraint: str
    #: Least CPUs, sockets, cores of a socket, threads of a core, MiB of local disk; None = anything.
    hardware: tuple[int | None, ...] = ()
    #: Nodes next to each other only; the least loaded first.
    contiguous: bool = False
    by_load: bool = False
    #: Whose job it is, where nodes may be kept for one user (else None), and whether this one keeps its own.
    uid: int | None = None
    alone: bool = False
    #: CPUs of each node that the partition's jobs together may use.
    most_cpus: int | None = None
    #: The reservation that it names.
    reservation: str = ""
    #: Most leaf switches, and until when (None = for ever) it waits for so few.
    switches: tuple[int, float | None] | None = None


def count_of(job: JobView, part: PartitionView) -> Count:
    """Node and task counts of `job` under the partition's maximum."""
    most = max(job.max_nodes, job.min_nodes)
    if part.max_nodes is not None:
        most = min(most, part.max_nodes)
    return Count(
        min_nodes=max(1, job.min_nodes, len(job.nodelist)),
        max_nodes=max(most, len(job.nodelist)),
        num_tasks=max(1, job.num_tasks),
        tasks_given=job.tasks_given,
        each=1 if job.tasks_given else job.tasks_per_node or 1,
        spread=job.spread,
        fewest=job.use_min_nodes,
    )


def hardware_of(job: JobView) -> tuple[int | None, ...]:
    """What every node of the job must be, as `Class.hardware`; () = anything."""
    found = (job.min_cpus, job.sockets_per_node, job.cores_per_socket, job.threads_per_core, job.tmp_disk_mb)
    return found if any(found) else ()


def class_of(job: JobView, part: PartitionView, *, by_user: bool = False) -> Class:
    """What is wanted of the partition's nodes.

    Args:
        by_user: nodes may be kept for one user.
    """
    return Class(
        part.name,
        job.nodelist,
        job.exclude,
        job.constraint,
        hardware_of(job),
        contiguous=job.contiguous,
        by_load=part.lln or job.spread,
        uid=job.uid if by_user else None,
        alone=by_user and (job.exclusive_user or part.exclusive_user),
        most_cpus=part.max_cpus_per_node,
        reservation=job.reservation,
        switches=None if job.switches is None else (job.switches, job.switches_until),
    )


def need_in(job: JobView, part: PartitionView) -> Need:
    """What the job asks of each node in the partition."""
    need = need_of(job)
    if part.oversubscribe == "EXCLUSIVE":
        return need._replace(exclusive=True)
    # Nobody has nodes to himself where all must share.
    return need._replace(exclusive=False) if part.oversubscribe == "FORCE" and need.exclusive else need


def needs_in(job: JobView, part: PartitionView) -> list[Need]:
    """As `need_in`, of each layer of shared CPUs in turn."""
    need = need_in(job, part)
    layers = layers_of(job, part)
    return [need._replace(layer=(part.name, layer)) for layer in range(1, layers + 1)] or [need]


def limit_secs(job: JobView) -> int | None:
    """The time limit, None when there is none."""
    return None if job.time_limit is None or job.time_limit == INFINITE else job.time_limit


def partition_gate(job: JobView, part: PartitionView | None) -> Why | None:
    """Why nothing of this job may start in the partition, whatever is free."""
    if part is None:
        return Why(reasons.PARTITION_CONFIG)
    if part.state.upper() not in STARTING:
        down = part.state.upper() == "DOWN"
        return Why(reasons.PARTITION_DOWN if down else reasons.PARTITION_INACTIVE)
    least = max(1, job.min_nodes, len(job.nodelist))
    if (part.max_nodes is not None and least > part.max_nodes) or max(job.max_nodes, least) < part.min_nodes:
        return Why(reasons.PARTITION_NODE_LIMIT)
    limit = limit_secs(job)
    if part.max_time is not None and part.max_time != INFINITE and (limit is None or limit > part.max_time):
        return Why(reasons.PARTITION_TIME_LIMIT)
    if least > len(part.nodes):
        return Why(reasons.PARTITION_NODE_LIMIT)
    return None


@lru_cache(maxsize=1024)
def constraint_trees(text: str) -> tuple[features.Node, ...]:
    """The alternatives of a constraint, each to be satisfied by all nodes of the job."""
    return tuple(features.alternatives(features.parse(text)))


def usable(node: NodeView, wanted: Class, tree: features.Node) -> bool:
    """Whether name and features allow the node; features of one that never registered are not known."""
    if node.name in wanted.exclude:
        return False
    return not node.known or not wanted.constraint or features.matches(tree, node.features)


def could_ever(need: Need, node: NodeView, each: int) -> bool:
    """Whether the node, empty, holds at least `each` tasks; one that never registered is given the doubt."""
    return not node.known or tasks_that_fit(need, node, total_room(node)) >= each


def unavailable(names: Sequence[str]) -> Why:
    """Named nodes are down, drained or silent."""
    listed = compress_sorted(list(names))
    return Why(reasons.REQ_NODE_NOT_AVAIL, f"{reasons.REQ_NODE_NOT_AVAIL}, UnavailableNodes:{listed}")

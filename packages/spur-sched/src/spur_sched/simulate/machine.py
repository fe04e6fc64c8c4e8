"""The cluster that a trace is replayed on: nodes and partitions as the scheduler sees them."""

from collections.abc import Mapping
from typing import NamedTuple

from spur_core.config.model import Config
from spur_core.config.sections import PartitionEntry
from spur_core.errors import RequestError
from spur_core.grammar.gres import parse_gres
from spur_core.grammar.sharing import parse as parse_sharing
from spur_sched.api import GresMap, NodeView, PartitionView

#: Name of the only partition of a cluster that is described by numbers.
ONLY = "batch"


class Machine(NamedTuple):
    """All nodes idle.

    `default`: the partition of jobs that name none, or one that is not here where that is allowed.
    """

    nodes: tuple[NodeView, ...]
    partitions: Mapping[str, PartitionView]
    default: str

    @property
    def cpus(self) -> int:
        """All CPUs."""
        return sum(node.cpus for node in self.nodes)


class Size(NamedTuple):
    """What a node has where nothing else says so; 0 MiB = memory does not count."""

    cpus: int
    memory_mb: int = 0
    gres: str = ""


def uniform(count: int, size: Size) -> Machine:
    """`count` equal nodes in one partition."""
    width = len(str(count))
    names = [f"n{number:0{width}d}" for number in range(1, count + 1)]
    nodes = tuple(_node(name, size) for name in names)
    return Machine(nodes, {ONLY: _partition(PartitionEntry(name=ONLY, default=True), frozenset(names))}, ONLY)


def configured(config: Config, size: Size | None) -> Machine:
    """The nodes and partitions of a `spur.conf`.

    Args:
        size: of nodes whose entry does not say what they have.

    Raises:
        RequestError: the file leaves open what there is.
    """
    names: dict[str, None] = {}
    for node in config.nodes:
        names.update(dict.fromkeys(sorted(node.node_names)))
    for part in config.partitions:
        names.update(dict.fromkeys(part.node_names))
    if not names:
        raise RequestError("the file lists no nodes by name; list them in nodes of a partition")
    nodes = []
    for name in names:
        entry = config.node_entry(name, {})
        cpus = entry.cpus if entry is not None and entry.cpus else size.cpus if size is not None else 0
        if not cpus:
            raise RequestError(
                f"node {name}: nothing says how many CPUs it has; add cpus to [[nodes]] or --cpus"
            )
        memory = entry.memory_mb if entry is not None and entry.memory_mb else size.memory_mb if size else 0
        gres = ",".join(entry.gres) if entry is not None and entry.gres else size.gres if size else ""
        nodes.append(
            _node(
                name,
                Size(cpus, memory, gres),
                weight=entry.weight if entry is not None else 1,
                features=frozenset(entry.features) if entry is not None else frozenset(),
            )
        )
    partitions = {
        part.name: _partition(part, frozenset(names) if part.all_nodes else frozenset(part.node_names))
        for part in config.partitions
    }
    if not partitions:
        partitions = {ONLY: _partition(PartitionEntry(name=ONLY, default=True), frozenset(names))}
    default = next((part.name for part in config.partitions if part.default), next(iter(partitions)))
    return Machine(tuple(nodes), partitions, default)


def _node(name: str, size: Size, weight: int = 1, features: frozenset[str] = frozenset()) -> NodeView:
    gres: GresMap = {}
    for kind, model, count in parse_gres(size.gres) if size.gres else ():
        gres[kind, model] = gres.get((kind, model), 0) + count
    return NodeView(
        name=name,
        cpus=size.cpus,
        memory_mb=size.memory_mb,
        gres=gres,
        used_cpus=0,
        used_memory_mb=0,
        used_gres={},
        schedulable=True,
        known=True,
        weight=weight,
        features=features,
    )


def _partition(entry: PartitionEntry, nodes: frozenset[str]) -> PartitionView:
    sharing = parse_sharing(entry.oversubscribe)
    return PartitionView(
        name=entry.name,
        up=entry.state == "UP",
        state=entry.state,
        nodes=nodes,
        max_time=entry.max_time,
        max_nodes=entry.max_nodes,
        min_nodes=entry.min_nodes,
        priority_tier=entry.priority_tier,
        oversubscribe=sharing.word,
        share=sharing.most,
        exclusive_user=entry.exclusive_user,
        max_cpus_per_node=entry.max_cpus_per_node,
        lln=entry.lln,
        req_resv=entry.req_resv,
    )

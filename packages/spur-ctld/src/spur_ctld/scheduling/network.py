"""Where nodes stand in the network: from the configuration, and for blocks from the nodes that there are."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from spur_core.config.sections_later import TopologySection
from spur_core.grammar.hostlist import expand, natural_key
from spur_ctld.ledger import Ledger
from spur_ctld.state.events import Event, NodeChanged, StateReplaced
from spur_sched.topology import Topology, blocks, tree

#: Nodes of a block when the configuration does not say.
BLOCK_SIZE: Final = 18


class Shape(NamedTuple):
    """The network as it is now.

    Attributes:
        leaves: node -> its leaf switch or block.
        speeds: switch -> link speed.
    """

    plugin: str
    topology: Topology
    leaves: Mapping[str, str]
    speeds: Mapping[str, int]
    block_size: int = BLOCK_SIZE

    def address(self, node: str) -> tuple[str, str]:
        """What SLURM_TOPOLOGY_ADDR and SLURM_TOPOLOGY_ADDR_PATTERN say of a node."""
        if self.plugin == "block":
            leaf = self.leaves.get(node, "")
            return (f"{leaf}.{node}", "block.node") if leaf else (node, "node")
        path = self.topology.path(self.leaves.get(node, ""))
        return ".".join((*path, node)), ".".join((*("switch" for _ in path), "node"))

    def nodes_below(self, switch: str) -> list[str]:
        """Nodes under a switch, sorted."""
        leaves = set(self.topology.under.get(switch, ()))
        return sorted((name for name, leaf in self.leaves.items() if leaf in leaves), key=natural_key)


class Network:
    """The shape for the nodes of the ledger; blocks are cut anew whenever a node comes or goes."""

    def __init__(self, ledger: Ledger, section: TopologySection) -> None:
        self._ledger = ledger
        self._section = section
        self._names: frozenset[str] | None = None
        self._known: frozenset[str] = frozenset()
        self._shape: Shape | None = None
        ledger.subscribe(self._on_events)

    def _on_events(self, events: Sequence[Event]) -> None:
        if any(isinstance(event, (NodeChanged, StateReplaced)) for event in events):
            self._names = None

    def shape(self) -> Shape:
        """As it is now; the same object until something changes."""
        if self._names is None or self._shape is None:
            names = frozenset(self._ledger.state.nodes)
            if self._shape is None or names != self._known:
                self._shape = shape_of(self._section, names)
            self._names = self._known = names
        return self._shape


def shape_of(section: TopologySection, nodes: frozenset[str]) -> Shape:
    """The network of these nodes."""
    ordered = sorted(nodes, key=natural_key)
    if section.plugin == "block":
        size = section.block_size or BLOCK_SIZE
        topology, leaves = blocks(ordered, size)
        return Shape("block", topology, leaves, {}, size)
    if section.plugin != "tree":
        return Shape("none", Topology({}), {}, {})
    topology = tree((one.name, expand(one.switches)) for one in section.switches)
    of: dict[str, str] = {}
    for one in section.switches:
        for name in ordered if one.nodes == "ALL" else expand(one.nodes):
            of.setdefault(name, one.name)
    return Shape("tree", topology, of, {one.name: one.link_speed for one in section.switches})

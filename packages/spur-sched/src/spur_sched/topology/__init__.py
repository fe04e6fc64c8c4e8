"""Where nodes stand in the network, and which of them a job should get."""

from spur_sched.topology.picking import pick
from spur_sched.topology.tree import Topology, blocks, tree

__all__ = ["Topology", "blocks", "pick", "tree"]

"""The shape of the network as the wire shows it, and from when on jobs may be preempted."""

from typing import Any

from spur_core.errors import NotFound
from spur_core.grammar.hostlist import compress_sorted
from spur_core.states import JobState
from spur_ctld.scheduling.network import Shape
from spur_ctld.scheduling.running import exempt_until
from spur_ctld.site import Site
from spur_ctld.state.records import Job
from spur_proto import controller_pb2 as pb

_LIVE = frozenset({JobState.RUNNING, JobState.SUSPENDED})


def switches(shape: Shape, node: str = "", switch: str = "") -> list[pb.TopologySwitch]:
    """Switches or blocks, leaves first.

    Args:
        node: only what is above this node.
        switch: only this one.
    """
    topology = shape.topology
    above = set(topology.path(shape.leaves.get(node, ""))) if node else set(topology.parents)
    found = []
    blocks = shape.plugin == "block"
    for level, names in enumerate(topology.by_level[:1] if blocks else topology.by_level):
        for index, name in enumerate(names):
            if name not in above or switch not in ("", name):
                continue
            below = topology.children[name]
            one = pb.TopologySwitch(
                name=name,
                level=level,
                nodes=compress_sorted(shape.nodes_below(name)),
                switches=compress_sorted(below) if below else "",
            )
            if blocks:
                one.block_index, one.block_size = index, shape.block_size
            else:
                one.link_speed = shape.speeds.get(name, 1)
            found.append(one)
    return found


def preemptable_at(site: Site, job: Job) -> float | None:
    """From when on a running job may be preempted; None when nobody ever may."""
    if site.settings.policy.preempt_type == "none" or job.state not in _LIVE or job.start_at is None:
        return None
    partition = site.ledger.state.partitions.get(job.partition)
    if partition is None or partition.preempt_mode.upper() == "OFF":
        return None
    return exempt_until(job, partition, site.settings.preempt_exempt_secs)


class NetworkShape:
    """GetTopology."""

    site: Site

    async def GetTopology(self, request: pb.GetTopologyRequest, context: Any) -> pb.GetTopologyResponse:
        shape = self.site.network.shape()
        found = switches(shape, request.node, request.switch_name)
        if not found and shape.plugin != "none" and (request.node or request.switch_name):
            raise NotFound(f"Topology of {request.node or request.switch_name} not found")
        return pb.GetTopologyResponse(plugin=shape.plugin, switches=found)

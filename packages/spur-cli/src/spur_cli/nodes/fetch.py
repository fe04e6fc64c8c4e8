"""Asking for nodes and partitions."""

from typing import TYPE_CHECKING

from spur_cli.transport import Transport

if TYPE_CHECKING:
    from spur_proto import common_pb2


def all_nodes(transport: Transport) -> "list[common_pb2.NodeInfo]":
    """Every node, in the controller's order."""
    from spur_proto import controller_pb2 as pb

    return list(transport.call("GetNodes", pb.GetNodesRequest(), pb.GetNodesResponse).nodes)


def all_partitions(transport: Transport) -> "list[common_pb2.PartitionInfo]":
    """Every partition, in configuration order."""
    from spur_proto import controller_pb2 as pb

    return list(
        transport.call("GetPartitions", pb.GetPartitionsRequest(), pb.GetPartitionsResponse).partitions
    )


def node_names(transport: Transport) -> set[str]:
    """The names of all nodes."""
    return {node.name for node in all_nodes(transport)}

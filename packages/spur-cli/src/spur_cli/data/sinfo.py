"""`sinfo --json`: the rows of the default layout, in the keys of Slurm's data parser."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from spur_cli.data.partition import partition_tree
from spur_cli.data.values import nv
from spur_cli.nodes import fields, states

if TYPE_CHECKING:
    from spur_cli.nodes.fields import Entry
    from spur_proto import common_pb2

    Node = common_pb2.NodeInfo


def state_words(node: "Node | None") -> list[str]:
    """`["IDLE", "DRAIN"]`."""
    return [] if node is None else states.scontrol_state(node).replace("*", "+NOT_RESPONDING").split("+")


def span(nodes: "Sequence[Node]", number: "Callable[[Node], int]") -> dict[str, int]:
    """The least and the most, 0 of none."""
    found = [number(node) for node in nodes]
    return {"minimum": min(found, default=0), "maximum": max(found, default=0)}


def _gres(node: "Node | None", text: "Callable[[Node], str]") -> str:
    if node is None:
        return ""
    told = text(node)
    return "" if told == "(null)" else told


def row_tree(entries: "Sequence[Entry]", cluster: str) -> dict[str, Any]:
    """One row: nodes that are alike in one partition."""
    nodes = [entry.node for entry in entries if entry.node is not None]
    first = nodes[0] if nodes else None
    partition = entries[0].partition
    allocated, idle, other, total = fields.node_counts(nodes)
    cpus = fields.cpu_counts(nodes)
    free = [node.free_memory_mb for node in nodes if node.HasField("free_memory_mb")]
    loads = [node.cpu_load for node in nodes if node.HasField("cpu_load")]
    features = ",".join(first.features) if first is not None else ""
    most_cpus = (
        partition.max_cpus_per_node
        if partition is not None and partition.HasField("max_cpus_per_node")
        else None
    )
    reason_at = first.reason_at if first is not None and first.HasField("reason_at") else None
    reason_user = fields.reason_user(first) if first is not None and first.reason else ""
    return {
        "port": first.port if first is not None else 0,
        "node": {"state": state_words(first)},
        "nodes": {
            "allocated": allocated,
            "idle": idle,
            "other": other,
            "total": total,
            "hostnames": [node.hostname or node.name for node in nodes],
            "addresses": [node.address or node.name for node in nodes],
            "nodes": [node.name for node in nodes],
        },
        "cpus": {
            "allocated": cpus[0],
            "idle": cpus[1],
            "other": cpus[2],
            "total": cpus[3],
            **span(nodes, lambda node: node.cpus),
            "load": {"minimum": min(loads, default=0), "maximum": max(loads, default=0)},
            "per_node": {"max": nv(most_cpus, infinite=most_cpus is None)},
        },
        "sockets": span(nodes, lambda node: node.sockets),
        "cores": span(nodes, lambda node: node.cores_per_socket),
        "threads": span(nodes, lambda node: node.threads_per_core),
        "disk": span(nodes, lambda node: node.tmp_disk_mb),
        "memory": {
            **span(nodes, lambda node: node.memory_mb),
            "free": {"minimum": nv(min(free, default=None)), "maximum": nv(max(free, default=None))},
            "allocated": sum(node.alloc_memory_mb for node in nodes),
        },
        "weight": span(nodes, lambda node: node.weight),
        "features": {"total": features, "active": features},
        "gres": {
            "total": _gres(first, lambda node: fields.gres_counts(node.gres)),
            "used": _gres(first, fields.gres_used),
        },
        "partition": partition_tree(partition, cluster) if partition is not None else {},
        "cluster": cluster,
        "comment": "",
        "extra": "",
        "reason": {
            "description": first.reason if first is not None else "",
            "time": nv(None if reason_at is None else int(reason_at)),
            "user": reason_user,
        },
        "reservation": first.reservation if first is not None else "",
    }

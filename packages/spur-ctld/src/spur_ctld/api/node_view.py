"""Nodes and partitions as the wire shows them.  Pure."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from spur_core.grammar.hostlist import compress_sorted
from spur_core.grammar.idlist import text_of
from spur_core.grammar.tres import format_tres
from spur_core.states import JobState, NodeAvail, NodeBase, NodeFlag
from spur_ctld.dispatch.launch_spec import gres_messages
from spur_ctld.state import access, naming
from spur_ctld.state.accounting_rows import add_gres
from spur_ctld.state.cluster import ClusterState, NodeUse
from spur_ctld.state.records import Gres, Job, Node, Partition
from spur_ctld.state.reservations import Reservation
from spur_proto import common_pb2 as pb


class Load(NamedTuple):
    """What the last beat of a node said; leader's memory only."""

    cpu_load: int
    free_memory_mb: int


def base_state(node: Node, use: NodeUse | None) -> NodeBase:
    """IDLE, MIXED and ALLOCATED follow from what attempts hold."""
    if node.avail is NodeAvail.DOWN:
        return NodeBase.DOWN
    if node.avail is NodeAvail.UNKNOWN:
        return NodeBase.UNKNOWN
    if use is None or not use.jobs:
        return NodeBase.IDLE
    return NodeBase.ALLOCATED if use.cpus >= node.cpus else NodeBase.MIXED


def flags(
    node: Node, use: NodeUse | None, jobs: Mapping[int, Job], kept: Reservation | None = None
) -> NodeFlag:
    """DRAIN, FAIL, NOT_RESPONDING, COMPLETING, MAINT and RESERVED."""
    found = NodeFlag.NONE
    if kept is not None and kept.cpus is None:
        found |= NodeFlag.MAINT if "MAINT" in kept.flags else NodeFlag.RESERVED
    if node.drain:
        found |= NodeFlag.DRAIN
    if node.fail:
        found |= NodeFlag.FAIL
    if node.avail is NodeAvail.SILENT or (node.avail is NodeAvail.DOWN and not node.locked_down):
        found |= NodeFlag.NOT_RESPONDING
    if use is not None and any(
        jobs[job_id].state is JobState.COMPLETING for job_id in use.jobs if job_id in jobs
    ):
        found |= NodeFlag.COMPLETING
    return found


def used_gres(use: NodeUse | None) -> list[pb.GresCount]:
    """What is used, and which ones if that is known of all of them."""
    if use is None:
        return []
    found = []
    for (name, kind), count in sorted(use.gres.items()):
        mask = 0
        for part in use.parts.values():
            for item in part.gres:
                if (item.name, item.type) == (name, kind):
                    mask |= naming.mask(item.indices)
        indices = text_of(mask) if mask.bit_count() == count else ""
        found.append(pb.GresCount(name=name, type=kind, count=count, indices=indices))
    return found


def node_message(
    state: ClusterState,
    node: Node,
    partitions: list[str],
    load: Load | None,
    reason_user: str,
    kept: Reservation | None = None,
) -> pb.NodeInfo:
    """The wire form of one node; `kept`: the active reservation that it is under."""
    use = state.use.get(node.name)
    message = pb.NodeInfo(
        name=node.name,
        base=int(base_state(node, use)),  # type: ignore[arg-type]
        flags=int(flags(node, use, state.jobs, kept)),
        reservation=kept.name if kept is not None else "",
        reason=node.reason,
        reason_at=node.reason_at,
        reason_uid=node.reason_uid,
        reason_user=reason_user,
        partitions=partitions,
        cpus=node.cpus,
        alloc_cpus=use.cpus if use else 0,
        memory_mb=node.memory_mb,
        alloc_memory_mb=use.memory_mb if use else 0,
        gres=gres_messages(node.gres),
        gres_used=used_gres(use),
        sockets=node.sockets,
        cores_per_socket=node.cores_per_socket,
        threads_per_core=node.threads_per_core,
        tmp_disk_mb=node.tmp_disk_mb,
        weight=node.weight,
        features=node.features,
        address=node.address,
        port=node.port,
        hostname=node.hostname,
        version=node.version,
        arch=node.arch,
        os=node.os,
        boot_at=node.boot_at,
        agent_start_at=node.agent_start_at,
        last_busy_at=node.last_busy_at,
        labels=node.labels,
    )
    owned = access.owning_job(state, (state.jobs[job_id] for job_id in sorted(use.jobs))) if use else None
    if owned is not None:
        message.owner = f"{owned.request.user}({owned.request.uid})"
    if load is not None:
        message.free_memory_mb = load.free_memory_mb
        message.cpu_load = load.cpu_load
    return message


def members(partitions: Iterable[Partition]) -> dict[str, list[str]]:
    """Node name -> names of the partitions that it is in, in their order."""
    found: dict[str, list[str]] = {}
    for partition in partitions:
        for node in partition.nodes:
            found.setdefault(node, []).append(partition.name)
    return found


def _totals(nodes: Iterable[Node]) -> dict[str, int]:
    amounts = {"cpu": 0, "mem": 0, "node": 0, "billing": 0}
    for node in nodes:
        amounts["cpu"] += node.cpus
        amounts["billing"] += node.cpus
        amounts["mem"] += node.memory_mb
        amounts["node"] += 1
        for item in node.gres:
            _count(amounts, item)
    return amounts


def _count(amounts: dict[str, int], item: Gres) -> None:
    add_gres(amounts, item.name, item.type, item.count)


def partition_message(partition: Partition, nodes: Mapping[str, Node]) -> pb.PartitionInfo:
    """The wire form of one partition with its counts."""
    totals = _totals(nodes[name] for name in partition.nodes if name in nodes)
    return pb.PartitionInfo(
        name=partition.name,
        state=partition.state,
        is_default=partition.default,
        nodes=compress_sorted(list(partition.nodes)),
        node_names=partition.nodes,
        total_nodes=totals["node"],
        total_cpus=totals["cpu"],
        total_memory_mb=totals["mem"],
        tres=format_tres(totals),
        max_time_secs=partition.max_time,
        default_time_secs=partition.default_time,
        max_nodes=partition.max_nodes,
        min_nodes=partition.min_nodes,
        priority_tier=partition.priority_tier,
        priority_job_factor=partition.priority_job_factor,
        allow_accounts=partition.allow_accounts,
        deny_accounts=partition.deny_accounts,
        allow_qos=partition.allow_qos,
        deny_qos=partition.deny_qos,
        allow_groups=partition.allow_groups,
        oversubscribe=partition.oversubscribe,
        exclusive_user=partition.exclusive_user,
        max_cpus_per_node=partition.max_cpus_per_node,
        lln=partition.lln,
        req_resv=partition.req_resv,
        root_only=partition.root_only,
        disable_root_jobs=partition.disable_root_jobs,
        alternate=partition.alternate,
        preempt_mode=partition.preempt_mode,
        def_memory_per_cpu_mb=partition.def_mem_per_cpu,
        def_memory_per_node_mb=partition.def_mem_per_node,
        max_memory_per_node_mb=partition.max_mem_per_node,
        over_time_limit_secs=partition.over_time_limit or None,
        grace_time_secs=partition.grace_time,
        preempt_exempt_secs=partition.preempt_exempt_time,
    )

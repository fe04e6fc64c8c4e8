"""Nodes and the configuration: registration, silence, loss, administration."""

import msgspec

from spur_core import reasons
from spur_core.errors import IllegalTransition
from spur_core.states import ACTIVE_STATES, JobState, NodeAvail, NodeEvent, next_node_avail
from spur_ctld.state.apply_fence import live_nodes
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.endings import begin_fence, cross_off
from spur_ctld.state.events import ConfigChanged, NodeChanged, RoomFreed
from spur_ctld.state.ops import (
    Configure,
    Done,
    NodeBack,
    NodeDown,
    NodeRegister,
    NodeSilent,
    NodeUpdate,
    Refusal,
)
from spur_ctld.state.records import Fence, Node, Partition


def configure(state: ClusterState, op: Configure) -> Done:
    """Replace settings and partitions; partitions that vanished go when nothing uses them."""
    state.settings = op.settings
    state.next_job_id = max(state.next_job_id, op.settings.first_job_id)
    wanted = {partition.name: partition for partition in op.partitions}
    used = {
        name
        for job in state.jobs.values()
        if job.state is JobState.PENDING or job.state in ACTIVE_STATES
        for name in (job.partition, *job.request.partitions)
    }
    kept = {name: part for name, part in state.partitions.items() if name not in wanted and name in used}
    inactive = {name: msgspec.structs.replace(part, state="INACTIVE") for name, part in kept.items()}
    state.partitions = {**wanted, **inactive}
    for overlay in op.nodes:
        known = state.nodes.get(overlay.name)
        if known is None:
            state.nodes[overlay.name] = overlay
        else:
            state.nodes[overlay.name] = msgspec.structs.replace(
                known, weight=overlay.weight, features=overlay.features
            )
    state.emit(ConfigChanged())
    return Done()


def members(state: ClusterState, partition: Partition) -> list[str]:
    """Names of the partition's nodes, in the order of its list; nodes found by label follow."""
    if partition.all_nodes:
        return list(state.nodes)
    names = list(partition.nodes)
    if partition.selector:
        named = set(names)
        wanted = partition.selector.items()
        names += [n.name for n in state.nodes.values() if n.name not in named and wanted <= n.labels.items()]
    return names


def register(state: ClusterState, op: NodeRegister) -> Done:
    """An agent said what its node is.  Another boot id proves that nothing of before runs there."""
    said = op.node
    known = state.nodes.get(said.name)
    if op.held_by is not None and (known.holder if known is not None else "") != op.held_by:
        return Done(refusal=Refusal("access_denied", f"another agent registered as {said.name} meanwhile"))
    if known is None:
        state.nodes[said.name] = msgspec.structs.replace(said, avail=NodeAvail.UP, registered_at=op.at)
    else:
        locked = known.locked_down
        avail = known.avail if locked else next_node_avail(known.avail, NodeEvent.REGISTER)
        lost_only = known.avail is NodeAvail.DOWN and not locked
        state.nodes[said.name] = msgspec.structs.replace(
            said,
            avail=avail,
            drain=known.drain,
            fail=known.fail,
            locked_down=locked,
            reason="" if lost_only and not known.drain else known.reason,
            reason_at=None if lost_only and not known.drain else known.reason_at,
            reason_uid=None if lost_only and not known.drain else known.reason_uid,
            weight=known.weight,
            features=known.features,
            comment=known.comment,
            last_busy_at=known.last_busy_at,
            registered_at=op.at,
        )
        if known.boot_id and said.boot_id and known.boot_id != said.boot_id:
            _rebooted(state, said.name, op.at)
    _drain_if_too_small(state, said.name, op.at)
    state.emit(NodeChanged(said.name))
    state.emit(RoomFreed((said.name,)))
    return Done()


def _drain_if_too_small(state: ClusterState, name: str, at: float) -> None:
    """A node that lost hardware which is in use gets no more work until somebody looked."""
    short = _short_of(state, name)
    if short and not state.nodes[name].drain:
        state.nodes[name] = msgspec.structs.replace(
            state.nodes[name],
            drain=True,
            reason=f"registered with less than is in use: {', '.join(short)}",
            reason_at=at,
        )


def _short_of(state: ClusterState, name: str) -> list[str]:
    """What jobs hold more of on the node than it has."""
    node, use = state.nodes[name], state.use_of(name)
    total = {(item.name, item.type): item.count for item in node.gres}
    short = [key[0] for key, count in use.gres.items() if count > total.get(key, 0)]
    if node.memory_mb and use.memory_mb > node.memory_mb:
        short.insert(0, "memory")
    if use.cpus > node.cpus:
        short.insert(0, "CPUs")
    return short


def _rebooted(state: ClusterState, name: str, at: float) -> None:
    for job_id in sorted(state.use_of(name).jobs):
        if state.jobs[job_id].fence is None:
            _fence_lost(state, job_id, at)
        job = state.jobs[job_id]
        if job.fence is not None and name in job.fence.targets:
            cross_off(state, job, name, at)


def _fence_lost(state: ClusterState, job_id: int, at: float) -> None:
    job = state.jobs[job_id]
    outcome = JobState.PENDING if job.request.requeue and not job.request.srun else JobState.NODE_FAIL
    begin_fence(
        state,
        job,
        Fence(
            outcome=outcome,
            targets=live_nodes(job),
            reason=reasons.NODE_DOWN,
            desc="",
            at=at,
            why="node_fail",
        ),
    )


def silent(state: ClusterState, op: NodeSilent) -> Done:
    """The agent restarts: no new work, its jobs go on."""
    return _avail(state, op.name, NodeEvent.RESTARTING, "", op.at)


def back(state: ClusterState, op: NodeBack) -> Done:
    """A beat from a node that was silent or down."""
    node = state.nodes.get(op.name)
    if node is not None and node.locked_down:
        return Done(refusal=Refusal("wrong_state", f"node {op.name} was set down by an administrator"))
    return _avail(state, op.name, NodeEvent.BEAT, "", op.at)


def down(state: ClusterState, op: NodeDown) -> Done:
    """The node is lost, or set down: every attempt on it is fenced."""
    by_admin = op.who.uid is not None
    event = NodeEvent.ADMIN_DOWN if by_admin else NodeEvent.TIMEOUT
    result = _avail(state, op.name, event, op.reason, op.at, by=op.who.uid)
    if result.refusal is None:
        if by_admin:
            state.nodes[op.name] = msgspec.structs.replace(state.nodes[op.name], locked_down=True)
        for job_id in sorted(state.use_of(op.name).jobs):
            _fence_lost(state, job_id, op.at)
    return result


def _avail(
    state: ClusterState, name: str, event: NodeEvent, reason: str, at: float, by: int | None = None
) -> Done:
    node = state.nodes.get(name)
    if node is None:
        return Done(refusal=Refusal("not_found", f"Node {name} not found"))
    try:
        avail = next_node_avail(node.avail, event)
    except IllegalTransition as error:
        return Done(refusal=Refusal(error.code, error.text))
    keeps_reason = node.drain or node.fail
    changes: dict[str, object] = {"avail": avail}
    if reason and not keeps_reason:
        changes |= {"reason": reason, "reason_at": at, "reason_uid": by}
    elif event is NodeEvent.BEAT and node.avail is NodeAvail.DOWN and not keeps_reason:
        changes |= {"reason": "", "reason_at": None, "reason_uid": None}
    state.nodes[name] = msgspec.structs.replace(node, **changes)
    state.emit(NodeChanged(name))
    if avail is NodeAvail.UP:
        state.emit(RoomFreed((name,)))
    return Done()


def update(state: ClusterState, op: NodeUpdate) -> Done:
    """Drain, resume, fail, weight, comment; all names must exist."""
    missing = [name for name in op.names if name not in state.nodes]
    if missing or not op.names:
        return Done(refusal=Refusal("not_found", "Invalid node name specified"))
    if op.state in ("resume", "idle", "undrain"):
        for name in op.names:
            if short := _short_of(state, name):
                text = (
                    f"node {name} has less {', '.join(short)} than its jobs hold; resume it when they ended"
                )
                return Done(refusal=Refusal("wrong_state", text))
    for name in op.names:
        node = _administered(state.nodes[name], op)
        if op.weight is not None:
            node = msgspec.structs.replace(node, weight=op.weight)
        if op.comment is not None:
            node = msgspec.structs.replace(node, comment=op.comment)
        state.nodes[name] = node
        state.emit(NodeChanged(name))
        if state.schedulable(node):
            state.emit(RoomFreed((name,)))
    return Done()


def _administered(node: Node, op: NodeUpdate) -> Node:
    why: dict[str, object] = {"reason": op.reason, "reason_at": op.at, "reason_uid": op.who.uid}
    if op.state == "drain":
        return msgspec.structs.replace(node, drain=True, **why)
    if op.state == "fail":
        return msgspec.structs.replace(node, fail=True, **why)
    if op.state == "undrain":
        return msgspec.structs.replace(node, drain=False)
    if op.state in ("resume", "idle"):
        return msgspec.structs.replace(
            node,
            drain=False,
            fail=False,
            locked_down=False,
            avail=next_node_avail(node.avail, NodeEvent.ADMIN_RESUME) if node.locked_down else node.avail,
            reason="",
            reason_at=None,
            reason_uid=None,
        )
    return msgspec.structs.replace(node, **why) if op.reason else node

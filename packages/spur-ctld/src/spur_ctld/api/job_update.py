"""From an UpdateJob request to the operation that does it.  Pure."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from spur_core.errors import RequestError
from spur_core.grammar import features, hostlist
from spur_ctld import bounds, submit, submit_wishes
from spur_ctld.state import resv_gate
from spur_ctld.state.cluster import ClusterState
from spur_ctld.state.ops import Hold, Target, Update, Who
from spur_ctld.state.records import UNLIMITED, Partition
from spur_ctld.submit_shape import MAX_TASKS
from spur_proto import common_pb2
from spur_proto import controller_pb2 as pb

Make = Callable[[tuple[Target, ...]], "Update | Hold"]

_HOLDS: Final = {
    pb.HOLD_ACTION_HOLD: "hold",
    pb.HOLD_ACTION_USER_HOLD: "uhold",
    pb.HOLD_ACTION_RELEASE: "release",
}
#: Wire field -> field of the request, where the value goes over as it is.
_PLAIN: Final = {
    "account": "account",
    "qos": "qos",
    "comment": "comment",
    "name": "name",
    "nice": "nice",
    "site_factor": "site_factor",
    "min_nodes": "min_nodes",
    "max_nodes": "max_nodes",
    "cpus_per_task": "cpus_per_task",
    "requeue": "requeue",
    "stdout_path": "stdout",
    "stderr_path": "stderr",
    "work_dir": "work_dir",
    "wckey": "wckey",
    "stdin_path": "stdin",
    "exclusive": "exclusive",
    "tasks_per_node": "tasks_per_node",
}
_POSITIVE: Final = {
    "min_nodes": "Node count specification invalid",
    "max_nodes": "Node count specification invalid",
    "num_tasks": "Task count specification invalid",
    "cpus_per_task": "CPU count specification invalid",
    "tasks_per_node": "Task count specification invalid",
}


def operation(
    request: pb.UpdateJobRequest,
    partitions: Mapping[str, Partition],
    state: ClusterState,
    now: float,
    who: Who,
    most_wait: int = 300,
) -> Make:
    """What makes the operation once the targets are known.

    Args:
        most_wait: for so many seconds a job waits for few switches at the most.

    Raises:
        RequestError: a value that cannot be, by name; or nothing to change.
    """
    bounds.check_texts(request)
    if request.hold:
        mode = _HOLDS.get(request.hold)
        if mode is None:
            raise RequestError(f"hold: {request.hold} is not an action")
        held = mode
        return lambda targets: Hold(at=now, targets=targets, who=who, mode=held)
    changes = field_changes(request, partitions, state)
    if "switches" in changes:
        changes |= submit_wishes.switch_wait(changes, most_wait)
    priority = request.priority if request.HasField("priority") else None
    throttle = request.array_throttle if request.HasField("array_throttle") else None
    delta = request.time_limit_delta_secs if request.HasField("time_limit_delta_secs") else None
    if not changes and priority is None and throttle is None and delta is None:
        raise RequestError("No changes specified")
    encoded = {name: msgspec.msgpack.encode(value) for name, value in changes.items()}
    return lambda targets: Update(
        at=now,
        targets=targets,
        who=who,
        changes=encoded,
        priority=priority,
        array_throttle=throttle,
        time_limit_delta=delta,
    )


def _wishes(wishes: common_pb2.JobWishes, state: ClusterState) -> dict[str, Any]:
    """As `submit_wishes.fields`; 0 switches are any number of them again."""
    if not wishes.HasField("switches") or wishes.switches:
        return submit_wishes.fields(wishes, state.nodes)
    others = common_pb2.JobWishes()
    others.CopyFrom(wishes)
    others.ClearField("switches")
    return {**submit_wishes.fields(others, state.nodes), "switches": None}


def field_changes(
    request: pb.UpdateJobRequest, partitions: Mapping[str, Partition], state: ClusterState
) -> dict[str, Any]:
    """New values by the names of `Request`."""
    changes: dict[str, Any] = {}
    for name, text in _POSITIVE.items():
        if request.HasField(name) and not 0 < getattr(request, name) <= MAX_TASKS:
            raise RequestError(text)
    if abs(request.nice) > submit.MAX_NICE:
        raise RequestError(f"nice: {request.nice} is not within +-{submit.MAX_NICE}")
    if abs(request.site_factor) > submit.MAX_NICE:
        raise RequestError(f"site_factor: {request.site_factor} is not within +-{submit.MAX_NICE}")
    bounds.memory_mb(max(request.memory_per_node_mb, request.memory_per_cpu_mb), "memory")
    bounds.instant(request.begin_at)
    for wire, own in _PLAIN.items():
        if request.HasField(wire):
            changes[own] = getattr(request, wire)
    if changes.get("work_dir") and not changes["work_dir"].startswith("/"):
        raise RequestError("work_dir: must be an absolute path")
    low, high = changes.get("min_nodes"), changes.get("max_nodes")
    if low is not None and high is None:
        changes["max_nodes"] = low
    elif low is not None and high is not None and high < low:
        raise RequestError("Node count specification invalid")
    if request.HasField("num_tasks"):
        changes |= {"num_tasks": request.num_tasks, "tasks_given": True}
    if request.HasField("cpus_per_task"):
        changes["cpus_per_task_given"] = True
    if request.HasField("partition"):
        changes["partitions"] = [p.name for p in submit.requested_partitions(request.partition, partitions)]
    if request.HasField("time_limit_secs"):
        changes["time_limit"] = request.time_limit_secs or UNLIMITED
    if request.HasField("dependency"):
        text = "" if request.dependency.lower() in ("", "(null)", "0") else request.dependency
        submit.check_dependency(text)
        changes["dependency"] = text
    if request.HasField("begin_at"):
        changes["begin_at"] = request.begin_at or None
    if request.HasField("memory_per_node_mb"):
        changes |= {"memory_per_node_mb": request.memory_per_node_mb, "memory_per_cpu_mb": None}
    if request.HasField("memory_per_cpu_mb"):
        changes |= {"memory_per_cpu_mb": request.memory_per_cpu_mb, "memory_per_node_mb": None}
    for wire, own in (("req_nodelist", "nodelist"), ("exc_nodelist", "exclude")):
        if request.HasField(wire):
            names = list(dict.fromkeys(hostlist.expand(getattr(request, wire))))
            if any(name not in state.nodes for name in names):
                raise RequestError("Invalid node name specified")
            changes[own] = names
    if request.HasField("constraint"):
        features.parse(request.constraint)
        changes["constraint"] = request.constraint
    if request.HasField("wishes"):
        changes |= _wishes(request.wishes, state)
        if "memory_per_gpu_mb" in changes:
            changes |= {"memory_per_node_mb": None, "memory_per_cpu_mb": None}
    if request.HasField("deadline_at"):
        bounds.instant(request.deadline_at)
        changes["deadline_at"] = request.deadline_at or None
    if request.HasField("reservation"):
        text = submit.reservation_names(request.reservation)
        if any(name not in state.reservations for name in text.split(",") if name):
            raise RequestError(resv_gate.NO_SUCH)
        changes["reservation"] = text
    if request.HasField("licenses"):
        changes["licenses"] = submit.license_text(request.licenses, dict(state.settings.licenses))
    if request.HasField("gres"):
        changes["gres"] = submit_wishes.parse_gres_list([request.gres] if request.gres else [], state.nodes)
    return changes

"""How many nodes, tasks and CPUs a submission asks for, with Slurm's consistency rules.  Pure."""

from typing import NamedTuple

from spur_core.errors import RequestError
from spur_proto import common_pb2 as pb

#: More tasks than this in one job is a typing error.
MAX_TASKS = 4_194_304


class Shape(NamedTuple):
    """The resolved counts and what the submitter should be told."""

    min_nodes: int
    max_nodes: int
    num_tasks: int
    tasks_given: bool
    #: `-N` without any count of tasks.
    by_nodes: bool
    tasks_per_node: int | None
    cpus_per_task: int
    warnings: tuple[str, ...]


def _given(spec: pb.JobSpec, name: str) -> int | None:
    return int(getattr(spec, name)) if spec.HasField(name) else None


def _positive(value: int | None, text: str) -> None:
    if value is not None and not 0 < value <= MAX_TASKS:
        raise RequestError(text)


def resolve(spec: pb.JobSpec, named_nodes: int) -> Shape:
    """The counts of `spec`.

    Args:
        named_nodes: how many different nodes `-w` names; all of them will be part of the allocation.

    Raises:
        RequestError: a count is zero or they contradict each other; Slurm's sentence.
    """
    low, high = _given(spec, "min_nodes"), _given(spec, "max_nodes")
    tasks, per_node = _given(spec, "num_tasks"), _given(spec, "tasks_per_node")
    cpus = _given(spec, "cpus_per_task")
    _positive(low, "Node count specification invalid")
    _positive(high, "Node count specification invalid")
    _positive(tasks, "Task count specification invalid")
    _positive(per_node, "Task count specification invalid")
    _positive(cpus, "CPU count specification invalid")
    if low is not None and high is not None and high < low:
        raise RequestError("Node count specification invalid")

    warnings: list[str] = []
    nodes_given = low is not None or high is not None
    first = low or 1
    last = high or low
    if tasks is not None and nodes_given and tasks < first:
        ran = "process" if tasks == 1 else "processes"
        warnings.append(f"can't run {tasks} {ran} on {first} nodes, setting nnodes to {tasks}")
        first = last = tasks
    if per_node is not None and tasks is not None:
        # With a task count, --ntasks-per-node is a maximum: it may ask for more nodes, never for more tasks.
        least = -(-tasks // per_node)
        if not nodes_given:
            first, last = max(first, least), max(tasks, least)
        elif last is not None and last < least:
            raise RequestError("More processors requested than permitted")
        else:
            first = max(first, least)
    if last is None:
        last = max(first, tasks) if tasks is not None else first
    if named_nodes > first:
        first = named_nodes
        last = max(last, first)
    if tasks is None:
        count = first * (per_node or 1)
    else:
        count = tasks
        last = max(first, min(last, max(tasks, named_nodes)))
    return Shape(
        min_nodes=first,
        max_nodes=last,
        num_tasks=count,
        tasks_given=tasks is not None or per_node is not None,
        by_nodes=nodes_given and tasks is None and per_node is None,
        tasks_per_node=per_node,
        cpus_per_task=cpus or 1,
        warnings=tuple(warnings),
    )

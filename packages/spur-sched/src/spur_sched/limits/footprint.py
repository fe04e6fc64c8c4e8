"""What a job counts as against limits."""

import math
from collections.abc import Iterable
from typing import NamedTuple

from spur_sched.api import GresMap, JobView, NodeShare, Running


class Footprint(NamedTuple):
    """TRES of one job.

    Attributes:
        tres: totals; without "node" where `nodes` is known.
        per_node: the most of each on one node.
        minutes: of its time limit, inf without one.
        node_count: how many nodes.
        nodes: their names; None = not placed yet.
    """

    tres: dict[str, float]
    per_node: dict[str, float]
    minutes: float
    node_count: int
    nodes: frozenset[str] | None = None


def asked(job: JobView) -> Footprint:
    """The least that the request comes to, before it is placed."""
    count = max(1, job.min_nodes)
    tasks = job.num_tasks if job.tasks_given else max(job.num_tasks, count)
    gpus = _gpus(job, count, tasks)
    cpus = max(tasks * max(1, job.cpus_per_task), count, gpus * (job.cpus_per_gpu or 0))
    # However the tasks are laid out, some node has no less than this.
    fullest = job.tasks_per_node or -(-tasks // max(1, job.max_nodes))
    own_cpus = max(fullest * max(1, job.cpus_per_task), job.min_cpus or 0)
    memory = own_memory = 0
    if job.memory_per_node_mb is not None:
        own_memory = job.memory_per_node_mb
        memory = own_memory * count
    elif job.memory_per_cpu_mb is not None:
        # Threads that stay idle do not count.
        used = fullest * max(1, job.cpus_per_task) if job.threads_per_core else own_cpus
        own_memory, memory = job.memory_per_cpu_mb * used, job.memory_per_cpu_mb * cpus
    elif job.memory_per_gpu_mb is not None:
        memory = job.memory_per_gpu_mb * gpus
    tres = {"cpu": float(cpus), "mem": float(memory), "node": float(count), "billing": float(cpus)}
    per_node = {"cpu": float(own_cpus), "mem": float(own_memory)}
    _add(tres, job.gres, count)
    _add(per_node, job.gres, 1)
    _add(tres, job.gres_total, 1)
    _add(tres, job.gres_per_task, tasks)
    if job.sockets_per_node:
        _add(tres, job.gres_per_socket, count * job.sockets_per_node)
    if not job.licenses_any:
        for name, number in job.licenses:
            tres[f"license/{name}"] = float(number)
    return Footprint(tres, per_node, _minutes(job.time_limit), count)


def placed(
    shares: Iterable[NodeShare], licenses: Iterable[tuple[str, int]], time_limit: int | None
) -> Footprint:
    """What a job takes where it was placed.

    Args:
        time_limit: seconds, None or a year of 136 = no limit.
    """
    tres: dict[str, float] = {"cpu": 0.0, "mem": 0.0}
    per_node: dict[str, float] = {}
    names = set()
    for share in shares:
        own = {"cpu": float(share.cpus), "mem": float(share.memory_mb)}
        _add(own, share.gres, 1)
        for name, number in own.items():
            tres[name] = tres.get(name, 0.0) + number
            per_node[name] = max(per_node.get(name, 0.0), number)
        names.add(share.node)
    for name, number in licenses:
        tres[f"license/{name}"] = tres.get(f"license/{name}", 0.0) + number
    tres["node"] = float(len(names))
    tres["billing"] = tres["cpu"]
    return Footprint(tres, per_node, _minutes(time_limit), len(names), frozenset(names))


def held(running: Running, now: float) -> Footprint:
    """What an active attempt holds, with the minutes that it may still have."""
    found = placed(running.shares, running.licenses, None)
    left = math.inf if running.end is None else max(0.0, running.end - now) / 60
    return found._replace(minutes=left)


def minutes_of(amount: float, minutes: float) -> float:
    """TRES-minutes; nothing for no time at all is nothing."""
    return amount * minutes if amount else 0.0


def _gpus(job: JobView, count: int, tasks: int) -> int:
    """At least so many GPUs."""
    total = 0
    for held_by, times in ((job.gres, count), (job.gres_total, 1), (job.gres_per_task, tasks)):
        total += times * sum(number for (name, _), number in held_by.items() if name == "gpu")
    return total


def _add(tres: dict[str, float], gres: GresMap, times: int) -> None:
    """Typed resources count under their plain name too."""
    for (name, kind), number in gres.items():
        plain = f"gres/{name}"
        tres[plain] = tres.get(plain, 0.0) + number * times
        if kind:
            typed = f"{plain}:{kind}"
            tres[typed] = tres.get(typed, 0.0) + number * times


#: What the wire and the records write for "no limit".
_NO_LIMIT = 0xFFFFFFFF


def _minutes(seconds: int | None) -> float:
    return math.inf if seconds is None or seconds >= _NO_LIMIT else seconds / 60

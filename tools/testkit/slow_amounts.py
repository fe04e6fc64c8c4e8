"""What a job of the slow scheduler takes and how its tasks lie, one at a time."""

import math
from collections import Counter

from spur_sched.api import JobView, NodeView, PartitionView

INFINITE = 0xFFFFFFFF


class Wrong(AssertionError):
    """The plan breaks a rule; the text says which and of whom."""


def ways(job: JobView, part: PartitionView) -> list[PartitionView]:
    """The partition; where CPUs are shared each of their layers: `oversubscribe` "LAYER", `share` which."""
    asks = part.oversubscribe == "FORCE" or (
        part.oversubscribe == "YES" and job.oversubscribe and not job.exclusive
    )
    if not asks or part.share < 2:
        return [part]
    return [part._replace(oversubscribe="LAYER", share=number) for number in range(1, part.share + 1)]


def seen_in(job: JobView, part: PartitionView) -> JobView:
    """The request with what the partition adds to it."""
    if part.oversubscribe == "EXCLUSIVE":
        return job._replace(exclusive=True)
    return job._replace(exclusive=False) if part.oversubscribe in ("FORCE", "LAYER") else job


def most_of(key: tuple[str, str], free: dict[tuple[str, str], int]) -> int:
    """How many of a kind there are, of any type if none is named."""
    name, kind = key
    return sum(max(0, n) for (own, its), n in free.items() if own == name and (not kind or kind == its))


def limit(job: JobView) -> float:
    """Seconds."""
    return math.inf if job.time_limit is None or job.time_limit == INFINITE else job.time_limit


def amounts(job: JobView, view: NodeView, tasks: int) -> tuple[int, int]:
    """(CPUs, MiB) of so many tasks on a node."""
    cpus = view.cpus if job.exclusive else max(tasks * job.cpus_per_task, job.min_cpus or 0)
    # Memory for each CPU counts for all that are held.
    memory = cpus * (job.memory_per_cpu_mb or 0)
    if job.memory_per_node_mb is not None:
        memory = job.memory_per_node_mb or view.memory_mb
    return cpus, memory


def layout(job: JobView, room: list[int]) -> list[int]:
    """Tasks of each node: dealt out one by one where a number of nodes was asked for, else node after node
    with one left for each later one."""
    if not job.tasks_given:
        return [job.tasks_per_node or 1 for _ in room]
    if job.min_nodes > 1:
        parts = [0] * len(room)
        left = job.num_tasks
        while left:
            for at, most in enumerate(room):
                if left and parts[at] < most:
                    parts[at] += 1
                    left -= 1
        return parts
    parts = []
    left = job.num_tasks
    for at, most in enumerate(room):
        parts.append(min(most, left - (len(room) - at - 1)))
        left -= parts[-1]
    return parts


def gres_fit(wanted: dict[tuple[str, str], int], free: dict[tuple[str, str], int]) -> bool:
    return gres_pick(wanted, free) is not None


def gres_pick(
    wanted: dict[tuple[str, str], int], free: dict[tuple[str, str], int]
) -> dict[tuple[str, str], int] | None:
    """Of which types to take; those that name a type first, the others in the order of types."""
    left = {key: max(0, count) for key, count in free.items()}
    taken: Counter[tuple[str, str]] = Counter()
    for (name, kind), count in sorted(wanted.items(), key=lambda item: (not item[0][1], item)):
        for _ in range(count):
            keys = [(name, kind)] if kind else sorted(key for key in left if key[0] == name)
            key = next((key for key in keys if left.get(key, 0) > 0), None)
            if key is None:
                return None
            left[key] -= 1
            taken[key] += 1
    return dict(taken)


def claim(true: bool, text: str) -> None:
    if not true:
        raise Wrong(text)

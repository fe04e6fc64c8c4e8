"""Requests as sizes to compare: who asks for at least as much finds no room where less found none."""

from spur_sched.shape import Shape


def ask_of(shape: Shape) -> tuple[tuple[object, ...], tuple[float, ...]]:
    """The request as something that can be less or more, and what must be equal for that."""
    need, count, demand = shape.demand.need, shape.counts, shape.demand
    same = (
        shape.wanted,
        count.tasks_given,
        # Fewer tasks than nodes are not easier to place, but impossible.
        count.tasks_given and count.num_tasks < count.min_nodes,
        demand.exclusive,
        demand.whole_memory,
        need.ntasks_per_socket,
        need.ntasks_per_core,
        need.ntasks_per_gpu,
        need.threads_per_core,
        need.gres_total,
        count.spread,
        count.fewest,
        need.cpus_per_gpu if need.gres_total else 0,
        need.memory_per_gpu_mb if need.gres_total else 0,
        tuple(part.row for part in demand.parts),
    )
    more = (
        float(count.min_nodes),
        count.num_tasks,
        count.each,
        -count.max_nodes,
        -need.tasks_per_node,
        # What it comes to depends on more than the tasks.
        demand.memory_per_cpu if demand.exclusive or demand.uneven else 0,
        shape.secs,
        *(part.fixed for part in demand.parts),
        *(part.each for part in demand.parts),
    )
    return same, more

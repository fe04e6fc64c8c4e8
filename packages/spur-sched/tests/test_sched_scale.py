"""The work of a pass grows with the shapes in the queue, not with queue times nodes."""

import random

from spur_sched.plan import plan


def test_a_long_queue_on_many_nodes_stays_within_a_small_budget(snap, node, job, now):
    """Ten thousand jobs of twenty shapes, a thousand nodes: fewer looks than fifty at each node.

    A scheduler that tried every job on every node would need ten million.
    """
    chance = random.Random(4)
    nodes = []
    for number in range(1000):
        left, running = 64, []
        while left > 4:
            took = min(left, chance.choice([4, 8, 16]))
            left -= took
            running.append((now + chance.randrange(60, 86400), took, 1000, {}))
        nodes.append(node(f"n{number:04d}", cpus=64, memory_mb=256_000, running=running))
    shapes = [
        {"cpus_per_task": cpus, "time_limit": limit, "memory_per_cpu_mb": 500}
        for cpus in (1, 2, 3, 4, 48)
        for limit in (600, 3600, 7200, 86400)
    ]
    jobs = [job(number, **chance.choice(shapes)) for number in range(1, 10_001)]
    result = plan(snap(nodes, jobs), now, budget=50_000)
    assert result.complete
    assert len(result.placements) + len(result.waiting) == len(jobs)


def test_a_big_array_costs_as_much_as_its_tasks_that_start(snap, node, job, now):
    nodes = [node(f"n{number}") for number in range(50)]
    result = plan(snap(nodes, [job(1, tasks=tuple(range(10_000)))]), now, budget=2000)
    assert result.complete
    assert len(result.placements) == 200

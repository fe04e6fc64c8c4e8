"""How long a scheduling pass takes, against jobs, nodes and shapes.  Made-up clusters, the same in every run.

    python benchmarks/sched_pass.py [--jobs J] [--nodes N] [--running R] [--repeat K] [--pure]
        [--growth [--plot FILE]]

Times are the processor's, since the machine is usually shared: the median of several runs, and the least,
which is nearer to what the code costs.
"""

import argparse
import gc
import random
import statistics
import time
import tracemalloc
from pathlib import Path
from typing import Any

from charts import Chart, svg

from spur_sched import kernel
from spur_sched.api import JobView, License, Limits, NodeView, PartitionView, Plan, Policy, Running, Window
from spur_sched.plan import plan

Row = tuple[str, str, str]
NOW = 1_700_000_000.0
HOUR = 3600
GPU = ("gpu", "h100")


class Snap:
    """A snapshot made of lists."""

    index = 1

    def __init__(self, nodes: list[NodeView], jobs: list[JobView], policy: Policy | None = None) -> None:
        self._nodes, self._jobs, self._policy = nodes, jobs, policy or Policy()
        names = frozenset(node.name for node in nodes)
        self._parts = {"main": PartitionView("main", True, "UP", names, None, None, 1, 1)}

    def nodes(self) -> list[NodeView]:
        return self._nodes

    def partitions(self) -> dict[str, PartitionView]:
        return self._parts

    def pending(self) -> list[JobView]:
        return self._jobs

    def policy(self) -> Policy:
        return self._policy

    def running(self) -> list[Running]:
        return []

    def windows(self) -> list[Window]:
        return []

    def licenses(self) -> dict[str, License]:
        return {}

    def limits(self) -> Limits | None:
        return None

    def with_policy(self, policy: Policy) -> "Snap":
        return Snap(self._nodes, self._jobs, policy)


def make_nodes(count: int, running: int, seed: int = 1) -> list[NodeView]:
    """Nodes of 64 CPUs, 256 GiB, every fourth with 4 GPUs; about 90 % of the CPUs in use if there are as many
    running jobs as nodes."""
    chance = random.Random(seed)
    held: list[list[tuple[float | None, int, int, dict[Any, int]]]] = [[] for _ in range(count)]
    free = [64] * count
    for number in range(running):
        at = number % count
        cpus = min(free[at], chance.choice([48, 56, 60, 64, 64, 64]))
        if cpus:
            free[at] -= cpus
            gpus = {GPU: chance.randint(1, 4)} if at % 4 == 0 else {}
            end = NOW + chance.randrange(60, 24 * HOUR)
            held[at].append((end, cpus, min(cpus * 3800, 250_000), gpus))
    nodes = []
    for at in range(count):
        gres = {GPU: 4} if at % 4 == 0 else {}
        used: dict[tuple[str, str], int] = {}
        for item in held[at]:
            for key, number in item[3].items():
                used[key] = used.get(key, 0) + number
        nodes.append(
            NodeView(
                name=f"n{at:05d}",
                cpus=64,
                memory_mb=256_000,
                gres=gres,
                used_cpus=64 - free[at],
                used_memory_mb=sum(item[2] for item in held[at]),
                used_gres=used,
                schedulable=True,
                known=True,
                weight=1,
                features=frozenset({"ib"} if at % 2 else {"ib", "big"}),
                running=tuple(held[at]),
                jobs=len(held[at]),
            )
        )
    return nodes


def make_jobs(count: int, shapes: int, seed: int = 2) -> list[JobView]:
    """Jobs of so many different shapes: single tasks, tasks on one node, several nodes, GPUs, constraints."""
    chance = random.Random(seed)
    kinds = []
    for number in range(shapes):
        kind: dict[str, Any] = {}
        draw = chance.random()
        if draw < 0.4:
            kind["cpus_per_task"] = chance.randint(1, 32)
        elif draw < 0.6:
            kind.update(num_tasks=chance.randint(2, 64), tasks_given=True)
            kind["max_nodes"] = 1 if chance.random() < 0.5 else kind["num_tasks"]
        else:
            nodes = chance.choice([2, 4, 8, 16, 32, 64])
            kind.update(min_nodes=nodes, max_nodes=nodes, num_tasks=nodes * 8, tasks_given=True)
            kind["cpus_per_task"] = chance.randint(1, 8)
        kind["memory_per_cpu_mb"] = chance.randrange(500, 4000, 100)
        kind["time_limit"] = chance.randrange(60, 24 * HOUR, 60)
        if chance.random() < 0.2:
            kind["gres"] = {GPU: chance.randint(1, 4)}
        if chance.random() < 0.1:
            kind["constraint"] = "big"
        if shapes == count:
            # No two alike.
            kind["time_limit"] = 600 + number * 7
        kinds.append(kind)
    jobs = []
    for number in range(count):
        fields: dict[str, Any] = {
            "priority": 1_000_000 - number,
            "submit_at": NOW - 100,
            "eligible_at": NOW - 100,
            "partitions": ("main",),
            "min_nodes": 1,
            "max_nodes": 1,
            "num_tasks": 1,
            "tasks_given": False,
            "tasks_per_node": None,
            "cpus_per_task": 1,
            "memory_per_node_mb": None,
            "memory_per_cpu_mb": None,
            "gres": {},
            "exclusive": False,
            "nodelist": frozenset(),
            "exclude": frozenset(),
            "constraint": "",
            "time_limit": HOUR,
        }
        fields.update(kinds[number % shapes])
        jobs.append(JobView(job_id=number + 1, **fields))
    return jobs


def after(nodes: list[NodeView], jobs: list[JobView], found: Plan) -> tuple[list[NodeView], list[JobView]]:
    """The cluster and the queue when everything has started that a plan starts."""
    limits = {job.job_id: job.time_limit for job in jobs}
    more: dict[str, list[tuple[float | None, int, int, dict[Any, int]]]] = {}
    for placed in found.placements:
        end = NOW + (limits.pop(placed.job_id) or 0)
        for share in placed.shares:
            more.setdefault(share.node, []).append((end, share.cpus, share.memory_mb, share.gres))
    nodes_after = []
    for node in nodes:
        new = more.get(node.name, [])
        gres = dict(node.used_gres)
        for item in new:
            for key, number in item[3].items():
                gres[key] = gres.get(key, 0) + number
        nodes_after.append(
            node._replace(
                used_cpus=node.used_cpus + sum(item[1] for item in new),
                used_memory_mb=node.used_memory_mb + sum(item[2] for item in new),
                used_gres=gres,
                running=(*node.running, *new),
                jobs=node.jobs + len(new),
            )
        )
    return nodes_after, [job for job in jobs if job.job_id in limits]


def measure(snap: Snap, repeat: int) -> tuple[float, float, Plan]:
    """(median, least) milliseconds of the processor for a pass, and its plan."""
    times = []
    found = plan(snap, NOW)
    for _ in range(repeat):
        gc.collect()
        begin = time.process_time()
        found = plan(snap, NOW)
        times.append((time.process_time() - begin) * 1000)
    return statistics.median(times), min(times), found


def told(took: tuple[float, float, Plan]) -> str:
    middle, least, found = took
    return (
        f"{middle:.0f} ms (least {least:.0f}); {len(found.placements)} start, {len(found.expected)} promised"
    )


def sched_rows(jobs: int = 10_000, nodes: int = 5_000, running: int = 5_000, repeat: int = 7) -> list[Row]:
    """The rows of docs/benchmarks.md."""
    # As the controller has it.
    gc.set_threshold(20_000, 20, 20)
    busy, empty, full = make_nodes(nodes, running), make_nodes(nodes, 0), make_nodes(nodes, 3 * running)
    few, many = make_jobs(jobs, 20), make_jobs(jobs, jobs)
    easy, careful = Policy(), Policy(backfill="conservative", bf_max_job_test=1000)
    title = f"{jobs:,} pending × {nodes:,} nodes"
    rows: list[Row] = []
    for what, cluster, queue, budget in (
        (f"{title} × {running:,} running, EASY, 20 shapes", busy, few, "100 ms"),
        (f"{title} × {running:,} running, EASY, all shapes distinct", busy, many, "500 ms"),
        (f"{title}, empty, EASY, 20 shapes", empty, few, ""),
        (f"{title}, empty, EASY, all distinct", empty, many, ""),
        (f"{title}, full, EASY, 20 shapes", full, few, ""),
        (f"{title}, full, EASY, all distinct", full, many, ""),
    ):
        rows.append((what, told(measure(Snap(cluster, queue, easy), repeat)), budget))
    for what, queue in (("20 shapes", few), ("all shapes distinct", many)):
        settled, rest = after(busy, queue, plan(Snap(busy, queue, easy), NOW))
        rows.append(
            (f"the pass after that, EASY, {what}", told(measure(Snap(settled, rest, easy), repeat)), "")
        )
    for what, queue, budget in (
        ("conservative, 1,000 jobs, 20 shapes", few[:1000], "300 ms"),
        ("conservative, 1,000 jobs, all distinct", many[:1000], "300 ms"),
        (f"conservative for the first 1,000 of {jobs:,} jobs, all distinct", many, ""),
    ):
        rows.append((what, told(measure(Snap(busy, queue, careful), repeat)), budget))
    everything = Policy(backfill="conservative", bf_max_job_test=jobs)
    rows.append(
        (f"conservative for all {jobs:,} jobs, 20 shapes", told(measure(Snap(busy, few, everything), 1)), "")
    )
    rows += [
        ("memory of an EASY pass, 20 shapes", _memory(Snap(busy, few, easy)), ""),
        ("memory of an EASY pass, all shapes distinct", _memory(Snap(busy, many, easy)), ""),
        (
            "memory of a conservative pass for 1,000 jobs, all distinct",
            _memory(Snap(busy, many[:1000], careful)),
            "",
        ),
    ]
    return rows


def _memory(snap: Snap) -> str:
    """Most memory that a pass holds at once beside what it is shown."""
    gc.collect()
    tracemalloc.start()
    plan(snap, NOW)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return f"{peak / 2**20:.0f} MiB"


#: What growth is measured against, and the most of a pass's milliseconds that the budgets allow.
GROWTH: dict[str, tuple[str, float]] = {
    "jobs": ("pending jobs (20 shapes, 5,000 nodes)", 100.0),
    "nodes": ("nodes, as many running jobs (10,000 pending, 20 shapes)", 100.0),
    "shapes": ("shapes of 10,000 pending jobs (5,000 nodes)", 500.0),
    "promises": ("conservative: jobs looked ahead for (bf_max_job_test)", 300.0),
}


def growth(repeat: int = 3) -> dict[str, list[tuple[int, float]]]:
    """Least milliseconds of a pass, EASY unless promises are counted, against one size; the others as in the
    budgets."""
    gc.set_threshold(20_000, 20, 20)
    jobs, nodes = make_jobs(10_000, 20), make_nodes(5_000, 5_000)
    found: dict[str, list[tuple[int, float]]] = {what: [] for what in GROWTH}
    for count in (100, 300, 1_000, 3_000, 10_000, 30_000):
        found["jobs"].append((count, measure(Snap(nodes, make_jobs(count, 20)), repeat)[1]))
    for count in (100, 300, 1_000, 3_000, 5_000, 10_000):
        found["nodes"].append((count, measure(Snap(make_nodes(count, count), jobs), repeat)[1]))
    for count in (1, 10, 100, 1_000, 3_000, 10_000):
        found["shapes"].append((count, measure(Snap(nodes, make_jobs(10_000, count)), repeat)[1]))
    few = make_jobs(10_000, 20)
    for count in (1, 10, 100, 300, 1_000):
        policy = Policy(backfill="conservative", bf_max_job_test=count)
        found["promises"].append((count, measure(Snap(nodes, few, policy), 1)[1]))
    return found


def plotted(points: dict[str, list[tuple[int, float]]]) -> str:
    """What `growth` found as a picture."""
    charts = [
        Chart(
            f"A pass against {what}",
            GROWTH[what][0],
            "ms of the processor",
            [("spur", line)],
            GROWTH[what][1],
        )
        for what, line in points.items()
    ]
    return svg(charts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--running", type=int, default=5_000)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--growth", action="store_true", help="time against jobs, nodes, shapes, promises")
    parser.add_argument("--plot", type=Path, help="with --growth: write a picture of it, docs/sched_pass.svg")
    parser.add_argument("--pure", action="store_true", help="without the compiled kernel")
    given = parser.parse_args()
    kernel.use(not given.pure)
    print("with the compiled kernel" if kernel.library() is not None else "without the compiled kernel")
    if given.growth:
        measured = growth()
        for what, points in measured.items():
            for count, took in points:
                print(f"{what} {count} {took:.1f}", flush=True)
        if given.plot:
            given.plot.write_text(plotted(measured))
        return
    for what, measured, budget in sched_rows(given.jobs, given.nodes, given.running, given.repeat):
        print(f"| {what} | {measured} | {budget} |", flush=True)


if __name__ == "__main__":
    main()

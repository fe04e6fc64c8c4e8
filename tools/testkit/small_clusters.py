"""Random clusters small enough for the slow scheduler, from any source of whole numbers."""

from collections.abc import Callable
from typing import Any

from spur_sched.api import (
    JobView,
    License,
    NodeShare,
    NodeView,
    PartitionView,
    Policy,
    Running,
    Window,
)

NOW = 1_000_000.0
GPU_KINDS = (("gpu", "a"), ("gpu", "b"))
#: A whole number from the first to the second, both included.
Pick = Callable[[int, int], int]


class SmallCluster:
    """A snapshot, and which of the scheduler's features it uses."""

    index = 1

    def __init__(self) -> None:
        self._nodes: list[NodeView] = []
        self._parts: list[PartitionView] = []
        self._jobs: list[JobView] = []
        self._running: list[Running] = []
        self._windows: list[Window] = []
        self._licenses: dict[str, License] = {}
        self._policy = Policy()

    def nodes(self) -> list[NodeView]:
        return list(self._nodes)

    def partitions(self) -> dict[str, PartitionView]:
        return {part.name: part for part in self._parts}

    def pending(self) -> list[JobView]:
        return list(self._jobs)

    def policy(self) -> Policy:
        return self._policy

    def running(self) -> list[Running]:
        return list(self._running)

    def windows(self) -> list[Window]:
        return list(self._windows)

    def licenses(self) -> dict[str, License]:
        return dict(self._licenses)

    def limits(self) -> None:
        return None

    def changed(self, **parts: Any) -> "SmallCluster":
        """The same with other nodes, jobs, policy, ..."""
        found = SmallCluster()
        found.__dict__.update(self.__dict__)
        found.__dict__.update({f"_{name}": value for name, value in parts.items()})
        return found

    def __repr__(self) -> str:
        lines = [f"{self._policy}"]
        for group in (self._nodes, self._parts, self._jobs, self._running, self._windows):
            lines += [f"  {item}" for item in group]
        return "\n".join([*lines, f"  {self._licenses}"])


def draw(
    pick: Pick,
    *,
    backfill: str,
    parts: bool = True,
    windows: bool = False,
    licenses: bool = False,
    wishes: bool = False,
    sharing: bool = False,
    magnets: bool = False,
) -> SmallCluster:
    """One cluster with its queue.

    Args:
        parts: several partitions.
        windows: reservations.
        licenses: licences.
        wishes: GPUs per task and in all, rows of nodes, as few nodes as will do, scratch space, CPUs of each
            node, partitions of whole nodes.
        sharing: partitions whose jobs share CPUs, all or those that ask for it.
        magnets: reservations that draw jobs in.
    """
    made = SmallCluster()
    made._policy = Policy(backfill=backfill, bf_window=10**9, bf_resolution=1, bf_max_job_test=10**6)
    number_of = {}
    for number in range(1, pick(1, 4) + 1):
        made._nodes.append(_node(pick, f"n{number}", made, number_of))
    names = [view.name for view in made._nodes]
    if licenses:
        _draw_licenses(pick, made)
    if windows:
        _draw_windows(pick, made, names)
    made._parts = [_partition("main", names, {"max_nodes": 2} if pick(0, 9) == 0 else {})]
    if parts:
        for name in ("b", "c"):
            some = [one for one in names if pick(0, 1)] or names[:1]
            made._parts.append(
                _partition(
                    name,
                    some,
                    {
                        "state": ("UP", "UP", "UP", "UP", "DRAIN", "DOWN", "INACTIVE")[pick(0, 6)],
                        "max_time": (None, None, 20)[pick(0, 2)],
                        "max_nodes": (None, None, 2)[pick(0, 2)],
                        "min_nodes": (1, 1, 1, 2)[pick(0, 3)],
                        "priority_tier": pick(1, 2),
                    },
                )
            )
    for number in range(1, pick(1, 7) + 1):
        made._jobs.append(_job(pick, number, made, names, parts, windows, licenses))
    if wishes:
        made._jobs = [_wishing(pick, job) for job in made._jobs]
        made._nodes = [view._replace(tmp_disk_mb=(0, 50, 100)[pick(0, 2)]) for view in made._nodes]
        made._parts = [
            part._replace(oversubscribe="EXCLUSIVE") if pick(0, 5) == 0 else part for part in made._parts
        ]
    if sharing:
        _draw_sharing(pick, made)
    if magnets:
        ids = [job.job_id for job in made._jobs if not job.reservation]
        made._windows = [
            window._replace(draws=frozenset(one for one in ids if pick(0, 2))) if pick(0, 2) else window
            for window in made._windows
        ]
    return made


def _draw_sharing(pick: Pick, made: SmallCluster) -> None:
    """Partitions that share CPUs, jobs that ask for it, nodes on which jobs of one such partition run."""
    words = ("NO", "YES", "YES", "FORCE", "FORCE")
    made._parts = [
        part._replace(oversubscribe=word, share=pick(1, 3)) if (word := words[pick(0, 4)]) != "NO" else part
        for part in made._parts
    ]
    made._jobs = [job._replace(oversubscribe=not job.exclusive and pick(0, 3) > 0) for job in made._jobs]
    sharing = [part for part in made._parts if part.share > 1]
    for at, view in enumerate(made._nodes):
        mine = [part for part in sharing if view.name in part.nodes]
        if view.running and mine and pick(0, 2):
            part = mine[pick(0, len(mine) - 1)]
            room = [view.cpus] * part.share
            layers: list[tuple[str, int] | None] = []
            for _, cpus, _, _ in view.running:
                layer = next(number for number in range(part.share) if room[number] >= cpus)
                room[layer] -= cpus
                layers.append((part.name, layer + 1))
            made._nodes[at] = view._replace(layers=tuple(layers), used_cpus=0)


def _wishing(pick: Pick, job: JobView) -> JobView:
    kind = pick(0, 8)
    if kind == 0:
        return job._replace(gres={}, gres_per_task={(("gpu", ""), *GPU_KINDS)[pick(0, 2)]: pick(1, 2)})
    if kind == 1 and not job.tasks_given and "*" not in job.constraint:
        return job._replace(gres={}, gres_total={(("gpu", ""), *GPU_KINDS)[pick(0, 2)]: pick(1, 4)})
    if kind == 2 and not job.nodelist and not job.constraint:
        return job._replace(contiguous=True)
    if kind == 3:
        return job._replace(use_min_nodes=True)
    if kind == 4:
        return job._replace(tmp_disk_mb=(50, 100)[pick(0, 1)])
    if kind == 5:
        return job._replace(min_cpus=pick(2, 4))
    return job


def _node(pick: Pick, name: str, made: SmallCluster, known: dict[str, int]) -> NodeView:
    cpus, memory = pick(1, 4), (100, 100, 100, 0)[pick(0, 3)]
    gres = {}
    if pick(0, 2) == 0:
        gres = {kind: count for kind in GPU_KINDS if (count := pick(0, 2))}
    left = dict(gres)
    running = []
    used: dict[tuple[str, str], int] = {}
    cpus_left, memory_left = cpus, 100
    for _ in range(pick(0, 2)):
        took = pick(0, cpus_left)
        if not took:
            break
        took_memory = pick(0, memory_left)
        held = {key: count for key in left if (count := pick(0, left[key]))}
        for key, count in held.items():
            left[key] -= count
            used[key] = used.get(key, 0) + count
        ends = (None, NOW - 5, NOW + 10, NOW + 20, NOW + 30)
        end = ends[pick(0, 4)]
        running.append((end, took, took_memory, held))
        cpus_left -= took
        memory_left -= took_memory
        job_id = 900 + len(made._running)
        made._running.append(
            Running(
                job_id=job_id,
                attempt=1,
                priority=1000,
                tier=1,
                partition="main",
                uid=1,
                account="",
                qos="",
                started=NOW - 100,
                end=end,
                shares=(NodeShare(name, took, took_memory, held, (0,)),),
            )
        )
    return NodeView(
        name=name,
        cpus=cpus,
        memory_mb=memory,
        gres=gres,
        used_cpus=cpus - cpus_left,
        used_memory_mb=100 - memory_left,
        used_gres=used,
        schedulable=pick(0, 9) > 0,
        known=True,
        weight=pick(1, 2),
        features=frozenset(one for one in ("x", "y") if pick(0, 1)),
        running=tuple(running),
        jobs=len(running),
    )


def _partition(name: str, nodes: list[str], more: dict[str, Any]) -> PartitionView:
    fields: dict[str, Any] = {
        "up": True,
        "state": "UP",
        "max_time": None,
        "max_nodes": None,
        "min_nodes": 1,
        "priority_tier": 1,
    }
    fields.update(more)
    fields["up"] = fields["state"] == "UP"
    return PartitionView(name=name, nodes=frozenset(nodes), **fields)


def _draw_licenses(pick: Pick, made: SmallCluster) -> None:
    total = pick(1, 4)
    used = 0
    for at, one in enumerate(made._running):
        if one.end is not None and pick(0, 2) == 0 and used < total:
            made._running[at] = one._replace(licenses=(("lic", 1),))
            used += 1
    made._licenses = {"lic": License(total, used, pick(0, 1) if used < total else 0)}


def _draw_windows(pick: Pick, made: SmallCluster, names: list[str]) -> None:
    free = list(names)
    for name in ("r", "s"):
        nodes = [one for one in free if pick(0, 2) == 0]
        if nodes:
            free = [one for one in free if one not in nodes]
            start = NOW + (-10, 5, 10, 25)[pick(0, 3)]
            made._windows.append(
                Window(
                    name, start, start + (15, 30)[pick(0, 1)], frozenset(nodes), maintenance=pick(0, 3) == 0
                )
            )
    made._windows.sort(key=lambda window: window.start)


def _job(
    pick: Pick,
    number: int,
    made: SmallCluster,
    names: list[str],
    parts: bool,
    windows: bool,
    licenses: bool,
) -> JobView:
    fewest = pick(1, 2)
    fields: dict[str, Any] = {
        "min_nodes": fewest,
        "max_nodes": fewest + pick(0, 2),
        "num_tasks": fewest,
        "tasks_given": False,
        "tasks_per_node": None,
        "cpus_per_task": pick(1, 2),
        "memory_per_node_mb": None,
        "memory_per_cpu_mb": None,
        "gres": {},
        "exclusive": pick(0, 5) == 0,
        "nodelist": frozenset(),
        "exclude": frozenset(),
        "constraint": "",
        "time_limit": (None, 5, 10, 15, 20, 40)[pick(0, 5)],
    }
    kind = pick(0, 3)
    if kind == 1:
        fields |= {"num_tasks": fewest + pick(0, 4), "tasks_given": True}
    elif kind == 2:
        fields["tasks_per_node"] = pick(1, 2)
    memory = pick(0, 4)
    if memory == 1:
        fields["memory_per_node_mb"] = (0, 30, 60)[pick(0, 2)]
    elif memory == 2:
        fields["memory_per_cpu_mb"] = (10, 40)[pick(0, 1)]
    wish = pick(0, 11)
    if wish == 0:
        fields["gres"] = {("gpu", ""): pick(1, 2)}
    elif wish == 1:
        fields["gres"] = {GPU_KINDS[pick(0, 1)]: 1}
    elif wish == 2:
        fields["nodelist"] = frozenset({names[pick(0, len(names) - 1)]})
    elif wish == 3:
        fields["exclude"] = frozenset({names[pick(0, len(names) - 1)]})
    elif wish == 4:
        fields["constraint"] = ("x", "x&y", "x|y", "[x|y]")[pick(0, 3)]
    elif wish == 5:
        fields["constraint"] = ("x*1", "x*2", "x*1&y*1", "x*2&y*1")[pick(0, 3)]
    if pick(0, 7) == 0:
        fields["tasks"] = tuple(range(3, 3 + pick(1, 3)))
    partitions = ("main",)
    if parts:
        choice = (("main",), ("main",), ("b",), ("c", "b"), ("b", "main"), ("gone",), ("gone", "main"))
        partitions = choice[pick(0, 6)]
    if windows and pick(0, 3) == 0:
        fields["reservation"] = ("r", "s")[pick(0, 1)]
    if licenses and fields["time_limit"] is not None and pick(0, 2) == 0:
        fields["licenses"] = (("lic", pick(1, 2)),)
    return JobView(
        job_id=number,
        priority=1000,
        submit_at=NOW - 10,
        eligible_at=NOW - 10,
        partitions=partitions,
        **fields,
    )

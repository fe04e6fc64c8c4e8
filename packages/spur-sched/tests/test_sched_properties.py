"""Against an obvious scheduler that tries every set of nodes, on clusters small enough for it."""

import itertools
import math
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from spur_sched.plan import plan

GPU = ("gpu", "")
NOW = 1_000_000.0


@dataclass
class Free:
    """What is free on a node, and what ends when."""

    cpus: int
    memory: int
    gpus: int
    jobs: int
    ends: list = field(default_factory=list)

    def copy(self):
        return Free(self.cpus, self.memory, self.gpus, self.jobs, list(self.ends))

    def without_what_ends_by(self, instant):
        """The same node at `instant`."""
        after = self.copy()
        for end, cpus, memory, gpus in self.ends:
            if end <= instant:
                after.cpus += cpus
                after.memory += memory
                after.gpus += gpus
                after.jobs -= 1
        return after


def holds(job, total, free):
    """Tasks of the job that fit on one node, counted one at a time."""
    if job.exclusive and free.jobs:
        return 0
    if job.gres.get(GPU, 0) > free.gpus:
        return 0
    if job.memory_per_node_mb is not None and (job.memory_per_node_mb or total.memory_mb) > free.memory:
        return 0
    tasks = 0
    while (
        (tasks + 1) * job.cpus_per_task <= free.cpus
        and tasks < (job.tasks_per_node or 99)
        and (total.cpus if job.exclusive else (tasks + 1) * job.cpus_per_task) * (job.memory_per_cpu_mb or 0)
        <= free.memory
    ):
        tasks += 1
    return tasks


def fits(job, totals, free):
    """Whether some set of nodes holds the job."""
    each = job.tasks_per_node or 1 if not job.tasks_given else 1
    able = [
        (name, tasks)
        for name, total in totals.items()
        if name not in job.exclude and (tasks := holds(job, total, free[name])) >= each
    ]
    for size in range(job.min_nodes, job.max_nodes + 1):
        if job.tasks_given and size > job.num_tasks:
            break
        for chosen in itertools.combinations(able, size):
            if not job.nodelist <= {name for name, _ in chosen}:
                continue
            if not job.tasks_given or sum(tasks for _, tasks in chosen) >= job.num_tasks:
                return True
    return False


def earliest(job, totals, free):
    """The first end after which the job fits, None when there is none."""
    instants = sorted({end for node in free.values() for end, _, _, _ in node.ends})
    for instant in instants:
        later = {name: node.without_what_ends_by(instant) for name, node in free.items()}
        if fits(job, totals, later):
            return instant
    return None


@st.composite
def clusters(draw, node, job, part):
    count = draw(st.integers(1, 4))
    nodes = []
    for number in range(1, count + 1):
        cpus = draw(st.integers(1, 4))
        gpus = draw(st.integers(0, 2))
        running = []
        cpus_left, memory_left, gpus_left = cpus, 100, gpus
        for _ in range(draw(st.integers(0, 2))):
            took = draw(st.integers(0, cpus_left))
            if not took:
                break
            memory, held = draw(st.integers(0, memory_left)), draw(st.integers(0, gpus_left))
            end = draw(st.sampled_from([None, NOW + 10, NOW + 20, NOW + 30]))
            running.append((end, took, memory, {GPU: held} if held else {}))
            cpus_left, memory_left, gpus_left = cpus_left - took, memory_left - memory, gpus_left - held
        nodes.append(
            node(
                f"n{number}",
                cpus=cpus,
                memory_mb=100,
                gres={GPU: gpus} if gpus else {},
                running=running,
                weight=draw(st.integers(1, 2)),
                schedulable=draw(st.integers(0, 9)) > 0,
            )
        )
    names = [view.name for view in nodes]
    jobs = []
    for number in range(1, draw(st.integers(1, 7)) + 1):
        fewest = draw(st.integers(1, 2))
        shape = {
            "min_nodes": fewest,
            "max_nodes": fewest + draw(st.integers(0, 2)),
            "num_tasks": fewest,
            "cpus_per_task": draw(st.integers(1, 2)),
            "time_limit": draw(st.sampled_from([None, 5, 10, 20, 40])),
            "exclusive": draw(st.integers(0, 5)) == 0,
        }
        kind = draw(st.integers(0, 3))
        if kind == 1:
            shape["num_tasks"] = fewest + draw(st.integers(0, 4))
            shape["tasks_given"] = True
        else:
            shape["tasks_given"] = False
        if kind == 2:
            shape["tasks_per_node"] = draw(st.integers(1, 2))
        memory = draw(st.integers(0, 3))
        if memory == 1:
            shape["memory_per_node_mb"] = draw(st.sampled_from([0, 30, 60]))
        elif memory == 2:
            shape["memory_per_cpu_mb"] = draw(st.sampled_from([10, 40]))
        if draw(st.integers(0, 3)) == 0:
            shape["gres"] = {GPU: draw(st.integers(1, 2))}
        if draw(st.integers(0, 5)) == 0:
            shape["nodelist"] = frozenset({draw(st.sampled_from(names))})
        elif draw(st.integers(0, 5)) == 0:
            shape["exclude"] = frozenset({draw(st.sampled_from(names))})
        jobs.append(job(number, **shape))
    return nodes, jobs


def start(placed, job, totals, free):
    """Take what a placement takes, checking it against the request."""
    limit = math.inf if job.time_limit is None else NOW + job.time_limit
    assert job.min_nodes <= len(placed.shares) <= job.max_nodes
    assert job.nodelist <= {share.node for share in placed.shares}
    assert not job.exclude & {share.node for share in placed.shares}
    ranks = [rank for share in placed.shares for rank in share.ranks]
    wanted = job.num_tasks if job.tasks_given else len(placed.shares) * (job.tasks_per_node or 1)
    assert ranks == list(range(wanted))
    for share in placed.shares:
        node, total = free[share.node], totals[share.node]
        assert total.schedulable
        assert 1 <= len(share.ranks) <= holds(job, total, node)
        assert share.cpus == (total.cpus if job.exclusive else len(share.ranks) * job.cpus_per_task)
        gpus = share.gres.get(GPU, 0)
        node.cpus -= share.cpus
        node.memory -= share.memory_mb
        node.gpus -= gpus
        node.jobs += 1
        node.ends.append((limit, share.cpus, share.memory_mb, gpus))
        assert min(node.cpus, node.memory, node.gpus) >= 0


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_against_trying_everything(snap, node, job, part, data):
    """Walk the queue beside the plan.

    Before the first job that waits for room nobody is left out who fits.  After it nobody starts who
    would delay it, and nobody who ends in time is left out.
    """
    nodes, jobs = data.draw(clusters(node, job, part))
    result = plan(snap(nodes, jobs), NOW)
    assert result == plan(snap(nodes, jobs), NOW)
    assert result.complete
    started = {placed.job_id: placed for placed in result.placements}
    waiting = {item.job_id: item.reason for item in result.waiting}
    assert started.keys() | waiting.keys() == {view.job_id for view in jobs}
    assert not started.keys() & waiting.keys()
    assert all(waiting.values())

    totals = {view.name: view for view in nodes}
    free = {
        view.name: Free(
            view.cpus - view.used_cpus,
            view.memory_mb - view.used_memory_mb,
            view.gres.get(GPU, 0) - view.used_gres.get(GPU, 0),
            view.jobs,
            [
                (math.inf if end is None else end, cpus, memory, gres.get(GPU, 0))
                for end, cpus, memory, gres in view.running
            ],
        )
        for view in nodes
    }
    up = {name: view for name, view in totals.items() if view.schedulable}
    empty = {name: Free(v.cpus, v.memory_mb, v.gres.get(GPU, 0), 0) for name, v in totals.items()}
    first = None
    instant = None
    for view in jobs:
        placed = started.get(view.job_id)
        if placed is not None:
            before = None if first is None else instant
            start(placed, view, totals, free)
            if before is not None and math.isfinite(before):
                assert earliest(first, up, free) <= before
            continue
        if view.min_nodes > len(nodes):
            assert waiting[view.job_id] == "PartitionNodeLimit"
        elif not fits(view, totals, empty):
            assert waiting[view.job_id] == "BadConstraints"
        elif not view.nodelist <= up.keys():
            assert waiting[view.job_id] == "ReqNodeNotAvail"
        elif not fits(view, up, empty):
            assert waiting[view.job_id] == "NodeDown"
        elif first is None:
            assert waiting[view.job_id] == "Resources"
            assert not fits(view, up, free)
            first, instant = view, earliest(view, up, free)
        else:
            assert waiting[view.job_id] == "Priority"
            ends = math.inf if view.time_limit is None else NOW + view.time_limit
            if ends != math.inf and instant is not None and ends <= instant:
                assert not fits(view, up, free)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_several_partitions(snap, node, job, part, data):
    """Overlapping partitions in any state: every placement is sound, every other job has a reason."""
    nodes, jobs = data.draw(clusters(node, job, part))
    names = ("a", "b", "c")
    parts = [
        part(
            name,
            data.draw(st.lists(st.sampled_from(nodes), min_size=1, unique_by=lambda view: view.name)),
            state=data.draw(st.sampled_from(["UP", "UP", "UP", "DRAIN", "DOWN", "INACTIVE"])),
            max_time=data.draw(st.sampled_from([None, None, 20])),
            max_nodes=data.draw(st.sampled_from([None, None, 2])),
            priority_tier=data.draw(st.integers(1, 2)),
        )
        for name in names
    ]
    asked = st.lists(st.sampled_from([*names, "gone"]), min_size=1, max_size=3, unique=True)
    jobs = [view._replace(partitions=tuple(data.draw(asked))) for view in jobs]
    result = plan(snap(nodes, jobs, parts), NOW)
    assert result == plan(snap(nodes, jobs, parts), NOW)
    totals = {view.name: view for view in nodes}
    free = {
        view.name: Free(
            view.cpus - view.used_cpus,
            view.memory_mb - view.used_memory_mb,
            view.gres.get(GPU, 0) - view.used_gres.get(GPU, 0),
            view.jobs,
        )
        for view in nodes
    }
    by_id = {view.job_id: view for view in jobs}
    for placed in result.placements:
        view = by_id.pop(placed.job_id)
        chosen = next(one for one in parts if one.name == placed.partition)
        assert placed.partition in view.partitions
        assert chosen.state in ("UP", "DRAIN")
        assert {share.node for share in placed.shares} <= chosen.nodes
        assert chosen.max_nodes is None or len(placed.shares) <= chosen.max_nodes
        assert chosen.max_time is None or (view.time_limit or 10**9) <= chosen.max_time
        start(placed, view, totals, free)
    assert {item.job_id for item in result.waiting} == by_id.keys()
    assert all(item.reason not in ("", "None") for item in result.waiting)

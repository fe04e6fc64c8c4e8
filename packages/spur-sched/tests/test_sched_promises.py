"""What holds of every plan, whatever the cluster: stated once each, on random small ones."""

import json
import math
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from testkit.small_clusters import NOW, draw

from spur_sched import kernel
from spur_sched.api import Policy
from spur_sched.plan import plan

POLICIES = ("none", "easy", "conservative")
ROUNDS = int(os.environ.get("SPUR_ORACLE", "150"))


def clusters(policy, rounds=ROUNDS):
    for number in range(rounds):
        chance = random.Random(f"promises {policy} {number}")
        yield draw(chance.randint, backfill=policy, windows=number % 3 == 0, licenses=number % 4 == 0)


def starts(found):
    """Job -> planned start; a job that has none is not in it."""
    planned = {item.job_id: item.at for item in found.expected}
    return planned | {item.job_id: NOW for item in found.placements}


@pytest.mark.parametrize("policy", POLICIES)
def test_no_resource_is_given_twice(policy):
    for cluster in clusters(policy):
        found = plan(cluster, NOW)
        used = {
            view.name: [view.used_cpus, view.used_memory_mb, dict(view.used_gres)] for view in cluster.nodes()
        }
        for placement in found.placements:
            for share in placement.shares:
                used[share.node][0] += share.cpus
                used[share.node][1] += share.memory_mb
                for key, count in share.gres.items():
                    used[share.node][2][key] = used[share.node][2].get(key, 0) + count
        for view in cluster.nodes():
            cpus, memory, gres = used[view.name]
            assert cpus <= view.cpus
            assert not view.memory_mb or memory <= view.memory_mb
            assert all(count <= view.gres.get(key, 0) for key, count in gres.items())
        for name, pool in cluster.licenses().items():
            taken = sum(count for p in found.placements for own, count in p.licenses if own == name)
            assert pool.used + pool.reserved + taken <= pool.total


@pytest.mark.parametrize("policy", POLICIES)
def test_every_job_starts_or_has_one_reason(policy):
    for cluster in clusters(policy):
        found = plan(cluster, NOW)
        waiting = [item.job_id for item in found.waiting]
        assert len(waiting) == len(set(waiting))
        assert all(item.reason not in ("", "None") for item in found.waiting)
        whole = {item.job_id for item in found.placements if item.task is None}
        tasks: dict[int, int] = {}
        for item in found.placements:
            tasks[item.job_id] = tasks.get(item.job_id, 0) + 1
        for job in cluster.pending():
            all_started = job.job_id in whole or tasks.get(job.job_id) == len(job.tasks or (0,))
            assert all_started != (job.job_id in waiting)


@pytest.mark.parametrize("policy", POLICIES)
def test_nobody_pays_for_who_comes_behind(policy):
    """What is planned for the first jobs of a queue does not depend on the others: neither does a job behind
    take their room, nor does it move a start that was promised."""
    for number, cluster in enumerate(clusters(policy)):
        queue = cluster.pending()
        first = queue[: number % len(queue)]
        known = {job.job_id for job in first}
        whole, part = plan(cluster, NOW), plan(cluster.changed(jobs=first), NOW)
        assert [p for p in whole.placements if p.job_id in known] == list(part.placements)
        assert [w for w in whole.waiting if w.job_id in known] == list(part.waiting)
        assert [e for e in whole.expected if e.job_id in known] == list(part.expected)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_higher_priority_never_means_a_later_start(policy):
    """A job that is moved up in the queue, all else equal, is planned to start no later than before.

    True in one pass: those before its new place are decided as before, and room and licences only shrink
    while a pass goes on.  Over several passes it is not: what starts instead may end later.
    """
    for number, cluster in enumerate(clusters(policy)):
        queue = cluster.pending()
        at = number % len(queue)
        job = queue[at]
        before = starts(plan(cluster, NOW)).get(job.job_id, math.inf)
        for place in range(at):
            moved = [one for one in queue if one is not job]
            moved.insert(place, job._replace(priority=job.priority + 1))
            after = starts(plan(cluster.changed(jobs=moved), NOW)).get(job.job_id, math.inf)
            assert after <= before, (number, place)


def test_the_order_of_sets_and_maps_does_not_matter():
    """Equal input, equal plan: in a process with other hashes, and with partitions listed otherwise."""
    code = (
        "import json, sys; from importlib import util\n"
        f"spec = util.spec_from_file_location('t', {__file__!r}); t = util.module_from_spec(spec)\n"
        "spec.loader.exec_module(t)\n"
        "print(json.dumps([t.told(c) for p in t.POLICIES for c in t.clusters(p, 40)]))"
    )
    path = os.pathsep.join([str(Path(__file__).parents[3] / "tools"), *filter(None, sys.path)])
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(said) == 1
    assert len(json.loads(said.pop())) == 120
    for policy in POLICIES:
        for cluster in clusters(policy, 40):
            assert told(cluster) == told(cluster.changed(parts=cluster._parts[::-1]))


def told(cluster):
    """A plan as plain data."""
    found = plan(cluster, NOW)
    return [
        [
            [p.job_id, p.task, p.partition, [[s.node, s.cpus, s.memory_mb] for s in p.shares]]
            for p in found.placements
        ],
        [list(item) for item in found.waiting],
        [[e.job_id, e.at, list(e.nodes)] for e in found.expected],
    ]


@pytest.mark.parametrize("compiled", [True, False])
def test_gpus_of_any_type_are_the_same_ones_throughout(snap, node, job, now, compiled):
    """One is free at every instant, but none for all of the time."""
    gpus = {("gpu", "a100"): 1, ("gpu", "h100"): 1}
    held = (now + 600, 4, 0, {("gpu", "a100"): 1})
    nodes = [node("n0", cpus=8, gres=gpus, running=[held])]
    jobs = [
        job(1, cpus_per_task=6, gres={("gpu", "h100"): 1}, time_limit=3600),
        job(2, gres={("gpu", ""): 1}, time_limit=7200),
    ]
    before = kernel.use(compiled)
    try:
        found = plan(snap(nodes, jobs, policy=Policy(backfill="conservative", bf_resolution=0)), now)
    finally:
        kernel.use(before)
    assert not found.placements
    assert [(one.job_id, one.at) for one in found.expected] == [(1, now + 600), (2, now + 600)]

"""What a pass remembers and what it guesses makes it faster and changes nothing of the plan."""

import random

import pytest

from spur_sched import search
from spur_sched.api import Policy
from spur_sched.bounds import Bounds
from spur_sched.plan import Planner, plan
from spur_sched.timeline import Timeline


def test_who_asks_for_more_begins_no_earlier():
    bounds = Bounds(2)
    assert bounds.after((1.0, 1.0)) == -float("inf")
    bounds.add((2.0, 4.0), 100.0)
    bounds.add((4.0, 2.0), 300.0)
    bounds.add((8.0, 8.0), 900.0)
    assert bounds.after((2.0, 4.0)) == 100.0
    assert bounds.after((4.0, 4.0)) == 300.0
    assert bounds.after((1.0, 9.0)) == -float("inf")
    for number in range(5000):
        bounds.add((float(number), 0.0), float(number))
    assert bounds.after((9.0, 9.0)) == 900.0


def busy(chance, node, now):
    nodes = []
    for number in range(40):
        left, running = 32, []
        while left > 2 and chance.random() < 0.9:
            took = min(left, chance.choice([2, 8, 16, 32]))
            left -= took
            end = None if chance.random() < 0.05 else now + chance.randrange(60, 86_400)
            running.append((end, took, took * 100, {}))
        gres = {("gpu", "h100"): 4} if number % 4 == 0 else {}
        nodes.append(node(f"n{number:02d}", cpus=32, memory_mb=12_000, gres=gres, running=running))
    return nodes


def queue(chance, job):
    kinds = []
    for _ in range(chance.choice([4, 60])):
        kind = {"time_limit": chance.choice([None, 600, 3600, chance.randrange(60, 90_000)])}
        kind["cpus_per_task"] = chance.choice([1, 2, 4, 8])
        kind["memory_per_cpu_mb"] = chance.choice([None, 100, 300, 900])
        if chance.random() < 0.7:
            kind["num_tasks"] = chance.choice([1, 4, 16, 40])
            kind["min_nodes"] = chance.choice([1, 2, 8])
            kind["max_nodes"] = max(kind["min_nodes"], chance.choice([1, 4, 16]))
        if chance.random() < 0.2:
            kind["gres"] = {("gpu", "h100"): chance.randint(1, 4)}
        if chance.random() < 0.1:
            kind["exclusive"] = True
        kinds.append(kind)
    return [job(number, **chance.choice(kinds)) for number in range(1, 120)]


@pytest.mark.parametrize("resolution", [0, 60, 1800])
@pytest.mark.parametrize("seed", range(6))
def test_the_plan_is_the_same_without_them(snap, node, job, now, monkeypatch, seed, resolution):
    chance = random.Random(seed)
    policy = Policy(backfill="conservative", bf_resolution=resolution, bf_max_job_test=200)
    snapshot = snap(busy(chance, node, now), queue(chance, job), policy=policy)
    found = plan(snapshot, now)
    assert len(found.expected) > 10
    with monkeypatch.context() as patch:
        # Nobody learns from others, and all of the time is looked at at once.
        patch.setattr(Bounds, "after", lambda *_: -float("inf"))
        patch.setattr(search, "_PARTS", 0)
        assert plan(snapshot, now) == found
    with monkeypatch.context() as patch:
        # A very short part first, then one more.
        patch.setattr(Timeline, "reached", lambda timeline, _: setattr(timeline, "reach", 1.0))
        patch.setattr(search, "_PARTS", 1)
        assert plan(snapshot, now) == found


@pytest.mark.parametrize("backfill", ["none", "easy", "conservative"])
@pytest.mark.parametrize("seed", range(10, 16))
def test_who_has_room_is_kept_up_to_date(snap, node, job, now, seed, backfill):
    chance = random.Random(seed)
    nodes = busy(chance, node, now)
    jobs = queue(chance, job)
    # Some reach beyond promises, most end before them.
    jobs = [one._replace(time_limit=chance.choice([60, 300, one.time_limit])) for one in jobs]
    planner = Planner(snap(nodes, jobs, policy=Policy(backfill=backfill)), now)
    found = plan(snap(nodes, jobs, policy=Policy(backfill=backfill)), now)
    # All nodes are looked at again for every job.
    planner.ground.shrinks = False
    while not planner.advance(1000):
        pass
    assert planner.result() == found


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
def test_fewer_tasks_than_nodes_are_not_less_than_as_many(snap, node, job, now, backfill):
    nodes = [node(f"n{number}") for number in range(4)]
    jobs = [job(1, min_nodes=3, num_tasks=1, max_nodes=3), job(2, min_nodes=3, num_tasks=3, max_nodes=3)]
    found = plan(snap(nodes, jobs, policy=Policy(backfill=backfill)), now)
    assert [placed.job_id for placed in found.placements] == [2]

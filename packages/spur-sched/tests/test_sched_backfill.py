"""Backfill: who is promised what, and that slices do not change a plan."""

import math

import pytest

from spur_sched.api import License, Policy
from spur_sched.plan import Planner, plan

CAREFUL = Policy(backfill="conservative")


def starts(found, now):
    """Seconds from now until the expected starts, by job."""
    return {one.job_id: one.at - now for one in found.expected}


def placed(found):
    return [one.job_id for one in found.placements]


@pytest.fixture
def busy(node, now):
    """One node of four CPUs: two are free in ten minutes, two in twenty."""
    return [node("n1", running=[(now + 600, 2, 0, {}), (now + 1200, 2, 0, {})])]


def test_conservative_promises_to_everybody(snap, busy, job, now):
    jobs = [job(1, cpus_per_task=4, time_limit=600), job(2, cpus_per_task=2, time_limit=540), job(3)]
    found = plan(snap(busy, jobs, policy=CAREFUL), now)
    # Promised starts but that of the first are whole minutes.
    first, second, third = (starts(found, now)[at] for at in (1, 2, 3))
    assert first == 1200
    assert 600 <= second < 660
    assert 1800 <= third < 1860
    assert [item.reason for item in found.waiting] == ["Resources", "Priority", "Priority"]


def test_easy_promises_to_the_first_alone(snap, busy, job, now):
    jobs = [job(1, cpus_per_task=4, time_limit=600), job(2, cpus_per_task=2, time_limit=600)]
    assert starts(plan(snap(busy, jobs), now), now) == {1: 1200}


def test_without_backfill_nobody_passes(snap, node, job, part, now):
    nodes = [node("n1", running=[(now + 600, 3, 0, {})]), node("n2")]
    parts = [part("main", nodes[:1]), part("other", nodes[1:])]
    jobs = [job(1, cpus_per_task=4), job(2, time_limit=60), job(3, partitions=("other",))]
    found = plan(snap(nodes, jobs, parts, policy=Policy(backfill="none")), now)
    assert placed(found) == [3]
    assert found.expected == ()
    assert placed(plan(snap(nodes, jobs, parts), now)) == [2, 3]


def test_a_later_promise_delays_no_earlier_one(snap, busy, job, now):
    """Between minute ten and twenty two CPUs are free: for who is gone by then."""
    jobs = [job(1, cpus_per_task=4), job(2, cpus_per_task=2, time_limit=601), job(3, time_limit=540)]
    found = starts(plan(snap(busy, jobs, policy=CAREFUL), now), now)
    assert found[1] == 1200
    assert found[2] >= 1200 + 3600
    assert 600 <= found[3] < 660


@pytest.mark.parametrize(
    ("policy", "promised"),
    [
        (CAREFUL._replace(bf_max_job_test=2), {1, 2}),
        (CAREFUL._replace(bf_window=900), {1, 3}),
        (CAREFUL._replace(bf_min_prio_reserve=1001), set()),
        (CAREFUL._replace(bf_max_job_user=1), {1, 2}),
        (CAREFUL._replace(bf_max_job_part=1), {1, 2}),
    ],
)
def test_bounds(snap, busy, job, now, policy, promised):
    """The first job gets its promise however late; of one user, one partition, one more is tried."""
    jobs = [job(1, cpus_per_task=4), job(2, cpus_per_task=4), job(3, time_limit=60)]
    assert starts(plan(snap(busy, jobs, policy=policy), now), now).keys() == promised


def test_work_without_a_limit_is_waited_for(snap, node, job, now):
    nodes = [node("n1", running=[(None, 4, 0, {})])]
    assert starts(plan(snap(nodes, [job(1)]), now), now) == {1: math.inf}


def test_a_promise_holds_on_every_node_for_the_whole_time(snap, node, job, now):
    """n1 is free early but promised from minute fifteen on; so both nodes together are free only later."""
    nodes = [node("n1", running=[(now + 600, 4, 0, {})]), node("n2", running=[(now + 900, 4, 0, {})])]
    jobs = [
        job(1, nodelist=frozenset({"n2"}), cpus_per_task=4, time_limit=600),
        job(2, min_nodes=2, num_tasks=8, time_limit=600),
        job(3, cpus_per_task=4, time_limit=960),
        job(4, cpus_per_task=4, time_limit=840),
    ]
    found = starts(plan(snap(nodes, jobs, policy=CAREFUL), now), now)
    assert found[1] == 900
    assert 1500 <= found[2] < 1560
    assert found[3] >= 2100
    assert 600 <= found[4] < 660


def test_licences_are_waited_for(snap, node, job, now):
    nodes = [node("n1", cpus=8)]
    pool = {"m": License(2, 0)}
    jobs = [job(1, licenses=(("m", 2),), time_limit=600), job(2, licenses=(("m", 1),)), job(3)]
    found = plan(snap(nodes, jobs, licenses=pool), now)
    assert placed(found) == [1, 3]
    assert found.placements[0].licenses == (("m", 2),)
    assert [(item.job_id, item.reason) for item in found.waiting] == [(2, "Licenses")]
    assert starts(found, now) == {2: 600}


def test_a_job_that_cannot_end_by_its_deadline(snap, node, job, now):
    nodes = [node("n1", running=[(now + 600, 4, 0, {})])]
    jobs = [job(1, time_limit=900, deadline_at=now + 899), job(2, time_limit=900, deadline_at=now + 1000)]
    found = plan(snap(nodes, jobs), now)
    assert [item.reason for item in found.waiting] == ["DeadLine", "Resources"]
    assert found.expected == ()


@pytest.mark.parametrize("backfill", ["none", "easy", "conservative"])
@pytest.mark.parametrize("work", [1, 7, 100])
def test_slices_change_nothing(snap, node, job, now, backfill, work):
    nodes = [node(f"n{at}", cpus=8, running=[(now + 60 * at, at % 8, 0, {})]) for at in range(1, 12)]
    jobs = [
        job(at, cpus_per_task=1 + at % 5, min_nodes=1 + at % 3, time_limit=300 * (1 + at % 7))
        for at in range(1, 60)
    ]
    cluster = snap(nodes, jobs, policy=Policy(backfill=backfill))
    planner = Planner(cluster, now)
    turns = 1
    while not planner.advance(work):
        turns += 1
    assert turns > 1
    assert planner.result() == plan(cluster, now)


def test_licences_that_are_promised_for_ever_are_promised_once(snap, node, job, part, now):
    """Who waits for the end of work without a limit keeps its licences from then on."""
    nodes = [node("n1", running=[(None, 4, 10, {})])]
    jobs = [job(number, licenses=(("lic", 2),), partitions=(name,)) for number, name in ((1, "a"), (2, "b"))]
    pools = {"lic": License(2, 0, 0)}
    found = plan(snap(nodes, jobs, [part("a", nodes), part("b", nodes)], licenses=pools), now)
    assert [one.job_id for one in found.expected] == [1]

"""Limits inside a pass: who starts, why the others wait, and that nobody waits for who is over a limit."""

import pytest

from spur_sched.api import NodeShare, Policy, Running
from spur_sched.limits.check import Checker
from spur_sched.limits.tables import Association, GroupLimits, Qos, ShareLimits, Tables
from spur_sched.plan import plan


def tables(*associations, qos=(), **more):
    return Tables(
        {(one.account, one.uid): one for one in associations}, {one.name: one for one in qos}, **more
    )


@pytest.fixture
def run(snap, now):
    """Plans with limits; ({job: placements}, {job: reason})."""

    def go(which, nodes, jobs, running=(), **more):
        checker = Checker(which, running, now, jobs)
        found = plan(snap(nodes, jobs, limits=checker, running=running, **more), now)
        started = {}
        for placement in found.placements:
            started.setdefault(placement.job_id, []).append(placement)
        return started, {one.job_id: one.reason for one in found.waiting}

    return go


MOST_TWO = tables(Association("a", own=ShareLimits(jobs=2)))


def test_what_the_pass_starts_counts(run, node, job):
    jobs = [job(number, uid=1, account="a") for number in (1, 2, 3)] + [job(4, uid=2, account="a")]
    started, waiting = run(MOST_TWO, [node("n1", 8)], jobs)
    assert set(started) == {1, 2, 4}
    assert waiting == {3: "AssocMaxJobsLimit"}


def test_tasks_of_an_array_count_one_by_one(run, node, job):
    started, waiting = run(MOST_TWO, [node("n1", 8)], [job(1, account="a", tasks=(0, 1, 2, 3))])
    assert [placement.task for placement in started[1]] == [0, 1]
    assert waiting == {1: "AssocMaxJobsLimit"}


@pytest.mark.parametrize("backfill", ["easy", "conservative", "none"])
def test_nobody_waits_for_a_job_that_is_over_a_limit(run, node, job, backfill):
    """It asks for all of the cluster and stands first; without the limit it would keep the room."""
    which = tables(Association("a", group=GroupLimits(tres={"cpu": 3})))
    jobs = [job(1, account="a", num_tasks=4, priority=9), job(2, account="b", num_tasks=4)]
    started, waiting = run(which, [node("n1", 4)], jobs, policy=Policy(backfill=backfill))
    assert set(started) == {2}
    assert waiting == {1: "AssocGrpCpuLimit"}


def test_the_limit_is_told_and_not_who_is_before(run, node, job):
    """Another job waits for room before it."""
    which = tables(Association("a", own=ShareLimits(jobs=0)))
    jobs = [job(1, num_tasks=8, priority=9), job(2, account="a")]
    busy = node("n1", 8, running=[(None, 4, 0, {})])
    _, waiting = run(which, [busy], jobs)
    assert waiting == {1: "Resources", 2: "AssocMaxJobsLimit"}


def test_a_place_that_takes_more_than_was_asked_for(run, node, job):
    """An exclusive job gets all CPUs of the node."""
    which = tables(Association("a", group=GroupLimits(tres={"cpu": 4})))
    started, waiting = run(which, [node("n1", 8)], [job(1, account="a", exclusive=True), job(2, account="a")])
    assert set(started) == {2}
    assert waiting == {1: "AssocGrpCpuLimit"}


def test_what_runs_counts(run, node, job, now):
    holder = Running(9, 1, 1, 1, "main", 1, "a", "", now, None, (NodeShare("n1", 1, 0, {}, (0,)),))
    busy = node("n1", 8, running=[(None, 1, 0, {})])
    jobs = [job(number, uid=1, account="a") for number in (1, 2)]
    started, waiting = run(MOST_TWO, [busy], jobs, [holder])
    assert (set(started), waiting) == ({1}, {2: "AssocMaxJobsLimit"})


def test_a_group_stays_on_the_nodes_that_it_has(run, node, job, now):
    """It may use two nodes and is on n2: one job may come to another node, the others stay on the two."""
    which = tables(Association("a", group=GroupLimits(tres={"node": 2})))
    holder = Running(9, 1, 1, 1, "main", 1, "a", "", now, None, (NodeShare("n2", 1, 0, {}, (0,)),))
    nodes = [node("n1", 4), node("n2", 4, running=[(None, 1, 0, {})]), node("n3", 4, weight=9)]
    jobs = [job(number, account="a", num_tasks=2, max_nodes=1) for number in range(1, 6)]
    started, waiting = run(which, nodes, [*jobs, job(6, num_tasks=4)], [holder])
    used = [started[number][0].shares[0].node for number in (1, 2, 3)]
    assert used == ["n3", "n3", "n2"]
    # There is room on n1 yet.  The one that is over no limit has it.
    assert started[6][0].shares[0].node == "n1"
    assert waiting == {4: "AssocGrpNodeLimit", 5: "AssocGrpNodeLimit"}


def test_a_job_on_several_nodes_reuses_as_many_as_it_must(run, node, job, now):
    which = tables(Association("a", group=GroupLimits(tres={"node": 2})))
    holder = Running(9, 1, 1, 1, "main", 1, "a", "", now, None, (NodeShare("n2", 1, 0, {}, (0,)),))
    nodes = [node("n1", 4), node("n2", 4, running=[(None, 1, 0, {})])]
    started, waiting = run(which, nodes, [job(1, account="a", min_nodes=2)], [holder])
    assert [part.node for part in started[1][0].shares] == ["n1", "n2"]
    assert not waiting


def test_a_partition_with_a_qos_may_be_full_for_whom_another_is_not(run, node, job, part):
    which = tables(qos=[Qos("few", group=GroupLimits(jobs=1)), Qos("many")], partition_qos={"small": "few"})
    nodes = [node("n1", 8)]
    parts = [part("small", nodes, priority_tier=2), part("main", nodes)]
    jobs = [job(number, partitions=("small", "main")) for number in (1, 2)] + [job(3, partitions=("small",))]
    started, waiting = run(which, nodes, jobs, parts=parts)
    assert [started[number][0].partition for number in (1, 2)] == ["small", "main"]
    assert waiting == {3: "QOSGrpJobsLimit"}


def test_every_job_has_its_reason_with_many_limits(run, node, job):
    which = tables(
        Association("", group=GroupLimits(jobs=6)),
        Association("a", group=GroupLimits(tres={"cpu": 3})),
        Association("b", own=ShareLimits(jobs=1)),
        qos=[Qos("q", user=ShareLimits(tres={"cpu": 2}))],
    )
    jobs = [
        job(number, uid=number % 3, account="ab"[number % 2], qos="q" if number % 5 == 0 else "")
        for number in range(1, 30)
    ]
    started, waiting = run(which, [node("n1", 64)], jobs)
    assert set(started) | set(waiting) == {one.job_id for one in jobs}
    assert len(started) <= 6
    assert set(waiting.values()) <= {
        "AssocGrpJobsLimit",
        "AssocGrpCpuLimit",
        "AssocMaxJobsLimit",
        "QOSMaxCpuPerUserLimit",
    }


def test_without_limits_the_plan_is_the_same(snap, node, job, now):
    nodes = [node(f"n{at}", 4) for at in range(3)]
    jobs = [job(number, num_tasks=number % 5 + 1, account="a") for number in range(1, 12)]
    bare = plan(snap(nodes, jobs), now)
    assert plan(snap(nodes, jobs, limits=Checker(Tables(), (), now)), now) == bare

"""Every job that does not start is told the truth about why, and nobody who waits is overtaken for ever."""

import pytest

from spur_sched.plan import plan

GPU = ("gpu", "")


def reason(result, job_id=1):
    return next((waiting.reason for waiting in result.waiting if waiting.job_id == job_id), None)


def placed(result):
    return [item.job_id for item in result.placements]


@pytest.mark.parametrize(
    ("limits", "shape", "expected"),
    [
        ({"state": "DOWN", "up": False}, {}, "PartitionDown"),
        ({"state": "INACTIVE", "up": False}, {}, "PartitionInactive"),
        ({"state": "DRAIN", "up": False}, {}, None),
        ({"max_time": 60}, {"time_limit": 61}, "PartitionTimeLimit"),
        ({"max_time": 60}, {"time_limit": None}, "PartitionTimeLimit"),
        ({"max_time": 60}, {"time_limit": 60}, None),
        ({"max_nodes": 1}, {"min_nodes": 2}, "PartitionNodeLimit"),
        ({"max_nodes": 1}, {"min_nodes": 1, "max_nodes": 2}, None),
        ({"min_nodes": 2}, {}, "PartitionNodeLimit"),
        ({}, {"min_nodes": 3}, "PartitionNodeLimit"),
        ({}, {"partitions": ("gone",)}, "PartitionConfig"),
        ({}, {"nodelist": frozenset({"elsewhere"})}, "BadConstraints"),
    ],
)
def test_partition_reasons(snap, node, job, part, now, limits, shape, expected):
    nodes = [node("n1"), node("n2")]
    result = plan(snap(nodes, [job(1, **shape)], [part("main", nodes, **limits)]), now)
    assert reason(result) == expected


def test_a_closed_partition_does_not_hide_an_open_one(snap, node, job, part, now):
    nodes = [node("n1")]
    parts = [part("down", nodes, state="DOWN"), part("main", nodes)]
    assert placed(plan(snap(nodes, [job(1, partitions=("down", "main"))], parts), now)) == [1]


def test_unavailable_nodes(snap, node, job, now):
    nodes = [node("n1"), *(node(f"n{number}", schedulable=False) for number in (2, 3, 4))]
    jobs = [
        job(1, nodelist=frozenset({"n2", "n3", "n4"})),
        job(2, min_nodes=2),
        job(3),
    ]
    result = plan(snap(nodes, jobs), now)
    assert [(item.job_id, item.reason, item.desc) for item in result.waiting] == [
        (1, "ReqNodeNotAvail", "ReqNodeNotAvail, UnavailableNodes:n[2-4]"),
        (
            2,
            "NodeDown",
            "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
        ),
    ]
    assert placed(result) == [3]


def test_a_node_never_seen_is_waited_for(snap, node, job, now):
    """Nobody knows its size, so nothing is impossible on it."""
    nodes = [node("n1", cpus=0, memory_mb=0, known=False, schedulable=False)]
    assert reason(plan(snap(nodes, [job(1, cpus_per_task=64, constraint="x")]), now)) == "NodeDown"


def test_first_waits_for_resources_others_for_their_turn(snap, node, job, now):
    nodes = [node("n1", running=[(now + 600, 4, 0, {})])]
    result = plan(snap(nodes, [job(1), job(2), job(3)]), now)
    assert [item.reason for item in result.waiting] == ["Resources", "Priority", "Priority"]


def test_each_partition_has_a_first(snap, node, job, part, now):
    nodes = [node(name, running=[(now + 600, 4, 0, {})]) for name in ("n1", "n2")]
    parts = [part("a", nodes[:1]), part("b", nodes[1:])]
    jobs = [job(number, partitions=(name,)) for number, name in ((1, "a"), (2, "b"), (3, "a"), (4, "b"))]
    result = plan(snap(nodes, jobs, parts), now)
    assert [item.reason for item in result.waiting] == ["Resources", "Resources", "Priority", "Priority"]


def test_an_impossible_job_holds_nobody_up(snap, node, job, now):
    nodes = [node("n1")]
    result = plan(snap(nodes, [job(1, cpus_per_task=99), job(2)]), now)
    assert reason(result, 1) == "BadConstraints"
    assert placed(result) == [2]


class TestPromise:
    """Four CPUs on n1, half of them busy for ten minutes more; job 1 wants all four."""

    @pytest.fixture
    def nodes(self, node, now):
        return [node("n1", running=[(now + 600, 2, 0, {})])]

    @pytest.mark.parametrize(
        ("limit", "starts"),
        [(600, True), (599, True), (601, False), (None, False)],
    )
    def test_only_what_ends_in_time_slips_in(self, snap, job, now, nodes, limit, starts):
        jobs = [job(1, cpus_per_task=4), job(2, time_limit=limit)]
        result = plan(snap(nodes, jobs), now)
        assert placed(result) == ([2] if starts else [])
        assert reason(result, 1) == "Resources"

    def test_long_work_may_use_what_is_left_over(self, snap, node, job, now, nodes):
        """The promise covers n1 only."""
        jobs = [job(1, cpus_per_task=4), job(2, time_limit=None), job(3, time_limit=None)]
        busy = node("n2", cpus=3, running=[(now + 900, 2, 0, {})])
        result = plan(snap([*nodes, busy], jobs), now)
        assert [(item.job_id, item.shares[0].node) for item in result.placements] == [(2, "n2")]
        assert reason(result, 3) == "Priority"

    def test_spare_room_on_the_promised_node(self, snap, job, now, nodes):
        """Job 1 wants three of the four: one CPU stays for long work, and is given once."""
        jobs = [job(1, cpus_per_task=3), job(2, time_limit=None), job(3, time_limit=None)]
        assert placed(plan(snap(nodes, jobs), now)) == [2]

    def test_shorter_work_of_a_failed_shape_is_still_tried(self, snap, job, now, nodes):
        jobs = [job(1, cpus_per_task=4), job(2, time_limit=9999), job(3, time_limit=60)]
        assert placed(plan(snap(nodes, jobs), now)) == [3]

    def test_gres_is_promised_too(self, snap, node, job, now):
        nodes = [node("n1", gres={GPU: 2}, running=[(now + 600, 1, 0, {GPU: 1})])]
        jobs = [job(1, gres={GPU: 2}), job(2, gres={GPU: 1}), job(3, time_limit=600, gres={GPU: 1})]
        assert placed(plan(snap(nodes, jobs), now)) == [3]

    def test_unlimited_work_gives_no_instant_but_keeps_its_heirs(self, snap, node, job, now):
        """n1 is busy for ever: work with an end may use n2, work without one may not."""
        nodes = [node("n1", running=[(None, 4, 0, {})]), node("n2")]
        jobs = [job(1, min_nodes=2, cpus_per_task=4, num_tasks=2), job(2, time_limit=None), job(3)]
        assert placed(plan(snap(nodes, jobs), now)) == [3]

    def test_overdue_work_is_expected_to_go(self, snap, node, job, now):
        nodes = [node("n1", running=[(now - 50, 2, 0, {})])]
        assert placed(plan(snap(nodes, [job(1, cpus_per_task=4), job(2, time_limit=60)]), now)) == []

    def test_exclusive_work_is_promised_an_empty_node(self, snap, job, now, nodes):
        jobs = [job(1, exclusive=True), job(2, time_limit=601), job(3, time_limit=600)]
        assert placed(plan(snap(nodes, jobs), now)) == [3]

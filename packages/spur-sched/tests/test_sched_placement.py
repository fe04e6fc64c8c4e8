"""Where jobs go: counts, layouts, memory, generic resources, features, node lists."""

import pytest

from spur_sched.plan import plan

GPU = ("gpu", "")
H100 = ("gpu", "h100")
A100 = ("gpu", "a100")


def layout(result, job_id=1):
    """{node: tasks} of the job's first placement, or the reason it waits."""
    for placed in result.placements:
        if placed.job_id == job_id:
            return {share.node: len(share.ranks) for share in placed.shares}
    return next(waiting.reason for waiting in result.waiting if waiting.job_id == job_id)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ({}, {"n1": 1}),
        ({"num_tasks": 4}, {"n1": 4}),
        ({"num_tasks": 5}, {"n1": 4, "n2": 1}),
        ({"num_tasks": 12}, {"n1": 4, "n2": 4, "n3": 4}),
        ({"min_nodes": 2}, {"n1": 1, "n2": 1}),
        ({"min_nodes": 2, "num_tasks": 7}, {"n1": 4, "n2": 3}),
        ({"min_nodes": 2, "num_tasks": 5}, {"n1": 3, "n2": 2}),
        ({"min_nodes": 3, "num_tasks": 4}, {"n1": 2, "n2": 1, "n3": 1}),
        ({"min_nodes": 1, "max_nodes": 3}, {"n1": 1, "n2": 1, "n3": 1}),
        ({"min_nodes": 2, "max_nodes": 9}, {"n1": 1, "n2": 1, "n3": 1}),
        ({"min_nodes": 2, "tasks_per_node": 3, "num_tasks": 6}, {"n1": 3, "n2": 3}),
        ({"num_tasks": 4, "tasks_per_node": 2, "min_nodes": 1, "max_nodes": 4}, {"n1": 2, "n2": 2}),
        ({"num_tasks": 3, "cpus_per_task": 2}, {"n1": 2, "n2": 1}),
        ({"cpus_per_task": 4}, {"n1": 1}),
        ({"memory_per_node_mb": 0}, {"n1": 1}),
        ({"memory_per_cpu_mb": 400, "num_tasks": 4}, {"n1": 2, "n2": 2}),
        ({"nodelist": frozenset({"n3"})}, {"n3": 1}),
        ({"nodelist": frozenset({"n3"}), "min_nodes": 2}, {"n1": 1, "n3": 1}),
        ({"nodelist": frozenset({"n3"}), "num_tasks": 6}, {"n1": 4, "n3": 2}),
        ({"exclude": frozenset({"n1"})}, {"n2": 1}),
        ({"exclude": frozenset({"n1", "n2"}), "min_nodes": 2}, "BadConstraints"),
        ({"cpus_per_task": 5}, "BadConstraints"),
        ({"num_tasks": 13}, "BadConstraints"),
        ({"num_tasks": 5, "max_nodes": 1}, "BadConstraints"),
        ({"memory_per_node_mb": 1001}, "BadConstraints"),
        ({"min_nodes": 4}, "PartitionNodeLimit"),
    ],
)
def test_layout_on_three_empty_nodes(snap, node, job, now, shape, expected):
    """Three nodes of four CPUs and 1000 MiB."""
    nodes = [node("n1"), node("n2"), node("n3")]
    assert layout(plan(snap(nodes, [job(1, **shape)]), now)) == expected


def test_ranks_are_consecutive_blocks(snap, node, job, now):
    result = plan(snap([node("n1"), node("n2")], [job(1, num_tasks=6)]), now)
    assert [share.ranks for share in result.placements[0].shares] == [(0, 1, 2, 3), (4, 5)]


def test_tasks_per_node_without_a_task_count_binds_every_node(snap, node, job, now):
    """A node too small for its part is passed over."""
    nodes = [node("n1", cpus=1), node("n2"), node("n3")]
    view = job(1, min_nodes=2, tasks_per_node=2, tasks_given=False)
    assert layout(plan(snap(nodes, [view]), now)) == {"n2": 2, "n3": 2}


def test_the_fewest_nodes_hold_a_big_job(snap, node, job, now):
    """Small nodes first in line do not make it spread wider than it needs."""
    nodes = [node("n1", cpus=1), node("n2", cpus=8), node("n3", cpus=2)]
    assert layout(plan(snap(nodes, [job(1, num_tasks=9)]), now)) == {"n2": 8, "n3": 1}


def test_a_higher_weight_is_preferred(snap, node, job, now):
    nodes = [node("n1", weight=1), node("n2", weight=5)]
    assert layout(plan(snap(nodes, [job(1)]), now)) == {"n2": 1}


def test_shares_say_what_is_taken(snap, node, job, now):
    nodes = [node("n1", cpus=8, gres={H100: 2, A100: 2})]
    view = job(1, num_tasks=2, cpus_per_task=2, memory_per_cpu_mb=100, gres={GPU: 3})
    share = plan(snap(nodes, [view]), now).placements[0].shares[0]
    assert (share.cpus, share.memory_mb, share.gres) == (4, 400, {A100: 2, H100: 1})


def test_typed_gres_is_served_before_untyped(snap, node, job, now):
    """`gpu:h100:2` and `gpu:1` on a node with two of each."""
    nodes = [node("n1", gres={H100: 2, A100: 1})]
    share = plan(snap(nodes, [job(1, gres={GPU: 1, H100: 2})]), now).placements[0].shares[0]
    assert share.gres == {H100: 2, A100: 1}


def test_used_gres_is_not_given_twice(snap, node, job, now):
    nodes = [node("n1", gres={GPU: 2}, running=[(now + 60, 1, 0, {GPU: 1})])]
    result = plan(snap(nodes, [job(1, gres={GPU: 1}), job(2, gres={GPU: 1})]), now)
    assert layout(result, 1) == {"n1": 1}
    assert layout(result, 2) == "Resources"


def test_exclusive_takes_the_whole_node_and_needs_it_empty(snap, node, job, now):
    nodes = [node("n1", running=[(now + 60, 1, 0, {})]), node("n2", gres={GPU: 1})]
    result = plan(snap(nodes, [job(1, exclusive=True, memory_per_node_mb=10), job(2), job(3)]), now)
    share = result.placements[0].shares[0]
    assert (share.node, share.cpus, share.memory_mb, share.gres) == ("n2", 4, 10, {GPU: 1})
    assert layout(result, 2) == {"n1": 1}


def test_a_node_without_stated_memory_does_not_limit_it(snap, node, job, now):
    nodes = [node("n1", memory_mb=0)]
    assert layout(plan(snap(nodes, [job(1, memory_per_node_mb=5000)]), now)) == {"n1": 1}


@pytest.mark.parametrize(
    ("constraint", "shape", "expected"),
    [
        ("ib", {}, {"n2": 1}),
        ("ib&gpu", {}, {"n3": 1}),
        ("gpu|slow", {"min_nodes": 2}, {"n1": 1, "n3": 1}),
        ("[slow|ib]", {"min_nodes": 2}, {"n2": 1, "n3": 1}),
        ("ib*1", {"min_nodes": 2}, {"n1": 1, "n2": 1}),
        ("ib*2", {"min_nodes": 3}, {"n1": 1, "n2": 1, "n3": 1}),
        ("ib*3", {"min_nodes": 3}, "BadConstraints"),
        ("nosuch", {}, "BadConstraints"),
        ("ib&slow", {}, "BadConstraints"),
        ("((", {}, "BadConstraints"),
    ],
)
def test_constraints(snap, node, job, now, constraint, shape, expected):
    nodes = [
        node("n1", features=frozenset({"slow"})),
        node("n2", features=frozenset({"ib"})),
        node("n3", features=frozenset({"ib", "gpu"})),
    ]
    assert layout(plan(snap(nodes, [job(1, constraint=constraint, **shape)]), now)) == expected


def test_array_tasks_are_placed_one_by_one(snap, node, job, now):
    result = plan(snap([node("n1")], [job(1, tasks=(0, 1, 2, 5, 7, 9))]), now)
    assert [(placed.job_id, placed.task) for placed in result.placements] == [(1, 0), (1, 1), (1, 2), (1, 5)]
    assert [(waiting.job_id, waiting.reason) for waiting in result.waiting] == [(1, "Resources")]


def test_an_array_whose_tasks_all_start_waits_for_nothing(snap, node, job, now):
    result = plan(snap([node("n1")], [job(1, tasks=(3, 4))]), now)
    assert (len(result.placements), result.waiting) == (2, ())


def test_partitions_are_tried_by_tier_then_in_order(snap, node, job, part, now):
    nodes = [node("n1"), node("n2"), node("n3")]
    parts = [
        part("a", [nodes[0]]),
        part("b", [nodes[1]]),
        part("c", [nodes[2]], priority_tier=5),
    ]
    jobs = [job(number, partitions=("a", "b", "c"), cpus_per_task=4) for number in (1, 2, 3, 4)]
    result = plan(snap(nodes, jobs, parts), now)
    assert [(placed.job_id, placed.partition) for placed in result.placements] == [
        (1, "c"),
        (2, "a"),
        (3, "b"),
    ]
    assert layout(result, 4) == "Resources"


def test_the_budget_ends_a_pass_early(snap, node, job, now):
    """What was not looked at has neither a placement nor a reason."""
    result = plan(snap([node("n1", cpus=100)], [job(number) for number in range(1, 50)]), now, budget=10)
    assert not result.complete
    assert 0 < len(result.placements) < 49
    assert result.waiting == ()

"""So many nodes of a job with each feature."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_sched.counted import choose_counted
from spur_sched.plan import plan
from spur_sched.spread import Count, Offer

ANY = {"tasks_given": False, "each": 1}


def look(nodes, wants, **more):
    """The nodes chosen of [(features, tasks)], by number from 0."""
    count = {"min_nodes": 1, "max_nodes": 9, "num_tasks": 1, "tasks_given": True, "each": 1, **more}
    offers = [Offer(at, tasks) for at, (_, tasks) in enumerate(nodes)]
    found = choose_counted(Count(**count), offers, lambda at: frozenset(nodes[at][0]), wants)
    return None if found is None else dict(found)


@pytest.mark.parametrize(
    ("nodes", "wants", "more", "found"),
    [
        # One node that has both, where there may not be two.
        ([("x", 1), ("y", 1), ("xy", 1)], [("x", 1), ("y", 1)], {"max_nodes": 1, **ANY}, [2]),
        ([("x", 1), ("y", 1), ("xy", 1)], [("x", 1), ("y", 1)], {"max_nodes": 1}, [2]),
        ([("x", 1), ("y", 1)], [("x", 1), ("y", 1)], {"max_nodes": 1, **ANY}, None),
        # Those of them that hold most tasks.
        ([("x", 1), ("x", 4), ("", 2)], [("x", 1)], {"num_tasks": 6, "max_nodes": 2}, [1, 2]),
        ([("x", 1), ("x", 1), ("", 9)], [("x", 2)], {"num_tasks": 4, "max_nodes": 2}, None),
        ([("x", 1), ("x", 1), ("", 9)], [("x", 2)], {"num_tasks": 4}, [0, 1, 2]),
        # The first one that will do alone.
        ([("", 4), ("x", 4), ("x", 9)], [("x", 1)], {"num_tasks": 4}, [1]),
        # More of them than it takes, if it may have so many nodes.
        ([("x", 1), ("x", 1), ("", 1)], [("x", 1)], {"max_nodes": 3, **ANY}, [0, 1, 2]),
        ([("", 1), ("", 1), ("x", 1)], [("x", 1)], {"max_nodes": 2, **ANY}, [0, 2]),
        ([("x", 1)], [("x", 2)], {}, None),
    ],
)
def test_which_nodes(nodes, wants, more, found):
    chosen = look(nodes, wants, **more)
    assert (None if chosen is None else sorted(chosen)) == found


@given(st.data())
def test_there_is_no_better_choice(data):
    nodes = data.draw(
        st.lists(st.tuples(st.sampled_from(["", "x", "y", "xy"]), st.integers(1, 3)), min_size=1, max_size=6)
    )
    wants = data.draw(st.lists(st.tuples(st.sampled_from("xy"), st.integers(1, 3)), min_size=1, max_size=2))
    most = data.draw(st.integers(1, 6))
    tasks = data.draw(st.integers(1, 9))
    sizes = [
        size
        for size in range(1, min(most, tasks) + 1)
        for some in combinations(nodes, size)
        if sum(held for _, held in some) >= tasks
        and all(sum(name in names for names, _ in some) >= number for name, number in wants)
    ]
    found = look(nodes, wants, max_nodes=most, num_tasks=tasks)
    assert (None if found is None else len(found)) == min(sizes, default=None)
    if found is not None:
        assert sum(found.values()) == tasks
        assert all(sum(name in nodes[at][0] for at in found) >= number for name, number in wants)


def test_many_at_once():
    """What would take too long to be tried in all ways gets the first ones."""
    nodes = [("x" if at % 2 else "y", 1) for at in range(600)]
    assert len(look(nodes, [("x", 200), ("y", 200)], max_nodes=500, num_tasks=450)) == 450


def test_in_a_pass(snap, node, job, now):
    names = {"n1": "x", "n2": "y", "n3": "xy"}
    nodes = [node(name, features=frozenset(have)) for name, have in names.items()]
    found = plan(snap(nodes, [job(1, constraint="[x*1&y*1]")]), now)
    assert [[share.node for share in one.shares] for one in found.placements] == [["n3"]]
    row = job(1, constraint="[x*1&y*1]", contiguous=True, min_nodes=2, max_nodes=2)
    found = plan(snap(nodes[:2], [row]), now)
    assert [[share.node for share in one.shares] for one in found.placements] == [["n1", "n2"]]


def test_tasks_in_a_row_lie_as_elsewhere(snap, node, job, now):
    """Node after node, unless a number of nodes was asked for."""
    nodes = [node("n1", cpus=4), node("n2", cpus=4)]
    ranks = []
    for least in (1, 2):
        row = job(1, contiguous=True, num_tasks=5, tasks_given=True, min_nodes=least, max_nodes=2)
        found = plan(snap(nodes, [row]), now)
        ranks.append([len(share.ranks) for share in found.placements[0].shares])
    assert ranks == [[4, 1], [3, 2]]

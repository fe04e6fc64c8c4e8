"""Trees, blocks, and which nodes of them a job gets."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_sched.spread import Count, Offer, choose
from spur_sched.topology import Topology, blocks, pick, tree
from spur_sched.topology.picking import Groups, pick_of, switches_used

#: Two cores with two leaves each; node i is on leaf i // 4.
TREE = tree(
    [
        ("s0", ()),
        ("s1", ()),
        ("s2", ()),
        ("s3", ()),
        ("left", ("s0", "s1")),
        ("right", ("s2", "s3")),
        ("top", ("left", "right")),
    ]
)


def leaf(at: int) -> str:
    return f"s{at // 4}"


def nodes(number: int, most: int | None = None) -> Count:
    return Count(number, number if most is None else most, number, False, 1)


def picked(
    free: str, count: Count, most: int | None = None, topology: Topology = TREE, tasks: int = 1
) -> list[int] | None:
    """`free`: a digit for each node in order, 1 = free."""
    offers = [Offer(at, tasks) for at, char in enumerate(free.replace(" ", "")) if char == "1"]
    found = pick(topology, offers, leaf, count, most)
    if found is None:
        return None
    chosen = choose(count, found)
    assert chosen is not None
    return sorted(at for at, _ in chosen)


def test_levels_paths_and_distances() -> None:
    assert TREE.levels == {"s0": 0, "s1": 0, "s2": 0, "s3": 0, "left": 1, "right": 1, "top": 2}
    assert TREE.path("s2") == ("top", "right", "s2")
    assert TREE.under["top"] == ("s0", "s1", "s2", "s3")
    assert TREE.distance("s0", "s0") == 0
    assert TREE.distance("s0", "s1") == 2
    assert TREE.distance("s0", "s3") == 4
    assert tree([("a", ()), ("b", ())]).distance("a", "b") is None


@pytest.mark.parametrize(
    ("free", "number", "expected"),
    [
        # One leaf, the one that is left the least room.
        ("1111 1110 0110 1111", 2, [9, 10]),
        ("1111 1110 0110 1111", 3, [4, 5, 6]),
        ("1111 1110 0110 1111", 4, [0, 1, 2, 3]),
        # Two leaves under one switch before two under different ones.
        ("1111 0000 1100 1111", 6, [8, 9, 12, 13, 14, 15]),
        # The whole tree only when nothing lower does.
        ("1111 1110 0110 1111", 8, [0, 1, 2, 3, 12, 13, 14, 15]),
        ("1110 0000 0000 0011", 5, [0, 1, 2, 14, 15]),
    ],
)
def test_fewest_switches(free: str, number: int, expected: list[int]) -> None:
    assert picked(free, nodes(number)) == expected


def test_the_smallest_leaf_in_the_last_place() -> None:
    flat = tree([("s0", ()), ("s1", ()), ("s2", ()), ("s3", ()), ("top", ("s0", "s1", "s2", "s3"))])
    assert picked("1111 1111 1110 1100", nodes(6), topology=flat) == [0, 1, 2, 3, 12, 13]


def test_at_most_so_many_switches() -> None:
    assert picked("1100 1100 1100 1100", nodes(4), most=1) is None
    assert picked("1100 1100 1100 1100", nodes(4), most=2) == [0, 1, 4, 5]
    assert picked("1111 1100 1100 1100", nodes(4), most=1) == [0, 1, 2, 3]


def test_fewer_leaves_further_apart_when_only_so_many_are_allowed() -> None:
    assert picked("1100 1100 1111 1111", nodes(8), most=2) == [8, 9, 10, 11, 12, 13, 14, 15]
    assert picked("1111 1100 1111 1100", nodes(8), most=2) == [0, 1, 2, 3, 8, 9, 10, 11]


def test_as_many_nodes_as_possible_of_a_range() -> None:
    assert picked("1111 1111 0000 0000", nodes(2, 6)) == [0, 1, 2, 3, 4, 5]
    # So many are not on one switch: as many as there are there.
    assert picked("1111 1111 0000 0000", nodes(2, 6), most=1) == [0, 1, 2, 3]


def test_tasks_count_and_not_nodes() -> None:
    count = Count(1, 4, 8, True, 1)
    offers = [Offer(0, 2), Offer(1, 2), Offer(4, 8), Offer(8, 4), Offer(9, 4)]
    found = pick(TREE, offers, leaf, count)
    assert found is not None
    assert {leaf(offer.at) for offer in found} == {"s1"} or {leaf(offer.at) for offer in found} == {"s2"}


def test_nodes_asked_for_by_name_are_among_them() -> None:
    offers = [Offer(at, 1, required=at in (0, 12)) for at in range(16)]
    found = pick(TREE, offers, leaf, nodes(4))
    assert found is not None
    chosen = choose(nodes(4), found)
    assert chosen is not None
    assert {0, 12} <= {at for at, _ in chosen}
    assert switches_used(list(found), leaf) == 2
    assert pick(TREE, offers, leaf, nodes(4), 1) is None


def test_what_nothing_joins_never_shares_a_job() -> None:
    apart = tree([("s0", ()), ("s1", ())])
    assert picked("1111 1111", nodes(5), topology=apart) is None
    assert picked("1111 1111", nodes(4), topology=apart) == [0, 1, 2, 3]


def test_a_node_without_a_switch_runs_alone() -> None:
    assert picked("0000 0000 0000 0000 11", nodes(1)) == [16]
    assert picked("0000 0000 0000 0000 11", nodes(2)) is None


def test_blocks_follow_the_names() -> None:
    topology, of = blocks([f"n{i}" for i in range(7)], 3)
    assert of["n2"] == "block000"
    assert of["n6"] == "block002"
    assert topology.path("block001") == ("blocks", "block001")
    assert blocks([], 18)[1] == {}


@given(
    st.lists(st.booleans(), min_size=16, max_size=16), st.integers(1, 16), st.sampled_from([None, 1, 2, 3])
)
def test_never_more_leaves_than_needed(free: list[bool], number: int, most: int | None) -> None:
    flat = tree([("s0", ()), ("s1", ()), ("s2", ()), ("s3", ()), ("top", ("s0", "s1", "s2", "s3"))])
    sizes = [sum(free[at : at + 4]) for at in range(0, 16, 4)]
    fewest = next(
        (k for k in range(1, 5) if any(sum(some) >= number for some in combinations(sizes, k))), None
    )
    found = picked("".join("1" if one else "0" for one in free), nodes(number), most, flat)
    if fewest is None or (most is not None and fewest > most):
        assert found is None
        return
    assert found is not None
    assert len({leaf(at) for at in found}) == fewest


@given(
    st.lists(st.tuples(st.integers(-1, 3), st.integers(1, 4)), max_size=20),
    st.integers(1, 8),
    st.integers(0, 4),
    st.booleans(),
    st.sampled_from([None, 1, 2]),
)
def test_columns_and_offers_give_the_same(
    free: list[tuple[int, int]], low: int, more: int, given_tasks: bool, most: int | None
) -> None:
    """Nodes as columns, which is fast for many, and as offers."""
    leaves = ["s0", "s1", "s2", "s3"]
    where = np.arange(len(free), dtype=np.int64)
    tasks = np.array([held for _, held in free], dtype=np.int64)
    ids = np.array([leaf for leaf, _ in free], dtype=np.int64)
    count = Count(low, low + more, 2 * low if given_tasks else low, given_tasks, 1)
    offers = [Offer(at, held) for at, (_, held) in enumerate(free)]
    names = ["" if at < 0 else leaves[at] for at, _ in free]
    slow = pick(TREE, offers, names.__getitem__, count, most)
    fast = pick_of(TREE, Groups.of_columns(leaves, ids, where, tasks), count, most)
    if slow is not None:
        assert fast == slow
    else:
        assert fast is None or choose(count, fast) is None

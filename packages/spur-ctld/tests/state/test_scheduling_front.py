"""Which jobs a quick pass looks at: none that could take what one left out before it might have had."""

import random

import pytest

from spur_ctld.scheduling.front import front, neighbours
from spur_ctld.state.pending import request_view
from spur_ctld.state.records import Request
from spur_sched.api import PartitionView


def job(job_id, partitions="a", **more):
    request = Request(name="job", user="alice", uid=1000, gid=100, partitions=tuple(partitions.split("+")))
    return request_view(request, job_id, 1, 0.0, 0.0)._replace(**more)


def partition(name, nodes):
    return PartitionView(name, True, "UP", frozenset(nodes.split()), None, None, 1, 1)


NEAR = neighbours(
    {
        "a": partition("a", "n1 n2"),
        "ab": partition("ab", "n2 n3"),
        "b": partition("b", "n3"),
        "c": partition("c", "n4"),
        "none": partition("none", ""),
    }
)


def test_partitions_with_nodes_in_common():
    assert {
        "a": {"a", "ab"},
        "ab": {"a", "ab", "b"},
        "b": {"ab", "b"},
        "c": {"c"},
        "none": {"none"},
    } == NEAR


@pytest.mark.parametrize(
    ("queue", "depth", "found"),
    [
        ("a a", 5, [0, 1]),
        ("a a a a", 2, [0, 1]),
        # Nobody before it may use its node.
        ("a a a c a c", 2, [0, 1, 3, 5]),
        ("a a a c c c", 2, [0, 1, 3, 4]),
        # What is left out keeps the neighbours out, and theirs not.
        ("a a a ab", 2, [0, 1]),
        ("a a a b", 2, [0, 1, 3]),
        ("a a ab ab a b", 2, [0, 1, 2, 3]),
        ("a a ab ab ab b a", 2, [0, 1, 2, 3]),
        # Of several partitions each counts.
        ("a a a c+a c", 2, [0, 1, 4]),
        ("a a a c+ab c", 2, [0, 1, 4]),
        # So many more at most.
        ("c c c a b", 2, [0, 1, 3, 4]),
        ("a+ab c none b b b", 1, [0, 1]),
    ],
)
def test_the_front(queue, depth, found):
    jobs = [job(at, names) for at, names in enumerate(queue.split())]
    assert [one.job_id for one in front(jobs, depth, NEAR)] == found


def test_those_named_come_in_their_order():
    jobs = [job(at) for at in range(10)]
    assert [one.job_id for one in front(jobs, 2, NEAR, (8, 1, 5))] == [0, 1, 5, 8]


def test_licences_are_everybodys():
    held = {"licenses": (("m", 1),)}
    jobs = [job(0), job(1), job(2, "c", **held), job(3, "b"), job(4, "b", **held)]
    assert [one.job_id for one in front(jobs, 1, NEAR)] == [0, 3]
    assert [one.job_id for one in front(jobs, 1, NEAR, (2,))] == [0, 2, 3]


@pytest.mark.parametrize("seed", range(20))
def test_nobody_meets_who_was_left_out_before_him(seed):
    chance = random.Random(seed)
    names = ["a", "ab", "b", "c", "a+c", "b+c", "none"]
    jobs = [job(at, chance.choice(names)) for at in range(60)]
    depth = chance.randint(1, 8)
    chosen = {one.job_id for one in front(jobs, depth, NEAR)}
    assert set(range(depth)) <= chosen
    assert len(chosen) <= 2 * depth
    for at, one in enumerate(jobs):
        if at not in chosen:
            continue
        left_out = [other for other in jobs[:at] if other.job_id not in chosen]
        meets = {name for own in one.partitions for name in NEAR[own]}
        assert not any(meets & set(other.partitions) for other in left_out)

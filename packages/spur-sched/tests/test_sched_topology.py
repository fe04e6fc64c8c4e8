"""Passes put jobs on few switches, and wait for them while they were asked to."""

from typing import Any

import pytest

from spur_sched.api import Policy
from spur_sched.feasible import feasible
from spur_sched.plan import plan

NOW = 1_000_000.0
TREE = Policy(topology=(("s0", "top"), ("s1", "top"), ("top", "")))


@pytest.fixture
def cluster(snap: Any, node: Any, part: Any) -> Any:
    def build(busy: str, jobs: list[Any], policy: Policy = TREE, per_switch: int = 2) -> Any:
        nodes = []
        for at, char in enumerate(busy):
            running = [(NOW + 600, 4, 0, {})] if char == "x" else []
            nodes.append(node(f"n{at}", running=running, switch=f"s{at // per_switch}"))
        return plan(snap(nodes, jobs, [part("main", nodes)], policy=policy), NOW)

    return build


def started(found: Any) -> dict[int, list[str]]:
    return {one.job_id: [share.node for share in one.shares] for one in found.placements}


def test_two_nodes_on_one_switch(cluster: Any, job: Any) -> None:
    assert started(cluster("x...", [job(1, min_nodes=2)])) == {1: ["n2", "n3"]}
    # Without a network the first two.
    assert started(cluster("x...", [job(1, min_nodes=2)], Policy())) == {1: ["n1", "n2"]}


def test_over_two_switches_when_it_must(cluster: Any, job: Any) -> None:
    assert started(cluster("x.x.", [job(1, min_nodes=2)])) == {1: ["n1", "n3"]}


def test_a_job_waits_for_one_switch(cluster: Any, job: Any) -> None:
    wants = job(1, min_nodes=2, switches=1, switches_until=NOW + 100)
    found = cluster("x.x.", [wants])
    assert started(found) == {}
    # It cannot have one by then, so it is expected when its wait is over, or a switch is free.
    assert found.expected[0].at > NOW


def test_until_its_wait_is_over(cluster: Any, job: Any) -> None:
    late = job(1, min_nodes=2, switches=1, switches_until=NOW - 1)
    assert started(cluster("x.x.", [late])) == {1: ["n1", "n3"]}
    for_ever = job(1, min_nodes=2, switches=1)
    assert started(cluster("x.x.", [for_ever])) == {}


def test_a_switch_of_a_single_node_job_does_not_matter(cluster: Any, job: Any) -> None:
    assert started(cluster("x.x.", [job(1, switches=1)])) == {1: ["n1"]}


def test_what_nothing_joins_never_runs_together(cluster: Any, job: Any) -> None:
    apart = Policy(topology=(("s0", ""), ("s1", "")))
    found = cluster("....", [job(1, min_nodes=3)], apart)
    assert started(found) == {}
    assert found.waiting[0].reason == "BadConstraints"


def test_what_nothing_joins_is_refused_at_once(node: Any, part: Any, job: Any) -> None:
    nodes = [node(f"n{at}", switch=f"s{at // 2}") for at in range(4)]
    parts = {"main": part("main", nodes)}
    apart = (("s0", ""), ("s1", ""))
    assert feasible(job(1, min_nodes=2), nodes, parts, apart) is None
    found = feasible(job(1, min_nodes=3), nodes, parts, apart)
    assert found is not None
    assert found.text == "Requested node configuration is not available"
    assert feasible(job(1, min_nodes=3), nodes, parts) is None


def test_tasks_over_few_switches(cluster: Any, job: Any) -> None:
    found = cluster(
        ".....x", [job(1, num_tasks=8, max_nodes=4)], TREE._replace(topology=(*TREE.topology, ("s2", "top")))
    )
    assert len({int(name[1:]) // 2 for name in started(found)[1]}) == 1

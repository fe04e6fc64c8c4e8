"""Partitions whose jobs share CPUs."""

import pytest

from spur_sched.api import NodeShare, Policy, Running
from spur_sched.plan import plan


def layers(found):
    """{job: [(node, layer)]} of what starts."""
    starts: dict[int, list[tuple[str, int]]] = {}
    for one in found.placements:
        starts.setdefault(one.job_id, []).extend((share.node, share.layer) for share in one.shares)
    return starts


def waits(found):
    return {one.job_id: one.reason for one in found.waiting}


@pytest.fixture
def one_node(snap, node, part, now):
    """A plan for jobs of a partition that shares, on one node of four CPUs, and of one that does not."""

    def run(jobs, word="FORCE", most=2, there=(), **more):
        running = tuple((end, cpus, 0, {}) for end, cpus, _ in there)
        view = node("n1", cpus=4, running=running)
        if any(layer for *_, layer in there):
            own = sum(cpus for _, cpus, layer in there if not layer)
            kept = tuple(("main", layer) if layer else None for *_, layer in there)
            view = view._replace(layers=kept, used_cpus=own)
        parts = [part("main", [view], oversubscribe=word, share=most), part("plain", [view])]
        return plan(snap([view], jobs, parts, **more), now)

    return run


def test_as_many_jobs_on_a_cpu_as_the_partition_says(one_node, job):
    found = one_node([job(number, num_tasks=4, tasks_given=True) for number in (1, 2, 3)])
    assert layers(found) == {1: [("n1", 1)], 2: [("n1", 2)]}
    assert waits(found) == {3: "Resources"}


def test_small_jobs_get_idle_cpus_first(one_node, job):
    found = one_node([job(number, num_tasks=2, tasks_given=True) for number in range(1, 6)])
    assert [layer for one in layers(found).values() for _, layer in one] == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("word", "asks", "started"),
    [("YES", True, 2), ("YES", False, 1), ("FORCE", False, 2), ("NO", True, 1), ("EXCLUSIVE", True, 1)],
)
def test_who_shares(one_node, job, word, asks, started):
    most = 2 if word in ("YES", "FORCE") else 1
    jobs = [job(number, num_tasks=4, tasks_given=True, oversubscribe=asks) for number in (1, 2)]
    assert len(layers(one_node(jobs, word, most))) == started


def test_nobody_has_a_node_to_himself_where_all_share(one_node, job):
    jobs = [job(1, exclusive=True), job(2, exclusive=True)]
    assert len(layers(one_node(jobs))) == 2
    assert len(layers(one_node(jobs, "YES"))) == 1
    assert len(layers(one_node(jobs, "FORCE", 1))) == 2


def test_memory_is_not_shared(one_node, job):
    jobs = [job(number, memory_per_node_mb=600) for number in (1, 2)]
    assert len(layers(one_node(jobs))) == 1


def test_who_does_not_share_keeps_away_from_who_does(one_node, job, now):
    own, shares = job(1, partitions=("plain",)), job(2)
    assert layers(one_node([own, shares])) == {1: [("n1", 0)]}
    assert layers(one_node([shares, own])) == {2: [("n1", 1)]}
    assert layers(one_node([own], there=[(now + 50, 1, 2)])) == {}
    assert layers(one_node([shares], there=[(now + 50, 1, 0)])) == {}


def test_a_layer_that_the_partition_has_no_more_still_counts(one_node, job, now):
    found = one_node([job(1, num_tasks=4, tasks_given=True)], most=2, there=[(now + 50, 4, 3), (None, 1, 1)])
    assert layers(found) == {1: [("n1", 2)]}
    found = one_node([job(1)], word="NO", most=1, there=[(now + 50, 1, 1)])
    assert layers(found) == {}


def test_a_promise_is_for_the_first_layer_that_comes_free(one_node, job, now):
    found = one_node([job(1, num_tasks=4, tasks_given=True)], there=[(now + 90, 3, 1), (now + 50, 2, 2)])
    assert [(one.job_id, one.at) for one in found.expected] == [(1, now + 50)]


def test_making_room_for_who_shares(snap, node, part, job, now):
    """Everybody who does not share with it has to go; who does stays."""
    view = node("n1", cpus=4, running=((None, 4, 0, {}), (None, 4, 0, {})))
    view = view._replace(layers=(("low", 1), ("low", 2)), used_cpus=0)
    running = [
        Running(
            8 + layer,
            1,
            100,
            1,
            "low",
            1,
            "",
            "",
            now - 100,
            None,
            (NodeShare("n1", 4, 0, {}, (), layer),),
            preempt_mode="cancel",
        )
        for layer in (1, 2)
    ]
    parts = [
        part("low", [view], priority_tier=1, oversubscribe="FORCE", share=2),
        part("main", [view], priority_tier=2),
    ]
    policy = Policy(preempt_type="partition_prio")
    found = plan(snap([view], [job(1)], parts, policy=policy, running=running), now)
    assert [sorted(victim[0] for victim in one.victims) for one in found.preemptions] == [[9, 10]]
    parts[1] = part("main", [view], priority_tier=2, oversubscribe="FORCE", share=2)
    found = plan(snap([view], [job(1)], parts, policy=policy, running=running), now)
    assert [sorted(victim[0] for victim in one.victims) for one in found.preemptions] == [[9, 10]]


def test_the_least_loaded_node(snap, node, part, job, now):
    """What is in layers is load, too."""
    busy = node("n1", running=((None, 2, 0, {}),))._replace(layers=(("main", 1),), used_cpus=0)
    nodes = [busy, node("n2")]
    parts = [part("main", nodes, lln=True, oversubscribe="FORCE", share=2)]
    assert layers(plan(snap(nodes, [job(1)], parts), now)) == {1: [("n2", 1)]}

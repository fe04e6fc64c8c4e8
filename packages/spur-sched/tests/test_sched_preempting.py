"""Preemption within a pass: room of victims is kept for whom they made it, now and in the passes to come."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_sched.api import NodeShare, Over, Policy, Running
from spur_sched.plan import plan

NOW = 1_000_000.0
PRIO = Policy(preempt_type="partition_prio")
GPU = ("gpu", "")


def attempt(job_id: int, *nodes: str, cpus: int = 4, mode: str = "cancel", **more: Any) -> Running:
    fields: dict[str, Any] = {
        "attempt": 1,
        "priority": 100,
        "tier": 1,
        "partition": "low",
        "uid": 1,
        "account": "",
        "qos": "",
        "started": NOW - 100,
        "end": NOW + 3600,
        "shares": tuple(NodeShare(name, cpus, 100, {}, ()) for name in nodes or ("n1",)),
        "preempt_mode": mode,
    }
    fields.update(more)
    return Running(job_id=job_id, **fields)


class Small:
    """Nodes of 4 CPUs, partition `low` (tier 1) and `main` (tier 10) over all of them."""

    def __init__(self, snap: Any, node: Any, part: Any, count: int = 2, cpus: int = 4) -> None:
        self.snap, self.node, self.part = snap, node, part
        self.names = [f"n{i}" for i in range(1, count + 1)]
        self.cpus = cpus

    def plan(self, jobs: list[Any], running: list[Running], policy: Policy = PRIO, **node: Any) -> Any:
        nodes = []
        for name in self.names:
            here = []
            for one in running:
                for share in one.shares:
                    if share.node == name:
                        here.append((one.end, share.cpus, share.memory_mb, share.gres))
            nodes.append(self.node(name, cpus=self.cpus, running=here, **node))
        parts = [
            self.part("low", nodes, priority_tier=1),
            self.part("main", nodes, priority_tier=10),
        ]
        return plan(self.snap(nodes, jobs, parts, policy=policy, running=running), NOW)


@pytest.fixture
def small(snap: Any, node: Any, part: Any) -> Any:
    return lambda *args, **more: Small(snap, node, part, *args, **more)


def victims(found: Any) -> dict[int, list[tuple[int, str]]]:
    return {one.job_id: [(v[0], v[2]) for v in one.victims] for one in found.preemptions}


def started(found: Any) -> dict[int, list[str]]:
    return {one.job_id: [share.node for share in one.shares] for one in found.placements}


def test_the_lowest_of_all_makes_room(small: Any, job: Any) -> None:
    found = small().plan(
        [job(1, num_tasks=4)], [attempt(11, "n1", priority=5), attempt(12, "n2", priority=6)]
    )
    assert victims(found) == {1: [(11, "cancel")]}
    assert found.preemptions[0].victims == ((11, 1, "cancel", 0),)
    assert [(one.job_id, one.reason) for one in found.waiting] == [(1, "Resources")]
    assert [(one.job_id, one.nodes) for one in found.expected] == [(1, ("n1",))]


def test_several_make_room_together(small: Any, job: Any) -> None:
    running = [attempt(n, "n1", cpus=1, priority=n) for n in (11, 12, 13, 14)]
    running += [attempt(21, "n2", priority=50)]
    found = small().plan([job(1, num_tasks=4)], running, PRIO._replace(preempt_strict_order=True))
    assert victims(found) == {1: [(11, "cancel"), (12, "cancel"), (13, "cancel"), (14, "cancel")]}


def test_what_is_free_already_helps(small: Any, job: Any) -> None:
    running = [attempt(11, "n1", cpus=1, priority=1), attempt(12, "n1", cpus=1, priority=2)]
    running += [attempt(13, "n2", cpus=4, priority=3)]
    found = small().plan([job(1, num_tasks=3, max_nodes=1)], running)
    assert victims(found) == {1: [(11, "cancel")]}


def test_nobody_when_it_does_not_help(small: Any, job: Any) -> None:
    assert not small().plan([job(1, num_tasks=9)], [attempt(11), attempt(12, "n2")]).preemptions
    assert (
        not small()
        .plan([job(1, num_tasks=4)], [attempt(11, tier=10), attempt(12, "n2", tier=11)])
        .preemptions
    )
    low = job(1, num_tasks=4, partitions=("low",))
    assert not small().plan([low], [attempt(11), attempt(12, "n2")]).preemptions
    off = small().plan([job(1, num_tasks=4)], [attempt(11), attempt(12, "n2")], Policy())
    assert not off.preemptions


def test_two_jobs_never_count_on_the_same_room(small: Any, job: Any) -> None:
    jobs = [job(n, num_tasks=4) for n in (1, 2, 3)]
    found = small().plan(jobs, [attempt(11), attempt(12, "n2", priority=200)])
    assert victims(found) == {1: [(11, "cancel")], 2: [(12, "cancel")]}


def test_what_one_victim_frees_besides_serves_the_next_job(small: Any, job: Any) -> None:
    jobs = [job(n, num_tasks=2, max_nodes=1) for n in (1, 2, 3)]
    found = small().plan(jobs, [attempt(11), attempt(12, "n2", priority=200)])
    assert victims(found) == {1: [(11, "cancel")], 3: [(12, "cancel")]}


def test_a_lower_job_gets_neither_freed_nor_free_room_of_it(small: Any, job: Any) -> None:
    running = [attempt(11, "n1", cpus=2), attempt(12, "n2", cpus=2, priority=200)]
    small_jobs = [job(n, partitions=("low",)) for n in (2, 3, 4, 5, 6)]
    found = small().plan([job(1, num_tasks=4, max_nodes=1), *small_jobs], running)
    assert victims(found) == {1: [(11, "cancel")]}
    # n1's two free CPUs are for job 1.
    assert started(found) == {2: ["n2"], 3: ["n2"]}


@pytest.mark.parametrize("state", [{"ending_since": NOW - 1}, {"preempt_mode": "cancel"}])
def test_in_the_next_pass_the_room_is_still_kept(small: Any, job: Any, state: dict[str, Any]) -> None:
    """From the state alone: the victim says for whom it makes room."""
    running = [attempt(11, "n1", cpus=2, room_for=1, end=NOW + 30, **state), attempt(12, "n2", priority=200)]
    low = [job(n, partitions=("low",)) for n in (2, 3)]
    found = small().plan([job(1, num_tasks=4), *low], running)
    assert not found.preemptions
    assert started(found) == {}
    assert {one.job_id: one.reason for one in found.waiting}[1] == "Resources"


def test_what_ends_anyway_is_waited_for(small: Any, job: Any) -> None:
    running = [attempt(11, "n1", ending_since=NOW - 1), attempt(12, "n2", priority=200)]
    found = small().plan([job(1, num_tasks=4)], running)
    assert not found.preemptions
    slow = [attempt(11, "n1", ending_since=NOW - 1000), attempt(12, "n2", priority=200)]
    assert victims(small().plan([job(1, num_tasks=4)], slow)) == {1: [(12, "cancel")]}


def test_an_array_makes_room_for_its_tasks(small: Any, job: Any) -> None:
    running = [attempt(11), attempt(12, "n2", priority=200)]
    found = small().plan([job(1, num_tasks=4, tasks=(0, 1, 2))], running)
    assert [one.victims[0][0] for one in found.preemptions] == [11, 12]
    assert [(one.job_id, one.reason) for one in found.waiting] == [(1, "Resources")]


class TestSuspended:
    def test_memory_and_devices_stay(self, small: Any, job: Any) -> None:
        running = [attempt(11, "n1", mode="suspend"), attempt(12, "n2", mode="suspend", priority=200)]
        fits = job(1, num_tasks=4, max_nodes=1, memory_per_node_mb=900)
        assert victims(small().plan([fits], running)) == {1: [(11, "suspend")]}
        too_much = job(1, num_tasks=4, max_nodes=1, memory_per_node_mb=901)
        assert not small().plan([too_much], running).preemptions

    def test_lent_cpus_are_taken_at_once_by_whom_they_are_for(self, small: Any, job: Any) -> None:
        running = [attempt(11, "n1", mode="suspend", room_for=1, lent=True), attempt(12, "n2")]
        found = small().plan([job(1, num_tasks=4)], running)
        assert started(found) == {1: ["n1"]}
        assert not found.preemptions

    def test_nobody_of_its_own_tier_gets_lent_cpus(self, small: Any, job: Any) -> None:
        running = [attempt(11, "n1", mode="suspend", room_for=1, lent=True), attempt(12, "n2")]
        found = small().plan([job(2, partitions=("low",))], running)
        assert started(found) == {}

    def test_what_a_job_leaves_of_them_stays_theirs(self, small: Any, job: Any) -> None:
        running = [attempt(11, "n1", mode="suspend", room_for=1, lent=True), attempt(12, "n2")]
        found = small().plan([job(1), job(2, partitions=("low",))], running)
        assert started(found) == {1: ["n1"]}

    def test_who_sleeps_already_is_taken_first(self, small: Any, job: Any) -> None:
        running = [
            attempt(11, "n1", mode="suspend", room_for=99, lent=True, priority=900),
            attempt(12, "n2", priority=1),
        ]
        found = small().plan([job(1, num_tasks=4)], running)
        assert started(found) == {1: ["n1"]}


def test_a_promise_of_an_earlier_job_is_not_broken(small: Any, job: Any) -> None:
    """The first job cannot push anybody aside; the second must not delay it."""
    running = [attempt(11, "n1"), attempt(12, "n2", tier=20, end=NOW + 100)]
    first = job(1, min_nodes=2, num_tasks=8, tasks_per_node=4)
    long = job(2, num_tasks=4, time_limit=7200)
    assert not small().plan([first, long], running).preemptions
    # Over by the time at which the first one starts.
    assert victims(small().plan([first, job(2, num_tasks=4)], running)) == {2: [(11, "cancel")]}


@pytest.mark.parametrize(
    ("since", "grace", "end", "expected"),
    [
        (NOW - 4, 15, NOW + 11, NOW + 12),
        (NOW - 4, 15, NOW + 3, NOW + 4),
        (NOW - 4, 0, NOW - 4, NOW + 1),
        (NOW - 40, 15, NOW - 25, NOW + 1),
        (NOW - 4, 0, NOW + 3600, NOW + 1),
    ],
    ids=["in its grace", "its limit comes first", "no grace", "over its grace", "ends before its limit"],
)
def test_while_a_victim_ends_its_room_is_expected_after_its_grace(
    small: Any, job: Any, since: float, grace: int, end: float, expected: float
) -> None:
    victim = attempt(11, "n1", ending_since=since, grace_secs=grace, end=end, room_for=1)
    found = small(count=1).plan([job(1, num_tasks=4)], [victim])
    assert not found.preemptions
    assert [(one.job_id, one.at, one.nodes) for one in found.expected] == [(1, expected, ("n1",))]


def test_room_that_is_free_is_not_waited_for(small: Any, job: Any) -> None:
    late = attempt(11, "n1", ending_since=NOW - 1, grace_secs=500, end=NOW + 499, cpus=2, room_for=1)
    soon = attempt(12, "n2", ending_since=NOW - 1, grace_secs=9, end=NOW + 8, room_for=1)
    found = small().plan([job(1, num_tasks=6, min_nodes=2, max_nodes=2, tasks_per_node=3)], [late, soon])
    assert [one.at for one in found.expected] == [NOW + 500]
    found = small().plan([job(1, num_tasks=4, min_nodes=2, max_nodes=2, tasks_per_node=2)], [late, soon])
    assert [one.at for one in found.expected] == [NOW + 9]


def test_grace_is_told(small: Any, job: Any) -> None:
    found = small().plan([job(1, num_tasks=4)], [attempt(11, grace_secs=30), attempt(12, "n2", priority=200)])
    assert found.preemptions[0].victims == ((11, 1, "cancel", 30),)


sizes = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.sampled_from(["n1", "n2", "n3"]),
        st.integers(1, 12),
        st.sampled_from(["cancel", "suspend", "off"]),
    ),
    max_size=8,
)


@given(sizes, st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["main", "low"])), max_size=5))
def test_never_more_than_there_is(
    snap: Any, node: Any, part: Any, job: Any, sizes: list[Any], wishes: list[Any]
) -> None:
    """Placements fit what is free; victims are of lower tiers; freed room is counted once."""
    free = dict.fromkeys(("n1", "n2", "n3"), 4)
    running = []
    for at, (cpus, name, tier, mode) in enumerate(sizes):
        if free[name] >= cpus:
            free[name] -= cpus
            running.append(attempt(100 + at, name, cpus=cpus, tier=tier, mode=mode))
    jobs = [job(n, num_tasks=k, max_nodes=1, partitions=(p,)) for n, (k, p) in enumerate(wishes, 1)]
    found = Small(snap, node, part, 3).plan(jobs, running)
    by_id = {one.job_id: one for one in running}
    for one in found.placements:
        for share in one.shares:
            free[share.node] -= share.cpus
    assert all(left >= 0 for left in free.values())
    taken: set[int] = set()
    wanted = {j.job_id: j.num_tasks for j in jobs}
    for one in found.preemptions:
        assert jobs[one.job_id - 1].partitions == ("main",)
        for job_id, _, mode, _ in one.victims:
            assert job_id not in taken
            taken.add(job_id)
            assert by_id[job_id].tier < 10
            assert mode == by_id[job_id].preempt_mode != "off"
            free[by_id[job_id].shares[0].node] += by_id[job_id].shares[0].cpus
    kept = {
        one.job_id: one.nodes
        for one in found.expected
        if any(p.job_id == one.job_id for p in found.preemptions)
    }
    for job_id, nodes in kept.items():
        free[nodes[0]] -= wanted[job_id]
    assert all(left >= 0 for left in free.values())


class Bounded:
    """Limits that forbid every place with more than so many CPUs."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.charged: list[int] = []

    def admit(self, job: Any, partition: str = "") -> None:
        return None

    def near(self, job: Any, partition: str = "") -> None:
        return None

    def charge(self, job: Any, placement: Any) -> Over | None:
        if sum(share.cpus for share in placement.shares) > self.most:
            return Over("AssocGrpCpuLimit")
        self.charged.append(placement.job_id)
        return None

    def refund(self, job: Any, placement: Any) -> None:
        self.charged.remove(placement.job_id)


def test_nobody_is_pushed_aside_for_a_place_that_a_limit_forbids(
    snap: Any, node: Any, part: Any, job: Any
) -> None:
    nodes = [node("n1", running=[(NOW + 3600, 2, 0, {})])]
    parts = [part("main", nodes, priority_tier=10)]
    running = [attempt(11, cpus=2)]
    whole = job(1, exclusive=True)
    for most, wanted in ((3, {}), (4, {1: [(11, "cancel")]})):
        limits = Bounded(most)
        found = plan(snap(nodes, [whole], parts, policy=PRIO, running=running, limits=limits), NOW)
        assert victims(found) == wanted
        assert limits.charged == list(wanted)
        assert found.waiting[0].reason == ("Resources" if wanted else "AssocGrpCpuLimit")

"""Whom a job may push aside, and that nobody is pushed in vain."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_sched.api import NodeShare, Policy, Running
from spur_sched.preemption import Preemptor, candidates, choose, coming, freed

PRIO = Policy(preempt_type="partition_prio")
NODES = frozenset({"n1", "n2", "n3"})
HIGH = Preemptor(900, tier=10, nodes=NODES)


def attempt(job_id: int, nodes: str = "n1", cpus: int = 4, **changes: object) -> Running:
    base = Running(
        job_id=job_id,
        attempt=1,
        priority=100,
        tier=1,
        partition="low",
        uid=1000,
        account="",
        qos="",
        started=1000.0,
        end=None,
        shares=tuple(NodeShare(name, cpus, 100, {}, ()) for name in nodes.split(",")),
        preempt_mode="cancel",
    )
    return base._replace(**changes)  # type: ignore[arg-type]


def needs(cpus: int, nodes: int = 1, free: dict[str, int] | None = None) -> Callable[..., list[str] | None]:
    """Fits when so many nodes have so many CPUs; the first such nodes are taken."""

    def trial(victims: Sequence[Running]) -> list[str] | None:
        room = dict.fromkeys(sorted(NODES), 0) | (free or {})
        for victim in victims:
            for share in freed(victim):
                room[share.node] += share.cpus
        found = [name for name, have in room.items() if have >= cpus][:nodes]
        return found if len(found) == nodes else None

    return trial


def ids(victims: Sequence[Running] | None) -> list[int] | None:
    return None if victims is None else [one.job_id for one in victims]


@pytest.mark.parametrize(
    ("changes", "allowed"),
    [
        ({}, True),
        ({"tier": 9}, True),
        ({"tier": 10}, False),
        ({"tier": 11}, False),
        ({"preempt_mode": "off"}, False),
        ({"preempt_mode": "suspend"}, True),
        ({"exempt_until": 2000.5}, False),
        ({"exempt_until": 2000.0}, True),
        ({"ending_since": 1990.0}, False),
        ({"room_for": 7}, False),
        ({"room_for": 7, "lent": True, "preempt_mode": "suspend", "exempt_until": 9e9}, True),
        ({"started": None}, False),
        ({"shares": attempt(1, "elsewhere").shares}, False),
    ],
)
def test_who_may_be_a_victim_of_a_higher_tier(changes: dict[str, object], allowed: bool) -> None:
    victim = attempt(1, **changes)
    assert (candidates(HIGH, [victim], PRIO, 2000.0) == [victim]) is allowed


def test_by_qos_the_list_of_the_preemptor_counts() -> None:
    policy = Policy(preempt_type="qos", preempt_qos={"high": frozenset({"scavenger"})})
    high = HIGH._replace(qos="high", tier=1)
    running = [attempt(1, qos="scavenger"), attempt(2, qos="normal"), attempt(3, qos="high")]
    assert ids(candidates(high, running, policy, 2000.0)) == [1]
    assert candidates(high._replace(qos="normal"), running, policy, 2000.0) == []


def test_inside_its_reservation_only_a_higher_tier_reaches_it() -> None:
    policy = Policy(preempt_type="qos", preempt_qos={"high": frozenset({"low"})})
    victim = attempt(1, qos="low", reservation="r")
    same = HIGH._replace(qos="high", tier=1)
    assert candidates(same, [victim], policy, 2000.0) == []
    assert candidates(same._replace(tier=2), [victim], policy, 2000.0) == [victim]


def test_nobody_is_a_victim_without_preemption() -> None:
    assert candidates(HIGH, [attempt(1)], Policy(), 2000.0) == []


def test_high_priorities_are_exempt_from_a_bound_on() -> None:
    policy = PRIO._replace(preempt_min_exempt_priority=100)
    running = [attempt(1, priority=99), attempt(2, priority=100)]
    assert ids(candidates(HIGH, running, policy, 2000.0)) == [1]


@pytest.mark.parametrize(
    ("policy", "order"),
    [
        (PRIO, [4, 3, 2, 1]),
        (PRIO._replace(preempt_youngest_first=True), [4, 2, 3, 1]),
        (PRIO._replace(preempt_by_size=True), [4, 1, 3, 2]),
    ],
)
def test_order_of_victims(policy: Policy, order: list[int]) -> None:
    running = [
        attempt(1, cpus=1, priority=90, started=1.0),
        attempt(2, cpus=8, priority=50, started=30.0),
        attempt(3, cpus=4, priority=50 - 1, started=20.0),
        attempt(4, cpus=8, priority=999, tier=0, started=10.0),
    ]
    assert ids(candidates(HIGH, running, policy, 2000.0)) == order


def test_several_victims_in_one_pass() -> None:
    running = [attempt(1), attempt(2), attempt(3, "n2", cpus=2)]
    found = choose(candidates(HIGH, running, PRIO, 2000.0), needs(8), PRIO)
    assert sorted(ids(found) or []) == [1, 2]


def test_none_when_it_does_not_help() -> None:
    assert choose([attempt(1), attempt(2)], needs(9), PRIO) is None
    assert choose([], needs(1), PRIO) is None


def test_one_big_victim_instead_of_many_small_ones() -> None:
    running = [*(attempt(n, "n1", cpus=1, priority=n) for n in range(1, 5)), attempt(9, "n1", 4, priority=9)]
    order = candidates(HIGH, running, PRIO, 2000.0)
    assert ids(choose(order, needs(4), PRIO)) == [1, 2, 3, 4]
    # With 2 CPUs of the big one needed beside the small ones, it does alone.
    assert ids(choose(order, needs(4, free={"n1": 0}), PRIO._replace(preempt_reorder_count=0))) == [
        1,
        2,
        3,
        4,
    ]
    assert ids(choose(order[1:], needs(4), PRIO)) == [9]
    strict = PRIO._replace(preempt_strict_order=True)
    assert len(choose(order[1:], needs(4), strict) or ()) == 1


def test_strict_order_keeps_to_the_lowest() -> None:
    running = [attempt(1, cpus=1, priority=1), attempt(2, cpus=3, priority=2), attempt(3, cpus=4, priority=3)]
    order = candidates(HIGH, running, PRIO, 2000.0)
    assert ids(choose(order, needs(4), PRIO._replace(preempt_strict_order=True))) == [1, 2]


def test_not_more_than_allowed() -> None:
    assert choose([attempt(1), attempt(2)], needs(8), PRIO._replace(preempt_most=1)) is None


def test_a_suspended_victim_keeps_its_memory() -> None:
    victim = attempt(1, preempt_mode="suspend")
    assert [(share.cpus, share.memory_mb) for share in freed(victim)] == [(4, 0)]
    assert [(share.cpus, share.memory_mb) for share in freed(attempt(1))] == [(4, 100)]


def test_what_ends_is_waited_for_but_not_for_ever() -> None:
    ending = attempt(1, ending_since=1990.0)
    assert coming([ending, attempt(2)], 2000.0) == [ending]
    assert coming([ending], 3000.0) == []
    in_grace = attempt(3, room_for=7)
    assert coming([in_grace], 2000.0) == [in_grace]


victims = st.lists(
    st.builds(
        lambda n, nodes, cpus, priority, tier, mode: attempt(
            n, ",".join(sorted(nodes)), cpus, priority=priority, tier=tier, preempt_mode=mode
        ),
        st.integers(1, 10**6),
        st.sets(st.sampled_from(sorted(NODES)), min_size=1),
        st.integers(1, 4),
        st.integers(1, 5),
        st.integers(0, 12),
        st.sampled_from(["cancel", "requeue", "suspend", "off"]),
    ),
    max_size=12,
    unique_by=lambda one: one.job_id,
)
policies = st.builds(
    lambda young, size, strict, count: PRIO._replace(
        preempt_youngest_first=young,
        preempt_by_size=size,
        preempt_strict_order=strict,
        preempt_reorder_count=count,
    ),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.integers(0, 3),
)


@given(victims, policies, st.integers(1, 12), st.integers(1, 3))
def test_no_useless_victim_and_none_of_an_equal_tier(
    running: list[Running], policy: Policy, cpus: int, nodes: int
) -> None:
    trial = needs(cpus, nodes)
    found = candidates(HIGH, running, policy, 2000.0)
    chosen = choose(found, trial, policy)
    if chosen is None:
        assert trial(found) is None or not found
        return
    assert all(one.tier < HIGH.tier and one.preempt_mode != "off" for one in chosen)
    assert trial(chosen) is not None
    for one in chosen:
        assert trial([other for other in chosen if other is not one]) is None
    assert len({one.job_id for one in chosen}) == len(chosen)


@given(victims, st.integers(1, 12), st.integers(1, 3), st.randoms(use_true_random=False))
def test_the_order_in_which_attempts_are_told_does_not_matter(
    running: list[Running], cpus: int, nodes: int, random: object
) -> None:
    shuffled = list(running)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    trial = needs(cpus, nodes)
    one = choose(candidates(HIGH, running, PRIO, 2000.0), trial, PRIO)
    other = choose(candidates(HIGH, shuffled, PRIO, 2000.0), trial, PRIO)
    assert one == other


@given(victims, st.integers(1, 12), st.integers(1, 3))
def test_more_to_choose_from_never_fails_where_less_does(
    running: list[Running], cpus: int, nodes: int
) -> None:
    trial = needs(cpus, nodes)
    found = candidates(HIGH, running, PRIO, 2000.0)
    for cut in range(len(found)):
        if choose(found[:cut], trial, PRIO) is not None:
            assert choose(found, trial, PRIO) is not None
            break

"""Reservations and licences inside a pass: who starts, who waits and why."""

import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spur_sched.api import JobView, License, NodeShare, Policy, Running, Window
from spur_sched.plan import plan

NOW = 1_000_000.0
MAINT = ("ReqNodeNotAvail", "ReqNodeNotAvail, Reserved for maintenance")
KEPT = ("ReqNodeNotAvail", "ReqNodeNotAvail, May be reserved for other job")


def window(name: str, start: float, end: float, nodes: str, **more: Any) -> Window:
    return Window(name, NOW + start, NOW + end, frozenset(nodes.split()), **more)


def placed(result: Any) -> dict[int, list[str]]:
    return {item.job_id: [share.node for share in item.shares] for item in result.placements}


def why(result: Any, job_id: int = 1) -> tuple[str, str] | None:
    return next(((w.reason, w.desc) for w in result.waiting if w.job_id == job_id), None)


CASES = [
    # windows, job, where it starts or why not
    ([window("r", 0, 600, "n1 n2", maintenance=True)], {"time_limit": 60}, MAINT),
    ([window("r", 0, 600, "n1 n2")], {"time_limit": 60}, KEPT),
    ([window("r", 0, 600, "n1")], {"time_limit": 60}, ["n2"]),
    ([window("r", 600, 900, "n1 n2")], {"time_limit": 600}, ["n1"]),
    ([window("r", 600, 900, "n1 n2")], {"time_limit": 601}, KEPT),
    ([window("r", 600, 900, "n1 n2")], {"time_limit": None}, KEPT),
    ([window("r", -50, 0, "n1 n2")], {"time_limit": None}, ["n1"]),
    ([window("r", 600, 900, "n1")], {"time_limit": None}, ["n2"]),
    ([window("r", 600, 900, "n1")], {"time_limit": 3600, "min_nodes": 2}, KEPT),
    (
        [window("r", 600, 900, "n1", maintenance=True)],
        {"time_limit": 3600, "nodelist": frozenset(["n1"])},
        MAINT,
    ),
    ([window("r", 0, 600, "n2")], {"time_limit": 60, "reservation": "r"}, ["n2"]),
    ([window("r", 0, 600, "n2")], {"time_limit": 601, "reservation": "r"}, ("Reservation", "")),
    (
        [window("r", 0, 600, "n2")],
        {"time_limit": 60, "reservation": "r", "min_nodes": 2},
        ("Reservation", ""),
    ),
    ([window("r", 10, 600, "n2")], {"time_limit": 60, "reservation": "r"}, ("Reservation", "")),
    (
        [window("r", 10, 60, "n2", flex=True)],
        {"time_limit": 99, "reservation": "r", "min_nodes": 2},
        ["n1", "n2"],
    ),
    ([window("r", 0, 600, "n1"), window("s", 0, 600, "n1")], {"time_limit": 60, "reservation": "s"}, ["n1"]),
    # Parts of nodes.
    ([window("r", 0, 600, "n1 n2", cpus=(("n1", 3), ("n2", 3)))], {"cpus_per_task": 2}, "waits"),
    ([window("r", 0, 600, "n1 n2", cpus=(("n1", 3), ("n2", 3)))], {"cpus_per_task": 1}, ["n1"]),
    (
        [window("r", 0, 600, "n1", cpus=(("n1", 3),))],
        {"cpus_per_task": 3, "reservation": "r", "time_limit": 60},
        ["n1"],
    ),
    (
        [window("r", 0, 600, "n1", cpus=(("n1", 3),))],
        {"cpus_per_task": 4, "reservation": "r", "time_limit": 60},
        "waits",
    ),
]


@pytest.mark.parametrize(("windows", "shape", "expected"), CASES, ids=[str(n) for n in range(len(CASES))])
def test_windows(snap: Any, node: Any, job: Any, windows: Any, shape: Any, expected: Any) -> None:
    snapshot = snap([node("n1"), node("n2")], [job(1, **shape)], windows=windows)
    result = plan(snapshot, NOW)
    if isinstance(expected, list):
        assert sorted(placed(result)[1]) == expected
    elif expected == "waits":
        assert why(result) is not None
    else:
        assert why(result) == expected


def test_a_shorter_job_passes_one_that_waits_for_a_reservation(snap: Any, node: Any, job: Any) -> None:
    jobs = [job(1, time_limit=3600), job(2, time_limit=60)]
    result = plan(snap([node("n1")], jobs, windows=[window("r", 600, 900, "n1")]), NOW)
    assert list(placed(result)) == [2]
    assert next(found.at for found in result.expected if found.job_id == 1) >= NOW + 900


POOLS = {"m": License(3, 1), "x": License(1, 0)}
LICENSES = [
    ({"licenses": (("m", 2),)}, (("m", 2),)),
    ({"licenses": (("m", 3),)}, None),
    ({"licenses": (("m", 1), ("x", 1))}, (("m", 1), ("x", 1))),
    ({"licenses": (("m", 3), ("x", 1)), "licenses_any": True}, (("x", 1),)),
    ({"licenses": (("m", 3), ("x", 2)), "licenses_any": True}, None),
    ({"licenses": (("gone", 1),)}, None),
]


@pytest.mark.parametrize(("shape", "taken"), LICENSES)
def test_licences(snap: Any, node: Any, job: Any, shape: Any, taken: Any) -> None:
    result = plan(snap([node("n1")], [job(1, **shape)], licenses=POOLS), NOW)
    if taken is None:
        assert why(result) == ("Licenses", "")
    else:
        assert result.placements[0].licenses == taken


def test_licences_are_given_in_order(snap: Any, node: Any, job: Any) -> None:
    jobs = [job(number, licenses=(("m", 1),)) for number in range(1, 5)]
    result = plan(snap([node("n1", cpus=8)], jobs, licenses=POOLS), NOW)
    assert list(placed(result)) == [1, 2]
    assert why(result, 3) == ("Licenses", "")


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_a_start_is_expected_when_others_stop_keeping_licences(
    snap: Any, node: Any, job: Any, policy: str
) -> None:
    kept = [
        window("r", -50, 600, "", licenses=(("m", 2),)),
        window("r", 900, 1200, "", licenses=(("m", 2),)),
        window("s", 0, 60, "", licenses=(("x", 1),)),
    ]
    pools = {"m": License(3, 0, 2), "x": License(1, 0, 1)}

    def starts(*jobs: JobView) -> list[float]:
        found = plan(snap([node("n1")], list(jobs), policy=Policy(policy), licenses=pools, windows=kept), NOW)
        return [one.at - NOW for one in found.expected]

    assert starts(job(1, licenses=(("m", 2),), time_limit=300)) == [600]
    # Before the next occurrence there is no time for it.
    assert starts(job(1, licenses=(("m", 2),), time_limit=301)) == [1200]
    assert starts(job(1, licenses=(("m", 2), ("x", 1)), licenses_any=True)) == [60]


def test_reserved_licences_are_for_their_own(snap: Any, node: Any, job: Any) -> None:
    kept = [window("r", 0, 600, "", licenses=(("m", 2),))]
    jobs = [
        job(1, licenses=(("m", 1),), time_limit=60),
        job(2, licenses=(("m", 2),), time_limit=60, reservation="r"),
    ]
    result = plan(snap([node("n1")], jobs, licenses={"m": License(3, 1, 2)}, windows=kept), NOW)
    assert list(placed(result)) == [2]
    assert why(result, 1) == ("Licenses", "")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_nobody_is_where_others_have_a_claim(snap: Any, node: Any, job: Any, data: Any) -> None:
    """Whole nodes, parts of nodes and licences, over every instant of every run."""
    names = ["n1", "n2", "n3"]
    windows = []
    for name in "rs":
        for start in data.draw(st.lists(st.integers(-5, 20), max_size=2, unique=True)):
            nodes = data.draw(st.lists(st.sampled_from(names), unique=True))
            windows.append(
                window(
                    name,
                    start * 100,
                    start * 100 + 100 * data.draw(st.integers(1, 8)),
                    " ".join(nodes),
                    licenses=data.draw(st.sampled_from([(), (("m", 1),)])),
                )
            )
    windows.sort(key=lambda one: (one.start, one.end, one.name))
    windows = [one for one in windows if one.end > NOW]
    jobs = [
        job(
            number,
            time_limit=data.draw(st.sampled_from([50, 100, 350, 1500, None])),
            cpus_per_task=data.draw(st.integers(1, 4)),
            num_tasks=data.draw(st.integers(1, 3)),
            reservation=data.draw(st.sampled_from(["", "", "r", "s"])),
            licenses=data.draw(st.sampled_from([(), (), (("m", 1),), (("m", 2),)])),
        )
        for number in range(1, 9)
    ]
    share = NodeShare("n1", 2, 0, {}, (0,))
    running = [Running(99, 1, 1, 1, "main", 0, "", "", NOW - 9, NOW + 200, (share,), licenses=(("m", 1),))]
    nodes = [node("n1", running=[(NOW + 200, 2, 0, {})]), node("n2"), node("n3")]
    result = plan(snap(nodes, jobs, windows=windows, licenses={"m": License(3, 1)}, running=running), NOW)
    by_id = {one.job_id: one for one in jobs}
    cpus: Counter[str] = Counter({"n1": 2})
    licences = 1
    for placement in result.placements:
        one = by_id[placement.job_id]
        end = math.inf if one.time_limit is None else NOW + one.time_limit
        licences += sum(count for _, count in placement.licenses)
        assert placement.licenses == one.licenses
        own = [item for item in windows if item.name == one.reservation and item.nodes]
        everywhere = one.reservation and any(not w.nodes for w in windows if w.name == one.reservation)
        for part in placement.shares:
            cpus[part.node] += part.cpus
            if not one.reservation or everywhere:
                others = [w for w in windows if w.name != one.reservation and part.node in w.nodes]
                assert not any(w.start < end and w.end > NOW for w in others)
            else:
                spans = sorted((w.start, w.end) for w in own if part.node in w.nodes)
                at = NOW  # how long its own windows reach without a gap
                for start, over in spans:
                    if start <= at < over:
                        at = over
                assert at >= end
    assert licences <= 3
    assert all(count <= 4 for count in cpus.values())
    told = {one.job_id for one in result.waiting} | {one.job_id for one in result.placements}
    assert told == set(by_id)


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        ({"num_tasks": 4}, True),
        ({"num_tasks": 5}, False),
        ({"num_tasks": 2, "cpus_per_task": 2}, True),
        ({"num_tasks": 1, "cpus_per_task": 3}, False),
        ({"min_nodes": 3}, False),
    ],
)
@pytest.mark.parametrize("start", [0, 50])
@pytest.mark.parametrize("backfill", ["none", "easy", "conservative"])
def test_more_than_the_reservation_has(
    snap: Any, node: Any, job: Any, wanted: Any, fits: bool, start: int, backfill: str
) -> None:
    """It says so, and nobody waits behind what can never start."""
    nodes = [node(f"n{at}", cpus=4) for at in (1, 2, 3)]
    kept = window("cc", start, 600, "n1 n2", cpus=(("n1", 2), ("n2", 2)))
    jobs = [job(1, time_limit=60, reservation="cc", **wanted), job(2, num_tasks=8, time_limit=40)]
    found = plan(snap(nodes, jobs, windows=[kept], policy=Policy(backfill=backfill)), NOW)
    if fits:
        assert (1 in placed(found)) == (start == 0)
        return
    waits = next(item for item in found.waiting if item.job_id == 1)
    assert (waits.reason, waits.desc) == ("Reservation", "")
    assert waits.text == "The reservation cc is too small for the job, even with nothing else in it"
    assert 2 in placed(found)
    assert not found.expected


@pytest.mark.parametrize(("wanted", "fits"), [({"num_tasks": 8}, True), ({"num_tasks": 9}, False)])
def test_more_than_whole_nodes_of_a_reservation(
    snap: Any, node: Any, job: Any, wanted: Any, fits: bool
) -> None:
    nodes = [node(f"n{at}", cpus=4, running=[(NOW + 50, 1, 0, {})]) for at in (1, 2, 3)]
    kept = [window("cc", -90, 600, "n1 n2"), window("cc", 700, 900, "n2")]
    found = plan(snap(nodes, [job(1, time_limit=60, reservation="cc", **wanted)], windows=kept), NOW)
    assert why(found) == (("Resources", "") if fits else ("Reservation", ""))

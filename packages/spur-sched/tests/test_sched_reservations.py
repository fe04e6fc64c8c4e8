"""Windows, conflicts, shade, access and choice of nodes."""

import itertools
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spur_sched.api import Window
from spur_sched.reservations import Shade, windows
from spur_sched.reservations.access import Rules, admits, mixed
from spur_sched.reservations.choice import Ask, Candidate, choose
from spur_sched.reservations.model import Reservation, Span
from spur_sched.reservations.shade import MAINTENANCE, why
from spur_sched.reservations.windows import active, collide, conflict

DAY = 86_400.0
CPUS = {f"n{number}": 4 for number in range(1, 9)}


def resv(name: str, start: float, end: float, nodes: str = "n1", **more: Any) -> Reservation:
    span = Span(start, end)
    return Reservation(name, span, more.pop("first", span), frozenset(nodes.split()), **more)


def test_windows_are_sorted_and_repeat() -> None:
    found = windows([resv("d", 100, 200, repeat="DAILY"), resv("o", 50, 60)], 0, 3 * DAY)
    assert [(w.name, w.start) for w in found] == [
        ("o", 50),
        ("d", 100),
        ("d", 100 + DAY),
        ("d", 100 + 2 * DAY),
    ]


def test_a_single_one_is_seen_however_late_it_is() -> None:
    assert [w.start for w in windows([resv("o", 1e9, 1e9 + 5)], 0, 100)] == [1e9]
    assert windows([resv("o", 1, 5)], 5, 100) == []


def test_what_was_skipped_is_not_seen() -> None:
    skipped = resv("d", 100 + DAY, 200 + DAY, repeat="DAILY", first=Span(100, 200))
    assert [w.start for w in windows([skipped], 0, 3 * DAY)] == [100 + DAY, 100 + 2 * DAY]


def test_a_changed_end_is_of_the_present_one_only() -> None:
    longer = resv("d", 100, 500, repeat="DAILY", first=Span(100, 200))
    assert [(w.start, w.end) for w in windows([longer], 0, 2 * DAY)] == [(100, 500), (100 + DAY, 200 + DAY)]


def test_a_floating_one_is_always_ahead() -> None:
    floating = resv("f", 100, 200, floating=3600.0)
    for now in (0.0, 5e5):
        assert [(w.start, w.end) for w in windows([floating], now, now + 1)] == [(now + 3600, now + 3700)]
    assert not active(floating, 150)


@pytest.mark.parametrize(
    ("one", "other", "meets"),
    [
        (resv("a", 0, 100), resv("b", 100, 200), False),
        (resv("a", 0, 100), resv("b", 99, 200), True),
        (resv("a", 0, 3600, repeat="DAILY"), resv("b", 10 * DAY + 100, 10 * DAY + 200), True),
        (resv("a", 0, 3600, repeat="DAILY"), resv("b", 10 * DAY + 3600, 10 * DAY + 7200), False),
        (resv("a", 0, 3600, repeat="WEEKLY"), resv("b", DAY, 2 * DAY), False),
        (resv("a", 0, 3600, repeat="WEEKLY"), resv("b", DAY, DAY + 60, repeat="DAILY"), True),
        (resv("a", 0, 600, repeat="HOURLY"), resv("b", 700, 900, repeat="DAILY"), False),
        (resv("a", 0, 600, repeat="HOURLY"), resv("b", 500, 900, repeat="DAILY"), True),
        (resv("a", 0, 10, floating=600.0), resv("b", 5000, 6000), True),
    ],
)
def test_collisions(one: Reservation, other: Reservation, meets: bool) -> None:
    assert collide(one, other) is meets
    assert collide(other, one) is meets


def test_conflicts_need_a_common_node_and_no_leave() -> None:
    old = resv("old", 0, 100, "n1 n2")
    assert conflict(resv("new", 50, 60, "n2 n3"), [old], CPUS) == ("old", "n2")
    assert conflict(resv("new", 50, 60, "n3"), [old], CPUS) is None
    for leave in ({"overlap": True}, {"maintenance": True}):
        assert conflict(resv("new", 50, 60, "n2", **leave), [old], CPUS) is None
        assert conflict(resv("new", 50, 60, "n2"), [resv("old", 0, 100, "n2", **leave)], CPUS) is None
    assert conflict(resv("old", 50, 60, "n2"), [old], CPUS) is None


def test_parts_of_a_node_may_be_kept_side_by_side() -> None:
    half = resv("a", 0, 100, "n1", cpus=(("n1", 2),))
    assert conflict(resv("b", 0, 100, "n1", cpus=(("n1", 2),)), [half], CPUS) is None
    assert conflict(resv("b", 0, 100, "n1", cpus=(("n1", 3),)), [half], CPUS) == ("a", "n1")
    assert conflict(resv("b", 0, 100, "n1"), [half], CPUS) == ("a", "n1")


def window(name: str, start: float, end: float, nodes: str = "n1", **more: Any) -> Window:
    return Window(name, start, end, frozenset(nodes.split()), **more)


def test_shade_of_others() -> None:
    shade = Shade([window("a", 100, 200), window("b", 200, 300), window("c", 500, 600)])
    assert shade.closed("n1") == (Span(100, 300), Span(500, 600))
    assert shade.free_until("n1", 0) == 100
    assert shade.free_until("n1", 150) == 150
    assert shade.free_until("n1", 300) == 500
    assert shade.free_until("n1", 600) == math.inf
    assert shade.free_until("n2", 150) == math.inf
    assert shade.opens("n1", 150) == 300
    assert not Shade([])


def test_shade_of_ones_own() -> None:
    shade = Shade([window("a", 100, 200), window("a", 300, 400), window("b", 150, 350)])
    assert shade.free_until("n1", 150, "a") == 200
    assert shade.free_until("n1", 0, "a") == 0
    assert shade.opens("n1", 0, "a") == 100
    assert shade.opens("n1", 250, "a") == 300
    assert shade.opens("n1", 400, "a") == math.inf
    assert shade.opens("n2", 0, "a") == math.inf
    assert shade.opens("n1", 0, "gone") == math.inf


def test_flexible_ones_and_those_without_nodes_leave_their_jobs_free() -> None:
    shade = Shade([window("a", 100, 200, flex=True), window("b", 100, 200, "n2"), window("l", 0, 50, "")])
    for name in ("a", "l"):
        assert shade.free_until("n3", 0, name) == math.inf
        assert shade.free_until("n2", 0, name) == 100
    assert shade.free_until("n1", 0, "a") == math.inf


def test_parts_of_nodes() -> None:
    shade = Shade([window("a", 100, 200, cpus=(("n1", 2),)), window("b", 150, 300, cpus=(("n1", 1),))])
    assert shade.closed("n1") == ()
    assert shade.kept("n1", 0, 100) == 0
    assert shade.kept("n1", 0, 120) == 2
    assert shade.kept("n1", 0, 500) == 3
    assert shade.kept("n1", 0, 500, "a") == 1
    assert shade.own_cpus("n1", 150, "a") == 2
    assert shade.own_cpus("n1", 150, "") is None


def test_licences_that_others_keep() -> None:
    shade = Shade(
        [window("a", 100, 200, "", licenses=(("m", 3),)), window("b", 150, 300, "", licenses=(("m", 2),))]
    )
    assert shade.licenses("m", 0, 100) == 0
    assert shade.licenses("m", 0, 150) == 3
    assert shade.licenses("m", 0, 400) == 5
    assert shade.licenses("m", 160, 400, "a") == 2
    assert shade.licenses("x", 0, 400) == 0


def test_the_reason_tells_of_maintenance() -> None:
    shade = Shade([window("a", 100, 200, maintenance=True), window("b", 100, 200, "n2")])
    assert why(shade, ["n1", "n2"], 0, 150) == ("ReqNodeNotAvail", MAINTENANCE)
    assert "maintenance" not in why(shade, ["n2"], 0, 150)[1]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_the_shade_is_what_the_windows_say(data: Any) -> None:
    """Instant by instant against the definition."""
    made = [
        window(
            data.draw(st.sampled_from("abc")),
            start := data.draw(st.integers(0, 20)),
            start + data.draw(st.integers(1, 8)),
            data.draw(st.sampled_from(["n1", "n2", "n1 n2"])),
        )
        for _ in range(data.draw(st.integers(0, 6)))
    ]
    shade = Shade(made)
    for node, name in itertools.product(("n1", "n2"), ("", "a", "b")):
        own = [w for w in made if w.name == name and node in w.nodes]

        def open_at(moment: float, node: str = node, name: str = name, own: Any = own) -> bool:
            if name:
                return any(w.start <= moment < w.end for w in own)
            return not any(w.start <= moment < w.end for w in made if node in w.nodes)

        for at in range(30):
            until = shade.free_until(node, at, name)
            expected = next((t for t in range(at, 60) if not open_at(t)), math.inf)
            assert until == expected
            first = shade.opens(node, at, name)
            assert first == next((t for t in range(at, 60) if open_at(t)), math.inf)


ROWS = [
    (Rules(users=("ann", "bob")), "ann", "x", True),
    (Rules(users=("ann",)), "cy", "x", False),
    (Rules(accounts=("x",)), "cy", "x", True),
    # Both lists must agree.
    (Rules(users=("ann",), accounts=("x",)), "ann", "y", False),
    (Rules(users=("ann",), accounts=("x",)), "ann", "x", True),
    (Rules(users=("-ann",)), "ann", "x", False),
    (Rules(users=("-ann",)), "bob", "x", True),
    (Rules(accounts=("x",), users=("-ann",)), "ann", "x", False),
    (Rules(accounts=("-x", "-y")), "ann", "y", False),
    (Rules(groups=("staff",), members=("bob",)), "bob", "x", True),
    (Rules(groups=("staff",)), "gus", "x", True),
    (Rules(groups=("staff",)), "ann", "x", False),
    (Rules(groups=("-staff",)), "gus", "x", False),
    (Rules(), "ann", "", True),
]


@pytest.mark.parametrize(("rules", "user", "account", "let_in"), ROWS)
def test_access(rules: Rules, user: str, account: str, let_in: bool) -> None:
    groups = ["staff"] if user == "gus" else ["users"]
    assert admits(rules, user, account, groups) is let_in
    assert admits(rules, user, account, groups, admin=True)


def test_a_list_lets_in_or_keeps_out() -> None:
    assert mixed(("a", "-b"))
    assert not mixed(("-a", "-b"))
    assert not mixed(())


def node(name: str, **more: Any) -> Candidate:
    return Candidate(**{"name": name, "up": True, "busy": False, "free_cpus": 4, "cpus": 4, **more})


def test_choice_of_nodes() -> None:
    nodes = [
        node("n1", busy=True),
        node("n2", up=False),
        node("n3", free_cpus=2),
        node("n4", weight=1),
        node("n5", weight=9, features=frozenset({"fast"})),
        node("n10"),
    ]
    assert choose(Ask(nodes=2), nodes) == (("n4", "n5"), None)
    assert choose(Ask(nodes=3), nodes) == (("n4", "n5", "n10"), None)
    assert choose(Ask(nodes=4), nodes) is None
    assert choose(Ask(nodes=4, ignore_jobs=True), nodes) == (("n1", "n4", "n5", "n10"), None)
    assert choose(Ask(nodes=1, constraint="fast"), nodes) == (("n5",), None)
    assert choose(Ask(nodes=1, keep=frozenset({"n10"})), nodes) == (("n10",), None)
    assert choose(Ask(), nodes) is None


def test_choice_by_cores() -> None:
    nodes = [node("n1"), node("n2", free_cpus=2), node("n3", threads=2)]
    assert choose(Ask(cores=5), nodes) == (("n1", "n2"), (("n1", 4), ("n2", 1)))
    assert choose(Ask(cores=8), nodes) == (("n1", "n2", "n3"), (("n1", 4), ("n2", 2), ("n3", 4)))
    assert choose(Ask(cores=9), nodes) is None
    assert choose(Ask(cores=5, nodes=2), nodes) == (("n1", "n2"), (("n1", 3), ("n2", 2)))
    assert choose(Ask(cores=1, nodes=2), nodes) is None


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_collisions_are_what_the_windows_show(data: Any) -> None:
    """Against every pair of occurrences of some weeks, in a zone whose clocks change meanwhile."""
    begin = 1_774_000_000  # March 2026: clocks go forward within the fortnight

    def some(name: str) -> Reservation:
        repeat = data.draw(st.sampled_from(["", "DAILY", "WEEKLY", "WEEKDAY", "WEEKEND"]))
        start = begin + 900 * data.draw(st.integers(0, 4 * 24 * 10))
        return resv(
            name, start, start + 900 * data.draw(st.integers(1, 40)), repeat=repeat, zone="Europe/Berlin"
        )

    one, other = some("a"), some("b")
    until = begin + 40 * DAY
    mine, theirs = windows([one], 0, until), windows([other], 0, until)
    meets = any(w.start < v.end and v.start < w.end for w in mine for v in theirs)
    if one.repeat and other.repeat:
        # They may meet for the first time later, when the clocks change again.
        assert collide(one, other) or not meets
    else:
        assert collide(one, other) is meets
    assert collide(one, other) is collide(other, one)

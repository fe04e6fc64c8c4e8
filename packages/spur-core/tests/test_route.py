"""Which of several controllers is called next."""

from hypothesis import given
from hypothesis import strategies as st

from spur_core.route import AVOID_SECS, MOST, Route


def round_of(route):
    """Everybody, in the order of one round."""
    tried = []
    while (one := route.next(tried)) is not None:
        tried.append(one)
    return tried


def made(now):
    return Route(("a:1", "b:1", "c:1"), lambda: now[0])


def test_in_order_then_from_the_one_that_answered():
    route = made([0])
    assert round_of(route) == ["a:1", "b:1", "c:1"]
    route.answered("b:1")
    assert round_of(route) == ["b:1", "c:1", "a:1"]


def test_one_that_cannot_be_reached_comes_last_for_a_while():
    now = [0.0]
    route = made(now)
    route.lost("a:1")
    route.answered("c:1")
    assert round_of(route) == ["c:1", "b:1", "a:1"]
    route.answered("c:1", "a:1")
    assert route.first == "c:1"
    now[0] = AVOID_SECS
    route.answered("c:1", "a:1")
    assert round_of(route) == ["a:1", "b:1", "c:1"]


def test_all_that_cannot_be_reached_are_asked_all_the_same():
    route = made([0])
    for one in ("a:1", "b:1", "c:1"):
        route.lost(one)
    assert sorted(round_of(route)) == ["a:1", "b:1", "c:1"]


def test_who_leads_is_asked_next():
    route = made([0])
    route.refused("a:1", "c:1")
    assert round_of(route) == ["c:1", "a:1", "b:1"]
    route.refused("c:1")
    assert route.first == "a:1"
    route.answered("a:1", "new:2")
    assert round_of(route) == ["new:2", "a:1", "b:1", "c:1"]


def test_what_is_no_address_is_not_learned_and_there_is_an_end():
    route = made([0])
    assert not route.learn(["", "d", "d:", ":1", "d:x", "a:1"])
    assert not route.learn([])
    assert route.learn(["d:1", "d:1"])
    assert route.known == ["a:1", "b:1", "c:1", "d:1"]
    route.learn(f"e:{at}" for at in range(100))
    assert len(route.known) == MOST
    route.answered("a:1", "f:1")
    assert route.first == "a:1"


def test_one_alone():
    route = Route(["a:1", "a:1"])
    assert not route.several
    route.lost("a:1")
    assert round_of(route) == ["a:1"]
    route.refused("a:1")
    assert route.first == "a:1"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["answered", "refused", "lost", "wait"]),
            st.sampled_from(["a:1", "b:1", "c:1"]),
            st.sampled_from(["", "a:1", "c:1", "d:1", "nonsense"]),
        )
    )
)
def test_a_round_always_asks_everybody_once(events):
    now = [0.0]
    route = made(now)
    for kind, address, leader in events:
        if kind == "wait":
            now[0] += AVOID_SECS / 2
        elif kind == "lost":
            route.lost(address)
        else:
            getattr(route, kind)(address, leader)
        found = round_of(route)
        assert sorted(found) == sorted(set(route.known))
        assert route.first in route.known

"""How many tasks each node gets, and which."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_core.errors import GrammarError
from spur_ctld.state.distribution import NO_BOUND, Distribution, counts, parse, ranks


@pytest.mark.parametrize(
    ("text", "kind", "plane", "pack"),
    [
        ("", "block", 0, False),
        ("*", "block", 0, False),
        ("block", "block", 0, False),
        ("Block:cyclic", "block", 0, False),
        ("block:cyclic:fcyclic", "block", 0, False),
        ("block,Pack", "block", 0, True),
        ("*:*,NoPack", "block", 0, False),
        ("cyclic", "cyclic", 0, False),
        ("cyclic:block", "cyclic", 0, False),
        ("plane=4", "plane", 4, False),
        ("arbitrary", "arbitrary", 0, False),
    ],
)
def test_words(text, kind, plane, pack):
    assert parse(text) == Distribution(kind, plane, pack)


@pytest.mark.parametrize(
    "text", ["plane", "plane=", "plane=0", "plane=x", "block=3", "round", "block:x", "block:::", "block,P"]
)
def test_what_is_no_distribution_is_named(text):
    with pytest.raises(GrammarError, match="distribution"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "room", "tasks", "given_", "dealt"),
    [
        ("block", [4, 4], 7, [4, 3], [(0, 1, 2, 3), (4, 5, 6)]),
        ("cyclic", [4, 4], 7, [4, 3], [(0, 2, 4, 6), (1, 3, 5)]),
        ("block", [4, 4], 4, [2, 2], [(0, 1), (2, 3)]),
        ("block,pack", [4, 4], 5, [4, 1], [(0, 1, 2, 3), (4,)]),
        ("block,pack", [4, 4], 2, [1, 1], [(0,), (1,)]),
        ("block", [1, 4], 4, [1, 3], [(0,), (1, 2, 3)]),
        ("cyclic", [1, 4, 2], 6, [1, 3, 2], [(0,), (1, 3, 5), (2, 4)]),
        ("plane=2", [4, 4], 7, [4, 3], [(0, 1, 4, 5), (2, 3, 6)]),
        ("plane=3", [4, 4], 7, [4, 3], [(0, 1, 2, 6), (3, 4, 5)]),
        ("plane=4", [4, 4], 4, [4, 0], [(0, 1, 2, 3), ()]),
        ("cyclic", [NO_BOUND, NO_BOUND], 9, [5, 4], [(0, 2, 4, 6, 8), (1, 3, 5, 7)]),
    ],
)
def test_layouts(text, room, tasks, given_, dealt):
    how = parse(text)
    assert counts(room, tasks, how) == given_
    assert ranks(given_, how) == dealt


@given(
    room=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    share=st.floats(0, 1),
    text=st.sampled_from(["block", "block,pack", "cyclic", "plane=1", "plane=2", "plane=5"]),
)
def test_every_task_has_one_place_with_room(room, share, text):
    how = parse(text)
    tasks = max(1, round(share * sum(room)))
    found = counts(room, tasks, how)
    assert sum(found) == tasks
    assert all(0 <= count <= most for count, most in zip(found, room, strict=True))
    dealt = ranks(found, how)
    assert [len(own) for own in dealt] == found
    assert sorted(rank for own in dealt for rank in own) == list(range(tasks))
    assert all(list(own) == sorted(own) for own in dealt)

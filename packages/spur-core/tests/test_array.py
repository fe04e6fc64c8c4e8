"""Array specifications and index sets."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_core.errors import GrammarError
from spur_core.grammar.array import IndexSet, bracket, parse_array


@pytest.mark.parametrize(
    ("text", "indices", "throttle", "again"),
    [
        ("0", [0], 0, "0"),
        ("0-3", [0, 1, 2, 3], 0, "0-3"),
        ("0-9%2", list(range(10)), 2, "0-9"),
        ("1,3,5", [1, 3, 5], 0, "1-5:2"),
        ("1-5:2", [1, 3, 5], 0, "1-5:2"),
        ("1-6:2", [1, 3, 5], 0, "1-5:2"),
        ("3,1,2", [1, 2, 3], 0, "1-3"),
        ("1,1,1-2", [1, 2], 0, "1-2"),
        ("1-4,3-6", [1, 2, 3, 4, 5, 6], 0, "1-6"),
        ("1-3,4-6", [1, 2, 3, 4, 5, 6], 0, "1-6"),
        ("0-3%", [0, 1, 2, 3], 0, "0-3"),
        ("0-3%0", [0, 1, 2, 3], 0, "0-3"),
        ("5-5", [5], 0, "5"),
        ("0-10:5,3-8:5", [0, 3, 5, 8, 10], 0, "0,3,5,8,10"),
        ("0-1000", list(range(1001)), 0, "0-1000"),
    ],
)
def test_specifications(text, indices, throttle, again):
    """Lists, ranges, steps and throttles; duplicates collapse."""
    spec = parse_array(text, 1001)
    assert list(spec.indices) == indices
    assert len(spec.indices) == len(indices)
    assert spec.throttle == throttle
    assert spec.indices.text() == again
    assert parse_array(spec.text(), 1001).indices == spec.indices
    assert (spec.indices.first, spec.indices.last) == (indices[0], indices[-1])


@pytest.mark.parametrize(
    "text",
    [
        "5-1",
        "1-5:0",
        "a",
        "-1",
        "1001",
        "0-1001",
        "",
        "%2",
        "1,",
        ",1",
        "1-",
        "1:2",
        "1-5:",
        "1-5:x",
        "1-2-3",
        "1%x",
        "1%-1",
        "1 ",
        "٥",
        "9" * 5000,
        "1-5:2:2",
        "1%2%3",
    ],
)
def test_bad_specifications(text):
    """One sentence for all."""
    with pytest.raises(GrammarError, match=r"^Invalid job array specification$"):
        parse_array(text, 1001)


def test_a_big_array_costs_as_much_as_a_small_one():
    """Ten thousand and four million tasks are one run each."""
    start = time.monotonic()
    spec = parse_array("0-4000000")
    left = spec.indices.without(5)
    index, rest = left.pop_lowest()
    assert (index, len(rest), rest.lowest(6)) == (0, 3_999_999, [1, 2, 3, 4, 6, 7])
    assert time.monotonic() - start < 0.05
    assert spec.ranges == ((0, 4_000_000, 1),)


def test_hostile_overlaps_are_bounded():
    """Many overlapping ranges cost a mark per index, not an object per index and range."""
    start = time.monotonic()
    assert len(parse_array(",".join(["0-1000:1", "0-1000:2"] * 500), 1001).indices) == 1001
    assert time.monotonic() - start < 1


SETS = st.sets(st.integers(0, 60), max_size=40)


@given(SETS)
def test_a_set_is_its_indices(indices):
    """Iteration, length, membership, text and stored form."""
    held = IndexSet.of(indices)
    assert list(held) == sorted(indices)
    assert len(held) == len(indices)
    assert bool(held) == bool(indices)
    assert [index for index in range(62) if index in held] == sorted(indices)
    assert IndexSet(held.ranges) == held
    assert hash(IndexSet(held.ranges)) == hash(held)
    if indices:
        assert parse_array(held.text()).indices == held
        assert parse_array(held.listing()).indices == held
        assert held.lowest(3) == sorted(indices)[:3]
        lowest, rest = held.pop_lowest()
        assert lowest == min(indices)
        assert list(rest) == sorted(indices)[1:]


@given(SETS, st.integers(0, 61))
def test_without(indices, index):
    """One index leaves, the rest stays sorted and disjoint."""
    left = IndexSet.of(indices).without(index)
    assert list(left) == sorted(indices - {index})
    assert left == IndexSet.of(indices - {index})
    assert hash(left) == hash(IndexSet.of(indices - {index}))


@given(SETS, SETS)
def test_intersection_and_difference(one, other):
    """As sets."""
    assert list(IndexSet.of(one).intersection(IndexSet.of(other))) == sorted(one & other)
    assert list(IndexSet.of(one).difference(IndexSet.of(other))) == sorted(one - other)


ITEMS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 20), st.integers(1, 5)).map(
        lambda item: f"{item[0]}-{item[0] + item[1]}:{item[2]}"
    ),
    min_size=1,
    max_size=6,
)


@given(ITEMS)
def test_any_list_of_ranges_is_the_union(items):
    """Overlapping or not."""
    expected: set[int] = set()
    for item in items:
        span, _, step = item.partition(":")
        low, _, high = span.partition("-")
        expected |= set(range(int(low), int(high) + 1, int(step)))
    assert list(parse_array(",".join(items)).indices) == sorted(expected)


@pytest.mark.parametrize(
    ("text", "throttle", "length", "shown"),
    [
        ("4-9", 2, 64, "[4-9%2]"),
        ("4-9", 0, 64, "[4-9]"),
        ("1,3,5", 0, 64, "[1,3,5]"),
        ("0-10:2", 0, 64, "[0,2,4,6,8,10]"),
        ("0-20:2", 0, 64, "[0-20:2]"),
        ("0-99:3,100", 1, 12, "[0,3,6,9,12,1...%1]"),
        ("0-99:3,100", 1, 0, "[" + ",".join(map(str, range(0, 100, 3))) + ",100%1]"),
        ("1-2,4-5,7-8", 0, 7, "[1-2,4-5...]"),
        ("1-2,4-5", 0, 7, "[1-2,4-5]"),
    ],
)
def test_brackets(text, throttle, length, shown):
    """The pending remainder as squeue shows it; SLURM_BITSTR_LEN cuts it."""
    assert bracket(parse_array(text).indices, throttle, length) == shown


def test_a_long_listing_is_cut_without_being_made():
    """Two million single indices are not written out for 64 characters."""
    start = time.monotonic()
    indices = parse_array("0-3999999:2,4000000").indices.without(4)
    assert bracket(indices, 0).startswith("[0,2,6,8,")
    assert len(bracket(indices, 0)) == 64 + 5
    assert time.monotonic() - start < 0.5


def test_a_set_equals_only_sets():
    """A list of the same numbers is another thing."""
    assert IndexSet.of([1]) != [1]
    assert repr(IndexSet.of([1, 2])) == "IndexSet('1-2')"
    assert IndexSet.of([]).text() == ""

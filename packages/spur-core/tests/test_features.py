"""Constraints on node features."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_core.errors import GrammarError
from spur_core.grammar.features import (
    MAX_DEPTH,
    All,
    AnyOf,
    Feature,
    alternatives,
    counts,
    matches,
    names,
    parse,
    satisfied_by,
)

A, B, C = Feature("a", None), Feature("b", None), Feature("c", None)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("", All(())),
        ("a", A),
        ("a,b", All((A, B))),
        ("a&b", All((A, B))),
        ("a & b", All((A, B))),
        ("a|b", AnyOf((A, B), False)),
        ("a&b|c", AnyOf((All((A, B)), C), False)),
        ("a|b&c", AnyOf((A, All((B, C))), False)),
        ("a&(b|c)", All((A, AnyOf((B, C), False)))),
        ("(a)", A),
        ("[a|b]", AnyOf((A, B), True)),
        ("[a]", AnyOf((A,), True)),
        ("a*2", Feature("a", 2)),
        ("a*2&b*1", All((Feature("a", 2), Feature("b", 1)))),
        ("[a|b]&c", All((AnyOf((A, B), True), C))),
        ("x86-64_v3.1", Feature("x86-64_v3.1", None)),
    ],
)
def test_trees(text, tree):
    """And binds closer than or; brackets match, parentheses group, stars count."""
    assert parse(text) == tree


@pytest.mark.parametrize(
    "text",
    [
        "a|",
        "|a",
        "a&",
        "&",
        "(a",
        "a)",
        "[a",
        "a]",
        "()",
        "[]",
        "a*",
        "a*0",
        "a*x",
        "*2",
        "a b|",
        "a!",
        "!a",
        "(a]",
        "a,,b",
        "(" * 1000 + "a" + ")" * 1000,
        "a" * 5000,
        "&".join(["[a|b]"] * 7),
        "a*" + "9" * 3000,
    ],
)
def test_bad_constraints(text):
    """One sentence for all, hostile ones included."""
    with pytest.raises(GrammarError, match=r"^Invalid feature specification$"):
        parse(text)


def test_depth_is_generous():
    """Nobody nests as deep as the limit."""
    assert parse("(" * MAX_DEPTH + "a" + ")" * MAX_DEPTH) == A


@pytest.mark.parametrize(
    ("text", "features", "fits"),
    [
        ("", "", True),
        ("a", "a", True),
        ("a", "b", False),
        ("a,b", "a b", True),
        ("a,b", "a", False),
        ("a|b", "b", True),
        ("a&(b|c)", "a c", True),
        ("a&(b|c)", "b c", False),
        ("[a|b]", "b", True),
        ("a*2", "", True),
        ("a*2&b", "", False),
    ],
)
def test_one_node(text, features, fits):
    """Counts say nothing about a single node."""
    assert matches(parse(text), set(features.split())) is fits


@pytest.mark.parametrize(
    ("text", "nodes", "fits"),
    [
        ("a", ["a", "a"], True),
        ("a", ["a", "b"], False),
        ("a|b", ["a", "b"], True),
        ("[a|b]", ["a", "b"], False),
        ("[a|b]", ["b", "b c"], True),
        ("a*2", ["a", "a", ""], True),
        ("a*2", ["a", "", ""], False),
        ("a*1&b*1", ["a", "b"], True),
        ("a*1&b*1", ["a b", ""], True),
        ("[a|b]&c", ["a c", "a c"], True),
        ("[a|b]&[c|d]", ["a d", "a d"], True),
        ("[a|b]&[c|d]", ["a d", "a c"], False),
        ("", ["", ""], True),
    ],
)
def test_an_allocation(text, nodes, fits):
    """Every node satisfies the same choice, and enough nodes have what is counted."""
    assert satisfied_by(parse(text), [set(node.split()) for node in nodes]) is fits


def test_parts():
    """Alternatives, counts and names."""
    tree = parse("[a|b*2]&c")
    assert alternatives(tree) == [All((A, C)), All((Feature("b", 2), C))]
    assert counts(tree) == [("b", 2)]
    assert names(tree) == {"a", "b", "c"}


@given(st.text(alphabet="abc&|,()[]*12 ", max_size=20), st.lists(st.sets(st.sampled_from("abc")), max_size=3))
def test_no_text_breaks_the_parser(text, nodes):
    """A tree or GrammarError; and a matching-or never admits more than a plain one."""
    try:
        tree = parse(text)
    except GrammarError:
        return
    if satisfied_by(tree, nodes):
        assert all(matches(tree, node) for node in nodes)

"""The grammar of `srun --multi-prog` files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_cli.step import multiprog
from spur_core.errors import GrammarError


def commands(text, tasks=None, extra=()):
    return multiprog.parse(text, "f", tasks, extra).commands


@pytest.mark.parametrize(
    ("text", "tasks", "found"),
    [
        ("0 a\n1-2 b x\n", None, [([0], ["a"]), ([1, 2], ["b", "x"])]),
        ("0,2 a\n1 b\n", None, [([0, 2], ["a"]), ([1], ["b"])]),
        ("1 b\n* a", 3, [([1], ["b"]), ([0, 2], ["a"])]),
        ("* a", 2, [([0, 1], ["a"])]),
        (
            "0-1 a t=%t o=%o p=%%t",
            None,
            [([0], ["a", "t=0", "o=0", "p=%t"]), ([1], ["a", "t=1", "o=1", "p=%t"])],
        ),
        ("3-4 a %o\n0-2 b", None, [([3], ["a", "0"]), ([4], ["a", "1"]), ([0, 1, 2], ["b"])]),
        ("# note\n\n  0  a  # tail\n", None, [([0], ["a"])]),
        ("0 a 'x y' \"p q\" r\\ s '%t' \\#", None, [([0], ["a", "x y", "p q", "r s", "%t", "#"])]),
        ("0 a 'it''s'%t", None, [([0], ["a", "its0"])]),
        ("0 a x#y", None, [([0], ["a", "x#y"])]),
        ("0 a \\\n  b\n1 c\\", None, [([0], ["a", "b"]), ([1], ["c"])]),
        ("0 a ''", None, [([0], ["a", ""])]),
    ],
)
def test_files(text, tasks, found):
    assert commands(text, tasks) == found


def test_more_arguments_stand_behind_every_program():
    assert commands("0 a x\n1 b", None, ["-v"]) == [([0], ["a", "x", "-v"]), ([1], ["b", "-v"])]


@pytest.mark.parametrize(
    ("text", "tasks", "problem"),
    [
        ("0 a\n2 b", None, "f: no program for task rank 1"),
        ("0 a", 4, "f: no program for task rank 1-3"),
        ("0 a\n3 b", 2, "f: line 2: there is no task 3 in a step of 2"),
        ("0-1 a\n\n1 b", None, "f: line 3: task 1 is named in line 1 too"),
        ("0,0 a", None, "f: line 1: a task is named twice in 0,0"),
        ("0", None, "f: line 1: a task range and a program are needed"),
        ("x a", None, "f: line 1: invalid task range x"),
        ("2-1 a", None, "f: line 1: invalid task range 2-1"),
        ("0-99999999999 a", None, "f: line 1: invalid task range 0-99999999999"),
        ("", None, "f: no task rank is named; give their number with -n"),
        ("* a", None, "f: no task rank is named; give their number with -n"),
        ("0 a 'b", None, "f: line 1: Unmatched `'` in [0 a 'b]"),
    ],
)
def test_mistakes(text, tasks, problem):
    with pytest.raises(GrammarError) as caught:
        commands(text, tasks)
    assert caught.value.text == problem


@given(st.text(max_size=60), st.one_of(st.none(), st.integers(1, 6)))
def test_any_text_gives_every_rank_one_program_or_one_sentence(text, tasks):
    try:
        plan = multiprog.parse(text, "f", tasks)
    except GrammarError:
        return
    ranks = sorted(rank for owned, _ in plan.commands for rank in owned)
    assert ranks == list(range(plan.tasks))
    assert all(argv for _, argv in plan.commands)

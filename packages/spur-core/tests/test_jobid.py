"""Job and step references."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_core.errors import GrammarError
from spur_core.grammar.jobid import (
    BadJobRef,
    JobRef,
    format_job_ref,
    format_step,
    parse_job_ref,
    parse_job_refs,
    split_refs,
)
from spur_core.ids import STEP_BATCH, STEP_EXTERN, STEP_INTERACTIVE


@pytest.mark.parametrize(
    ("text", "ref"),
    [
        ("123", JobRef(123, None, None, None)),
        ("123_4", JobRef(123, "4", None, None)),
        ("123_[1-3,5]", JobRef(123, "1-3,5", None, None)),
        ("123_[4-9%2]", JobRef(123, "4-9", None, None)),
        ("123_*", JobRef(123, "*", None, None)),
        ("123+1", JobRef(123, None, None, 1)),
        ("123+0", JobRef(123, None, None, 0)),
        ("123.0", JobRef(123, None, 0, None)),
        ("123.batch", JobRef(123, None, STEP_BATCH, None)),
        ("123.extern", JobRef(123, None, STEP_EXTERN, None)),
        ("123.interactive", JobRef(123, None, STEP_INTERACTIVE, None)),
        ("123_4.0", JobRef(123, "4", 0, None)),
        ("123+1.0", JobRef(123, None, 0, 1)),
        ("123_4.batch", JobRef(123, "4", STEP_BATCH, None)),
    ],
)
def test_every_form(text, ref):
    """Jobs, tasks, components, steps."""
    assert parse_job_ref(text) == ref


@pytest.mark.parametrize(
    "text",
    [
        "bogus",
        "",
        "0",
        "-1",
        "12x",
        "1.2.3",
        "123.",
        "123.x",
        "123.4294967295",
        "123_",
        "123_x",
        "123_[",
        "123_[]",
        "123_[5-1]",
        "123_1-3",
        "123+",
        "123+x",
        "123+1_2",
        "123_2+1",
        "4294967296",
        "9" * 5000,
        "٥",
        " 1",
        "123_**",
    ],
)
def test_bad_text_is_named(text):
    """Every command puts its own sentence around the item."""
    with pytest.raises(BadJobRef, match=r"^Invalid job id specified$") as caught:
        parse_job_ref(text)
    assert caught.value.item == text
    assert isinstance(caught.value, GrammarError)


def test_lists():
    """Commas inside brackets do not split; empty items vanish; a bad item is the one that is named."""
    assert split_refs(" 1, 2_[1,3],,3.0 ") == ["1", "2_[1,3]", "3.0"]
    assert [ref.job_id for ref in parse_job_refs("1,2_[1,3],3.0")] == [1, 2, 3]
    with pytest.raises(BadJobRef) as caught:
        parse_job_refs("1,x,2")
    assert caught.value.item == "x"
    with pytest.raises(BadJobRef):
        parse_job_refs("2_[1,3")


@given(
    st.integers(1, 0xFFFFFFFF),
    st.none() | st.just("*") | st.integers(0, 1000).map(str) | st.just("1-3,5"),
    st.none() | st.just(STEP_BATCH) | st.integers(0, 100),
    st.none() | st.integers(0, 10),
)
def test_what_is_written_is_read_back(job_id, tasks, step, het):
    """A reference and its text."""
    ref = JobRef(job_id, tasks, step, None if tasks is not None else het)
    assert parse_job_ref(format_job_ref(ref)) == ref


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((123, 0), "123.0"),
        ((123, STEP_BATCH), "123.batch"),
        ((125, STEP_EXTERN, 120, 4), "120_4.extern"),
        ((125, 1, 120, None), "125.1"),
    ],
)
def test_steps_are_shown_with_their_task(arguments, text):
    """Tasks of an array by array id and index."""
    assert format_step(*arguments) == text

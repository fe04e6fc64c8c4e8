"""Dependencies: reading, judging, showing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_core.errors import GrammarError
from spur_core.grammar.dependency import (
    NEVER,
    SATISFIED,
    TYPES,
    WAITING,
    Dependency,
    Target,
    Term,
    display,
    evaluate,
    job_ids,
    parse,
    text_of,
)

PENDING = Target(ended=False, ok=False, started_at=None)
RUNNING = Target(ended=False, ok=False, started_at=100.0)
DONE = Target(ended=True, ok=True, started_at=100.0)
FAILED = Target(ended=True, ok=False, started_at=100.0)
CANCELLED = Target(ended=True, ok=False, started_at=None)


@pytest.mark.parametrize(
    ("text", "terms", "any_of"),
    [
        ("", (), False),
        ("(null)", (), False),
        ("afterok:85", (Term("afterok", 85, None, 0),), False),
        ("afterok:85:86", (Term("afterok", 85, None, 0), Term("afterok", 86, None, 0)), False),
        ("AfterOK:85,afterany:86", (Term("afterok", 85, None, 0), Term("afterany", 86, None, 0)), False),
        ("afterok:85?afterany:86", (Term("afterok", 85, None, 0), Term("afterany", 86, None, 0)), True),
        ("after:85+10", (Term("after", 85, None, 600),), False),
        ("after:85+10:86", (Term("after", 85, None, 600), Term("after", 86, None, 0)), False),
        ("afternotok:1_4", (Term("afternotok", 1, "4", 0),), False),
        ("afterany:1_*", (Term("afterany", 1, "*", 0),), False),
        ("aftercorr:1", (Term("aftercorr", 1, None, 0),), False),
        ("afterburstbuffer:1", (Term("afterburstbuffer", 1, None, 0),), False),
        ("singleton", (Term("singleton", 0, None, 0),), False),
        ("singleton,afterok:2", (Term("singleton", 0, None, 0), Term("afterok", 2, None, 0)), False),
        ("123", (Term("afterany", 123, None, 0),), False),
        ("123:124", (Term("afterany", 123, None, 0), Term("afterany", 124, None, 0)), False),
        ("after_ok:5", (Term("afterok", 5, None, 0),), False),
        ("after_not_ok:5", (Term("afternotok", 5, None, 0),), False),
    ],
)
def test_every_form(text, terms, any_of):
    """Types in any case, several ids, minutes, tasks, bare ids, the underscored spelling."""
    assert parse(text) == Dependency(terms, any_of)


@pytest.mark.parametrize(
    "text",
    [
        "afterok",
        "afterok:",
        "afterok:5,",
        ",afterok:5",
        "afterok:5?afterok:6,afterok:7",
        "afterwards:5",
        "afterok:x",
        "afterok:0",
        "afterok:-1",
        "afterok:5+10",
        "after:5+",
        "after:5+x",
        "after:5+-1",
        "singleton:5",
        "afterok:5_",
        "afterok:5_x",
        "afterok:5_[1-2]",
        "afterok:4294967296",
        "afterok:" + "9" * 5000,
        "after:1+" + "9" * 5000,
        "٥",
        "5 6",
    ],
)
def test_malformed(text):
    """One sentence for all; an unknown id is none of these."""
    with pytest.raises(GrammarError, match=r"^Job dependency problem$"):
        parse(text)


@pytest.mark.parametrize(
    ("kind", "target", "now", "state"),
    [
        ("after", None, 0, SATISFIED),
        ("after", PENDING, 0, WAITING),
        ("after", RUNNING, 100, SATISFIED),
        ("after", CANCELLED, 0, SATISFIED),
        ("after", DONE, 100, SATISFIED),
        ("afterany", None, 0, SATISFIED),
        ("afterany", PENDING, 0, WAITING),
        ("afterany", RUNNING, 0, WAITING),
        ("afterany", DONE, 0, SATISFIED),
        ("afterany", FAILED, 0, SATISFIED),
        ("afterany", CANCELLED, 0, SATISFIED),
        ("afterok", None, 0, NEVER),
        ("afterok", RUNNING, 0, WAITING),
        ("afterok", DONE, 0, SATISFIED),
        ("afterok", FAILED, 0, NEVER),
        ("afterok", CANCELLED, 0, NEVER),
        ("afternotok", None, 0, NEVER),
        ("afternotok", RUNNING, 0, WAITING),
        ("afternotok", DONE, 0, NEVER),
        ("afternotok", FAILED, 0, SATISFIED),
        ("afternotok", CANCELLED, 0, SATISFIED),
        ("aftercorr", None, 0, NEVER),
        ("aftercorr", RUNNING, 0, WAITING),
        ("aftercorr", DONE, 0, SATISFIED),
        ("aftercorr", FAILED, 0, NEVER),
        ("afterburstbuffer", None, 0, SATISFIED),
        ("afterburstbuffer", RUNNING, 0, WAITING),
        ("afterburstbuffer", FAILED, 0, SATISFIED),
        ("singleton", PENDING, 0, WAITING),
        ("singleton", None, 0, SATISFIED),
        ("singleton", DONE, 0, SATISFIED),
    ],
)
def test_one_term(kind, target, now, state):
    """Each type against each fate of the other job."""
    wanted = Dependency((Term(kind, 0 if kind == "singleton" else 5, None, 0),), False)
    assert evaluate(wanted, lambda term: target, now) == state


def test_minutes_count_from_the_start():
    """after:5+10 waits ten minutes from the start of job 5, not from its end."""
    wanted = parse("after:5+10")
    assert evaluate(wanted, lambda term: DONE, 699.9) == WAITING
    assert evaluate(wanted, lambda term: DONE, 700.0) == SATISFIED
    assert evaluate(wanted, lambda term: CANCELLED, 0.0) == SATISFIED


JOBS = {1: DONE, 2: FAILED, 3: RUNNING}


@pytest.mark.parametrize(
    ("text", "state", "shown"),
    [
        ("", SATISFIED, ""),
        ("afterok:1", SATISFIED, ""),
        ("afterok:1,afterok:3", WAITING, "afterok:3(unfulfilled)"),
        ("afterok:3,afterany:3", WAITING, "afterok:3(unfulfilled),afterany:3(unfulfilled)"),
        ("afterok:2,afterok:3", NEVER, "afterok:2(failed),afterok:3(unfulfilled)"),
        ("afterok:2?afterok:3", WAITING, "afterok:2(failed)?afterok:3(unfulfilled)"),
        ("afterok:2?afterok:1", SATISFIED, ""),
        ("afterok:2?afternotok:1", NEVER, "afterok:2(failed)?afternotok:1(failed)"),
        ("afterok:9", NEVER, "afterok:9(failed)"),
        ("after:3+10", WAITING, "after:3+10(unfulfilled)"),
        ("afterok:3_7", WAITING, "afterok:3_7(unfulfilled)"),
        ("afterok:3_*,singleton", WAITING, "afterok:3_*(unfulfilled)"),
    ],
)
def test_the_whole(text, state, shown):
    """All or any; what is satisfied is not shown."""
    wanted = parse(text)
    assert evaluate(wanted, lambda term: JOBS.get(term.job_id), 100.0) == state
    assert display(wanted, lambda term: JOBS.get(term.job_id), 100.0) == shown


def test_a_waiting_singleton_is_shown():
    """It has no id."""
    assert display(parse("singleton"), lambda term: PENDING, 0.0) == "singleton(unfulfilled)"


def test_the_jobs_that_are_named():
    """A controller watches these."""
    assert job_ids(parse("afterok:1:2,singleton,after:3_4+1")) == {1, 2, 3}


TERMS = st.builds(
    lambda kind, job, task, minutes: (
        Term("singleton", 0, None, 0)
        if kind == "singleton"
        else Term(kind, job, task, minutes * 60 if kind == "after" else 0)
    ),
    st.sampled_from(TYPES),
    st.integers(1, 0xFFFFFFFF),
    st.none() | st.just("*") | st.integers(0, 4_000_000).map(str),
    st.integers(0, 10_000),
)


@given(st.lists(TERMS, min_size=1, max_size=5), st.booleans())
def test_what_is_written_is_read_back(terms, any_of):
    """The stored form is the typed form."""
    wanted = Dependency(tuple(terms), any_of and len(terms) > 1)
    assert parse(text_of(wanted)) == wanted


@given(st.text(alphabet="afterokyn:_+?,*0123456789", max_size=20))
def test_no_text_breaks_the_parser(text):
    """A dependency or GrammarError, nothing else."""
    try:
        parse(text)
    except GrammarError:
        pass

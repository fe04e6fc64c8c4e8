"""Ids, states, reasons and errors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_core import errors, reasons
from spur_core.errors import ConfigError, GrammarError, IllegalTransition, SpurError
from spur_core.ids import (
    MAX_NORMAL_STEP,
    STEP_BATCH,
    STEP_EXTERN,
    STEP_INTERACTIVE,
    STEP_PENDING,
    U32_MAX,
    RuntimeId,
    is_numbered,
    parse_step_name,
    step_name,
)
from spur_core.states import (
    ACTIVE_STATES,
    END_EVENT,
    JOB_CODE,
    JOB_TRANSITIONS,
    NODE_TRANSITIONS,
    TERMINAL_STATES,
    JobEvent,
    JobState,
    NodeAvail,
    NodeEvent,
    next_job_state,
    next_node_avail,
    parse_job_state,
)

U32 = st.integers(0, U32_MAX)


@given(U32, U32, U32)
def test_a_session_name_is_its_run(job_id, attempt, step):
    """Three decimal numbers, both ways."""
    run = RuntimeId(job_id, attempt, step)
    assert run.dirname() == f"{job_id}.{attempt}.{step}"
    assert RuntimeId.from_dirname(run.dirname()) == run


@pytest.mark.parametrize(
    "name",
    [
        "",
        "1.2",
        "1.2.3.4",
        "01.2.3",
        "1.2.x",
        "-1.2.3",
        "+1.2.3",
        "1.2.4294967296",
        "1.2.٣",
        "1. 2.3",
        "..",
        "1.2.",
    ],
)
def test_other_names_are_no_sessions(name):
    """Leading zeros, signs and foreign digits included."""
    with pytest.raises(GrammarError, match="not a session name"):
        RuntimeId.from_dirname(name)


def test_runs_are_compared_on_all_three_parts():
    """And shown with the step's name."""
    run = RuntimeId(7, 1, STEP_BATCH)
    assert run != RuntimeId(7, 2, STEP_BATCH)
    assert run != RuntimeId(7, 1, 0)
    assert str(run) == "7.1.batch"


@pytest.mark.parametrize(
    ("step", "name"),
    [
        (0, "0"),
        (17, "17"),
        (MAX_NORMAL_STEP, str(MAX_NORMAL_STEP)),
        (STEP_BATCH, "batch"),
        (STEP_EXTERN, "extern"),
        (STEP_INTERACTIVE, "interactive"),
    ],
)
def test_step_names(step, name):
    """Slurm's words, both ways."""
    assert step_name(step) == name
    assert parse_step_name(name) == step
    assert is_numbered(step) == name.isdigit()


def test_a_step_without_a_number_has_a_word():
    """Shown, never typed."""
    assert step_name(STEP_PENDING) == "TBD"
    for text in ("TBD", "", "-1", str(MAX_NORMAL_STEP + 1), "x"):
        with pytest.raises(GrammarError, match="Invalid step id specified"):
            parse_step_name(text)


@pytest.mark.parametrize("state", JobState)
@pytest.mark.parametrize("event", JobEvent)
def test_every_pair_of_job_state_and_event_is_decided(state, event):
    """In the table or refused; a terminal state is left only by a requeue."""
    allowed = JOB_TRANSITIONS[state]
    if event in allowed:
        assert next_job_state(state, event) is allowed[event]
        if state in TERMINAL_STATES:
            assert event is JobEvent.REQUEUE
    else:
        with pytest.raises(IllegalTransition, match=f"{event.name} is not possible in state {state.name}"):
            next_job_state(state, event)


@pytest.mark.parametrize("avail", NodeAvail)
@pytest.mark.parametrize("event", NodeEvent)
def test_every_pair_of_node_availability_and_event_is_decided(avail, event):
    """In the table or refused."""
    allowed = NODE_TRANSITIONS[avail]
    if event in allowed:
        assert next_node_avail(avail, event) is allowed[event]
    else:
        with pytest.raises(IllegalTransition, match=event.name):
            next_node_avail(avail, event)


def test_every_active_job_can_end_in_every_way():
    """A lost node, a limit or a cancel can meet a job in any of these states."""
    for state in ACTIVE_STATES:
        for end, event in END_EVENT.items():
            assert next_job_state(state, event) is end


def test_every_state_has_a_code_and_every_event_a_use():
    """No orphan in either table."""
    assert set(JOB_CODE) == set(JobState) == set(JOB_TRANSITIONS)
    assert len(set(JOB_CODE.values())) == len(JOB_CODE)
    assert {event for row in JOB_TRANSITIONS.values() for event in row} == set(JobEvent)
    assert set(NODE_TRANSITIONS) == set(NodeAvail)
    assert {event for row in NODE_TRANSITIONS.values() for event in row} == set(NodeEvent)
    assert not ACTIVE_STATES & TERMINAL_STATES


@pytest.mark.parametrize("state", JobState)
def test_state_names_in_any_case(state):
    """Full or compact."""
    for text in (state.name, state.name.lower(), JOB_CODE[state], JOB_CODE[state].lower()):
        assert parse_job_state(text) is state


def test_other_state_names():
    """Slurm's states that no job of ours is in are known; nonsense is not."""
    assert parse_job_state("rh") == "REQUEUE_HOLD"
    with pytest.raises(GrammarError, match=r"^Invalid job state specified: bogus$"):
        parse_job_state("bogus")


def test_reasons_are_single_words():
    """Scripts match on them."""
    found = {
        name: value for name, value in vars(reasons).items() if name.isupper() and isinstance(value, str)
    }
    assert len(set(found.values())) == len(found)
    assert all(value.isalnum() for value in found.values())
    assert found.keys() >= {"NONE", "PRIORITY", "RESOURCES", "DEPENDENCY"}
    assert set(found.values()) >= reasons.HOLDS


def test_error_codes_are_unique_and_stable_words():
    """A client may match on them."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, SpurError)]
    codes = [kind.code for kind in kinds]
    assert len(codes) == len(set(codes))
    assert all(code.replace("_", "").isalpha() and code.islower() for code in codes)


def test_a_config_error_lists_every_problem():
    """One text for a log line, the list for a terminal."""
    error = ConfigError(["a", "b"])
    assert error.problems == ["a", "b"]
    assert error.text == "a; b"
    assert ConfigError("a").problems == ["a"]

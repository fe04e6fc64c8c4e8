"""Time limits and how durations are printed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_core.errors import GrammarError
from spur_core.grammar.duration import cpu_form, limit_long, limit_squeue, long_form, squeue_form
from spur_core.grammar.timelimit import minutes_rounded_up, parse_time_limit

HOUR, DAY = 3600, 86400


@pytest.mark.parametrize(
    ("text", "seconds", "minutes"),
    [
        ("90", 5400, 90),
        ("1-2", 26 * HOUR, 1560),
        ("10:30", 630, 11),
        ("1-2:3", 26 * HOUR + 180, 1563),
        ("1:2:3", 3723, 63),
        ("1-2:3:4", 26 * HOUR + 184, 1564),
        ("1-", DAY, 1440),
        ("1-25", 49 * HOUR, 2940),
        ("1:60", 120, 2),
        ("100:00", 6000, 100),
        ("0:10", 10, 1),
        ("0:0:1", 1, 1),
        # The suffixed extension.
        ("5m", 300, 5),
        ("90m", 5400, 90),
        ("1h30m", 5400, 90),
        ("2d12h", 60 * HOUR, 3600),
        ("30s", 30, 1),
        ("1H", HOUR, 60),
    ],
)
def test_a_limit_is_read_to_the_second_and_shown_in_minutes(text, seconds, minutes):
    """Every row of the table, carry-over included."""
    assert parse_time_limit(text) == seconds
    assert minutes_rounded_up(seconds) == minutes


@pytest.mark.parametrize(
    "text", ["0", "-1", "INFINITE", "infinite", "UNLIMITED", "Unlimited", "0:0", "0-0", "0s"]
)
def test_no_limit(text):
    """Zero and the words ask for no limit."""
    assert parse_time_limit(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "5.5",
        "abc",
        "",
        " 5",
        "5 ",
        "1:2:3:4",
        "1-2:3:4:5",
        "-",
        "-5",
        "1--2",
        ":",
        "1:",
        ":1",
        "m",
        "1m2",
        "5x",
        "1_0",
        "٥",
        "9" * 5000,
        "99999999999",
        "+5",
        "1-x",
        "h1",
    ],
)
def test_anything_else_is_an_error(text):
    """Foreign digits and endless numbers included."""
    with pytest.raises(GrammarError, match=r"^Invalid --time specification$"):
        parse_time_limit(text)


def test_the_error_names_the_option():
    """The same grammar serves several options."""
    with pytest.raises(GrammarError, match=r"^Invalid --time-min specification$"):
        parse_time_limit("x", "--time-min")


@given(st.integers(1, 10**8))
def test_what_scontrol_prints_is_read_back(seconds):
    """HH:MM:SS and D-HH:MM:SS are inputs as well."""
    assert parse_time_limit(long_form(seconds)) == seconds


@given(st.integers(1, 365 * DAY))
def test_what_squeue_prints_is_read_back(seconds):
    """M:SS, H:MM:SS and D-HH:MM:SS too."""
    assert parse_time_limit(squeue_form(seconds)) == seconds


@given(st.text(max_size=12))
def test_no_text_breaks_the_parser(text):
    """A number, None or GrammarError, nothing else."""
    try:
        found = parse_time_limit(text)
    except GrammarError:
        return
    assert found is None or found > 0


@pytest.mark.parametrize(
    ("seconds", "squeue", "long"),
    [
        (0, "0:00", "00:00:00"),
        (5, "0:05", "00:00:05"),
        (59.9, "0:59", "00:00:59"),
        (60, "1:00", "00:01:00"),
        (3599, "59:59", "00:59:59"),
        (3600, "1:00:00", "01:00:00"),
        (86399, "23:59:59", "23:59:59"),
        (86400, "1-00:00:00", "1-00:00:00"),
        (90061, "1-01:01:01", "1-01:01:01"),
        (365 * 86400, "365-00:00:00", "365-00:00:00"),
        (365 * 86400 + 1, "INVALID", "365-00:00:01"),
        (-1, "INVALID", "00:00:00"),
    ],
)
def test_printed_durations(seconds, squeue, long):
    """squeue's form and that of scontrol and sacct."""
    assert squeue_form(seconds) == squeue
    assert long_form(seconds) == long


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "00:00.000"),
        (1.5, "00:01.500"),
        (61.0625, "01:01.062"),
        (3599.999, "59:59.999"),
        (3599.9996, "01:00:00"),
        (3600, "01:00:00"),
        (90061.9, "1-01:01:01"),
    ],
)
def test_cpu_times(seconds, text):
    """Milliseconds below an hour only."""
    assert cpu_form(seconds) == text


def test_limits_are_rounded_up_and_have_a_word_for_none():
    """UNLIMITED, and infinite for sinfo."""
    assert limit_squeue(None) == limit_long(None) == "UNLIMITED"
    assert limit_squeue(None, "infinite") == "infinite"
    assert limit_squeue(630) == "11:00"
    assert limit_long(630) == "00:11:00"
    assert limit_long(None, "Partition_Limit") == "Partition_Limit"

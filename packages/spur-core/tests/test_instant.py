"""Points in time, in and out."""

import calendar
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spur_core.errors import GrammarError
from spur_core.grammar.instant import format_timestamp, parse_instant

#: Wednesday, 2026-07-15 10:20:30 UTC.
NOW = float(calendar.timegm((2026, 7, 15, 10, 20, 30)))


def in_utc(text: str, *, prefer_future: bool = True, now: float = NOW) -> str:
    """The instant as text, with UTC as the local zone."""
    found = parse_instant(
        text,
        now,
        prefer_future=prefer_future,
        localtime=time.gmtime,
        mktime=lambda parts: float(calendar.timegm(parts)),
    )
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(found))


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("now", "2026-07-15T10:20:30"),
        ("NOW", "2026-07-15T10:20:30"),
        ("now+60", "2026-07-15T10:21:30"),
        ("now-60", "2026-07-15T10:19:30"),
        ("now+1second", "2026-07-15T10:20:31"),
        ("now+2seconds", "2026-07-15T10:20:32"),
        ("now+1minute", "2026-07-15T10:21:30"),
        ("now + 2 minutes", "2026-07-15T10:22:30"),
        ("now+1hour", "2026-07-15T11:20:30"),
        ("now -2 hours", "2026-07-15T08:20:30"),
        ("now+1day", "2026-07-16T10:20:30"),
        ("now-3days", "2026-07-12T10:20:30"),
        ("now+1week", "2026-07-22T10:20:30"),
        ("now+2weeks", "2026-07-29T10:20:30"),
        ("now+5min", "2026-07-15T10:25:30"),
        ("today", "2026-07-15T00:00:00"),
        ("tomorrow", "2026-07-16T00:00:00"),
        ("midnight", "2026-07-16T00:00:00"),
        ("noon", "2026-07-15T12:00:00"),
        ("elevenses", "2026-07-15T11:00:00"),
        ("fika", "2026-07-15T15:00:00"),
        ("teatime", "2026-07-15T16:00:00"),
        ("16:30", "2026-07-15T16:30:00"),
        ("16:30:15", "2026-07-15T16:30:15"),
        ("10:20:30", "2026-07-15T10:20:30"),
        ("10:20", "2026-07-16T10:20:00"),
        ("4:30PM", "2026-07-15T16:30:00"),
        ("4:30:10 pm", "2026-07-15T16:30:10"),
        ("4pm", "2026-07-15T16:00:00"),
        ("12:00AM", "2026-07-16T00:00:00"),
        ("12:00PM", "2026-07-15T12:00:00"),
        ("1224", "2026-12-24T00:00:00"),
        ("122427", "2027-12-24T00:00:00"),
        ("12/24", "2026-12-24T00:00:00"),
        ("12/24/27", "2027-12-24T00:00:00"),
        ("12/24/2027", "2027-12-24T00:00:00"),
        ("12.24", "2026-12-24T00:00:00"),
        ("12.24.27", "2027-12-24T00:00:00"),
        ("0102", "2027-01-02T00:00:00"),
        ("7/15", "2026-07-15T00:00:00"),
        ("7/14", "2027-07-14T00:00:00"),
        ("2026-12-24", "2026-12-24T00:00:00"),
        ("2026-12-24T08:30", "2026-12-24T08:30:00"),
        ("2026-12-24T08:30:15", "2026-12-24T08:30:15"),
        ("2026-12-24 08:30", "2026-12-24T08:30:00"),
        ("122426-08:30", "2026-12-24T08:30:00"),
        ("12/24 4pm", "2026-12-24T16:00:00"),
        ("tomorrow 16:00", "2026-07-16T16:00:00"),
        ("tomorrowTnoon", "2026-07-16T12:00:00"),
        ("2028-02-29", "2028-02-29T00:00:00"),
        ("uts1735689600", "2025-01-01T00:00:00"),
        ("uts0", "1970-01-01T00:00:00"),
        ("2026-12-24T08:30Z", "2026-12-24T08:30:00"),
        ("2026-12-24T08:30:00+02:00", "2026-12-24T06:30:00"),
        ("2026-12-24T08:30-05:30", "2026-12-24T14:00:00"),
    ],
)
def test_every_form(text, instant):
    """The forms of the specification, for begin and deadline."""
    assert in_utc(text) == instant


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("16:30", "2026-07-14T16:30:00"),
        ("10:20", "2026-07-15T10:20:00"),
        ("noon", "2026-07-14T12:00:00"),
        ("midnight", "2026-07-15T00:00:00"),
        ("12/24", "2025-12-24T00:00:00"),
        ("7/14", "2026-07-14T00:00:00"),
        ("7/20", "2026-07-20T00:00:00"),
        ("now-7days", "2026-07-08T10:20:30"),
        ("today", "2026-07-15T00:00:00"),
    ],
)
def test_history_looks_back(text, instant):
    """sacct and sreport mean the most recent one."""
    assert in_utc(text, prefer_future=False) == instant


@pytest.mark.parametrize(
    ("text", "pos"),
    [
        ("", 0),
        ("bogus", 0),
        ("nowhere", 3),
        ("now+", 4),
        ("now+x", 4),
        ("now+1fortnight", 5),
        ("now*2", 3),
        ("25:00", 0),
        ("10:60", 3),
        ("10:20:60", 6),
        ("13:00PM", 0),
        ("0:00AM", 0),
        ("10", 0),
        ("2026-13-01", 0),
        ("2026-02-29", 0),
        ("2026-02-30", 0),
        ("2026-06-31T10:00", 0),
        ("2026-1", 6),
        ("2026-12-24T", 11),
        ("2026-12-24T25:00", 11),
        ("2026-12-24x", 10),
        ("2026-12-24T08:30+2", 17),
        ("1969-12-31", 0),
        ("1/1/123", 4),
        ("12/", 3),
        ("utsx", 3),
        ("uts-5", 3),
        ("uts" + "9" * 5000, 3),
        ("16:00 tomorrow", 6),
        ("٤:٣٠", 0),
        ("9" * 5000, 0),
    ],
)
def test_errors_name_the_position(text, pos):
    """`Invalid time specification (pos=N): TEXT`, as sbatch and sacct print it."""
    with pytest.raises(GrammarError) as caught:
        in_utc(text)
    assert caught.value.text == f"Invalid time specification (pos={pos}): {text}"


@given(st.text(max_size=20))
def test_no_text_breaks_the_parser(text):
    """An instant or GrammarError, nothing else."""
    try:
        parse_instant(text, NOW)
    except GrammarError:
        pass


@given(st.text(alphabet="now+-0123456789:/.TZ apmtdy", max_size=24))
def test_no_likely_text_breaks_the_parser(text):
    """The same with the grammar's own letters."""
    try:
        parse_instant(text, NOW)
    except GrammarError:
        pass


@given(st.integers(0, 4_000_000_000))
def test_a_printed_timestamp_is_read_back(moment):
    """Standard output is valid input, in a zone with daylight saving too."""
    text = format_timestamp(moment)
    again = parse_instant(text, NOW)
    assert format_timestamp(again) == text
    # Only the doubled hour of autumn may lead to the earlier of two instants.
    assert moment - again in (0, 3600)


class TestLocalZone:
    """Naked times are local, whatever the clocks do."""

    def test_zone_of_the_process(self, zone):
        """Berlin is two hours ahead in summer."""
        zone("Europe/Berlin")
        assert parse_instant("2026-07-15T12:20:30", NOW) == NOW
        assert parse_instant("2026-07-15T10:20:30Z", NOW) == NOW
        assert format_timestamp(NOW) == "2026-07-15T12:20:30"

    def test_an_hour_that_is_skipped_counts_from_before(self, zone):
        """02:30 on the last Sunday of March does not exist in Berlin; it becomes 03:30."""
        zone("Europe/Berlin")
        found = parse_instant("2026-03-29T02:30", NOW)
        assert format_timestamp(found) == "2026-03-29T03:30:00"

    def test_of_a_doubled_hour_the_first_is_meant(self, zone):
        """02:30 on the last Sunday of October happens twice in Berlin."""
        zone("Europe/Berlin")
        found = parse_instant("2026-10-25T02:30", NOW)
        assert found == calendar.timegm((2026, 10, 25, 0, 30, 0))

    def test_tomorrow_is_a_day_of_the_calendar(self, zone):
        """Midnight of tomorrow is 23 hours after today's when the clocks go forward."""
        zone("Europe/Berlin")
        eve = parse_instant("2026-03-29T00:00", NOW)
        assert parse_instant("tomorrow", eve) - eve == 23 * 3600
        assert parse_instant(
            "12:00", parse_instant("2026-03-30T00:30", NOW), prefer_future=False
        ) == parse_instant("2026-03-29T12:00", NOW)


@pytest.mark.parametrize(
    ("moment", "style", "text"),
    [
        (NOW, "standard", "2026-07-15T10:20:30"),
        (NOW, "", "2026-07-15T10:20:30"),
        (NOW, "relative", "10:20:30"),
        (NOW - 86400, "relative", "Ystday 10:20"),
        (NOW + 86400, "relative", "Tomorr 10:20"),
        (NOW + 2 * 86400, "relative", "Fri 10:20"),
        (NOW - 6 * 86400, "relative", "Thu 10:20"),
        (NOW - 7 * 86400, "relative", "08 Jul 10:20"),
        (NOW + 200 * 86400, "relative", "31 Jan 10:20"),
        (NOW, "%s", "1784110830"),
        (NOW, "%%s|%H", "%s|10"),
        (NOW, "%d.%m.%Y", "15.07.2026"),
        (0, "standard", "1970-01-01T00:00:00"),
    ],
)
def test_slurm_time_format(moment, style, text):
    """standard, relative, and any strftime pattern."""
    assert format_timestamp(moment, style, NOW, time.gmtime) == text

"""Repeated reservations keep their wall clock."""

import datetime
import itertools
import zoneinfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spur_sched.reservations.model import Span
from spur_sched.reservations.recurrence import PERIODS, following, occurrences, zone_of

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
UTC = datetime.UTC
ZONES = [
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "Asia/Kolkata",
    "Africa/Casablanca",
    "Pacific/Apia",
    "Antarctica/Troll",
    "UTC",
]


def at(text: str, zone: datetime.tzinfo = BERLIN) -> float:
    return datetime.datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()


def shown(span: Span, zone: datetime.tzinfo = BERLIN) -> tuple[str, str]:
    start, end = (datetime.datetime.fromtimestamp(moment, zone) for moment in span)
    return start.strftime("%a %m-%d %H:%M"), end.strftime("%a %m-%d %H:%M")


def some(first: Span, repeat: str, count: int, after: float | None = None) -> list[tuple[str, str]]:
    found = occurrences(first, repeat, BERLIN, first.start if after is None else after)
    return [shown(span) for span in itertools.islice(found, count)]


def test_daily_keeps_its_hour_when_clocks_go_forward() -> None:
    first = Span(at("2026-03-28T22:00"), at("2026-03-28T23:30"))
    assert some(first, "DAILY", 3) == [
        ("Sat 03-28 22:00", "Sat 03-28 23:30"),
        ("Sun 03-29 22:00", "Sun 03-29 23:30"),
        ("Mon 03-30 22:00", "Mon 03-30 23:30"),
    ]
    spans = list(itertools.islice(occurrences(first, "DAILY", BERLIN, first.start), 2))
    assert spans[1].start - spans[0].start == 23 * 3600


def test_a_time_that_the_clocks_skip_is_held_right_after_and_shifts_nothing() -> None:
    first = Span(at("2026-03-28T02:30"), at("2026-03-28T02:45"))
    assert some(first, "DAILY", 3) == [
        ("Sat 03-28 02:30", "Sat 03-28 02:45"),
        ("Sun 03-29 03:30", "Sun 03-29 03:45"),
        ("Mon 03-30 02:30", "Mon 03-30 02:45"),
    ]


def test_one_that_the_skip_would_swallow_lasts_as_long_as_the_others() -> None:
    first = Span(at("2026-03-28T02:00"), at("2026-03-28T03:00"))
    spans = list(itertools.islice(occurrences(first, "DAILY", BERLIN, first.start), 3))
    assert [span.end - span.start for span in spans] == [3600] * 3


def test_a_night_over_the_change_ends_by_the_wall_clock() -> None:
    first = Span(at("2026-10-23T22:00"), at("2026-10-24T06:00"))
    spans = list(itertools.islice(occurrences(first, "DAILY", BERLIN, first.start), 3))
    assert [(span.end - span.start) / 3600 for span in spans] == [8, 9, 8]


@pytest.mark.parametrize(
    ("repeat", "days"),
    [
        ("WEEKDAY", ["Thu", "Fri", "Mon", "Tue", "Wed", "Thu"]),
        ("WEEKEND", ["Thu", "Sat", "Sun", "Sat", "Sun", "Sat"]),
        ("WEEKLY", ["Thu"] * 6),
        ("DAILY", ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue"]),
    ],
)
def test_days(repeat: str, days: list[str]) -> None:
    first = Span(at("2026-01-01T10:00"), at("2026-01-01T11:00"))
    assert [start[:3] for start, _ in some(first, repeat, 6)] == days


def test_hourly_counts_hours() -> None:
    first = Span(at("2026-03-29T01:30"), at("2026-03-29T01:40"))
    assert [start[-5:] for start, _ in some(first, "HOURLY", 3)] == ["01:30", "03:30", "04:30"]


def test_once_is_over_after_its_end() -> None:
    first = Span(100.0, 200.0)
    assert list(occurrences(first, "", UTC, 150.0)) == [first]
    assert list(occurrences(first, "", UTC, 200.0)) == []
    assert following(first, "", UTC, first) is None


def test_unknown_zones_are_utc() -> None:
    assert zone_of("Nowhere/Atall") is UTC
    assert zone_of("../etc/passwd") is UTC


@settings(max_examples=150, deadline=None)
@given(
    zone=st.sampled_from(ZONES),
    repeat=st.sampled_from(sorted(PERIODS)),
    start=st.integers(1_577_836_800, 1_893_456_000),
    share=st.floats(0.001, 0.9),
    later=st.integers(0, 800 * 86_400),
)
def test_occurrences_hold_their_promises(
    zone: str, repeat: str, start: int, share: float, later: int
) -> None:
    where = zoneinfo.ZoneInfo(zone)
    first = Span(float(start), float(start + max(1, int(PERIODS[repeat] * share))))
    after = first.start + later
    found = list(itertools.islice(occurrences(first, repeat, where, after), 20))
    assert all(span.end > after and span.end > span.start for span in found)
    # One after the other, none twice.
    assert all(early.end <= late.start for early, late in itertools.pairwise(found))
    # Asking later leaves out what is over and changes nothing else.
    middle = found[7].end
    assert list(itertools.islice(occurrences(first, repeat, where, middle), 12)) == found[8:]


@settings(max_examples=80, deadline=None)
@given(zone=st.sampled_from(ZONES), start=st.integers(1_577_836_800, 1_893_456_000))
def test_daily_is_at_the_same_time_on_every_day(zone: str, start: int) -> None:
    where = zoneinfo.ZoneInfo(zone)
    first = Span(float(start), float(start + 600))
    clock = datetime.datetime.fromtimestamp(start, where).replace(fold=0).time()
    other = 0
    for span in itertools.islice(occurrences(first, "DAILY", where, first.start), 400):
        local = datetime.datetime.fromtimestamp(span.start, where)
        other += local.replace(fold=0).time() != clock
    # Only where the clocks skip it, or the first one lies in the repeated hour.
    assert other <= 4

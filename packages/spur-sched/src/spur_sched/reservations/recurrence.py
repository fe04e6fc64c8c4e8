"""Occurrences of repeated reservations, at the same time of the local wall clock whatever the clocks do.

The wall clock is that of the first occurrence: one that the clocks skip is held right after the skip and
leaves the others where they were; of two equal times the earlier is meant.  Hourly ones know no wall clock.
"""

import datetime
import zoneinfo
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from spur_sched.reservations.model import Span

_DAY: Final = 86_400
_HOUR: Final = 3600
#: Longest that an occurrence may last, so that it is over before the next one.
PERIODS: Final = {"HOURLY": _HOUR, "DAILY": _DAY, "WEEKDAY": _DAY, "WEEKEND": _DAY, "WEEKLY": 7 * _DAY}
_FRIDAY: Final = 4
#: Clocks are moved by less.
_SLACK: Final = 2 * _DAY


@lru_cache(maxsize=64)
def zone_of(name: str) -> datetime.tzinfo:
    """The zone of that name; UTC where this machine does not know it."""
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return datetime.UTC


def occurrences(first: Span, repeat: str, zone: datetime.tzinfo, after: float) -> Iterator[Span]:
    """Those that end later than `after`, in order; without end when it repeats.

    Args:
        repeat: one of `PERIODS`, or "" for the first one alone.
    """
    if not repeat:
        if first.end > after:
            yield first
        return
    if repeat == "HOURLY":
        count = max(0, int((after - first.end) // _HOUR))
        while True:
            span = Span(first.start + count * _HOUR, first.end + count * _HOUR)
            if span.end > after:
                yield span
            count += 1
    yield from _by_day(first, repeat, zone, after)


def _by_day(first: Span, repeat: str, zone: datetime.tzinfo, after: float) -> Iterator[Span]:
    start = datetime.datetime.fromtimestamp(first.start, zone).replace(tzinfo=None, fold=0)
    end = datetime.datetime.fromtimestamp(first.end, zone).replace(tzinfo=None, fold=0)
    day = max(0, int((after - first.end - _SLACK) // _DAY))
    if repeat == "WEEKLY":
        day -= day % 7
    last = -float("inf")
    while True:
        if _falls(repeat, start, day):
            span = first if day == 0 else _on(start, end, day, zone, first)
            # Clocks set back may not make one begin before the one before it is over.
            span = Span(max(span.start, last), span.end)
            last = span.end
            if span.end > after and span.end > span.start:
                yield span
        day += 7 if repeat == "WEEKLY" else 1


def _falls(repeat: str, start: datetime.datetime, day: int) -> bool:
    """Whether one falls on that day; the first one was asked for by its date."""
    if repeat == "WEEKDAY" and day:
        return (start.weekday() + day) % 7 <= _FRIDAY
    if repeat == "WEEKEND" and day:
        return (start.weekday() + day) % 7 > _FRIDAY
    return True


def _on(
    start: datetime.datetime, end: datetime.datetime, day: int, zone: datetime.tzinfo, first: Span
) -> Span:
    more = datetime.timedelta(days=day)
    begin = (start + more).replace(tzinfo=zone).timestamp()
    over = (end + more).replace(tzinfo=zone).timestamp()
    # A time that the clocks skip would leave nothing of it.
    return Span(begin, over if over > begin else begin + (first.end - first.start))


def following(first: Span, repeat: str, zone: datetime.tzinfo, present: Span) -> Span | None:
    """The occurrence after `present`; None when there is none."""
    for span in occurrences(first, repeat, zone, present.end):
        if span.start >= present.end:
            return span
    return None

"""Occurrences as a scheduling pass sees them, and whether two reservations want the same thing."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from spur_sched.api import Window
from spur_sched.reservations.model import Reservation, Span
from spur_sched.reservations.recurrence import occurrences, zone_of

#: So far ahead two repeated reservations are compared.
_LOOK_AHEAD: Final = 366 * 86_400.0
#: Any run that lasts so long meets each repeated reservation: no period is longer.
LONGEST_PERIOD: Final = 8 * 86_400.0


def spans(reservation: Reservation, now: float, until: float) -> Iterator[Span]:
    """Occurrences that are not over at `now` and begin before `until`; one without repeats whenever."""
    if reservation.floating is not None:
        length = reservation.first.end - reservation.first.start
        begin = now + reservation.floating
        yield Span(begin, begin + length)
        return
    if not reservation.repeat:
        if reservation.span.end > now:
            yield reservation.span
        return
    if reservation.span.end > now and reservation.span.start < until:
        yield reservation.span
    zone = zone_of(reservation.zone)
    after = max(now, reservation.span.end)
    for span in occurrences(reservation.first, reservation.repeat, zone, after):
        if span.start >= until:
            return
        if span.start >= reservation.span.end:
            yield span


def windows(reservations: Iterable[Reservation], now: float, until: float) -> list[Window]:
    """What is or will be kept between `now` and `until`, earliest first.

    A reservation that does not repeat is in it however late it is: work without a limit would meet it.  For
    repeated ones `until` need not lie more than `LONGEST_PERIOD` behind the last start that is planned.
    """
    found = [
        Window(
            name=one.name,
            start=span.start,
            end=span.end,
            nodes=one.nodes,
            maintenance=one.maintenance,
            flex=one.flex,
            cpus=one.cpus,
            licenses=one.licenses,
        )
        for one in reservations
        for span in spans(one, now, until)
    ]
    found.sort(key=lambda window: (window.start, window.end, window.name))
    return found


def active(reservation: Reservation, now: float) -> bool:
    """Whether it holds now."""
    return reservation.floating is None and reservation.span.start <= now < reservation.span.end


def collide(one: Reservation, other: Reservation) -> bool:
    """Whether they hold at the same time at some time, by what is known of them now."""
    if one.floating is not None or other.floating is not None:
        # One that is always ahead meets everything that lies further ahead than it.
        early, late = sorted((one, other), key=lambda item: item.floating is None)
        if late.repeat or late.floating is not None:
            return True
        return late.span.end > early.span.start
    since = max(one.span.start, other.span.start)
    until = since + _LOOK_AHEAD
    if not one.repeat:
        until = min(until, one.span.end)
    if not other.repeat:
        until = min(until, other.span.end)
    mine, theirs = spans(one, since, until), spans(other, since, until)
    left, right = next(mine, None), next(theirs, None)
    while left is not None and right is not None:
        if left.meets(right):
            return True
        if left.end <= right.end:
            left = next(mine, None)
        else:
            right = next(theirs, None)
    return False


def conflict(
    wanted: Reservation, others: Iterable[Reservation], cpus: Mapping[str, int]
) -> tuple[str, str] | None:
    """(reservation, node) of another one that keeps the same node at the same time; None when there is none.

    Those with OVERLAP or MAINT share their nodes with every other.

    Args:
        cpus: of every node, for reservations of some of them.
    """
    if wanted.overlap or wanted.maintenance:
        return None
    taken: dict[str, float] = {}
    for other in others:
        if other.name == wanted.name or other.overlap or other.maintenance:
            continue
        common = wanted.nodes & other.nodes
        if not common or not collide(wanted, other):
            continue
        for node in sorted(common):
            taken[node] = taken.get(node, _kept(wanted, node)) + _kept(other, node)
            if taken[node] > cpus.get(node, 0):
                return other.name, node
    return None


def _kept(reservation: Reservation, node: str) -> float:
    if reservation.cpus is None:
        return math.inf
    return dict(reservation.cpus).get(node, 0)

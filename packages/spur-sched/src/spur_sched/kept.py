"""Nodes that reservations keep, as columns: until when a start now may last, and when a node is closed."""

import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

from spur_core import reasons
from spur_sched.api import Running, Window
from spur_sched.columns import CPUS, Bools, Columns, Floats
from spur_sched.reservations.shade import Shade
from spur_sched.reservations.shade import why as shade_why
from spur_sched.rules import Why

#: (from, to) in order.
Spans = tuple[tuple[float, float], ...]
_NEVER: Final[Spans] = ((-math.inf, math.inf),)


class Closed(NamedTuple):
    """What reservations close to the jobs of one reservation, or to those of none.

    Attributes:
        until: of each column, until when a run that starts now may last; now = it may not start.
        away: when columns are closed, columns that never are left out.
        open: columns that are not closed for good.
        parts: columns of which other reservations keep some CPUs, or of which one's own has only some.
    """

    until: Floats
    away: dict[int, Spans]
    open: Bools
    parts: frozenset[int]


class Kept:
    """All reservations during one pass."""

    def __init__(
        self, columns: Columns, windows: Sequence[Window], running: Iterable[Running], now: float
    ) -> None:
        self.shade = Shade(windows)
        self._columns = columns
        self._now = now
        self._parts = frozenset(
            columns.at[name]
            for window in windows
            if window.cpus is not None
            for name in window.nodes
            if name in columns.at
        )
        #: CPUs that jobs of a reservation hold on a column.
        self._own: dict[tuple[str, int], int] = {}
        if self._parts:
            for one in running:
                for share in one.shares if one.reservation else ():
                    if share.node in columns.at:
                        self.take(one.reservation, columns.at[share.node], share.cpus)
        self._closed: dict[str, Closed] = {}

    def __bool__(self) -> bool:
        return bool(self.shade)

    def take(self, reservation: str, at: int, cpus: int) -> None:
        """A job of the reservation has these CPUs."""
        if reservation and self._parts:
            self._own[reservation, at] = self._own.get((reservation, at), 0) + cpus

    def of(self, reservation: str) -> Closed:
        """For jobs that name this reservation ("" = none)."""
        found = self._closed.get(reservation)
        if found is None:
            found = self._closed[reservation] = self._work_out(reservation)
        return found

    def _work_out(self, reservation: str) -> Closed:
        columns, shade, now = self._columns, self.shade, self._now
        names = [view.name for view in columns.views]
        # Whoever names none is kept off the nodes of others only.
        touched = range(columns.size)
        places: Iterable[int] = touched
        if not reservation:
            places = sorted(columns.at[name] for name in shade.nodes if name in columns.at)
        until = np.full(columns.size, math.inf)
        opened = np.ones(columns.size, dtype=np.bool_)
        away: dict[int, Spans] = {}
        for at in places:
            spans = tuple((span.start, span.end) for span in shade.closed(names[at], reservation))
            if not spans:
                continue
            if spans == _NEVER:
                opened[at] = False
            away[at] = spans
            until[at] = shade.free_until(names[at], now, reservation)
        return Closed(until, away, opened, self._parts)

    def inside(self, reservation: str) -> list[dict[int, int]] | None:
        """Of each occurrence of the reservation its columns, with the CPUs that its jobs have there; None if
        nobody knows one yet, or its jobs may be elsewhere too."""
        windows = self.shade.of(reservation)
        if not windows or any(window.flex or not window.nodes for window in windows):
            return None
        columns, found = self._columns, []
        for window in windows:
            some = None if window.cpus is None else dict(window.cpus)
            places = [(columns.at[name], name) for name in window.nodes if name in columns.at]
            found.append(
                {at: columns.views[at].cpus if some is None else some.get(name, 0) for at, name in places}
            )
        return found

    def leaves(self, reservation: str, named: Bools, end: float) -> int:
        """How many of these columns a run from now to `end` may use."""
        until = self.of(reservation).until
        return int((named & ((until >= end) | (until == math.inf))).sum())

    def leaves_all(self, reservation: str, named: Bools, end: float) -> bool:
        """Whether a run from now to `end` may use each of these columns."""
        return self.leaves(reservation, named, end) == int(named.sum())

    def why(self, reservation: str, named: Bools, end: float) -> Why:
        """For a job that they keep off so many of these columns that it cannot start."""
        if reservation:
            return Why(reasons.RESERVATION)
        until = self.of("").until
        closed = (named & (until < end)).nonzero()[0].tolist()
        views = self._columns.views
        return Why(*shade_why(self.shade, [views[at].name for at in closed], self._now, end))

    def clip(self, reservation: str, at: int, room: list[int], start: float, end: float) -> list[int]:
        """The room of a column without the CPUs that reservations keep from the job."""
        if at not in self._parts:
            return room
        name = self._columns.views[at].name
        left = room[CPUS] - self._others(name, at, start, end, reservation)
        own = self.shade.own_cpus(name, start, reservation) if reservation else None
        if own is not None:
            left = min(left, own - self._own.get((reservation, at), 0))
        clipped = [max(0, left), *room[CPUS + 1 :]]
        if self._columns.layers is not None:
            self._columns.layers.clip(clipped, room[CPUS] - clipped[CPUS])
        return clipped

    def _others(self, name: str, at: int, start: float, end: float, reservation: str) -> int:
        kept = self.shade.kept(name, start, end, reservation)
        if not kept:
            return 0
        # What their own jobs hold already is not free either way.
        held = sum(cpus for (own, where), cpus in self._own.items() if where == at and own != reservation)
        return max(0, kept - held)

"""Where and when a job may be, because of reservations.

Asked for a node, the reservation that the job names ("" = none) and an instant, it tells until when a run
that begins there and then may last.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from spur_core import reasons
from spur_sched.api import Window
from spur_sched.reservations.model import Span

_NOTHING: Final[Mapping[tuple[str, str], int]] = MappingProxyType({})


class Shade:
    """Made once for a pass; what was asked for is remembered.

    Args:
        windows: of the whole time that is planned.
    """

    def __init__(self, windows: Sequence[Window]) -> None:
        self._by_node: dict[str, list[Window]] = {}
        self._own: dict[str, list[Window]] = {}
        self.nodes: frozenset[str] = frozenset().union(*(window.nodes for window in windows))
        for window in windows:
            self._own.setdefault(window.name, []).append(window)
            for node in window.nodes:
                self._by_node.setdefault(node, []).append(window)
        self._closed: dict[tuple[str, str], tuple[Span, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self._own)

    def of(self, reservation: str) -> Sequence[Window]:
        """The occurrences of one reservation."""
        return self._own.get(reservation, ())

    def closed(self, node: str, reservation: str = "") -> tuple[Span, ...]:
        """When the node is closed to jobs of that reservation, in order, apart from each other."""
        key = (node, reservation)
        found = self._closed.get(key)
        if found is None:
            found = self._closed[key] = self._find(node, reservation)
        return found

    def _find(self, node: str, reservation: str) -> tuple[Span, ...]:
        own = self._own.get(reservation, []) if reservation else []
        others = [
            Span(window.start, window.end)
            for window in self._by_node.get(node, ())
            # Of a node that is kept in part the rest is free; `kept` tells how much.
            if window.name != reservation and window.cpus is None
        ]
        if not reservation:
            return _merged(others)
        if any(window.flex or not window.nodes for window in own):
            # Anywhere where nobody else has a claim.
            return _merged(others)
        inside = [Span(window.start, window.end) for window in own if node in window.nodes]
        # Where two reservations share a node, each one's jobs may use it.
        return _outside(_merged(inside))

    def free_until(self, node: str, at: float, reservation: str = "") -> float:
        """Until when a run that begins at `at` may last; `at` itself when it may not begin."""
        for span in self.closed(node, reservation):
            if span.end <= at:
                continue
            return max(span.start, at)
        return math.inf

    def opens(self, node: str, at: float, reservation: str = "") -> float:
        """The first instant from `at` on at which a run may begin; inf for never."""
        for span in self.closed(node, reservation):
            if span.start <= at < span.end:
                at = span.end
        return at

    def kept(self, node: str, start: float, end: float, reservation: str = "") -> int:
        """CPUs of the node that other reservations keep at most between the two instants."""
        edges = {start}
        partial = [
            window
            for window in self._by_node.get(node, ())
            if window.cpus is not None and window.name != reservation and _meets(window, start, end)
        ]
        edges.update(window.start for window in partial if window.start > start)
        return max(
            sum(
                dict(window.cpus or ()).get(node, 0)
                for window in partial
                if window.start <= edge < window.end
            )
            for edge in edges
        )

    def own_cpus(self, node: str, at: float, reservation: str) -> int | None:
        """CPUs that jobs of the reservation may use there together; None = all of them."""
        for window in self._own.get(reservation, ()):
            if window.start <= at < window.end and window.cpus is not None and not window.flex:
                return dict(window.cpus).get(node, 0)
        return None

    def maintained(self, nodes: Iterable[str], start: float, end: float) -> bool:
        """Whether maintenance is what keeps a run between the two instants off one of the nodes."""
        return any(
            window.maintenance and _meets(window, start, end)
            for node in nodes
            for window in self._by_node.get(node, ())
        )

    def licenses(
        self,
        name: str,
        start: float,
        end: float,
        reservation: str = "",
        held: Mapping[tuple[str, str], int] = _NOTHING,
    ) -> int:
        """How many of a licence other reservations keep at most between the two instants.

        Args:
            held: (reservation, licence) -> what its jobs hold of it already.
        """
        keeping = [
            (window, max(0, count - held.get((window.name, name), 0)))
            for windows in self._own.values()
            for window in windows
            for license_, count in window.licenses
            if license_ == name and window.name != reservation and _meets(window, start, end)
        ]
        edges = {start, *(window.start for window, _ in keeping if window.start > start)}
        return max(
            sum(count for window, count in keeping if window.start <= edge < window.end) for edge in edges
        )

    def license_ends(self, names: Collection[str], reservation: str = "") -> set[float]:
        """When others stop keeping some of these licences."""
        return {
            window.end
            for own, windows in self._own.items()
            if own != reservation
            for window in windows
            if any(name in names for name, _ in window.licenses)
        }


def why(shade: Shade, nodes: Iterable[str], start: float, end: float) -> tuple[str, str]:
    """(reason, text) for a job that reservations keep off these nodes."""
    if shade.maintained(nodes, start, end):
        return reasons.REQ_NODE_NOT_AVAIL, MAINTENANCE
    return reasons.REQ_NODE_NOT_AVAIL, RESERVED


MAINTENANCE = f"{reasons.REQ_NODE_NOT_AVAIL}, Reserved for maintenance"
RESERVED = f"{reasons.REQ_NODE_NOT_AVAIL}, May be reserved for other job"


def _meets(window: Window, start: float, end: float) -> bool:
    """Whether it holds at some instant from `start`, which counts, to `end`."""
    return window.start <= start < window.end or start < window.start < end


def _merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    found: list[Span] = []
    for span in sorted(spans):
        if found and span.start <= found[-1].end:
            found[-1] = Span(found[-1].start, max(found[-1].end, span.end))
        else:
            found.append(span)
    return tuple(found)


def _outside(spans: Sequence[Span]) -> tuple[Span, ...]:
    """Everything but these."""
    found: list[Span] = []
    at = -math.inf
    for span in spans:
        if span.start > at:
            found.append(Span(at, span.start))
        at = span.end
    found.append(Span(at, math.inf))
    return tuple(found)
